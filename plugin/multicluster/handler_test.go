package multicluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// fixed is a source whose state a test sets.
type fixed struct {
	index    *catalog.Table[*catalog.Service]
	unsynced atomic.Bool
}

func (f *fixed) Index() *catalog.Table[*catalog.Service] { return f.index }
func (f *fixed) Unready() string                         { return "as the test wants it" }
func (f *fixed) Synced() bool                            { return !f.unsynced.Load() }

var nameserver = netip.MustParseAddr("127.0.0.1")

// handler serves objects in the default zone.
func handler(objs model.Objects) *Multicluster { return handlerIn(catalog.Topology{}, objs) }

func handlerIn(t catalog.Topology, objs model.Objects) *Multicluster {
	m := serving(defaultTTL, index(objs, t))
	m.Next = plugin.HandlerFunc(next)
	return m
}

// handedOn is what the next plugin answers.
const handedOn = dns.RcodeNotImplemented

func next(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) { return handedOn, nil }

// index does for values what kube does for watched objects; that kube does the same is tested there.
func index(objs model.Objects, t catalog.Topology) *catalog.Table[*catalog.Service] {
	slices := map[string][]*catalog.Slice{}
	for _, o := range objs.Slices {
		if s := slice(o, t); s != nil {
			key := strings.ToLower(o.Labels["multicluster.kubernetes.io/service-name"] + "." + o.Namespace)
			slices[key] = append(slices[key], s)
		}
	}
	x := new(catalog.Table[*catalog.Service])
	for _, o := range objs.Imports {
		imp := &catalog.Import{Namespace: strings.ToLower(o.Namespace), Name: strings.ToLower(o.Name)}
		switch o.Spec.Type {
		case "ClusterSetIP":
			imp.Type = catalog.ClusterSetIP
		case "Headless":
			imp.Type = catalog.Headless
		}
		for _, ip := range o.Spec.IPs {
			if a, err := netip.ParseAddr(ip); err == nil {
				imp.IPs = append(imp.IPs, a)
			}
		}
		for _, p := range o.Spec.Ports {
			if p.Port > 0 && p.Port < 1<<16 {
				imp.Ports = append(
					imp.Ports,
					catalog.Port{Name: p.Name, Proto: string(p.Protocol), Number: uint16(p.Port)},
				)
			}
		}
		key := imp.Name + "." + imp.Namespace
		x.Set(key, catalog.Rebuild(nil, imp, slices[key], t), 7)
	}
	return x
}

func slice(o discoveryv1.EndpointSlice, t catalog.Topology) *catalog.Slice {
	cluster := o.Labels["multicluster.kubernetes.io/source-cluster"]
	if !catalog.IsClusterID(cluster) ||
		o.AddressType != discoveryv1.AddressTypeIPv4 && o.AddressType != discoveryv1.AddressTypeIPv6 {
		return nil
	}
	var ports []catalog.Port
	for _, p := range o.Ports {
		if p.Name != nil && p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 {
			proto := ""
			if p.Protocol != nil {
				proto = string(*p.Protocol)
			}
			ports = append(ports, catalog.Port{Name: *p.Name, Proto: proto, Number: uint16(*p.Port)})
		}
	}
	var eps []catalog.Endpoint
	for _, e := range o.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, s := range e.Addresses {
			a, err := netip.ParseAddr(s)
			if err != nil || a.Zone() != "" || a.Is4In6() ||
				a.Is4() != (o.AddressType == discoveryv1.AddressTypeIPv4) {
				continue
			}
			host, zone := "", ""
			if e.Hostname != nil {
				host = *e.Hostname
			}
			if e.Zone != nil {
				zone = *e.Zone
			}
			eps = append(eps, catalog.Endpoint{Addr: a, Host: host, Zone: t.Keep(zone)})
		}
	}
	return catalog.NewSlice(o.Name, cluster, ports, eps)
}

// client is a writer that keeps the reply as the server would send it: cut to size, packed and unpacked.
type client struct {
	test.ResponseWriter
	t   testing.TB
	msg *dns.Msg
	len int // octets of the packed reply
}

func (c *client) WriteMsg(m *dns.Msg) error {
	b, err := m.Pack()
	if err != nil {
		c.t.Errorf("reply does not pack (M5): %v\n%v", err, m)
		return err
	}
	c.msg, c.len = new(dns.Msg), len(b)
	return c.msg.Unpack(b)
}

type streamClient struct{ client }

func (c *streamClient) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40212}
}

// ask puts a question through the server's writer, as the server does. It gives the reply, nil if there is none,
// and the handler's rcode.
func ask(t testing.TB, m *Multicluster, r *dns.Msg, tcp bool) (*dns.Msg, int) {
	t.Helper()
	c := &streamClient{client{t: t}}
	var w dns.ResponseWriter = c
	if !tcp {
		w = &c.client
	}
	w = request.NewScrubWriter(r, w)
	if dns.Id()%2 == 0 { // a plugin's writer in between
		w = dnstest.NewRecorder(w)
	}
	rcode, err := m.ServeDNS(context.Background(), w, r)
	if err != nil {
		t.Fatalf("%v: %v", r.Question[0], err)
	}
	limit := dns.MaxMsgSize
	if !tcp {
		limit = dns.MinMsgSize
		if o := r.IsEdns0(); o != nil {
			limit = max(limit, int(o.UDPSize()))
		}
	}
	if c.len > limit {
		t.Fatalf("%v: reply of %d octets, the client takes %d (M3)", r.Question[0], c.len, limit)
	}
	return c.msg, rcode
}

