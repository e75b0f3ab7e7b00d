package integration

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// outage is how long the API server is away: seconds in make test, minutes in make chaos.
func outage() time.Duration {
	if os.Getenv("CHAOS") != "" {
		return 5 * time.Minute
	}
	return 20 * time.Second
}

const web = "web.test.svc.clusterset.local."

// L1: until imports and slices are both in, every name but the zone's own is SERVFAIL and falls through to nobody;
// after that, names are answered.
func TestL1ServfailUntilImportsAndSlicesAreIn(t *testing.T) {
	c := newCluster(t, clusterOptions{fixture: true})
	c.apply(t, rbac("partial", "serviceimports"))
	s := c.serve(t, `.:0 {
		bind 127.0.0.1
		errors
		prometheus METRICS
		multicluster {
			kubeconfig KUBECONFIG:partial
			fallthrough
		}
		whoami
	}`)
	s.waitForLog(t, "endpointslices")
	for _, name := range []string{
		web, "db.test.svc.clusterset.local.", "absent.test.svc.clusterset.local.", "svc.clusterset.local.",
		"ns.dns.clusterset.local.", "dns-version.clusterset.local.",
	} {
		if m := dig(
			t,
			s.addr,
			question{name: name, qtype: "A"},
		); m.Rcode != dns.RcodeServerFailure ||
			len(m.Answer) > 0 {
			t.Errorf("%s: %s %v, want SERVFAIL before slices are in", name, dns.RcodeToString[m.Rcode], m.Answer)
		}
	}
	if m := dig(
		t,
		s.addr,
		question{name: "clusterset.local.", qtype: "SOA"},
	); m.Rcode != dns.RcodeSuccess ||
		len(m.Answer) != 1 {
		t.Errorf("apex: %v", m)
	}
	if v := s.metric(t, "coredns_multicluster_synced"); v != 0 {
		t.Errorf("synced is %v before slices are in", v)
	}
	c.apply(t, rbac("partial", "serviceimports", "endpointslices"))
	start := time.Now()
	s.waitFor(t, web, "A")
	t.Logf("answered %v after the permission was given", time.Since(start).Round(time.Millisecond))
	if v := s.metric(t, "coredns_multicluster_synced"); v != 1 {
		t.Errorf("synced is %v", v)
	}
}

// L1, L4: while the API server is away every answer stays as it is, also across a reload of the Corefile, without a
// gap; metrics tell
// the age of answers; once it is back, changes are followed.
func TestL1L4OutageKeepsAnswersAndReloadKeepsState(t *testing.T) {
	c := newCluster(t, clusterOptions{fixture: true})
	s := c.serve(t, stanza)
	s.waitFor(t, "big.test.svc.clusterset.local.", "A")
	c.apply(
		t,
		clusterSetIP(
			"prod",
			"going",
			"10.42.8.2",
		)+"---\n"+headless(
			"prod",
			"moving",
		)+"---\n"+slice(
			"prod",
			"moving",
			"cluster-a",
			"10.8.0.1",
		),
	)
	s.waitForAnswer(t, "going.prod.svc.clusterset.local.", "A", "10.42.8.2")
	s.waitForAnswer(t, "moving.prod.svc.clusterset.local.", "A", "10.8.0.1")
	before := s.sample(t)
	gap := s.watchForGaps(t, web)

	c.killAPIServer(t)
	eventually(t, "api_up is 0", func() bool { return s.metric(t, "coredns_multicluster_api_up") == 0 })
	last := s.metric(t, "coredns_multicluster_last_event_timestamp_seconds")
	deadline := time.Now().Add(outage())
	s.reload(t, strings.Replace(stanza, "errors", "errors\n log", 1))
	for time.Now().Before(deadline) {
		if diff := before.differs(s.sample(t)); diff != "" {
			t.Fatalf("an answer changed during the outage: %s", diff)
		}
	}
	if now := s.metric(t, "coredns_multicluster_last_event_timestamp_seconds"); now != last {
		t.Errorf("last event moved from %v to %v during the outage", last, now)
	}
	if age := float64(time.Now().Unix()) - last; age < outage().Seconds()-5 {
		t.Errorf("metrics give answers an age of %.0f s after an outage of %v", age, outage())
	}

	c.startAPIServer(t)
	c.apply(t, clusterSetIP("test", "web", "10.42.42.99"))
	start := time.Now()
	s.waitForAnswer(t, web, "A", "10.42.42.99")
	t.Logf(
		"change followed %v after it was made behind an outage of %v",
		time.Since(start).Round(time.Millisecond),
		outage(),
	)
	c.apply(t, slice("prod", "moving", "cluster-a", "10.8.0.2"))
	c.kubectl(t, "", "-n", "prod", "delete", "serviceimport/going")
	s.waitForAnswer(t, "moving.prod.svc.clusterset.local.", "A", "10.8.0.2")
	s.waitForNone(t, "going.prod.svc.clusterset.local.")
	gap.stop(t)
	eventually(t, "api_up is 1", func() bool { return s.metric(t, "coredns_multicluster_api_up") == 1 })
}

