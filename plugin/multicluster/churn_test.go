package multicluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"

	_ "github.com/coredns/coredns/plugin/dnssec"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/rewrite"
)

const (
	churned     = 10000 // imports
	churnFor    = 4 * time.Second
	churnAskers = 4
)

// generationOfService makes Service i in its version v. Every address of it has v in its second and third octet, so
// an answer of two versions shows. Even versions are ClusterSetIP, odd ones Headless; every 13th does not exist.
func generationOfService(i, v int) *catalog.Service {
	imp := &catalog.Import{Namespace: "churn", Name: fmt.Sprintf("s%d", i), Type: catalog.ClusterSetIP,
		Ports: []catalog.Port{{Name: "http", Proto: "TCP", Number: 80}}}
	at := func(k int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(v >> 8), byte(v), byte(k)}) }
	if v%13 == 12 {
		return nil
	}
	if v%2 == 0 {
		imp.IPs = []netip.Addr{at(1)}
		return catalog.Build(imp, nil)
	}
	imp.Type = catalog.Headless
	var slices []*catalog.Slice
	for c := range 2 {
		var eps []catalog.Endpoint
		for k := range 4 {
			eps = append(eps, catalog.Endpoint{Addr: at(c*10 + k), Host: fmt.Sprintf("h%d", k)})
		}
		slices = append(slices, catalog.NewSlice(fmt.Sprint(c), fmt.Sprintf("c%d", c), imp.Ports, eps))
	}
	return catalog.Build(imp, slices)
}

// chain puts loadbalance, rewrite and dnssec in front of the handler, set up from a Corefile as the server does.
func chain(t *testing.T, m plugin.Handler) plugin.Handler {
	t.Helper()
	var all []plugin.Plugin
	for _, text := range []string{
		"loadbalance",
		"rewrite name suffix .alias.test. .clusterset.local. answer auto",
		"dnssec clusterset.local {\n key file " + signingKey(t) + "\n}",
	} {
		c := caddy.NewTestController("dns", text)
		c.ServerBlockKeys = []string{"clusterset.local."}
		directive, _, _ := strings.Cut(text, " ")
		action, err := caddy.DirectiveAction("dns", directive)
		if err != nil {
			t.Fatal(err)
		}
		if err := action(c); err != nil {
			t.Fatal(err)
		}
		all = append(all, dnsserver.GetConfig(c).Plugin...)
	}
	h := m
	for i := len(all) - 1; i >= 0; i-- {
		h = all[i](h)
	}
	return h
}

func signingKey(t *testing.T) string {
	t.Helper()
	key := &dns.DNSKEY{
		Hdr: dns.RR_Header{
			Name:   "clusterset.local.",
			Rrtype: dns.TypeDNSKEY,
			Class:  dns.ClassINET,
			Ttl:    3600,
		},
		Flags:     257,
		Protocol:  3,
		Algorithm: dns.ECDSAP256SHA256,
	}
	private, err := key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(t.TempDir(), fmt.Sprintf("Kclusterset.local.+%03d+%05d", key.Algorithm, key.KeyTag()))
	for name, text := range map[string]string{
		base + ".key": key.String(), base + ".private": key.PrivateKeyString(private),
	} {
		if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return base
}

// L3, M5: 10,000 imports change under load, types flip, names come and go, with plugins in the chain that change
// replies on their way back. No answer is of two versions, none fails to pack, and none is stale when it is over.
func TestL3ChurnUnderLoad(t *testing.T) {
	x := new(catalog.Table[*catalog.Service])
	m := serving(1, x)
	h := chain(t, m)
	var version [churned]atomic.Int64
	set := func(i, v int) {
		x.Set(fmt.Sprintf("s%d.churn", i), generationOfService(i, v), uint64(v))
		version[i].Store(int64(v))
	}
	for i := range churned {
		set(i, 2)
	}
	seed := seedOf(t)
	// For its time, and on until enough has happened to prove something, however slow the machine is.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var done sync.WaitGroup
	var changes, asked atomic.Int64
	done.Go(func() {
		for began := time.Now(); ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > churnFor && changes.Load() >= 1000 && asked.Load() >= 1000 {
				cancel()
			}
		}
	})
	done.Go(func() {
		for r := rand.New(rand.NewPCG(seed, 0)); ctx.Err() == nil; changes.Add(1) {
			i := r.IntN(churned)
			if r.IntN(4) > 0 {
				i = r.IntN(64) // a few change all the time
			}
			set(i, int(version[i].Load())+1)
		}
	})
	for n := range churnAskers {
		done.Go(func() {
			for r := rand.New(rand.NewPCG(seed, uint64(n)+1)); ctx.Err() == nil; asked.Add(1) {
				askChurned(t, m, h, r, &version)
			}
		})
	}
	done.Wait()
	t.Logf("%d changes, %d questions", changes.Load(), asked.Load())
	if changes.Load() < 1000 || asked.Load() < 1000 {
		t.Error("too little happened to prove anything")
	}
	settled(t, h, &version)
}

