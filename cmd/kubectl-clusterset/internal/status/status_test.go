package status_test

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func lease(name string, age, ahead time.Duration) coordinationv1.Lease {
	seconds, at, renewed := int32(40), metav1.NewTime(now.Add(-age)), metav1.NewMicroTime(now.Add(ahead-age))
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
}

func profile(name string) inventoryv1alpha1.ClusterProfile {
	p := inventoryv1alpha1.ClusterProfile{}
	p.Name, p.CreationTimestamp = name, metav1.NewTime(now.Add(-48*time.Hour))
	p.Annotations = map[string]string{"clusterset-dns.io/cluster-uid": "uid-" + name}
	p.Spec.ClusterManager.Name = "clusterset-dns"
	p.Status.Version.Kubernetes = "v1.36.0"
	p.Status.Conditions = []metav1.Condition{{Type: "Joined", Status: "True"},
		{Type: "ControlPlaneHealthy", Status: "True"}}
	return p
}

func record(cluster string) hubv1alpha1.ServiceExportRecord {
	at := metav1.NewTime(now.Add(-time.Hour))
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
	return rec
}

// inline is a record of web with n ready endpoints.
func inline(cluster string, n int) hubv1alpha1.ServiceExportRecord {
	rec := record(cluster)
	rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{Endpoints: make([]hubv1alpha1.Endpoint, n)}}
	return rec
}

// paged is a record of web that counts one page.
func paged(cluster string) hubv1alpha1.ServiceExportRecord {
	rec := record(cluster)
	rec.Spec.Pages = 1
	return rec
}

// page is one of web with n ready endpoints.
func page(cluster string, number int32, n int) hubv1alpha1.EndpointPage {
	return hubv1alpha1.EndpointPage{Spec: hubv1alpha1.EndpointPageSpec{
		Origin:        hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: "shop", ServiceName: "web"},
		Number:        number,
		EndpointGroup: hubv1alpha1.EndpointGroup{Endpoints: make([]hubv1alpha1.Endpoint, n)}}}
}

// withoutEndpoints leaves no endpoints of clusters on the hub.
func withoutEndpoints(f *status.Facts, clusters ...string) {
	for i := range f.Hub.Records {
		if spec := &f.Hub.Records[i].Spec; slices.Contains(clusters, spec.ClusterID) {
			spec.Endpoints, spec.Pages = nil, 0
		}
	}
}

// sound is a clusterset of two without a problem, asked in east.
func sound() *status.Facts {
	set := hubv1alpha1.ClusterSet{}
	set.Name = "blue"
	imp, export := mcsv1beta1.ServiceImport{}, mcsv1beta1.ServiceExport{}
	imp.Namespace, imp.Name, imp.Spec.IPs = "shop", "web", []string{"10.96.0.7"}
	imp.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	imp.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True"}}
	export.Namespace, export.Name = "shop", "web"
	export.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: "True"}, {Type: "Ready", Status: "True"}}
	leads := lease("clusterset-hub-blue", 2*time.Second, 0)
	agent := &appsv1.Deployment{}
	agent.Status.AvailableReplicas = 2
	return &status.Facts{
		GivenNamespace: "blue", Hub: &status.Hub{
			Hub: facts.Hub{
				Now: now, Namespace: "blue", Sets: []hubv1alpha1.ClusterSet{set},
				Profiles: []inventoryv1alpha1.ClusterProfile{profile("west"), profile("east")},
				Leases: []coordinationv1.Lease{lease("east", 3*time.Second, 0),
					lease("west", 8*time.Second, time.Second)},
				Leader: &leads,
			},
			Records: []hubv1alpha1.ServiceExportRecord{inline("east", 1), paged("west")},
			Pages:   []hubv1alpha1.EndpointPage{page("west", 0, 3), page("west", 1, 5)}, // the second is not counted
		},
		Member: &status.Member{
			Now: now, Membership: facts.Membership{ID: "east", Set: "blue"}, Agent: agent,
			HubNamespace: "blue",
			Exports:      []mcsv1beta1.ServiceExport{export}, Imports: []mcsv1beta1.ServiceImport{imp},
			Records: []hubv1alpha1.ServiceExportRecord{record("east"), record("west")},
		},
	}
}

