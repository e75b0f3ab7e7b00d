package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// I: a Corefile that cannot be served ends the start with one line that names the place and says what to do.
func TestBadCorefileEndsTheStart(t *testing.T) {
	c := fixtureCluster(t)
	for _, tc := range []struct{ name, corefile, want string }{
		{
			"unknown option", ".:0 {\n multicluster {\n  bogus\n }\n}",
			"Corefile:3 - Error during parsing: unknown option 'bogus'",
		},
		{
			"bad ttl", ".:0 {\n multicluster {\n  ttl 5s\n }\n}",
			"Corefile:3 - Error during parsing: ttl must be a number of seconds",
		},
		{
			"missing kubeconfig", ".:0 {\n multicluster {\n  kubeconfig /nowhere/kubeconfig\n }\n}",
			"/nowhere/kubeconfig",
		},
		{"zone of others", "example.org:0 {\n multicluster\n}", "not authoritative for zone clusterset.local."},
		{"not in a cluster", ".:0 {\n multicluster\n}", "not in a cluster: set kubeconfig, or run in a pod"},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			s, err := c.tryServe(t, tc.corefile)
			if err == nil {
				s.Stop()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "panic") {
				t.Errorf("it said:\n%v\nwant %q", err, tc.want)
			}
		})
	}
}

// I: an API server that cannot be reached keeps other zones from nothing; the zone is SERVFAIL, not ready, and one line
// says so.
func TestUnreachableAPIServer(t *testing.T) {
	c := fixtureCluster(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\n" +
		"users: [{name: u, user: {token: t}}]\n" +
		"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := c.serve(
		t,
		".:0 {\n bind 127.0.0.1\n ready READY\n prometheus METRICS\n multicluster {\n  kubeconfig "+strings.ReplaceAll(
			kubeconfig,
			"KUBECONFIG",
			"",
		)+
			"\n  startup_timeout 100ms\n }\n whoami\n}",
	)
	if m := dig(t, s.addr, question{name: "example.org.", qtype: "A"}); m.Rcode != dns.RcodeSuccess {
		t.Errorf("another zone: %v", m)
	}
	if m := dig(t, s.addr, question{name: web, qtype: "A"}); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("%s: %s, want SERVFAIL", web, dns.RcodeToString[m.Rcode])
	}
	s.waitForLog(t, "check that the API server can be reached")
	deadline := time.Now().Add(3 * time.Second)
	for time.Now().Before(deadline) {
		if s.ready(t) {
			t.Fatal("ready without having seen the API server")
		}
		time.Sleep(100 * time.Millisecond) // the rate of looking
	}
	if n := s.logLines("can be reached"); n != 1 {
		t.Errorf("%d log lines about it, want 1:\n%s", n, s.log())
	}
}

// I, N17: slices that cannot be answered are skipped, counted and named once; all else is answered.
func TestN17SkippedSlicesAreCountedAndNamed(t *testing.T) {
	c := fixtureCluster(t)
	s := c.serve(t, stanza)
	s.waitFor(t, "big.test.svc.clusterset.local.", "A")
	if n := s.metric(t, "coredns_multicluster_skipped_slices_total"); n != 2 {
		t.Errorf("%v slices counted as skipped, the fixture has 2", n)
	}
	for _, name := range []string{"test/fq-16", "test/nolabel-13"} {
		if n := s.logLines(name); n != 1 {
			t.Errorf("%s is named %d times in the log, want once", name, n)
		}
	}
}

// I: a name of 255 octets, and one longer than a label may be, are defined answers.
func TestNamesOfGreatestLength(t *testing.T) {
	c := fixtureCluster(t)
	s := c.serve(t, stanza)
	s.waitFor(t, web, "A")
	label := strings.Repeat("a", 63)
	long := label + "." + label + "." + label + "." + strings.Repeat(
		"b",
		254-3*64-len(".clusterset.local."),
	) + ".clusterset.local."
	if len(long) != 254 {
		t.Fatalf("the test's name has %d octets", len(long)+1)
	}
	if m := dig(t, s.addr, question{name: long, qtype: "A"}); m.Rcode != dns.RcodeNameError || len(m.Ns) != 1 {
		t.Errorf("%v", m)
	}
}

// The README's Corefiles start.
func TestReadmeCorefiles(t *testing.T) {
	c := fixtureCluster(t)
	text := read(t, "../../plugin/multicluster/README.md")
	blocks := strings.Split(text, "~~~ corefile\n")[1:]
	if len(blocks) < 3 {
		t.Fatalf("%d Corefiles found", len(blocks))
	}
	for _, block := range blocks {
		corefile, _, _ := strings.Cut(block, "~~~")
		s := c.serve(t, onLoopback(corefile))
		s.waitFor(t, web, "A")
	}
}

// The example Corefile starts, and answers both zones.
func TestExampleCorefile(t *testing.T) {
	c := fixtureCluster(t)
	s := c.serve(t, onLoopback(read(t, "../../corefile.example")))
	s.waitFor(t, web, "A")
	s.waitForAnswer(t, "kubernetes.default.svc.cluster.local.", "A", "10.96.0.1")
}

// Our image starts with kubeadm's Corefile as it is, and answers its zone: the image is changed before the Corefile
// (deploy/coredns).
func TestStockCorefile(t *testing.T) {
	c := fixtureCluster(t)
	s := c.serve(t, onLoopback(read(t, "../../deploy/coredns/testdata/kubeadm.corefile")))
	s.waitForAnswer(t, "kubernetes.default.svc.cluster.local.", "A", "10.96.0.1")
}

// onLoopback adapts a Corefile for a pod: its ports, its credentials, and plugins that need a pod's surroundings.
func onLoopback(corefile string) string {
	var out []string
	skip := false
	for _, line := range strings.Split(corefile, "\n") {
		trimmed := strings.TrimSpace(line)
		word, _, _ := strings.Cut(trimmed, " ")
		switch {
		case skip:
			skip = trimmed != "}"
			continue
		case word == "health" || word == "forward" || word == "loop" || word == "prometheus" || word == "ready":
			skip = strings.HasSuffix(trimmed, "{")
			continue
		case strings.HasSuffix(trimmed, ":53 {"):
			line = strings.ReplaceAll(line, ":53", ":DNS_PORT") + "\n bind 127.0.0.1"
		case (strings.HasPrefix(word, "multicluster") || word == "kubernetes") && strings.HasSuffix(trimmed, "{"):
			line += "\n kubeconfig KUBECONFIG"
		case word == "multicluster" || word == "kubernetes":
			line += " {\n kubeconfig KUBECONFIG\n}"
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}
