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
	"CPU per query as users run it. Ours is the program of `make images`, with corefile.example: kubeadm's " +
	"Corefile, and the zone in a server block of its own. Stock is CoreDNS' own main package, compiled " +
	"beside it, with the option multicluster of kubernetes in kubeadm's Corefile. It runs once as it is, so that " +
	"cache keeps the zone for up to 30 s, and once with the zone on both disable lines. whoami answers from " +
	"nothing, in a block such as ours, of our program. One core; dnsperf on another, UDP on loopback, four " +
	"clients with 64 queries in flight, EDNS with 4,096 octets for headless Services. Medians of interleaved " +
	"rounds; ratios: ours through stock cached, ours through stock uncached."

// setting is a server: a program, and in what its Corefile differs from kubeadm's.
type setting struct {
	name    string
	program string
	inTree  bool     // the plugin kubernetes answers clusterset.local, too
	block   string   // what answers clusterset.local in a block of its own
	cache   string   // options of cache
	first   string   // in kubeadm's block
	more    string   // in both blocks
	forward string   // to whom; empty: to nobody
	env     []string // beside the program's own
}

// kubeadm's cache, which leaves the cluster's own names to the plugin kubernetes.
const ownUncached = "disable success cluster.local\n\t\tdisable denial cluster.local"

// The servers that are compared.
var (
	ourBlock = setting{name: "our block", program: image, block: ours, cache: ownUncached}
	cached   = setting{name: "stock, cached", program: stock, inTree: true, cache: ownUncached}
	uncached = setting{
		name:    "stock, uncached",
		program: stock,
		inTree:  true,
		cache:   "disable success cluster.local clusterset.local\n\t\tdisable denial cluster.local clusterset.local",
	}
	noAnswer = setting{name: "whoami", program: image, block: ceiling, cache: ownUncached}
)