// TestAJoinWhoseAgentDoesNotRunIsNotAdvisedAgain: doctor says why.
func TestAJoinWhoseAgentDoesNotRunIsNotAdvisedAgain(t *testing.T) {
	for what, c := range map[string]struct {
		id       string
		replicas int32
		want     string
	}{
		"it does not run": {"east", 0, "kubectl clusterset doctor"},
		"it runs": {"east", 2, "to finish joining: kubectl clusterset join --hub-context=HUB; to finish leaving: " +
			"kubectl clusterset leave --hub-context=HUB"},
		"and the cluster has no": {"", 2, "to finish joining: kubectl clusterset join --hub-context=HUB --cluster-id " +
			"ID; to finish leaving: kubectl clusterset leave --hub-context=HUB"},
	} {
		f := sound()
		f.Member.Set, f.Member.ID, f.Member.Agent.Status.AvailableReplicas = "", c.id, c.replicas
		r := status.Examine(f)
		if len(r.Findings) == 0 || r.Findings[0].Remedy != c.want {
			t.Errorf("%s: %+v, want %q", what, r.Findings, c.want)
		}
	}
}

// TestARemedyWorksAsItIsPrinted: where the finding was made, and with the hub that it needs.
func TestARemedyWorksAsItIsPrinted(t *testing.T) {
	for what, c := range map[string]struct {
		plant  func(f *status.Facts)
		remedy string // of the first finding
	}{
		"nobody serves a name, seen from the hub": {func(f *status.Facts) {
			f.Member = nil
			withoutEndpoints(f, "east", "west")
		},
			"in cluster east: kubectl clusterset explain web.shop"},
		"a conflict, seen from the hub": {func(f *status.Facts) {
			f.Member, f.Hub.Records[1].Spec.Type = nil, mcsv1beta1.Headless
		}, "in cluster east: kubectl clusterset explain web.shop"},
		"evicted": {func(f *status.Facts) { f.Hub.Profiles, f.Hub.Leases = f.Hub.Profiles[:1], f.Hub.Leases[1:] },
			"to be a member again with its cluster ID and VIPs: kubectl clusterset join --hub-context=HUB; to remove " +
				"what is left here: kubectl clusterset leave --hub-context=HUB"},
		"no credentials for the hub": {func(f *status.Facts) { f.Hub, f.HubError = nil, "Unauthorized" },
			"kubectl clusterset doctor; or name the hub: --hub-kubeconfig, --hub-context"},
		"no rights on the hub": {func(f *status.Facts) { f.Hub, f.HubError, f.HubDenied = nil, "Forbidden", true },
			"name the hub with its admin's credentials: --hub-kubeconfig, --hub-context; or name the " +
				"ClusterSet's namespace with --hub-namespace"},
	} {
		f := sound()
		c.plant(f)
		r := status.Examine(f)
		if len(r.Findings) == 0 || r.Findings[0].Remedy != c.remedy {
			t.Errorf("%s: %+v, want %q", what, r.Findings, c.remedy)
		}
	}
}

// TestAnAgentElsewhereUpdatesWhatItImports: the Deployment has no replica, and its Lease on the hub is fresh.
func TestAnAgentElsewhereUpdatesWhatItImports(t *testing.T) {
	for age, want := range map[time.Duration]int{5 * time.Second: 0, 5 * time.Minute: 1} {
		f := sound()
		f.Hub, f.Member.Agent.Status.AvailableReplicas = nil, 0
		f.Member.Leases = []coordinationv1.Lease{lease("hub-renewed", age, 0)}
		if r := status.Examine(f); len(r.Findings) != want {
			t.Errorf("%v: %+v", age, r.Findings)
		}
	}
}

// TestNoHubIsSetUpInAMember, because it was named as one: init would do that.
func TestNoHubIsSetUpInAMember(t *testing.T) {
	f := sound()
	f.Member, f.Hub.Sets, f.Hub.Profiles, f.Hub.Role.MemberOf = nil, nil, nil, "blue"
	r := status.Examine(f)
	if len(r.Findings) != 1 || r.Findings[0].Remedy != "name that hub with --hub-context" {
		t.Errorf("%+v", r.Findings)
	}
}

