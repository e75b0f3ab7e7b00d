// Command members measures how long a change takes from one cluster to the other's answer, on real control planes:
// a hub, members a and b with agent and CoreDNS each, and simulated members that write records and renew Leases on
// the hub with ServiceAccounts of their own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/test/bench/bar"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const ns = "bench"

type options struct {
	rounds, peers, each, rate, restarts, kills int
	ownNames                                   bool
	target                                     string
	images                                     string
}

func main() {
	var o options
	out := flag.String("out", "", "file to write the table to, in addition to the screen")
	flag.IntVar(&o.rounds, "rounds", 200, "changes measured for each line but the restarts'")
	flag.IntVar(&o.peers, "peers", 40, "simulated members")
	flag.IntVar(&o.each, "slices", 50, "exports of each simulated member, each with one endpoint")
	flag.IntVar(&o.rate, "rate", 50, "changes a second by the simulated members")
	flag.BoolVar(&o.ownNames, "own-names", false, "each simulated member exports names of its own; else all the same")
	flag.StringVar(&o.target, "target", "bench-members", "the target of make, for the page")
	flag.IntVar(&o.restarts, "restarts", 10, "kills of b's agent")
	flag.IntVar(&o.kills, "hub-kills", 0, "kills of the hub's API server, and a page of these alone")
	flag.Parse()
	if *out != "" {
		o.images = filepath.Join(filepath.Dir(*out), "images")
	}
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // of informers that wait for a hub that was killed
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	table, missed, err := measure(ctx, o)
	fmt.Print(table)
	if err == nil && *out != "" {
		err = os.WriteFile(*out, []byte(table), 0o644)
	}
	if err == nil {
		err = missed.Err()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type bench struct {
	*lab.ClusterSet
	clients map[*lab.Member]client.Client
	table   strings.Builder
	missed  bar.Missed
	rest    requests
}

// Bars of the 99th percentile.
const (
	barLoaded  = 2 * time.Second // an endpoint change, quiet or under load
	barRestart = 5 * time.Second // a change during a cold start
)

func measure(ctx context.Context, o options) (string, bar.Missed, error) {
	waiting := load()
	members := []string{"a", "b"}
	if o.kills > 0 {
		members = members[:1]
	}
	set, err := lab.StartClusterSet(ctx, lab.ClusterSetOptions{Members: members, DNS: true})
	if err != nil {
		return "", nil, err
	}
	defer set.Stop()
	b := &bench{ClusterSet: set, clients: map[*lab.Member]client.Client{}}
	for _, m := range set.Members {
		if b.clients[m], err = connect(m.Cluster.Kubeconfig()); err != nil {
			return "", nil, err
		}
		if _, err := m.Cluster.Kubectl(ctx, "", "create", "namespace", ns); err != nil {
			return "", nil, err
		}
	}
	if o.kills > 0 {
		err := b.outagePage(ctx, &o)
		return b.table.String(), b.missed, err
	}
	fmt.Fprintf(&b.table, membersPage, o.target, runtime.NumCPU(), waiting)
	notes, err := b.run(ctx, o)
	b.table.WriteString(notes)
	return b.table.String(), b.missed, err
}

// membersPage is the head of the page.
const membersPage = `# From one cluster to the other's answer

` + "`make %s`" + ` wrote this page with a hub and members a and b on one machine of %d CPUs. Each is a control plane with
agent and CoreDNS. A change is made in a. It is complete when CoreDNS in b gives the new answer. The column CPUs has the
CPUs that all of this used, and the next one those that other programs of the machine used. The load average was %s at
the start.

| what | changes | p50 | p99 | bar of p99 | holds | CPUs | others' CPUs |
| --- | --- | --- | --- | --- | --- | --- | --- |
`

// run measures line after line, and returns what is to be said below them.
func (b *bench) run(ctx context.Context, o options) (notes string, err error) {
	from, to := b.Members[0], b.Members[1]
	if err := b.exports(ctx, o.rounds); err != nil {
		return "", err
	}
	moving, err := b.moving(ctx, from, to, "moving")
	if err != nil {
		return "", err
	}
	before, err := b.spent(ctx)
	if err != nil {
		return "", err
	}
	if err := b.changes(ctx, "endpoint change → answer, quiet", moving, o.rounds); err != nil {
		return "", err
	}
	after, err := b.spent(ctx)
	if err != nil {
		return "", err
	}
	notes = fmt.Sprintf(
		"\nEach of the quiet endpoint changes took %.2f requests for records of the hub, and %.0f octets to and "+
			"from it, both agents together, watches, TLS and heartbeats included.\n",
		(after.requests-before.requests)/float64(o.rounds),
		float64(after.bytes-before.bytes)/float64(o.rounds),
	)
	began := time.Now()
	crowd, err := b.gather(ctx, &o)
	if err != nil {
		return notes, err
	}
	notes += fmt.Sprintf("\nMembers a and b had imported all slices of the simulated members %v after the first of "+
		"these joined.\n", time.Since(began).Round(time.Second))
	names := fmt.Sprintf("the same %d names", o.each)
	if o.ownNames {
		names = "a name for each slice"
	}
	server, err := metrics(ctx, to.Cluster)
	if err != nil {
		return notes, err
	}
	wrote, loaded := sum(server, sliceWrites), time.Now()
	err = b.changes(
		ctx,
		fmt.Sprintf(
			"endpoint change → answer, at %d changes/s, %d exports of %d simulated members that export %s",
			o.rate, o.peers*o.each, o.peers, names,
		),
		moving,
		o.rounds,
	)
	if err == nil {
		server, err = metrics(ctx, to.Cluster)
	}
	if err == nil {
		notes += fmt.Sprintf(
			"\nMeanwhile b's API server took %.1f writes of EndpointSlices a second. At the end of that line b's "+
				"agent had %d MiB of resident memory, and its API server %.0f MiB.\n",
			(sum(server, sliceWrites)-wrote)/time.Since(loaded).Seconds(),
			resident(to.Agent.PID())>>20, sum(server, residentMemory)/(1<<20),
		)
		var note string
		note, err = b.restarts(ctx, o.restarts)
		notes += note
	}
	return notes + "\n" + crowd.stop().report(&b.missed, o.rate) + "\n", err
}

// spending is what the agents have cost the hub so far.
type spending struct {
	requests float64 // but for watches, of the kinds of records
	bytes    int64
}

var (
	recordRequests = regexp.MustCompile(
		`(?m)^apiserver_request_total\{[^}]*resource="(?:serviceexportrecords|endpointpages)"[^}]*` +
			`verb="(?:GET|LIST|POST|PUT|PATCH|DELETE)"[^}]*\} (\S+)$`,
	)
	sliceWrites = regexp.MustCompile(
		`(?m)^apiserver_request_total\{[^}]*resource="endpointslices"[^}]*` +
			`verb="(?:POST|PUT|PATCH|DELETE)"[^}]*\} (\S+)$`,
	)
	residentMemory = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)
)

// metrics is what the API server of a cluster shows of itself.
func metrics(ctx context.Context, of *lab.ControlPlane) (string, error) {
	return of.Kubectl(ctx, "", "get", "--raw", "/metrics")
}

// sum adds what a pattern finds in metrics.
func sum(text string, pattern *regexp.Regexp) (all float64) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(m[1], 64) // the API server writes numbers
		all += n
	}
	return all
}

