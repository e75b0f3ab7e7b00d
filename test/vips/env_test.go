// Package vips proves the rules V of docs/spec/SPEC.md on real control planes: a hub and one member, dual-stack, whose
// agent runs with its own ServiceAccounts and the manifests of deploy/. The blocks are granted by the test, as hub
// admin. Tests run one after the other, each
// in a namespace and in blocks of its own: the mode is the clusterset's.
package vips

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// limit is far more than anything takes: machines are shared.
const limit = 4 * time.Minute

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients
	code := m.Run()
	if shared.env != nil {
		if second.env != nil {
			second.env.Agent.Stop()
		}
		shared.env.set.Stop()
	}
	os.Exit(code)
}

var shared struct {
	sync.Once
	env *env
	err error
}

// env is the clusterset, and an admin's client on each cluster.
type env struct {
	set *lab.ClusterSet
	*lab.Member
	hub client.Client
	client.Client
	asAgent    client.Client
	namespaces []*corev1.Namespace // of the test before
}

const (
	serviceRanges = "10.96.0.0/16,fd00:96::/112"
	smallRange    = "10.99.0.0/28"
)

var second struct {
	sync.Once
	env *env
	err error
}

// small is the hub's cluster as another member, h, of IPv4 and few addresses.
func (e *env) small(t *testing.T) *env {
	t.Helper()
	second.Do(func() {
		second.env = &env{set: e.set, hub: e.hub, Client: e.hub, Member: &lab.Member{ID: "h", Cluster: e.set.Hub}}
		second.env.asAgent, second.err = connect(
			e.set.Hub,
			"system:serviceaccount:clusterset-system:clusterset-controller",
		)
		if second.err == nil {
			second.err = second.env.join(context.Background())
		}
	})
	if second.err != nil {
		t.Fatal(second.err)
	}
	second.env.tellOf(t)
	second.env.clean(t)
	return second.env
}

func (e *env) join(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	if err := errors.Join(
		e.Cluster.Apply(ctx, lab.HubMember(root, e.ID)),
		e.Cluster.ApplyFolder(ctx, filepath.Join(root, "deploy/member")),
	); err != nil {
		return err
	}
	hub, err := e.Cluster.ServiceAccountKubeconfig(ctx, lab.HubNamespace, "mcs-"+e.ID, nil)
	if err != nil {
		return err
	}
	local, err := e.Cluster.ServiceAccountKubeconfig(ctx, kube.SystemNamespace, "clusterset-controller", nil)
	if err != nil {
		return err
	}
	e.Agent, err = lab.StartAgent(ctx, filepath.Join(root, "bin", "clusterset-controller"), lab.AgentOptions{
		Kubeconfig: local, HubKubeconfig: hub, HubNamespace: lab.HubNamespace, ClusterID: e.ID,
	})
	if err != nil {
		return err
	}
	return e.Agent.UntilReady(ctx)
}

// start is the clusterset that all tests share.
func start(t *testing.T) *env {
	t.Helper()
	shared.Do(func() {
		set, err := lab.StartClusterSet(
			context.Background(),
			lab.ClusterSetOptions{Members: []string{"a"}, Plane: func(name string) lab.Options {
				if name == "a" {
					return lab.Options{ServiceCIDR: serviceRanges, Audit: true, AuditServices: true}
				}
				return lab.Options{ServiceCIDR: smallRange}
			}},
		)
		if err != nil {
			shared.err = err
			return
		}
		e := &env{set: set, Member: set.Members[0]}
		shared.env = e
		e.hub, shared.err = admin(set.Hub)
		if shared.err == nil {
			e.Client, shared.err = admin(e.Cluster)
		}
		if shared.err == nil {
			e.asAgent, shared.err = connect(e.Cluster, "system:serviceaccount:clusterset-system:clusterset-controller")
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	shared.env.tellOf(t)
	shared.env.clean(t)
	return shared.env
}

// tellOf shows what the agent said, if the test fails.
func (e *env) tellOf(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			said := strings.Split(e.Agent.Log(), "\n")
			t.Logf("agent %s:\n%s", e.ID, strings.Join(said[max(0, len(said)-40):], "\n"))
		}
	})
}

func admin(cp *lab.ControlPlane) (client.Client, error) { return connect(cp, "") }

// connect is an admin's client, who acts as somebody else where there is a name.
func connect(cp *lab.ControlPlane, as string) (client.Client, error) {
	cfg, err := cp.RESTConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Impersonate = -1, rest.ImpersonationConfig{UserName: as}
	return client.New(cfg, client.Options{Scheme: agent.Scheme()})
}

// eventually asks until there is no error.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	began := time.Now()
	if err := lab.Until(t.Context(), limit, what, ask); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Logf("%s: %s", took.Round(100*time.Millisecond), what)
	}
}

// mode sets the clusterset's, and the blocks that this member owns.
func (e *env) mode(t *testing.T, mode ipam.Mode, blocks ...string) {
	t.Helper()
	set := &hubv1alpha1.ClusterSet{}
	set.Namespace, set.Name = lab.HubNamespace, lab.HubNamespace
	eventually(t, "the ClusterSet", func() error {
		if err := e.hub.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		// first: else an agent may see the new mode with the old blocks, and make ranges of them
		set.Status.Blocks = nil
		if err := e.hub.Status().Update(t.Context(), set); err != nil {
			return err
		}
		set.Spec.VIPs.Mode, set.Spec.VIPs.Pools = hubv1alpha1.VIPMode(mode), blocks
		if err := e.hub.Update(t.Context(), set); err != nil {
			return err
		}
		for _, b := range blocks {
			set.Status.Blocks = append(set.Status.Blocks, hubv1alpha1.Block{ClusterID: e.ID, CIDR: b})
		}
		return e.hub.Status().Update(t.Context(), set)
	})
	e.wantMetric(t, e.series("mode_supported", "mode", string(mode)), nil)
}

