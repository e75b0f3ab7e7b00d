package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/plan"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

var (
	now = metav1.NewTime(time.Unix(1_800_000_000, 0))
	web = types.NamespacedName{Namespace: "shop", Name: "web"}
)

// hub has the members east, west and south. The first two export web.shop with two endpoints each, east first.
func hub() *snapshot.Hub {
	h := &snapshot.Hub{Now: now.Time, Sets: []hubv1alpha1.ClusterSet{{}}}
	h.Sets[0].Spec.Lease.OnExpiry = hubv1alpha1.ExpiryRemove
	for i, id := range []string{"east", "west", "south"} {
		p := inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Name: id}}
		p.Status.Properties = []inventoryv1alpha1.Property{{Name: "region", Value: "eu"}}
		h.Profiles = append(h.Profiles, p)
		renewed, seconds := metav1.NewMicroTime(now.Time), int32(40)
		h.Leases = append(h.Leases, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: id, ManagedFields: []metav1.ManagedFieldsEntry{{Time: &now}}},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed, LeaseDurationSeconds: &seconds},
		})
		if id == "south" {
			continue
		}
		created := metav1.NewTime(now.Add(time.Duration(i-100) * time.Hour))
		rec := hubv1alpha1.ServiceExportRecord{Spec: hubv1alpha1.ServiceExportRecordSpec{
			Origin: hubv1alpha1.Origin{ClusterID: id, ServiceNamespace: "shop", ServiceName: "web"},
			Type:   "ClusterSetIP", ExportedAt: &created, IPFamilies: []corev1.IPFamily{"IPv4"},
			Properties: map[string]string{"region": "eu"},
			Ports:      []hubv1alpha1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
		}}
		rec.Name, rec.CreationTimestamp = clusterset.RecordName("web", "shop", id), created
		target := int32(8080)
		rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []hubv1alpha1.EndpointPort{{Protocol: "TCP", Port: 80, Target: &target}},
			Endpoints: []hubv1alpha1.Endpoint{
				{Address: fmt.Sprintf("10.%d.0.7", i)}, {Address: fmt.Sprintf("10.%d.0.8", i)}}}}
		h.Records = append(h.Records, rec)
	}
	return h
}

func export(annotations ...string) *mcsv1beta1.ServiceExport {
	e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		e.Annotations["clusterset-dns.io/"+annotations[i]] = annotations[i+1]
	}
	return e
}

func service(clusterIP string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: clusterIP, Ports: ports}}
}

