package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	decide "github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/sources"
)

// observed is an agent of cluster east with these objects in its caches.
func observed(token string, local ...client.Object) *Agent {
	a := &Agent{
		Options: Options{Cluster: "east", HubNamespace: "prod"},
		hub:     func() (*rest.Config, error) { return &rest.Config{BearerToken: token}, nil },
	}
	a.env = &kube.Env{
		Member: kube.Member{
			Cluster: "east", HubNamespace: "prod", Now: time.Now, Local: cached(local...),
			Fresh: func() bool { return true },
		},
		Cloned: func() bool { return false }, Held: func() bool { return false },
	}
	a.health = health.New(health.Config{
		LocalNow: a.env.Local, Hub: func() client.Client { return nil }, Now: time.Now,
		Seen:   func() decide.Facts { return decide.Facts{} },
		Rights: func(context.Context) (here, onHub []string, _ error) { return nil, nil, nil },
		DNS:    func(context.Context) error { return errors.New("server misbehaving") },
	})
	a.ready.Store(true)
	return a
}

func cached(objects ...client.Object) client.Client {
	b := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).
		WithStatusSubresource(&hubv1alpha1.Membership{})
	for _, x := range kube.Indexes() {
		if x.Side == kube.Local {
			b = b.WithIndex(x.Object, x.Field, x.Values)
		}
	}
	return b.Build()
}

// shown is every series of an agent, by its name and the values of its labels.
func shown(t *testing.T, a *Agent) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&collector{a})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v %v", problems, err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "clusterset_agent_")
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

func want(t *testing.T, got, want map[string]float64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("shown is\n%v, want\n%v", got, want)
	}
}

func condition[T ~string](kind T, status metav1.ConditionStatus) []metav1.Condition {
	return []metav1.Condition{{Type: string(kind), Status: status}}
}

func named[T client.Object](namespace, name string, o T, set func(T)) T {
	o.SetNamespace(namespace)
	o.SetName(name)
	set(o)
	return o
}

func TestMetricsOfWhatIsExportedAndImported(t *testing.T) {
	record := func(
		name, cluster string, withdrawn bool, held metav1.ConditionStatus, more ...metav1.Condition,
	) client.Object {
		return named(
			kube.SystemNamespace,
			name,
			&hubv1alpha1.ServiceExportRecord{},
			func(r *hubv1alpha1.ServiceExportRecord) {
				r.Spec.ClusterID, r.Spec.Withdrawn = cluster, withdrawn
				r.Spec.ServiceNamespace, r.Spec.ServiceName = "shop", strings.TrimSuffix(name, "."+cluster)
				r.Status.Conditions = append(condition(hubv1alpha1.ConditionHeld, held), more...)
			},
		)
	}
	export := func(name string, c []metav1.Condition) client.Object {
		return named(
			"shop", name, &mcsv1beta1.ServiceExport{}, func(e *mcsv1beta1.ServiceExport) { e.Status.Conditions = c },
		)
	}
	imp := func(name string, ready metav1.ConditionStatus, ips ...string) client.Object {
		return named("shop", name, &mcsv1beta1.ServiceImport{}, func(i *mcsv1beta1.ServiceImport) {
			i.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
			i.Spec.IPs, i.Status.Conditions = ips, condition(mcsv1beta1.ServiceImportConditionReady, ready)
		})
	}
	because := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	notOwned := because(hubv1alpha1.ConditionImported, metav1.ConditionFalse, hubv1alpha1.ReasonNotOwned)
	a := observed(
		"",
		record("web.east", "east", false, metav1.ConditionFalse),
		record("old.east", "east", true, metav1.ConditionFalse),
		record("web.west", "west", false, metav1.ConditionTrue),
		record("db.west", "west", false, metav1.ConditionFalse),
		record("x.west", "west", false, metav1.ConditionFalse),
		record("quota.west", "west", false, metav1.ConditionFalse, because(hubv1alpha1.ConditionEndpointsImported,
			metav1.ConditionFalse, hubv1alpha1.ReasonSliceRefused)),
		record("many.west", "west", false, metav1.ConditionFalse, because(hubv1alpha1.ConditionEndpointsImported,
			metav1.ConditionFalse, hubv1alpha1.ReasonRefusedByHub)), // west says so
		record("policy.east", "east", false, metav1.ConditionFalse, because(hubv1alpha1.ConditionImported,
			metav1.ConditionTrue, hubv1alpha1.ReasonChangeRefused)),
		record("theirs.east", "east", false, metav1.ConditionFalse, notOwned),
		record("nobodys.west", "west", false, metav1.ConditionFalse, notOwned),
		export("theirs", nil),
		export("new", nil),
		export("none", condition(mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse)),
		export("web", condition(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue)),
		export("db", append(condition(mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue),
			condition(mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue)...)),
		imp("web", metav1.ConditionTrue, "10.0.0.1", "fd00::1"),
		imp("db", metav1.ConditionFalse),
		imp("x", metav1.ConditionTrue, "10.0.0.2"),
		named("shop", "others", &mcsv1beta1.ServiceImport{}, func(i *mcsv1beta1.ServiceImport) {
			i.Spec.IPs = []string{"10.0.0.9"}
		}),
	)
	a.env.Held = func() bool { return true }
	want(t, shown(t, a), map[string]float64{
		"member": 1, "hub_fresh": 1, "cloned": 0,
		"records/own": 2, "records/followed": 4, "records/held": 1, "records/incomplete": 2,
		"exports/ready": 2, "exports/not_ready": 1, "exports/invalid": 1, "exports/not_owned": 1, "export_conflicts": 1,
		"imports/ready": 2, "imports/not_ready": 1, "vips": 3, "sources_held": 1,
	})
}

