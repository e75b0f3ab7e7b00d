package doctor_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func lease(name string, age, ahead time.Duration) coordinationv1.Lease {
	seconds, at, renewed := int32(40), metav1.NewTime(now.Add(-age)), metav1.NewMicroTime(now.Add(ahead-age))
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
}

// renewing are the Leases of an agent that runs, and that last renewed its Lease on the hub that long ago.
func renewing(ago time.Duration) []coordinationv1.Lease {
	return []coordinationv1.Lease{lease("hub-renewed", ago, 0), lease("clusterset-controller", time.Second, 0)}
}

func profile(name string) inventoryv1alpha1.ClusterProfile {
	p := inventoryv1alpha1.ClusterProfile{}
	p.Name, p.CreationTimestamp = name, metav1.NewTime(now.Add(-time.Hour))
	p.Spec.ClusterManager.Name = "clusterset-dns"
	p.Status.Conditions = []metav1.Condition{{Type: "Joined", Status: "True"}}
	return p
}

func slice(cluster, address string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}}
	s.Labels = map[string]string{mcsv1beta1.LabelSourceCluster: cluster}
	return s
}

// sound returns a member without findings.
func sound(t *testing.T) *doctor.Facts {
	t.Helper()
	imp := mcsv1beta1.ServiceImport{}
	imp.Namespace, imp.Name, imp.Spec.Type = "shop", "web", mcsv1beta1.Headless
	imp.Labels = map[string]string{"app.kubernetes.io/managed-by": "clusterset-controller.clusterset-dns.io"}
	agent := &appsv1.Deployment{}
	two := int32(2)
	agent.Name, agent.Namespace, agent.Spec.Replicas = "clusterset-controller", "clusterset-system", &two
	agent.Status = appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	leads := lease("clusterset-hub-blue", 2*time.Second, 0)
	dns := &appsv1.Deployment{}
	dns.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	dns.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.example:5000/coredns/coredns:v1"}}
	set := hubv1alpha1.ClusterSet{}
	set.Namespace, set.Name = "blue", "blue"
	set.Spec.VIPs = hubv1alpha1.VIPs{Mode: "preferred", Pools: []string{"10.200.0.0/16"},
		Blocks: hubv1alpha1.BlockSize{IPv4Bits: 24, IPv6Bits: 112}}
	set.Status.Blocks = []hubv1alpha1.Block{{ClusterID: "east", CIDR: "10.200.0.0/24"},
		{ClusterID: "west", CIDR: "10.200.1.0/24"}}
	ns := &corev1.Namespace{}
	ns.Name, ns.Labels = "blue", map[string]string{"multicluster.x-k8s.io/clusterset": "blue"}
	kinds := func() doctor.Kinds {
		return doctor.Kinds{
			Want:     map[string][]string{"a.example": {"v1"}, "b.example": {"v1"}},
			Have:     map[string][]string{"a.example": {"v1"}, "b.example": {"v1", "v2"}},
			Policies: []string{"p", "q"}, Enforced: []string{"q", "p"},
		}
	}
	return &doctor.Facts{
		Version: "v1.36.0", Kinds: kinds(), Membership: facts.Membership{ID: "east", Set: "blue"},
		Now: now, Deployment: agent,
		AgentServer: "https://hub.example:6443", Credentials: &doctor.Credentials{Namespace: "blue"},
		Leases: renewing(5 * time.Second),
		HubFacts: doctor.HubFacts{
			Hub: facts.Hub{
				Version: "v1.32.1", Now: now, Namespace: "blue", Sets: []hubv1alpha1.ClusterSet{set},
				Profiles: []inventoryv1alpha1.ClusterProfile{profile("east"), profile("west")},
				Leases: []coordinationv1.Lease{lease("east", 5*time.Second, 0),
					lease("west", 9*time.Second, time.Second)},
				Leader: &leads,
			},
			SetNamespace: ns, Kinds: kinds(), Controller: agent,
		},
		DNSFacts:      doctor.DNSFacts{Deployment: dns, Corefile: inOneBlock(t)},
		PodRanges:     []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.200.0.0/25")},
		Imported:      []mcsv1beta1.ServiceImport{imp},
		Slices: []discoveryv1.EndpointSlice{slice("east", "10.1.0.5"), slice("west", "10.2.0.5"),
			slice("north", "10.3.0.5")},
	}
}

