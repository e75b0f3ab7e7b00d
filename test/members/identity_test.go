package members

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// throughout looks at the endpoints of a name until the function that it returns is called, which tells when and
// why they were not right.
func (m *member) throughout(t *testing.T, ns, name string, wrong func(got map[string]bool) bool) func() []string {
	return watch(t, func(ctx context.Context) (string, error) {
		got, err := m.endpoints(ctx, ns, name)
		if err != nil || !wrong(got) {
			return "", err
		}
		return fmt.Sprint(got), nil
	})
}

// watch looks until the function that it returns is called, at least ten times. That one gives what was wrong, and
// when.
func watch(t *testing.T, look func(context.Context) (wrong string, err error)) func() []string {
	ctx, end := context.WithCancel(t.Context())
	var bad []string
	var looks atomic.Int32
	var failed error
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			switch wrong, err := look(ctx); {
			case ctx.Err() != nil:
			case err != nil:
				failed = err
			default:
				looks.Add(1)
				if wrong != "" {
					bad = append(bad, time.Now().Format("15:04:05.000 ")+wrong)
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return func() []string {
		for deadline := time.Now().Add(limit); looks.Load() < 10 && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		end()
		watching.Wait()
		if n := looks.Load(); n < 10 {
			bad = append(bad, fmt.Sprintf("only %d looks; the last error: %v", n, failed))
		}
		return bad
	}
}

// keeps has the member have exactly these endpoints of a name until the function that it returns is called, which fails
// for all else that was seen.
func (m *member) keeps(t *testing.T, ns, name string, want ...string) (until func()) {
	t.Helper()
	stop := m.throughout(t, ns, name, func(got map[string]bool) bool {
		return len(got) != len(want) || slices.ContainsFunc(want, func(w string) bool { return !got[w] })
	})
	return func() {
		t.Helper()
		if bad := stop(); len(bad) > 0 {
			t.Errorf("%s: %d times other endpoints of %s than %v: %s", m.ID, len(bad), name, want, bad[0])
		}
	}
}

// clone is another cluster that is r as it is now, but for one thing: it serves web from elsewhere.
func (j *joining) clone(t *testing.T, ns string) *member {
	t.Helper()
	snapshot, err := j.r.Cluster.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var backed, lease coordinationv1.Lease // a backup that is put to use is older than a renewal
	name := client.ObjectKey{Namespace: lab.HubNamespace, Name: "r"}
	if err := j.hub.Get(t.Context(), name, &backed); err != nil {
		t.Fatal(err)
	}
	clone := &member{&lab.Member{ID: "clone", Cluster: lab.Run(t, lab.Options{})}, nil}
	eventually(t, "r renews its Lease", func() error {
		err := j.hub.Get(t.Context(), name, &lease)
		if err == nil && lease.ResourceVersion == backed.ResourceVersion {
			err = errors.New("it has not yet")
		}
		return err
	})
	if err := clone.Cluster.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if clone.Client, err = clone.Cluster.Client(agent.Scheme()); err != nil {
		t.Fatal(err)
	}
	svc := service(ns, "web")
	if err := clone.Delete(t.Context(), slice(svc, "web-1")); err != nil {
		t.Fatal(err)
	}
	clone.create(t, slice(svc, "web-2", "10.9.9.9"))
	return clone
}

// leaves says that the cluster is to.
func (m *member) leaves(t *testing.T, how string) {
	t.Helper()
	change(
		t,
		m,
		&aboutv1beta1.ClusterProperty{ObjectMeta: objectMeta(clusterset.PropertySet)},
		func(p *aboutv1beta1.ClusterProperty) {
			p.Annotations = map[string]string{clusterset.AnnotationLeaving: how}
		},
	)
}

// TestAClone: a cluster with the same UID and the same credentials, and other endpoints. The clone publishes
// nothing and says so, also after the original's agent was restarted. At no moment do the endpoints of the original
// go elsewhere, or those of the clone appear.
func TestAClone(t *testing.T) {
	t.Parallel()
	j := joiningSet(t)
	p, r := j.members["p"], j.r
	ns := j.namespace(t, "p")
	r.create(t, &corev1.Namespace{ObjectMeta: objectMeta(ns)})
	j.claim(t, "r")
	r.Agent = j.agent(t, "r", "r", lab.HubNamespace)
	if err := r.Agent.UntilReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.exported(t, service(ns, "web"), "10.3.0.1")
	p.wantEndpoints(t, ns, "web", "r/http/10.3.0.1:8080")

	clone := j.clone(t, ns)
	wrong := p.throughout(
		t,
		ns,
		"web",
		func(got map[string]bool) bool { return !got["r/http/10.3.0.1:8080"] || got["r/http/10.9.9.9:8080"] },
	)
	local, err := clone.Cluster.ServiceAccountKubeconfig(
		t.Context(),
		"clusterset-system",
		"clusterset-controller",
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := j.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, "mcs-r", nil)
	if err != nil {
		t.Fatal(err)
	}
	j.agentWith(t, local, hub, "r", lab.HubNamespace)
	clone.wantMembership(t, "Admitted", metav1.ConditionFalse, "Cloned")
	svc := service(ns, "web")
	r.create(t, slice(svc, "web-3", "10.3.0.3"))
	both := []string{"r/http/10.3.0.1:8080", "r/http/10.3.0.3:8080"}
	p.wantEndpoints(t, ns, "web", both...)

	r.Agent.Kill() // who starts again is not the later one for that
	if err := r.Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.create(t, slice(svc, "web-4", "10.3.0.4"))
	p.wantEndpoints(t, ns, "web", append(both, "r/http/10.3.0.4:8080")...)
	clone.leaves(t, "true")
	time.Sleep(25 * time.Second) // nothing to wait for: nothing may happen
	if clone.property(t, clusterset.PropertySet) == nil {
		t.Error("the clone left, though r renews their Lease")
	}
	clone.leaves(t, clusterset.LeavingForced)
	eventually(t, "the clone's membership ends", func() error {
		if got := clone.property(t, clusterset.PropertySet); got != nil {
			return fmt.Errorf("%+v", got.ObjectMeta)
		}
		return nil
	})
	profile := &inventoryv1alpha1.ClusterProfile{}
	if err := j.hub.Get(
		t.Context(),
		client.ObjectKey{Namespace: lab.HubNamespace, Name: "r"},
		profile,
	); err != nil ||
		profile.Annotations[clusterset.AnnotationLeft] != "" {
		t.Errorf("the clone took r out: %v, %v", err, profile.Annotations)
	}
	r.create(t, slice(svc, "web-5", "10.3.0.5"))
	p.wantEndpoints(t, ns, "web", append(both, "r/http/10.3.0.4:8080", "r/http/10.3.0.5:8080")...)
	if bad := wrong(); len(bad) > 0 {
		t.Errorf("p saw another set %d times: %v", len(bad), bad[:min(len(bad), 5)])
	}
}

// TestAMemberThatTheHubRefusesSaysSo: by an Event and by Ready of its exports, until the hub takes its word again;
// imports stay.
func TestAMemberThatTheHubRefusesSaysSo(t *testing.T) {
	t.Parallel()
	j := joiningSet(t)
	p, r := j.members["p"], j.r
	ns := j.namespace(t, "p")
	r.create(t, &corev1.Namespace{ObjectMeta: objectMeta(ns)})
	p.exported(t, service(ns, "web"), "10.1.0.1")
	j.claim(t, "r")
	r.Agent = j.agent(t, "r", "r", lab.HubNamespace)
	r.exported(t, service(ns, "mine"), "10.3.0.1")
	r.wantCondition(t, ns, "mine", exported, "True", "Exported")
	r.wantImport(t, ns, "web", ready("p"))

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: "mcs-r"}}
	if err := j.hub.Delete(t.Context(), account); err != nil { // its tokens are none from now on
		t.Fatal(err)
	}
	time.Sleep(30 * time.Second) // not at once: an API server that starts refuses, too
	r.wantCondition(t, ns, "mine", exported, "True", "Exported")
	time.Sleep(30 * time.Second)
	c := r.wantCondition(
		t,
		ns,
		"mine",
		exported,
		metav1.ConditionUnknown,
		string(mcsv1beta1.ServiceExportReasonPending),
	)
	if !strings.Contains(c.Message, "join --renew") {
		t.Errorf("it does not say what to do: %s", c.Message)
	}
	r.wantEvent(t, "clusterset-system", "clusterset-system", "CredentialsRefused")
	r.wantImport(t, ns, "web", ready("p"))

	r.Agent.Kill()
	j.claim(t, "r")
	r.Agent = j.agent(t, "r", "r", lab.HubNamespace)
	r.wantCondition(t, ns, "mine", exported, "True", "Exported")
}

// TestForcedLeavingSticks: where the hub is away, a cluster can leave without it, and does not come back by itself
// when it can see the
// hub again; the hub's admin evicts it there.
func TestForcedLeavingSticks(t *testing.T) {
	t.Parallel()
	j := joiningSet(t)
	p, r := j.members["p"], j.r
	ns := j.namespace(t, "p")
	r.create(t, &corev1.Namespace{ObjectMeta: objectMeta(ns)})
	p.exported(t, service(ns, "web"), "10.1.0.1")
	j.claim(t, "r")
	r.Agent = j.agent(t, "r", "r", lab.HubNamespace)
	r.wantImport(t, ns, "web", ready("p"))
	j.Hub.KillAPIServer()
	r.leaves(t, clusterset.LeavingForced)
	r.wantNoImport(t, ns, "web")
	eventually(t, "the membership ends", func() error {
		if got := r.property(t, clusterset.PropertySet); got != nil {
			return fmt.Errorf("%+v", got.ObjectMeta)
		}
		return nil
	})
	if err := j.Hub.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(100 * time.Millisecond) {
		if got := r.property(t, clusterset.PropertySet); got != nil {
			t.Fatalf("a member again: %+v", got)
		}
	}
}
