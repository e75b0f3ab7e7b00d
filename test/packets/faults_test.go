package packets

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/test/lab/offclock"
)

// pair is a cluster and another one whose endpoints it has.
type pair struct{ of, from *cluster }

// disturbances happen to clusters whose Pods serve all the while. Whoever loses the endpoints of a cluster that it can
// reach has evicted a living one.
type disturbances struct {
	*failover
	t *testing.T

	members, hub *draws

	mu       sync.Mutex
	happened map[string]int
	now      []string      // what is wrong at present
	apart    map[pair]bool // the network of one is down, or was and the endpoints are not back
	down     map[*cluster]bool
	back     map[*cluster]time.Time // since when the network is not down
	evicted  map[pair]bool          // reported, and not back yet
	wrongly  []string               // evictions
	rightly  int
	looks    map[*cluster]int // at its endpoints
}

// draws are those of the members' faults, or of the hub's, which happen beside them: one seed replays both.
type draws struct {
	*rand.Rand
	left int // faults to begin
}

// of returns those of a member; nil is the hub.
func (d *disturbances) of(c *cluster) *draws {
	if c == nil {
		return d.hub
	}
	return d.members
}

// disturbance is one kind of fault.
type disturbance struct {
	name  string
	from  time.Duration // how long it lasts, at least
	to    time.Duration // at most
	begin func(*disturbances, *cluster) error
	end   func(*disturbances, *cluster) error
}

// ofMembers happen to one member at a time.
var ofMembers = []disturbance{
	{
		"agent rolled", 0, 0,
		func(d *disturbances, c *cluster) error { d.moved[c].Terminate(); return nil }, (*disturbances).start,
	},
	{"all replicas of an agent killed", 0, 9 * time.Second, (*disturbances).kill, (*disturbances).start},
	{
		"agent paused", time.Second, 9 * time.Second,
		func(d *disturbances, c *cluster) error { return d.moved[c].Pause() },
		func(d *disturbances, c *cluster) error { return d.moved[c].Resume() },
	},
	{
		"member's API server killed", time.Second, 9 * time.Second,
		func(_ *disturbances, c *cluster) error { c.Cluster.KillAPIServer(); return nil },
		func(d *disturbances, c *cluster) error { return c.Cluster.StartAPIServer(d.ctx) },
	},
	{
		"member's etcd killed", time.Second, 9 * time.Second,
		func(_ *disturbances, c *cluster) error { c.Cluster.KillEtcd(); return nil },
		func(_ *disturbances, c *cluster) error { return c.Cluster.StartEtcd() },
	},
	{
		"link to the hub cut", time.Second, 9 * time.Second,
		func(d *disturbances, c *cluster) error { d.toHub[c].Cut(); return nil }, (*disturbances).restoreLink,
	},
	{
		"link to the hub silent, not closed", time.Second, 9 * time.Second,
		func(d *disturbances, c *cluster) error { d.toHub[c].Hang(); return nil }, (*disturbances).restoreLink,
	},
	{"clock an hour fast", 5 * time.Second, 8 * time.Second, clockOff(time.Hour), (*disturbances).restart},
	{"clock an hour slow", 5 * time.Second, 8 * time.Second, clockOff(-time.Hour), (*disturbances).restart},
	{
		"30 % of packets lost, each way", 5 * time.Second, 9 * time.Second,
		func(d *disturbances, c *cluster) error {
			const lost = "LINK numgen random mod 10 < 3 drop"
			return d.filter(c, "loss", "iifname "+lost, "oifname "+lost)
		},
		func(d *disturbances, c *cluster) error { return d.filter(c, "loss") },
	},
	{
		"a NetworkPolicy blocks the agent's port", 5 * time.Second, 9 * time.Second,
		func(d *disturbances, c *cluster) error {
			return d.filter(
				c,
				"policy",
				fmt.Sprintf("oifname LINK ip daddr 10.77.%d.1 tcp dport 8082 drop", c.node.number),
				fmt.Sprintf("oifname LINK ip6 daddr fd77:%d::1 tcp dport 8082 drop", c.node.number),
			)
		},
		func(d *disturbances, c *cluster) error { return d.filter(c, "policy") },
	},
	{
		"a NetworkPolicy blocks the Pods' ports", 5 * time.Second, 9 * time.Second,
		func(d *disturbances, c *cluster) error {
			return d.filter(
				c,
				"pods",
				fmt.Sprintf("oifname LINK ip daddr 10.%d.0.0/16 tcp flags syn drop", 200+c.node.number),
				fmt.Sprintf("oifname LINK ip6 daddr fd02:%d::/48 tcp flags syn drop", c.node.number),
			)
		},
		func(d *disturbances, c *cluster) error { return d.filter(c, "pods") },
	},
	{
		"own network cut", 4 * time.Second, 9 * time.Second,
		func(d *disturbances, c *cluster) error {
			d.network(c, false)
			return d.filter(c, "power", "iifname LINK drop", "oifname LINK drop")
		},
		func(d *disturbances, c *cluster) error {
			err := d.filter(c, "power")
			d.network(c, true)
			return err
		},
	},
	{"a flap of the network", 0, 0, (*disturbances).flap, func(*disturbances, *cluster) error { return nil }},
}