func TestASoundMemberHasNoFindings(t *testing.T) {
	r := doctor.Examine(sound(t))
	for _, o := range r.Outcomes {
		if o.Skipped != "" || len(o.Findings) > 0 {
			t.Errorf("%+v", o)
		}
	}
	if len(r.Outcomes) != len(doctor.Checks()) || len(r.Findings()) != 0 {
		t.Errorf("%d outcomes", len(r.Outcomes))
	}
}

func waiting(reason, message string) corev1.Pod {
	return corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}}
}

type planted struct {
	name, check string
	severity    report.Severity
	plant       func(f *doctor.Facts)
	what        string // in the finding
}

const (
	bad    = report.Error
	notice = report.Warning
)

// TestPlantedMisconfigurationsAreFound plants one mistake at a time, which the check for it must find.
func TestPlantedMisconfigurationsAreFound(t *testing.T) {
	found := map[string]bool{}
	for _, p := range slices.Concat(inMember, inHub, inPools, inDNS, inExternal) {
		found[p.check] = true
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			f := sound(t)
			p.plant(f)
			r := doctor.Examine(f)
			var hit *report.Finding
			for _, o := range r.Outcomes {
				if o.Skipped != "" && p.check != "hub-another" && len(f.Unread) == 0 {
					t.Errorf("%s was skipped: %s", o.Check, o.Skipped)
				}
				for i := range o.Findings {
					if o.Check == p.check && strings.Contains(o.Findings[i].What, p.what) {
						hit = &o.Findings[i]
					}
				}
			}
			if hit == nil || hit.Severity != p.severity || !strings.Contains(hit.What, p.what) || hit.Remedy == "" {
				t.Errorf("%s: %+v, want %s with %q; all: %+v", p.check, hit, p.severity, p.what, r.Outcomes)
			}
		})
	}
	for _, c := range doctor.Checks() {
		if !found[c.Name] {
			t.Errorf("no mistake is planted for the check %s: does it find any?", c.Name)
		}
	}
}