// TestT1WhatClientsGetOfASilentMember: evidence decides first, then spec.lease of the ClusterSet.
func TestT1WhatClientsGetOfASilentMember(t *testing.T) {
	const get, evidence = "clients elsewhere get its endpoints ", "while its agent or an endpoint answers there"
	for _, c := range []struct {
		ago      time.Duration
		onExpiry hubv1alpha1.ExpiryPolicy
		want     string
	}{
		{48 * time.Second, "Remove", "48s ago: " + get + evidence + "; where neither can be tried, 2s more"},
		{50 * time.Second, "NotReady", "50s ago: " + get + "only " + evidence},
		{time.Hour, "Keep", "60m ago: clients elsewhere still get its endpoints (onExpiry: Keep)"},
	} {
		f := sound()
		f.Hub.Sets[0].Spec.Lease = hubv1alpha1.LeaseSpec{DurationSeconds: 40, GraceSeconds: 10, OnExpiry: c.onExpiry}
		f.Hub.Leases[1] = lease("west", c.ago, 0)
		r := status.Examine(f)
		if len(r.Findings) != 1 || r.Findings[0].What != "it last renewed its Lease "+c.want {
			t.Errorf("%+v, want %q", r.Findings, c.want)
		}
	}
}

// TestAnotherHubIsNoHubToSetUp: init would make a second one.
func TestAnotherHubIsNoHubToSetUp(t *testing.T) {
	f := sound()
	f.Member.Leases = []coordinationv1.Lease{lease("hub-renewed", time.Second, 0)}
	f.Hub.Sets, f.Hub.Profiles, f.Hub.Leases, f.Hub.Records, f.Hub.Pages = nil, nil, nil, nil, nil
	r := status.Examine(f)
	if len(r.Findings) != 1 || r.Findings[0].Remedy != "name the hub of this cluster with --hub-context" {
		t.Errorf("%+v", r.Findings)
	}
}

// TestNamesThatNobodyServesAreFound, in one finding.
func TestNamesThatNobodyServesAreFound(t *testing.T) {
	f := sound()
	withoutEndpoints(f, "east")
	for i := range f.Hub.Pages[0].Spec.Endpoints {
		f.Hub.Pages[0].Spec.Endpoints[i].Ready = new(bool)
	}
	for i := range 6 {
		rec := record("west")
		rec.Name, rec.Spec.ServiceName = fmt.Sprintf("x%d.shop.west", i), fmt.Sprintf("x%d", i)
		f.Hub.Records = append(f.Hub.Records, rec)
	}
	r := status.Examine(f)
	want := "no cluster has a ready endpoint of web.shop, x0.shop, x1.shop, x2.shop, x3.shop and 2 more: " +
		"connections fail"
	if len(r.Findings) != 1 || r.Findings[0].What != want || r.Findings[0].Severity != report.Error ||
		r.Findings[0].Remedy != "kubectl clusterset explain web.shop" {
		t.Errorf("%+v", r.Findings)
	}
}

// TestT2ThePreferenceOfAnExportToOthersSelectsNothingHere: the oldest export decides among those to this cluster only.
func TestT2ThePreferenceOfAnExportToOthersSelectsNothingHere(t *testing.T) {
	f := sound()
	west := &f.Hub.Records[1].Spec
	west.ExportedAt, west.ExportTo, west.Preference = &metav1.Time{Time: now.Add(-2 * time.Hour)}, "cluster=north",
		"cluster=north"
	for _, found := range status.Examine(f).Findings {
		if strings.Contains(found.What, "ready endpoint") {
			t.Errorf("%+v", found)
		}
	}
}

// TestWhoServesANameIsShown: exporters without a ready endpoint, and whether the name is imported here.
func TestWhoServesANameIsShown(t *testing.T) {
	shows := func(f *status.Facts) string {
		r := status.Examine(f)
		var out strings.Builder
		status.Print(&out, &r, false, now)
		return out.String()
	}
	for name, c := range map[string]struct {
		change func(*status.Facts)
		row    string
	}{
		"all do":   {func(*status.Facts) {}, `web\.shop +ClusterSetIP +east,west +yes`},
		"one does": {func(f *status.Facts) { withoutEndpoints(f, "east") }, `east \(none ready\),west +yes`},
		"not imported here": {func(f *status.Facts) { f.Member.Imports = nil },
			`web\.shop +ClusterSetIP +east,west +no`},
		"another program's": {func(f *status.Facts) { f.Member.Imports[0].Labels = nil },
			`(?s)web\.shop +ClusterSetIP +east,west +no\n.*1 export, 0 imports with 0 IPs`},
	} {
		f := sound()
		c.change(f)
		if got := shows(f); !regexp.MustCompile(c.row).MatchString(got) {
			t.Errorf("%s: no %q in\n%s", name, c.row, got)
		}
	}
}

