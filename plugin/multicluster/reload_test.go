package multicluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
)

func init() {
	plugin.Register("failshutdown", func(c *caddy.Controller) error {
		c.OnShutdown(func() error { return errors.New("as the test wants it") })
		return nil
	})
	dnsserver.Directives = append(dnsserver.Directives, "failshutdown", pluginName)
	dnsserver.Quiet, caddy.Quiet = true, true
}

// control is an API server without ServiceImports.
type control struct {
	*httptest.Server
	status   atomic.Int32 // of every answer; hold: none
	mu       sync.Mutex
	listed   map[string]int // lists that were asked for, by selector
	first    map[string]time.Time
	watching map[string]int // open watches by selector
	given    chan struct{}  // closed when the test is over
}

const hold = 0

func startControl(t *testing.T) *control {
	c := &control{given: make(chan struct{}), listed: make(map[string]int), first: make(map[string]time.Time),
		watching: make(map[string]int)}
	c.status.Store(http.StatusOK)
	c.Server = httptest.NewServer(http.HandlerFunc(c.answer))
	t.Cleanup(func() {
		close(c.given)
		c.Close()
	})
	return c
}

func (c *control) answer(w http.ResponseWriter, r *http.Request) {
	watch := r.URL.Query().Get("watch") == "true"
	if !watch {
		c.mu.Lock()
		selector := r.URL.Query().Get("labelSelector")
		if c.listed[selector]++; c.listed[selector] == 1 {
			c.first[selector] = time.Now()
		}
		c.mu.Unlock()
	}
	for c.status.Load() == hold && !watch {
		select {
		case <-r.Context().Done():
			return
		case <-c.given:
			return
		case <-time.After(time.Millisecond):
		}
	}
	switch status := int(c.status.Load()); {
	case status != http.StatusOK && !watch:
		http.Error(w, "", status)
	case !watch:
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"1"},"items":[]}`)
	default:
		w.(http.Flusher).Flush()
		c.watched(r.URL.Query().Get("labelSelector"), 1)
		select {
		case <-r.Context().Done():
		case <-c.given:
		}
		c.watched(r.URL.Query().Get("labelSelector"), -1)
	}
}

// lists is how many lists of that selector were asked for.
func (c *control) lists(selector string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed[selector]
}

// began returns when the first list of that selector was asked for.
func (c *control) began(selector string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first[selector]
}

// watched is how many watches of that selector there are, after change.
func (c *control) watched(selector string, change int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watching[selector] += change
	return c.watching[selector]
}

// corefile has one stanza, whose watch is told from others by its label.
func (c *control) corefile(label, timeout string, lines ...string) caddy.Input {
	return input(fmt.Sprintf(`clusterset.local:0 {
		bind 127.0.0.1
		%s
		%s
	}`, strings.Join(lines, "\n"), c.stanza(label, timeout)))
}

func (c *control) stanza(label, timeout string) string {
	return fmt.Sprintf(`multicluster {
			endpoint %s
			noendpoints
			labels watch=%s
			startup_timeout %s
		}`, c.URL, label, timeout)
}

func input(text string) caddy.Input {
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(text), ServerTypeName: "dns"}
}

// server is a CoreDNS in this process.
type server struct {
	*caddy.Instance
	t *testing.T
}

func serve(t *testing.T, corefile caddy.Input) *server {
	t.Helper()
	i, err := caddy.Start(corefile)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{i, t}
	t.Cleanup(func() {
		s.Stop()
		s.ShutdownCallbacks()
		if n := len(loads.Open()); n != 0 {
			t.Errorf("%d loads are left", n)
		}
	})
	return s
}

// reload is how long it took.
func (s *server) reload(corefile caddy.Input) time.Duration {
	s.t.Helper()
	start := time.Now()
	i, err := s.Restart(corefile)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Instance = i
	return time.Since(start)
}

func (s *server) rcode() int {
	s.t.Helper()
	m, err := dns.Exchange(
		question("no.test.svc.clusterset.local.", dns.TypeA, 0),
		s.Servers()[0].LocalAddr().String(),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	return m.Rcode
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}

// L1, L4: a reload that alters what is watched does not put an empty index in the place of one that answers.
func TestL4ReloadWaitsForNewLists(t *testing.T) {
	c := startControl(t)
	c.status.Store(hold)
	s := serve(t, c.corefile("a", "1h")) // the first start does not wait
	if got := s.rcode(); got != dns.RcodeServerFailure {
		t.Errorf("rcode %d before the first list (L1)", got)
	}
	c.status.Store(http.StatusOK)
	eventually(t, "answers", func() bool { return s.rcode() == dns.RcodeNameError })

	c.status.Store(hold)
	done := make(chan *caddy.Instance)
	go func() {
		i, err := s.Restart(c.corefile("b", "1h"))
		if err != nil {
			t.Error(err)
		}
		done <- i
	}()
	eventually(t, "the new list is asked for", func() bool { return c.lists("watch=b") > 0 })
	if got := s.rcode(); got != dns.RcodeNameError {
		t.Errorf("rcode %d during the reload", got)
	}
	both := loads.Open()
	if len(both) != 2 || !both[0].Ready() || !both[1].Ready() {
		t.Errorf("of %d loads not both are ready, though the first still answers", len(both))
	}
	c.status.Store(http.StatusOK)
	s.Instance = <-done
	if got := s.rcode(); got != dns.RcodeNameError {
		t.Errorf("rcode %d after the reload", got)
	}

	c.status.Store(hold)
	start := time.Now()
	s.keeps(c.corefile("c", "300ms"), "no complete list within 300ms")
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("a reload without a list took %v, want startup_timeout", took)
	}
	s.reload(c.corefile("b", "1h")) // it alters nothing: waiting would take an hour
}

// L1, L4: a reload whose lists the API server refuses does not put SERVFAIL in the place of answers, and is not waited
// for.
func TestL1ReloadThatIsRefusedKeepsAnswers(t *testing.T) {
	c := startControl(t)
	s := serve(t, c.corefile("a", "1h"))
	eventually(t, "answers", func() bool { return s.rcode() == dns.RcodeNameError })
	for status, why := range map[int32]string{
		http.StatusForbidden:    "not allowed to list and watch ServiceImports",
		http.StatusUnauthorized: "does not accept our credentials",
		http.StatusNotFound:     "ServiceImports are not served by the API server",
	} {
		c.status.Store(status)
		s.keeps(c.corefile("b", "1h"), why)
	}
	c.status.Store(http.StatusOK)
	s.reload(c.corefile("b", "1h"))
}

// keeps reloads a Corefile that is not taken, for that reason. The one before goes on.
func (s *server) keeps(corefile caddy.Input, why string) {
	s.t.Helper()
	if _, err := s.Restart(corefile); err == nil || !strings.Contains(err.Error(), why) {
		s.t.Fatalf("the reload: %v, want %s", err, why)
	}
	if got := s.rcode(); got != dns.RcodeNameError || !s.ready() {
		s.t.Errorf("after the reload: rcode %d, the only load is ready: %v", got, s.ready())
	}
}

// L4: all stanzas of a reload wait together.
func TestL4StanzasWaitTogether(t *testing.T) {
	c := startControl(t)
	c.status.Store(hold)
	s := serve(t, c.corefile("a", "1h")) // it has no lists either, so the reload does not need them
	var three strings.Builder
	for _, zone := range []string{"e.local", "f.local", "g.local"} {
		stanza := strings.Replace(c.stanza(zone, "5s"), "multicluster", "multicluster "+zone, 1)
		fmt.Fprintf(&three, "%s:0 {\n bind 127.0.0.1\n %s\n}\n", zone, stanza)
	}
	took := s.reload(input(three.String()))
	eventually(t, "all three ask", func() bool { // the last two are opened without waiting, just before
		return c.lists("watch=f.local") > 0 && c.lists("watch=g.local") > 0
	})
	again := c.began("watch=g.local").Sub(c.began("watch=f.local"))
	if took < 5*time.Second || again >= 5*time.Second {
		t.Errorf("three stanzas took %v, %v of it between the last two: want startup_timeout once", took, again)
	}
}

// L2: stanzas are opened one after the other, and the ready plugin may ask in between.
func TestL2NotReadyBeforeAllStanzasAreOpen(t *testing.T) {
	if loads.Of(caddy.NewTestController("dns", "")).Ready() {
		t.Error("ready before it is open")
	}
}

// L2: a pod that is ready though the CRD or a permission is missing, or its credentials are refused, stays ready at a
// reload, and while the API server is away.
func TestL2ReloadKeepsReady(t *testing.T) {
	for _, status := range []int32{http.StatusNotFound, http.StatusForbidden, http.StatusUnauthorized} {
		t.Run(http.StatusText(int(status)), func(t *testing.T) { reloadKeepsReady(t, status) })
	}
}

func reloadKeepsReady(t *testing.T, status int32) {
	c := startControl(t)
	c.status.Store(status)
	start := time.Now()
	s := serve(t, c.corefile("a", "200ms"))
	eventually(t, "ready", s.ready)
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("ready after %v, want startup_timeout", took)
	}
	s.reload(c.corefile("a", "200ms"))
	if !s.ready() {
		t.Error("not ready after a reload")
	}
	c.status.Store(http.StatusBadGateway)
	before := c.lists("watch=a")
	eventually(t, "asked again", func() bool { return c.lists("watch=a") > before+3 })
	if !s.ready() {
		t.Error("not ready while the API server is away")
	}
}

// ready is what the ready plugin hears.
func (s *server) ready() bool {
	all := loads.Open()
	return len(all) == 1 && all[0].Ready()
}

// L4: what a reload opened that fails is given back: at once by a Corefile with a stanza, else with the next one
// that has one.
func TestL4FailedReloadGivesItsWatchesBack(t *testing.T) {
	c := startControl(t)
	s := serve(t, input("clusterset.local:0 {\n bind 127.0.0.1\n}"))
	fails := func(label, timeout string) {
		t.Helper()
		if _, err := s.Restart(c.corefile(label, timeout, "bind 192.0.2.77")); err == nil {
			t.Fatal("a reload to an address that is not ours succeeded")
		}
	}
	watches := func(label string, n int) {
		t.Helper()
		eventually(
			t,
			fmt.Sprintf("%d watches of %s", n, label),
			func() bool { return c.watched("watch="+label, 0) == n },
		)
	}
	c.status.Store(hold)
	fails("a", "100ms") // which waits that long for its lists
	if all := loads.Open(); len(all) != 1 || !all[0].Ready() {
		t.Errorf("the Pod was ready, and of %d loads none is", len(all))
	}
	c.status.Store(http.StatusOK)
	watches("a", 1)
	s.reload(c.corefile("b", "1h"))
	watches("b", 1)
	watches("a", 0)
	fails("c", "1h")
	watches("c", 0)
	if n := len(loads.Open()); n != 1 {
		t.Errorf("%d loads, want the one that serves", n)
	}
	if got := s.rcode(); got != dns.RcodeNameError {
		t.Errorf("rcode %d after failed reloads", got)
	}
}

// A cache in the same server block keeps no answer: a change is in the next one.
func TestACacheKeepsNoAnswer(t *testing.T) {
	db := stub.Headless{Name: "db", Endpoints: 2}
	api, err := stub.Start(stub.Shape{Headless: []stub.Headless{db}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	s := serve(t, input(fmt.Sprintf(`clusterset.local:0 {
		bind 127.0.0.1
		cache 3600
		multicluster {
			endpoint %s
			ttl 3600
		}
	}`, api.URL)))
	answers := func(n int) func() bool {
		return func() bool {
			r := question("db.db.svc.clusterset.local.", dns.TypeA, 0)
			m, err := dns.Exchange(r, s.Servers()[0].LocalAddr().String())
			return err == nil && len(m.Answer) == n
		}
	}
	eventually(t, "both endpoints", answers(2))
	slice := db.Slices()[0]
	slice.Endpoints[0].Conditions.Ready = new(false)
	if err := api.PutSlice(slice); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the ready endpoint alone", answers(1))
}

// L4: a Corefile that cannot be shut down is no longer served, so its watches go and those of the new one stay.
func TestL4FailedShutdownKeepsWhatServes(t *testing.T) {
	c := startControl(t)
	s := serve(t, c.corefile("a", "1h", "failshutdown"))
	if _, err := s.Restart(c.corefile("b", "1h")); err == nil {
		t.Fatal("the shutdown did not fail")
	}
	s.Instance = caddy.Instances()[0]
	eventually(t, "no watch of a", func() bool { return c.watched("watch=a", 0) == 0 })
	if len(loads.Open()) != 1 || !s.ready() {
		t.Error("the load that serves is closed")
	}
	eventually(t, "the watch of b", func() bool { return c.watched("watch=b", 0) == 1 })
}
