package inventory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func TestP1NamespaceAndOneProfilePerMember(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	for _, ns := range []string{home, blue} {
		var is corev1.Namespace
		must(t, e.admin.Get(ctx, client.ObjectKey{Name: ns}, &is))
		for _, label := range []string{clusterset.LabelSet, "clusterset.multicluster.x-k8s.io"} {
			if is.Labels[label] != ns {
				t.Errorf("namespace %s: label %s is %q", ns, label, is.Labels[label])
			}
		}
	}
	// The name is the id, so a second claim is none: what step 3 of the README creates is there already.
	m := e.join(t, home, "p1")
	m.isMember(t)
	var list inventoryv1alpha1.ClusterProfileList
	must(t, e.admin.List(ctx, &list, client.InNamespace(home)))
	if len(list.Items) != 1 || list.Items[0].Name != "p1" {
		t.Errorf("profiles: %+v", list.Items)
	}
	second := m.profile(t)
	second.ResourceVersion, second.UID = "", ""
	if err := e.admin.Create(ctx, second); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a second claim: %v", err)
	}
	must(t, until(ctx, func() error { // the cache follows
		if got := e.running(home).
			shows(t, `clusterset_hub_members{clusterset="clusterset",state="healthy"} `); got != "1" {
			return fmt.Errorf("the metric shows %s healthy members", got)
		}
		return nil
	}))
}

func TestP2MarksAreKeptAndOthersProfilesLeftAlone(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	bare := &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "bare"}}
	bare.Spec.DisplayName = "the consumers' own"
	bare.Spec.ClusterManager.Name = clusterset.ClusterManager
	foreign := bare.DeepCopy()
	foreign.Name, foreign.Spec.ClusterManager.Name = "foreign", "another-manager"
	must(t, e.admin.Create(ctx, foreign))
	must(t, e.admin.Create(ctx, bare))
	t.Cleanup(func() { e.evict(t, home, "bare"); e.evict(t, home, "foreign") })
	m := &member{e: e, ns: home, id: "bare"}
	p := m.becomes(t, "Joined=False/NotClaimed", "ControlPlaneHealthy=Unknown/HeartbeatPending")
	if p.Labels[inventoryv1alpha1.LabelClusterManager] != clusterset.ClusterManager || len(p.Finalizers) != 1 ||
		p.Finalizers[0] != clusterset.FinalizerRecords {
		t.Errorf("it bears labels %v and finalizers %v", p.Labels, p.Finalizers)
	}
	if p.Spec.DisplayName != "the consumers' own" {
		t.Errorf("displayName is %q", p.Spec.DisplayName)
	}
	var untouched inventoryv1alpha1.ClusterProfile // it came first, and the program has been past it
	must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(foreign), &untouched))
	if untouched.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("another manager's profile became %+v", untouched)
	}
}

func TestP3ConditionsFollowTheMember(t *testing.T) {
	t.Parallel()
	e := setUp(t)
	m := e.join(t, home, "p3")
	m.becomes(t, "Joined=False/NotClaimed", "ControlPlaneHealthy=Unknown/HeartbeatPending")
	m.claim(t)
	m.becomes(t, "Joined=False/HeartbeatPending", "ControlPlaneHealthy=Unknown/HeartbeatPending")
	m.beat(t, time.Now)
	m.becomes(t, "Joined=True/Member", "ControlPlaneHealthy=True/Heartbeat")
	must(t, until(t.Context(), func() error {
		was := m.profile(t)
		p := was.DeepCopy()
		p.Status.Version.Kubernetes = "v1.36.2"
		p.Status.Properties = []inventoryv1alpha1.Property{
			{Name: clusterset.PropertyID, Value: "p3"},
			{Name: "region", Value: "eu"},
		}
		return m.Status().Patch(t.Context(), p, kube.Changes(was))
	}))
	m.stop()
	var lease coordinationv1.Lease
	must(t, m.Get(t.Context(), client.ObjectKey{Namespace: home, Name: m.id}, &lease))
	p := m.becomes(t, "Joined=True/Member", "ControlPlaneHealthy=Unknown/HeartbeatLost")
	if took := time.Since(lease.Spec.RenewTime.Time); took < silence {
		t.Errorf("called silent %v after its last renewal, and the Lease lasts %v", took, silence)
	}
	if p.Status.Version.Kubernetes != "v1.36.2" || len(p.Status.Properties) != 2 {
		t.Errorf("the member's part became %+v", p.Status)
	}
	m.beat(t, time.Now)
	m.becomes(t, "Joined=True/Member", "ControlPlaneHealthy=True/Heartbeat")
}

// A member's clock may say anything, as long as it goes on.
func TestP3MembersClocksDoNotMatter(t *testing.T) {
	t.Parallel()
	e := setUp(t)
	for id, off := range map[string]time.Duration{"p3-yesterday": -24 * time.Hour, "p3-tomorrow": 24 * time.Hour} {
		m := e.join(t, home, id)
		m.claim(t)
		m.beat(t, func() time.Time { return time.Now().Add(off) })
		m.becomes(t, "Joined=True/Member", "ControlPlaneHealthy=True/Heartbeat")
		m.stop()
		m.becomes(t, "ControlPlaneHealthy=Unknown/HeartbeatLost")
	}
}