var inMember = []planted{
	{"old Kubernetes", "kubernetes-version", bad, func(f *doctor.Facts) { f.Version = "v1.31.9+k3s1" }, "1.31.9"},
	{"a CRD is missing", "kinds", bad, func(f *doctor.Facts) { delete(f.Kinds.Have, "b.example") },
		"no kind b.example"},
	{"a CRD of an older project", "kinds", bad, func(f *doctor.Facts) { f.Kinds.Have["a.example"] = []string{"v0"} },
		"serves a.example as v0 and not as v1"},
	{"a policy was deleted", "policies", bad, func(f *doctor.Facts) { f.Kinds.Enforced = []string{"p"} },
		"does not enforce the ValidatingAdmissionPolicies q"},
	{"no id", "cluster-id", bad, func(f *doctor.Facts) { f.ID = "" }, "has no cluster ID"},
	{"a bad id", "cluster-id", bad, func(f *doctor.Facts) { f.ID = "Not_One" }, `"Not_One"`},
	{"not a member", "membership", bad, func(f *doctor.Facts) { f.Set = "" }, "member of no ClusterSet"},
	{"leaving", "membership", notice, func(f *doctor.Facts) { f.Leaving = true }, "is leaving"},
	{"no agent", "agent-deployment", bad, func(f *doctor.Facts) {
		f.Deployment, f.HubFacts.Leases, f.Leases = nil, nil, nil
	}, "there is no Deployment"},
	{"agent scaled to nothing", "agent-deployment", bad, func(f *doctor.Facts) {
		f.Deployment.Spec.Replicas = new(int32) // before its Lease shows it
	}, "scaled to 0"},
	{"the new version's image is not there", "agent-deployment", notice, func(f *doctor.Facts) {
		f.Pods = []corev1.Pod{waiting("ImagePullBackOff", "no such tag")}
	}, "a replica of the agent does not run, such as one of a new version: pod : ImagePullBackOff: no such tag"},
	{"no such image", "agent-deployment", bad, func(f *doctor.Facts) {
		f.HubFacts.Leases, f.Leases = nil, nil
		f.Deployment.Status.AvailableReplicas = 0
		f.Pods = []corev1.Pod{waiting("ImagePullBackOff", "not found")}
	}, "ImagePullBackOff"},
	{"the agent waits, and has no Pod", "agent-deployment", bad, func(f *doctor.Facts) {
		notYet(f)
		f.Pods = nil
	}, "no replica of the agent is available"},
	{"agent refused", "agent-knows", bad, notYet, "held by another"},
	{"F4 no DNS, and no replica", "agent-deployment", bad, func(f *doctor.Facts) {
		f.Known, f.Pods = known("NotServed", ""), make([]corev1.Pod, 1)
		f.Deployment.Status.AvailableReplicas, f.HubFacts.Leases, f.Leases = 0, nil, nil
	}, "no replica of the agent is available"},
	{"F6 a Membership of the past", "agent-knows", notice, func(f *doctor.Facts) {
		f.Outdated, f.Known = "no agent renews its Lease", nil
	}, "does not show what is now: no agent renews its Lease"},
	{"F6 a Membership that cannot be written", "agent-rights", bad, func(f *doctor.Facts) {
		f.AgentLacks = []string{"a", "b", "c", "d", "e", "f"}
	}, "the agent may not a, b, c, d, e, and 1 more"},
	{"agent stands still", "heartbeat", bad, func(f *doctor.Facts) {
		f.Leases, f.HubFacts.Leases[0] = renewing(3*time.Minute), lease("east", 3*time.Minute, 0)
	}, "3m ago"},
	{"F6 agent stands still, and nobody may read the hub", "heartbeat", bad, func(f *doctor.Facts) {
		f.Leases, f.HubFacts = renewing(3*time.Minute), doctor.HubFacts{}
		f.Unread = map[doctor.Topic]string{doctor.Hub: "no", doctor.HubAdmin: "no", doctor.HubLeader: "no"}
	}, "3m ago"},
	{"F4 agent stands still, and there is no DNS", "heartbeat", bad, func(f *doctor.Facts) {
		f.Leases, f.HubFacts.Leases[0] = renewing(3*time.Minute), lease("east", 3*time.Minute, 0)
		f.Known = known("NotServed", "")
	}, "3m ago"},
	{"agent never came", "heartbeat", bad, func(f *doctor.Facts) {
		f.Leases, f.HubFacts.Leases = f.Leases[1:], f.HubFacts.Leases[1:]
	}, "never"},
	{"F4 no credentials, and no DNS", "credentials", bad, func(f *doctor.Facts) {
		f.Known, f.Credentials = known("NotServed", ""), nil
	}, "has no credentials"},
	{"no credentials", "credentials", bad, func(f *doctor.Facts) { f.Credentials = nil }, "has no credentials"},
	{"credentials are nonsense", "credentials", bad,
		func(f *doctor.Facts) { f.Credentials = &doctor.Credentials{Problem: "it is no JSON Web Token"} },
		"no JSON Web Token"},
	{"pods in the service range", "ranges-here", bad,
		func(f *doctor.Facts) { f.PodRanges[0] = netip.MustParsePrefix("10.96.4.0/24") }, "overlap"},
	{"a peer in our pod range", "ranges-own", bad, func(f *doctor.Facts) { f.Slices[1] = slice("west", "10.1.9.9") },
		"own pod range 10.1.0.0/16"},
	{"a peer in our service range", "ranges-own", bad, func(f *doctor.Facts) {
		f.Slices[1] = slice("west",
			"10.96.0.9")
	}, "own service range"},
	{"two peers with one range", "ranges-peers", notice, func(f *doctor.Facts) {
		f.Slices[1] = slice("west",
			"10.3.0.5")
	}, "north and west both export the endpoint 10.3.0.5"},
	{"an import of another's", "imports-others", bad, func(f *doctor.Facts) {
		f.Imported[0].Labels = nil
		rec := hubv1alpha1.ServiceExportRecord{}
		rec.Spec.ServiceNamespace, rec.Spec.ServiceName = "shop", "web"
		rec.Status.Conditions = []metav1.Condition{{Type: "Imported", Status: "False", Reason: "NotOwned",
			Message: "it belongs to another program; kubectl annotate"}}
		f.Records = []hubv1alpha1.ServiceExportRecord{rec, rec}
	}, "web.shop: it belongs to another program (NotOwned)"},
	{"another implementation", "imports-others", notice, func(f *doctor.Facts) { f.Imported[0].Labels = nil },
		"shop/web"},
}

