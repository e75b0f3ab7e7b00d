// Package inventory proves the rules P of docs/spec/SPEC.md, and what happens on the hub when a member departs
// (DESIGN §6), on a real control plane: two clustersets on one hub, set up with the manifests of deploy/hub, each
// with its own clusterset-controller hub, which runs with the ServiceAccount that is shipped, and members that do
// with their own tokens what an agent does. make builds the program.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// The namespaces of the two clustersets.
const (
	home = "clusterset"
	blue = "blue"
)

// limit is far more than anything here takes, since machines are shared.
const limit = 4 * time.Minute

// silence is the members' Lease duration here.
const silence = 8 * time.Second

// environment is a hub.
type environment struct {
	cp       *lab.ControlPlane
	root     string
	admin    client.Client
	mu       sync.Mutex
	programs map[string]*program // by namespace
}

var shared struct {
	sync.Once
	env *environment
	err error
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients
	code := m.Run()
	if shared.env != nil {
		shared.env.stop()
	}
	os.Exit(code)
}

// setUp returns the hub, which all tests share; each has members of its own.
func setUp(t *testing.T) *environment {
	t.Helper()
	shared.Do(func() { shared.env, shared.err = newEnvironment(context.WithoutCancel(t.Context())) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			shared.env.mu.Lock()
			defer shared.env.mu.Unlock()
			for _, p := range shared.env.programs {
				t.Logf("hub of %s:\n%s", p.namespace, p.Log())
			}
		}
	})
	return shared.env
}

func newEnvironment(ctx context.Context) (_ *environment, err error) {
	e := &environment{programs: map[string]*program{}}
	if e.root, err = lab.Root(); err != nil {
		return nil, err
	}
	if e.cp, err = lab.Start(ctx, lab.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.stop()
		}
	}()
	if e.admin, err = connect(e.cp.Kubeconfig()); err != nil {
		return nil, err
	}
	if err := e.cp.ApplyFolder(ctx, filepath.Join(e.root, "deploy/hub")); err != nil {
		return nil, err
	}
	for _, ns := range []string{home, blue} {
		if err := e.begin(ctx, ns); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// begin makes a clusterset, and runs its program.
func (e *environment) begin(ctx context.Context, ns string) error {
	if err := e.clusterSet(ctx, ns); err != nil {
		return err
	}
	p, err := e.run(ctx, ns)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.programs[ns] = p
	return nil
}

// running is the program of a clusterset.
func (e *environment) running(ns string) *program {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.programs[ns]
}

// end stops it.
func (e *environment) end(ns string) {
	e.running(ns).Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.programs, ns)
}

// clusterSet makes one, as README.md tells, with Leases that are short enough for a test.
func (e *environment) clusterSet(ctx context.Context, ns string) error {
	for _, folder := range []string{"deploy/hub/clusterset", "deploy/hub/controller"} {
		text, err := e.cp.Kubectl(ctx, "", "kustomize", filepath.Join(e.root, folder))
		if err != nil {
			return err
		}
		if err := e.cp.Apply(ctx, named(text, ns)); err != nil {
			return err
		}
	}
	_, err := e.cp.Kubectl(ctx, "", "-n", ns, "patch", "clusterset", ns, "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"lease":{"renewSeconds":2,"durationSeconds":%d}}}`, int(silence.Seconds())))
	return err
}

// named is what README.md has sed do.
func named(text, clusterSet string) string {
	for _, before := range []string{" ", "="} {
		text = strings.ReplaceAll(text, before+home+"\n", before+clusterSet+"\n")
	}
	for _, kind := range []string{"Deployment", "PodDisruptionBudget"} {
		before, after, found := strings.Cut(text, "kind: "+kind+"\n")
		if found && clusterSet != home {
			text = before + "kind: " + kind + "\n" +
				strings.Replace(after, "\n  name: clusterset-hub\n", "\n  name: clusterset-hub-"+clusterSet+"\n", 1)
		}
	}
	return text
}

func (e *environment) stop() {
	for _, p := range e.programs {
		p.Stop()
	}
	e.cp.Stop()
}

func connect(kubeconfig string) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, hubv1alpha1.AddToScheme,
		inventoryv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return client.New(config, client.Options{Scheme: s})
}

// member does on the hub what an agent does.
type member struct {
	e      *environment
	ns, id string
	client.Client
	stop func() // its heartbeat; nil before the first
}

