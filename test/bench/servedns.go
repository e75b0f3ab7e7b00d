package main

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

const aboutServeDNS = "" +
	"Both plugins in one process, loaded from a Corefile; a query goes through the plugin chain as the server " +
	"hands it over, and the reply is packed. Data: 10,000 ClusterSetIP imports, headless Services of 10, 100 " +
	"and 1,000 endpoints with host names over five source clusters. Each number is the median of many short " +
	"rounds in turns, in CPU time; ratio: in-tree's time through ours. UDP without EDNS where nothing is " +
	"said."

// standard is the data set of the questions below.
func standard(imports int) stub.Shape {
	return stub.Shape{Imports: imports, Headless: []stub.Headless{
		{Name: "db-10", Endpoints: 10, First: 0},
		{Name: "db-100", Endpoints: 100, First: 1 << 12},
		{Name: "db-1000", Endpoints: 1000, First: 2 << 12},
		{Name: "dual-100", Endpoints: 100, First: 3 << 12, DualStack: true},
	}}
}

// one is the import that questions ask for.
const one = 4242

func clusterSetIPName() string {
	name, ns := stub.ClusterSetIP(one)
	return name + "." + ns + ".svc." + zone
}

func headlessName(n int) string {
	return fmt.Sprintf("db-%d.%s.svc.%s", n, stub.HeadlessNamespace, zone)
}

func hostName(n int) string {
	host, cluster := stub.Headless{}.Host(n / 2)
	return host + "." + cluster + "." + headlessName(n)
}

const tcp = math.MaxUint16 // as EDNS buffer size: over TCP, without EDNS

// microCase is one question, with its bars: how many times faster than in-tree, and how many allocations (0: no
// bar).
type microCase struct {
	what   string
	name   string
	qtype  uint16
	size   uint16
	faster float64
	allocs float64
}

func microCases() []microCase {
	cases := []microCase{
		{"ClusterSetIP A", clusterSetIPName(), dns.TypeA, 0, 3, 6},
		{"ClusterSetIP SRV", clusterSetIPName(), dns.TypeSRV, 0, 3, 6},
		{"ClusterSetIP SRV of the port", "_https._tcp." + clusterSetIPName(), dns.TypeSRV, 0, 3, 6},
		{"NXDOMAIN", "no-such." + stub.HeadlessNamespace + ".svc." + zone, dns.TypeA, 0, 3, 6},
		{"host name among 100", hostName(100), dns.TypeA, 0, 3, 6},
		{"host name among 1,000", hostName(1000), dns.TypeA, 0, 3, 6},
	}
	for _, s := range []struct {
		size uint16
		how  string
	}{{0, ""}, {1232, ", EDNS 1232"}, {tcp, ", TCP"}} {
		cases = append(cases,
			microCase{"headless A, 10" + s.how, headlessName(10), dns.TypeA, s.size, 3, 10},
			microCase{"headless A, 100" + s.how, headlessName(100), dns.TypeA, s.size, 3, 10},
			microCase{"headless A, 1,000" + s.how, headlessName(1000), dns.TypeA, s.size, 3, 10})
	}
	return append(
		cases,
		microCase{"headless SRV, 100, EDNS 1232", "_http._tcp." + headlessName(100), dns.TypeSRV, 1232, 0, 0},
		microCase{"headless SRV, 100, TCP", "_http._tcp." + headlessName(100), dns.TypeSRV, tcp, 0, 0},
		microCase{
			"headless AAAA, 100 dual-stack",
			"dual-100." + stub.HeadlessNamespace + ".svc." + zone,
			dns.TypeAAAA,
			0,
			0,
			10,
		},
		microCase{"AAAA at IPv4-only headless, 1,000", headlessName(1000), dns.TypeAAAA, 0, 0, 0},
		microCase{"TXT at headless, 1,000", headlessName(1000), dns.TypeTXT, 0, 0, 0},
		microCase{"MX at headless, 1,000", headlessName(1000), dns.TypeMX, 0, 0, 0},
	)
}

func (b *bench) serveDNS() ([]row, error) {
	s, err := stub.Start(standard(10_000))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	rounds := 101
	if b.quick {
		rounds = 9
	}
	var rows []row
	err = b.child(&rows, "servedns", s.URL, strconv.Itoa(rounds))
	return rows, err
}

