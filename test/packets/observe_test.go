package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// observers are the clusterset with its agents where they stand in a real one: on the network of their own
// cluster's node, so that what
// they do not reach is what the nftables rules there say.
type observers struct {
	*world
	hub client.Client
	ns  string
	ctx context.Context // outlives the test, for what is put back
}

// observe moves the agents for one test, and lets the ClusterSet have members probe what asks for it, once in two
// seconds.
func observe(t *testing.T) *observers {
	t.Helper()
	w, ns := clusters(t)
	o := &observers{world: w, ns: ns, ctx: context.WithoutCancel(t.Context())}
	config, err := w.set.Hub.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	if o.hub, err = client.New(config, client.Options{Scheme: agent.Scheme()}); err != nil {
		t.Fatal(err)
	}
	was := o.settings(t, func(*hubv1alpha1.ClusterSetSpec) {})
	t.Cleanup(func() { o.settings(t, func(s *hubv1alpha1.ClusterSetSpec) { *s = was }) })
	o.settings(t, func(s *hubv1alpha1.ClusterSetSpec) {
		s.Lease.RenewSeconds = 2
		s.Probe = &hubv1alpha1.ProbeSpec{Default: hubv1alpha1.ProbeNone, IntervalSeconds: 1, TimeoutSeconds: 1}
	})
	for _, c := range w.clusters {
		o.move(t, c)
	}
	return o
}

// move ends the cluster's agent and starts one in the node's network namespace, with the same ServiceAccounts; at
// the end back again.
func (o *observers) move(t *testing.T, c *cluster) {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	c.Agent.Terminate()
	var moved *lab.Controller
	t.Cleanup(func() {
		if t.Failed() && moved != nil {
			log := strings.Split(moved.Log(), "\n")
			t.Logf("agent %s on its node:\n%s", c.ID, strings.Join(log[max(0, len(log)-40):], "\n"))
		}
		if moved != nil {
			moved.Terminate()
			moved.Stop()
		}
		if err := errors.Join(c.Agent.Start(o.ctx), c.Agent.UntilReady(o.ctx)); err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
	})
	var here, there *lab.Forwarder // from the node's loopback to the API servers
	err = c.node.Do(func() (err error) {
		if here, err = c.Cluster.Forward(); err == nil {
			there, err = o.set.Hub.Forward()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	local, err := c.Cluster.ServiceAccountKubeconfig(
		t.Context(),
		"clusterset-system",
		"clusterset-controller",
		here,
	)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := o.set.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, "mcs-"+c.ID, there)
	if err != nil {
		t.Fatal(err)
	}
	err = c.node.Do(func() (err error) {
		moved, err = lab.StartAgent(
			t.Context(),
			filepath.Join(root, "bin", "clusterset-controller"),
			lab.AgentOptions{
				Kubeconfig: local, HubKubeconfig: hub, HubNamespace: lab.HubNamespace, ClusterID: c.ID,
			},
		)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	o.renewals(t, c, 1)
}

func (o *observers) settings(
	t *testing.T,
	change func(*hubv1alpha1.ClusterSetSpec),
) (was hubv1alpha1.ClusterSetSpec) {
	t.Helper()
	eventually(t, "write of the ClusterSet", func() error {
		set := &hubv1alpha1.ClusterSet{}
		if err := o.hub.Get(
			o.ctx,
			client.ObjectKey{Namespace: lab.HubNamespace, Name: lab.HubNamespace},
			set,
		); err != nil {
			return err
		}
		was = *set.Spec.DeepCopy()
		change(&set.Spec)
		return o.hub.Update(o.ctx, set)
	})
	return was
}

func (o *observers) lease(t *testing.T, c *cluster) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, o.hub.Get(t.Context(), client.ObjectKey{Namespace: lab.HubNamespace, Name: c.ID}, lease)
}

// renewals waits for so many more renewals of the cluster's Lease.
func (o *observers) renewals(t *testing.T, c *cluster, n int) {
	t.Helper()
	var last time.Time
	for n++; n > 0; n-- {
		eventually(t, c.ID+": a renewal", func() error {
			lease, err := o.lease(t, c)
			if err != nil {
				return err
			}
			if !lease.Spec.RenewTime.After(last) {
				return fmt.Errorf("the last one is of %v", last)
			}
			last = lease.Spec.RenewTime.Time
			return nil
		})
	}
}

// wantVote waits until the cluster says that it does not reach this.
func (o *observers) wantVote(t *testing.T, c *cluster, vote string) {
	t.Helper()
	eventually(t, c.ID+": vote", func() error {
		lease, err := o.lease(t, c)
		if err == nil && lease.Annotations["clusterset-dns.io/unreached"] != vote {
			err = fmt.Errorf("it is %q, want %q", lease.Annotations["clusterset-dns.io/unreached"], vote)
		}
		return err
	})
}

// blind has the agent of a cluster reach no pod of another, or again. Pods of that cluster are not affected.
func blind(t *testing.T, c *cluster, is bool) {
	t.Helper()
	rules := "add table inet blind\ndelete table inet blind\n"
	if is {
		rules += `table inet blind { chain out { type filter hook output priority 0; ` +
			`ip daddr 10.200.0.0/13 tcp dport 8080 reject; ip6 daddr fd02::/16 tcp dport 8080 reject; }; }` + "\n"
	}
	if err := c.node.Do(func() error { return command(rules, "nft", "-f", "-") }); err != nil {
		t.Fatal(err)
	}
}

// readyOf are the ready endpoints of IPv4 that the cluster has imported from another.
func (o *observers) readyOf(t *testing.T, c, from *cluster) (out []string, err error) {
	var list discoveryv1.EndpointSliceList
	err = c.List(
		t.Context(),
		&list,
		client.InNamespace(o.ns),
		client.MatchingLabels{mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: from.ID},
	)
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if s.AddressType == discoveryv1.AddressTypeIPv4 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out = append(out, e.Addresses[0])
			}
		}
	}
	slices.Sort(out)
	return out, err
}

