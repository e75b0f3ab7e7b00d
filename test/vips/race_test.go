package vips

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// races is how many imports TestBRaces makes: all of them with CHAOS=1.
func races() int {
	if os.Getenv("CHAOS") != "" {
		return 500
	}
	return 40
}

// TestBRaces: imports are made, some of one family at first, while ordinary Services come and go as fast as they can, in each mode, and the
// agent is killed at random. No address has two owners, as the API server's audit log tells; no ordinary Service is refused; nothing leaks; and
// every ordinary Service in an exclusive range is a counted swap loss. In the other modes the API server's own choice is of the same addresses as the agent's.
func TestBRaces(t *testing.T) {
	own := strings.Split(serviceRanges, ",")
	for _, c := range []struct {
		mode               ipam.Mode
		blocks, ranges, in []string
	}{
		{ipam.ModeShared, nil, nil, own},
		{ipam.ModePreferred, []string{"10.244.0.0/22", "fd00:244::/118"}, []string{"10.244.0.0/22", "fd00:244::/118"}, slices.Concat(own, []string{"10.244.0.0/22", "fd00:244::/118"})},
		{ipam.ModeExclusive, []string{"10.242.0.0/22", "fd00:242::/118"}, []string{"10.242.0.0/24", "fd00:242::/120"}, []string{"10.242.0.0/22", "fd00:242::/118"}},
	} {
		t.Run(string(c.mode), func(t *testing.T) {
			e := start(t)
			ns, plain := e.namespace(t), e.namespace(t, "plain")
			e.mode(t, c.mode, c.blocks...)
			for _, one := range c.ranges {
				e.wantRange(t, one)
			}
			e.race(t, ns, plain, c.in)
			if c.mode == ipam.ModeExclusive {
				e.Agent.Kill()
				if err := e.Agent.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				inside := e.ordinaryIn(t, c.blocks...)
				e.wantMetric(t, e.series("swap_losses_total"), is(strconv.Itoa(len(inside)))) // a new process counts what it finds
				t.Logf("%d ordinary Services in the blocks", len(inside))
				for _, one := range slices.Sorted(maps.Keys(e.ours(t))) {
					e.wantFence(t, one)
				}
			}
			e.wantNoLeak(t, c.in...)
		})
	}
}

// race makes imports in one namespace and ordinary Services in another, while the agent is killed; their VIPs are to be in these ranges.
func (e *env) race(t *testing.T, ns, plain string, in []string) {
	t.Helper()
	began, n := time.Now(), races()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var others, exports sync.WaitGroup
	made := make([]int, 2)
	for worker := range made {
		others.Go(func() { made[worker] = e.churn(ctx, t, plain, worker) })
	}
	others.Go(func() { e.killAtRandom(ctx, t) })
	for worker := range 4 {
		exports.Go(func() {
			for i := worker; i < n; i += 4 {
				name, families := fmt.Sprint("web-", i), both
				if i%5 == 0 {
					families = v4
				}
				if err := e.Create(t.Context(), service(ns, name, families)); err != nil {
					t.Error(err)
				}
				if err := e.Create(t.Context(), &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	exports.Wait()
	for i := 0; i < n; i += 5 {
		name := fmt.Sprint("web-", i)
		e.wantVIPs(t, ns, name, v4)
		if err := e.Patch(t.Context(), service(ns, name, both), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ipFamilyPolicy":"RequireDualStack"}}`))); err != nil {
			t.Fatal(err)
		}
	}
	e.wantAllReady(t, ns, n, in)
	stop()
	others.Wait()
	t.Logf("%d imports beside %d ordinary Services in %s", n, made[0]+made[1], time.Since(began).Round(time.Second))

	e.wantOneOwnerEach(t, plain, began, map[string]int{ns: 2 * n, plain: made[0] + made[1] + 1})
}

// churn makes and deletes ordinary Services, and leaves the last.
func (e *env) churn(ctx context.Context, t *testing.T, ns string, worker int) (made int) {
	families := [][]corev1.IPFamily{v4, both, v6}
	for ; ctx.Err() == nil; made++ {
		if err := e.Create(t.Context(), service(ns, fmt.Sprintf("plain-%d-%d", worker, made), families[made%3])); err != nil {
			t.Errorf("an ordinary Service was refused: %v", err)
			return made
		}
		if made < 20 {
			continue
		}
		old := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("plain-%d-%d", worker, made-20)}}
		if err := e.Delete(t.Context(), old); err != nil {
			t.Error(err)
		}
	}
	return made
}

// killAtRandom ends the agent as a crash does, and starts it again, until ctx ends. Each is ready before its time counts: on a busy machine
// none would live long enough to do anything else.
func (e *env) killAtRandom(ctx context.Context, t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed of the kills: %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second + time.Duration(rng.IntN(4000))*time.Millisecond):
		}
		e.Agent.Kill()
		if err := errors.Join(e.Agent.Start(t.Context()), e.Agent.UntilReady(t.Context())); err != nil {
			t.Error(err)
			return
		}
	}
}

