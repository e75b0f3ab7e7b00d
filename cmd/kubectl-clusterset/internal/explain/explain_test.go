package explain_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func record(cluster string, age int,
	change func(*hubv1alpha1.ServiceExportRecordSpec)) hubv1alpha1.ServiceExportRecord {
	at := metav1.NewTime(start.Add(-time.Duration(age) * time.Hour))
	rec := hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{Name: "web.shop." + cluster}}
	rec.Spec = hubv1alpha1.ServiceExportRecordSpec{
		Origin: hubv1alpha1.Origin{
			ClusterID:        cluster,
			ServiceNamespace: "shop",
			ServiceName:      "web",
			Revision:         1,
		},
		ExportedAt: &at,
		Type:       mcsv1beta1.ClusterSetIP,
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports:      []hubv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
	}
	if change != nil {
		change(&rec.Spec)
	}
	return rec
}

func slice(cluster string, ready, notReady int) discoveryv1.EndpointSlice {
	name, proto, number := "http", corev1.ProtocolTCP, int32(8080)
	s := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &proto, Port: &number}}}
	s.Name = "derived-" + cluster
	s.Labels = map[string]string{mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: cluster}
	for i := range ready + notReady {
		yes := i < ready
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d",
			cluster[0], i+1)}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}})
	}
	return s
}

// member is a cluster where two export web, which is imported and answers.
func member() *explain.Facts {
	imp := &mcsv1beta1.ServiceImport{}
	imp.Spec = mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.96.0.7"},
		Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}}
	return &explain.Facts{
		Name: web, Membership: facts.Membership{ID: "west", Set: "blue"}, NamespaceExists: true, Import: imp,
		Corefile: ".:53 {\n multicluster\n}\n",
		Records:  []hubv1alpha1.ServiceExportRecord{record("west", 1, nil), record("east", 2, nil)},
		Slices:   []discoveryv1.EndpointSlice{slice("west", 1, 0), slice("east", 2, 0)},
	}
}

func TestNamesAreReadAsUsersWriteThem(t *testing.T) {
	for _, in := range [][2]string{{"web.shop", ""}, {"Web.Shop.svc.clusterset.local.", ""},
		{"web.shop.svc", "default"}, {"web", "shop"}, {"web.shop", "other"},
		{"_http._tcp.web.shop.svc.clusterset.local", ""}, {"db-0.east.web.shop.svc.clusterset.local.", ""}} {
		if got, err := explain.ParseName(in[0], in[1]); err != nil || got != web {
			t.Errorf("%v: %v %v", in, got, err)
		}
	}
	for _, in := range []string{"web", "", "a.b.c", "_http._tcp.web.shop",
		"web.shop.svc.cluster.local", "-.shop"} {
		if got, err := explain.ParseName(in, ""); err == nil ||
			!strings.Contains(err.Error(), "SERVICE.NAMESPACE") {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestNamesThatMayBeMeant(t *testing.T) {
	in := func(ns, name string) types.NamespacedName { return types.NamespacedName{Namespace: ns, Name: name} }
	for _, c := range []struct {
		asked, there types.NamespacedName
		alike        bool
	}{
		{in("shop", "wbe"), web, true},
		{in("shop", "webb"), web, true},
		{in("store", "web"), web, true},
		{web, web, false}, // it is there: nothing else was meant
		{in("shop", "db"), web, false},
		{in("shop", "api"), web, false},
		{in("store", "wbe"), web, false},
		{in("shop", "checkout-v2"), in("shop", "chekout"), false},
		{in("shop", "checkuot"), in("shop", "checkout"), true},
	} {
		if got := explain.Similar(c.asked, c.there); got != c.alike {
			t.Errorf("%v for %v: %v", c.asked, c.there, got)
		}
	}
}

func TestAHealthyNameHasAnswersAndNoProblem(t *testing.T) {
	r := explain.Explain(member())
	if r.Outcome != explain.Success || len(r.Findings) != 0 || len(r.Withheld) != 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Answers) != 2 || r.Answers[0].Data[0] != "10.96.0.7" ||
		r.Answers[1].Data[0] != "80 web.shop.svc.clusterset.local" {
		t.Errorf("answers %+v", r.Answers)
	}
	if len(r.Exporters) != 2 || r.Exporters[0].Cluster != "east" || r.Exporters[0].Ready != 2 ||
		!r.Exporters[1].Here {
		t.Errorf("exporters %+v", r.Exporters)
	}
}

// TestWideListsTheFirstEndpoints of each cluster, and how many more there are.
func TestWideListsTheFirstEndpoints(t *testing.T) {
	f := member()
	f.Slices[0] = slice("west", 20, 3)
	r := explain.Explain(f)
	var plain, wide strings.Builder
	explain.Print(&plain, &r, false, start)
	explain.Print(&wide, &r, true, start)
	for _, want := range []string{
		"east      10.0.101.2    8080/TCP   ready",
		"west      10.0.119.20   8080/TCP   ready",
		"west      and 3 more",
	} {
		if !strings.Contains(wide.String(), want) || strings.Contains(plain.String(), want) {
			t.Errorf("%q is not in the wide report alone:\n%s", want, wide.String())
		}
	}
	if strings.Contains(wide.String(), "10.0.119.21") {
		t.Errorf("a 21st endpoint:\n%s", wide.String())
	}
}

func headless(f *explain.Facts) {
	f.Import.Spec.Type, f.Import.Spec.IPs = mcsv1beta1.Headless, nil
	for i := range f.Records {
		f.Records[i].Spec.Type = mcsv1beta1.Headless
	}
}

func TestAHeadlessNameAnswersItsReadyEndpoints(t *testing.T) {
	f := member()
	headless(f)
	f.Slices[1] = slice("east", 1, 1)
	host := "db-0"
	f.Slices[1].Endpoints[0].Hostname = &host
	r := explain.Explain(f)
	if len(r.Answers) != 2 || len(r.Answers[0].Data) != 2 || len(r.Answers[1].Data) != 2 {
		t.Errorf("answers %+v", r.Answers)
	}
	if len(r.Hosts) != 2 || !strings.HasPrefix(r.Hosts[1], "db-0.east.") {
		t.Errorf("hosts %v", r.Hosts)
	}
	if len(r.Withheld) != 1 || r.Withheld[0].Cluster != "east" || r.Withheld[0].What != "1 endpoint" {
		t.Errorf("withheld %+v", r.Withheld)
	}
}

// TestN15EndpointsAreNamedAsCoreDNSNamesThem: by their host name, by their pod where the Corefile says so, by their
// address.
func TestN15EndpointsAreNamedAsCoreDNSNamesThem(t *testing.T) {
	host := "db-0"
	for option, want := range map[string][]string{"": {"10-0-119-2.", "db-0."},
		"endpoint_pod_names": {"db-0.", "web-7d9."}} {
		f := member()
		headless(f)
		f.Corefile = ".:53 {\n multicluster {\n" + option + "\n}\n}\n"
		f.Slices = []discoveryv1.EndpointSlice{slice("west", 2, 0)}
		f.Slices[0].Endpoints[0].Hostname = &host
		for i, name := range []string{"web-5c2", "web-7d9"} {
			f.Slices[0].Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: name}
		}
		r := explain.Explain(f)
		if len(r.Hosts) != 2 || !strings.HasPrefix(r.Hosts[0], want[0]+"west.") ||
			!strings.HasPrefix(r.Hosts[1], want[1]+"west.") {
			t.Errorf("%q: hosts %v, want %v", option, r.Hosts, want)
		}
	}
}

func condition(kind, status, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}
}

