package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const aboutShipped = "" +
	"CPU per query as users run it. Ours is corefile.example: kubeadm's Corefile, and the zone in a server " +
	"block of its own. Stock is kubeadm's Corefile with the option multicluster of kubernetes, once as it is, " +
	"so that cache keeps the zone for up to 30 s, and once with the zone on both disable lines. whoami " +
	"answers from nothing, in a block such as ours. One binary, one core; dnsperf on another, UDP on " +
	"loopback, four clients with 64 queries in flight, EDNS with 4,096 octets for headless Services. Medians " +
	"of interleaved rounds; ratios: ours through stock cached, ours through stock uncached."

// The servers that are compared.
const (
	ourBlock = "our block"
	cached   = "stock, cached"
	uncached = "stock, uncached"
	noAnswer = "whoami"
)

// shippedCorefile returns the Corefile of a server, at a stub API server. What takes no part in an answered
// question is left out (health, loop, reload), and forward has nobody to ask.
func shippedCorefile(server, api string, port, ready, metrics int) string {
	multicluster, zones, disabled, block := "", "", "", ""
	switch server {
	case ourBlock:
		block = "multicluster {\n\t\tendpoint " + api + "\n\t}"
	case noAnswer:
		block = "whoami"
	case uncached:
		disabled = " clusterset.local"
		fallthrough
	case cached:
		zones, multicluster = " clusterset.local", "multicluster clusterset.local\n\t\t"
	}
	text := fmt.Sprintf(`.:%[1]d {
	bind 127.0.0.1
	errors
	ready 127.0.0.1:%[2]d
	kubernetes cluster.local%[4]s in-addr.arpa ip6.arpa {
		%[5]sendpoint %[6]s
		pods insecure
		fallthrough in-addr.arpa ip6.arpa
		ttl 30
		startup_timeout 60s
	}
	prometheus 127.0.0.1:%[3]d
	forward . 127.0.0.1:1 {
		max_concurrent 1000
	}
	cache 30 {
		disable success cluster.local%[7]s
		disable denial cluster.local%[7]s
	}
	loadbalance
}
`, port, ready, metrics, zones, multicluster, api, disabled)
	if block != "" {
		text += fmt.Sprintf(
			"clusterset.local:%d {\n\tbind 127.0.0.1\n\terrors\n"+
				"\tready 127.0.0.1:%d\n\tprometheus 127.0.0.1:%d\n\t%s\n}\n",
			port,
			ready,
			metrics,
			block,
		)
	}
	return text
}

// shippedCase is a question with its bars: ours through stock, cached and uncached.
type shippedCase struct {
	socketCase
	toCached, toUncached float64
}

func shippedCases() []shippedCase {
	const imports = 1000
	dice := rand.New(rand.NewPCG(1, 2))
	imported := func(prefix, qtype string) (lines []string) {
		for _, i := range dice.Perm(imports) {
			name, ns := stub.ClusterSetIP(i)
			lines = append(lines, prefix+name+"."+ns+".svc."+zone+" "+qtype)
		}
		return lines
	}
	headless := func(n int) []string { return []string{headlessName(n) + " A"} }
	return []shippedCase{
		{socketCase{what: "A", lines: imported("", "A")}, 0.85, 0.45},
		{socketCase{what: "NXDOMAIN", lines: imported("no-", "A")}, 0.85, 0.50},
		{socketCase{what: "SRV", lines: imported("_https._tcp.", "SRV")}, 0.95, 0.45},
		{socketCase{what: "headless A, 30", lines: headless(30), edns: true}, 0.75, 0.30},
		{socketCase{what: "headless A, 100", lines: headless(100), edns: true}, 0.70, 0.25},
	}
}

// shipped measures what users run.
func (b *bench) shipped() ([]row, error) {
	if runtime.NumCPU() < 2 {
		return nil, fmt.Errorf("server and client need a core each, and this machine has one")
	}
	if err := lab.Require("dnsperf", "taskset"); err != nil {
		return nil, err
	}
	api, err := stub.Start(stub.Shape{Imports: 1000, Headless: []stub.Headless{
		{Name: "db-30", Endpoints: 30}, {Name: "db-100", Endpoints: 100, First: 1 << 12},
	}})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	servers := map[string]*server{}
	for _, name := range []string{ourBlock, cached, uncached, noAnswer} {
		s, err := b.serveShipped(name, api.URL, 0)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		servers[name] = s
	}
	rows, err := b.shippedRows(servers)
	if err != nil {
		return nil, err
	}
	latency, err := b.shippedLatency(servers)
	return append(rows, latency...), err
}

func (b *bench) serveShipped(name, api string, core int) (*server, error) {
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	s, err := b.serveCorefile(
		func(port, ready int) string { return shippedCorefile(name, api, port, ready, metrics) },
		core,
	)
	if err != nil {
		return nil, err
	}
	if err := s.ready(20 * time.Millisecond); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// shippedRows measures CPU per query.
func (b *bench) shippedRows(servers map[string]*server) ([]row, error) {
	rounds, seconds := 5, 3.0
	if b.quick {
		rounds, seconds = 2, 0.3
	}
	perQuery := map[string][]float64{} // by server and case
	began := time.Now()
	for i := range rounds {
		if i > 0 && b.limit > 0 && time.Since(began) > b.limit {
			break
		}
		for _, c := range b.shippedWanted() {
			for _, name := range []string{ourBlock, cached, uncached, noAnswer} {
				p, err := b.perQuery(servers[name], c.socketCase, seconds)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", name, c.what, err)
				}
				perQuery[name+c.what] = append(perQuery[name+c.what], p)
			}
		}
	}
	var rows []row
	for _, c := range b.shippedWanted() {
		of := func(name string) float64 { return median(perQuery[name+c.what]) }
		toCached, toUncached := of(ourBlock)/of(cached), of(ourBlock)/of(uncached)
		rows = append(rows, row{
			What:   c.what + " (whoami: " + microseconds(of(noAnswer)) + ")",
			Ours:   microseconds(of(ourBlock)),
			Theirs: microseconds(of(cached)) + ", " + microseconds(of(uncached)),
			Ratio:  number(toCached) + ", " + number(toUncached),
		}.atMost(toCached, c.toCached, "").and(row{}.atMost(toUncached, c.toUncached, "")))
	}
	return rows, nil
}