// TestNobodyIsAdvisedToEvictTheClusterThatIsAsked: evicting is for clusters that do not return.
func TestNobodyIsAdvisedToEvictTheClusterThatIsAsked(t *testing.T) {
	for asked, want := range map[string]string{
		"east": "kubectl clusterset doctor",
		"west": "in that cluster: kubectl clusterset doctor; if it is permanently lost: kubectl clusterset leave " +
			"east --evict --hub-context=HUB",
	} {
		f := sound()
		f.Member.ID, f.Hub.Leases[0] = asked, lease("east", 90*time.Second, 0)
		r := status.Examine(f)
		if len(r.Findings) != 1 || !strings.HasPrefix(r.Findings[0].What, "it last renewed its Lease 90s ago: ") ||
			r.Findings[0].Remedy != want {
			t.Errorf("asked in %s: %+v", asked, r.Findings)
		}
	}
}

func TestASoundClustersetHasNoFindings(t *testing.T) {
	r := status.Examine(sound())
	if len(r.Findings) != 0 {
		t.Errorf("%+v", r.Findings)
	}
	if len(r.Members) != 2 || r.Members[0].Cluster != "east" || !r.Members[0].Here || r.Members[1].Endpoints != 3 ||
		r.Members[1].Exports != 1 {
		t.Errorf("%+v", r.Members)
	}
	if len(r.Names) != 1 || len(r.Names[0].Clusters) != 2 || r.Names[0].IPs[0] != "10.96.0.7" {
		t.Errorf("%+v", r.Names)
	}
	if r.Here.HubSeen == nil || now.Sub(*r.Here.HubSeen) != 3*time.Second {
		t.Errorf("%+v", r.Here)
	}

	// The member knows it as well, where the hub is not to be read.
	f := sound()
	f.Hub, f.Member.Leases = nil, []coordinationv1.Lease{lease("hub-renewed", 5*time.Minute, 0)}
	r = status.Examine(f)
	var out strings.Builder
	status.Print(&out, &r, false, now)
	if !strings.Contains(out.String(), "; its agent last saw the hub 5m ago") {
		t.Error(out.String())
	}
}