func question(name string, qtype uint16, edns uint16) *dns.Msg {
	r := new(dns.Msg)
	r.SetQuestion(name, qtype)
	if edns > 0 {
		r.SetEdns0(edns, false)
	}
	return r
}

// Every case of test/cases through the handler: N1–N19, M1–M5. The same cases run through dig in test/integration.
func TestCases(t *testing.T) {
	objs, err := model.LoadFixture("../../test/cases/fixture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := model.LoadCases("../../test/cases/dns.json")
	if err != nil {
		t.Fatal(err)
	}
	m := handler(objs)
	for _, c := range cases {
		t.Run(c.Title(), func(t *testing.T) {
			q := c.Question()
			msg, rcode := ask(t, m, question(q.Name, q.Type, uint16(c.EDNS)), c.Proto == "tcp")
			if msg == nil && rcode != handedOn {
				t.Fatalf("no reply, rcode %d", rcode)
			}
			if err := model.CheckCase(c, msg, nameserver); err != nil {
				t.Error(err)
			}
		})
	}
}

// seedOf is the seed of a random test: MODEL_SEED replays one.
func seedOf(t testing.TB) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("MODEL_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatalf("MODEL_SEED: %v", err)
		}
	}
	t.Logf("MODEL_SEED=%d replays this run", seed)
	return seed
}

// On random clustersets, malformed objects among them, every answer is the model's, over UDP of three sizes and
// TCP.
func TestAgreesWithModel(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 0))
	for round := range 400 {
		objs := model.Random(r, 1+r.IntN(12))
		if round%3 == 0 {
			model.Malform(r, &objs)
		}
		want := model.New(model.Defaults(nameserver), objs)
		m := handler(objs)
		for _, q := range model.Questions(r, objs, 150) {
			size := []uint16{0, 512, 1232, 4096}[r.IntN(4)]
			tcp := r.IntN(3) == 0
			limit := int(max(size, 512))
			if tcp {
				limit = 0
			}
			msg, _ := ask(t, m, question(q.Name, q.Type, size), tcp)
			if err := model.Check(want.Answer(q.Name, q.Type), q, msg, limit); err != nil {
				t.Fatalf("round %d, tcp=%v size=%d: %v\n%s", round, tcp, size, err, about(objs, q.Name))
			}
		}
	}
}

// about are the objects that a name is about.
func about(objs model.Objects, name string) string {
	var b strings.Builder
	holds := func(s string) bool { return s != "" && strings.Contains(strings.ToLower(name), strings.ToLower(s)) }
	for _, o := range objs.Imports {
		if holds(o.Name) && holds(o.Namespace) {
			fmt.Fprintf(&b, "%s/%s %+v\n", o.Namespace, o.Name, o.Spec)
		}
	}
	for _, o := range objs.Slices {
		if holds(o.Namespace) && holds(o.Labels["multicluster.kubernetes.io/service-name"]) {
			o.ManagedFields = nil
			fmt.Fprintf(&b, "%v\n", o.String())
		}
	}
	return b.String()
}

// L6: a transfer gives exactly what queries give, name for name.
func TestL6TransferEqualsQueries(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 1))
	for range 60 {
		objs := model.Random(r, 1+r.IntN(12))
		m := handler(objs)
		ch, err := m.Transfer(defaultZone, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		var all []dns.RR
		for rrs := range ch {
			all = append(all, rrs...)
		}
		if len(all) < 2 || !dns.IsDuplicate(all[0], all[len(all)-1]) || all[0].Header().Rrtype != dns.TypeSOA {
			t.Fatalf("a transfer begins and ends with the SOA: %v", all)
		}
		for _, rr := range all[:len(all)-1] {
			got = append(got, model.Canonical(rr))
		}
		if diff := model.Diff(model.Zone(model.Defaults(nameserver), objs), got); diff != "" {
			t.Fatalf("transfer differs:\n%s", diff)
		}
		var answered []string
		for _, name := range model.Names(model.Defaults(nameserver), objs) {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeNS, dns.TypeSOA} {
				msg, _ := ask(t, m, question(name, qtype, 0), true)
				for _, rr := range msg.Answer {
					answered = append(answered, model.Canonical(rr))
				}
			}
		}
		if diff := model.Diff(answered, got); diff != "" {
			t.Fatalf("transfer (+) differs from the answers to every name (-):\n%s", diff)
		}
	}
}

// serving answers from an index.
func serving(ttl uint32, x *catalog.Table[*catalog.Service]) *Multicluster {
	m := &Multicluster{Stanza: authority.NewStanza[*catalog.Service](pluginName, ttl)}
	m.Origins = []string{defaultZone}
	m.Zones = []*reply.Zone{reply.NewZone(defaultZone, ttl, []netip.Addr{nameserver})}
	m.Source = &fixed{index: x}
	return m
}