// wantAllReady waits until n imports of a namespace have a VIP of each family in these ranges.
func (e *env) wantAllReady(t *testing.T, ns string, n int, in []string) {
	t.Helper()
	var deadline time.Time
	for ready, most := 0, -1; ready < n; time.Sleep(100 * time.Millisecond) {
		if ready > most { // there is progress
			most, deadline = ready, time.Now().Add(limit)
		}
		var list mcsv1beta1.ServiceImportList
		if err := e.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		ready = 0
		for i := range list.Items {
			if len(list.Items[i].Spec.IPs) == 2 {
				ready++
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d imports have VIPs", ready, n)
		}
	}
	for i := range n {
		wantIn(t, e.wantVIPs(t, ns, fmt.Sprint("web-", i), both), in...)
	}
}

// wantNoLeak waits until every IPAddress of the blocks is a Service's that has it, or a reservation, and every reservation is of a fence.
// The grace is a minute, and so is a patrol.
func (e *env) wantNoLeak(t *testing.T, prefixes ...string) {
	t.Helper()
	leaks := func() (out []string) {
		var services corev1.ServiceList
		var addresses networkingv1.IPAddressList
		var cidrs networkingv1.ServiceCIDRList
		if err := e.List(t.Context(), &addresses); err != nil {
			t.Fatal(err)
		}
		if err := e.List(t.Context(), &cidrs, client.MatchingLabels{ipam.LabelVIPs: string(ipam.Exclusive)}); err != nil {
			t.Fatal(err)
		}
		var fences []string
		for i := range cidrs.Items {
			fences = append(fences, cidrs.Items[i].Spec.CIDRs...)
		}
		if err := e.List(t.Context(), &services); err != nil {
			t.Fatal(err)
		}
		has := map[string]string{}
		for i := range services.Items {
			for _, ip := range services.Items[i].Spec.ClusterIPs {
				has[ip] = services.Items[i].Namespace + "/" + services.Items[i].Name
			}
		}
		for i := range addresses.Items {
			ip := &addresses.Items[i]
			inside := func(p string) bool { return netip.MustParsePrefix(p).Contains(netip.MustParseAddr(ip.Name)) }
			in := slices.ContainsFunc(prefixes, inside)
			ref := ip.Spec.ParentRef
			if ref.Namespace == spoiled { // two Services of one address, on purpose
				continue
			}
			if ref.Resource == "servicecidrs" && !slices.ContainsFunc(fences, inside) {
				out = append(out, fmt.Sprintf("%s of the fence of %s", ip.Name, ref.Name))
			}
			if in && ip.Labels[networkingv1.LabelManagedBy] != kube.Manager && has[ip.Name] != ref.Namespace+"/"+ref.Name {
				out = append(out, fmt.Sprintf("%s of %s/%s", ip.Name, ref.Namespace, ref.Name))
			}
		}
		return out
	}
	deadline := time.Now().Add(3 * time.Minute)
	for {
		left := leaks()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("leaked: %v", left)
		}
		time.Sleep(time.Second)
	}
}

// life is when a Service had an address, as far as the audit log tells for sure: from the answer to the request that gave it one to the request
// that took it away.
type life struct {
	of         string
	from, till time.Time
}

// wantOneOwnerEach reads the audit log: no two Services had one address at a time. made is how many Services were made at least, by namespace,
// with the last.
func (e *env) wantOneOwnerEach(t *testing.T, ns string, since time.Time, made map[string]int) {
	t.Helper()
	const last = "last"
	e.create(t, service(ns, last, v4))
	var there corev1.ServiceList
	if err := e.List(t.Context(), &there); err != nil {
		t.Fatal(err)
	}
	var o *owners
	eventually(t, "audit of every Service", func() error { // it is written behind
		o = newOwners()
		err := e.audit(func(event *request) {
			if !event.RequestReceivedTimestamp.Time.Before(since) {
				o.see(event)
			}
		})
		if err == nil && o.now[ns+"/"+last] == nil {
			err = errors.New("it does not tell")
		}
		o.find(there.Items)
		if err == nil {
			err = o.lacks(made)
		}
		return err
	})
	if o.grown == 0 {
		t.Error("the audit log tells of no Service that got an address later than it was made")
	}
	for _, two := range o.doubled() {
		t.Error(two)
	}
	if o.broken > 0 {
		t.Errorf("the API server broke off %d creations: it saw that the agent was killed", o.broken)
	}
	t.Logf("audit: Services created %v, %d of them by one who died meanwhile, %d times one more address, %d addresses in all", o.created, o.orphans, o.grown, len(o.lives))
}

