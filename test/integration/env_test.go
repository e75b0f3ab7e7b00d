// Package integration asks the real coredns binary, on real control planes, with the real dig. The binary is
// bin/coredns, which
// make builds; it runs with its own ServiceAccount and the RBAC of deploy/coredns.
package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/miekg/dns"
)

// stanza is the Corefile of most tests.
const stanza = `.:0 {
	bind 127.0.0.1
	errors
	ready READY
	prometheus METRICS
	multicluster {
		kubeconfig KUBECONFIG
	}
}`

func TestMain(m *testing.M) {
	if err := lab.Require("dig"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	code := m.Run()
	if shared.c != nil {
		shared.c.cp.Stop()
	}
	os.Exit(code)
}

// cluster is a control plane with a ServiceAccount for CoreDNS.
type cluster struct {
	cp   *lab.ControlPlane
	root string
}

type clusterOptions struct {
	noCRDs, fixture, v1alpha1Only, noControllers bool
}

func newCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	c := makeCluster(t, o)
	t.Cleanup(c.cp.Stop)
	return c
}

func makeCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	cp, err := lab.Start(context.WithoutCancel(t.Context()), lab.Options{NoControllerManager: o.noControllers})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{cp, root}
	c.kubectl(t, "", "apply", "-f", filepath.Join(root, "deploy/coredns/bare.yaml"))
	c.kubectl(t, "", "apply", "-k", filepath.Join(root, "deploy/coredns"))
	switch {
	case o.noCRDs:
	case o.v1alpha1Only:
		c.apply(t, onlyV1alpha1(c.kubectl(t, "", "kustomize", filepath.Join(root, "deploy/crds"))))
		c.established(t)
	default:
		c.applyCRDs(t)
	}
	if o.fixture {
		c.applyFile(t, fixture)
	}
	return c
}

var shared struct {
	sync.Once
	c *cluster
}

// fixtureCluster is one control plane with the objects of test/cases, shared by the tests that do no harm to it.
func fixtureCluster(t *testing.T) *cluster {
	t.Helper()
	shared.Do(func() { shared.c = makeCluster(t, clusterOptions{fixture: true}) })
	if shared.c == nil {
		t.Fatal("the shared control plane did not start: see the first test that uses it")
	}
	return shared.c
}