func gone(f *explain.Facts) { f.Import, f.Slices = nil, nil }

// seen has the agent have renewed its Lease on the hub so many seconds ago.
func seen(f *explain.Facts, seconds int) {
	at, renewed := metav1.NewTime(start), metav1.NewMicroTime(start)
	kept := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: clusterset.LeaseRenewed,
		ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}}}
	kept.Spec.RenewTime, kept.Spec.LeaseDurationSeconds = &renewed, new(int32(40))
	f.Leases, f.Now = []coordinationv1.Lease{kept}, start.Add(time.Duration(seconds)*time.Second)
}

// causes are planted one at a time.
var causes = []struct {
	name   string
	change func(*explain.Facts)
	want   string // in a problem, its remedy, or in what is withheld
}{
	{"not a member", func(f *explain.Facts) { f.Set = ""; gone(f); f.Records = nil }, "a member of no ClusterSet"},
	{"not a member, and without an ID", func(f *explain.Facts) { f.Set, f.ID = "", ""; gone(f); f.Records = nil },
		"→ kubectl clusterset join --hub-context=HUB --cluster-id ID"},
	{"the namespace is missing", func(f *explain.Facts) { gone(f); f.NamespaceExists = false },
		"kubectl create namespace shop"},
	{"the namespace refuses imports", func(f *explain.Facts) { gone(f); f.Refuses = true },
		"kubectl annotate namespace shop clusterset-dns.io/import-"},
	{"a namespace that ClusterSets exclude", func(f *explain.Facts) {
		gone(f)
		f.Records, f.Name.Namespace = nil, "kube-system"
	}, "spec.namespaces of the ClusterSet"},
	{"a Service in such a namespace", func(f *explain.Facts) {
		gone(f)
		f.Records, f.Name.Namespace, f.Service = nil, "kube-system", &corev1.Service{}
		seen(f, 41)
	}, "ClusterSets exclude namespace kube-system by default\n  → use another namespace"},
	{"a Service that cannot be exported", func(f *explain.Facts) {
		gone(f)
		f.Records, f.Service = nil, &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}}
		seen(f, 41)
	}, "of type ExternalName, which cannot be exported\n  → create the Service in each cluster"},
	{"a family that others lack", func(f *explain.Facts) {
		f.Records[0].Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}, "the name has no IPv6 VIP, because not all exporters have that family (with it: west; without it: east)"},
	{"an export to nobody", func(f *explain.Facts) {
		f.Export = &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{clusterset.AnnotationExportTo: "cluster=wset, region=eu"}}}
	}, "export-to names cluster wset, and this cluster knows no such member\n  → change the annotation " +
		"clusterset-dns.io/export-to; to list members: kubectl clusterset status\n"},
	{"the agent is down", gone,
		"clusters east, west export it, and this cluster's agent has not created a ServiceImport"},
	{"nobody exports", func(f *explain.Facts) { gone(f); f.Records = nil }, "no cluster exports the name"},
	{"forgotten to export", func(f *explain.Facts) { gone(f); f.Records = nil; f.Service = &corev1.Service{} },
		"→ kubectl clusterset export web -n shop\n"},
	{"it has the Service, and others export it", func(f *explain.Facts) { f.Service = &corev1.Service{} },
		"! this cluster has a Service shop/web without a ServiceExport"},
	{"mistaken namespace", func(f *explain.Facts) {
		gone(f)
		f.Records, f.Similar = nil, []types.NamespacedName{{Namespace: "store", Name: "web"}}
	}, "kubectl clusterset explain web.store"},
	{"the hub is not seen", func(f *explain.Facts) { gone(f); f.Records = nil; seen(f, 41) },
		"x when this cluster's agent last saw the hub, at 2026-01-02T03:04:05Z: no cluster exports the name\n  → " +
			"kubectl clusterset doctor; then: in the cluster of the Service: kubectl clusterset export web"},
	{"the hub is not seen, and it has the Service", func(f *explain.Facts) {
		gone(f)
		f.Records, f.Service = nil,
			&corev1.Service{}
		seen(f, 41)
	},
		"at 2026-01-02T03:04:05Z: no cluster exports the name; this cluster has a Service"},
	{"the hub is not seen, and there is an import", func(f *explain.Facts) { f.Records = nil; seen(f, 41) },
		"at 2026-01-02T03:04:05Z: no cluster exports the name to this cluster, but there is"},
	{"the hub is seen", func(f *explain.Facts) { gone(f); f.Records = nil; seen(f, 39) },
		"x no cluster exports the name\n  → in the cluster of the Service: kubectl clusterset export web -n shop"},
	{
		"leaving",
		func(f *explain.Facts) {
			gone(f)
			f.Records, f.Leaving, f.Export = nil, true, &mcsv1beta1.ServiceExport{}
		},
		"(in cluster west)\n\n! this cluster is leaving ClusterSet blue: its agent deletes its imports, and creates " +
			"no others\n  → to continue: kubectl clusterset leave --hub-context=HUB; without access to the hub, " +
			"unless it has evicted this cluster: kubectl clusterset leave\n",
	},
	{"withdrawn by all", func(f *explain.Facts) {
		gone(f)
		for i := range f.Records {
			f.Records[i].Spec.Withdrawn = true
		}
	}, "no cluster exports the name"},
	{"a stray import", func(f *explain.Facts) { f.Records = nil }, "but there is a ServiceImport"},
	{"a stray import, and exports to others", func(f *explain.Facts) {
		f.Records = f.Records[1:]
		f.Records[0].Spec.ExportTo = "cluster=north"
	}, "! no cluster exports the name to this cluster, but there is a ServiceImport"},
	{"no VIP", func(f *explain.Facts) {
		f.Import.Spec.IPs = nil
		f.Import.Status.Conditions = []metav1.Condition{condition("Ready", "False", "Pending", "the range is full")}
	}, "the range is full"},
	{"all pods down", func(f *explain.Facts) {
		headless(f)
		f.Slices = []discoveryv1.EndpointSlice{slice("east", 0, 2), slice("west", 0, 1)}
	}, "does not exist\n  → kubectl -n shop get pods; kubectl -n shop get endpointslices -l " +
		"kubernetes.io/service-name=web; in cluster east: kubectl clusterset explain web.shop\n"},
	{"all pods of a VIP down", func(f *explain.Facts) {
		f.Slices = []discoveryv1.EndpointSlice{slice("east", 0, 2), slice("west", 0, 1)}
	}, "x no ready endpoint of east, west is imported: connections to its VIP fail\n  → kubectl -n shop get pods; "},
	{"one cluster expired, and all pods of the other down", func(f *explain.Facts) {
		f.Leases = []coordinationv1.Lease{dead("east")}
		f.Slices = []discoveryv1.EndpointSlice{slice("west", 0, 1)}
	}, "x no ready endpoint of west is imported, and east has expired: connections to its VIP fail\n  → kubectl -n " +
		"shop get pods; kubectl -n shop get endpointslices -l kubernetes.io/service-name=web; in cluster east: " +
		"kubectl clusterset doctor\n"},
	{"one cluster of a Headless name expired, and all pods of the other down", func(f *explain.Facts) {
		headless(f)
		f.Leases = []coordinationv1.Lease{dead("east")}
		f.Slices = []discoveryv1.EndpointSlice{slice("west", 0, 1)}
	}, "x no ready endpoint of west is imported, and east has expired: a Headless name without ready endpoints does " +
		"not exist\n  → kubectl -n shop get pods; kubectl -n shop get endpointslices -l " +
		"kubernetes.io/service-name=web; in cluster east: kubectl clusterset doctor\n"},
	{"one of three expired, and all pods of another down", func(f *explain.Facts) {
		f.Records = append(f.Records, record("north", 3, nil))
		f.Leases = []coordinationv1.Lease{dead("north")}
		f.Slices = []discoveryv1.EndpointSlice{slice("east", 0, 2), slice("west", 1, 0)}
	}, "! no ready endpoint of east is imported, and north has expired: the other clusters serve the name\n"},
	{"every cluster expired", func(f *explain.Facts) {
		f.Leases, f.Slices = []coordinationv1.Lease{dead("east"), dead("west")}, nil
	}, "x east has expired, and west has expired: connections to its VIP fail\n" +
		"  → in cluster east, west: kubectl clusterset doctor\n"},
	{"all pods of one cluster down", func(f *explain.Facts) {
		f.Slices = []discoveryv1.EndpointSlice{slice("east", 0, 2), slice("west", 1, 0)}
	}, "! no ready endpoint of east is imported: the other clusters serve the name\n  → in cluster east: kubectl " +
		"clusterset explain web.shop\n"},
	{
		"the Corefile has no block for the zone",
		func(f *explain.Facts) { f.Corefile = ".:53 {\n forward . 10.0.0.1\n}\n" },
		"is not served: this cluster's DNS is not configured for clusterset.local",
	},
	{"ports that some have", func(f *explain.Facts) {
		f.Records[0].Spec.Ports = []hubv1alpha1.ServicePort{{Name: "alt", Protocol: corev1.ProtocolTCP, Port: 8081}}
	}, "! port 80/TCP reaches only east; port 8081/TCP reaches only west\n"},
	{"own export of no Service", func(f *explain.Facts) {
		f.Export = &mcsv1beta1.ServiceExport{}
		f.Export.Status.Conditions = []metav1.Condition{
			condition("Valid", "False", "NoService", "there is no Service"),
			condition("Ready", "False", "Pending", "waiting"),
		}
	}, "not valid (NoService): there is no Service\n  → create the Service, or kubectl -n shop delete serviceexport " +
		"web\n\n"},
	{"own export invalid", func(f *explain.Facts) {
		f.Export = &mcsv1beta1.ServiceExport{}
		f.Export.Status.Conditions = []metav1.Condition{
			condition("Valid", "False", "NoService", "there is no Service"),
		}
	}, "not valid (NoService): there is no Service"},
	{"own export invalid in part", func(f *explain.Facts) {
		valid := conditions.ValidWithout(errors.New(`annotation preference: "prefer-locl"`))
		f.Export = &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		f.Export.Status.Conditions = []metav1.Condition{valid}
	}, "! a part of this cluster's export is invalid and has no effect; an earlier preference or export-to stays: " +
		"annotation preference: \"prefer-locl\"\n  → " +
		"kubectl -n shop edit serviceexport web\n"},
	{"own export not published", func(f *explain.Facts) {
		f.Export = &mcsv1beta1.ServiceExport{}
		f.Export.Status.Conditions = []metav1.Condition{
			condition("Ready", "False", "Pending", "waiting for the hub"),
		}
	}, "not on the hub (Pending): waiting for the hub"},
	{
		"own export unseen",
		func(f *explain.Facts) { f.Export, f.Now = &mcsv1beta1.ServiceExport{}, time.Now() },
		"x the agent has set no condition on this cluster's ServiceExport\n  → kubectl clusterset doctor\n",
	},
	{"own export unseen, for a user", func(f *explain.Facts) {
		f.Export, f.Now, f.Set, f.NoAdmin = &mcsv1beta1.ServiceExport{}, time.Now(), "", true
		f.Unread = []explain.Part{explain.Membership}
	}, "x the agent has set no condition on this cluster's ServiceExport\n  → ask a cluster admin to run: kubectl " +
		"clusterset doctor\n"},
	{"an agent, and no member: it joins, or has left", func(f *explain.Facts) {
		f.Set, f.Agent = "", true
		gone(f)
	}, "x this cluster is a member of no ClusterSet\n  → to finish joining: kubectl clusterset join " +
		"--hub-context=HUB; to finish leaving: kubectl clusterset leave --hub-context=HUB\n"},
	{"no member, for a user, who does not see that it is the hub", func(f *explain.Facts) {
		f.Set, f.NoAdmin = "", true
		gone(f)
	}, "x this cluster is a member of no ClusterSet\n  → ask a cluster admin to run: kubectl clusterset doctor\n"},
	{"own export is new", func(f *explain.Facts) {
		f.Export, f.Now = &mcsv1beta1.ServiceExport{}, time.Now()
		f.Export.CreationTimestamp = metav1.NewTime(f.Now.Add(-time.Second))
	}, "! the agent has not read this cluster's new ServiceExport yet\n  → wait a moment and run the command again\n"},
	{"conflict", func(f *explain.Facts) {
		f.Export = &mcsv1beta1.ServiceExport{}
		f.Export.Status.Conditions = []metav1.Condition{condition("Conflict", "True", "TypeConflict",
			"Conflicting type.")}
	}, "Conflicting type."},
	{"a port lost", func(f *explain.Facts) { f.Records[0].Spec.Ports[0].Port = 81 },
		"an older export uses its name for another port"},
	{
		"no family in common",
		func(f *explain.Facts) { f.Records[0].Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
		"have only IPv4 in common",
	},
	{"no endpoints arrived", func(f *explain.Facts) { f.Slices = f.Slices[:1] }, "none was published"},
	{"a foreign slice", func(f *explain.Facts) { f.Slices[0].Labels[mcsv1beta1.LabelSourceCluster] = "NOT_ONE" },
		"is no cluster ID"},
	{"an import of another's", func(f *explain.Facts) {
		f.Records[0].Status.Conditions = []metav1.Condition{condition("Imported", "False", "NotOwned",
			"ServiceImport shop/web belongs to another program; kubectl annotate")}
	}, "belongs to another program (NotOwned)"},
	{"a record that is nonsense", func(f *explain.Facts) { f.Records[0].Spec.Type = "Other" },
		"the record is not valid"},
	{"a record that is held", func(f *explain.Facts) {
		f.Records[0].Status.Conditions = []metav1.Condition{condition("Held", "True", "Absent",
			"the hub no longer shows it")}
	}, "held: the hub no longer shows it"},
	{"a cluster that is dead", func(f *explain.Facts) {
		noon := metav1.NewMicroTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
		dead := coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{liveness.LabelSource: "west"},
				Annotations: map[string]string{},
			},
		}
		dead.Spec.RenewTime = &noon
		liveness.State{Expired: true, OnExpiry: hubv1alpha1.ExpiryRemove}.Write(dead.Annotations)
		f.Leases = []coordinationv1.Lease{dead}
	}, "expired: it has not renewed its Lease on the hub since 2026-01-01T12:00:00Z or earlier; clients here do " +
		"not get its endpoints (onExpiry: Remove)"},
	{"T3 a cluster that is damped", func(f *explain.Facts) {
		damped := dead("west")
		damped.Annotations[liveness.AnnotationRenewingSince] = "2026-01-01T12:00:30Z"
		f.Leases = []coordinationv1.Lease{damped}
	}, "expired: it expired repeatedly, renews its Lease on the hub again since 2026-01-01T12:00:30Z, and counts as " +
		"live at most 5m0s after that; clients here do not get its endpoints (onExpiry: Remove)"},
	{"F4 a cluster that is not reached", func(f *explain.Facts) {
		gone := dead("west")
		at := time.Date(2026, 1, 1, 12, 0, 9, 0, time.UTC)
		reach.Restored(reach.Stored{State: reach.Unreachable, Since: at}, at).Write(&gone, 0)
		f.Leases = []coordinationv1.Lease{gone}
	}, "expired: neither its agent nor its endpoints answered here at 2026-01-01T12:00:09Z, while others did; " +
		"clients here do not get its endpoints (onExpiry: Remove)"},
	{"a cluster whose agent is silent", func(f *explain.Facts) {
		silent := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{liveness.LabelSource: "east"}, Annotations: map[string]string{}}}
		at := time.Date(2026, 1, 1, 12, 0, 9, 0, time.UTC)
		reach.Restored(reach.Stored{State: reach.Serving, Since: at}, at).Write(&silent, 0)
		f.Leases = []coordinationv1.Lease{silent}
	}, "since 2026-01-01T12:00:09Z only its endpoints answer here, not its agent: they stay for an hour"},
	{"a cluster whose agent is silent, and no endpoint can be tried", func(f *explain.Facts) {
		silent := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{liveness.LabelSource: "east"}, Annotations: map[string]string{}}}
		at := time.Date(2026, 1, 1, 12, 0, 9, 0, time.UTC)
		reach.Restored(reach.Stored{State: reach.Silent, Since: at}, at).Write(&silent, 0)
		f.Leases = []coordinationv1.Lease{silent}
	}, "since 2026-01-01T12:00:09Z its agent does not answer here: its endpoints stay until its Lease has expired"},
	{"onExpiry keeps the endpoints", func(f *explain.Facts) {
		kept := dead("west")
		liveness.State{Expired: true, OnExpiry: hubv1alpha1.ExpiryKeep}.Write(kept.Annotations)
		f.Leases = []coordinationv1.Lease{kept}
	}, "clients here still get its endpoints (onExpiry: Keep)"},
	{"the agent knows what is wrong", func(f *explain.Facts) {
		f.Known = []report.Finding{report.Errorf("do it", "the agent may not list serviceexports")}
		gone(f)
	}, "(in cluster west)\n\nx the agent may not list serviceexports\n  → do it\n"},
	{"this cluster's agent does not run", func(f *explain.Facts) {
		noon := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
		kept, renewed := coordinationv1.Lease{}, metav1.NewMicroTime(noon.Time)
		kept.Name, kept.ManagedFields = clusterset.LeaseRenewed, []metav1.ManagedFieldsEntry{{Time: &noon}}
		kept.Spec.RenewTime, kept.Spec.LeaseDurationSeconds = &renewed, new(int32(40))
		f.Leases, f.Now = []coordinationv1.Lease{kept}, noon.Add(time.Minute)
	}, "! this cluster's agent last saw the hub at 2026-01-01T12:00:00Z: later changes are missing here, those " +
		"of this cluster included if the agent does not run\n  → kubectl clusterset doctor\n"},
	{"this cluster's agent is scaled to 0", func(f *explain.Facts) { f.AgentStopped = true },
		"x this cluster's agent is scaled to 0: what it has imported is as it left it, this cluster's own endpoints " +
			"included\n  → kubectl -n clusterset-system scale deployment clusterset-controller --replicas=2\n"},
	{"a preference for a cluster that does not export it", func(f *explain.Facts) {
		for i := range f.Records {
			f.Records[i].Spec.Preference = "cluster=wst,any"
		}
	}, "the preference names cluster wst, which does not export the name"},
	{"a preference", func(f *explain.Facts) {
		for i := range f.Records {
			f.Records[i].Spec.Preference = "prefer-local"
		}
		f.Slices[0].Labels["clusterset-dns.io/standby"] = "true"
	}, "no traffic from the VIP"},
}

