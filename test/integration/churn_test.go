package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	_ "github.com/clusterset-dns/clusterset-dns/plugin/multicluster"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/dnssec"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/rewrite"
)

const (
	churned         = 10000 // imports
	churnedHot      = 8     // of them change all the time
	churnNamespaces = 5
	churnWriters    = 8
	churnAskers     = 4
	churnCached     = 5 // seconds: the cache's one, and as long as a machine may take to put an answer there
)

// churnCorefile is a server whose plugins change replies on their way back, and one that shows what its cache hides.
const churnCorefile = `.:CHAIN_PORT {
	bind 127.0.0.1
	loadbalance
	rewrite name suffix .alias.test. .clusterset.local. answer auto
	cache 1 {
		success 20000 1 0
		denial 20000 1 0
	}
	dnssec clusterset.local {
		key file KEY
	}
	multicluster {
		kubeconfig KUBECONFIG
	}
}
.:DIRECT_PORT {
	bind 127.0.0.1
	multicluster {
		kubeconfig KUBECONFIG
	}
}`

// The server runs in this process, where the race detector sees it. The order of plugins is that of cmd/coredns.
func init() {
	at := slices.Index(dnsserver.Directives, "kubernetes")
	dnsserver.Directives = slices.Insert(dnsserver.Directives, at, "multicluster")
	dnsserver.Quiet, caddy.Quiet = true, true
}

// churn is a run of the test.
type churn struct {
	*testing.T
	*cluster
	seed          uint64
	api           client.Client
	key           *dns.DNSKEY
	chain, direct string                 // addresses
	resource      [churned][parts]string // resourceVersions, each its writer's
	// the last version that was sent to the API server; it may not have been taken yet
	tried   [churned][parts]atomic.Int32
	seen    [churned][parts]atomic.Int32      // the least version that answers from now on may be made of
	aged    atomic.Pointer[[churned]versions] // what seen was before what the cache holds now
	changes atomic.Int64
	asked   atomic.Int64
	kinds   [4]atomic.Int64 // of answers under load: with records, NODATA, name errors, with signed records
}

// L3, M5: on a real API server, 10,000 imports change under load by UDP and TCP, types flip, imports and slices come
// and go, with plugins in the chain that change replies on their way back. Every answer is that of one state of each
// object, one that was written and that
// no answer before was newer than; when it is over, every name is answered as it was written last.
func TestL3ChurnOnTheAPIServer(t *testing.T) {
	c := newChurn(t)
	c.write(c.create)
	c.serve()
	load, stop := context.WithCancel(t.Context())
	var askers sync.WaitGroup
	defer askers.Wait()
	defer stop()
	askers.Go(func() { c.remember(load) })
	for n := range churnAskers {
		askers.Go(func() {
			// writers need the processors, too
			for r := c.dice(n); load.Err() == nil && !t.Failed(); time.Sleep(3 * time.Millisecond) {
				c.askSomething(r)
			}
		})
	}
	c.write(c.change)
	stop()
	askers.Wait()
	c.settled()
	t.Logf(
		"%d changes, %d questions: %d answers with records, %d NODATA, %d name errors, %d with signed records",
		c.changes.Load(),
		c.asked.Load(),
		c.kinds[0].Load(),
		c.kinds[1].Load(),
		c.kinds[2].Load(),
		c.kinds[3].Load(),
	)
	enough := c.changes.Load() >= churned && c.asked.Load() >= churned/2
	for i := range c.kinds {
		enough = enough && c.kinds[i].Load() >= 100
	}
	if !enough {
		t.Error("too little happened to prove anything")
	}
}

// newChurn is a cluster of its own, with a client that nothing holds back.
func newChurn(t *testing.T) *churn {
	t.Helper()
	c := &churn{T: t, seed: uint64(time.Now().UnixNano())}
	if s := os.Getenv("MODEL_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &c.seed); err != nil {
			t.Fatalf("MODEL_SEED: %v", err)
		}
	}
	t.Logf("MODEL_SEED=%d replays this run, but for its timing", c.seed)
	c.cluster = newCluster(t, clusterOptions{noControllers: true})
	known := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(known), mcsv1beta1.Install(known))
	if err != nil {
		t.Fatal(err)
	}
	if c.api, err = c.cluster.cp.Client(known); err != nil {
		t.Fatal(err)
	}
	for i := range churnNamespaces {
		if err := c.api.Create(
			t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: churnNamespace(i)}},
		); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// dice are those of one of the goroutines.