// burns happens in runs of many faults: all clusters, and other tests, share this machine.
var burns = disturbance{
	"CPU at 100 %", 5 * time.Second, 9 * time.Second, (*disturbances).burn, (*disturbances).stopBurning,
}

// longDead is rare: it takes long.
var longDead = disturbance{
	"agent killed for longer than its Lease", 65 * time.Second, 70 * time.Second,
	(*disturbances).kill, (*disturbances).start,
}

// flaps happen once, in a run of a hundred faults at least.
var flaps = disturbance{
	"20 flaps of the network in 5 minutes", 0, 0,
	func(d *disturbances, c *cluster) error {
		var errs []error
		for range 20 {
			next := time.Now().Add(15 * time.Second)
			errs = append(errs, d.flap(c))
			time.Sleep(time.Until(next))
		}
		return errors.Join(errs...)
	},
	func(*disturbances, *cluster) error { return nil },
}

// ofHub happen beside those.
var ofHub = []disturbance{
	{
		"hub's API server killed", time.Second, 9 * time.Second,
		func(d *disturbances, _ *cluster) error { d.set.Hub.KillAPIServer(); return nil },
		func(d *disturbances, _ *cluster) error { return d.set.Hub.StartAPIServer(d.ctx) },
	},
	{
		"hub's etcd killed", time.Second, 9 * time.Second,
		func(d *disturbances, _ *cluster) error { d.set.Hub.KillEtcd(); return nil },
		func(d *disturbances, _ *cluster) error { return d.set.Hub.StartEtcd() },
	},
	{
		"hub restored from a snapshot", 0, 0,
		func(d *disturbances, hub *cluster) error {
			snapshot, err := d.set.Hub.Snapshot()
			if err != nil {
				return err
			}
			d.pause(hub, time.Second, 9*time.Second)
			return errors.Join(d.set.Hub.Restore(d.ctx, snapshot), os.RemoveAll(snapshot))
		},
		func(*disturbances, *cluster) error { return nil },
	},
	{
		"every link to the hub cut", time.Second, 9 * time.Second,
		func(d *disturbances, _ *cluster) error {
			for _, c := range d.clusters {
				d.toHub[c].Cut()
			}
			return nil
		},
		(*disturbances).restoreLinks,
	},
	{
		"every link to the hub silent, not closed", time.Second, 9 * time.Second,
		func(d *disturbances, _ *cluster) error {
			for _, c := range d.clusters {
				d.toHub[c].Hang()
			}
			return nil
		},
		(*disturbances).restoreLinks,
	},
}

func (d *disturbances) start(c *cluster) error { return d.moved[c].Start(d.ctx) }
func (d *disturbances) kill(c *cluster) error  { d.moved[c].Kill(); return nil }

func (d *disturbances) restart(c *cluster) error {
	d.moved[c].Terminate()
	return d.start(c)
}

func (d *disturbances) restoreLink(c *cluster) error { d.toHub[c].Restore(); return nil }