// TestWhatIsNotCountedIsNotCounted: that no endpoint of it is here says nothing about the exporter.
func TestWhatIsNotCountedIsNotCounted(t *testing.T) {
	for name, edit := range map[string]func(*explain.Facts){
		"foreign": func(f *explain.Facts) {
			f.Records[0].Status.Conditions = []metav1.Condition{condition("Imported", "False", "NotOwned",
				"ServiceImport shop/web belongs to another program; kubectl annotate")}
			f.Slices = nil
		},
		"no namespace": func(f *explain.Facts) {
			f.NamespaceExists = false
			gone(f)
		},
	} {
		f := member()
		edit(f)
		r := explain.Explain(f)
		out := text(&r)
		for _, wrong := range []string{"no ready endpoint", "none was published"} {
			if strings.Contains(out, wrong) || !r.Exporters[0].NotCounted {
				t.Errorf("%s: %q\n%s", name, wrong, out)
			}
		}
	}
}

func TestTheCauseIsNamed(t *testing.T) {
	for _, c := range causes {
		t.Run(c.name, func(t *testing.T) {
			sound := explain.Explain(member())
			f := member()
			c.change(f)
			r := explain.Explain(f)
			if was := text(&sound); strings.Contains(was, c.want) {
				t.Fatalf("it says so without a cause:\n%s", was)
			}
			if got := text(&r); !strings.Contains(got, c.want) {
				t.Errorf("no %q in:\n%s", c.want, got)
			}
		})
	}
}