// TestAHubControllerThatMayRunIsNoFinding: replicas hand over, a hub that was just made, and what a member may not
// read.
func TestAHubControllerThatMayRunIsNoFinding(t *testing.T) {
	for name, change := range map[string]func(*status.Hub){
		"handed over": func(h *status.Hub) { *h.Leader = lease("clusterset-hub-blue", 50*time.Second, time.Hour) },
		"just made": func(h *status.Hub) {
			h.Leader, h.Sets[0].CreationTimestamp = &coordinationv1.Lease{}, metav1.NewTime(now.Add(-50*time.Second))
		},
		"not to be read": func(h *status.Hub) { h.Leader = nil },
	} {
		f := sound()
		change(f.Hub)
		if r := status.Examine(f); len(r.Findings) > 0 {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}

// TestT1WhoIsHeldIsToldOnlyWhereTheyAre: one silent member of two or three expires, and so do all by
// spec.lease.mostSilent Expire.
func TestT1WhoIsHeldIsToldOnlyWhereTheyAre(t *testing.T) {
	long := 10 * time.Minute
	for name, change := range map[string]func(*status.Hub){
		"one of two": func(h *status.Hub) {
			h.Leases = []coordinationv1.Lease{lease("east", 0, 0),
				lease("west", long, 0)}
		},
		"one of three": func(h *status.Hub) {
			h.Profiles = append(h.Profiles, profile("north"))
			h.Leases = []coordinationv1.Lease{lease("east", 0, 0), lease("north", 0, 0), lease("west", long, 0)}
		},
		"Expire": func(h *status.Hub) {
			h.Profiles = append(h.Profiles, profile("north"))
			h.Leases = []coordinationv1.Lease{lease("east", 0, 0), lease("north", long, 0), lease("west", long, 0)}
			h.Sets[0].Spec.Lease.MostSilent = hubv1alpha1.MostSilentExpire
		},
	} {
		f := sound()
		change(f.Hub)
		for _, p := range status.Examine(f).Findings {
			if strings.Contains(p.What, "together") {
				t.Errorf("%s: %s", name, p.What)
			}
		}
	}
}

// pooled has pools in the clusterset, a block in east, and west tell of its pods.
func pooled(pools ...string) func(*status.Facts) {
	return func(f *status.Facts) {
		set := &f.Hub.Sets[0]
		set.Spec.VIPs = hubv1alpha1.VIPs{Mode: "preferred", Pools: pools,
			Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112}}
		set.Status.Blocks = []hubv1alpha1.Block{{ClusterID: "east", CIDR: "10.200.0.0/24"}}
		f.Hub.Profiles[0].Status.Properties = []inventoryv1alpha1.Property{{Name: "pod-ranges.clusterset-dns.io",
			Value: "10.244.1.0/24"}}
	}
}

func TestV6PoolsAndBlocksAreShown(t *testing.T) {
	f := sound()
	pooled("10.200.0.0/22", "fd00:c5::/48")(f)
	f.Hub.Sets[0].Status.Blocks = append(f.Hub.Sets[0].Status.Blocks, hubv1alpha1.Block{ClusterID: "east",
		CIDR: "fd00:c5::/112"},
		hubv1alpha1.Block{ClusterID: "west", CIDR: "10.200.1.0/24"}, hubv1alpha1.Block{ClusterID: "west",
			CIDR: "fd00:c5::1:0/112"})
	r := status.Examine(f)
	var out strings.Builder
	status.Print(&out, &r, false, now)
	want := `
POOLS (mode preferred)
  POOL            BLOCKS OF   GRANTED   FREE
  10.200.0.0/22   /24         2         2
  fd00:c5::/48    /112        2         over a million

BLOCKS
  CLUSTER   BLOCKS
  east      10.200.0.0/24, fd00:c5::/112
  west      10.200.1.0/24, fd00:c5::1:0/112
`
	if len(r.Findings) > 0 || !strings.Contains(out.String(), want) {
		t.Errorf("%v\n%s\nwant\n%s", r.Findings, out.String(), want)
	}
}

// TestFindingsComeFirst plants one mistake each, which the report must name with a remedy.
func TestFindingsComeFirst(t *testing.T) {
	for _, c := range []struct {
		name, about string
		plant       func(f *status.Facts)
		what        string
	}{
		{"no hub", "hub", func(f *status.Facts) { f.Hub, f.HubError = nil, "connection refused" },
			"connection refused"},
		{"no ClusterSet", "hub", func(f *status.Facts) { f.Hub.Sets = nil }, "holds no ClusterSet"},
		{"two ClusterSets", "hub", func(f *status.Facts) { f.Hub.Sets = append(f.Hub.Sets, f.Hub.Sets[0]) }, "holds 2"},
		{"no hub controller", "hub", func(f *status.Facts) {
			for i := range f.Hub.Profiles {
				f.Hub.Profiles[i].Status.Conditions = nil
			}
		}, "does not run, or waits"},
		{"the hub controller has stopped", "hub", func(f *status.Facts) {
			*f.Hub.Leader = lease("clusterset-hub-blue", 5*time.Minute, -time.Hour) // whatever its own clock says
		}, "nobody has renewed its Lease clusterset-hub-blue in clusterset-system for 5m"},
		{"the hub controller never ran", "hub", func(f *status.Facts) {
			f.Hub.Sets[0].CreationTimestamp = metav1.NewTime(now.Add(-3 * time.Hour))
			f.Hub.Leader = &coordinationv1.Lease{}
		}, "for 3h"},
		{"a member is gone", "west", func(f *status.Facts) { f.Hub.Leases[1] = lease("west", 90*time.Second, 0) },
			"it last renewed its Lease 90s ago"},
		{"a member never came", "west", func(f *status.Facts) { f.Hub.Leases = f.Hub.Leases[:1] }, "never renewed"},
		{"a join was not finished", "west", func(f *status.Facts) { f.Hub.Profiles[0].Annotations = nil },
			"its join began 2d ago"},
		{"a member is not cleaned up", "west", func(f *status.Facts) {
			f.Hub.Profiles[0].DeletionTimestamp = &metav1.Time{Time: now.Add(-5 * time.Minute)}
		}, "5m ago, and its records"},
		{"a clock is wrong", "west", func(f *status.Facts) { f.Hub.Leases[1] = lease("west", time.Second, time.Hour) },
			"is 1h0m0s ahead of the hub's; if it was corrected since, this finding ends at 2026-01-02T04:04:04Z"},
		{"the hub says so", "west", func(f *status.Facts) {
			f.Hub.Profiles[0].Status.Conditions[1] = metav1.Condition{Type: "ControlPlaneHealthy", Status: "False",
				Reason: "Odd", Message: "it is odd"}
		}, "Odd: it is odd"},
		{"a member that is taken for the hub", "hub", func(f *status.Facts) {
			f.Member, f.Hub.Sets = nil, nil
			f.Hub.Role = facts.Role{MemberOf: "blue", Server: "https://hub:6443"}
		}, "the cluster that you named as the hub is a member of ClusterSet blue, whose hub is https://hub:6443"},
		{"another namespace of its hub", "hub", func(f *status.Facts) {
			f.Member.Leases = []coordinationv1.Lease{lease("hub-renewed", time.Second, 0)}
			f.Hub.Sets, f.Hub.Leases, f.Hub.Role = nil, nil, facts.Role{HubOf: []string{"green"}}
		}, "namespace blue of the hub holds no ClusterSet; it is the hub of: green"},
		{"another namespace of the hub", "hub", func(f *status.Facts) {
			f.Member, f.Hub.Sets, f.Hub.Role = nil, nil, facts.Role{HubOf: []string{"green", "red"}, MemberOf: "green"}
		}, "namespace blue of the hub holds no ClusterSet; it is the hub of: green, red"},
		{"the agent knows what is wrong", "this cluster", func(f *status.Facts) {
			f.Member.Known = []report.Finding{report.Errorf("do it", "no clusterset.local")}
		}, "no clusterset.local"},
		{"the agent knows why it is not a member", "this cluster", func(f *status.Facts) {
			f.Member.Set, f.Member.Known = "", []report.Finding{report.Errorf("do it", "held by another")}
		}, "held by another"},
		{"not a member, but the hub", "this cluster", func(f *status.Facts) {
			f.Member.Set, f.Member.HubOf = "", []string{"blue"}
		}, "it is the hub of blue"},
		{"not a member", "this cluster", func(f *status.Facts) { f.Member.Set = "" },
			"and has 1 ServiceExport without effect"},
		{"leaving", "this cluster", func(f *status.Facts) { f.Member.Leaving = true }, "is leaving ClusterSet blue"},
		{"a kind was deleted", "this cluster", func(f *status.Facts) { f.Member.Unserved = []string{"ServiceImport"} },
			"has no kind ServiceImport"},
		{"no agent", "this cluster", func(f *status.Facts) { f.Member.Agent = nil; f.Hub = nil },
			"there is no Deployment"},
		{"agent down", "this cluster",
			func(f *status.Facts) { f.Member.Agent.Status.AvailableReplicas = 0; f.Hub = nil }, "no replica"},
		{"agent scaled to 0, and its Lease has not expired yet", "this cluster",
			func(f *status.Facts) { f.Member.Agent.Spec.Replicas = new(int32) }, "is scaled to 0"},
		{"an export is invalid in part", "web.shop", func(f *status.Facts) {
			f.Member.Exports[0].Status.Conditions[0] = conditions.ValidWithout(errors.New("annotation x"))
		}, "an earlier preference or export-to stays: annotation x"},
		{"F4 a member does not reach others", "west", func(f *status.Facts) {
			reach.WriteUnreachable(&f.Hub.Leases[1], map[string]time.Time{"east": now.Add(-90 * time.Second),
				"north": now.Add(-5 * time.Minute)})
		}, "it does not reach east (for 90s), north (for 5m): the endpoints there follow"},
		{"what it does not reach is nonsense", "west", func(f *status.Facts) {
			f.Hub.Leases[1].Annotations = map[string]string{"clusterset-dns.io/unreachable": `{"EAST":""}`}
		}, "is invalid"},
		{"F4 the agent of a cluster is silent", "this cluster", func(f *status.Facts) {
			f.Member.Leases = []coordinationv1.Lease{source("north", reach.Serving)}
		}, "only the endpoints of cluster north answer here, not its agent"},
		{"most members are silent", "hub", func(f *status.Facts) {
			f.Hub.Profiles = append(f.Hub.Profiles, profile("north"))
			f.Hub.Leases = []coordinationv1.Lease{lease("east", 3*time.Second, 0), lease("north", 10*time.Minute, 0),
				lease("west", 10*time.Minute, 0)}
		}, "2 of 3 members do not renew their Leases: if they stopped together, live members keep the " +
			"endpoints of those that answer"},
		{"records are held", "this cluster", func(f *status.Facts) {
			f.Member.Records[1].Status.Conditions = []metav1.Condition{{Type: "Held", Status: "True"}}
		}, "1 record"},
		{"an import is not ready", "web.shop", func(f *status.Facts) {
			f.Member.Imports[0].Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False",
				Reason: "Pending", Message: "full"}}
		}, "not Ready (Pending): full"},
		{"an export is not valid", "web.shop", func(f *status.Facts) {
			f.Member.Exports[0].Status.Conditions[0] = metav1.Condition{Type: "Valid", Status: "False",
				Reason: "NoService", Message: "none"}
		}, "not Valid (NoService): none"},
		{"no pools", "pools", func(f *status.Facts) { f.Hub.Sets[0].Spec.VIPs.Mode = "preferred" },
			"mode preferred has no usable pool"},
		{"a pool is no use", "pools", pooled("10.200.0.0/25"), "smaller than a block of /24"},
		{"a pool is in use", "pools", pooled("10.244.0.0/16"),
			"pool 10.244.0.0/16 overlaps the pod range 10.244.1.0/24 of west: no block is cut there"},
		{"pools are full", "west", pooled("10.200.0.0/24"), "range is full"},
		{"a block is in use", "east", func(f *status.Facts) {
			pooled("10.200.0.0/16")(f)
			f.Hub.Profiles[0].Status.Properties[0].Value = "10.200.0.0/26"
		}, "block 10.200.0.0/24 overlaps the pod range 10.200.0.0/26 of west"},
		{"nonsense is told", "west", func(f *status.Facts) {
			pooled("10.200.0.0/16")(f)
			f.Hub.Profiles[0].Status.Properties[0].Value = "all"
		}, "pod-ranges.clusterset-dns.io"},
		{"ID3 the hub has forgotten this cluster", "this cluster", func(f *status.Facts) {
			f.Hub.Profiles = slices.DeleteFunc(f.Hub.Profiles,
				func(p inventoryv1alpha1.ClusterProfile) bool { return p.Name == f.Member.ID })
		}, "the hub has no ClusterProfile east: it was evicted, or the hub was restored from an earlier backup"},
		{"a ClusterProfile was lost", "north", func(f *status.Facts) {
			f.Hub.Sets[0].Status.Blocks = []hubv1alpha1.Block{{ClusterID: "north", CIDR: "10.200.9.0/24"}}
		}, "owns blocks"},
		{"exports that cannot be read", "west", func(f *status.Facts) {
			for _, name := range []string{"db", "api"} {
				f.Hub.Records = append(f.Hub.Records, record("west"))
				last := &f.Hub.Records[len(f.Hub.Records)-1].Spec
				last.ServiceName, last.Type = name, "Newer"
			}
		}, "parsing 2 exports of cluster west failed, so NAMES omits them: db.shop: "},
		{"another namespace of the hub is given", "this cluster", func(f *status.Facts) { f.GivenNamespace = "red" },
			"--hub-namespace is red, and its credentials for the hub are for blue"},
		{"T2 a preference that nobody serves", "web.shop", func(f *status.Facts) {
			for i := range f.Hub.Records {
				f.Hub.Records[i].Spec.Preference = "cluster=wst"
			}
		}, "its preference selects no cluster that has a ready endpoint"},
		{"nobody serves what is exported to this cluster", "web.shop", func(f *status.Facts) {
			f.Hub.Records[1].Spec.ExportTo = "cluster=north"
			withoutEndpoints(f, "east")
		}, "no cluster that exports it to this one has a ready endpoint"},
		{"a conflict", "web.shop", func(f *status.Facts) { f.Hub.Records[1].Spec.Type = mcsv1beta1.Headless },
			"Conflicting type"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			f := sound()
			c.plant(f)
			r := status.Examine(f)
			var out strings.Builder
			status.Print(&out, &r, true, now)
			hit := false
			for _, p := range r.Findings {
				hit = hit || p.About == c.about && strings.Contains(p.What, c.what) && p.Remedy != ""
			}
			problem := max(strings.Index(out.String(), "! "+c.about+": "),
				strings.Index(out.String(), "x "+c.about+": "))
			if members := strings.Index(out.String(), "MEMBERS"); !hit || problem < 0 || members >= 0 &&
				members < problem {
				t.Errorf("no %q about %s, or not first:\n%s", c.what, c.about, out.String())
			}
		})
	}
}

