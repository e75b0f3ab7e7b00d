package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// wrong is a value at a path of an otherwise valid object, and what the refusal says. nil removes the field.
type wrong struct {
	path  string
	value any
	says  string
}

func list(n int, item any) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = item
	}
	return out
}

func strs(n int) map[string]any {
	out := map[string]any{}
	for i := range n {
		out[fmt.Sprint("k", i)] = "v"
	}
	return out
}

func port(field string, value any) []any {
	p := map[string]any{"protocol": "TCP", "port": int64(80)}
	if p[field] = value; value == nil {
		delete(p, field)
	}
	return []any{p}
}

func endpoint(field string, value any) []any {
	e := map[string]any{"address": "10.0.0.1"}
	if e[field] = value; value == nil {
		delete(e, field)
	}
	return []any{e}
}

// inGroup is one group of endpoints.
func inGroup(endpoints []any) []any {
	return []any{map[string]any{"addressType": "IPv4", "endpoints": endpoints}}
}

var long = strings.Repeat("x", 64)

var originRules = []wrong{
	{"spec.clusterID", nil, "spec.clusterID: Required value"},
	{"spec.clusterID", "", "should be at least 1 chars long"},
	{"spec.clusterID", long, "may not be more than 63 bytes"},
	{"spec.clusterID", "A", "spec.clusterID in body should match"},
	{"spec.clusterID", "a.b.c", "spec.clusterID in body should match"},
	{"spec.clusterID", "a-", "spec.clusterID in body should match"},
	{"spec.serviceNamespace", nil, "spec.serviceNamespace: Required value"},
	{"spec.serviceNamespace", "", "should be at least 1 chars long"},
	{"spec.serviceNamespace", long, "may not be more than 63 bytes"},
	{"spec.serviceNamespace", "a.b", "spec.serviceNamespace in body should match"},
	{"spec.serviceName", nil, "spec.serviceName: Required value"},
	{"spec.serviceName", "", "should be at least 1 chars long"},
	{"spec.serviceName", long, "may not be more than 63 bytes"},
	{"spec.serviceName", "a.b", "spec.serviceName in body should match"},
	{"spec.revision", nil, "spec.revision: Required value"},
	{"spec.revision", int64(0), "spec.revision in body should be greater than or equal to 1"},
	{"spec.revision", int64(clusterset.MaxRevision + 1), "spec.revision in body should be less than or equal to"},
}

var portRules = []wrong{
	{"spec.ports", list(257, port("port", int64(1))[0]), "must have at most 256 items"},
	{"spec.ports", port("name", long), "may not be more than 63 bytes"},
	{"spec.ports", port("protocol", nil), "protocol: Required value"},
	{"spec.ports", port("protocol", ""), "should be at least 1 chars long"},
	{"spec.ports", port("port", int64(0)), "should be greater than or equal to 1"},
	{"spec.ports", port("port", int64(65536)), "should be less than or equal to 65535"},
	{"spec.ports", port("appProtocol", strings.Repeat("x", 318)), "may not be more than 317 bytes"},
}

// targetRules are those of a group's ports.
var targetRules = slices.Concat(portRules[2:], []wrong{
	{"spec.ports", list(257, port("port", int64(1))[0]), "must have at most 256 items"},
	{"spec.ports", port("target", int64(0)), "should be greater than or equal to 1"},
	{"spec.ports", port("target", int64(65536)), "should be less than or equal to 65535"},
	{"spec.ports", port("port", nil), "port: Required value"},
})

var exportRules = []wrong{
	{"spec.endpoints", list(9, map[string]any{"addressType": "IPv4"}), "must have at most 8 items"},
	{"spec.endpoints", inGroup(list(101, endpoint("ready", true)[0])), "must have at most 100 items"},
	{"spec.endpoints", inGroup(endpoint("address", long)), "may not be more than 45 bytes"},
	{"spec.pages", int64(-1), "should be greater than or equal to 0"},
	{"spec.pages", int64(10001), "should be less than or equal to 10000"},
	{"metadata.name", "web.shop.b", "metadata.name must be <serviceName>.<serviceNamespace>.<clusterID>"},
	{"spec.type", nil, "type, exportedAt and ipFamilies are required unless the record is withdrawn"},
	{"spec.exportedAt", nil, "type, exportedAt and ipFamilies are required unless the record is withdrawn"},
	{"spec.ipFamilies", nil, "type, exportedAt and ipFamilies are required unless the record is withdrawn"},
	{"spec.type", "ExternalName", `Unsupported value: "ExternalName"`},
	{"spec.exportedAt", "yesterday", "spec.exportedAt in body must be of type date-time"},
	{"spec.withdrawnAt", "yesterday", "spec.withdrawnAt in body must be of type date-time"},
	{"spec.ports", port("port", nil), "port: Required value"},
	{"spec.ports", port("protocol", long), "may not be more than 63 bytes"},
	{"spec.sessionAffinity", long, "may not be more than 63 bytes"},
	{"spec.internalTrafficPolicy", long, "may not be more than 63 bytes"},
	{"spec.trafficDistribution", long, "may not be more than 63 bytes"},
	{"spec.ipFamilies", []any{}, "spec.ipFamilies in body should have at least 1 items"},
	{"spec.ipFamilies", list(3, "IPv4"), "must have at most 2 items"},
	{"spec.ipFamilies", []any{"IPv5"}, `Unsupported value: "IPv5"`},
	{"spec.exportedLabels", strs(257), "must have at most 256 items"},
	{"spec.exportedAnnotations", strs(257), "must have at most 256 items"},
}