// TestAMemberThatIsLeavingHasNoOtherFinding, with or without an import, and with an export that has no condition.
func TestAMemberThatIsLeavingHasNoOtherFinding(t *testing.T) {
	for name, change := range map[string]func(*explain.Facts){"an import": func(*explain.Facts) {}, "no import": gone} {
		f := member()
		change(f)
		f.Records, f.Leaving, f.Export, f.Service = nil, true, &mcsv1beta1.ServiceExport{}, &corev1.Service{}
		if r := explain.Explain(f); len(r.Findings) != 1 || !strings.Contains(r.Findings[0].What,
			"is leaving ClusterSet blue") {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

// TestAnExportThatCannotBeReadIsNoReasonToDelete: its ServiceImport is live, and another version may have written the
// record.
func TestAnExportThatCannotBeReadIsNoReasonToDelete(t *testing.T) {
	for name, change := range map[string]func(*explain.Facts){"with an import": func(*explain.Facts) {},
		"without": gone} {
		f := member()
		change(f)
		for i := range f.Records {
			f.Records[i].Spec.Type = "Newer"
		}
		r := explain.Explain(f)
		if got := text(&r); strings.Contains(got, "delete serviceimport") ||
			strings.Contains(got, "no cluster exports the name") {
			t.Errorf("%s:\n%s", name, got)
		}
		for i, cluster := range []string{"west", "east"} {
			if len(r.Findings) != 2 || !strings.Contains(r.Findings[i].What, "parsing the export of cluster "+
				cluster+" failed: ") || !strings.Contains(r.Findings[i].Remedy, "same version") {
				t.Errorf("%s: %+v", name, r.Findings)
			}
		}
	}
}

// TestADeveloperIsToldToExport: the roles view and edit of a namespace do not show what other clusters export.
func TestADeveloperIsToldToExport(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*explain.Facts)
		want   string
	}{
		"the Service is here": {func(f *explain.Facts) { f.Service = &corev1.Service{} },
			"x as far as you may read, no cluster exports the name; this cluster has a Service shop/web without a " +
				"ServiceExport\n  → kubectl clusterset export web -n shop\n"},
		"it is elsewhere": {func(*explain.Facts) {}, "x as far as you may read, no cluster exports the name\n  " +
			"→ in the cluster of the Service: kubectl clusterset export web -n shop; "},
		"the namespace refuses imports": {func(f *explain.Facts) { f.Refuses = true },
			"! namespace shop of this cluster refuses imports\n"},
	} {
		f := member()
		gone(f)
		f.ID, f.Set, f.Records = "", "", nil
		f.Unread = []explain.Part{explain.Membership, explain.Leases, explain.Records, explain.Others}
		c.change(f)
		r := explain.Explain(f)
		if got := text(&r); len(r.Findings) != 1 || !strings.Contains(got, c.want) {
			t.Errorf("%s: no %q in\n%s", name, c.want, got)
		}
	}
}

// TestNothingIsConcludedFromWhatWasNotRead, and each right that lacks is said in one line.
func TestNothingIsConcludedFromWhatWasNotRead(t *testing.T) {
	all := []explain.Part{
		explain.Membership,
		explain.Namespace,
		explain.Services,
		explain.Exports,
		explain.Endpoints,
		explain.Records,
		explain.Leases,
		explain.Others,
	}
	for name, change := range map[string]func(*explain.Facts){"a VIP": func(*explain.Facts) {}, "headless": headless,
		"no import": gone} {
		f := member()
		change(f)
		f.ID, f.Set, f.NamespaceExists, f.Records, f.Slices, f.Unread = "", "", false, nil, nil, all
		r := explain.Explain(f)
		want := map[string]explain.Outcome{"a VIP": explain.Success, "headless": explain.Unknown,
			"no import": explain.NameError}[name]
		if r.Outcome != want || len(r.Findings)+len(r.Withheld) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if got := text(&r); !strings.Contains(got, "\n? you lack the right to read clusterproperties\n"+
			"? you lack the right to read namespaces\n? you lack") || strings.Count(got, "→") != 1 {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	view := []explain.Part{explain.Membership, explain.Leases, explain.Records} // what the ClusterRole view lacks
	for ready, want := range map[int]string{1: "", 0: "no endpoint is ready in a cluster that exports it, or that " +
		"cluster has expired: connections fail\n  → in cluster east: kubectl clusterset explain web.shop\n"} {
		f := member()
		f.Import.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "east"}}
		f.ID, f.Set, f.Records, f.Unread = "", "", nil, view
		f.Slices = []discoveryv1.EndpointSlice{slice("east", ready, 1)}
		r := explain.Explain(f)
		got := text(&r)
		if len(r.Findings) > 0 != (want != "") || !strings.Contains(got, want) ||
			!strings.Contains(got, "serviceexportrecords in clusterset-system\n  → ask a cluster admin to run the") {
			t.Errorf("%d ready: no %q in\n%s", ready, want, got)
		}
	}
	f := member()
	f.Slices, f.Unread = nil, []explain.Part{explain.Endpoints}
	if r := explain.Explain(f); len(r.Withheld) > 0 || !r.Exporters[0].NotCounted {
		t.Errorf("%+v %+v", r.Withheld, r.Exporters)
	}
}

func text(r *explain.Report) string {
	var out strings.Builder
	explain.Print(&out, r, true, start)
	return out.String()
}

func TestTheOldestWinsAndOthersAreNamed(t *testing.T) {
	f := member()
	f.Records[0].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	f.Records[0].Spec.Ports = append(f.Records[0].Spec.Ports, hubv1alpha1.ServicePort{Name: "admin",
		Protocol: corev1.ProtocolTCP, Port: 9000})
	r := explain.Explain(f)
	got := map[string]explain.Property{}
	for _, p := range r.Properties {
		got[p.Name+" "+p.Value] = p
	}
	if p := got["sessionAffinity None"]; p.From != "east" || p.Others["west"] != "ClientIP" {
		t.Errorf("%+v", r.Properties)
	}
	if p := got["port admin 9000/TCP"]; p.From != "west" || p.Others["east"] != "not exposed" {
		t.Errorf("%+v", r.Properties)
	}
}

// TestWhereAVIPComesFrom: the smallest range that holds it, and for whom that is.
func TestWhereAVIPComesFrom(t *testing.T) {
	f := member()
	vip := netip.MustParseAddr(f.Import.Spec.IPs[0])
	if got := explain.Explain(f).VIPs; got != nil {
		t.Errorf("without ServiceCIDRs: %+v", got)
	}
	f.Ranges = []ipam.Range{
		{Name: "small", Prefix: netip.PrefixFrom(vip, 28).Masked(), VIPs: true},
		{Name: "kubernetes", Prefix: netip.PrefixFrom(vip, 16).Masked()},
	}
	r := explain.Explain(f)
	if got := r.VIPs; len(got) != 1 || got[0].ServiceCIDR != "small" || !strings.Contains(text(&r), "VIPs first") {
		t.Errorf("%+v", got)
	}
	f.Ranges = f.Ranges[1:]
	if got := explain.Explain(f).VIPs; got[0].ServiceCIDR != "kubernetes" || got[0].Use != "any Service" {
		t.Errorf("%+v", got)
	}
	f.Ranges[0].Prefix = netip.MustParsePrefix("192.0.2.0/24")
	if got := explain.Explain(f).VIPs; got[0].Range != "none" {
		t.Errorf("%+v", got)
	}
}

// outside is a slice for clients outside the clusters.
func outside(cluster, address, weight string, up bool) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web." + cluster,
			Labels:      map[string]string{external.Label: "web", mcsv1beta1.LabelSourceCluster: cluster},
			Annotations: map[string]string{external.AnnotationWeight: weight, external.AnnotationRegion: "eu"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &up},
		}},
	}
}

