package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// Bars of an outage of the hub, from its return.
const (
	barSync    = 60 * time.Second // the last member has all of the hub's state
	barRenewal = 20 * time.Second // the last member has renewed its Lease
)

// Bars of an agent at rest, in requests per second.
const (
	barLocal = .2  // writes to its own API server
	barHub   = .15 // requests to the hub, without those for watches
)

// calm is between two outages, and before the first.
const calm = 30 * time.Second

// later is how long the API server stays away, every other time.
const later = 20 * time.Second

// outage is one kill of the hub's API server.
type outage struct {
	killed, back time.Time
	marked       time.Duration   // from back until the hub took the first change
	version      string          // of that change
	synced       []time.Duration // by member, from back
	renewed      []time.Duration // by member, from back to its first renewal; 0 if that came before back
	between      time.Duration   // the longest time between two renewals of a member
	reached      time.Duration   // from back until the change was in member a
	spent        map[string]float64
	octets       int64
	curves       *curves
}

// outages measures how the members, a real one and the simulated ones, come back after the hub.
func (b *bench) outages(ctx context.Context, o *options) (out []*outage, lost int64, err error) {
	root, err := lab.Root()
	if err != nil {
		return nil, 0, err
	}
	if err := b.Hub.ApplyFolder(ctx, filepath.Join(root, "deploy/hub/controller")); err != nil {
		return nil, 0, err
	}
	kubeconfig, err := b.Hub.ServiceAccountKubeconfig(ctx, "clusterset-system", "clusterset-hub", nil)
	if err != nil {
		return nil, 0, err
	}
	hub, err := lab.StartHub(ctx, filepath.Join(root, "bin/clusterset-controller"), kubeconfig, lab.HubNamespace)
	if err != nil {
		return nil, 0, err
	}
	defer hub.Stop()
	if err := hub.UntilReady(ctx); err != nil {
		return nil, 0, err
	}
	if b.rest, err = b.atRest(ctx, b.Members[0]); err != nil {
		return nil, 0, err
	}
	crowd, err := b.gather(ctx, o)
	if err != nil {
		return nil, 0, err
	}
	defer crowd.stop()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watchers []*watcher
	for _, p := range crowd.peers {
		w, err := watchHub(watching, p.config)
		if err != nil {
			return nil, 0, err
		}
		watchers = append(watchers, w)
	}
	began := time.Now()
	for _, w := range watchers {
		if err := w.until(ctx, func() bool { return w.listedSince(began.Add(-time.Hour)) }); err != nil {
			return nil, 0, err
		}
	}
	var gone atomic.Int64
	if err := b.countDeletions(watching, b.Members[0], &gone); err != nil {
		return nil, 0, err
	}
	for i := range o.kills {
		one, err := b.outage(ctx, time.Duration(i%2)*later, crowd.peers, watchers)
		if err != nil {
			return nil, 0, err
		}
		out = append(out, one)
	}
	return out, gone.Load(), nil
}

// resting is how long requests are counted while nothing changes.
const resting = 3 * time.Minute

// requests are those of an agent per second.
type requests struct{ localWrites, hubWrites, hubReads float64 }

var clientRequests = regexp.MustCompile(`(?m)^rest_client_requests_total\{([^}]*)\} (\S+)$`)

// atRest counts the requests of a member's agent while nobody changes anything.
func (b *bench) atRest(ctx context.Context, m *lab.Member) (requests, error) {
	count := func() (r requests) {
		for _, found := range clientRequests.FindAllStringSubmatch(m.Agent.Metrics(), -1) {
			n, err := strconv.ParseFloat(found[2], 64)
			if err != nil {
				continue
			}
			toHub, read := strings.Contains(found[1], m.ToHub.Addr()), strings.Contains(found[1], `method="GET"`)
			switch {
			case toHub && read:
				r.hubReads += n
			case toHub:
				r.hubWrites += n
			case !read:
				r.localWrites += n
			}
		}
		return r
	}
	before := count()
	select {
	case <-ctx.Done():
		return requests{}, ctx.Err()
	case <-time.After(resting):
	}
	after, over := count(), resting.Seconds()
	if after.hubWrites == before.hubWrites {
		return requests{}, errors.New("the agent's metrics show no renewal on the hub")
	}
	return requests{
		(after.localWrites - before.localWrites) / over,
		(after.hubWrites - before.hubWrites) / over,
		(after.hubReads - before.hubReads) / over,
	}, nil
}