func (b *bench) spent(ctx context.Context) (s spending, err error) {
	text, err := metrics(ctx, b.Hub)
	if err != nil {
		return s, err
	}
	s.requests = sum(text, recordRequests)
	for _, m := range b.Members {
		s.bytes += m.ToHub.Bytes()
	}
	return s, nil
}

func connect(kubeconfig string) (client.Client, error) {
	cfg, err := config(kubeconfig)
	if err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{Scheme: agent.Scheme()})
}

// line writes a row; most is the bar of its 99th percentile, 0 for none.
func (b *bench) line(what string, took []time.Duration, most time.Duration, since cpu) {
	own, others := since.used()
	p50, p99 := quantiles(took)
	bound, holds := "", ""
	if most > 0 {
		bound = fmt.Sprintf("< %d ms", most.Milliseconds())
		holds = b.missed.Holds(
			fmt.Sprintf("%s: p99 %d ms, bar %s", what, p99.Milliseconds(), bound),
			len(took) > 0 && p99 < most,
		)
	}
	row := fmt.Sprintf(
		"| %s | %d | %d ms | %d ms | %s | %s | %.1f | %.1f |\n",
		what,
		len(took),
		p50.Milliseconds(),
		p99.Milliseconds(),
		bound,
		holds,
		own,
		others,
	)
	fmt.Fprint(os.Stderr, row) // a run takes long
	b.table.WriteString(row)
}

func quantiles(took []time.Duration) (p50, p99 time.Duration) {
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

// resident is a process's resident memory in octets.
func resident(pid int) int {
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "statm"))
	if err != nil {
		return 0
	}
	var size, pages int
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}