// TestV6StateOfTheRanges: each range for VIPs, with its state and what is free.
func TestV6StateOfTheRanges(t *testing.T) {
	f := sound()
	f.Member.Ranges = []ipam.Usage{{Range: ipam.Range{Name: "vips", Prefix: netip.MustParsePrefix("10.200.0.0/28"),
		VIPs: true, State: ipam.Terminating}, Allocated: 3, Available: 11}}
	r := status.Examine(f)
	var out strings.Builder
	status.Print(&out, &r, false, now)
	if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got,
		"10.200.0.0/28 vips being deleted 3 11") {
		t.Error(out.String())
	}
}

// TestFullRangesAreAFinding of the mode whose VIPs come from them.
func TestFullRangesAreAFinding(t *testing.T) {
	full := ipam.Usage{Range: ipam.Range{Name: "full", Prefix: netip.MustParsePrefix("10.200.0.0/28"),
		VIPs: true}, Allocated: 14}
	free := full
	free.Available = 1
	deleted := free
	deleted.Range.State = ipam.Terminating
	for _, c := range []struct {
		mode   ipam.Mode
		ranges []ipam.Usage
		want   string
	}{
		{ipam.ModeShared, []ipam.Usage{full}, ""},
		{ipam.ModePreferred, []ipam.Usage{full, full},
			"no IPv4 address is free in its 2 ranges for VIPs: new VIPs come from the cluster's own"},
		{ipam.ModePreferred, []ipam.Usage{full, free}, ""},
		{ipam.ModePreferred, []ipam.Usage{full, deleted}, "no IPv4 address"},
	} {
		f := sound()
		before := len(status.Examine(f).Findings)
		f.Member.VIPMode, f.Member.Ranges = c.mode, c.ranges
		r := status.Examine(f)
		if got := r.Findings[before:]; len(got) != min(1, len(c.want)) || c.want != "" &&
			!strings.Contains(got[0].What, c.want) {
			t.Errorf("%s, %v: %+v, want %q", c.mode, c.ranges, got, c.want)
		}
	}
}