// clean takes down what the test before has made: its Services, and with them its VIPs and their ranges. That
// Kubernetes waits ten seconds before it lets a ServiceCIDR go is nobody's concern: it gives out nothing meanwhile, but
// where two are of one prefix (its allocator counts them).
func (e *env) clean(t *testing.T) {
	t.Helper()
	e.mode(t, ipam.ModeShared)
	for _, ns := range e.namespaces {
		e.empty(t, ns.Name)
		if err := e.Delete(t.Context(), ns); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	e.namespaces = nil
	eventually(t, "no range left of the test before", func() error {
		var list networkingv1.ServiceCIDRList
		if err := e.List(t.Context(), &list, client.HasLabels{ipam.LabelVIPs}); err != nil {
			return err
		}
		ending := map[string]bool{}
		for i := range list.Items {
			c := &list.Items[i]
			if c.DeletionTimestamp != nil {
				for _, prefix := range c.Spec.CIDRs {
					if ending[prefix] {
						return fmt.Errorf("ServiceCIDR %s still gives out addresses of %s", c.Name, prefix)
					}
					ending[prefix] = true
				}
				continue
			}
			if c.Labels[derived.LabelManagedBy] == kube.Manager {
				return fmt.Errorf("ServiceCIDR %s", c.Name)
			}
			if err := e.Delete(t.Context(), c); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}

// empty takes the Services of a namespace down, without the wait in which it would keep their VIPs.
func (e *env) empty(t *testing.T, ns string) {
	t.Helper()
	var exports mcsv1beta1.ServiceExportList
	var services corev1.ServiceList
	var imports mcsv1beta1.ServiceImportList
	if err := e.List(t.Context(), &exports, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for i := range exports.Items {
		if err := e.Delete(t.Context(), &exports.Items[i]); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "no import left in "+ns, func() error {
		err := e.List(t.Context(), &imports, client.InNamespace(ns))
		if err == nil && len(imports.Items) > 0 {
			err = fmt.Errorf("%d", len(imports.Items))
		}
		return err
	})
	if err := e.List(t.Context(), &services, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	var deletions errgroup.Group
	deletions.SetLimit(8)
	for i := range services.Items {
		svc, owner := &services.Items[i], e.Client
		if svc.Labels[derived.LabelManagedBy] == kube.Manager { // nobody else may
			owner = e.asAgent
		}
		deletions.Go(func() error { return client.IgnoreNotFound(owner.Delete(t.Context(), svc)) })
	}
	if err := deletions.Wait(); err != nil {
		t.Fatal(err)
	}
}

// series is one of the agent's metrics of VIPs.
func (e *env) series(name string, labels ...string) string {
	text := fmt.Sprintf("clusterset_agent_vip_%s{cluster=%q,clusterset=%q", name, e.ID, lab.HubNamespace)
	for i := 0; i < len(labels); i += 2 {
		text += fmt.Sprintf(",%s=%q", labels[i], labels[i+1])
	}
	return text + "}"
}

// metric is a series' value now.
func (e *env) metric(t *testing.T, series string) (value int) {
	t.Helper()
	e.wantMetric(t, series, func(text string) bool {
		n, err := strconv.Atoi(text)
		value = n
		return err == nil
	})
	return value
}

// wantMetric waits until the agent shows a series with a value that will do.
func (e *env) wantMetric(t *testing.T, series string, will func(value string) bool) {
	t.Helper()
	eventually(t, "metric "+series, func() error {
		for line := range strings.SplitSeq(e.Agent.Metrics(), "\n") {
			if value, found := strings.CutPrefix(line, series+" "); found && (will == nil || will(value)) {
				return nil
			} else if found {
				return errors.New(line)
			}
		}
		return errors.New("it is not there")
	})
}

func is(want string) func(string) bool { return func(value string) bool { return value == want } }

// cidr is a ServiceCIDR as a user labels it.
func cidr(name, use string, prefixes ...string) *networkingv1.ServiceCIDR {
	c := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{ipam.LabelVIPs: use}},
	}
	c.Spec.CIDRs = prefixes
	return c
}

// ours are the ServiceCIDRs that the agent made and keeps, by prefix.
func (e *env) ours(t *testing.T) map[string]*networkingv1.ServiceCIDR {
	t.Helper()
	var list networkingv1.ServiceCIDRList
	if err := e.List(t.Context(), &list, client.MatchingLabels{derived.LabelManagedBy: kube.Manager}); err != nil {
		t.Fatal(err)
	}
	out := map[string]*networkingv1.ServiceCIDR{}
	for i := range list.Items {
		for _, p := range list.Items[i].Spec.CIDRs {
			if list.Items[i].DeletionTimestamp == nil {
				out[p] = &list.Items[i]
			}
		}
	}
	return out
}

// wantEvent waits until there is one about an object of this name whose message holds this.
func (e *env) wantEvent(t *testing.T, ns, name, reason, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("Event %s about %s/%s", reason, ns, name), func() error {
		var events corev1.EventList
		if err := e.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
			return err
		}
		var seen []string
		for _, one := range events.Items {
			if one.InvolvedObject.Name == name && one.Reason == reason && strings.Contains(one.Message, text) {
				return nil
			}
			seen = append(seen, one.InvolvedObject.Name+" "+one.Reason+": "+one.Message)
		}
		return fmt.Errorf("only %s", strings.Join(seen, "\n"))
	})
}