var inHub = []planted{
	{"exports of an excluded namespace", "excluded-namespaces", notice, func(f *doctor.Facts) {
		f.Exported = []mcsv1beta1.ServiceExport{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "dns"}}}
	}, "nothing is exported: kube-system/dns"},
	{"old hub", "hub-version", bad, func(f *doctor.Facts) { f.HubFacts.Version = "v1.29.0" }, "the hub runs"},
	{"no ClusterSet", "hub-clusterset", bad, func(f *doctor.Facts) { f.HubFacts.Sets = nil }, "holds no ClusterSet"},
	{"two ClusterSets", "hub-clusterset", bad, func(f *doctor.Facts) {
		f.HubFacts.Sets = append(f.HubFacts.Sets,
			f.HubFacts.Sets[0])
	}, "holds 2"},
	{"another clusterset's hub", "hub-clusterset", bad, func(f *doctor.Facts) { f.Set = "red" },
		"its hub has ClusterSet blue"},
	{"a kind is missing", "hub-kinds", bad, func(f *doctor.Facts) { f.HubFacts.Kinds.Have = nil },
		"no kind a.example, b.example"},
	{"a policy is not bound", "hub-policies", bad, func(f *doctor.Facts) { f.HubFacts.Kinds.Enforced = nil }, "p, q"},
	{"the namespace lost its label", "hub-policies", bad,
		func(f *doctor.Facts) { f.HubFacts.SetNamespace.Labels = nil }, "lacks the label"},
	{"the hub controller has stopped", "hub-leader", notice, func(f *doctor.Facts) {
		*f.HubFacts.Leader = lease("clusterset-hub-blue", 5*time.Minute, -time.Hour) // whatever its own clock says
		for i := range f.HubFacts.Profiles {                                         // said once
			f.HubFacts.Profiles[i].Status.Conditions = nil
		}
	}, "in clusterset-system for 5m"},
	{"a hub controller whose image cannot be pulled", "hub-controller", notice, func(f *doctor.Facts) {
		f.HubFacts.Controller = f.HubFacts.Controller.DeepCopy()
		f.HubFacts.Controller.Status.UpdatedReplicas = 1
		f.HubFacts.Pods = []corev1.Pod{{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}}}}
	}, "the hub's controller: Deployment clusterset-controller: 1 of 2 new replicas are available; pod : ErrImagePull"},
	{"no hub controller", "hub-controller", notice, func(f *doctor.Facts) {
		f.HubFacts.Controller = nil
		for i := range f.HubFacts.Profiles {
			f.HubFacts.Profiles[i].Status.Conditions = nil
		}
	}, "it has no Deployment in clusterset-system"},
	{"F7 two others have one range", "hub-members", notice, func(f *doctor.Facts) {
		p := &f.HubFacts.Profiles[1].Status
		p.Conditions = append(p.Conditions, metav1.Condition{Type: "MemberReady", Status: "False", Reason: "Overlap",
			Message: "Pod range 10.2.0.0/16 is in Pod range 10.2.0.0/16 of cluster north. " + health.URL("Overlap")})
	}, "cluster west: Pod range 10.2.0.0/16 is in Pod range 10.2.0.0/16 of cluster north"},
	{"another hub of the same name", "hub-another", bad, func(f *doctor.Facts) {
		f.HubFacts.Profiles, f.HubFacts.Leases = f.HubFacts.Profiles[1:], f.HubFacts.Leases[1:]
	}, "not renew its Lease on this hub, but on the one at https://hub.example:6443"},
	{"this clock is wrong", "clock", notice, func(f *doctor.Facts) { f.Now = now.Add(-time.Minute) }, "1m0s apart"},
	{"a peer's clock is wrong", "clock", notice, func(f *doctor.Facts) {
		f.HubFacts.Leases[1] = lease("west",
			5*time.Second, -time.Hour)
	}, "cluster west is 1h0m0s behind"},
	{"a peer's clock was wrong", "clock", notice, func(f *doctor.Facts) {
		f.HubFacts.Leases[1] = lease("west",
			5*time.Second, time.Hour)
	},
		"cluster west is 1h0m0s ahead of the hub's; if it was corrected since, this finding ends at " +
			"2026-01-02T04:04:00Z"},
}

// tells has a member tell something of itself.
func tells(f *doctor.Facts, member int, property, value string) {
	p := &f.HubFacts.Profiles[member].Status
	p.Properties = append(p.Properties, inventoryv1alpha1.Property{Name: property + ".clusterset-dns.io", Value: value})
}