// L1: a connection that hangs without closing (paused API server) takes no answer away, and changes are followed after
// it.
func TestL1PausedAPIServer(t *testing.T) {
	c := newCluster(t, clusterOptions{fixture: true})
	s := c.serve(t, stanza)
	s.waitFor(t, "big.test.svc.clusterset.local.", "A")
	before := s.sample(t)
	c.pauseAPIServer(t)
	deadline := time.Now().Add(outage())
	for time.Now().Before(deadline) {
		if diff := before.differs(s.sample(t)); diff != "" {
			t.Fatalf("an answer changed: %s", diff)
		}
	}
	c.resumeAPIServer(t)
	c.apply(t, clusterSetIP("test", "web", "10.42.42.98"))
	s.waitForAnswer(t, web, "A", "10.42.42.98")
}

// L1: an API server that comes back from a backup is followed: what was rolled back, what was new, what was deleted,
// and what changes from then on, also while it has not come to the version that was seen before. Nothing else changes,
// and every answer stays until the lists are
// in.
func TestL1RestoredAPIServer(t *testing.T) {
	c := newCluster(t, clusterOptions{fixture: true})
	s := c.serve(t, stanza)
	s.waitFor(t, "big.test.svc.clusterset.local.", "A")
	named := func(name string) string { return name + ".prod.svc.clusterset.local." }
	c.apply(t, clusterSetIP("prod", "back", "10.42.8.1")+"---\n"+clusterSetIP("prod", "deleted", "10.42.8.2")+"---\n"+
		headless("prod", "moved")+"---\n"+slice("prod", "moved", "cluster-a", "10.8.0.1"))
	s.waitForAnswer(t, named("moved"), "A", "10.8.0.1")
	snapshot, err := c.cp.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	c.apply(t, clusterSetIP("prod", "back", "10.42.8.9")+"---\n"+clusterSetIP("prod", "lost", "10.42.8.3")+"---\n"+
		slice("prod", "moved", "cluster-a", "10.8.0.9")+"---\n"+slice("prod", "moved", "cluster-b", "10.8.0.10"))
	c.kubectl(t, "", "-n", "prod", "delete", "serviceimport/deleted")
	s.waitForAnswer(t, named("back"), "A", "10.42.8.9")
	s.waitForAnswer(t, named("lost"), "A", "10.42.8.3")
	s.waitForAnswer(t, named("moved"), "A", "10.8.0.9,10.8.0.10")
	s.waitForNone(t, named("deleted"))

	before := s.sample(t).withoutSerials()
	gap := s.watchForGaps(t, web)
	if err := c.cp.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	eventually(t, "what was rolled back is answered", func() bool {
		if diff := before.differs(s.sample(t).withoutSerials()); diff != "" {
			t.Fatalf("an answer changed: %s", diff)
		}
		m := dig(t, s.addr, question{name: named("back"), qtype: "A"})
		if got := strings.Join(answers(m), ","); got != "10.42.8.1" && got != "10.42.8.9" {
			t.Fatalf("%s: %v", named("back"), m)
		}
		return strings.Join(answers(m), ",") == "10.42.8.1"
	})
	t.Logf("followed %v after the API server was back", time.Since(start).Round(time.Millisecond))
	s.waitForAnswer(t, named("deleted"), "A", "10.42.8.2")
	s.waitForAnswer(t, named("moved"), "A", "10.8.0.1")
	s.waitForNone(t, named("lost"))
	c.apply(t, clusterSetIP("prod", "lost", "10.42.8.33")+"---\n"+slice("prod", "moved", "cluster-a", "10.8.0.11"))
	c.kubectl(t, "", "-n", "prod", "delete", "serviceimport/back")
	s.waitForAnswer(t, named("lost"), "A", "10.42.8.33")
	s.waitForAnswer(t, named("moved"), "A", "10.8.0.11")
	s.waitForNone(t, named("back"))
	gap.stop(t)
	if diff := before.differs(s.sample(t).withoutSerials()); diff != "" {
		t.Errorf("an answer changed: %s", diff)
	}
}

