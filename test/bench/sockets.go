package main

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const aboutSockets = "" +
	"The coredns binary on one core, dnsperf on another, UDP on loopback, as many queries as the server can " +
	"take (four clients, 64 queries in flight); EDNS with 4,096 octets for headless Services, none else. Each " +
	"number is the server's CPU time (user and system) per query through that of the same binary with whoami " +
	"alone, measured right beside it; ratio: ours through in-tree's. Latency is that of one query at a time " +
	"on an idle server."

// load is one kind of query for dnsperf.
type socketCase struct {
	what  string
	lines []string
	edns  bool
	bar   float64
	chain bool // in kubeadm's chain as well
}

func socketCases() []socketCase {
	dice := rand.New(rand.NewPCG(1, 2))
	each := func(n int, line func(i int) string) []string {
		lines := make([]string, n)
		for at, i := range dice.Perm(n) {
			lines[at] = line(i)
		}
		return lines
	}
	imported := func(prefix, suffix string) func(i int) string {
		return func(i int) string {
			name, ns := stub.ClusterSetIP(i)
			return prefix + name + "." + ns + ".svc." + zone + suffix
		}
	}
	const imports = 10_000
	host := func(i int) string {
		host, cluster := stub.Headless{}.Host(i)
		return host + "." + cluster + "." + headlessName(100) + " A"
	}
	return []socketCase{
		{"ClusterSetIP A", each(imports, imported("", " A")), false, 1.0, true},
		{"NXDOMAIN", each(imports, imported("no-", " A")), false, 0.95, true},
		{"ClusterSetIP SRV", each(imports, imported("_https._tcp.", " SRV")), false, 1.05, false},
		{"host name among 100", each(100, host), false, 0.95, false},
		{"headless A, 10", []string{headlessName(10) + " A"}, true, 1.15, false},
		{"headless A, 100", []string{headlessName(100) + " A"}, true, 2.4, true},
		{"headless SRV, 100", []string{"_http._tcp." + headlessName(100) + " SRV"}, true, 5, false},
	}
}

func (b *bench) sockets() ([]row, error) {
	if runtime.NumCPU() < 2 {
		return nil, fmt.Errorf("server and client need a core each, and this machine has one")
	}
	if err := lab.Require("dnsperf", "taskset"); err != nil {
		return nil, err
	}
	api, err := stub.Start(standard(10_000))
	if err != nil {
		return nil, err
	}
	defer api.Close()
	servers := map[string]*server{}
	for _, p := range []string{ours, inTree, ceiling} {
		for name, plugins := range map[string]string{
			p: stanza(p, api.URL), p + "+kubeadm": kubeadm(stanza(p, api.URL), "127.0.0.1:0"),
		} {
			s, err := b.serve(plugins, 0)
			if err != nil {
				return nil, err
			}
			defer s.stop()
			if err := s.ready(20e6); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			servers[name] = s
		}
	}
	rows, err := b.cpuRows(servers)
	if err != nil {
		return nil, err
	}
	more, err := b.latencyRows(servers)
	return append(rows, more...), err
}

// cpuRows measures CPU per query.
func (b *bench) cpuRows(servers map[string]*server) ([]row, error) {
	rounds, seconds := 9, 0.4
	if b.quick {
		rounds, seconds = 2, 0.2
	}
	type series struct{ perQuery, ratio []float64 }
	all := map[string]*series{}
	for range rounds {
		for _, c := range socketCases() {
			names := []string{ours, inTree}
			if c.chain {
				names = append(names, ours+"+kubeadm", inTree+"+kubeadm", ceiling+"+kubeadm")
			}
			base, err := b.perQuery(servers[ceiling], c, seconds)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				p, err := b.perQuery(servers[name], c, seconds)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", name, c.what, err)
				}
				key := name + c.what
				if all[key] == nil {
					all[key] = &series{}
				}
				all[key].perQuery = append(all[key].perQuery, p)
				all[key].ratio = append(all[key].ratio, p/base)
			}
		}
	}
	show := func(key string) (string, float64) {
		s := all[key]
		m := median(s.ratio)
		return fmt.Sprintf("%s (%s)", number(m), microseconds(median(s.perQuery))), m
	}
	var rows []row
	for _, c := range socketCases() {
		x, m := show(ours + c.what)
		y, n := show(inTree + c.what)
		rows = append(rows, row{What: c.what, Ours: x, Theirs: y, Ratio: number(m / n)}.atMost(m, c.bar, ""))
	}
	for _, c := range socketCases() {
		if !c.chain {
			continue
		}
		x, m := show(ours + "+kubeadm" + c.what)
		y, n := show(inTree + "+kubeadm" + c.what)
		w, _ := show(ceiling + "+kubeadm" + c.what)
		rows = append(
			rows,
			row{
				What:   c.what + ", in kubeadm's chain (whoami in it: " + w + ")",
				Ours:   x,
				Theirs: y,
				Ratio:  number(m / n),
			},
		)
	}
	return rows, nil
}

// perQuery is the server's CPU time per query in nanoseconds, over some seconds of load.
func (b *bench) perQuery(s *server, c socketCase, seconds float64) (float64, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	out, err := b.dnsperf(s, c, "-l", strconv.FormatFloat(seconds, 'f', -1, 64), "-c", "4", "-q", "64")
	if err != nil {
		return 0, err
	}
	after, err := s.cpu()
	if err != nil {
		return 0, err
	}
	m := completed.FindStringSubmatch(out)
	if m == nil || m[1] == "0" {
		return 0, fmt.Errorf("dnsperf completed no query: %s", out)
	}
	if strings.Contains(out, "SERVFAIL") {
		return 0, fmt.Errorf("the server failed: %s", out)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	return (after - before) / n, err
}

// latencyRows measures one query at a time.
func (b *bench) latencyRows(servers map[string]*server) ([]row, error) {
	rounds := 3
	if b.quick {
		rounds = 1
	}
	var rows []row
	for _, c := range socketCases() {
		if !c.chain {
			continue
		}
		all := map[string][]float64{}
		for range rounds {
			for _, name := range []string{ours, inTree, ceiling} {
				l, err := b.latencies(servers[name], c)
				if err != nil {
					return nil, err
				}
				all[name] = append(all[name], l...)
			}
		}
		for _, p := range []float64{0.5, 0.99} {
			x, y := percentile(all[ours], p), percentile(all[inTree], p)
			rows = append(
				rows,
				row{
					What: fmt.Sprintf(
						"latency p%.0f, %s (whoami: %s)",
						p*100,
						c.what,
						microseconds(percentile(all[ceiling], p)),
					),
					Ours:   microseconds(x),
					Theirs: microseconds(y),
					Ratio:  number(x / y),
				},
			)
		}
	}
	return rows, nil
}

var answered = regexp.MustCompile(`(?m)^> \w+ .* (\d+\.\d+)$`)

// latencies of single queries, in nanoseconds.
func (b *bench) latencies(s *server, c socketCase) ([]float64, error) {
	return b.latenciesAt(s, c, "-l", "1", "-c", "1", "-q", "1")
}

// latenciesAt returns the latencies of a run of dnsperf, in nanoseconds.
func (b *bench) latenciesAt(s *server, c socketCase, args ...string) ([]float64, error) {
	out, err := b.dnsperf(s, c, append(args, "-v")...)
	if err != nil {
		return nil, err
	}
	var all []float64
	for _, m := range answered.FindAllStringSubmatch(out, -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return nil, err
		}
		all = append(all, seconds*1e9)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("dnsperf reported no latencies: %.500s", out)
	}
	return all, nil
}