var inPools = []planted{
	{"no pools", "pools", notice, func(f *doctor.Facts) { f.HubFacts.Sets[0].Spec.VIPs.Pools = nil },
		"has no usable pool"},
	{"pools that overlap", "pools", bad, func(f *doctor.Facts) {
		f.HubFacts.Sets[0].Spec.VIPs.Pools = []string{"10.200.0.0/16", "10.200.128.0/17"}
	}, "overlaps pool 10.200.0.0/16"},
	{"pools are full", "pools", bad, func(f *doctor.Facts) {
		f.HubFacts.Sets[0].Spec.VIPs.Pools = []string{"10.200.0.0/23"}
		tells(f, 1, "vip-blocks", "ipv4=2")
	}, "cluster west asks for a block and cannot have one: "},
	{"a pool in a peer's range", "pools", notice, func(f *doctor.Facts) {
		tells(f, 1, "service-ranges",
			"10.200.128.0/20")
	}, "pool 10.200.0.0/16 overlaps the service range 10.200.128.0/20 of west"},
	{"a pool in this cluster's range", "pools-here", notice, func(f *doctor.Facts) {
		f.PodRanges = append(f.PodRanges,
			netip.MustParsePrefix("10.200.7.0/24"))
	},
		"pool 10.200.0.0/16 overlaps this cluster's own pod range 10.200.7.0/24"},
	{"a range by hand in a peer's block", "pools-here", notice,
		func(f *doctor.Facts) { f.ServiceRanges[1] = netip.MustParsePrefix("10.200.1.0/25") },
		"own service range 10.200.1.0/25"},
	{"a block in a peer's range", "pools", bad, func(f *doctor.Facts) { tells(f, 1, "pod-ranges", "10.200.0.0/26") },
		"cluster east: block 10.200.0.0/24 overlaps the pod range 10.200.0.0/26 of west"},
	{"a property that is nonsense", "pools", notice, func(f *doctor.Facts) { tells(f, 1, "vip-blocks", "many") },
		"cluster west: vip-blocks.clusterset-dns.io"},
	{"a ClusterProfile was lost", "pools", notice,
		func(f *doctor.Facts) { f.HubFacts.Sets[0].Status.Blocks[1].ClusterID = "north" }, "cluster north owns blocks"},
}

// TestAClusterThatHasNotJoinedHasOneFinding: all else is missing because of that.
func TestAClusterThatHasNotJoinedHasOneFinding(t *testing.T) {
	f := sound(t)
	f.Set, f.ID, f.Deployment, f.Credentials, f.Kinds.Enforced = "", "", nil, nil, nil
	f.PodRanges, f.ServiceRanges = nil, nil
	f.Kinds.Have, f.HubFacts = map[string][]string{}, doctor.HubFacts{}
	f.Unread = map[doctor.Topic]string{
		doctor.Hub: "no", doctor.HubAdmin: "no", doctor.HubLeader: "no",
	}
	r := doctor.Examine(f)
	if all := r.Findings(); len(all) != 1 || all[0].Check != "membership" {
		t.Errorf("%+v", all)
	}
	f.Unread[doctor.Membership] = "no" // then the finding that has the remedy is missing
	r = doctor.Examine(f)
	if all := r.Findings(); len(all) == 0 || all[0].Check != "kinds" {
		t.Errorf("membership was not read: %+v", all)
	}
}

// known is what an agent knows by this reason alone.
func known(reason, remedy string) []report.Finding {
	found := report.Errorf(remedy, "cluster id east is held by another cluster")
	found.Check = reason
	return []report.Finding{found}
}

// notYet has an agent that runs and is no member yet.
func notYet(f *doctor.Facts) {
	f.Set, f.Known = "", known("IDTaken", "do it")
	f.Deployment.Status.AvailableReplicas, f.HubFacts.Leases, f.Pods = 0, nil, make([]corev1.Pod, 1)
	f.Leases = f.Leases[1:]
}

// TestWhatFollowsFromAnotherFindingIsNone: an agent that waits to be a member is not ready, and renews no Lease.
func TestWhatFollowsFromAnotherFindingIsNone(t *testing.T) {
	f := sound(t)
	notYet(f)
	f.Set = "blue"
	r := doctor.Examine(f)
	if all := r.Findings(); len(all) != 1 || all[0].Check != "agent-knows" {
		t.Errorf("%+v", all)
	}
	f = sound(t)
	f.Leases = renewing(3 * time.Minute) // the hub knows better
	r = doctor.Examine(f)
	if all := r.Findings(); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}