// local is a name of the kubernetes plugin, which stands in the same server.
const local = "local.default.svc.cluster.local."

// besideKubernetes serves both zones; the multicluster plugin has the ServiceAccount's rights.
func (c *cluster) besideKubernetes(t *testing.T, account string) *server {
	t.Helper()
	c.apply(t, rbac("both", "serviceimports", "endpointslices", "services", "namespaces"))
	c.apply(t, service("default", "local", "10.96.77.7"))
	s := c.serve(t, `.:0 {
		bind 127.0.0.1
		ready READY
		prometheus METRICS
		multicluster {
			kubeconfig KUBECONFIG:`+account+`
			startup_timeout 4s
		}
		kubernetes cluster.local {
			kubeconfig KUBECONFIG:both
		}
	}`)
	s.waitForAnswer(t, local, "A", "10.96.77.7")
	return s
}

// L2: a missing CRD keeps neither the server from starting nor cluster.local from being answered, all the while; the
// zone is SERVFAIL,
// ready comes after startup_timeout, and once the CRD is there the zone is answered.
func TestL2MissingCRD(t *testing.T) {
	c := newCluster(t, clusterOptions{noCRDs: true})
	s := c.besideKubernetes(t, "both")
	gap := s.watchForGaps(t, local)
	if m := dig(t, s.addr, question{name: web, qtype: "A"}); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("%s without CRD: %s, want SERVFAIL", web, dns.RcodeToString[m.Rcode])
	}
	eventually(t, "ready after startup_timeout", func() bool { return s.ready(t) })
	if n := s.logLines("are not served by the API server: apply deploy/crds"); n != 1 {
		t.Errorf("%d log lines about the missing CRD, want 1:\n%s", n, s.log())
	}
	c.applyCRDs(t)
	c.applyFile(t, fixture)
	start := time.Now()
	s.waitFor(t, web, "A")
	t.Logf("answered %v after the CRD came", time.Since(start).Round(time.Millisecond))
	gap.stop(t)
}

// L2: the same where a permission is missing.
func TestL2MissingPermission(t *testing.T) {
	c := newCluster(t, clusterOptions{fixture: true})
	c.apply(t, rbac("partial", "serviceimports"))
	s := c.besideKubernetes(t, "partial")
	gap := s.watchForGaps(t, local)
	if m := dig(t, s.addr, question{name: web, qtype: "A"}); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("%s without the permission: %s, want SERVFAIL", web, dns.RcodeToString[m.Rcode])
	}
	eventually(t, "ready after startup_timeout", func() bool { return s.ready(t) })
	if v := s.metric(t, "coredns_multicluster_synced"); v != 0 {
		t.Errorf("synced is %v without the permission", v)
	}
	c.apply(t, rbac("partial", "serviceimports", "endpointslices"))
	start := time.Now()
	s.waitFor(t, web, "A")
	t.Logf("answered %v after the permission was given", time.Since(start).Round(time.Millisecond))
	gap.stop(t)
}