// P3, P5: neither a restart of the program nor renewals write anything of a member that goes on as before, alive or
// silent.
func TestP5RestartWritesNothing(t *testing.T) {
	t.Parallel()
	e := setUp(t)
	alive, dead := e.join(t, home, "p5-alive"), e.join(t, home, "p5-dead")
	alive.isMember(t)
	dead.isMember(t)
	dead.stop()
	before := map[*member]*inventoryv1alpha1.ClusterProfile{
		dead:  dead.becomes(t, "ControlPlaneHealthy=Unknown/HeartbeatLost"),
		alive: alive.becomes(t, "ControlPlaneHealthy=True/Heartbeat"),
	}
	hub := e.running(home)
	hub.Kill()
	must(t, hub.again(t.Context()))
	// Written later than all that a start could have led to: another member is called silent by the restarted
	// program's own clock.
	last := e.join(t, home, "p5-last")
	last.isMember(t)
	last.stop()
	last.becomes(t, "ControlPlaneHealthy=Unknown/HeartbeatLost")
	for m, was := range before {
		is := m.profile(t)
		late := m == alive && healthSince(is).After(healthSince(was)) // a renewal was
		if is.ResourceVersion != was.ResourceVersion && !late {
			t.Errorf("%s was written: from %+v\nto %+v", m.id, was.Status, is.Status)
		}
	}
}

// healthSince is when the condition ControlPlaneHealthy has last changed.
func healthSince(p *inventoryv1alpha1.ClusterProfile) time.Time {
	return meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy).
		LastTransitionTime.Time
}

func TestP4AccessProvidersAreTheAdmins(t *testing.T) {
	e := setUp(t)
	m := e.join(t, home, "p4")
	providers := []inventoryv1alpha1.AccessProvider{
		{
			Name:    "oidc",
			Cluster: clientcmdv1.Cluster{Server: "https://p4.example", CertificateAuthorityData: []byte("pem")},
		},
	}
	must(t, until(t.Context(), func() error {
		p := m.profile(t)
		p.Status.AccessProviders = providers
		return e.admin.Status().Update(t.Context(), p)
	}))
	p := m.isMember(t)
	if !equality.Semantic.DeepEqual(p.Status.AccessProviders, providers) {
		t.Errorf("they became %+v", p.Status.AccessProviders)
	}
}

// P6: the same id in two clustersets of one hub is two members.
func TestP6ClusterSetsDoNotSeeEachOther(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	here, there := e.join(t, home, "p6"), e.join(t, blue, "p6")
	here.isMember(t)
	here.publish(t, 2)
	there.claim(t)
	there.becomes(t, "Joined=False/HeartbeatPending") // whoever is heard of elsewhere
	there.beat(t, time.Now)
	there.publish(t, 2)
	there.becomes(t, "Joined=True/Member", "ControlPlaneHealthy=True/Heartbeat")

	// but for its own heartbeat, which may be late
	profile := func() *inventoryv1alpha1.ClusterProfile {
		p := here.profile(t)
		meta.RemoveStatusCondition(&p.Status.Conditions, inventoryv1alpha1.ConditionControlPlaneHealthy)
		p.ResourceVersion, p.ManagedFields = "", nil
		return p
	}
	was := profile()
	there.stop()
	e.evict(t, blue, "p6")
	e.gone(t, blue, "p6")
	if is := profile(); !equality.Semantic.DeepEqual(is, was) {
		t.Errorf("its namesake's eviction changed %+v\nto %+v", was, is)
	}
	if n := len(e.records(t, home, "p6")); n != 4 {
		t.Errorf("%d of its 4 records are left", n)
	}
	if len(e.departed(t, home)["p6"]) != 0 {
		t.Error("its namesake's departure is noted in its own ClusterSet")
	}
	var none inventoryv1alpha1.ClusterProfileList
	if err := here.List(ctx, &none, client.InNamespace(blue)); err == nil {
		t.Error("a member lists another clusterset's profiles")
	}
	if err := here.List(ctx, &none); err == nil {
		t.Error("a member lists every clusterset's profiles")
	}
	if n := strings.Count(e.running(home).Log(), blue); n != 0 {
		t.Errorf("the program of %s names the other clusterset %d times", home, n)
	}
}

// The program has the rights that its manifests give, and no others; what it does it did in these tests.
func TestProgramHasTheRightsThatItNeedsAndNoOthers(t *testing.T) {
	e, ctx := setUp(t), t.Context()
	const everywhere = ""
	for ns, want := range map[string]string{
		home: `clusterprofiles.multicluster.x-k8s.io [list watch patch delete]
clusterprofiles.multicluster.x-k8s.io/status [patch]
clustersets.hub.clusterset-dns.io [list watch]
clustersets.hub.clusterset-dns.io/status [patch]
endpointpages.hub.clusterset-dns.io [list delete]
events.events.k8s.io [create patch]
leases.coordination.k8s.io [get list watch delete]
localsubjectaccessreviews.authorization.k8s.io [create]
rolebindings.rbac.authorization.k8s.io [get delete]
roles.rbac.authorization.k8s.io [get delete]
serviceaccounts [get delete]
serviceexportrecords.hub.clusterset-dns.io [list delete]`,
		"clusterset-system": "leases.coordination.k8s.io [get create update]",
		"default":           everywhere,
	} {
		rights, err := e.cp.Rights(ctx, ns, "system:serviceaccount:clusterset-system:clusterset-hub")
		must(t, err)
		if got := strings.Join(rights, "\n"); got != want {
			t.Errorf("in %s it may\n%s\nwant\n%s", ns, got, want)
		}
	}
}
