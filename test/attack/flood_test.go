package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
)

// flood is a load that the attacker makes. It returns when the attacker has nothing more to send.
type flood struct {
	name string
	run  func(ctx context.Context, w *world) (sent int)
	undo func(ctx context.Context, w *world)
}

// together has so many workers do the same for every number below n, and returns how many writes the hub took.
func together(ctx context.Context, workers, n int, do func(i int) bool) int {
	var next, taken atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if do(i) {
					taken.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(taken.Load())
}

func took(code int, _ string) bool { return code/100 == 2 }

// deleteAll deletes the attacker's records whose names begin so.
func deleteAll(ctx context.Context, w *world, resource, format string, n int) {
	together(ctx, 16, n, func(i int) bool { return took(w.ask(ctx, remove(resource, fmt.Sprintf(format, i)))) })
}

var floods = []flood{
	{"200 writes a second of one record", func(ctx context.Context, w *world) int {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		o := endpointsOf(thief, open, "honest", "flapping", "10.66.9.1")
		sent := 0
		_ = w.done(ctx, create("endpointrecords", o))
		for i := range 4000 {
			<-tick.C
			o.spec("revision", i+2).spec("endpoints", endpoints(fmt.Sprintf("10.66.9.%d", i%250+1)))
			if took(w.ask(ctx, w.update(ctx, "endpointrecords", o))) {
				sent++
			}
		}
		return sent
	}, func(ctx context.Context, w *world) {
		_ = w.withdraw(ctx, endpointsOf(thief, open, "honest", "flapping"))
	}},
	{"50 MB of endpoints", func(ctx context.Context, w *world) int {
		return together(ctx, 8, 100, func(i int) bool {
			o := endpointsOf(thief, open, "honest", fmt.Sprintf("big-%d", i))
			o.spec("endpoints", many(1000, func(j int) object {
				return object{
					"address": fmt.Sprintf("10.67.%d.%d", j/250, j%250+1),
					"podName": strings.Repeat("p", 253),
					"hostname": fmt.Sprintf(
						"h-%s-%d-%d",
						strings.Repeat("h", 40),
						i,
						j,
					),
					"zone": strings.Repeat("z", 63),
				}
			}))
			return took(w.ask(ctx, create("endpointrecords", o)))
		})
	}, func(ctx context.Context, w *world) { deleteAll(ctx, w, "endpointrecords", "big-%d."+thief, 100) }},
	{"10,000 names", func(ctx context.Context, w *world) int {
		return together(ctx, 16, 10_000, func(i int) bool {
			return took(w.ask(ctx, create("serviceexportrecords", exportOf(thief, open, fmt.Sprintf("n%d", i)))))
		})
	}, func(ctx context.Context, w *world) {
		deleteAll(ctx, w, "serviceexportrecords", "n%d.open."+thief, 10_000)
	}},
}

// TestFloodsDoNotDelayTheVictims: from a change of endpoints in one victim to its import in the other.
func TestFloodsDoNotDelayTheVictims(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	before := w.states(t)
	watched := w.watchImports(t)
	quiet := watched.measure(ctx, t, func(n int) bool { return n < 100 })
	p99 := quiet.p99()
	t.Logf("quiet: %v", quiet)
	for _, f := range floods {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			var sent atomic.Int64
			done := make(chan struct{})
			began := time.Now()
			go func() { defer close(done); sent.Store(int64(f.run(ctx, w))) }()
			during := watched.measure(ctx, t, func(n int) bool {
				select {
				case <-done:
					return n < 20
				default:
					return true
				}
			})
			t.Logf("%s: %d writes taken in %v; %v", f.name, sent.Load(), time.Since(began).Round(time.Second), during)
			if got := during.p99(); got > 2*p99 {
				t.Errorf(
					"the 99th percentile is %v during the flood, and %v without; at most twice that is allowed",
					got,
					p99,
				)
			}
			f.undo(ctx, w)
		})
	}
	w.settle(t)
	w.compare(t, before)
}

// spread are times of changes.
type spread []time.Duration

func (s spread) p99() time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[len(sorted)*99/100]
}

func (s spread) String() string {
	sorted := slices.Sorted(slices.Values(s))
	return fmt.Sprintf("%d changes, median %v, p99 %v, longest %v", len(s), sorted[len(s)/2].Round(time.Millisecond),
		s.p99().Round(time.Millisecond), sorted[len(s)-1].Round(time.Millisecond))
}

// importWatch is a watch of b's slices of db, which a exports.
type importWatch struct {
	a    *victim
	seen chan string
}

func (w *world) watchImports(t *testing.T) *importWatch {
	t.Helper()
	cfg, err := w.victims[1].Cluster.RESTConfig()
	must(t, err)
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: agent.Scheme()})
	must(t, err)
	events, err := c.Watch(t.Context(), &discoveryv1.EndpointSliceList{}, client.InNamespace(shop),
		client.MatchingLabels{mcsv1beta1.LabelServiceName: "db"})
	must(t, err)
	i := &importWatch{a: w.victims[0], seen: make(chan string, 1000)}
	go func() {
		for e := range events.ResultChan() {
			if s, ok := e.Object.(*discoveryv1.EndpointSlice); ok && e.Type != watch.Deleted && len(s.Endpoints) > 1 {
				i.seen <- s.Endpoints[1].Addresses[0]
			}
		}
	}()
	return i
}

// measure changes the second endpoint of db again and again while on says so, and restores it.
func (i *importWatch) measure(ctx context.Context, t *testing.T, on func(n int) bool) (out spread) {
	t.Helper()
	var slice discoveryv1.EndpointSlice
	must(t, i.a.Get(ctx, client.ObjectKey{Namespace: shop, Name: "db-1"}, &slice))
	original := slice.DeepCopy().Endpoints
	for n := 0; on(n); n++ {
		address := fmt.Sprintf("10.3.%d.%d", n/250%250, n%250+1)
		slice.Endpoints = append(original[:1:1], discoveryv1.Endpoint{Addresses: []string{address}})
		began := time.Now()
		must(t, i.a.Update(ctx, &slice))
		for seen := ""; seen != address; {
			select {
			case seen = <-i.seen:
			case <-time.After(limit):
				t.Fatalf("%s did not arrive within %v", address, limit)
			}
		}
		out = append(out, time.Since(began))
	}
	slice.Endpoints = original
	must(t, i.a.Update(ctx, &slice))
	return out
}