func (d *disturbances) restoreLinks(*cluster) error {
	for _, c := range d.clusters {
		d.toHub[c].Restore()
	}
	return nil
}

// flap cuts a cluster's network for a moment. On a machine that is busy it may take longer: then it counts as a cut.
func (d *disturbances) flap(c *cluster) error {
	cut := sync.OnceFunc(func() { d.network(c, false) })
	long := time.AfterFunc(2800*time.Millisecond, cut)
	err := d.filter(c, "power", "iifname LINK drop", "oifname LINK drop")
	d.pause(c, 500*time.Millisecond, 2500*time.Millisecond)
	err = errors.Join(err, d.filter(c, "power"))
	if !long.Stop() {
		cut() // the timer may be late
		d.network(c, true)
	}
	return err
}

// clockOff starts the agent again with a clock that is off.
func clockOff(by time.Duration) func(*disturbances, *cluster) error {
	return func(d *disturbances, c *cluster) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		d.moved[c].Terminate()
		return d.moved[c].StartAs(onNode(d.t, c, self), offclock.Variable(by))
	}
}

var burning struct {
	sync.Mutex
	all []*exec.Cmd
}

// burn takes the CPU of all. Each burner ends after 20 s of CPU, even if the test is killed.
func (d *disturbances) burn(*cluster) (err error) {
	burning.Lock()
	defer burning.Unlock()
	for range 4 * runtime.NumCPU() {
		b := exec.Command("sh", "-c", "ulimit -t 20; while :; do :; done")
		if err = b.Start(); err != nil {
			return err
		}
		burning.all = append(burning.all, b)
	}
	return nil
}

func (d *disturbances) stopBurning(*cluster) error {
	burning.Lock()
	defer burning.Unlock()
	var errs []error
	for _, b := range burning.all {
		errs = append(errs, b.Process.Kill())
		_ = b.Wait() // it says that it was killed
	}
	burning.all = nil
	return errors.Join(errs...)
}

// network notes that a cluster's network is down, or up again.
func (d *disturbances) network(c *cluster, up bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down[c], d.back[c] = !up, time.Now()
	for _, p := range d.pairs() {
		if !up && (p.of == c || p.from == c) {
			d.apart[p] = true
		}
	}
}

func (d *disturbances) pairs() (out []pair) {
	for _, of := range d.clusters {
		for _, from := range d.clusters {
			out = append(out, pair{of, from})
		}
	}
	return out
}

// pause is how long a fault of a member or the hub lasts.
func (d *disturbances) pause(of *cluster, from, to time.Duration) {
	time.Sleep(from + time.Duration(d.of(of).Int64N(int64(to-from)+1)))
}

// happen lets disturbances of these kinds happen to one of these at a time, until none is left. The rare ones are among
// them every third time. nil is the hub.
func (d *disturbances) happen(kinds, rare []disturbance, to ...*cluster) {
	for turn := 1; ; turn++ {
		next := slices.Clone(kinds)
		if turn%3 == 0 {
			next = append(next, rare...)
		}
		d.of(to[0]).Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		for _, k := range next {
			if !d.happenOnce(k, to) {
				return
			}
		}
	}
}