// settled asks about every Service that was changed: none of the answers is stale.
func settled(t *testing.T, h plugin.Handler, version *[churned]atomic.Int64) {
	t.Helper()
	for i := range churned {
		v := int(version[i].Load())
		if v == 2 && i >= 64 {
			continue // it never changed
		}
		for _, q := range churnQuestions {
			reply, err := exchange(h, question(q.prefix+churnName(i)+"clusterset.local.", q.qtype, 1232))
			if err != nil {
				t.Fatal(err)
			}
			if shown := versionIn(reply); outcomeOf(reply) != q.want(v) || q.want(v) > 0 && shown != v&0xffff {
				t.Errorf(
					"%ss%d, %s is stale: version %d, want %d:\n%v",
					q.prefix,
					i,
					dns.TypeToString[q.qtype],
					shown,
					v,
					reply,
				)
			}
		}
	}
}

// churnQuestion is one of those that are asked about a Service.
type churnQuestion struct {
	prefix string
	qtype  uint16
}

var churnQuestions = []churnQuestion{
	{"", dns.TypeA},
	{"_http._tcp.", dns.TypeSRV},
	{"h0.c1.", dns.TypeA},
	{"", dns.TypeAAAA},
}

func churnName(i int) string { return fmt.Sprintf("s%d.churn.svc.", i) }

// absent is the outcome of a name that does not exist, bad any that is neither that nor an answer.
const absent, bad = -1, -2

// want is the outcome while the Service is in a version: how many answers, or absent.
func (q churnQuestion) want(v int) int {
	headless, host := v%2 == 1, strings.HasPrefix(q.prefix, "h")
	switch {
	case v%13 == 12, host && !headless:
		return absent
	case q.qtype == dns.TypeAAAA:
		return 0
	case headless && !host:
		return 8
	}
	return 1
}

// may reports whether there was a version from least to most with this outcome; shown is the one that the answer
// shows, 0 for none. After
// 26 versions everything comes again.
func (q churnQuestion) may(outcome, shown, least, most int) bool {
	for v := max(2, least, most-26); v <= most; v++ {
		if q.want(v) == outcome && (shown == 0 || v%26 == shown%26) {
			return true
		}
	}
	return false
}

func outcomeOf(m *dns.Msg) int {
	switch {
	case m.Truncated:
		return bad
	case m.Rcode == dns.RcodeSuccess:
		return len(m.Answer)
	case m.Rcode == dns.RcodeNameError && len(m.Answer) == 0:
		return absent
	}
	return bad
}

// askChurned asks the plugin itself or the chain, whose answer must be of a version during the question.
func askChurned(t *testing.T, m, chain plugin.Handler, r *rand.Rand, version *[churned]atomic.Int64) {
	i := r.IntN(churned)
	if r.IntN(4) > 0 {
		i = r.IntN(64)
	}
	q := churnQuestions[r.IntN(len(churnQuestions))]
	if q.prefix == "h0.c1." {
		q.prefix = fmt.Sprintf("h%d.c1.", r.IntN(4))
	}
	name, h, least := q.prefix+churnName(i), chain, int(version[i].Load())
	switch r.IntN(4) {
	case 0:
		name += "alias.test."
	case 1:
		name += "clusterset.local."
	default:
		name, h = name+"clusterset.local.", m
	}
	name = strings.Map(func(c rune) rune {
		if r.IntN(3) == 0 {
			return []rune(strings.ToUpper(string(c)))[0]
		}
		return c
	}, name)
	reply, err := exchange(h, question(name, q.qtype, 1232))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if len(reply.Question) != 1 || reply.Question[0].Name != name {
		t.Errorf("%s: the question came back as %v (M1)", name, reply.Question)
	}
	shown, most := versionIn(reply), int(version[i].Load())+1 // one may be set and not yet noted
	if shown < 0 {
		t.Errorf("%s: an answer of two versions (L3):\n%v", name, reply)
	} else if outcome := outcomeOf(reply); !q.may(outcome, shown, least, most) {
		t.Errorf(
			"%s %s: no version from %d to %d gives this answer (L3):\n%v",
			name,
			dns.TypeToString[q.qtype],
			least,
			most,
			reply,
		)
	}
}

// exchange asks and reads what would go over the wire.
func exchange(h plugin.Handler, r *dns.Msg) (*dns.Msg, error) {
	c := &capture{}
	rcode, err := h.ServeDNS(context.Background(), request.NewScrubWriter(r, c), r)
	if err != nil {
		return nil, err
	}
	if c.msg == nil {
		return nil, fmt.Errorf("no reply, rcode %d", rcode)
	}
	return c.msg, c.err
}

type capture struct {
	packing
	msg *dns.Msg
	err error
}

// Write is what a reply takes that no plugin of the chain has touched.
func (c *capture) Write(b []byte) (int, error) {
	c.msg = new(dns.Msg)
	c.err = c.msg.Unpack(b)
	return len(b), c.err
}

func (c *capture) WriteMsg(m *dns.Msg) error {
	b, err := m.Pack()
	if err == nil {
		c.msg = new(dns.Msg)
		err = c.msg.Unpack(b)
	}
	c.err = err
	return err
}

// versionIn is the version that all addresses of a reply show, 0 if it has none, -1 if they differ.
func versionIn(m *dns.Msg) int {
	version := 0
	for i, rr := range append(append([]dns.RR{}, m.Answer...), m.Extra...) {
		a, ok := rr.(*dns.A)
		if !ok {
			continue
		}
		v := int(a.A.To4()[1])<<8 | int(a.A.To4()[2])
		if version != 0 && v != version && i > 0 {
			return -1
		}
		version = v
	}
	return version
}