// owners are what the audit log has told.
type owners struct {
	lives   map[string][]*life          // by address
	now     map[string]map[string]*life // by Service and address
	created map[string]int              // by namespace
	grown   int
	// unanswered is when a creation by Service failed that may have been carried out: whoever asked for it died meanwhile, and the API server
	// broke it off, maybe behind etcd's back. orphans are those that were.
	unanswered map[string]time.Time
	orphans    int
	broken     int // how many creations the API server did not end, as when it sees that its client left
}

func newOwners() *owners {
	return &owners{lives: map[string][]*life{}, now: map[string]map[string]*life{}, created: map[string]int{}, unanswered: map[string]time.Time{}}
}

func (o *owners) see(event *request) {
	if event.ObjectRef.Resource != "services" || event.ObjectRef.Subresource != "" || strings.Contains(event.RequestURI, "dryRun") {
		return
	}
	name := event.ObjectRef.Namespace + "/" + event.ObjectRef.Name
	if event.Verb == "create" && event.ResponseStatus.Code >= http.StatusInternalServerError {
		o.unanswered[name] = event.StageTimestamp.Time
	}
	if event.Verb == "create" && event.ResponseStatus.Code == http.StatusGatewayTimeout {
		o.broken++
	}
	if event.ResponseStatus.Code/100 != 2 {
		return
	}
	held := o.now[name]
	grows := held != nil && event.Verb != "create"
	switch event.Verb {
	case "create":
		held = o.made(event.ObjectRef.Namespace, name)
	case "update", "patch":
		if held == nil && o.unanswered[name].IsZero() { // made before anything was read, or told of after its end
			return
		}
		if held == nil {
			o.orphans++
			held = o.made(event.ObjectRef.Namespace, name)
		}
	case "delete":
		delete(o.now, name)
	default:
		return
	}
	for ip, one := range held {
		if !slices.Contains(event.ResponseObject.Spec.ClusterIPs, ip) { // the answer to a deletion is not logged
			one.till = event.RequestReceivedTimestamp.Time
			delete(held, ip)
		}
	}
	for _, ip := range event.ResponseObject.Spec.ClusterIPs {
		if held[ip] != nil {
			continue
		}
		if grows {
			o.grown++
		}
		o.live(held, name, ip, event.StageTimestamp.Time)
	}
}

// made counts a Service, and returns its addresses.
func (o *owners) made(ns, name string) map[string]*life {
	o.created[ns]++
	delete(o.unanswered, name)
	if o.now[name] == nil {
		o.now[name] = map[string]*life{}
	}
	return o.now[name]
}

func (o *owners) live(held map[string]*life, name, ip string, from time.Time) {
	held[ip] = &life{of: name, from: from, till: from.Add(24 * time.Hour)}
	o.lives[ip] = append(o.lives[ip], held[ip])
}

// find takes those that are there, though nobody was told that they were made, nor changed them since.
func (o *owners) find(there []corev1.Service) {
	for i := range there {
		svc := &there[i]
		name := svc.Namespace + "/" + svc.Name
		from := o.unanswered[name]
		if from.IsZero() || o.now[name] != nil {
			continue
		}
		o.orphans++
		held := o.made(svc.Namespace, name)
		for _, ip := range svc.Spec.ClusterIPs {
			o.live(held, name, ip, from)
		}
	}
}

// lacks says where fewer Services were created than were made: a log whose beginning is gone proves nothing.
func (o *owners) lacks(made map[string]int) error {
	for ns, want := range made {
		if got := o.created[ns]; got < want {
			return fmt.Errorf("it tells of %d Services made in %q, want %d", got, ns, want)
		}
	}
	return nil
}