func (o *observers) wantReady(t *testing.T, c, from *cluster, names ...string) {
	t.Helper()
	want := []string{}
	for _, name := range names {
		want = append(want, from.backends[name].v4.String())
	}
	eventually(t, fmt.Sprintf("%s: ready endpoints of %s", c.ID, from.ID), func() error {
		got, err := o.readyOf(t, c, from)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%v, want %v", got, want)
		}
		return err
	})
}

// probed exports c's two backends, to be probed, and returns their VIP in each cluster.
func (o *observers) probed(t *testing.T) map[*cluster]netip.AddrPort {
	t.Helper()
	svc := service(o.ns, tcp("http", 80))
	o.c.create(t, svc.DeepCopy())
	o.c.create(t, o.c.endpoints(svc, "c1", "c2")...)
	e := export(svc)
	e.Annotations = map[string]string{"clusterset-dns.io/probe": "tcp"}
	o.c.create(t, e)
	vip := map[*cluster]netip.AddrPort{}
	for _, c := range o.clusters {
		v4, _ := c.vips(t, o.ns, "c")
		vip[c] = netip.AddrPortFrom(v4, 80)
	}
	return vip
}

// allTheWhile looks at the ready endpoints of one cluster in the others, until what it returns is called, and fifty
// times at least: never are
// there fewer.
func (o *observers) allTheWhile(t *testing.T, from *cluster, want int, in ...*cluster) (stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	var bad []string
	looks := 0
	looking.Go(func() {
		for ; ctx.Err() == nil || looks < 50; looks++ {
			for _, c := range in {
				if got, err := o.readyOf(t, c, from); err == nil && len(got) < want {
					bad = append(bad, fmt.Sprintf("%s in %s: %v", time.Now().Format("15:04:05.000"), c.ID, got))
				}
			}
			time.Sleep(20 * time.Millisecond) // the rate of looks, no wait for anything
		}
	})
	t.Cleanup(func() { end(); looking.Wait() })
	return func() {
		t.Helper()
		end()
		looking.Wait()
		if len(bad) > 0 {
			t.Errorf(
				"in %d of %d looks fewer than %d endpoints were ready: %v",
				len(bad),
				looks,
				want,
				bad[:min(len(bad), 10)],
			)
		}
	}
}