// countDeletions counts the imported slices that a member deletes.
func (b *bench) countDeletions(ctx context.Context, m *lab.Member, gone *atomic.Int64) error {
	cfg, err := config(m.Cluster.Kubeconfig())
	if err != nil {
		return err
	}
	set, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	informer := informers.NewSharedInformerFactoryWithOptions(set, 0, informers.WithNamespace(ns),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = mcsv1beta1.LabelSourceCluster }),
	).Discovery().V1().EndpointSlices().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { gone.Add(1) }})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// outage kills the hub's API server once, and starts it after a pause.
func (b *bench) outage(ctx context.Context, pause time.Duration, peers []*peer, watchers []*watcher) (*outage, error) {
	u := &outage{curves: sample(ctx, b.Hub.Etcd())}
	defer u.curves.stop()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(calm):
	}
	u.killed = time.Now()
	b.Hub.KillAPIServer()
	time.Sleep(pause)
	if err := b.Hub.StartAPIServer(ctx); err != nil {
		return nil, err
	}
	u.back = time.Now()
	before := u.curves.total()
	address := fmt.Sprintf("10.99.%d.%d", u.back.Unix()>>8&255, u.back.Unix()&255)
	rec := peers[0].records[0]
	rec.Spec.Revision++
	rec.Spec.Endpoints[0].Endpoints[0].Address = address
	var refused error
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			err := peers[0].client.Update(ctx, rec)
			if err != nil && (refused == nil || err.Error() != refused.Error()) {
				refused = err
				fmt.Fprintf(os.Stderr, "%v after its return the hub refuses a change: %v\n", time.Since(u.back), err)
			}
			return err == nil, nil
		},
	); err != nil {
		return nil, fmt.Errorf("the first change after the hub is back: %w; %w", err, refused)
	}
	u.marked, u.version = time.Since(u.back), rec.ResourceVersion
	var all sync.WaitGroup
	errs := make([]error, len(watchers)+1)
	u.synced = make([]time.Duration, len(watchers))
	for i, w := range watchers {
		all.Go(func() {
			errs[i] = w.until(ctx, func() (ok bool) { u.synced[i], ok = w.synced(u); return ok })
		})
	}
	all.Go(func() {
		errs[len(watchers)] = b.shows(ctx, b.Members[0], peers[0].id, address)
		u.reached = time.Since(u.back)
	})
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, p := range peers {
		first, between, err := p.renewedSince(ctx, u.killed)
		if err != nil {
			return nil, err
		}
		u.renewed = append(u.renewed, max(0, first.Sub(u.back)))
		u.between = max(u.between, between)
	}
	last := slices.Max(u.synced)
	if p := time.Until(u.back.Add(last + calm)); p > 0 {
		time.Sleep(p) // for the plot
	}
	u.spent = u.curves.since(before, u.back.Add(last))
	for _, w := range watchers {
		u.octets += w.octets.Swap(0)
	}
	fmt.Fprintf(os.Stderr, "back after %v; in sync after %v; renewed after %v; in member a after %v\n",
		u.back.Sub(u.killed), last, slices.Max(u.renewed), u.reached)
	return u, nil
}

// shows waits until a member has an address of another one.
func (b *bench) shows(ctx context.Context, m *lab.Member, from, address string) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			list := &discoveryv1.EndpointSliceList{}
			if err := b.clients[m].List(ctx, list, client.InNamespace(ns),
				client.MatchingLabels{mcsv1beta1.LabelSourceCluster: from}); err != nil {
				return false, err
			}
			return slices.ContainsFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
				return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
					return slices.Contains(e.Addresses, address)
				})
			}), nil
		})
}

// renewedSince waits for a renewal after a moment, and returns when it was and how long after the one before.
func (p *peer) renewedSince(ctx context.Context, moment time.Time) (first time.Time, between time.Duration, err error) {
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 5*time.Minute, true,
		func(context.Context) (bool, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			i := slices.IndexFunc(p.renewals, func(at time.Time) bool { return at.After(moment) })
			if i < 0 {
				return false, nil
			}
			first = p.renewals[i]
			if i > 0 {
				between = first.Sub(p.renewals[i-1])
			}
			return true, nil
		})
	return first, between, err
}