// happenOnce lets one disturbance happen to one of these. It returns false if none is left, or all is lost.
func (d *disturbances) happenOnce(k disturbance, to []*cluster) bool {
	draws := d.of(to[0])
	if draws.left == 0 {
		return false
	}
	draws.left--
	c, what := to[draws.IntN(len(to))], k.name
	if c != nil {
		what += ", " + c.ID
	}
	d.mu.Lock()
	d.happened[k.name]++
	d.now = append(d.now, what)
	d.mu.Unlock()
	err := k.begin(d, c)
	d.pause(c, k.from, k.to)
	if err = errors.Join(err, k.end(d, c)); err == nil {
		err = d.settle()
	}
	if err != nil {
		d.t.Errorf("%s: %v", what, err)
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = slices.DeleteFunc(d.now, func(s string) bool { return s == what })
	return true
}

// settle waits until no agent may decide by the last fault any more: pairs whose network was down are evicted, or known
// to be alive, and all others hear of each other.
func (d *disturbances) settle() error {
	var last error
	for began := time.Now(); time.Since(began) < 3*time.Minute; time.Sleep(200 * time.Millisecond) {
		last = nil
		for _, p := range d.pairs() {
			d.mu.Lock()
			apart, evicted, down := d.apart[p], d.evicted[p], d.down[p.from] || time.Since(d.back[p.from]) < convicting
			d.mu.Unlock()
			if down || apart && !evicted {
				last = fmt.Errorf("%s of %s: not decided", p.of.ID, p.from.ID)
			}
			if p.of == p.from || apart {
				continue
			}
			ctx, cancel := context.WithTimeout(d.ctx, 2*time.Second)
			lease := &coordinationv1.Lease{}
			name := client.ObjectKey{Namespace: "clusterset-system", Name: "source-" + p.from.ID}
			err := p.of.Get(ctx, name, lease)
			cancel()
			if got := lease.Annotations["clusterset-dns.io/reach"]; err == nil && got != "Answers" {
				err = fmt.Errorf("%s of %s: %q", p.of.ID, p.from.ID, got)
			}
			last = errors.Join(last, err)
		}
		if last == nil {
			return nil
		}
	}
	return last
}

// watch looks at a cluster's endpoints five times a second; those of an evicted cluster are away for two seconds at
// least.
func (d *disturbances) watch(ctx context.Context, of *cluster) {
	for pace := time.NewTicker(200 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			pace.Stop()
			return
		case <-pace.C:
		}
		var list discoveryv1.EndpointSliceList
		asked, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := of.List(
			asked,
			&list,
			client.InNamespace(d.ns),
			client.MatchingLabels{mcsv1beta1.LabelServiceName: "web"},
		)
		cancel()
		if err != nil {
			continue // its API server is away
		}
		seen := map[string]int{}
		for _, s := range list.Items {
			seen[s.Labels[mcsv1beta1.LabelSourceCluster]] += len(s.Endpoints)
		}
		d.mu.Lock()
		d.looks[of]++
		d.mu.Unlock()
		for _, from := range d.clusters {
			d.saw(pair{of, from}, seen[from.ID])
		}
	}
}

// convicting is how long a cluster may take to decide after the last round in which another did not answer.
const convicting = 5 * time.Second

// saw takes how many endpoints one cluster has of another: two Pods of two families.
func (d *disturbances) saw(p pair, endpoints int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case endpoints == 4:
		d.evicted[p] = false
		// A round that began before the network was back may still convict.
		if !d.down[p.of] && !d.down[p.from] && time.Since(d.back[p.of]) > convicting &&
			time.Since(d.back[p.from]) > convicting {
			d.apart[p] = false
		}
	case d.evicted[p]:
	case d.apart[p] && !d.down[p.of]:
		if endpoints == 0 {
			d.evicted[p] = true
			d.rightly++
		}
	default:
		d.evicted[p] = true
		what := fmt.Sprintf(
			"%s %s has %d of 4 endpoints of %s, during: %s",
			time.Now().UTC().Format(time.TimeOnly),
			p.of.ID,
			endpoints,
			p.from.ID,
			strings.Join(d.now, "; "),
		)
		d.wrongly = append(d.wrongly, what)
		d.t.Error(what)
	}
}

// allBack waits until every cluster has the endpoints of every other one, for as long as damping may take.
func (d *disturbances) allBack() error {
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		var missing []string
		d.mu.Lock()
		for _, p := range d.pairs() {
			if d.apart[p] || d.evicted[p] {
				missing = append(missing, p.of.ID+" of "+p.from.ID)
			}
		}
		d.mu.Unlock()
		if len(missing) == 0 {
			return nil
		}
		if time.Since(began) > liveness.MaxDamping+time.Minute {
			return fmt.Errorf("the endpoints are not back in %s", strings.Join(missing, ", "))
		}
	}
}

