package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
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
	needs []object // created before it begins
	// next returns a worker's next write, from what the hub answered to its last one.
	next func(worker, i int, answer string) request
}

// workers is how many requests of the attacker are under way at a time.
const workers = 16

var floods = []flood{
	{"change the endpoints of a name that all import, 200 times a second", 200, 0, time.Second,
		[]object{exportOf(thief, open, "flood").spec("pages", workers)},
		func(worker, i int, answer string) request {
			at := fmt.Sprintf("10.67.%d.%d", worker, i%250+1)
			o := pageOf(thief, open, "flood", int32(worker), at).spec("revision", i+1)
			var last struct {
				Metadata struct{ ResourceVersion string }
			}
			if json.Unmarshal([]byte(answer), &last) != nil || last.Metadata.ResourceVersion == "" {
				return create("endpointpages", o)
			}
			return replace("endpointpages", o.meta("resourceVersion", last.Metadata.ResourceVersion))
		}},
	{"create 50 MB of pages with 100 endpoints each", 0, 50 << 20,
		5 * time.Second, // the watches of the victims carry the 50 MB before the change
		nil,
		func(worker, i int, _ string) request {
			o := pageOf(thief, nowhere, fmt.Sprintf("large-%d-%d", worker, i/10000), int32(i%10000))
			return create("endpointpages", o.spec("endpoints", many(100, func(n int) object {
				return object{
					"address":  fmt.Sprintf("10.68.%d.%d", i%250, n+1),
					"hostname": fmt.Sprintf("h%d-%s", n, strings.Repeat("x", 55)),
					"podName":  fmt.Sprintf("p%d-%s", n, strings.Repeat("x", 55)),
				}
			})))
		}},
	{"export as many names as the hub takes", 0, 0, time.Second, nil,
		func(worker, i int, _ string) request {
			return create("serviceexportrecords", exportOf(thief, nowhere, fmt.Sprintf("web-%d-%d", worker, i)))
		}},
}