// TestWhatAChangeTakesAway: from whom, and what else changes.
func TestWhatAChangeTakesAway(t *testing.T) {
	http := corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}
	https := corev1.ServicePort{Name: "https", Port: 443, TargetPort: intstr.FromInt32(8443)}
	for _, c := range []struct {
		name, cluster string
		applied       plan.Applied
		delete        bool
		outside       bool // cluster publishes its load balancer
		takes         bool
		want          string // marks, what, was, is, and members
		finding       string
	}{
		{name: "as it is", cluster: "east", applied: plan.Applied{Export: export()}},
		{name: "a new exporter", cluster: "south",
			applied: plan.Applied{Export: export(), Service: service("", http)},
			want:    `~ order | east, west | east, west, south | east, west, south`},
		{name: "one of two exporters goes", cluster: "west", delete: true, takes: true,
			want: `- traffic to http 80/TCP | 2 of east at 8080, 2 of west at 8080 | 2 of east at 8080 | ` +
				`east, west, south
~ order | east, west | east | east, west, south`},
		{name: "a port more", cluster: "east",
			applied: plan.Applied{Export: export(), Service: service("", http, https)},
			want: `+ PortConflict | | Conflicting ports. Using all ports and, where names or numbers clash, those ` +
				`from oldest service export in "east". 1/2 clusters disagree. | east, west, south
+ port https 443/TCP | | yes | east, west, south
+ traffic to https 443/TCP | | 2 of east at 8443 | east, west, south`},
		{name: "another number for a name", cluster: "east", takes: true, applied: plan.Applied{Export: export(),
			Service: service("", corev1.ServicePort{Name: "http", Port: 81})},
			want: `- port http 80/TCP | yes | | east, west, south
- traffic to http 80/TCP | 2 of east at 8080, 2 of west at 8080 | | east, west, south
+ PortConflict | | Conflicting ports. Using all ports and, where names or numbers clash, those from oldest ` +
				`service export in "east". 1/2 clusters disagree. | east, west, south
+ port http 81/TCP | | yes | east, west, south
+ traffic to http 81/TCP | | 2 of east at 81 | east, west, south`},
		{name: "another targetPort", cluster: "east", applied: plan.Applied{Export: export(),
			Service: service("", corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromInt32(9090)})},
			want: `~ traffic to http 80/TCP | 2 of east at 8080, 2 of west at 8080 | 2 of east at 9090, ` +
				`2 of west at 8080 | east, west, south`},
		{name: "a targetPort whose number only Pods know", cluster: "east", applied: plan.Applied{Export: export(),
			Service: service("", corev1.ServicePort{Name: "http", Port: 80, TargetPort: intstr.FromString("web")})}},
		{name: "the oldest becomes headless", cluster: "east", takes: true,
			applied: plan.Applied{Export: export(), Service: service("None", http)},
			want: `- VIP IPv4 | yes | | east, west, south
- type | ClusterSetIP | Headless | east, west, south
+ TypeConflict | | Conflicting type. Using "Headless" from oldest service export in "east". 1/2 clusters disagree.` +
				` | east, west, south`},
		{name: "a preference", cluster: "east", takes: true,
			applied: plan.Applied{Export: export("preference", "local,any")},
			want: `- traffic to http 80/TCP | 2 of east at 8080, 2 of west at 8080 | 2 of east at 8080 | east
- traffic to http 80/TCP | 2 of east at 8080, 2 of west at 8080 | 2 of west at 8080 | west
+ PreferenceConflict | | Conflicting preference. Using "prefer-local" from oldest service export in "east". ` +
				`1/2 clusters disagree. | east, west, south
+ annotation clusterset-dns.io/preference | | prefer-local | east, west, south`},
		{name: "the preference of a younger export", cluster: "west",
			applied: plan.Applied{Export: export("preference", "local,any")},
			want: `+ PreferenceConflict | | Conflicting preference. Using "none" from oldest service export in ` +
				`"east". 1/2 clusters disagree. | east, west, south`},
		{name: "for some only", cluster: "west", takes: true,
			applied: plan.Applied{Export: export("export-to", "cluster=west")},
			want: `- traffic to http 80/TCP | 2 of east at 8080, 2 of west at 8080 | 2 of east at 8080 | east, south
~ order | east, west | east | east, south`},
		{name: "its load balancer stays", cluster: "west", outside: true,
			applied: plan.Applied{Export: export("external", "true")}},
		{name: "its load balancer is no longer published", cluster: "west", outside: true, takes: true,
			applied: plan.Applied{Export: export()},
			want:    `- external addresses of west | 203.0.113.7, weight 100 | | east, west, south`},
		{name: "clients outside get it only if there is no other", cluster: "west", outside: true, takes: true,
			applied: plan.Applied{Export: export("external", "true", "external-weight", "0")},
			want: `- external addresses of west | 203.0.113.7, weight 100 | 203.0.113.7, weight 0 | ` +
				`east, west, south`},
		{name: "another weight", cluster: "west", outside: true,
			applied: plan.Applied{Export: export("external", "true", "external-weight", "50")},
			want: `~ external addresses of west | 203.0.113.7, weight 100 | 203.0.113.7, weight 50 | ` +
				`east, west, south`},
		{name: "a typing error", cluster: "west", applied: plan.Applied{Export: export("preference", "locally")},
			finding: "web.shop would be exported without: annotation clusterset-dns.io/preference"},
		{name: "a Service that is not exported", cluster: "south", applied: plan.Applied{Service: service("", http)}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			h := hub()
			for i := range h.Records {
				if spec := &h.Records[i].Spec; c.outside && spec.ClusterID == c.cluster {
					spec.External = &hubv1alpha1.ExternalAddresses{IPs: []string{"203.0.113.7"}}
				}
			}
			p := plan.Planner{Snapshot: &snapshot.Snapshot{Hub: h}, Cluster: c.cluster, Delete: c.delete}
			r, err := p.Plan(t.Context(), map[types.NamespacedName]plan.Applied{web: c.applied})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, x := range r.Changes {
				mark := map[bool]string{true: "+", false: "~"}[x.Was == ""]
				if x.TakesAway {
					mark = "-"
				}
				line := strings.Join([]string{mark + " " + x.What, x.Was, x.Is, strings.Join(x.Members, ", ")}, " | ")
				got = append(got, strings.ReplaceAll(line, "  ", " "))
			}
			if text := strings.Join(got, "\n"); text != c.want {
				t.Errorf("it is\n%s\nand not\n%s", text, c.want)
			}
			if r.TakesAway != c.takes {
				t.Errorf("takes away: %v", r.TakesAway)
			}
			found := ""
			for _, f := range r.Findings {
				found += f.What
			}
			if !strings.HasPrefix(found, c.finding) || (c.finding == "") != (found == "") {
				t.Errorf("findings: %s, want %q", found, c.finding)
			}
		})
	}
}