// TestF4OneOfThreeBlind, and then two (issue 6 D): no endpoint is lost while one is; with two the floor holds where
// it is set, and where it is not, nobody sends there but the cluster itself, whose kubelet knows better; once
// they see again, everything comes back.
func TestF4OneOfThreeBlind(t *testing.T) {
	o := observe(t)
	vip := o.probed(t)
	all := []string{"c1:8080", "c2:8080"}

	began := time.Now()
	said := func(what string) { t.Logf("%6.1f s: %s", time.Since(began).Seconds(), what) }
	for _, c := range o.clusters {
		o.wantReady(t, c, o.c, "c1", "c2")
		c.wantAnswers(t, "tcp", vip[c], all...)
	}
	stay := o.allTheWhile(t, o.c, len(all), o.clusters...)
	asking := newRecord(t)
	for _, c := range o.clusters {
		asking.renewed(c, "tcp", vip[c])
	}
	blind(t, o.a, true)
	t.Cleanup(func() { blind(t, o.a, false) })
	o.wantVote(t, o.a, `{"c":["*"]}`)
	said("a, blind, votes")
	o.renewals(t, o.b, 4) // time enough for whoever would go by it
	for _, c := range []*cluster{o.a, o.b} {
		c.wantAnswers(t, "tcp", vip[c], all...)
	}
	stay()

	stay = o.allTheWhile(t, o.c, 1, o.clusters...) // two may agree on one of them before they do on the last
	blind(t, o.b, true)
	t.Cleanup(func() { blind(t, o.b, false) })
	o.wantVote(t, o.b, `{"c":["*"]}`)
	said("b, blind, votes")
	for _, c := range []*cluster{o.a, o.b} {
		eventually(t, c.ID+": withheld", func() error { return o.withheld(t, c, "UnreachedUnlessLast") })
	}
	said("withheld in a and b, with the floor")
	for _, c := range o.clusters {
		o.wantReady(t, c, o.c, "c1", "c2")
		c.wantAnswers(t, "tcp", vip[c], all...)
	}

	stay()
	if bad := asking.stop(); len(bad) > 0 {
		t.Errorf("%d questions failed while one and then two of three were blind", len(bad))
	}

	no := false
	o.settings(t, func(s *hubv1alpha1.ClusterSetSpec) { s.Probe.KeepLast = &no })
	for _, c := range []*cluster{o.a, o.b} {
		o.wantReady(t, c, o.c)
		c.wantRefused(t, "tcp", vip[c])
	}
	said("without the floor nothing is sent to c")
	o.wantReady(t, o.c, o.c, "c1", "c2")
	o.c.wantAnswers(t, "tcp", vip[o.c], all...)

	blind(t, o.b, false)
	for _, c := range []*cluster{o.a, o.b} {
		o.wantReady(t, c, o.c, "c1", "c2")
		c.wantAnswers(t, "tcp", vip[c], all...)
	}
	said("b sees again: all is back, in a too, which is still blind")
}

func (o *observers) withheld(t *testing.T, c *cluster, reason string) error {
	out, err := c.Cluster.Kubectl(
		t.Context(),
		"",
		"-n",
		"clusterset-system",
		"get",
		"serviceexportrecord",
		"web."+o.ns+".c",
		"-o",
		`jsonpath={.status.withheld} {.status.conditions[?(@.type=="Reached")].reason}`,
	)
	if err == nil && out != `["*"] `+reason {
		err = fmt.Errorf("it says %q", out)
	}
	return err
}

// TestF4AnEndpointThatNobodyReaches: of two that are ready for their own cluster, one answers nobody. It is left
// out everywhere else, and comes back with its answers; and with ownView a member goes by its own probes as well,
// which changes nothing for the others.
func TestF4AnEndpointThatNobodyReaches(t *testing.T) {
	o := observe(t)
	o.probed(t)
	deaf := func(is bool) {
		t.Helper()
		rules := "add table inet deaf\ndelete table inet deaf\n"
		if is {
			rules += "table inet deaf { chain in { type filter hook input priority 0; tcp dport 8080 drop; }; }\n"
		}
		if err := o.c.backends["c1"].Do(func() error { return command(rules, "nft", "-f", "-") }); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { deaf(false) })
	deaf(true)
	o.wantReady(t, o.a, o.c, "c2")
	o.wantReady(t, o.b, o.c, "c2")
	o.wantReady(t, o.c, o.c, "c1", "c2")
	deaf(false)
	o.wantReady(t, o.a, o.c, "c1", "c2")
	o.wantReady(t, o.b, o.c, "c1", "c2")

	no := false
	o.settings(t, func(s *hubv1alpha1.ClusterSetSpec) { s.Probe.OwnView, s.Probe.KeepLast = true, &no })
	blind(t, o.a, true)
	t.Cleanup(func() { blind(t, o.a, false) })
	o.wantReady(t, o.a, o.c)
	o.renewals(t, o.b, 3)
	o.wantReady(t, o.b, o.c, "c1", "c2")
	o.settings(t, func(s *hubv1alpha1.ClusterSetSpec) { s.Probe = nil })
	o.wantReady(t, o.a, o.c, "c1", "c2")
	o.wantVote(t, o.a, "")
}