// onlyV1alpha1 makes the CRDs serve no other version.
func onlyV1alpha1(crds string) string {
	var out []string
	version := ""
	for _, line := range strings.Split(crds, "\n") {
		if name, ok := strings.CutPrefix(
			strings.TrimSpace(line),
			"name: v1",
		); ok &&
			strings.HasPrefix(line, "    name: v1") {
			version = "v1" + name
		}
		if strings.TrimSpace(line) == "served: true" && version == "v1beta1" {
			line = strings.Replace(line, "true", "false", 1)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

func (c *cluster) kubectl(t testing.TB, input string, args ...string) string {
	t.Helper()
	out, err := c.cp.Kubectl(context.WithoutCancel(t.Context()), input, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *cluster) apply(t testing.TB, manifests string) {
	t.Helper()
	if err := c.cp.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) applyFile(t testing.TB, file string) { t.Helper(); c.apply(t, read(t, file)) }

func (c *cluster) applyCRDs(t testing.TB) {
	t.Helper()
	c.kubectl(t, "", "apply", "-k", filepath.Join(c.root, "deploy/crds"))
	c.established(t)
}

func (c *cluster) established(t testing.TB) {
	t.Helper()
	c.kubectl(
		t,
		"",
		"wait",
		"--for=condition=Established",
		"--timeout="+limit.String(),
		"crd/serviceimports.multicluster.x-k8s.io",
		"crd/serviceexports.multicluster.x-k8s.io",
	)
}

func (c *cluster) killAPIServer(testing.TB) { c.cp.KillAPIServer() }

func (c *cluster) startAPIServer(t testing.TB) {
	t.Helper()
	if err := c.cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) pauseAPIServer(t testing.TB) {
	t.Helper()
	if err := c.cp.PauseAPIServer(); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) resumeAPIServer(t testing.TB) {
	t.Helper()
	if err := c.cp.ResumeAPIServer(); err != nil {
		t.Fatal(err)
	}
}

// server is a running CoreDNS.
type server struct {
	*lab.DNS
	c    *cluster
	addr string
}

// serve starts CoreDNS with a Corefile in which KUBECONFIG stands for the credentials of ServiceAccount
// kube-system/coredns, and
// KUBECONFIG:name for those of another in kube-system; port 0, READY and METRICS for free ports.
func (c *cluster) serve(t *testing.T, corefile string) *server {
	t.Helper()
	s, err := c.tryServe(t, corefile)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("CoreDNS said:\n%.4000s", s.Log())
		}
		s.Stop()
	})
	return s
}

func (c *cluster) tryServe(t *testing.T, corefile string) (*server, error) {
	t.Helper()
	bin, err := lab.Find(t.Context())
	if err != nil {
		return nil, err
	}
	d, err := lab.StartDNS(t.Context(), bin, binary(t, c.root), c.corefile(t, corefile))
	if err != nil {
		return nil, err
	}
	return &server{d, c, d.Addr()}, nil
}

// binary is the coredns to test: COREDNS_BINARY, or what make build has built.
func binary(t testing.TB, root string) string {
	t.Helper()
	if b := os.Getenv("COREDNS_BINARY"); b != "" {
		return b
	}
	b := filepath.Join(root, "bin", "coredns")
	if _, err := os.Stat(b); err != nil {
		t.Fatalf("bin/coredns is missing: make build")
	}
	return b
}

// labWords turns the words of this package's Corefiles into the laboratory's.
var labWords = strings.NewReplacer(
	":0 {", ":DNS_PORT {", "ready READY", "ready READY_ADDR", "prometheus METRICS", "prometheus METRICS_ADDR",
)

func (c *cluster) corefile(t *testing.T, text string) string {
	t.Helper()
	text = labWords.Replace(text)
	for strings.Contains(text, "KUBECONFIG") {
		_, rest, _ := strings.Cut(text, "KUBECONFIG")
		account, with := "coredns", "KUBECONFIG"
		if name, ok := strings.CutPrefix(rest, ":"); ok {
			account = strings.FieldsFunc(name, func(r rune) bool { return r == '\n' || r == ' ' })[0]
			with = "KUBECONFIG:" + account
		}
		path, err := c.cp.ServiceAccountKubeconfig(t.Context(), "kube-system", account, nil)
		if err != nil {
			t.Fatal(err)
		}
		text = strings.Replace(text, with, strings.ReplaceAll(path, "KUBECONFIG", ""), 1)
	}
	return text
}

// reload gives the server another Corefile, which must be taken; reloadFails one that must not be.
func (s *server) reload(t *testing.T, corefile string) {
	t.Helper()
	if err := s.Reload(t.Context(), s.known(corefile)); err != nil {
		t.Fatal(err)
	}
}

func (s *server) reloadFails(t *testing.T, corefile string) {
	t.Helper()
	if err := s.Reload(t.Context(), s.known(corefile)); err == nil {
		t.Fatal("the server took a Corefile that cannot be started")
	}
}

// known fills in a Corefile without asking the API server, which may be away: the credentials are those of the start.
func (s *server) known(text string) string {
	text = labWords.Replace(text)
	return strings.ReplaceAll(text, "KUBECONFIG", filepath.Join(s.c.cp.Dir(), "kube-system-coredns.kubeconfig"))
}

func (s *server) log() string { return s.Log() }

func (s *server) logLines(part string) int { return strings.Count(s.Log(), part) }

func (s *server) ready(testing.TB) bool { return s.Ready() }

// metric is the value of a metric, summed over its series; 0 if there is none.
func (s *server) metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	var text string
	eventually(
		t,
		"metrics are shown",
		func() bool { // a server under load may take longer than one request waits
			var err error
			text, err = s.Metrics()
			return err == nil
		},
	)
	sum := 0.0
	for _, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok && rest != "" && (rest[0] == ' ' || rest[0] == '{') &&
			!slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(rest, label) }) {
			v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				t.Fatalf("metric %s: %v", line, err)
			}
			sum += v
		}
	}
	return sum
}

// limit is far more than anything takes that tests wait for, since machines are shared.
const limit = 4 * time.Minute

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is not so that %s", limit, what)
		}
	}
}