// join makes a member that is evicted at the end of the test.
func (e *environment) join(t *testing.T, ns, id string) *member {
	t.Helper()
	m := e.newMember(t, ns, id)
	t.Cleanup(func() { e.evict(t, ns, id) })
	return m
}

// newMember does what README.md tells, and has the member's token.
func (e *environment) newMember(t *testing.T, ns, id string) *member {
	t.Helper()
	ctx := t.Context()
	must(t, e.cp.Apply(ctx, named(lab.HubMember(e.root, id), ns)))
	kubeconfig, err := e.cp.ServiceAccountKubeconfig(ctx, ns, clusterset.AccountPrefix+id, nil)
	must(t, err)
	c, err := connect(kubeconfig)
	must(t, err)
	return &member{e: e, ns: ns, id: id, Client: c}
}

// evict is all that it takes, and returns when the id is free.
func (e *environment) evict(t *testing.T, ns, id string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	profile := &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: id}}
	must(t, client.IgnoreNotFound(e.admin.Delete(ctx, profile)))
	must(t, until(ctx, func() error {
		err := e.admin.Get(ctx, client.ObjectKeyFromObject(profile), profile)
		if err == nil {
			return fmt.Errorf("ClusterProfile %s/%s is still there: %+v", ns, id, profile.ObjectMeta)
		}
		return client.IgnoreNotFound(err)
	}))
}

func (m *member) profile(t *testing.T) *inventoryv1alpha1.ClusterProfile {
	t.Helper()
	p := &inventoryv1alpha1.ClusterProfile{}
	must(t, m.e.admin.Get(t.Context(), client.ObjectKey{Namespace: m.ns, Name: m.id}, p))
	return p
}

// claim has this cluster use the claim.
func (m *member) claim(t *testing.T) {
	t.Helper()
	m.update(t, func(p *inventoryv1alpha1.ClusterProfile) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, clusterset.AnnotationClusterUID, "uid-of-"+m.id)
	})
}

// update changes its profile; the hub's program may be doing so as well.
func (m *member) update(t *testing.T, change func(*inventoryv1alpha1.ClusterProfile)) {
	t.Helper()
	must(t, until(t.Context(), func() error {
		was := m.profile(t)
		p := was.DeepCopy()
		change(p)
		return m.Patch(t.Context(), p, kube.Changes(was))
	}))
}

// beat renews its Lease until stop or the end of the test, by a clock that may be wrong.
func (m *member) beat(t *testing.T, clock func() time.Time) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.ns, Name: m.id}}
	renew := func(ctx context.Context) error {
		write := m.renewLease
		if err := m.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			write = func(ctx context.Context, l *coordinationv1.Lease) error { return m.Create(ctx, l) }
		}
		at := metav1.NewMicroTime(clock())
		lease.Spec.RenewTime = &at
		return write(ctx, lease)
	}
	must(t, renew(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
				_ = renew(ctx) // what an agent cannot renew it tries again
			}
		}
	}()
	m.stop = func() { cancel(); <-done }
	t.Cleanup(m.stop)
}

func (m *member) renewLease(ctx context.Context, l *coordinationv1.Lease) error {
	return m.Update(ctx, l)
}

// becomes waits until the conditions are as told, as type=status/reason.
func (m *member) becomes(t *testing.T, want ...string) *inventoryv1alpha1.ClusterProfile {
	t.Helper()
	var p *inventoryv1alpha1.ClusterProfile
	must(t, until(t.Context(), func() error {
		p = m.profile(t)
		var err error
		for _, w := range want {
			kind, rest, _ := strings.Cut(w, "=")
			is := "none"
			if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil {
				is = string(c.Status) + "/" + c.Reason
			}
			if is != rest {
				err = errors.Join(err, fmt.Errorf("%s: %s is %s, want %s", m.id, kind, is, rest))
			}
		}
		return err
	}))
	return p
}

// isMember has it joined and healthy.
func (m *member) isMember(t *testing.T) *inventoryv1alpha1.ClusterProfile {
	t.Helper()
	m.claim(t)
	m.beat(t, time.Now)
	return m.becomes(t, "Joined=True/Member", "ControlPlaneHealthy=True/Heartbeat")
}

// until asks until the answer is nil.
func until(ctx context.Context, ask func() error) error { return lab.Until(ctx, limit, "waiting", ask) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