// L2: list is allowed and watch refused: the zone is answered and follows by lists, api_up stays 0, and the log says
// so.
func TestL2MayListButNotWatch(t *testing.T) {
	c := newCluster(t, clusterOptions{fixture: true})
	account := func(verbs string) string {
		return strings.Replace(rbac("partial", "serviceimports", "endpointslices"), "[list, watch]", verbs, 1)
	}
	c.apply(t, account("[list]"))
	s := c.serve(t, strings.Replace(stanza, "KUBECONFIG", "KUBECONFIG:partial", 1))
	s.waitFor(t, "big.test.svc.clusterset.local.", "A")
	c.apply(t, clusterSetIP("test", "web", "10.42.42.97"))
	s.waitForAnswer(t, web, "A", "10.42.42.97")
	eventually(
		t,
		"the log tells of both",
		func() bool { return s.logLines("changes arrive by a list at each try") == 2 },
	)
	if v := s.metric(t, "coredns_multicluster_api_up"); v != 0 {
		t.Errorf("api_up is %v without the right to watch", v)
	}
	c.apply(t, account("[list, watch]"))
	eventually(t, "api_up is 1", func() bool { return s.metric(t, "coredns_multicluster_api_up") == 1 })
}

// L3: a slice that comes before its import answers with it; a type flip changes all names at once.
func TestL3SliceBeforeImportAndTypeFlip(t *testing.T) {
	c := fixtureCluster(t)
	s := c.serve(t, stanza)
	s.waitFor(t, "big.test.svc.clusterset.local.", "A")
	t.Cleanup(func() {
		c.kubectl(
			t,
			"",
			"-n",
			"prod",
			"delete",
			"--ignore-not-found",
			"serviceimport/early",
			"serviceimport/later",
			"endpointslice/early-cluster-a",
			"endpointslice/later-cluster-a",
		)
	})
	// The second slice is read after the first one.
	c.apply(t, slice("prod", "early", "cluster-a", "10.5.0.1"))
	c.apply(t, headless("prod", "later")+"---\n"+slice("prod", "later", "cluster-a", "10.5.0.2"))
	s.waitForAnswer(t, "later.prod.svc.clusterset.local.", "A", "10.5.0.2")
	if m := dig(
		t,
		s.addr,
		question{name: "early.prod.svc.clusterset.local.", qtype: "A"},
	); m.Rcode != dns.RcodeNameError {
		t.Fatalf("a slice without import answers: %v (N17)", m)
	}
	c.apply(t, headless("prod", "early"))
	s.waitForAnswer(t, "early.prod.svc.clusterset.local.", "A", "10.5.0.1")
	for flip := range 4 {
		if flip%2 == 0 {
			c.apply(t, clusterSetIP("prod", "early", "10.42.5.5"))
			s.waitForAnswer(t, "early.prod.svc.clusterset.local.", "A", "10.42.5.5")
			if m := dig(
				t,
				s.addr,
				question{name: "h0.cluster-a.early.prod.svc.clusterset.local.", qtype: "A"},
			); m.Rcode != dns.RcodeNameError {
				t.Errorf("a host name outlived the flip: %v", m)
			}
		} else {
			c.apply(t, headless("prod", "early"))
			s.waitForAnswer(t, "early.prod.svc.clusterset.local.", "A", "10.5.0.1")
			if m := dig(
				t,
				s.addr,
				question{name: "h0.cluster-a.early.prod.svc.clusterset.local.", qtype: "A"},
			); len(m.Answer) != 1 {
				t.Errorf("the host name did not come with the flip: %v", m)
			}
		}
	}
}

