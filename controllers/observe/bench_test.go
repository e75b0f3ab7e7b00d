package observe

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// bench is member a of a clusterset of a, b and c, in which c exports what is looked at. Time stands still between
// passes.
type bench struct {
	*Observer
	t          *testing.T
	hub, local client.Client
	clock      time.Time
	fresh      bool
	seen       time.Time       // the last own renewal
	silent     map[string]bool // members that do not renew
	rolledBack map[string]bool // those that do, and know of no votes
	writes     int             // of status, here
	refused    int             // how many of the next of them fail
	events     []string
	families   []corev1.IPFamily // of cluster a
	mu         sync.Mutex
	down       map[string]bool // addresses that do not answer
	dialed     []string
	busy, most int // dials at a time
}

func newBench(t *testing.T, spec *hubv1alpha1.ProbeSpec) *bench {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordinationv1.AddToScheme, hubv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{
		t:          t,
		clock:      time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		fresh:      true,
		down:       map[string]bool{},
		silent:     map[string]bool{},
		rolledBack: map[string]bool{},
		families:   []corev1.IPFamily{corev1.IPv4Protocol},
	}
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	set.Spec.Probe = spec
	hub, local := fake.NewClientBuilder().WithScheme(s).WithObjects(set),
		fake.NewClientBuilder().
			WithScheme(s).
			WithStatusSubresource(&hubv1alpha1.ServiceExportRecord{}).
			WithInterceptorFuncs(interceptor.Funcs{
				SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
					opts ...client.SubResourceUpdateOption) error {
					if b.refused > 0 {
						b.refused--
						return errors.New("not now")
					}
					b.writes++
					return c.SubResource(sub).Update(ctx, o, opts...)
				},
			})
	for _, x := range kube.Indexes() {
		switch o := x.Object.(type) {
		case *hubv1alpha1.ServiceExportRecord, *hubv1alpha1.EndpointRecord:
			if x.Side == kube.Hub {
				hub = hub.WithIndex(o, x.Field, x.Values)
			} else {
				local = local.WithIndex(o, x.Field, x.Values)
			}
		}
	}
	b.hub, b.local = hub.Build(), local.Build()
	for _, id := range []string{"a", "b", "c"} {
		at := metav1.NewMicroTime(b.clock)
		b.create(
			b.hub,
			&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: id},
				Spec:       coordinationv1.LeaseSpec{RenewTime: &at},
			},
		)
		if id != "a" {
			b.create(
				b.local,
				&coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "source-" + id,
						Labels: map[string]string{liveness.LabelSource: id}, Annotations: said(false)},
				},
			)
		}
	}
	b.restart()
	return b
}

// restart is a new process of the same agent.
func (b *bench) restart() {
	b.Observer = New(Config{
		Cluster: "a", HubNamespace: "set", Now: func() time.Time { return b.clock }, Events: b,
		Local: b.local, Hub: func() client.Client { return b.hub }, Fresh: func() bool { return b.fresh },
		HubSeen:  func() time.Time { return b.seen },
		Families: func(context.Context) ([]corev1.IPFamily, error) { return b.families, nil }, Dial: b.dial,
	})
}

func (b *bench) Event(_ runtime.Object, _, reason, message string) {
	b.events = append(b.events, reason+": "+message)
}

func (b *bench) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	b.mu.Lock()
	b.dialed = append(b.dialed, address)
	b.busy++
	b.most = max(b.most, b.busy)
	down := b.down[host] || b.down["*"]
	b.mu.Unlock()
	defer func() { b.mu.Lock(); b.busy--; b.mu.Unlock() }()
	if _, ok := ctx.Deadline(); !ok {
		b.t.Error("a dial without a timeout")
	}
	if down {
		return nil, errors.New("no answer")
	}
	here, there := net.Pipe()
	there.Close()
	return here, nil
}

func (b *bench) create(c client.Client, o client.Object) {
	b.t.Helper()
	if err := c.Create(b.t.Context(), o); err != nil {
		b.t.Fatal(err)
	}
}

// export has c export shop/NAME with these addresses.
func (b *bench) export(name string, probe hubv1alpha1.Probe, addresses ...string) {
	b.t.Helper()
	b.serve(name, probe, corev1.ProtocolTCP, addresses...)
}