// TestFloodsDelayNobody: while the attacker writes all that it can, a change of the victims' endpoints takes at most
// twice what it takes in peace, or the slack, and their Leases are renewed.
func TestFloodsDelayNobody(t *testing.T) {
	w := start(t)
	quiet := w.quiet(t)
	for _, f := range floods {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			for _, o := range f.needs {
				must(t, w.done(t.Context(), create(resourceOf(o), o)))
			}
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
			under := w.changes(t, func() bool { return octets.Load() < int64(f.size) })
			took := time.Since(began)
			stop()
			all.Wait()
			t.Logf("under it: %s; %d writes and %d MB in %v, %d were refused",
				under, writes.Load(), octets.Load()>>20, took.Round(time.Second), refused.Load())
			if bar := max(2*quiet.p99, f.slack); under.p99 > bar {
				t.Errorf("a change takes up to %v, more than %v", under.p99, bar)
			}
			if least := max(10, float64(f.rate)/2) * took.Seconds(); f.size == 0 && writes.Load() < int64(least) ||
				octets.Load() < int64(f.size) {
				t.Error("the attacker wrote too little for a flood")
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

// quiet measures changes without an attack, with which those under one are compared.
func (w *world) quiet(t *testing.T) delays {
	t.Helper()
	d := w.changes(t, nil)
	t.Logf("in peace: %s", d)
	if d.p99 > lab.Patience {
		t.Fatalf("on this machine a change takes %s without an attack", d)
	}
	return d
}

// changes measures fifty changes of a victim's endpoints at least, for ten seconds at least, and while more is true.
func (w *world) changes(t *testing.T, more func() bool) delays {
	t.Helper()
	from, to := w.victims[0], w.victims[1]
	address := func(a string) {
		t.Helper()
		must(t, from.moveTo(t.Context(), a))
		must(t, until(t.Context(), to.ID+": "+a, func() error {
			got, err := to.addresses(t.Context(), shop, "web")
			if err == nil && !slices.Contains(got, a) {
				err = fmt.Errorf("it has %v", got)
			}
			return err
		}))
	}
	var took []time.Duration
	for began := time.Now(); len(took) < 50 || time.Since(began) < 10*time.Second ||
		more != nil && more() && time.Since(began) < limit; {
		at := time.Now()
		address(fmt.Sprintf("10.1.%d.%d", len(took)/250+1, len(took)%250+1))
		took = append(took, time.Since(at))
	}
	address("10.1.0.2")
	slices.Sort(took)
	return delays{took[len(took)/2], took[len(took)*99/100]}
}

// endless is how many requests of the attacker are open at a time at each of two priority levels: more than they have
// seats, with all that they can borrow.
const endless = 600

// TestRequestsThatNeverEndExpireNobody: for longer than a Lease lasts, the attacker keeps every seat that it can get at
// the levels of renewals and of records, by requests whose bodies never end. Renewals and changes of the victims wait,
// but nobody loses an endpoint: an agent that does not see its own renewals counts nobody's silence
// (docs/decisions/0009-whose-time.md). All goes on when it ends.
func TestRequestsThatNeverEndExpireNobody(t *testing.T) {
	const lasts = 2 * time.Minute
	w := start(t)
	quiet := w.quiet(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var opened, answered atomic.Int64
	var all sync.WaitGroup
	collection := "/namespaces/" + lab.HubNamespace + "/"
	for _, target := range []struct{ method, path string }{
		{http.MethodPut, "/apis/coordination.k8s.io/v1" + collection + "leases/" + thief},
		{http.MethodPost, "/apis/hub.clusterset-dns.io/v1alpha1" + collection + "endpointpages"},
	} {
		var connection *http.Client
		for i := range endless {
			if i%80 == 0 { // an API server takes some 100 requests at a time by one connection
				config := rest.CopyConfig(w.config)
				config.Dial = (&net.Dialer{}).DialContext // else all of client-go's clients share one
				var err error
				connection, err = rest.HTTPClientFor(config)
				must(t, err)
			}
			through := connection
			all.Go(func() {
				for ctx.Err() == nil {
					opened.Add(1)
					leaveOpen(ctx, through, target.method, w.config.Host+target.path)
					answered.Add(1)
					select {
					case <-ctx.Done():
					case <-time.After(time.Second): // as Retry-After says
					}
				}
			})
		}
	}

	from, to := w.victims[0], w.victims[1]
	moved := func(address string) error {
		return until(t.Context(), "a change of "+from.ID+" in "+to.ID, func() error {
			got, err := to.addresses(t.Context(), shop, "web")
			if err == nil && !slices.Contains(got, address) {
				err = fmt.Errorf("it has %v", got)
			}
			return err
		})
	}
	must(t, from.moveTo(ctx, "10.1.9.1"))
	var late time.Duration
	for began := time.Now(); time.Since(began) < lasts; time.Sleep(200 * time.Millisecond) {
		// The API server refuses what its queues cannot take, some 200 a level and account.
		if open := opened.Load() - answered.Load(); open < 200 && time.Since(began) > 10*time.Second {
			t.Fatalf("only %d requests are open", open)
		}
		for _, v := range w.victims {
			lease := &coordinationv1.Lease{}
			must(t, w.hub.Get(ctx, client.ObjectKey{Namespace: lab.HubNamespace, Name: v.ID}, lease))
			late = max(late, time.Since(lease.Spec.RenewTime.Time))
			if got, err := v.addresses(ctx, shop, "web"); err != nil || len(got) != 3 {
				t.Fatalf("after %v %s has %v of web, %v: want 3 endpoints", time.Since(began), v.ID, got, err)
			}
		}
	}
	arrived := "arrived"
	if got, err := to.addresses(ctx, shop, "web"); err != nil || !slices.Contains(got, "10.1.9.1") {
		arrived = "did not arrive"
	}
	stop()
	all.Wait()
	ended := time.Now()
	must(t, moved("10.1.9.1"))
	must(t, from.moveTo(t.Context(), "10.1.0.2"))
	must(t, moved("10.1.0.2"))
	t.Logf("for %v a renewal was up to %v old, and a change %s; %d requests were opened; %v after it changes arrive",
		lasts, late.Round(time.Second), arrived, opened.Load(), time.Since(ended).Round(time.Second/10))
	if after := w.changes(t, nil); after.p99 > max(2*quiet.p99, time.Second) {
		t.Errorf("after it a change takes %s, before it took %s", after, quiet)
	}
}

// leaveOpen sends a request whose body does not end before ctx or the answer.
func leaveOpen(ctx context.Context, connection *http.Client, method, url string) {
	body, more := io.Pipe()
	defer body.Close()
	go func() {
		_, _ = more.Write([]byte(`{"apiVersion":`))
		<-ctx.Done()
		more.Close()
	}()
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return
	}
	r.Header.Set("Content-Type", "application/json")
	if answer, err := connection.Do(r); err == nil {
		answer.Body.Close()
	}
}

// moveTo changes the second endpoint of a victim's web.
func (v *victim) moveTo(ctx context.Context, address string) error {
	slice := &discoveryv1.EndpointSlice{}
	if err := v.Get(ctx, client.ObjectKey{Namespace: shop, Name: "web-1"}, slice); err != nil {
		return err
	}
	slice.Endpoints[1].Addresses = []string{address}
	return v.Update(ctx, slice)
}