const pageRule = "metadata.name must be <number>.<serviceName>.<serviceNamespace>.<clusterID>"

var endpointRules = []wrong{
	{"metadata.name", "7.web.shop.b", pageRule},
	{"metadata.name", "8.web.shop.a", pageRule},
	{"metadata.name", "07.web.shop.a", pageRule},
	{"metadata.name", "web.shop.a", pageRule},
	{"spec.number", nil, "spec.number: Required value"},
	{"spec.number", int64(-1), "should be greater than or equal to 0"},
	{"spec.number", int64(10000), "should be less than or equal to 9999"},
	{"spec.addressType", nil, "spec.addressType: Required value"},
	{"spec.addressType", "FQDN", `Unsupported value: "FQDN"`},
	{"spec.endpoints", list(101, endpoint("ready", true)[0]), "must have at most 100 items"},
	{"spec.endpoints", endpoint("address", nil), "address: Required value"},
	{"spec.endpoints", endpoint("address", "1"), "should be at least 2 chars long"},
	{"spec.endpoints", endpoint("address", long), "may not be more than 45 bytes"},
	{"spec.endpoints", endpoint("hostname", long), "may not be more than 63 bytes"},
	{"spec.endpoints", endpoint("podName", strings.Repeat("x", 254)), "may not be more than 253 bytes"},
	{"spec.endpoints", endpoint("zone", long), "may not be more than 63 bytes"},
}

var clusterSetRules = []wrong{
	{"metadata.name", long, "a clusterset's name becomes a label value: at most 63 characters"},
	{"spec.vips.mode", "bridged", `Unsupported value: "bridged"`},
	{
		"spec.lease",
		map[string]any{"renewSeconds": int64(10), "durationSeconds": int64(19)},
		"durationSeconds must be at least twice renewSeconds",
	},
	{
		"spec.lease",
		map[string]any{"renewSeconds": int64(30)},
		"durationSeconds must be at least twice renewSeconds",
	}, // beside the default of 40
	{"spec.lease.renewSeconds", int64(0), "should be greater than or equal to 1"},
	{"spec.namespaces.deny", []any{"kube-*", "kube-*"}, "Duplicate value"},
	{"spec.namespaces.deny", []any{"a*b"}, "spec.namespaces.deny[0] in body should match"},
	{"spec.namespaces.deny", []any{"*a*"}, "spec.namespaces.deny[0] in body should match"},
	{"spec.namespaces.allow", []any{"Shop"}, "spec.namespaces.allow[0] in body should match"},
	{"spec.namespaces.allow", []any{""}, "spec.namespaces.allow[0] in body should match"},
	{"spec.namespaces.allow", list(65, "a"), "must have at most 64 items"},
	{"spec.lease.durationSeconds", int64(1), "should be greater than or equal to 2"},
	{"spec.lease.renewSeconds", int64(86401), "should be less than or equal to 86400"},
	{"spec.lease.durationSeconds", int64(86401), "should be less than or equal to 86400"},
	{"spec.lease.graceSeconds", int64(86401), "should be less than or equal to 86400"},
}

func TestSchemasRefuse(t *testing.T) {
	e := setUp(t)
	clusterSet := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "blue-two"}}
	for _, kind := range []struct {
		valid client.Object
		rules [][]wrong
	}{
		{exportRecord("a", "web"), [][]wrong{originRules, portRules, exportRules}},
		{endpointPage("a", "web"), [][]wrong{originRules, targetRules, endpointRules}},
		{clusterSet, [][]wrong{clusterSetRules}},
	} {
		must(t, e.admin.Create(t.Context(), kind.valid.DeepCopyObject().(client.Object), client.DryRunAll))
		for _, rules := range kind.rules {
			for _, w := range rules {
				t.Run(fmt.Sprintf("%T/%s=%.20v", kind.valid, w.path, w.value), func(t *testing.T) {
					refused(t, e.admin.Create(t.Context(), with(t, e, kind.valid, w), client.DryRunAll), w.says)
				})
			}
		}
	}
}

// with is valid, wrong at one place.
func with(t *testing.T, e *environment, valid client.Object, w wrong) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(valid.DeepCopyObject())
	must(t, err)
	u := &unstructured.Unstructured{Object: content}
	kind, err := e.admin.GroupVersionKindFor(valid)
	must(t, err)
	u.SetGroupVersionKind(kind)
	path := strings.Split(w.path, ".")
	if w.value == nil {
		unstructured.RemoveNestedField(u.Object, path...)
		return u
	}
	must(t, unstructured.SetNestedField(u.Object, runtime.DeepCopyJSONValue(w.value), path...))
	return u
}

