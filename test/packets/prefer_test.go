package packets

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// preference is the annotation of a ServiceExport, and of the ServiceImport (T2).
const preference = "clusterset-dns.io/preference"

// ready sets whether the cluster's own backends are.
func (c *cluster) ready(t *testing.T, namespace string, ready bool) {
	t.Helper()
	var names []string
	if ready {
		names = slices.Collect(maps.Keys(c.backends))
	}
	c.readyAre(t, namespace, names...)
}

// preferring exports a Service of a and b with prefer-local, and returns its VIP in each cluster.
func preferring(t *testing.T) (w *world, svc *corev1.Service, vip map[*cluster]netip.AddrPort) {
	t.Helper()
	w, ns := clusters(t)
	svc = service(ns, tcp("http", 80))
	prefers := func(c *cluster, what string, backends ...string) {
		t.Helper()
		c.create(t, svc.DeepCopy())
		c.create(t, c.endpoints(svc, backends...)...)
		e := export(svc)
		e.Annotations = map[string]string{preference: what}
		c.create(t, e)
	}
	prefers(w.a, "prefer-local", "a1", "a2")
	w.a.imported(t, ns, "a")
	prefers(w.b, "prefer-local", "b1")
	vip = map[*cluster]netip.AddrPort{}
	for _, c := range w.clusters {
		v4, v6 := c.vips(t, ns, "a", "b")
		vip[c] = netip.AddrPortFrom(v4, 80)
		if c == w.b {
			vip[c] = netip.AddrPortFrom(v6, 80)
		}
	}
	w.a.wantAnswers(t, "tcp", vip[w.a], own...)
	return w, svc, vip
}

// own are the backends of a, and others those that take over.
var own, others = []string{"a1:8080", "a2:8080"}, []string{"b1:8080"}

// handOver makes a's backends ready or not, and waits until those answer that are to; it returns how long the first
// right answer took.
func (c *cluster) handOver(t *testing.T, namespace string, to netip.AddrPort, ready bool) time.Duration {
	t.Helper()
	want := others
	if ready {
		want = own
	}
	began := time.Now()
	c.ready(t, namespace, ready)
	for {
		answer, err := c.pod.ask("tcp", netip.Addr{}, to)
		took := time.Since(began)
		if err == nil && slices.Contains(want, answer) {
			c.wantAnswers(t, "tcp", to, want...)
			return took
		}
		if took > limit {
			t.Fatalf("ready %v: after %v %q, %v", ready, limit, answer, err)
		}
		time.Sleep(5 * time.Millisecond) // asking takes the time of those who hand over
	}
}

const handOverPage = `# Hand-over of prefer-local

` + "`make bench-handover`" + ` wrote this page on %s, with a hub and three members on one machine of %d cores. Each has a real API
server, our agent and a real kube-proxy (nftables), with backends in network namespaces. The backends of one member
become unready, which is one write to each of two slices, and the others' take over its VIP. Then they become ready
again, and share the traffic with the others for 10 s more. A time is from before the writes to the first right answer
of a new connection, which is tried every 5 ms. All connections that are made meanwhile must be answered. The bar is a
p99 of 2 s, either way.

| what | times | p50 | p99 | max |
| --- | --- | --- | --- | --- |
| over: the own backends go unready, others answer | %s |
| back: they are ready again, and answer | %s |
`

// quantiles are how often it was, and how long it took.
func quantiles(took []time.Duration) []any {
	if len(took) == 0 {
		return []any{0, time.Duration(0), time.Duration(0), time.Duration(0)}
	}
	took = slices.Sorted(slices.Values(took))
	below := func(percent int) time.Duration { return took[(len(took)*percent+99)/100-1].Round(time.Millisecond) }
	return []any{len(took), below(50), below(99), below(100)}
}

// handOverTable is the page.
func handOverTable(at time.Time, over, back []time.Duration) string {
	row := func(took []time.Duration) string { return fmt.Sprintf("%d | %v | %v | %v", quantiles(took)...) }
	return fmt.Sprintf(handOverPage, at.UTC().Format("2 January 2006"), runtime.NumCPU(), row(over), row(back))
}