// TestJoiningIsAdvisedWhereItWorks: not to a member that leaves, and --renew only to one that the hub knows.
func TestJoiningIsAdvisedWhereItWorks(t *testing.T) {
	const join = "kubectl clusterset join --hub-context=HUB"
	refused := func(f *doctor.Facts) {
		f.Known = known("Refused", join+" --renew")
	}
	for what, c := range map[string]struct {
		plant         func(*doctor.Facts)
		check, remedy string
	}{
		"refused":          {refused, "agent-knows", join + " --renew"},
		"without a Secret": {func(f *doctor.Facts) { f.Credentials = nil }, "credentials", join + " --renew"},
		"evicted": {func(f *doctor.Facts) {
			refused(f)
			f.HubFacts.Profiles, f.HubFacts.Leases = f.HubFacts.Profiles[1:], f.HubFacts.Leases[1:]
			f.HubFacts.Sets[0].Status.Departed = []hubv1alpha1.Departure{{ClusterID: "east"}} // a moment ago
		}, "agent-knows", join},
		"leaving": {func(f *doctor.Facts) {
			refused(f)
			f.Leaving = true
		}, "agent-knows", "to continue: kubectl clusterset leave --hub-context=HUB; without access to the hub, " +
			"unless it has evicted this cluster: kubectl clusterset leave"},
		"without an ID": {func(f *doctor.Facts) { f.ID, f.Set = "", "" }, "membership",
			"to finish joining: " + join + " --cluster-id ID; to finish leaving: kubectl clusterset leave " +
				"--hub-context=HUB"},
		"the hub, with a member named as its hub": {func(f *doctor.Facts) {
			f.Set, f.ID, f.Deployment, f.Credentials = "", "", nil, nil
			f.HubFacts.Sets, f.HubFacts.Here = nil, []string{"blue"}
			f.HubFacts.Role.MemberOf = "blue"
		}, "hub-another", "name that hub with --hub-context"},
	} {
		f := sound(t)
		c.plant(f)
		r := doctor.Examine(f)
		i := slices.IndexFunc(r.Findings(), func(found report.Finding) bool { return found.Check == c.check })
		if i < 0 || r.Findings()[i].Remedy != c.remedy {
			t.Errorf("%s: %+v, want %q", what, r.Findings(), c.remedy)
		}
	}
}

// TestAnotherHubIsNoReasonToLeave: it has another ClusterSet, and may have another member with this cluster's ID.
func TestAnotherHubIsNoReasonToLeave(t *testing.T) {
	f := sound(t)
	f.Set, f.HubFacts.Leases = "red", f.HubFacts.Leases[1:]
	f.HubFacts.SetNamespace.Labels = nil
	f.Deployment.Status.AvailableReplicas = 0 // its agent runs elsewhere
	r := doctor.Examine(f)
	if all := r.Findings(); len(all) != 1 || all[0].Check != "hub-another" || all[0].Remedy != facts.NameHub {
		t.Errorf("%+v", all)
	}
	f.HubFacts.Sets, f.HubFacts.Role = nil, facts.Role{HubOf: []string{"green"}}
	r = doctor.Examine(f)
	if all := r.Findings(); len(all) != 1 || !strings.HasSuffix(all[0].What, "it is the hub of: green") {
		t.Errorf("another namespace: %+v", all)
	}
	f.Known = known("RightsMissingHere", "kubectl clusterset join --hub-context=HUB")
	r = doctor.Examine(f)
	const elsewhere = "kubectl clusterset join --hub-context=CONTEXT"
	if all := r.Findings(); len(all) != 2 || all[0].Remedy != elsewhere {
		t.Errorf("%+v, want %q", all, elsewhere)
	}
}

// TestASkippedCheckIsReported, and is no pass.
func TestASkippedCheckIsReported(t *testing.T) {
	f := sound(t)
	f.Unread = map[doctor.Topic]string{doctor.DNS: "configmaps is forbidden"}
	f.DNSFacts = doctor.DNSFacts{}
	r := doctor.Examine(f)
	said := 0
	for _, o := range r.Outcomes {
		if len(o.Findings) > 0 {
			t.Errorf("%+v", o)
		}
		if strings.Contains(o.Skipped, "configmaps is forbidden") {
			said++
		}
	}
	var out strings.Builder
	doctor.Print(&out, &r, true)
	if said < 5 || !strings.Contains(out.String(), "? skipped: coredns-image, corefile, ") ||
		!strings.Contains(out.String(), "corefile-cache        skipped") {
		t.Error(out.String())
	}
}

