// Package policies tests what the API server refuses by the manifests of deploy/ (DESIGN §2, §5, §6; SPEC I7):
// CRD schemas, RBAC and admission policies, on a real control plane, with the tokens of real ServiceAccounts. One
// control plane is hub and member at once,
// which the manifests must stand.
package policies

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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// The namespaces of two clustersets on one hub, and the agent's in a member.
const (
	home   = "clusterset"
	other  = "blue"
	system = "clusterset-system"
)

// limit is far more than anything here takes, since machines are shared.
const limit = 4 * time.Minute

// environment is a control plane with deploy/hub, two clustersets and deploy/member.
type environment struct {
	cp    *lab.ControlPlane
	admin client.Client
	agent client.Client // the member's own ServiceAccount
	// members have what deploy/hub/member gives; IDs are chosen so that one is another's beginning or end.
	members map[string]client.Client
	// mighty members were given every right in both clustersets by mistake: what is refused to them, the policies
	// refuse.
	mighty  map[string]client.Client
	changes int // of the namespace rules
}

var (
	memberIDs = []string{"a", "b", "x.b"}
	mightyIDs = []string{"m", "n", "x.n"}
)

var shared struct {
	sync.Once
	env *environment
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.env != nil {
		shared.env.cp.Stop()
	}
	os.Exit(code)
}

// setUp returns the environment, which all tests share.
func setUp(t *testing.T) *environment {
	t.Helper()
	shared.Do(func() {
		env, err := newEnvironment(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		shared.env = env
	})
	if shared.env == nil {
		t.Fatal("the control plane was not set up: see the first test that uses it")
	}
	return shared.env
}

func newEnvironment(ctx context.Context) (_ *environment, err error) {
	e := &environment{members: map[string]client.Client{}, mighty: map[string]client.Client{}}
	if e.cp, err = lab.Start(ctx, lab.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			e.cp.Stop()
		}
	}()
	if err := e.apply(ctx); err != nil {
		return nil, err
	}
	if e.admin, err = connect(e.cp.Kubeconfig()); err != nil {
		return nil, err
	}
	if e.agent, err = e.connectAs(ctx, system, "clusterset-controller"); err != nil {
		return nil, err
	}
	for _, id := range memberIDs {
		if e.members[id], err = e.connectAs(ctx, home, "mcs-"+id); err != nil {
			return nil, err
		}
	}
	for _, id := range mightyIDs {
		if e.mighty[id], err = e.connectAs(ctx, home, "mcs-"+id); err != nil {
			return nil, err
		}
	}
	return e, e.untilRefusing(ctx)
}

// apply does what the READMEs of deploy/hub and deploy/member tell.
func (e *environment) apply(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	kustomize := func(folder string) string {
		out, failed := e.cp.Kubectl(ctx, "", "kustomize", filepath.Join(root, folder))
		err = errors.Join(err, failed)
		return out
	}
	blue := strings.ReplaceAll(kustomize("deploy/hub/clusterset"), " "+home+"\n", " "+other+"\n")
	if err != nil {
		return err
	}
	err = errors.Join(
		e.cp.ApplyFolder(ctx, filepath.Join(root, "deploy/hub")),
		e.cp.ApplyFolder(ctx, filepath.Join(root, "deploy/hub/clusterset")),
		e.cp.ApplyFolder(ctx, filepath.Join(root, "deploy/member")),
		e.cp.Apply(ctx, blue),
	)
	for _, id := range append(memberIDs, mightyIDs...) {
		err = errors.Join(err, e.cp.Apply(ctx, lab.HubMember(root, id)))
	}
	for _, id := range mightyIDs {
		err = errors.Join(err, e.cp.Apply(ctx, everyRight(home, id)), e.cp.Apply(ctx, everyRight(other, id)))
	}
	return err
}

func everyRight(namespace, id string) string {
	return fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: mcs-%[2]s-everything, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: mcs-%[2]s, namespace: %[3]s}]