// TestF5WhatClientsOutsideGet: which clusters take part, with which share, and why others do not.
func TestF5WhatClientsOutsideGet(t *testing.T) {
	for name, c := range map[string]struct {
		outside []discoveryv1.EndpointSlice
		want    string
	}{
		"by weight": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "100", true),
				outside("west", "192.0.2.2", "300", true)},
			"east 192.0.2.1 yes 100 25% eu, west 192.0.2.2 yes 300 75% eu",
		},
		"one is drained": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "0", true),
				outside("west", "192.0.2.2", "100", true)},
			"east 192.0.2.1 yes 0 0% eu, west 192.0.2.2 yes 100 100% eu",
		},
		"one without ready endpoints, and the other drained": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "0", true),
				outside("north", "192.0.2.3", "100", false)},
			"east 192.0.2.1 yes 0 100% eu, north 192.0.2.3 no 100 0% eu no endpoint of the Service is ready there",
		},
		"none is up": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "100", false)},
			"east 192.0.2.1 no 100 100% eu more than half of the other live members do not reach it, or no endpoint " +
				"is ready there: kubectl clusterset status",
		},
		"one without a valid address": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "100", true),
				outside("west", "192.0.2.256", "100", true)},
			"east 192.0.2.1 yes 100 100% eu",
		},
		"one that has expired here": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "100", true),
				outside("south", "192.0.2.4", "100", false)},
			"east 192.0.2.1 yes 100 100% eu, south 192.0.2.4 no 100 0% eu more than half of the other live members " +
				"do not reach it, or no endpoint is ready there: kubectl clusterset status",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := member()
			f.Records = append(f.Records, record("north", 1, nil), record("south", 1, nil))
			f.Leases = []coordinationv1.Lease{dead("south")}
			f.Outside = c.outside
			var text strings.Builder
			r := explain.Explain(f)
			explain.Print(&text, &r, false, start)
			_, table, _ := strings.Cut(text.String(), "FOR CLIENTS OUTSIDE")
			var rows []string
			for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
				rows = append(rows, strings.Join(strings.Fields(line), " "))
			}
			if got := strings.Join(rows, ", "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestF5AnExportThatIsNotPublishedOutsideSaysWhy(t *testing.T) {
	f := member()
	f.Export = &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Annotations: map[string]string{external.Label: "true"},
	}}
	f.Export.Status.Conditions = []metav1.Condition{
		conditions.ValidWithout(errors.New("annotation clusterset-dns.io/external: the Service is of type ClusterIP")),
	}
	found := false
	for _, x := range explain.Explain(f).Findings {
		found = found || strings.Contains(x.What, "of type ClusterIP")
	}
	if !found {
		t.Errorf("%+v", explain.Explain(f).Findings)
	}
}