func (s *server) waitFor(t testing.TB, name, qtype string) {
	t.Helper()
	eventually(t, name+" "+qtype+" is answered", func() bool {
		m, err := tryDig(t.Context(), s.addr, question{name: name, qtype: qtype})
		return err == nil && m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0
	})
}

func (s *server) waitForAnswer(t testing.TB, name, qtype, answer string) {
	t.Helper()
	eventually(t, name+" "+qtype+" is "+answer, func() bool {
		m, err := tryDig(t.Context(), s.addr, question{name: name, qtype: qtype})
		return err == nil && strings.Join(answers(m), ",") == answer
	})
}

func (s *server) waitForNone(t testing.TB, name string) {
	t.Helper()
	eventually(t, name+" does not exist", func() bool {
		m, err := tryDig(t.Context(), s.addr, question{name: name, qtype: "A"})
		return err == nil && m.Rcode == dns.RcodeNameError
	})
}

func (s *server) waitForLog(t testing.TB, part string) {
	t.Helper()
	eventually(t, "the log has "+part, func() bool { return strings.Contains(s.Log(), part) })
}

// answerLimit is far more than an answer takes. A question that was dropped is never answered.
const answerLimit = 2 * time.Minute

// sample is what a set of questions is answered, for comparing.
type sample map[string]string

func (s *server) sample(t testing.TB) sample {
	t.Helper()
	out := sample{}
	cases, err := model.LoadCases(casesAt)
	if err != nil {
		t.Fatal(err)
	}
	client := &dns.Client{Net: "tcp", Timeout: answerLimit}
	for _, c := range cases {
		q := c.Question()
		r := new(dns.Msg)
		r.SetQuestion(q.Name, q.Type)
		var m *dns.Msg
		took := lab.Took(func() { m, _, err = client.Exchange(r, s.addr) })
		if err != nil {
			t.Fatalf("%v: %v", q, err)
		}
		if took > lab.Patience {
			t.Errorf("%v: answered after %v", q, took)
		}
		out[q.Name+" "+dns.TypeToString[q.Type]] = fmt.Sprint(
			dns.RcodeToString[m.Rcode],
			m.Truncated,
			sorted(m.Answer),
			m.Ns,
			glue(m),
		)
	}
	return out
}

// sorted are records in an order of their own, since each answer begins at another endpoint (M2).
func sorted(records []dns.RR) (text []string) {
	for _, r := range records {
		text = append(text, r.String())
	}
	slices.Sort(text)
	return text
}

// glue is the additional section, if all of it fits. Else it depends on where the answer begins (M3).
func glue(m *dns.Msg) []string {
	if m.Len() > 40_000 {
		return nil
	}
	return sorted(m.Extra)
}

func (a sample) differs(b sample) string {
	for q, was := range a {
		if b[q] != was {
			return fmt.Sprintf("%s was\n%s\nand is\n%s", q, was, b[q])
		}
	}
	return ""
}

var serials = regexp.MustCompile(`(\shostmaster\.\S+ )\d+`)

// withoutSerials is for comparing across changes of other names.
func (a sample) withoutSerials() sample {
	out := sample{}
	for q, answer := range a {
		out[q] = serials.ReplaceAllString(answer, "${1}0")
	}
	return out
}

// transfer is a zone by AXFR, without the closing SOA.
func (s *server) transfer(t testing.TB, zone string) []dns.RR {
	t.Helper()
	r := new(dns.Msg)
	r.SetAxfr(zone)
	ch, err := (&dns.Transfer{DialTimeout: answerLimit, ReadTimeout: answerLimit}).In(r, s.addr)
	if err != nil {
		t.Fatal(err)
	}
	var all []dns.RR
	for e := range ch {
		if e.Error != nil {
			t.Fatal(e.Error)
		}
		all = append(all, e.RR...)
	}
	if len(all) < 2 {
		t.Fatalf("transfer of %d records", len(all))
	}
	return all[:len(all)-1]
}

func transferDiff(t testing.TB, all []dns.RR) string {
	t.Helper()
	objs, err := model.LoadFixture(fixture)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, rr := range all {
		got = append(got, model.Canonical(rr))
	}
	return model.Diff(model.Zone(model.Defaults(loopback), objs), got)
}

func read(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