// doubled are the addresses that two Services had at a time.
func (o *owners) doubled() (out []string) {
	for ip, all := range o.lives {
		for i, one := range all {
			for _, other := range all[:i] {
				if one.from.Before(other.till) && other.from.Before(one.till) {
					out = append(out, fmt.Sprintf("%s was %s's and %s's at a time", ip, one.of, other.of))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// TestTwoOwnersAreSeen: the check of TestBRaces, by an audit log in which addresses are given out again after their Services were deleted, or
// gave them up, and others while their Services were there, which got one of them later than they were made, or were made though nobody was told so.
func TestTwoOwnersAreSeen(t *testing.T) {
	o := newOwners()
	for i, line := range []struct {
		code            int
		verb, name, ips string
	}{
		{201, "create", "a", "10.0.0.1"}, {201, "create", "b", "10.0.0.2"}, {200, "delete", "a", ""}, {201, "create", "c", "10.0.0.1"}, {201, "create", "d", "10.0.0.2"}, {200, "delete", "b", ""},
		{200, "update", "c", "10.0.0.1 fd00::1"}, {201, "create", "e", "fd00::1"}, {200, "patch", "d", "10.0.0.2 fd00::2"}, {200, "update", "d", "10.0.0.2"}, {201, "create", "f", "fd00::2"},
		{200, "delete", "f", ""}, {200, "update", "f", "fd00::2 10.0.0.3"}, {201, "create", "g", "10.0.0.3"}, // told of late
		{504, "create", "h", ""}, {200, "update", "h", "10.0.0.4"}, {201, "create", "i", "10.0.0.4"}, // carried out, which an update tells
		{504, "create", "j", ""}, {201, "create", "k", "10.0.0.5"}, // carried out, which nobody tells
		{504, "create", "l", ""}, {201, "create", "l", "10.0.0.6"}, {504, "create", "m", ""}, {422, "create", "n", ""}, // not carried out
	} {
		event := &request{Verb: line.verb}
		event.ObjectRef.Resource, event.ObjectRef.Name, event.ResponseStatus.Code = "services", line.name, line.code
		event.ResponseObject.Spec.ClusterIPs = strings.Fields(line.ips)
		event.RequestReceivedTimestamp.Time = time.UnixMilli(int64(200 * i))
		event.StageTimestamp.Time = time.UnixMilli(int64(200*i + 100))
		o.see(event)
	}
	for name, ip := range map[string]string{"j": "10.0.0.5", "k": "10.0.0.5", "l": "10.0.0.6", "n": "10.0.0.6"} {
		svc := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
		svc.Spec.ClusterIPs = []string{ip}
		o.find([]corev1.Service{svc})
	}
	want := []string{"10.0.0.2 was /d's and /b's at a time", "10.0.0.4 was /i's and /h's at a time", "10.0.0.5 was /j's and /k's at a time", "fd00::1 was /e's and /c's at a time"}
	if got := o.doubled(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if all, more := o.lacks(map[string]int{"": 12}), o.lacks(map[string]int{"": 13}); all != nil || more == nil || o.orphans != 2 || o.grown != 2 {
		t.Errorf("of 12 Services: %v; of 13: %v; %d of those who died; %d grew", all, more, o.orphans, o.grown)
	}
}

// TestBAFenceDoesNotSlowOrdinaryServices: an API server that finds a fenced range full looks elsewhere, in the next range that it comes upon.
// Pairs of Services, one of the fenced family and one of the other, are made by turns, before a fence, with one, and with CHAOS=1 with as many
// as 10,000 VIPs have: these cost more, since the server walks each full range that it comes upon (docs/decisions/0007-ipam.md).
func TestBAFenceDoesNotSlowOrdinaryServices(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	e.mode(t, ipam.ModeShared)
	pairs := func(name string, n int) float64 {
		var ratios []float64
		for i := range n {
			var took [2]time.Duration
			for j, families := range [][]corev1.IPFamily{v4, v6} {
				svc := service(ns, fmt.Sprintf("%s-%d-%d", name, i, j), families)
				began := time.Now()
				if err := e.Create(t.Context(), svc); err != nil {
					t.Fatal(err)
				}
				took[j] = time.Since(began)
			}
			ratios = append(ratios, float64(took[0])/float64(took[1]))
		}
		slices.Sort(ratios)
		return ratios[n/2]
	}
	pairs("warm", 20)
	without := pairs("without", 120)
	e.mode(t, ipam.ModeExclusive)
	n := 0
	for _, c := range []struct {
		fences int
		most   float64
	}{{1, 1.2}, {40, 2}} {
		if c.fences > 1 && os.Getenv("CHAOS") == "" {
			break
		}
		was := n
		for ; n < c.fences; n++ {
			e.create(t, cidr(fmt.Sprint("fenced-", n), ipam.Exclusive, fmt.Sprintf("10.243.%d.0/24", n)))
		}
		for i := was; i < n; i++ {
			e.wantFence(t, fmt.Sprintf("10.243.%d.0/24", i))
			e.wantReady(t, fmt.Sprint("fenced-", i))
		}
		with := pairs(fmt.Sprint("with-", n), 120)
		t.Logf("the median of IPv4 to IPv6 is %.3f without a fence and %.3f with %d of IPv4: %.3f times", without, with, n, with/without)
		if with > c.most*without {
			t.Errorf("ordinary creation takes %.2f times as long with %d fences", with/without, n)
		}
	}
}

// wantReady waits until the API server gives out of a range, as far as it is not fenced.
func (e *env) wantReady(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is Ready", func() error {
		c := &networkingv1.ServiceCIDR{}
		if err := e.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
			return fmt.Errorf("%+v", c.Status.Conditions)
		}
		return nil
	})
}