// TestRightsThatLackAreSaidOnce: they are no check, the only reason of what they skip, and the hub's if all are.
func TestRightsThatLackAreSaidOnce(t *testing.T) {
	for want, forbidden := range map[string]map[doctor.Topic]string{
		"! your-rights: you lack the rights on the hub for ": {doctor.Hub: "", doctor.HubAdmin: ""},
		"! your-rights: you lack the rights for 14 checks: deployments (get), nodes (list)\n" +
			"  → run it as a cluster admin, ": {doctor.Agent: "deployments (get)", doctor.Hub: "deployments (get)",
			doctor.Ranges: "nodes (list)"},
	} {
		f := sound(t)
		f.Forbidden, f.Unread = forbidden, map[doctor.Topic]string{doctor.HubAdmin: doctor.NotAsked}
		for topic := range forbidden {
			f.Unread[topic] = "it is forbidden"
		}
		r := doctor.Examine(f)
		var out strings.Builder
		doctor.Print(&out, &r, false)
		headline := fmt.Sprintf(": %d checks, 0 errors, 1 warning, ", len(doctor.Checks()))
		if !strings.Contains(out.String(), want) || !strings.Contains(out.String(), headline) ||
			strings.Contains(out.String(), "forbidden") {
			t.Errorf("no %q or %q, or more, in\n%s", want, headline, &out)
		}
		if n := report.Count(r.Findings()).ExitCode(); n != 1 {
			t.Errorf("exit status %d", n)
		}
	}
}

// TestAHubThatIsNoMemberIsChecked as a hub. It needs to join only if it is to be a member as well.
func TestAHubThatIsNoMemberIsChecked(t *testing.T) {
	hub := func(here ...string) (*doctor.Facts, string) {
		f := sound(t)
		f.ID, f.Set, f.Deployment, f.Credentials, f.HubFacts.Here = "", "", nil, nil, here
		r := doctor.Examine(f)
		if len(r.Findings()) > 0 {
			t.Errorf("%+v", r.Findings())
		}
		var out strings.Builder
		doctor.Print(&out, &r, false)
		return f, out.String()
	}
	f, out := hub("blue")
	if want := fmt.Sprintf("This cluster, the hub of ClusterSet blue: %d checks, 0 errors, 0 warnings, 29 skipped\n"+
		"? skipped: 29 checks of a member\n  → this cluster is the hub and no member, which is fine; to make it one "+
		"as well: kubectl clusterset join --hub-context=HUB --cluster-id ID\n", len(doctor.Checks())); out != want {
		t.Errorf("%s, want\n%s", out, want)
	}
	if _, out = hub("blue", "red"); !strings.Contains(out, "ClusterSet blue (of blue, red; choose with --hub-n") {
		t.Error(out)
	}
	f.HubFacts.Kinds.Have = nil
	if r := doctor.Examine(f); len(r.Findings()) != 1 || r.Findings()[0].Check != "hub-kinds" {
		t.Errorf("%+v", r.Findings())
	}
	f.HubFacts.Kinds.Have = f.HubFacts.Kinds.Want
	f.Unread = map[doctor.Topic]string{doctor.Ranges: "forbidden", doctor.HubAdmin: "forbidden"}
	f.Forbidden = map[doctor.Topic]string{doctor.Ranges: "nodes (list)", doctor.HubAdmin: "namespaces (get)"}
	if r := doctor.Examine(f); len(r.Findings()) != 1 ||
		r.Findings()[0].What != "you lack the rights for 2 checks: namespaces (get)" {
		t.Errorf("%+v", r.Findings())
	}
	f.Set = "blue" // a hub that is a member is checked as one
	if r := doctor.Examine(f); r.HubOf != nil || len(r.Findings()) < 2 {
		t.Errorf("%+v", r)
	}
}

// TestTheTableShowsTheWorstOfACheck, whichever of its findings comes first.
func TestTheTableShowsTheWorstOfACheck(t *testing.T) {
	r := doctor.Report{Outcomes: []doctor.Outcome{{Check: "options", Findings: []report.Finding{
		report.Warningf("", "first"), report.Errorf("", "second"),
	}}}}
	var out strings.Builder
	doctor.Print(&out, &r, true)
	if !strings.Contains(out.String(), "options   error") {
		t.Error(out.String())
	}
}