func TestRecordsDoNotChangeWhatTheyAreAbout(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	for _, o := range []client.Object{exportRecord("a", "fixed"), endpointPage("a", "fixed")} {
		must(t, e.admin.Create(ctx, o))
		t.Cleanup(func() { must(t, e.admin.Delete(context.WithoutCancel(ctx), o)) })
		for _, field := range []string{"clusterID", "serviceNamespace", "serviceName"} {
			patch := fmt.Appendf(nil, `{"spec":{%q:"changed"}}`, field)
			refused(
				t,
				e.admin.Patch(
					ctx,
					o.DeepCopyObject().(client.Object),
					client.RawPatch(types.MergePatchType, patch),
				),
				field+" is immutable",
			)
		}
	}
}

// What is withdrawn needs no more than what it was, and the biggest possible one fits.
func TestSchemasLetThrough(t *testing.T) {
	e := setUp(t)
	label := strings.Repeat("l", 63)
	long := exportRecord("a", "web")
	long.Spec.Origin = hubv1alpha1.Origin{
		ClusterID:        label[:31] + "." + label[:31],
		ServiceNamespace: label,
		ServiceName:      label,
		Revision:         clusterset.MaxRevision,
	}
	long.Name = label + "." + label + "." + long.Spec.ClusterID
	long.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	withdrawn := &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "web.shop.a"},
	}
	withdrawn.Spec.Origin = origin("a", "web")
	withdrawn.Spec.Withdrawn = true
	hundred := endpointGroup()
	for range 100 {
		hundred.Endpoints = append(hundred.Endpoints, hubv1alpha1.Endpoint{
			Address:  "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255",
			PodName:  strings.Repeat("p", 253),
			Hostname: label,
			Zone:     label,
		})
	}
	inline, page := exportRecord("a.b", "web"), endpointPage("a.b", "web")
	inline.Spec.Endpoints = append(make([]hubv1alpha1.EndpointGroup, 0, 8), hundred)
	for range 7 {
		inline.Spec.Endpoints = append(inline.Spec.Endpoints, endpointGroup())
	}
	page.Spec.EndpointGroup, page.Spec.Number = hundred, 9999
	page.Name = clusterset.PageName(9999, "web", "shop", "a.b")
	paged := exportRecord("a", "web")
	paged.Spec.Endpoints, paged.Spec.Pages = nil, 10000
	for _, o := range []client.Object{long, withdrawn, inline, page, paged} {
		if err := e.admin.Create(t.Context(), o, client.DryRunAll); err != nil {
			t.Errorf("%T %s: %v", o, o.GetName(), err)
		}
	}
}

func TestClusterSetHasDefaults(t *testing.T) {
	e := setUp(t)
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "blue-two"}}
	must(t, e.admin.Create(t.Context(), set, client.DryRunAll))
	want := hubv1alpha1.ClusterSetSpec{
		VIPs: hubv1alpha1.VIPs{
			Mode:   hubv1alpha1.VIPModeShared,
			Blocks: hubv1alpha1.BlockSize{IPv4Bits: 22, IPv6Bits: 112},
		},
		Lease: hubv1alpha1.LeaseSpec{
			RenewSeconds:    10,
			DurationSeconds: 40,
			GraceSeconds:    10,
			OnExpiry:        hubv1alpha1.ExpiryRemove,
			MostSilent:      hubv1alpha1.MostSilentHold,
		},
		Namespaces:    hubv1alpha1.NamespaceRules{Deny: clusterset.DefaultDeny},
		ExternalNames: hubv1alpha1.ExternalNamesAllow,
	}
	if !equality.Semantic.DeepEqual(set.Spec, want) {
		t.Errorf("an empty spec becomes %+v, want %+v", set.Spec, want)
	}
	for _, ns := range []string{home, other} {
		must(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: ns}, set))
		if !equality.Semantic.DeepEqual(set.Spec, want) {
			t.Errorf("deploy/hub/clusterset says %+v, want the defaults %+v", set.Spec, want)
		}
	}
}

func TestV2PoolsOfAClusterSet(t *testing.T) {
	e := setUp(t)
	for pool, says := range map[string]string{
		"10.200.0.0/13": "", "10.0.0.1/32": "", "fd00:c5::/48": "", "FD00:C5::/48": "", "0.0.0.0/0": "",
		"10.200.0.1/13":         "has bits set after its prefix",
		"fd00:c5::1/48":         "has bits set after its prefix",
		"10.200.0.0":            "must be a CIDR",
		"10.200.0.0/33":         "must be a CIDR",
		"::ffff:10.0.0.0/104":   "must be a CIDR",
		"":                      "must be a CIDR",
		strings.Repeat("1", 44): "may not be more than 43",
	} {
		set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "blue-two"}}
		set.Spec.VIPs.Pools = []string{pool}
		err := e.admin.Create(t.Context(), set, client.DryRunAll)
		if says == "" {
			if err != nil {
				t.Errorf("%s: %v", pool, err)
			}
			continue
		}
		refused(t, err, says)
	}
}
