package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// flood is what the attacker writes again and again, until what is measured beside it is done.
type flood struct {
	name string
	rate int // writes a second; 0: as many as the hub takes
	size int // octets after which it ends; 0: it goes on
	// slack is what a change of the victims may take in any case: the hub, the victims and the attacker share this
	// machine.
	slack time.Duration
	// next returns a worker's next write, from what the hub answered to its last one.
	next func(worker, i int, answer string) request
}

// workers is how many requests of the attacker are under way at a time.
const workers = 16

var floods = []flood{
	{"change the endpoints of a name that all import, 200 times a second", 200, 0, time.Second,
		func(worker, i int, answer string) request {
			at := fmt.Sprintf("10.67.%d.%d", worker, i%250+1)
			o := endpointsOf(thief, open, "honest", fmt.Sprint("flood-", worker), at).spec("revision", i+1)
			var last struct {
				Metadata struct{ ResourceVersion string }
			}
			if json.Unmarshal([]byte(answer), &last) != nil || last.Metadata.ResourceVersion == "" {
				return create("endpointrecords", o)
			}
			return replace("endpointrecords", o.meta("resourceVersion", last.Metadata.ResourceVersion))
		}},
	{"create 50 MB of records with 1,000 endpoints each", 0, 50 << 20,
		5 * time.Second, // the watches of the victims carry the 50 MB before the change
		func(worker, i int, _ string) request {
			o := endpointsOf(thief, nowhere, "web", fmt.Sprintf("large-%d-%d", worker, i))
			return create("endpointrecords", o.spec("endpoints", many(1000, func(n int) object {
				return object{
					"address":  fmt.Sprintf("10.68.%d.%d", n/250, n%250+1),
					"hostname": fmt.Sprintf("h%d-%s", n, strings.Repeat("x", 55)),
					"nodeName": fmt.Sprintf("n%d-%s", n, strings.Repeat("x", 55)),
				}
			})))
		}},
	{"export as many names as the hub takes", 0, 0, time.Second,
		func(worker, i int, _ string) request {
			return create("serviceexportrecords", exportOf(thief, nowhere, fmt.Sprintf("web-%d-%d", worker, i)))
		}},
}

// TestFloodsDelayNobody: while the attacker writes all that it can, a change of the victims' endpoints takes at most
// twice what it takes in peace, or the slack, and their Leases are renewed.
func TestFloodsDelayNobody(t *testing.T) {
	w := start(t)
	quiet := w.changes(t)
	t.Logf("in peace: %s", quiet)
	for _, f := range floods {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var writes, refused, octets atomic.Int64
			var all sync.WaitGroup
			for worker := range workers {
				all.Go(func() {
					pause := time.NewTicker(max(1, workers*time.Second/time.Duration(max(1, f.rate))))
					defer pause.Stop()
					answer := ""
					for i := 0; ctx.Err() == nil && (f.size == 0 || octets.Load() < int64(f.size)); i++ {
						r := f.next(worker, i, answer)
						var code int
						if code, answer = w.ask(ctx, r); code/100 == 2 {
							writes.Add(1)
							octets.Add(int64(len(r.body)))
						} else if ctx.Err() == nil {
							refused.Add(1)
						}
						if f.rate > 0 {
							<-pause.C
						}
					}
				})
			}
			began := time.Now()
			under := w.changes(t)
			took := time.Since(began)
			stop()
			all.Wait()
			t.Logf("under it: %s; %d writes and %d MB in %v, %d were refused",
				under, writes.Load(), octets.Load()>>20, took.Round(time.Second), refused.Load())
			if bar := max(2*quiet.p99, f.slack); under.p99 > bar {
				t.Errorf("a change takes up to %v, more than %v", under.p99, bar)
			}
			if f.rate > 0 && writes.Load() < int64(took.Seconds()*float64(f.rate)/2) {
				t.Error("the attacker wrote less than half of what the flood should have")
			}
			for _, v := range w.victims {
				lease := &coordinationv1.Lease{}
				must(t, w.hub.Get(t.Context(), client.ObjectKey{Namespace: lab.HubNamespace, Name: v.ID}, lease))
				if late := time.Since(lease.Spec.RenewTime.Time); late > 20*time.Second {
					t.Errorf("%s has not renewed its Lease for %v", v.ID, late)
				}
			}
		})
	}
}

// delays are those of changes, from a cluster's EndpointSlice to another's.
type delays struct{ p50, p99 time.Duration }

func (d delays) String() string {
	return fmt.Sprintf("p50 %v, p99 %v", d.p50.Round(time.Millisecond), d.p99.Round(time.Millisecond))
}

// changes measures fifty changes of a victim's endpoints at least, and for ten seconds at least.
func (w *world) changes(t *testing.T) delays {
	t.Helper()
	from, to := w.victims[0], w.victims[1]
	address := func(a string) {
		t.Helper()
		slice := &discoveryv1.EndpointSlice{}
		must(t, from.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "web-1"}, slice))
		slice.Endpoints[1].Addresses = []string{a}
		must(t, from.Update(t.Context(), slice))
		must(t, until(t.Context(), to.ID+": "+a, func() error {
			got, err := to.addresses(t.Context(), shop, "web")
			if err == nil && !slices.Contains(got, a) {
				err = fmt.Errorf("it has %v", got)
			}
			return err
		}))
	}
	var took []time.Duration
	for began := time.Now(); len(took) < 50 || time.Since(began) < 10*time.Second; {
		at := time.Now()
		address(fmt.Sprintf("10.1.%d.%d", len(took)/250+1, len(took)%250+1))
		took = append(took, time.Since(at))
	}
	address("10.1.0.2")
	slices.Sort(took)
	return delays{took[len(took)/2], took[len(took)*99/100]}
}