// TestF5WhichClusterAClientGets: the answer is one of the clusters with a share, it stays, and clients are spread.
func TestF5WhichClusterAClientGets(t *testing.T) {
	f := member()
	f.Outside = []discoveryv1.EndpointSlice{
		outside("east", "192.0.2.1", "100", true), outside("west", "192.0.2.2", "100", true),
		outside("north", "192.0.2.3", "100", false),
	}
	if r := explain.Explain(f); len(r.Chosen) > 0 {
		t.Errorf("nobody asked for %v", r.Chosen)
	}
	got := map[string]int{}
	for i := range 64 {
		f.From = netip.AddrFrom4([4]byte{203, 0, byte(i), 7})
		r := explain.Explain(f)
		if len(r.Chosen) != 1 || r.Chosen[0].Type != "A" || r.Chosen[0] != explain.Explain(f).Chosen[0] {
			t.Fatalf("%+v", r.Chosen)
		}
		got[r.Chosen[0].Cluster]++
		var text strings.Builder
		explain.Print(&text, &r, false, start)
		want := fmt.Sprintf("at 203.0.%d.7 whose place is not known gets A from cluster %s\n", i, r.Chosen[0].Cluster)
		if !strings.Contains(text.String(), want) {
			t.Fatal(text.String())
		}
	}
	if got["east"] < 16 || got["west"] < 16 || got["east"]+got["west"] != 64 {
		t.Errorf("%v", got)
	}
}