// TestMetricsOfTheMembership are its conditions, once they were decided, also while this cluster is no member.
func TestMetricsOfTheMembership(t *testing.T) {
	a := observed("")
	a.ready.Store(false)
	if err := a.health.Report(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := shown(t, a)
	for _, name := range []string{
		"condition/HubReachable/Connecting/Unknown", "condition/DNSAnswers/NoDNSAnswer/False",
	} {
		if got[name] != 1 {
			t.Errorf("no %s in %v", name, got)
		}
	}
}

// A replica that waits asks no cache, which there is not; it says so by a zero, since a series that is missing alerts
// nobody.
func TestMetricsOfAReplicaThatWaits(t *testing.T) {
	a := observed("")
	a.ready.Store(false)
	a.env.Local, a.env.Fresh, a.env.Cloned = nil, func() bool { return false }, func() bool { return true }
	want(t, shown(t, a), map[string]float64{"member": 0, "hub_fresh": 0, "cloned": 1})
}

type unheard struct{}

func (unheard) Event(runtime.Object, string, string, string) {}

// What is shown of the others is what the room sources has written, here by that room itself.
func TestMetricsOfOtherMembers(t *testing.T) {
	ctx, start := t.Context(), time.Unix(1_000_000, 0)
	set := named("prod", "prod", &hubv1alpha1.ClusterSet{}, func(s *hubv1alpha1.ClusterSet) {
		s.Spec.Lease = hubv1alpha1.LeaseSpec{
			RenewSeconds:    10,
			DurationSeconds: 40,
			GraceSeconds:    10,
			OnExpiry:        hubv1alpha1.ExpiryRemove,
		}
	})
	renewed := func(name string) client.Object {
		return named("prod", name, &coordinationv1.Lease{}, func(l *coordinationv1.Lease) {
			at := metav1.NewMicroTime(start)
			l.Spec.RenewTime, l.Annotations = &at, map[string]string{withdrawal.AnnotationAcknowledged: ""}
		})
	}
	hub := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(set, renewed("west"), renewed("north")).Build()
	a := observed("")
	now := start
	a.env.Events = unheard{}
	a.env.Hub, a.env.Now = func() client.Client { return hub }, func() time.Time { return now }
	observer := sources.New(sources.Config{Member: a.env.Member, HubSeen: a.env.Now})
	for range 8 { // 70 s, in which west goes on
		for _, name := range []string{"west", "north"} {
			if _, err := observer.Reconcile(
				ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}},
			); err != nil {
				t.Fatal(err)
			}
		}
		now = now.Add(10 * time.Second)
		west, at := &coordinationv1.Lease{}, metav1.NewMicroTime(now)
		if err := hub.Get(ctx, client.ObjectKey{Namespace: "prod", Name: "west"}, west); err != nil {
			t.Fatal(err)
		}
		west.Spec.RenewTime = &at
		if err := hub.Update(ctx, west); err != nil {
			t.Fatal(err)
		}
	}
	edited := named(kube.SystemNamespace, "of-mine", &coordinationv1.Lease{}, func(l *coordinationv1.Lease) {
		at := metav1.NewMicroTime(start)
		l.Labels, l.Spec.RenewTime = map[string]string{"clusterset-dns.io/source-cluster": "west"}, &at
	})
	if err := a.env.Local.Create(ctx, edited); err != nil {
		t.Fatal(err)
	}
	got := shown(t, a)
	for name := range got {
		if !strings.HasPrefix(name, "source_") {
			delete(got, name)
		}
	}
	want(t, got, map[string]float64{
		"source_live/west": 1, "source_reach/west/Unknown": 1,
		"source_live/north": 0, "source_reach/north/Unknown": 1,
	})
}

func TestMetricsOfTheToken(t *testing.T) {
	jwt := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
	}
	for name, test := range map[string]struct {
		token    string
		expires  float64
		lifetime float64
	}{
		"of a day":              {jwt(`{"iat":1000000,"exp":1086400}`), 1086400, 86400},
		"with a line's end":     {jwt(`{"iat":1000000,"exp":1086400}`) + "\n", 1086400, 86400},
		"a client certificate":  {"", 0, 0},
		"no token of this kind": {"abc.def", 0, 0},
		"no JSON":               {jwt(`iat`), 0, 0},
		"not base64":            {"a.*.c", 0, 0},
		"without an end":        {jwt(`{"iat":1000000}`), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := shown(t, observed(test.token))
			expires, ok := got["token_expiry_timestamp_seconds"]
			if expires != test.expires || got["token_lifetime_seconds"] != test.lifetime || ok != (test.lifetime > 0) {
				t.Errorf("shown is %v, want %v and %v", got, test.expires, test.lifetime)
			}
		})
	}
	a := observed("")
	a.hub = func() (*rest.Config, error) { return nil, fmt.Errorf("no kubeconfig yet") }
	if got := shown(t, a); got["member"] != 1 {
		t.Errorf("without a kubeconfig, shown is %v", got)
	}
}
