package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
	"github.com/clusterset-dns/clusterset-dns/test/soak/oracle"
)

// ns is where everything is exported.
const ns = "soak"

// The members, and the names that are asked. Every member has each as a Service with one EndpointSlice.
var (
	clusters = []string{"a", "b", "c"}
	vips     = []string{"steady", "shop", "quarrel"}
	headless = []string{"heads", "moving", "coming"}
	names    = slices.Concat(vips, headless)
	toggled  = []string{"shop", "coming"}   // exported now and then
	moved    = []string{"moving", "coming"} // get other addresses
)

const corefile = `.:DNS_PORT {
    bind 127.0.0.1
    errors
    ready READY_ADDR
    prometheus METRICS_ADDR
    pprof PPROF_ADDR
    multicluster clusterset.local {
        kubeconfig %s
    }
}
`

// world is the clusterset under test, and what is known of it.
type world struct {
	*lab.ClusterSet
	hub        client.Client
	members    []*member
	controller *lab.Controller // the hub's
	oracle     *oracle.Oracle
	tape       *tape
	lease      hubv1alpha1.LeaseSpec
	root       string // the checkout whose manifests and programs it begins with
	seed       uint64
	chance     *rand.Rand // of faults; users have their own
	kinds      []kind     // of faults

	// durations are no failures, and answers have more time: for a machine that is shared, and short Leases
	hurried bool
	audited map[string]int64 // how far the audit logs were read

	populated time.Time // when everything was exported everywhere
	intruders int       // members that have joined since
	refusals  []*refusal
	skew      *skew // of an upgrade

	mu        sync.Mutex // of what follows
	affinity  map[string]corev1.ServiceAffinity
	exported  map[pair]bool
	behind    map[pair][]string // of names with a VIP: what the oracle does not see in any answer
	addresses map[string]int    // given out, by member
	unserved  map[string]bool   // members whose API server is down
	baseline  bool              // memory has been measured once
	users     sync.Mutex        // held while nothing is to be changed
}

// pair is a name in a member.
type pair struct{ name, member string }

type member struct {
	*lab.Member
	client.Client
	index int
}

// begin starts a hub with its controller and members with agent and CoreDNS, as the checkout root has them, and exports
// everything everywhere.
func begin(
	ctx context.Context,
	root string,
	lease hubv1alpha1.LeaseSpec,
	hurried bool,
	seed uint64,
	t *tape,
) (w *world, err error) {
	w = &world{
		tape:      t,
		lease:     lease,
		hurried:   hurried,
		root:      root,
		seed:      seed,
		kinds:     kinds,
		chance:    rand.New(rand.NewPCG(seed, 1)),
		affinity:  map[string]corev1.ServiceAffinity{},
		exported:  map[pair]bool{},
		behind:    map[pair][]string{},
		addresses: map[string]int{},
		audited:   map[string]int64{},
		unserved:  map[string]bool{},
	}
	w.ClusterSet, err = lab.StartClusterSet(ctx, lab.ClusterSetOptions{
		Members: clusters, DNS: true, Root: root,
		Corefile: func(kubeconfig string) (string, error) { return fmt.Sprintf(corefile, kubeconfig), nil },
		Plane:    func(string) lab.Options { return lab.Options{AuditWrites: true} },
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.end()
		}
	}()
	if w.hub, err = admin(w.Hub); err != nil {
		return nil, err
	}
	for i, m := range w.Members {
		c, err := admin(m.Cluster)
		if err != nil {
			return nil, err
		}
		w.members = append(w.members, &member{m, c, i + 1})
	}
	w.oracle = oracle.New(bounds(lease, hurried), clusters...)
	if err := w.setLease(ctx, lease); err != nil {
		return nil, err
	}
	if err := w.startController(ctx); err != nil {
		return nil, err
	}
	if err := w.populate(ctx); err != nil {
		return nil, err
	}
	w.populated = time.Now()
	return w, nil
}

// keepLogs keeps what every program has said, for whoever has to find out why something was wrong.
func (w *world) keepLogs(t *tape, seed uint64) {
	logs := map[string]string{"hub": w.controller.Log()}
	for _, m := range w.members {
		logs["agent-"+m.ID], logs["coredns-"+m.ID] = m.Agent.Log(), m.DNS.Log()
	}
	for who, said := range logs {
		path := fmt.Sprintf("bin/soak-%d-%s-%s.log", seed, t.part, who)
		if err := os.WriteFile(path, []byte(said), 0o644); err != nil {
			t.note("the log of %s is lost: %v", who, err)
		}
	}
	t.note("the logs of all programs are bin/soak-%d-%s-*.log", seed, t.part)
}