// shippedWanted returns the cases that the selector matches.
func (b *bench) shippedWanted() (wanted []shippedCase) {
	for _, c := range shippedCases() {
		if b.rows == nil || b.rows.MatchString(c.what) {
			wanted = append(wanted, c)
		}
	}
	return wanted
}

var perSecond = regexp.MustCompile(`Queries per second: +([\d.]+)`)

// capacity returns how many queries a second a server answers.
func (b *bench) capacity(s *server, c socketCase) (float64, error) {
	seconds := "2"
	if b.quick {
		seconds = "0.3"
	}
	out, err := b.dnsperf(s, c, "-l", seconds, "-c", "4", "-q", "64")
	if err != nil {
		return 0, err
	}
	m := perSecond.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("dnsperf reported no rate: %.500s", out)
	}
	return strconv.ParseFloat(m[1], 64)
}

// shippedLatency measures latency at half of the cached stock's capacity.
func (b *bench) shippedLatency(servers map[string]*server) ([]row, error) {
	rounds := 5
	if b.quick {
		rounds = 1
	}
	var rows []row
	for _, c := range b.shippedWanted() {
		rate, err := b.capacity(servers[cached], c.socketCase)
		if err != nil {
			return nil, err
		}
		p99 := map[string][]float64{}
		for range rounds {
			for _, name := range []string{ourBlock, cached} {
				l, err := b.latenciesAt(servers[name], c.socketCase, "-l", "1", "-c", "4", "-q", "64",
					"-Q", strconv.Itoa(max(int(rate/2), 1)))
				if err != nil {
					return nil, err
				}
				p99[name] = append(p99[name], percentile(l, 0.99))
			}
		}
		x, y := median(p99[ourBlock]), median(p99[cached])
		rows = append(rows, row{
			What: fmt.Sprintf("latency p99 at %s queries a second, %s", number(float64(int(rate/2))), c.what),
			Ours: microseconds(x), Theirs: microseconds(y), Ratio: number(x / y),
		}.atMost(x/y, 1, ""))
	}
	return rows, nil
}

// throughput measures queries per second on two cores, with multisocket, for the A of ClusterSetIP Services.
func (b *bench) throughput() ([]row, error) {
	if err := lab.Require("dnsperf", "taskset"); err != nil {
		return nil, err
	}
	api, err := stub.Start(stub.Shape{Imports: 1000})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	rates := map[string][]float64{}
	rounds := 5
	if b.quick {
		rounds = 1
	}
	servers := map[string]*server{}
	for _, name := range []string{ourBlock, cached} {
		metrics, err := freePort()
		if err != nil {
			return nil, err
		}
		s, err := b.serveCorefile(func(port, ready int) string {
			text := shippedCorefile(name, api.URL, port, ready, metrics)
			return strings.ReplaceAll(text, "\tbind 127.0.0.1\n", "\tbind 127.0.0.1\n\tmultisocket 2\n")
		}, anyCore)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		if err := s.ready(20 * time.Millisecond); err != nil {
			return nil, err
		}
		servers[name] = s
	}
	a := shippedCases()[0].socketCase
	for range rounds {
		for name, s := range servers {
			rate, err := b.capacity(s, a)
			if err != nil {
				return nil, err
			}
			rates[name] = append(rates[name], rate)
		}
	}
	x, y := median(rates[ourBlock]), median(rates[cached])
	return []row{{What: "A, queries a second", Ours: number(x), Theirs: number(y), Ratio: number(x / y)}}, nil
}

const aboutThroughput = "" +
	"The same Corefiles with multisocket 2, the server on every core, and dnsperf beside it on one of them: " +
	"the client takes a part of the machine. CoreDNS publishes 33,669 queries a second on two vCPUs for the " +
	"kubernetes plugin."

// writeQueries writes what dnsperf asks.
func (b *bench) writeQueries(lines []string) (string, error) {
	file := filepath.Join(b.dir, "queries")
	return file, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// dnsperf runs on every core but the servers'.
func (b *bench) dnsperf(s *server, c socketCase, args ...string) (string, error) {
	file, err := b.writeQueries(c.lines)
	if err != nil {
		return "", err
	}
	cores := "1"
	if n := runtime.NumCPU(); n > 2 {
		cores += "-" + strconv.Itoa(n-1)
	}
	args = append(
		[]string{"-c", cores, "dnsperf", "-s", "127.0.0.1", "-p", strconv.Itoa(s.port), "-d", file},
		args...)
	if c.edns {
		args = append(args, "-e")
	}
	out, err := exec.CommandContext(b.ctx, "taskset", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("dnsperf: %w: %s", err, out)
	}
	return string(out), nil
}