func TestT2OverAndBackHaveARowEach(t *testing.T) {
	took := func(milliseconds ...int) (out []time.Duration) {
		for _, n := range milliseconds {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	page := handOverTable(time.Now(), took(30, 10, 20), took(7, 5))
	for _, row := range []string{"| over: the own backends go unready, others answer | 3 | 20ms | 30ms | 30ms " +
		"|\n", "| back: they are ready again, and answer | 2 | 5ms | 7ms | 7ms |\n"} {
		if !strings.Contains(page, row) {
			t.Errorf("the page has no row %q:\n%s", row, page)
		}
	}
}

// handOverP99 is the bar of the page, which is written on a machine that does nothing else.
const handOverP99 = 2 * time.Second

// slowHandOvers returns which bars do not hold.
func slowHandOvers(over, back []time.Duration) (out []string) {
	for _, way := range []struct {
		name string
		took []time.Duration
	}{{"over", over}, {"back", back}} {
		if p99 := quantiles(way.took)[2].(time.Duration); p99 > handOverP99 {
			out = append(out, fmt.Sprintf("traffic is handed %s in %v at p99, bar %v", way.name, p99, handOverP99))
		}
	}
	return out
}

func TestT2SlowHandOversFail(t *testing.T) {
	all := func(took time.Duration) []time.Duration { return []time.Duration{took, took, took, took} }
	for _, tt := range []struct {
		name       string
		over, back time.Duration
		want       int
	}{
		{"quick", time.Second, time.Second, 0},
		{"one way", time.Second, 3 * time.Second, 1},
		{"both ways", 3 * time.Second, 3 * time.Second, 2},
	} {
		if got := slowHandOvers(all(tt.over), all(tt.back)); len(got) != tt.want {
			t.Errorf("%s: %q, want %d", tt.name, got, tt.want)
		}
	}
}

// times is how often a test repeats what it measures: as often as an environment variable says, for a percentile that
// means something.
func times(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 2 {
		t.Fatalf("%s=%q: want how often, 2 at least", variable, text)
	}
	return n
}

// TestT2HandOverFromListenersThatClose: as when the programs end before their kubelet says so. Questions fail only
// between the end of the listeners and the answers of the others alone, and those are refused, not lost. Nothing fails
// on the way back. How long a hand-over takes is logged.
func TestT2HandOverFromListenersThatClose(t *testing.T) {
	w, svc, vip := preferring(t)
	asking := newRecord(t)
	asking.renewed(w.a, "tcp", vip[w.a])
	type span struct{ from, to int } // questions that had an answer before it began and ended
	var down []span
	each := func(do func(*pod, int) error) {
		t.Helper()
		for _, name := range []string{"a1", "a2"} {
			if err := do(w.a.backends[name], 8080); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		from, closed := asking.attempts(), time.Now()
		each((*pod).hangUp)
		asking.more(3) // kubelet takes a moment to notice
		wrote := time.Now()
		took := w.a.handOver(t, svc.Namespace, vip[w.a], false)
		down = append(down, span{from, asking.attempts()}) // a1 and a2 may get some after the first right answer
		t.Logf(
			"handed over %v after the slices were written, %v after the listeners closed",
			took.Round(time.Millisecond),
			wrote.Add(took).Sub(closed).Round(time.Millisecond),
		)
		asking.more(20)
		each((*pod).listen)
		w.a.handOver(t, svc.Namespace, vip[w.a], true)
		asking.more(20)
	}
	bad := asking.stop()
	for _, a := range bad {
		within := func(s span) bool { return s.from < a.number && a.number <= s.to+1 } // one was under way at the end
		if lost := !refused(a.err) &&
			!errors.Is(a.err, syscall.ECONNRESET); lost ||
			!slices.ContainsFunc(down, within) {
			t.Errorf("it failed while somebody could answer: %v", a)
		}
	}
	if len(bad) == 0 {
		t.Error("no question failed: were the listeners closed?")
	}
}

// TestPreferLocalHandsOverAndBack (T2): a cluster with ready backends of its own uses those alone; when the last of
// them goes unready the others take over at once, and hand back, without a question that fails; a cluster without
// any uses everybody's. With local-only nobody
// takes over. How long a hand-over takes is reported.
func TestPreferLocalHandsOverAndBack(t *testing.T) {
	w, svc, vip := preferring(t)
	ns := svc.Namespace
	w.b.wantAnswers(t, "tcp", vip[w.b], others...)
	w.c.wantAnswers(t, "tcp", vip[w.c], "a1:8080", "a2:8080", "b1:8080")

	asking := newRecord(t)
	asking.renewed(w.a, "tcp", vip[w.a])
	asking.more(20)
	var over, back []time.Duration
	for range times(t, "HANDOVERS", 2) / 2 {
		over = append(over, w.a.handOver(t, ns, vip[w.a], false))
		back = append(back, w.a.handOver(t, ns, vip[w.a], true))
	}
	asking.more(20)
	if bad := asking.stop(); len(bad) > 0 {
		t.Errorf("%d questions failed while traffic was handed over and back", len(bad))
	}
	figures = append(
		figures,
		fmt.Sprintf(
			"packets: prefer-local, from the write of two slices to the first right answer: over %d times, p50 "+
				"%v, p99 %v, max %v; back %d times, p50 %v, p99 %v, max %v",
			append(quantiles(over), quantiles(back)...)...),
	)
	if page := os.Getenv("HANDOVER_PAGE"); page != "" {
		for _, slow := range slowHandOvers(over, back) {
			t.Error(slow)
		}
		if err := os.WriteFile(page, []byte(handOverTable(time.Now(), over, back)), 0o644); err != nil {
			t.Error(err)
		}
	}

	eventually(t, "the annotation is changed", func() error {
		e := &mcsv1beta1.ServiceExport{}
		if err := w.a.Get(t.Context(), client.ObjectKeyFromObject(export(svc)), e); err != nil {
			return err
		}
		e.Annotations[preference] = "local-only"
		return w.a.Update(t.Context(), e)
	})
	w.c.wantRefused(t, "tcp", vip[w.c])
	w.a.wantAnswers(t, "tcp", vip[w.a], own...)
	if got := w.b.imported(t, ns, "a", "b").Annotations[preference]; got != "local-only" {
		t.Errorf("b's import has the preference %q", got)
	}
	w.a.ready(t, ns, false)
	w.a.wantRefused(t, "tcp", vip[w.a])
	w.b.wantConflict(t, ns, "PreferenceConflict")
}