`, namespace, id, home)
}

func (e *environment) connectAs(ctx context.Context, namespace, account string) (client.Client, error) {
	kubeconfig, err := e.cp.ServiceAccountKubeconfig(ctx, namespace, account, nil)
	if err != nil {
		return nil, err
	}
	return connect(kubeconfig)
}

func connect(kubeconfig string) (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, hubv1alpha1.AddToScheme,
		aboutv1beta1.AddToScheme, inventoryv1alpha1.AddToScheme, mcsv1beta1.Install} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return client.New(config, client.Options{Scheme: s})
}

// untilRefusing waits until the API server goes by every policy: it takes them up some time after they were
// written. Each is asked with
// a dry run of what it alone refuses.
func (e *environment) untilRefusing(ctx context.Context) error {
	m := e.mighty["m"]
	record := exportRecord("n", "waiting")
	ofM := exportRecord("m", "waiting")
	service := derivedService("default", "derived-0000000000")
	if err := errors.Join(e.admin.Create(ctx, ofM), e.admin.Create(ctx, service)); err != nil {
		return err
	}
	attempts := map[string]func() error{
		"records": func() error { return m.Create(ctx, record.DeepCopy(), client.DryRunAll) },
		"record status": func() error {
			return m.Status().
				Patch(ctx, ofM.DeepCopy(), client.RawPatch(client.Merge.Type(), []byte(`{"status":{}}`)),
					client.DryRunAll)
		},
		"leases":           func() error { return m.Create(ctx, lease(home, "n"), client.DryRunAll) },
		"tokens":           func() error { return requestToken(ctx, m, home, "mcs-n", 3600) },
		"ClusterProfiles":  func() error { return m.Create(ctx, profile("another"), client.DryRunAll) },
		"derived Services": func() error { return e.admin.Delete(ctx, service.DeepCopy(), client.DryRunAll) },
		"namespaces": func() error {
			r := exportRecord("m", "waiting")
			r.Name, r.Spec.ServiceNamespace = "waiting.kube-system.m", "kube-system"
			return m.Create(ctx, r, client.DryRunAll)
		},
		"the agent": func() error {
			return e.agent.Create(ctx, sliceFor("default", "waiting", "waiting", ""), client.DryRunAll)
		},
	}
	for name, attempt := range attempts {
		if err := until(ctx, func() error {
			if err := attempt(); !apierrors.IsForbidden(err) {
				return fmt.Errorf("the policy on %s does not hold: got %v", name, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if err := e.untilIdentityHolds(ctx); err != nil {
		return err
	}
	return errors.Join(e.admin.Delete(ctx, ofM), e.agent.Delete(ctx, service))
}

// untilIdentityHolds makes the cluster a member and no member again.
func (e *environment) untilIdentityHolds(ctx context.Context) error {
	id, set := property(clusterset.PropertyID, "east"), property(clusterset.PropertySet, home)
	steps := []struct {
		name string
		try  func() error
		must bool // else it must be refused
	}{
		{
			"an id's format",
			func() error { return e.admin.Create(ctx, property(clusterset.PropertyID, "NO_ID"), client.DryRunAll) },
			false,
		},
		{
			"membership without an id",
			func() error { return e.admin.Create(ctx, set.DeepCopy(), client.DryRunAll) },
			false,
		},
		{"an id", func() error { return e.admin.Create(ctx, id) }, true},
		{"membership", func() error { return e.admin.Create(ctx, set) }, true},
		{"a member's id", func() error { return e.admin.Delete(ctx, id, client.DryRunAll) }, false},
		{"a member's membership", func() error { return e.admin.Delete(ctx, set, client.DryRunAll) }, false},
		{"leaving", func() error {
			set.Annotations = map[string]string{clusterset.AnnotationLeaving: "true"}
			return e.admin.Update(ctx, set)
		}, true},
		{"the end of membership", func() error { return e.admin.Delete(ctx, set) }, true},
		{"the end of the id", func() error { return e.admin.Delete(ctx, id) }, true},
		{
			"membership without an id again",
			func() error { return e.admin.Create(ctx, property(clusterset.PropertySet, home), client.DryRunAll) },
			false,
		},
	}
	for _, s := range steps {
		if err := until(ctx, func() error {
			if err := s.try(); (err == nil) != s.must {
				return fmt.Errorf("%s: got %v", s.name, err)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// until asks until the answer is nil.
func until(ctx context.Context, ask func() error) error { return lab.Until(ctx, limit, "waiting", ask) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused fails unless err is a refusal (403, or 422 by a schema) that says what.
func refused(t *testing.T, err error, what string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("was let through; must be refused with: %s", what)
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		t.Errorf("is no refusal: %v", err)
	case !strings.Contains(err.Error(), what):
		t.Errorf("refused with:\n%v\nwithout saying: %s", err, what)
	}
}

// namespace is a new one of the member's.
func namespace(t *testing.T, e *environment) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	must(t, e.admin.Create(t.Context(), ns))
	t.Cleanup(func() {
		if err := e.admin.Delete(context.WithoutCancel(t.Context()), ns); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	return ns.Name
}