func (c *churn) dice(n int) *rand.Rand { return rand.New(rand.NewPCG(c.seed, uint64(n))) }

// serve starts the server, and returns when it has all that there is.
func (c *churn) serve() {
	c.Helper()
	var ports [2]*lab.Port
	for i := range ports {
		var err error
		if ports[i], err = lab.ReservePort(); err != nil {
			c.Fatal(err)
		}
		c.Cleanup(ports[i].Release)
	}
	c.chain, c.direct = ports[0].Addr(), ports[1].Addr()
	text := strings.NewReplacer(
		"CHAIN_PORT", fmt.Sprint(ports[0].Number), "DIRECT_PORT", fmt.Sprint(ports[1].Number), "KEY", c.signingKey(),
	).Replace(strings.ReplaceAll(churnCorefile, "KUBECONFIG", c.cluster.corefile(c.T, "KUBECONFIG")))
	instance, err := caddy.Start(
		caddy.CaddyfileInput{Contents: []byte(text), Filepath: "Corefile", ServerTypeName: "dns"},
	)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := errors.Join(append(instance.ShutdownCallbacks(), instance.Stop())...); err != nil {
			c.Error(err)
		}
	})
	for _, addr := range []string{c.chain, c.direct} {
		eventually(c, "the server has listed all", func() bool {
			m, err := exchange(addr, "udp", "svc."+churnZone, dns.TypeA, false)
			return err == nil && m.Rcode == dns.RcodeSuccess
		})
	}
}

// signingKey makes a key of the zone, and is the name of its files.
func (c *churn) signingKey() string {
	c.Helper()
	c.key = &dns.DNSKEY{Hdr: dns.RR_Header{Name: churnZone, Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 3600},
		Flags: 257, Protocol: 3, Algorithm: dns.ECDSAP256SHA256}
	private, err := c.key.Generate(256)
	if err != nil {
		c.Fatal(err)
	}
	base := filepath.Join(c.TempDir(), fmt.Sprintf("Kclusterset.local.+%03d+%05d", c.key.Algorithm, c.key.KeyTag()))
	if err := errors.Join(os.WriteFile(base+".key", []byte(c.key.String()+"\n"), 0o600),
		os.WriteFile(base+".private", []byte(c.key.PrivateKeyString(private)+"\n"), 0o600)); err != nil {
		c.Fatal(err)
	}
	return base
}

// settled waits until every name is answered in its last state, directly and by the chain.
func (c *churn) settled() {
	c.Helper()
	deadline := time.Now().Add(limit)
	var at atomic.Int64
	var all sync.WaitGroup
	for n := range churnAskers {
		all.Go(func() {
			for r := c.dice(churnAskers + churnWriters + n); !c.Failed(); {
				i := int(at.Add(1)) - 1
				if i >= churned {
					return
				}
				c.settle(r, i, deadline)
			}
		})
	}
	all.Wait()
}

// settle asks for the addresses of a Service, and all else of one that changed all the time.
func (c *churn) settle(r *rand.Rand, i int, deadline time.Time) {
	last := load(&c.tried[i])
	questions, ways := churnQuestions[:1], []way{
		{network: "udp", zone: churnZone},
		{network: "udp", zone: churnZone, chained: true},
	}
	if i < churnedHot {
		questions = churnQuestions
		ways = append(
			ways,
			way{network: "tcp", zone: churnAlias, chained: true},
			way{network: "tcp", zone: churnZone, chained: true, signed: true},
		)
	}
	for _, q := range questions {
		for _, w := range ways {
			for {
				m, err := c.ask(r, i, q, w)
				if err != nil {
					c.Error(err)
					return
				}
				if _, ok := explain(c.seed, i, q, m, w.signed, last, last); ok {
					break
				}
				if time.Now().After(deadline) {
					c.Errorf("%+v: stale, its import and slices were written in versions %v last (L3):\n%v", w, last, m)
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}