// source is what this cluster knows of another one.
func source(id string, v reach.State) coordinationv1.Lease {
	l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{liveness.LabelSource: id}, Annotations: map[string]string{},
	}}
	reach.Member{State: v, Since: now}.Write(&l, 0)
	return l
}

// TestF4WhetherMembersAnswerIsShown, or what else is known of them here.
func TestF4WhetherMembersAnswerIsShown(t *testing.T) {
	for state, want := range map[reach.State]string{
		reach.Answers: "answers", reach.Serving: "serving", reach.Silent: "silent", reach.Unreachable: "unreachable",
		reach.Unknown: "-",
	} {
		f := sound()
		l := source("west", state)
		reach.Member{State: state, Since: now}.Write(&l, 1200*time.Microsecond)
		f.Member.Leases = append(f.Member.Leases, l)
		r := status.Examine(f)
		var out strings.Builder
		status.Print(&out, &r, false, now)
		row := regexp.MustCompile(`(?m)^  west .*$`).FindString(out.String())
		if !slices.Contains(strings.Fields(row), want) {
			t.Errorf("%v: %q, want %q", state, row, want)
		}
	}
}

// TestExportsToSomeClustersAreShown, and count in conflicts only where they are imported.
func TestExportsToSomeClustersAreShown(t *testing.T) {
	for to, conflicts := range map[string]int{"": 1, "cluster=north": 0, "cluster=east": 1, "region=eu": 0} {
		f := sound()
		west := &f.Hub.Records[1].Spec
		west.Type, west.ExportTo = mcsv1beta1.Headless, to
		f.Hub.Records[0].Spec.ExportTo = "cluster=north"
		r := status.Examine(f)
		var out strings.Builder
		status.Print(&out, &r, false, now)
		shown := "east (to cluster=north),west"
		if to != "" {
			shown += " (to " + to + ")"
		}
		if len(r.Names) != 1 || len(r.Names[0].Conflicts) != conflicts || !strings.Contains(out.String(), shown) {
			t.Errorf("west exports to %q: %+v\n%s", to, r.Names, out.String())
		}
	}
}

// TestF5NamesForClientsOutside are shown, and the column is not there without any.
func TestF5NamesForClientsOutside(t *testing.T) {
	text := func(f *status.Facts) string {
		var out strings.Builder
		r := status.Examine(f)
		status.Print(&out, &r, false, now)
		return out.String()
	}
	f := sound()
	if strings.Contains(text(f), "OUTSIDE") {
		t.Errorf("%s", text(f))
	}
	f.Hub.Records[0].Spec.External = &hubv1alpha1.ExternalAddresses{IPs: []string{"192.0.2.1"}}
	want := regexp.MustCompile(
		`IMPORTED HERE +FOR CLIENTS OUTSIDE\n.*web\.shop .* ` + f.Hub.Records[0].Spec.ClusterID + `\n`,
	)
	if !want.MatchString(text(f)) {
		t.Errorf("%s", text(f))
	}
}