// L4: a reload that alters nothing of the source asks the API server for nothing; one that does, does.
func TestL4ReloadListsNothingAgain(t *testing.T) {
	c := newCluster(t, clusterOptions{fixture: true, noControllers: true})
	s := c.serve(t, stanza)
	s.waitFor(t, web, "A")
	eventually(t, "api_up is 1", func() bool { return s.metric(t, "coredns_multicluster_api_up") == 1 })
	before := c.reads(t)
	for i := range 3 {
		s.reload(t, strings.Replace(stanza, "errors", fmt.Sprintf("errors\n loadbalance\n log v%d.example", i), 1))
		if m := dig(t, s.addr, question{name: web, qtype: "A"}); len(m.Answer) != 1 {
			t.Fatalf("after a reload: %v", m)
		}
	}
	if after := c.reads(t); after != before {
		t.Errorf("%d lists and watches before three reloads, %d after", before, after)
	}
	s.reload(t, strings.Replace(stanza, "kubeconfig KUBECONFIG", "kubeconfig KUBECONFIG\n namespaces test", 1))
	eventually(t, "another source is read", func() bool { return c.reads(t) > before })
}

// reads is how many lists and watches of ServiceImports and EndpointSlices the API server has begun.
func (c *cluster) reads(t *testing.T) (sum int) {
	t.Helper()
	for _, line := range strings.Split(c.kubectl(t, "", "get", "--raw", "/metrics"), "\n") {
		ended := strings.HasPrefix(line, "apiserver_request_total{") &&
			(strings.Contains(line, `verb="LIST"`) || strings.Contains(line, `verb="WATCH"`))
		if !ended && !strings.HasPrefix(line, "apiserver_longrunning_requests{") {
			continue
		}
		if !strings.Contains(line, `resource="serviceimports"`) &&
			!strings.Contains(line, `resource="endpointslices"`) {
			continue
		}
		n, err := strconv.Atoi(line[strings.LastIndexByte(line, ' ')+1:])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += n
	}
	return sum
}

// L4: a reload that fails leaves what is served as it was, and what it opened is given back: the next reload works.
func TestL4FailedReload(t *testing.T) {
	c := fixtureCluster(t)
	s := c.serve(t, stanza)
	s.waitFor(t, web, "A")
	gap := s.watchForGaps(t, web)
	for range 3 {
		s.reloadFails(t, strings.Replace(stanza, "errors", "errors\n prometheus 192.0.2.77:1", 1))
		if m := dig(t, s.addr, question{name: web, qtype: "A"}); len(m.Answer) != 1 {
			t.Fatalf("after a failed reload: %v", m)
		}
	}
	s.reload(t, stanza)
	gap.stop(t)
}

// L6: AXFR is refused over UDP and without the transfer plugin, gives what queries give with it, and IXFR with the
// current serial is
// one SOA.
func TestL6Transfer(t *testing.T) {
	c := fixtureCluster(t)
	s := c.serve(t, stanza)
	s.waitFor(t, web, "A")
	if m := dig(t, s.addr, question{name: "clusterset.local.", qtype: "AXFR", tcp: true}); m.Rcode != dns.RcodeRefused {
		t.Errorf("AXFR without the transfer plugin: %s, want REFUSED", dns.RcodeToString[m.Rcode])
	}
	s = c.serve(t, strings.Replace(stanza, "errors", "errors\n transfer {\n to *\n }", 1))
	s.waitFor(t, "big.test.svc.clusterset.local.", "A")
	r := new(dns.Msg)
	r.SetAxfr("clusterset.local.")
	if m, _, err := (&dns.Client{Timeout: answerLimit}).Exchange(r, s.addr); err != nil || m.Rcode != dns.RcodeRefused {
		t.Errorf("AXFR over UDP: %v %v, want REFUSED", m, err)
	}
	all := s.transfer(t, "clusterset.local.")
	if diff := transferDiff(t, all); diff != "" {
		t.Errorf("transfer differs from the model:\n%s", diff)
	}
	serial := all[0].(*dns.SOA).Serial
	if m := dig(
		t,
		s.addr,
		question{name: "clusterset.local.", qtype: "SOA"},
	); m.Answer[0].(*dns.SOA).Serial != serial ||
		serial == 0 {
		t.Errorf("serial %d in the transfer, %v in the query (M4)", serial, m.Answer)
	}
	r.SetIxfr("clusterset.local.", serial, "ns.dns.clusterset.local.", "hostmaster.clusterset.local.")
	m, _, err := (&dns.Client{Net: "tcp", Timeout: answerLimit}).Exchange(r, s.addr)
	if err != nil || len(m.Answer) != 1 || m.Answer[0].Header().Rrtype != dns.TypeSOA {
		t.Errorf("IXFR with the current serial: %v %v, want one SOA", m, err)
	}
}