// hubPage is the page of the outages.
const hubPage = `# The hub is away and comes back, with %d members

` + "`make bench-hub`" + ` wrote this page on %s, on one machine of %d CPUs. The hub is a real control plane with our
controller. Member a is a real cluster with our agent and CoreDNS. The other %d are simulated: each has a
ServiceAccount, a connection, a Lease, %d records of endpoints and the five informers of an agent, which list and watch all
that is on the hub. They read their lists to the end and do not decode them, since real members do that on machines of
their own. All of them run on the CPUs of the hub.

The hub's API server is killed (SIGKILL), %d times in all. It is started again at once, and after 20 s every other
time. A member is in sync when it has listed each kind again, and has the first change that the hub took.

| from the hub's return | p50 | p99 | most | bar | holds |
| --- | --- | --- | --- | --- | --- |
`

// outagePage measures and writes the page, and its plot beside it.
func (b *bench) outagePage(ctx context.Context, o *options) error {
	o.rate = 0
	all, lost, err := b.outages(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(&b.table, hubPage, o.peers+1, time.Now().UTC().Format("2 January 2006"), runtime.NumCPU(), o.peers,
		o.each, o.kills)
	var synced, renewed, reached, marked []time.Duration
	var away, between []time.Duration
	for _, u := range all {
		synced, renewed = append(synced, u.synced...), append(renewed, u.renewed...)
		reached, marked = append(reached, u.reached), append(marked, u.marked)
		away, between = append(away, u.back.Sub(u.killed)), append(between, u.between)
	}
	row := func(what string, took []time.Duration, most time.Duration) {
		p50, p99 := quantiles(took)
		last, bound, holds := slices.Max(took), "", ""
		if most > 0 {
			bound = fmt.Sprintf("≤ %.0f s", most.Seconds())
			holds = b.missed.Holds(fmt.Sprintf("%s: %v, bar %v", what, last, most), last <= most)
		}
		fmt.Fprintf(&b.table, "| %s | %.1f s | %.1f s | %.1f s | %s | %s |\n",
			what, p50.Seconds(), p99.Seconds(), last.Seconds(), bound, holds)
	}
	row("a simulated member is in sync", synced, barSync)
	row("a simulated member has renewed its Lease", renewed, barRenewal)
	row("the hub takes a change of a record", marked, 0)
	row("a change made on the hub's return is in member a's EndpointSlice", reached, 0)
	fmt.Fprintf(&b.table, "\nThe API server was away for %s. The longest time between two renewals of a member "+
		"was %.1f s.\nMember a deleted %d imported EndpointSlices (bar: 0; holds: %s).\n",
		seconds(away), slices.Max(between).Seconds(), lost,
		b.missed.Holds(fmt.Sprintf("%d imported EndpointSlices deleted, bar 0", lost), lost == 0))
	fmt.Fprintf(&b.table, "\nAt rest, for %.0f minutes before the others joined, a's agent made %.2f writes a second "+
		"to its own\nAPI server (bar: ≤ %.2f; holds: %s). To the hub it made %.2f a second\n"+
		"(bar: ≤ %.2f; holds: %s), and %.2f requests for watches and lists.\n",
		resting.Minutes(),
		b.rest.localWrites, barLocal,
		b.missed.Holds(fmt.Sprintf("%.2f writes/s at rest, bar %.2f", b.rest.localWrites, barLocal),
			b.rest.localWrites <= barLocal),
		b.rest.hubWrites, barHub,
		b.missed.Holds(fmt.Sprintf("%.2f requests/s to the hub at rest, bar %.2f", b.rest.hubWrites, barHub),
			b.rest.hubWrites <= barHub),
		b.rest.hubReads)
	last := all[len(all)-1]
	fmt.Fprintf(&b.table, "\nFrom its return until all were in sync, the last time, the hub's API server used %.0f s "+
		"of CPU, its etcd %.0f s,\nand the simulated members, which discard what they read, %.0f s. They read %d MiB, "+
		"compressed.\n\n![CPUs of the hub, from the kill on](images/hub.svg)\n",
		last.spent["API server"], last.spent["etcd"], last.spent["simulated members"], last.octets>>20)
	if o.images == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(o.images, "hub.svg"), []byte(last.curves.plot(last)), 0o644)
}

func seconds(all []time.Duration) string {
	var out []string
	for _, d := range all {
		out = append(out, fmt.Sprintf("%.1f s", d.Seconds()))
	}
	return strings.Join(out, ", ")
}