// TestF4NobodyLivingIsEvicted: while agents, API servers, links, clocks and networks fail, no cluster loses the
// endpoints of another that it can reach.
func TestF4NobodyLivingIsEvicted(t *testing.T) {
	f := newFailover(t)
	svc := service(f.ns, tcp("one", 80), tcp("two", 81), tcp("three", 82))
	for _, c := range f.clusters {
		c.exports(t, svc.DeepCopy(), c.ID+"1", c.ID+"2")
	}
	for _, c := range f.clusters {
		for _, from := range f.clusters {
			f.wantEndpoints(t, c, from, 4)
		}
	}
	seed, faults := uint64(times(t, "FAULTS_SEED", 27)), times(t, "FAULTS", 6)
	d := &disturbances{
		failover: f,
		t:        t,
		members:  &draws{rand.New(rand.NewPCG(seed, 0)), (faults + 1) / 2},
		hub:      &draws{rand.New(rand.NewPCG(seed, 1)), faults / 2},
		happened: map[string]int{},
		apart:    map[pair]bool{},
		down:     map[*cluster]bool{},
		back:     map[*cluster]time.Time{},
		evicted:  map[pair]bool{},
		looks:    map[*cluster]int{},
	}
	began, kinds := time.Now(), slices.Clone(ofMembers)
	watched, enough := context.WithCancel(t.Context())
	var watchers, happening sync.WaitGroup
	for _, c := range f.clusters {
		watchers.Go(func() { d.watch(watched, c) })
	}
	happening.Go(func() {
		if faults >= 100 {
			kinds = append(kinds, burns)
			d.happenOnce(flaps, f.clusters)
		}
		d.happen(kinds, []disturbance{longDead}, f.clusters...)
	})
	happening.Go(func() { d.happen(ofHub, nil, nil) })
	happening.Wait()
	if err := d.allBack(); err != nil {
		t.Error(err)
	}
	enough()
	watchers.Wait()
	took := time.Since(began)
	for _, c := range f.clusters { // an eviction lasts for two seconds at least
		if n := d.looks[c]; n < int(took.Seconds()) {
			t.Errorf("the endpoints of %s were looked at %d times in %v", c.ID, n, took)
		}
	}
	for _, c := range f.clusters {
		for _, vip := range c.asked(t, f.ns, 80, "a", "b", "c") {
			c.wantAnswers(t, "tcp", vip, "a1:8080", "a2:8080", "b1:8080", "b2:8080", "c1:8080", "c2:8080")
		}
	}
	t.Logf(
		"%v: %d false evictions, %d of clusters whose network was down; seed %d; %v",
		took.Round(time.Second),
		len(d.wrongly),
		d.rightly,
		seed,
		d.happened,
	)
	if page := os.Getenv("FAULTS_PAGE"); page != "" {
		if err := d.write(page, began, seed); err != nil {
			t.Error(err)
		}
	}
}

const faultsPage = `# Faults of clusters that serve

` + "`make bench-faults`" + ` wrote this page on %s, with a hub and three members on one machine of %d cores.
Each has a real API server, our agent with default settings and a real kube-proxy (nftables), in network namespaces.
Every member exports one Service with two Pods of both families. Faults happened to one member and to the hub at a time,
for %s. Seed %d draws them again. Five times a second, each member's own API server was asked for its
endpoints of each cluster. Their Pods served throughout.

| fault | times |
| --- | --- |
%s| all | %d |

| | times |
| --- | --- |
| a member lost endpoints of a cluster that it could reach | %d |
| a member lost the endpoints of a cluster whose network was cut, as it should | %d |
`

func (d *disturbances) write(page string, began time.Time, seed uint64) error {
	rows, all := "", 0
	for _, k := range slices.Concat(ofMembers, []disturbance{burns, longDead, flaps}, ofHub) {
		rows += fmt.Sprintf("| %s | %d |\n", k.name, d.happened[k.name])
		all += d.happened[k.name]
	}
	text := fmt.Sprintf(faultsPage, began.UTC().Format("2 January 2006"), runtime.NumCPU(),
		time.Since(began).Round(time.Minute), seed, rows, all, len(d.wrongly), d.rightly)
	return os.WriteFile(page, []byte(text), 0o644)
}