// roleServeDNS measures in a process that holds the plugins and nothing else.
func roleServeDNS(args []string) (any, error) {
	api := args[0]
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	blocks := map[string]string{}
	for _, p := range []string{ours, inTree, ceiling} {
		blocks[p] = stanza(p, api)
		blocks[p+"+kubeadm"] = kubeadm(stanza(p, api), "127.0.0.1:0")
	}
	instance, err := load(blocks)
	if err != nil {
		return nil, err
	}
	defer instance.Stop()
	askers := map[string]*asker{}
	for name := range blocks {
		if askers[name], err = newAsker(name); err != nil {
			return nil, err
		}
	}
	for name, a := range askers {
		if name != ceiling && name != ceiling+"+kubeadm" {
			if err := a.await(time.Minute); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	m := micro{askers, rounds}
	var rows []row
	for _, part := range []func() ([]row, error){m.plugins, m.flat, m.chains} {
		r, err := part()
		if err != nil {
			return nil, err
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

type micro struct {
	askers map[string]*asker
	rounds int
}

// plugins compares ours with in-tree.
func (m micro) plugins() ([]row, error) {
	var rows []row
	for _, c := range microCases() {
		a, err := m.target(ours, c)
		if err != nil {
			return nil, err
		}
		b, err := m.target(inTree, c)
		if err != nil {
			return nil, err
		}
		x, y, ratio := m.compare(a, b)
		r := row{What: c.what, Ours: x.String(), Theirs: y.String(), Ratio: times(ratio)}
		if c.faster > 0 {
			r = r.atLeast(ratio, c.faster, " ×")
		}
		if c.allocs > 0 {
			allocs := row{}.atMost(x.allocs, c.allocs, " allocs")
			if r.Bar == "" {
				r.Bar, r.Holds = allocs.Bar, allocs.Holds
			} else {
				r = r.and(allocs)
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// noise is how much two equal things may differ here.
const noise = 1.1

// flat compares ours with ours: what must not depend on the size of the Service.
func (m micro) flat() ([]row, error) {
	cases := map[string]microCase{}
	for _, c := range microCases() {
		cases[c.what] = c
	}
	var rows []row
	for _, pair := range [][2]string{
		{"host name among 1,000", "host name among 100"},
		{"AAAA at IPv4-only headless, 1,000", "NXDOMAIN"},
		{"TXT at headless, 1,000", "NXDOMAIN"},
		{"MX at headless, 1,000", "NXDOMAIN"},
	} {
		a, err := m.target(ours, cases[pair[0]])
		if err != nil {
			return nil, err
		}
		b, err := m.target(ours, cases[pair[1]])
		if err != nil {
			return nil, err
		}
		x, _, ratio := m.compare(a, b)
		rows = append(rows, row{What: "ours: " + pair[0] + ", through " + pair[1], Ours: microseconds(x.ns),
			Ratio: times(1 / ratio)}.atMost(1/ratio, noise, " ×"))
	}
	return rows, nil
}

// chains tells what kubeadm's chain adds.
func (m micro) chains() ([]row, error) {
	var rows []row
	for _, c := range microCases() {
		switch c.what {
		case "ClusterSetIP A", "NXDOMAIN", "headless A, 100":
		default:
			continue
		}
		a, err := m.target(ours+"+kubeadm", c)
		if err != nil {
			return nil, err
		}
		b, err := m.target(inTree+"+kubeadm", c)
		if err != nil {
			return nil, err
		}
		x, y, ratio := m.compare(a, b)
		rows = append(
			rows,
			row{What: c.what + ", in kubeadm's chain", Ours: x.String(), Theirs: y.String(), Ratio: times(ratio)},
		)
	}
	c := microCase{what: "whoami", name: clusterSetIPName(), qtype: dns.TypeA}
	a, err := m.target(ceiling, c)
	if err != nil {
		return nil, err
	}
	b, err := m.target(ceiling+"+kubeadm", c)
	if err != nil {
		return nil, err
	}
	x, y, _ := m.compare(a, b)
	return append(
		rows,
		row{What: "whoami, bare (left) and in kubeadm's chain (right)", Ours: x.String(), Theirs: y.String()},
	), nil
}

// target is one question to one chain.
type target struct {
	*asker
	r *dns.Msg
	n int // queries in a round
}

// target checks that the chain answers the question as it should before anything is measured.
func (m micro) target(name string, c microCase) (target, error) {
	a := *m.askers[name]
	size := c.size
	if size == tcp {
		a.w.remote, size = tcpClient, 0
	}
	t := target{asker: &a, r: question(c.name, c.qtype, size)}
	reply, err := t.answer(t.r)
	if err != nil {
		return t, fmt.Errorf("%s, %s: %w", name, c.what, err)
	}
	positive := c.faster > 0 && c.what != "NXDOMAIN"
	if positive && (reply.Rcode != dns.RcodeSuccess || len(reply.Answer) == 0) {
		return t, fmt.Errorf(
			"%s, %s: the reply is %s with %d answers",
			name,
			c.what,
			dns.RcodeToString[reply.Rcode],
			len(reply.Answer),
		)
	}
	// A round takes about 4 ms.
	for t.n = 1; ; t.n *= 2 {
		if took := t.round(); took > 2e6 {
			t.n = max(1, int(float64(t.n)*4e6/took))
			return t, nil
		}
	}
}

// round asks n times and tells the CPU time of this process in nanoseconds.
func (t target) round() float64 {
	began := cpu()
	for range t.n {
		if err := t.ask(t.r); err != nil {
			panic(err) // it was answered before
		}
	}
	return cpu() - began
}

// cost of one query.
type cost struct{ ns, bytes, allocs float64 }

func (c cost) String() string {
	return fmt.Sprintf("%s, %s B, %s allocs", microseconds(c.ns), number(c.bytes), number(c.allocs))
}

// compare runs rounds of a and b in turns; the ratio is b through a.
func (m micro) compare(a, b target) (x, y cost, ratio float64) {
	x.bytes, x.allocs = a.allocations()
	y.bytes, y.allocs = b.allocations()
	var as, bs, ratios []float64
	for range m.rounds {
		p, q := a.round()/float64(a.n), b.round()/float64(b.n)
		as, bs, ratios = append(as, p), append(bs, q), append(ratios, q/p)
	}
	x.ns, y.ns = median(as), median(bs)
	return x, y, median(ratios)
}

func (t target) allocations() (bytes, allocs float64) {
	const n = 1000
	t.n = n
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	t.round()
	runtime.ReadMemStats(&after)
	return math.Round(float64(after.TotalAlloc-before.TotalAlloc) / n), math.Round(
		float64(after.Mallocs-before.Mallocs) / n,
	)
}

// cpu is the time that this process has been given so far, in nanoseconds.
func cpu() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return float64(t.Nano())
}