// corefile returns the Corefile of a server, at a stub API server. What takes no part in an answered question is left
// out (health, loop, reload).
func (s setting) corefile(api string, port, ready, metrics int) string {
	multicluster, zone := "", ""
	if s.inTree {
		zone, multicluster = " clusterset.local", "multicluster clusterset.local\n\t\t"
	}
	forward := s.forward
	if forward == "" {
		forward = "127.0.0.1:1"
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
	forward . %[7]s {
		max_concurrent 1000
	}
	cache 30 {
		%[8]s
	}
	loadbalance
	%[9]s
	%[10]s
}
`, port, ready, metrics, zone, multicluster, api, forward, s.cache, s.first, s.more)
	block := s.block
	if block == ours {
		block = "multicluster {\n\t\tendpoint " + api + "\n\t}"
	}
	if block != "" {
		text += fmt.Sprintf(`clusterset.local:%d {
	bind 127.0.0.1
	errors
	ready 127.0.0.1:%d
	prometheus 127.0.0.1:%d
	%s
	%s
}
`, port, ready, metrics, block, s.more)
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
		{socketCase{what: "A", lines: imported("", "A")}, 0.65, 0.35},
		{socketCase{what: "NXDOMAIN", lines: imported("no-", "A")}, 0.70, 0.35},
		{socketCase{what: "SRV", lines: imported("_https._tcp.", "SRV")}, 0.75, 0.40},
		{socketCase{what: "headless A, 30", lines: headless(30), edns: true}, 0.75, 0.30},
		{socketCase{what: "headless A, 100", lines: headless(100), edns: true}, 0.65, 0.25},
	}
}

// shippedShape is the data set of these parts.
var shippedShape = stub.Shape{Imports: 1000, Services: 1000, Headless: []stub.Headless{
	{Name: "db-30", Endpoints: 30}, {Name: "db-100", Endpoints: 100, First: 1 << 12},
}}

// settings starts servers on one core; stop ends them.
func (b *bench) settings(core int, wanted ...setting) (servers map[string]*server, stop func(), err error) {
	if runtime.NumCPU() < 2 {
		return nil, nil, fmt.Errorf("server and client need a core each, and this machine has one")
	}
	if err := lab.Require("dnsperf", "taskset"); err != nil {
		return nil, nil, err
	}
	api, err := stub.Start(shippedShape)
	if err != nil {
		return nil, nil, err
	}
	servers = map[string]*server{}
	stop = func() {
		for _, s := range servers {
			s.stop()
		}
		api.Close()
	}
	for _, each := range wanted {
		if servers[each.name], err = b.serveSetting(each, api.URL, core); err != nil {
			delete(servers, each.name)
			stop()
			return nil, nil, fmt.Errorf("%s: %w", each.name, err)
		}
	}
	return servers, stop, nil
}

func (b *bench) serveSetting(s setting, api string, core int) (*server, error) {
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	started, err := b.serveCorefile(
		b.program(s.program),
		s.env,
		func(port, ready int) string { return s.corefile(api, port, ready, metrics) },
		core,
	)
	if err != nil {
		return nil, err
	}
	if err := started.ready(20 * time.Millisecond); err != nil {
		started.stop()
		return nil, err
	}
	return started, nil
}

// shipped measures what users run.
func (b *bench) shipped() ([]row, error) {
	servers, stop, err := b.settings(0, ourBlock, cached, uncached, noAnswer)
	if err != nil {
		return nil, err
	}
	defer stop()
	rows, err := b.shippedRows(servers)
	if err != nil {
		return nil, err
	}
	latency, err := b.shippedLatency(servers)
	return append(rows, latency...), err
}

// eachPerQuery returns the medians of CPU per query of interleaved rounds: of each case, by each server.
func (b *bench) eachPerQuery(
	servers map[string]*server,
	cases []socketCase,
	seconds float64,
	wanted ...setting,
) (func(setting, socketCase) float64, error) {
	rounds := 5
	if b.quick {
		rounds, seconds = 2, 0.3
	}
	perQuery := map[string][]float64{} // by server and case
	began := time.Now()
	for i := range rounds {
		if i > 0 && b.limit > 0 && time.Since(began) > b.limit {
			break
		}
		for _, c := range cases {
			for _, each := range wanted {
				p, err := b.perQuery(servers[each.name], c, seconds)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", each.name, c.what, err)
				}
				perQuery[each.name+c.what] = append(perQuery[each.name+c.what], p)
			}
		}
	}
	return func(s setting, c socketCase) float64 { return median(perQuery[s.name+c.what]) }, nil
}

// shippedRows measures CPU per query.
func (b *bench) shippedRows(servers map[string]*server) ([]row, error) {
	wanted := b.shippedWanted()
	var cases []socketCase
	for _, c := range wanted {
		cases = append(cases, c.socketCase)
	}
	of, err := b.eachPerQuery(servers, cases, 3, ourBlock, cached, uncached, noAnswer)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, c := range wanted {
		us, most, all := of(ourBlock, c.socketCase), of(cached, c.socketCase), of(uncached, c.socketCase)
		rows = append(rows, row{
			What:   c.what + " (whoami: " + microseconds(of(noAnswer, c.socketCase)) + ")",
			Ours:   microseconds(us),
			Theirs: microseconds(most) + ", " + microseconds(all),
			Ratio:  number(us/most) + ", " + number(us/all),
		}.atMost(us/most, c.toCached, "").and(row{}.atMost(us/all, c.toUncached, "")))
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

var (
	perSecond = regexp.MustCompile(`Queries per second: +([\d.]+)`)
	completed = regexp.MustCompile(`Queries completed: +(\d+)`)
)

// capacity returns how many queries a second a server answers, and how many it has answered.
func (b *bench) capacity(s *server, c socketCase) (rate, queries float64, err error) {
	seconds := "2"
	if b.quick {
		seconds = "0.3"
	}
	out, err := b.dnsperf(s, c, "-l", seconds, "-c", "4", "-q", "64")
	if err != nil {
		return 0, 0, err
	}
	m, n := perSecond.FindStringSubmatch(out), completed.FindStringSubmatch(out)
	if m == nil || n == nil || n[1] == "0" {
		return 0, 0, fmt.Errorf("dnsperf reported no rate: %.500s", out)
	}
	if rate, err = strconv.ParseFloat(m[1], 64); err == nil {
		queries, err = strconv.ParseFloat(n[1], 64)
	}
	return rate, queries, err
}

// shippedLatency measures latency at half of the cached stock's capacity.
func (b *bench) shippedLatency(servers map[string]*server) ([]row, error) {
	rounds := 5
	if b.quick {
		rounds = 1
	}
	var rows []row
	for _, c := range b.shippedWanted() {
		rate, _, err := b.capacity(servers[cached.name], c.socketCase)
		if err != nil {
			return nil, err
		}
		p99 := map[string][]float64{}
		for range rounds {
			for _, name := range []string{ourBlock.name, cached.name} {
				l, err := b.latenciesAt(servers[name], c.socketCase, "-l", "1", "-c", "4", "-q", "64",
					"-Q", strconv.Itoa(max(int(rate/2), 1)))
				if err != nil {
					return nil, err
				}
				p99[name] = append(p99[name], percentile(l, 0.99))
			}
		}
		x, y := median(p99[ourBlock.name]), median(p99[cached.name])
		rows = append(rows, row{
			What: fmt.Sprintf("latency p99 at %s queries a second, %s", number(float64(int(rate/2))), c.what),
			Ours: microseconds(x), Theirs: microseconds(y), Ratio: number(x / y),
		}.atMost(x/y, 1, ""))
	}
	return rows, nil
}

// throughput measures queries per second on two cores, with multisocket, for the A of ClusterSetIP Services.
func (b *bench) throughput() ([]row, error) {
	us, them := ourBlock, cached
	us.more, them.more = "multisocket 2", "multisocket 2"
	servers, stop, err := b.settings(anyCore, us, them)
	if err != nil {
		return nil, err
	}
	defer stop()
	rounds := 5
	if b.quick {
		rounds = 1
	}
	a := shippedCases()[0].socketCase
	rates, perQuery := map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for name, s := range servers {
			before, err := s.cpu()
			if err != nil {
				return nil, err
			}
			rate, queries, err := b.capacity(s, a)
			if err != nil {
				return nil, err
			}
			after, err := s.cpu()
			if err != nil {
				return nil, err
			}
			rates[name] = append(rates[name], rate)
			perQuery[name] = append(perQuery[name], (after-before)/queries)
		}
	}
	x, y := median(rates[us.name]), median(rates[them.name])
	free := func(s setting) float64 { return 2e9 / median(perQuery[s.name]) }
	return []row{
		row{
			What: "A, queries a second on two cores without the client",
			Ours: number(free(us)), Theirs: number(free(them)),
			Ratio: number(free(us) / free(them)),
		}.atLeast(free(us)/free(them), 1.4, ""),
		{What: "A, queries a second beside the client", Ours: number(x), Theirs: number(y), Ratio: number(x / y)},
	}, nil
}

const aboutThroughput = "" +
	"The same programs and Corefiles with multisocket 2, the server on both cores, and dnsperf beside it on one " +
	"of them. The first row takes the client's share off: the two cores, through the server's CPU per query in this " +
	"run. The second row is what dnsperf counts while it takes its part of the machine. CoreDNS publishes 33,669 " +
	"queries a second on two vCPUs for the kubernetes plugin."

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