// M4: a label moves no serial. A replica that starts later is not behind, and both agree again after the next change.
func TestM4SerialAgreesAndSurvives(t *testing.T) {
	c := fixtureCluster(t)
	a := c.serve(t, stanza)
	a.waitFor(t, "big.test.svc.clusterset.local.", "A")
	t.Cleanup(func() { c.kubectl(t, "", "-n", "prod", "delete", "--ignore-not-found", "serviceimport/serial") })
	c.apply(t, clusterSetIP("prod", "serial", "10.42.7.1"))
	a.waitForAnswer(t, "serial.prod.svc.clusterset.local.", "A", "10.42.7.1")
	c.apply(t, clusterSetIP("prod", "serial", "10.42.7.2"))
	a.waitForAnswer(t, "serial.prod.svc.clusterset.local.", "A", "10.42.7.2")
	serial := func(s *server) uint32 {
		return dig(t, s.addr, question{name: "clusterset.local.", qtype: "SOA"}).Answer[0].(*dns.SOA).Serial
	}
	before := serial(a)
	c.kubectl(t, "", "-n", "prod", "label", "serviceimport/serial", "new=label")
	b := c.serve(t, stanza)
	b.waitForAnswer(t, "serial.prod.svc.clusterset.local.", "A", "10.42.7.2")
	if x, y := serial(a), serial(b); x != before || y < x {
		t.Errorf("serial %d, after a label %d, of a later start %d", before, x, y)
	}
	c.apply(t, clusterSetIP("prod", "serial", "10.42.7.3"))
	eventually(
		t,
		"both replicas have one serial",
		func() bool { return serial(a) > before && serial(a) == serial(b) },
	)
}

// gaps counts questions that did not get their answer, or got it late, from start to stop.
type gaps struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	asked  int
	missed []string
}

// watchForGaps asks for A of a name, which must have one.
func (s *server) watchForGaps(t *testing.T, name string) *gaps {
	ctx, cancel := context.WithCancel(context.Background())
	g := &gaps{cancel: cancel}
	client := &dns.Client{Timeout: answerLimit}
	g.done.Add(1)
	go func() {
		defer g.done.Done()
		for ctx.Err() == nil {
			r := new(dns.Msg)
			r.SetQuestion(name, dns.TypeA)
			var m *dns.Msg
			var err error
			took := lab.Took(func() { m, _, err = client.Exchange(r, s.addr) })
			g.asked++
			if err != nil || len(m.Answer) != 1 || took > lab.Patience {
				g.missed = append(g.missed, fmt.Sprintf("question %d after %v: %v %v", g.asked, took, err, m))
			}
			time.Sleep(5 * time.Millisecond) // the rate of questions, no wait for anything
		}
	}()
	t.Cleanup(cancel)
	return g
}

func (g *gaps) stop(t *testing.T) {
	t.Helper()
	g.cancel()
	g.done.Wait()
	if len(g.missed) > 0 || g.asked < 10 {
		t.Errorf(
			"%d of %d questions were not answered in time, the first: %.300s",
			len(g.missed),
			g.asked,
			strings.Join(g.missed, "\n"),
		)
	}
}
