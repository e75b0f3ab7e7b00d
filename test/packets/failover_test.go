package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// failover is the clusterset with its agents where they are in a real one: on the network of their own cluster's node.
// The API servers and the hub stay in reach of all, so that only what answers tells who is alive.
type failover struct {
	*world
	ns     string
	ctx    context.Context // outlives the test, for what is put back
	moved  map[*cluster]*lab.Controller
	toHub  map[*cluster]*lab.Forwarder // the way of the moved agent
	proven func()                      // waits until Pods of c have answered the moved agents of a and b
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	w, ns := clusters(t)
	f := &failover{
		world: w, ns: ns, ctx: context.WithoutCancel(t.Context()),
		moved: map[*cluster]*lab.Controller{}, toHub: map[*cluster]*lab.Forwarder{},
	}
	f.proven = f.tried(t, f.c, f.a, f.b)
	for _, c := range w.clusters {
		f.move(t, c)
	}
	f.hear(t, w.clusters...)
	return f
}

// hear waits until these clusters know that all others answer.
func (f *failover) hear(t *testing.T, by ...*cluster) {
	t.Helper()
	for _, c := range by {
		for _, other := range f.clusters {
			if other != c {
				f.wantState(t, c, other, "Answers")
			}
		}
	}
}

// move ends the cluster's agent and starts one in the node's network namespace, with the same ServiceAccounts; at
// the end back again.
func (f *failover) move(t *testing.T, c *cluster) {
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
		if err := errors.Join(c.Agent.Start(f.ctx), c.Agent.UntilReady(f.ctx)); err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
	})
	var here, there *lab.Forwarder // from the node's loopback to the API servers
	err = c.node.Do(func() (err error) {
		if here, err = c.Cluster.Forward(); err == nil {
			there, err = f.set.Hub.Forward()
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
	hub, err := f.set.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, "mcs-"+c.ID, there)
	if err != nil {
		t.Fatal(err)
	}
	program := onNode(t, c, filepath.Join(root, "bin", "clusterset-controller"))
	moved, err = lab.StartAgent(t.Context(), program, lab.AgentOptions{
		Kubeconfig: local, HubKubeconfig: hub, HubNamespace: lab.HubNamespace, ClusterID: c.ID,
		Env: []string{fmt.Sprintf("POD_IPS=10.77.%d.1,fd77:%[1]d::1", c.node.number)},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.moved[c], f.toHub[c] = moved, there
}

// onNode returns a program that runs another one in the network namespace of a cluster's node, whoever starts it.
func onNode(t *testing.T, c *cluster, program string) string {
	t.Helper()
	script := filepath.Join(t.TempDir(), filepath.Base(program))
	text := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=%s %s \"$@\"\n", c.node.Path(), program)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return script
}

// wantState waits until one cluster knows this of another.
func (f *failover) wantState(t *testing.T, c, of *cluster, state string) {
	t.Helper()
	eventually(t, c.ID+" of "+of.ID+": "+state, func() error {
		lease := &coordinationv1.Lease{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "clusterset-system", Name: "source-" + of.ID}, lease)
		if got := lease.Annotations["clusterset-dns.io/reach"]; err == nil && got != state {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	})
}

// power cuts a cluster's link without a farewell, or restores it.
func (f *failover) power(t *testing.T, c *cluster, on bool) {
	t.Helper()
	var rules []string
	if !on {
		rules = []string{"iifname LINK drop", "oifname LINK drop"}
	}
	if err := f.filter(c, "power", rules...); err != nil {
		t.Fatal(err)
	}
}

// filter replaces what the router does with packets from and to a cluster's LINK; a name has rules of its own.
func (f *failover) filter(c *cluster, name string, rules ...string) error {
	link := fmt.Sprint("node", c.node.number)
	table := fmt.Sprintf("table inet %s-%s", name, link)
	text := fmt.Sprintf("add %s\ndelete %[1]s\n", table)
	if len(rules) > 0 {
		text += fmt.Sprintf("%s { chain filter { type filter hook forward priority 0; %s; }; }\n", table,
			strings.ReplaceAll(strings.Join(rules, "; "), "LINK", link))
	}
	return f.net.router.Do(func() error { return command(text, "nft", "-f", "-") })
}

// endpointsOf returns how many endpoints of another cluster a cluster has.
func (f *failover) endpointsOf(t *testing.T, c, from *cluster) (n int, err error) {
	var list discoveryv1.EndpointSliceList
	err = c.List(t.Context(), &list, client.InNamespace(f.ns),
		client.MatchingLabels{mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: from.ID})
	for _, s := range list.Items {
		n += len(s.Endpoints)
	}
	return n, err
}

func (f *failover) wantEndpoints(t *testing.T, c, from *cluster, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: %d endpoints of %s", c.ID, want, from.ID), func() error {
		n, err := f.endpointsOf(t, c, from)
		if err == nil && n != want {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}

// tried counts the answers of a cluster's Pods to the agents of these. wait waits until each agent has had one: before,
// the silence of Pods proves nothing. An agent tries Pods once it starts, or once the first are exported; no client may
// dial until then.
func (f *failover) tried(t *testing.T, of *cluster, by ...*cluster) (wait func()) {
	t.Helper()
	name := func(c *cluster) string { return "tried-by-" + c.ID }
	for _, c := range by {
		answers := func(pods string) string {
			return fmt.Sprintf("iifname LINK oifname node%d %s tcp flags & (syn | ack) == syn | ack counter",
				c.node.number, pods)
		}
		if err := f.filter(of, name(c), answers(fmt.Sprintf("ip saddr 10.%d.0.0/16", 200+of.node.number)),
			answers(fmt.Sprintf("ip6 saddr fd02:%d::/48", of.node.number))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.filter(of, name(c)) })
	}
	some := regexp.MustCompile("counter packets [1-9]")
	return func() {
		t.Helper()
		for _, c := range by {
			eventually(t, fmt.Sprintf("a Pod of %s answers the agent of %s", of.ID, c.ID), func() error {
				return f.net.router.Do(func() error {
					table := fmt.Sprintf("%s-node%d", name(c), of.node.number)
					out, err := exec.Command("nft", "list", "table", "inet", table).CombinedOutput()
					if err != nil || !some.Match(out) {
						err = errors.Join(err, errors.New(string(out)))
					}
					return err
				})
			})
		}
	}
}

// TestF4PowerCut: a cluster that is cut off loses its endpoints elsewhere within seconds, while its Lease is still
// renewed; the others keep theirs, and it gets all back. Each of the others makes ten new connections a second.
func TestF4PowerCut(t *testing.T) {
	f := newFailover(t)
	svc := service(f.ns, tcp("http", 80))
	f.c.exports(t, svc.DeepCopy(), "c1", "c2")
	f.a.exports(t, svc.DeepCopy(), "a1")
	f.proven()
	vip := map[*cluster]netip.AddrPort{}
	for _, c := range f.clusters {
		v4, _ := c.vips(t, f.ns, "a", "c")
		vip[c] = netip.AddrPortFrom(v4, 80)
		c.wantAnswers(t, "tcp", vip[c], "a1:8080", "c1:8080", "c2:8080")
	}
	t.Cleanup(func() { f.power(t, f.c, true) })
	var measured measuredCuts
	for range times(t, "CUTS", 1) {
		dialers := []*dialer{dialing(t, f.a, vip[f.a], dialLimit), dialing(t, f.b, vip[f.b], dialLimit)}
		cut := time.Now()
		f.power(t, f.c, false)
		for _, c := range []*cluster{f.a, f.b} {
			f.wantEndpoints(t, c, f.c, 0)
			f.wantEndpoints(t, c, f.a, 2)
		}
		t.Logf("the endpoints were gone after %v", time.Since(cut))
		// Who reaches nobody decides about nobody.
		for _, from := range []*cluster{f.a, f.c} {
			if n, err := f.endpointsOf(t, f.c, from); err != nil || n == 0 {
				t.Errorf("c, which is cut off, has %d endpoints of %s, %v", n, from.ID, err)
			}
		}
		for _, c := range []*cluster{f.a, f.b} { // and nothing fails any more
			c.wantAnswers(t, "tcp", vip[c], "a1:8080")
		}
		back := time.Now()
		f.power(t, f.c, true)
		for _, c := range []*cluster{f.a, f.b} {
			f.wantEndpoints(t, c, f.c, 4)
			c.wantAnswers(t, "tcp", vip[c], "a1:8080", "c1:8080", "c2:8080")
		}
		for _, d := range dialers {
			eventually(t, "a new connection to c", func() error { return d.hasReached("c", back) })
			measured.add(t, d.stop(), cut, back)
		}
		f.forgetFlaps(t)
	}
	t.Log(measured.summary())
	for _, slow := range measured.slow(os.Getenv("FAILOVER_PAGE") != "") {
		t.Error(slow)
	}
	if page := os.Getenv("FAILOVER_PAGE"); page != "" {
		if err := measured.write(page, time.Now()); err != nil {
			t.Error(err)
		}
	}
}

// forgetFlaps lets the clusters forget how often they have lost c: each cut must be like the first. Their agents
// remember it, and so do the Leases that they store. The kernel remembers connections that failed for two minutes: a
// new one from the same source port would follow them.
func (f *failover) forgetFlaps(t *testing.T) {
	t.Helper()
	var waits []func()
	for _, c := range []*cluster{f.a, f.b} {
		f.moved[c].Terminate()
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = "clusterset-system", "source-c"
		err := c.Delete(t.Context(), lease)
		waits = append(waits, f.tried(t, f.c, c))
		if err == nil {
			err = errors.Join(
				c.node.Do(func() error { return command("", "conntrack", "-F") }),
				f.moved[c].Start(f.ctx))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, wait := range waits {
		wait()
	}
	f.hear(t, f.a, f.b)
}

// TestF4SilentAgent: a cluster whose agent is dead, while its endpoints answer, loses nothing, even once its Lease has
// expired.
func TestF4SilentAgent(t *testing.T) {
	f := newFailover(t)
	f.c.exports(t, service(f.ns, tcp("http", 80)), "c1")
	for _, c := range f.clusters {
		f.wantEndpoints(t, c, f.c, 2)
	}
	f.moved[f.c].Kill()
	for _, c := range []*cluster{f.a, f.b} {
		f.wantState(t, c, f.c, "Serving")
		var expired time.Time
		for began := time.Now(); expired.IsZero() || time.Since(expired) < 10*time.Second; {
			lease := &coordinationv1.Lease{}
			name := client.ObjectKey{Namespace: "clusterset-system", Name: "source-c"}
			if err := c.Get(t.Context(), name, lease); err != nil {
				t.Fatal(err)
			}
			if expired.IsZero() && lease.Annotations["clusterset-dns.io/lease-expired"] == "true" {
				expired = time.Now()
			}
			if expired.IsZero() && time.Since(began) > 2*time.Minute {
				t.Fatalf("%s: the Lease of c has not expired", c.ID)
			}
			if n, err := f.endpointsOf(t, c, f.c); err != nil || n != 2 {
				t.Fatalf("%s has %d endpoints of c, want 2; its Lease expired at %v; %v", c.ID, n, expired, err)
			}
			time.Sleep(100 * time.Millisecond) // the rate of looks
		}
	}
}