// TestTheLastExporterTakesTheNameAway: one line, whatever was below the name.
func TestTheLastExporterTakesTheNameAway(t *testing.T) {
	h := hub()
	h.Records = h.Records[:1]
	p := plan.Planner{Snapshot: &snapshot.Snapshot{Hub: h}, Cluster: "east", Delete: true}
	r, err := p.Plan(t.Context(), map[types.NamespacedName]plan.Applied{web: {}})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	plan.Print(&out, &r)
	const want = `Applied in cluster east: 1 change, and something is taken away (-)

CHANGES
      NAME       IN             WHAT
  -   web.shop   every member   name goes
`
	if out.String() != want || !r.TakesAway {
		t.Errorf("it is\n%s\nand not\n%s", out.String(), want)
	}
}

// TestWhatIsNotExportedCannotBeWithdrawn: its name may be mistyped. A file may have what is not applied yet.
func TestWhatIsNotExportedCannotBeWithdrawn(t *testing.T) {
	p := plan.Planner{Snapshot: &snapshot.Snapshot{Hub: hub()}, Cluster: "south", Delete: true}
	_, err := p.Plan(t.Context(), map[types.NamespacedName]plan.Applied{web: {}})
	if err == nil || !strings.Contains(err.Error(), "there is no ServiceExport shop/web in cluster south\n  → ") {
		t.Errorf("%v", err)
	}
	r, err := p.Plan(t.Context(), map[types.NamespacedName]plan.Applied{web: {Export: export()}})
	if err != nil || len(r.Changes) > 0 {
		t.Errorf("from a file: %v, %v", r.Changes, err)
	}
}

// TestWithoutTheMembersExportsThereIsNoPlan: an export as it is would be taken for one without annotations.
func TestWithoutTheMembersExportsThereIsNoPlan(t *testing.T) {
	id := aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyID}}
	id.Spec.Value = "east"
	s := &snapshot.Snapshot{Hub: hub(), Member: &snapshot.Member{Now: now.Time,
		Properties: []aboutv1beta1.ClusterProperty{id}}, Unread: map[snapshot.Part]snapshot.Lack{
		snapshot.Exports: {Why: "serviceexports is forbidden", Right: "serviceexports (list)"}}}
	p := plan.Planner{Snapshot: s, Cluster: "east"}
	_, err := p.Plan(t.Context(), map[types.NamespacedName]plan.Applied{web: {}})
	if err == nil || !strings.Contains(err.Error(), "serviceexports is forbidden\n  → ") {
		t.Errorf("%v", err)
	}
}