func (b *bench) serve(name string, probe hubv1alpha1.Probe, protocol corev1.Protocol, addresses ...string) {
	b.t.Helper()
	at := metav1.NewTime(b.clock)
	rec := &hubv1alpha1.ServiceExportRecord{}
	rec.Namespace, rec.Name = kube.SystemNamespace, clusterset.RecordName(name, "shop", "c")
	rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: "c", ServiceNamespace: "shop", ServiceName: name, Revision: 1}
	rec.Spec.Type, rec.Spec.ExportedAt, rec.Spec.IPFamilies, rec.Spec.Probe = mcsv1beta1.ClusterSetIP, &at,
		[]corev1.IPFamily{
			corev1.IPv4Protocol,
		}, probe
	rec.Spec.Ports = []hubv1alpha1.ServicePort{{Protocol: protocol, Port: 80}}
	b.create(b.local, rec)
	b.slice(rec, name+"-1", addresses...)
}

// slice has a record's Service have endpoints, of one family.
func (b *bench) slice(rec *hubv1alpha1.ServiceExportRecord, name string, addresses ...string) {
	b.t.Helper()
	number := int32(8080)
	eps := &hubv1alpha1.EndpointRecord{}
	eps.Namespace, eps.Name = "set", clusterset.EndpointRecordName(name, "c")
	eps.Spec.Origin, eps.Spec.AddressType = rec.Spec.Origin, discoveryv1.AddressTypeIPv4
	if strings.Contains(addresses[0], ":") {
		eps.Spec.AddressType = discoveryv1.AddressTypeIPv6
	}
	eps.Spec.Ports = []hubv1alpha1.EndpointPort{{Protocol: rec.Spec.Ports[0].Protocol, Port: &number}}
	for _, a := range addresses {
		eps.Spec.Endpoints = append(eps.Spec.Endpoints, hubv1alpha1.Endpoint{Address: a})
	}
	b.create(b.hub, eps)
}

func (b *bench) pass(name types.NamespacedName) time.Duration {
	b.t.Helper()
	res, err := b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: name})
	if err != nil {
		b.t.Fatal(err)
	}
	return res.RequeueAfter
}

// look lets time pass, with rounds as they are due and an own renewal each ten seconds.
func (b *bench) look(d time.Duration) {
	b.t.Helper()
	for end := b.clock.Add(d); b.clock.Before(end); b.clock = b.clock.Add(time.Second) {
		b.pass(round)
		if b.clock.Second()%10 == 0 {
			b.renew()
		}
	}
}

func (b *bench) renew() {
	b.t.Helper()
	if text, known := b.Votes(); known {
		b.says("a", text)
	}
	for _, id := range []string{"a", "b", "c"} {
		if !b.silent[id] {
			b.lease(id, func(l *coordinationv1.Lease) {
				text, at := votes.Read(l), metav1.NewMicroTime(b.clock)
				l.Spec.RenewTime = &at
				if !b.rolledBack[id] {
					votes.Write(l, text)
				}
			})
		}
	}
	b.seen = b.clock
	b.pass(count)
}

// says puts a vote on a member's Lease.
func (b *bench) says(id, text string) {
	b.t.Helper()
	b.lease(id, func(l *coordinationv1.Lease) { votes.Write(l, text) })
}

func (b *bench) lease(id string, change func(*coordinationv1.Lease)) {
	b.t.Helper()
	lease := &coordinationv1.Lease{}
	if err := b.hub.Get(b.t.Context(), types.NamespacedName{Namespace: "set", Name: id}, lease); err != nil {
		b.t.Fatal(err)
	}
	change(lease)
	if err := b.hub.Update(b.t.Context(), lease); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) withheld(name string) string {
	b.t.Helper()
	rec := &hubv1alpha1.ServiceExportRecord{}
	if err := b.local.Get(
		b.t.Context(),
		types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.RecordName(name, "shop", "c")},
		rec,
	); err != nil {
		b.t.Fatal(err)
	}
	return strings.Join(rec.Status.Withheld, " ")
}

// withheld is a bench on which all of c's web is withheld: nobody here reaches it, and b says the same.
func withheld(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, tcp())
	b.export("web", "", "10.3.0.1")
	b.down["*"] = true
	b.says("b", `{"c":["*"]}`)
	b.renew()
	b.look(60 * time.Second)
	b.want("web", "*")
	return b
}

func (b *bench) want(name, withheld string) {
	b.t.Helper()
	if got := b.withheld(name); got != withheld {
		b.t.Fatalf("of %s %q is withheld, want %q", name, got, withheld)
	}
}

func tcp() *hubv1alpha1.ProbeSpec {
	return &hubv1alpha1.ProbeSpec{Default: hubv1alpha1.ProbeTCP, IntervalSeconds: 10, TimeoutSeconds: 1}
}