func (w *world) end() {
	w.controller.Stop()
	w.Stop()
}

func admin(cp *lab.ControlPlane) (client.Client, error) {
	cfg, err := cp.RESTConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.Timeout = 10 * time.Second // an API server may be killed while it is asked
	return client.New(cfg, client.Options{Scheme: agent.Scheme()})
}

// converge is how long everything may take to follow, once all is in order. After a long outage, a Reflector waits up
// to a minute before it lists again (docs/design.md).
const converge = 65 * time.Second

// bounds are what the Lease promises. Endpoints go within a renewal of the duration and the grace, and 5 s more are
// T1's: 65 s by default.
func bounds(l hubv1alpha1.LeaseSpec, hurried bool) oracle.Bounds {
	second := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	dead := second(l.DurationSeconds + l.GraceSeconds)
	b := oracle.Bounds{
		Renew:    second(l.RenewSeconds),
		Dead:     dead,
		Gone:     dead + second(l.RenewSeconds) + 5*time.Second,
		Converge: converge,
		Hold:     l.MostSilent != hubv1alpha1.MostSilentExpire,
	}
	if hurried {
		b.Gone, b.Converge = b.Gone+10*time.Second, 2*time.Minute
	}
	return b
}

func (w *world) setLease(ctx context.Context, l hubv1alpha1.LeaseSpec) error {
	w.lease = l
	w.oracle.Bound(bounds(l, w.hurried))
	set := &hubv1alpha1.ClusterSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: lab.HubNamespace},
	}
	return insist(ctx, func() error {
		if err := w.hub.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		set.Spec.Lease = l
		return w.hub.Update(ctx, set)
	})
}

func (w *world) startController(ctx context.Context) error {
	if err := w.Hub.ApplyFolder(ctx, filepath.Join(w.root, "deploy/hub/controller")); err != nil {
		return err
	}
	kubeconfig, err := w.Hub.ServiceAccountKubeconfig(ctx, "clusterset-system", "clusterset-hub", nil)
	if err != nil {
		return err
	}
	if w.controller, err = lab.StartHub(
		ctx,
		filepath.Join(w.root, "bin/clusterset-controller"),
		kubeconfig,
		lab.HubNamespace,
	); err != nil {
		return err
	}
	return w.controller.UntilReady(ctx)
}

// populate exports everything everywhere, and learns the VIPs.
func (w *world) populate(ctx context.Context) error {
	for _, m := range w.members {
		if err := m.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
			return err
		}
		for _, name := range names {
			svc, slice := service(name, m.ID)
			if err := errors.Join(m.Create(ctx, svc), m.Create(ctx, slice)); err != nil {
				return err
			}
			if err := w.export(ctx, name, m); err != nil {
				return err
			}
		}
	}
	for _, m := range w.members {
		for _, name := range vips {
			err := insist(ctx, func() error {
				var imp mcsv1beta1.ServiceImport
				if err := m.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &imp); err != nil {
					return err
				}
				if len(imp.Spec.IPs) != 1 {
					return fmt.Errorf("%s in %s has no VIP yet", name, m.ID)
				}
				w.oracle.VIP(name, m.ID, imp.Spec.IPs[0])
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// insist tries until it succeeds: API servers come and go here.
func insist(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// service is one without a selector and with a slice; its endpoints are ours. The members do not agree on what to
// call a port of steady,
// which is a conflict, and all of them want that near.
func service(name, member string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	tcp := corev1.ProtocolTCP
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	svc := &corev1.Service{
		ObjectMeta: meta,
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: tcp}}},
	}
	if slices.Contains(headless, name) {
		svc.Spec.ClusterIP = corev1.ClusterIPNone
	}
	if name == "steady" {
		svc.Spec.Ports = append(
			svc.Spec.Ports,
			corev1.ServicePort{Name: "tls-of-" + member, Port: 443, Protocol: tcp},
		)
	}
	meta.Name = sliceName(name)
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}
	for _, p := range svc.Spec.Ports {
		target := 8000 + p.Port
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &target, Protocol: &tcp})
	}
	return svc, slice
}

func sliceName(name string) string { return name + "-1" }

func serviceExport(name string) *mcsv1beta1.ServiceExport {
	e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	if name == "steady" {
		e.Annotations = map[string]string{resolution.Annotation: string(hubv1alpha1.PreferLocal)}
	}
	return e
}

func exists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
