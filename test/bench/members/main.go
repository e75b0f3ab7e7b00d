// Command members measures how long a change takes from one cluster to the other's answer, on real control planes: a hub, members a and b
// with agent and CoreDNS each, and simulated members that write records to the hub with ServiceAccounts of their own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const ns = "bench"

func main() {
	out := flag.String("out", "", "file to write the table to, besides the screen")
	rounds := flag.Int("rounds", 200, "changes measured for each line")
	peers := flag.Int("peers", 40, "simulated members")
	each := flag.Int("slices", 50, "EndpointRecords of each simulated member")
	rate := flag.Int("rate", 50, "changes a second by the simulated members")
	flag.Parse()
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	table, err := measure(ctx, *rounds, *peers, *each, *rate)
	fmt.Print(table)
	if err == nil && *out != "" {
		err = os.WriteFile(*out, []byte(table), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type bench struct {
	*lab.ClusterSet
	a     client.Client
	table strings.Builder
}

func measure(ctx context.Context, rounds, peers, each, rate int) (string, error) {
	set, err := lab.StartClusterSet(ctx, lab.ClusterSetOptions{Members: []string{"a", "b"}, DNS: true})
	if err != nil {
		return "", err
	}
	defer set.Stop()
	b := &bench{ClusterSet: set}
	if b.a, err = connect(set.Members[0].Cluster.Kubeconfig()); err != nil {
		return "", err
	}
	for _, m := range set.Members {
		if _, err := m.Cluster.Kubectl(ctx, "", "create", "namespace", ns); err != nil {
			return "", err
		}
	}
	fmt.Fprintf(&b.table, "# From one cluster to the other's answer\n\nWritten by `make bench-members`: a hub and members a and b on one machine, each a control plane of its own with agent and CoreDNS.\n"+
		"A change is made in a; it is there when CoreDNS in b gives the new answer. %d changes each, one after the other.\n\n| what | p50 | p99 |\n| --- | --- | --- |\n", rounds)
	if err := b.exports(ctx, rounds); err != nil {
		return b.table.String(), err
	}
	moving, err := b.moving(ctx)
	if err != nil {
		return b.table.String(), err
	}
	before, err := b.spent(ctx)
	if err != nil {
		return b.table.String(), err
	}
	if err := b.changes(ctx, "endpoint change → answer, quiet", moving, rounds); err != nil {
		return b.table.String(), err
	}
	after, err := b.spent(ctx)
	if err != nil {
		return b.table.String(), err
	}
	cost := fmt.Sprintf("Each of the quiet endpoint changes took %.2f requests for records of the hub, and %.0f octets to and from it, both agents together, watches, TLS and heartbeats included.",
		(after.requests-before.requests)/float64(rounds), float64(after.bytes-before.bytes)/float64(rounds))
	stop, err := b.peers(ctx, peers, each, rate)
	if err != nil {
		return b.table.String(), err
	}
	err = b.changes(ctx, fmt.Sprintf("endpoint change → answer, at %d changes/s with %d slices of %d simulated members on the hub", rate, peers*each, peers), moving, rounds)
	if err == nil {
		err = b.restarts(ctx, moving, 10)
	}
	wrote := stop()
	if err != nil {
		return b.table.String(), err
	}
	fmt.Fprintf(&b.table, "\n%s\n", cost)
	fmt.Fprintf(&b.table, "\nThe simulated members made %.0f changes a second meanwhile. Resident memory of b's agent: %d MiB.\n", wrote, resident(set.Members[1].Agent.PID())>>20)
	return b.table.String(), nil
}

// spending is what the agents have cost the hub so far.
type spending struct {
	requests float64 // but for watches, of the kinds of records
	bytes    int64
}

var recordRequests = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="(?:serviceexportrecords|endpointrecords)"[^}]*verb="(?:GET|LIST|POST|PUT|PATCH|DELETE)"[^}]*\} (\S+)$`)

func (b *bench) spent(ctx context.Context) (s spending, err error) {
	text, err := b.Hub.Kubectl(ctx, "", "get", "--raw", "/metrics")
	if err != nil {
		return s, err
	}
	for _, m := range recordRequests.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return s, err
		}
		s.requests += n
	}
	for _, m := range b.Members {
		s.bytes += m.ToHub.Bytes()
	}
	return s, nil
}

func connect(kubeconfig string) (client.Client, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return client.New(cfg, client.Options{Scheme: agent.Scheme()})
}

func (b *bench) line(what string, took []time.Duration) {
	slices.Sort(took)
	fmt.Fprintf(&b.table, "| %s | %d ms | %d ms |\n", what, took[len(took)/2].Milliseconds(), took[len(took)*99/100].Milliseconds())
}

// exports measures from ServiceExport to answer.
func (b *bench) exports(ctx context.Context, rounds int) error {
	var took []time.Duration
	for i := range rounds {
		svc, slice := service(fmt.Sprintf("web%d", i), fmt.Sprintf("10.1.%d.%d", 1+i/250, i%250))
		if err := b.a.Create(ctx, svc); err != nil {
			return err
		}
		if err := b.a.Create(ctx, slice); err != nil {
			return err
		}
		began := time.Now()
		if err := b.a.Create(ctx, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: svc.Name}}); err != nil {
			return err
		}
		if err := b.until(ctx, svc.Name, func(answer []string) bool { return len(answer) == 1 }); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	b.line("ServiceExport → import → answer (clusterset IP)", took)
	return nil
}

// moving is a headless Service whose one address changes.
func (b *bench) moving(ctx context.Context) (*discoveryv1.EndpointSlice, error) {
	svc, slice := service("moving", "10.2.0.1")
	svc.Spec.ClusterIP = corev1.ClusterIPNone
	for _, o := range []client.Object{svc, slice, &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "moving"}}} {
		if err := b.a.Create(ctx, o); err != nil {
			return nil, err
		}
	}
	return slice, b.until(ctx, "moving", func(answer []string) bool { return slices.Equal(answer, []string{"10.2.0.1"}) })
}

func (b *bench) changes(ctx context.Context, what string, slice *discoveryv1.EndpointSlice, rounds int) error {
	var took []time.Duration
	for i := range rounds {
		address := fmt.Sprintf("10.%d.%d.%d", 3+len(b.table.String())%100, 1+i/250, i%250)
		slice.Endpoints[0].Addresses[0] = address
		began := time.Now()
		if err := b.a.Update(ctx, slice); err != nil {
			return err
		}
		if err := b.until(ctx, "moving", func(answer []string) bool { return slices.Equal(answer, []string{address}) }); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	b.line(what, took)
	return nil
}

// restarts measures a change that is made while b's agent starts and reads all of the hub.
func (b *bench) restarts(ctx context.Context, slice *discoveryv1.EndpointSlice, rounds int) error {
	var took []time.Duration
	for i := range rounds {
		b.Members[1].Agent.Kill()
		began := time.Now()
		if err := b.Members[1].Agent.Start(ctx); err != nil {
			return err
		}
		address := fmt.Sprintf("10.2.9.%d", i)
		slice.Endpoints[0].Addresses[0] = address
		if err := b.a.Update(ctx, slice); err != nil {
			return err
		}
		if err := b.until(ctx, "moving", func(answer []string) bool { return slices.Equal(answer, []string{address}) }); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	b.line(fmt.Sprintf("the same, counted from the start of b's agent, which was killed (%d times)", rounds), took)
	return nil
}

// until asks b's CoreDNS until the answer is right.
func (b *bench) until(ctx context.Context, name string, right func([]string) bool) error {
	m := new(dns.Msg)
	m.SetQuestion(name+"."+ns+".svc.clusterset.local.", dns.TypeA)
	conn, err := dns.Dial("udp", b.Members[1].DNS.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		if err := conn.WriteMsg(m); err != nil {
			return err
		}
		reply, err := conn.ReadMsg()
		if err != nil {
			return err
		}
		var answer []string
		for _, rr := range reply.Answer {
			if a, ok := rr.(*dns.A); ok {
				answer = append(answer, a.A.String())
			}
		}
		if right(answer) {
			return nil
		}
	}
	return fmt.Errorf("%s has not the right answer after a minute; the agent of b says:\n%s", name, b.Members[1].Agent.Log())
}

// peers are simulated members, which change their records at a rate until stop, which tells the rate that was reached.
func (b *bench) peers(ctx context.Context, members, each, rate int) (stop func() float64, err error) {
	root, err := lab.Root()
	if err != nil {
		return nil, err
	}
	var records []*hubv1alpha1.EndpointRecord
	var writers []client.Client
	for i := range members {
		id := fmt.Sprintf("peer%d", i)
		if err := b.Hub.Apply(ctx, lab.HubMember(root, id)); err != nil {
			return nil, err
		}
		kubeconfig, err := b.Hub.ServiceAccountKubeconfig(ctx, lab.HubNamespace, "mcs-"+id, nil)
		if err != nil {
			return nil, err
		}
		c, err := connect(kubeconfig)
		if err != nil {
			return nil, err
		}
		for j := range each {
			origin := hubv1alpha1.Origin{ClusterID: id, ServiceNamespace: ns, ServiceName: fmt.Sprintf("peer%d", j), Revision: 1}
			export := &hubv1alpha1.ServiceExportRecord{
				ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: origin.ServiceName + "." + ns + "." + id},
				Spec: hubv1alpha1.ServiceExportRecordSpec{Origin: origin, ExportedAt: &metav1.Time{Time: time.Now()}, Type: mcsv1beta1.ClusterSetIP,
					Ports: []hubv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
			}
			port := int32(8080)
			record := &hubv1alpha1.EndpointRecord{
				ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: fmt.Sprintf("slice-%d.%s", j, id)},
				Spec: hubv1alpha1.EndpointRecordSpec{Origin: origin, AddressType: discoveryv1.AddressTypeIPv4,
					Ports:     []hubv1alpha1.EndpointPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: &port}},
					Endpoints: []hubv1alpha1.Endpoint{{Address: fmt.Sprintf("10.%d.%d.1", 100+i, j)}}},
			}
			for _, o := range []client.Object{export, record} {
				if err := c.Create(ctx, o); err != nil {
					return nil, err
				}
			}
			records, writers = append(records, record), append(writers, c)
		}
	}
	last := fmt.Sprintf("peer%d", each-1)
	if err := b.until(ctx, last, func(answer []string) bool { return len(answer) == 1 }); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	var wrote atomic.Int64
	began := time.Now()
	done.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			<-tick.C
			rec := records[i*7919%len(records)]
			rec.Spec.Revision++
			rec.Spec.Endpoints[0].Address = fmt.Sprintf("10.99.%d.%d", i/250%250, i%250)
			if writers[i*7919%len(records)].Update(ctx, rec) == nil {
				wrote.Add(1)
			}
		}
	})
	return func() float64 {
		cancel()
		done.Wait()
		return float64(wrote.Load()) / time.Since(began).Seconds()
	}, nil
}

func service(name, address string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	port, target, ready, tcp := "http", int32(8080), true, corev1.ProtocolTCP
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: port, Port: 80, Protocol: tcp}}}}
	meta.Name += "-1"
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	return svc, &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: &port, Port: &target, Protocol: &tcp}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}}}
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
