package serviceexport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func svc(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.IPFamilies = corev1.ServiceTypeClusterIP, "10.0.0.1", []corev1.IPFamily{
		"IPv4",
	}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	if change != nil {
		change(s)
	}
	return s
}

// TestE3E6WhatIsExported: which Services are, as what, and why not.
func TestE3E6WhatIsExported(t *testing.T) {
	export := &mcsv1beta1.ServiceExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "shop",
			Name:              "web",
			CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		},
	}
	bad := export.DeepCopy()
	bad.Spec.ExportedLabels = map[string]string{"not a key!": "x"}
	big := export.DeepCopy() // with its keys once more it does not fit
	big.Spec.ExportedAnnotations = map[string]string{strings.Repeat("k", 63): strings.Repeat("x", 128<<10-63)}
	for _, c := range []struct {
		name   string
		export *mcsv1beta1.ServiceExport
		svc    *corev1.Service
		kind   mcsv1beta1.ServiceImportType // "" where nothing is exported
		reason string
	}{
		{"ClusterIP", export, svc(nil), mcsv1beta1.ClusterSetIP, "Valid"},
		{"headless", export, svc(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }),
			mcsv1beta1.Headless, "Valid"},
		{"NodePort", export, svc(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }),
			mcsv1beta1.ClusterSetIP, "Valid"},
		{"LoadBalancer", export, svc(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }),
			mcsv1beta1.ClusterSetIP, "Valid"},
		{"ExternalName", export, svc(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), "",
			"InvalidServiceType"},
		{"no Service", export, nil, "", "NoService"},
		{"a derived Service", export, svc(func(s *corev1.Service) {
			s.Name, s.Labels = "derived-0123456789", map[string]string{"app.kubernetes.io/managed-by": kube.Manager}
		}), "", "InvalidServiceType"},
		{"labels that nobody could import", bad, svc(nil), mcsv1beta1.ClusterSetIP, "Valid"},
		{"annotations too large for an import", big, svc(nil), mcsv1beta1.ClusterSetIP, "Valid"},
		{"more ports than a record may have", export, svc(func(s *corev1.Service) {
			for n := range int32(300) {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", n), Port: 1000 + n})
			}
		}), mcsv1beta1.ClusterSetIP, "Valid"},
		{"no export", nil, svc(nil), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, valid := decided(state{cluster: clusterset.Place{Cluster: "a"}, export: c.export, service: c.svc})
			if (spec == nil) != (c.kind == "") ||
				spec != nil && (spec.Type != c.kind || spec.Ports[0].Protocol != corev1.ProtocolTCP) ||
				valid.Reason != c.reason {
				t.Errorf("%+v, %+v; want %q, %s", spec, valid, c.kind, c.reason)
			}
		})
	}
}

// decided returns what is exported, nil if nothing is, and the condition Valid.
func decided(s state) (*hubv1alpha1.ServiceExportRecordSpec, metav1.Condition) {
	d := decide(&s, start)
	if !d.exports {
		return nil, d.valid
	}
	return &d.record, d.valid
}

// TestE4Ready: by what became of the record on the hub, and by what was reported before.
func TestE4Ready(t *testing.T) {
	quota := errors.New("quota")
	conflict := apierrors.NewConflict(corev1.Resource("x"), "y", errors.New("changed"))
	was := func(status metav1.ConditionStatus, reason mcsv1beta1.ServiceExportConditionReason) *metav1.Condition {
		c := conditions.Ready(status, reason, "before")
		return &c
	}
	exported, failed := was(
		"True",
		mcsv1beta1.ServiceExportReasonExported,
	), was(
		"False",
		mcsv1beta1.ServiceExportReasonFailed,
	)
	pending := was("Unknown", mcsv1beta1.ServiceExportReasonPending)
	for _, c := range []struct {
		name    string
		exports bool
		o       outcome
		was     *metav1.Condition
		refused string // by the hub: this member
		want    string
	}{
		{"invalid", false, outcome{}, exported, "", "False Pending"},
		{"invalid, and the hub refuses this member", false, outcome{}, exported, "why", "False Pending"},
		{"not yet published", true, outcome{}, nil, "", "Unknown Pending"},
		{"published", true, outcome{published: true}, pending, "", "True Exported"},
		{"it was published, and cannot be now", true, outcome{}, exported, "", "True Exported"},
		{"a conflict", true, outcome{there: conflict}, exported, "", "True Exported"},
		{"a conflict after a failure", true, outcome{there: conflict}, failed, "", "False Failed"},
		{"a conflict of a new export", true, outcome{there: conflict}, nil, "", "Unknown Pending"},
		{"refused", true, outcome{there: quota}, exported, "", "False Failed"},
		{"refused here", true, outcome{published: true, here: quota}, exported, "", "False Failed"},
		{"the hub does not show yet what it took", true, outcome{waits: true}, exported, "", "True Exported"},
		{"nor what it refused a part of", true, outcome{waits: true}, failed, "", "False Failed"},
		{"exported again, and the hub has the withdrawal", true, outcome{}, was("False", "Pending"), "",
			"Unknown Pending"},
		{"published, and this member refused since", true, outcome{}, exported, "why", "Unknown Pending"},
	} {
		got := ready(&state{refused: c.refused}, &decision{exports: c.exports}, c.o, c.was)
		if is := string(got.Status) + " " + got.Reason; is != c.want || got.Message == "" {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

// TestE3WhatIsInvalidIsLeftOut, and an export that carries traffic goes on without it; Valid's message says what it
// is.
func TestE3WhatIsInvalidIsLeftOut(t *testing.T) {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace:         "shop",
		Name:              "web",
		CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		Annotations: map[string]string{
			clusterset.AnnotationPreference: "localish",
			"clusterset-dns.io/prefernce":   "prefer-local",
			clusterset.AnnotationExternal:   "false",
			"example.com/preference":        "theirs",
		},
	}}
	export.Spec.ExportedLabels = map[string]string{
		"team": "web", "not a key!": "x", "tier": "not a value!", "app.kubernetes.io/managed-by": "Helm",
	}
	export.Spec.ExportedAnnotations = map[string]string{
		"note": "any text!", "not a key either!": "x", "clusterset-dns.io/adopt": "true",
	}
	spec, valid := decided(
		state{cluster: clusterset.Place{Cluster: "a"}, export: export, service: svc(func(s *corev1.Service) {
			s.Spec.TrafficDistribution = ptr.To("PreferNextPlanet")
		})},
	)
	if spec == nil || valid.Status != metav1.ConditionTrue {
		t.Fatalf("not exported: %+v", valid)
	}
	got := fmt.Sprint(spec.ExportedLabels, spec.ExportedAnnotations, spec.TrafficDistribution)
	if got != "map[team:web] map[note:any text!] <nil>" || spec.Preference != "" {
		t.Errorf("exported: %s", got)
	}
	for _, what := range []string{"not a key!", "not a value!", "not a key either!", "PreferNextPlanet", "localish",
		"app.kubernetes.io/managed-by", "clusterset-dns.io/adopt",
		"annotation clusterset-dns.io/prefernce is not known"} {
		if !strings.Contains(valid.Message, what) {
			t.Errorf("the message does not name %q: %s", what, valid.Message)
		}
	}
	if strings.Contains(valid.Message, "example.com") {
		t.Errorf("the message names an annotation of others: %s", valid.Message)
	}
	useless := export.DeepCopy()
	useless.Annotations[clusterset.AnnotationPreference] = "cluster.clusterset.k8s.io=west"
	last := &hubv1alpha1.ServiceExportRecord{}
	last.Spec.Preference = hubv1alpha1.LocalOnly
	spec, valid = decided(
		state{cluster: clusterset.Place{Cluster: "a"}, export: useless, service: svc(nil), own: last},
	)
	if spec == nil || spec.Preference != hubv1alpha1.LocalOnly || !strings.Contains(valid.Message, "cluster=ID") {
		t.Errorf("a preference that selects nobody: %+v, %+v", spec, valid)
	}
	many := export.DeepCopy()
	for n := range 300 {
		many.Spec.ExportedLabels[fmt.Sprint("l", n)] = ""
	}
	if spec, valid = decided(
		state{cluster: clusterset.Place{Cluster: "a"}, export: many, service: svc(nil)},
	); spec == nil ||
		len(spec.ExportedLabels) > 0 ||
		!strings.Contains(valid.Message, "exportedLabels: 301") {
		t.Errorf("too many labels: %v, %+v", spec, valid)
	}
}

// TestE3WhatOfItsSlicesIsLeftOut is in Valid's message, and the rest is exported.
func TestE3WhatOfItsSlicesIsLeftOut(t *testing.T) {
	bad := slice("web-1", 1)
	bad.Endpoints = append(bad.Endpoints, discoveryv1.Endpoint{Addresses: []string{"169.254.169.254"}})
	names := slice("web-2")
	names.AddressType = discoveryv1.AddressTypeFQDN
	m := newMember(t, nil, export(), svc(nil), bad, names)
	m.settle(2)
	at := find[*mcsv1beta1.ServiceExport](m, m.local, "shop", "web").Status.Conditions
	valid := meta.FindStatusCondition(at, string(mcsv1beta1.ServiceExportConditionValid))
	if valid == nil || valid.Status != metav1.ConditionTrue || !strings.Contains(valid.Message, "169.254.169.254") ||
		!strings.Contains(valid.Message, "web-2") || m.ready().Reason != "Exported" || m.endpoints() != "inline: 1" {
		t.Errorf("%+v, %+v, %s", valid, m.ready(), m.endpoints())
	}
}

// TestE11ATypingErrorExportsToNobodyElse, neither before it nor after.
func TestE11ATypingErrorExportsToNobodyElse(t *testing.T) {
	export := func(to string) *mcsv1beta1.ServiceExport {
		e := &mcsv1beta1.ServiceExport{}
		e.Namespace, e.Name, e.CreationTimestamp = "shop", "web", metav1.Unix(1_700_000_000, 0)
		e.Annotations = map[string]string{clusterset.AnnotationExportTo: to}
		return e
	}
	own := func(to string, withdrawn bool) *hubv1alpha1.ServiceExportRecord {
		rec := &hubv1alpha1.ServiceExportRecord{}
		rec.Spec.ExportTo, rec.Spec.Withdrawn = to, withdrawn
		return rec
	}
	for _, c := range []struct {
		what, to string
		last     *hubv1alpha1.ServiceExportRecord
		want     string
	}{
		{"new", "cluster=b, region=eu", nil, "cluster=b,region=eu"},
		{"new, and wrong", "b", nil, "cluster=a"},
		{"was exported, and is wrong", "same:region", own("cluster=b", false), "cluster=b"},
		{"was exported to all, and is wrong", "cluster=B_", own("", false), ""},
		{"was withdrawn, and is wrong", "any", own("", true), "cluster=a"},
	} {
		at := state{cluster: clusterset.Place{Cluster: "a"}, export: export(c.to), service: svc(nil)}
		copied, lost := at, at
		copied.own, lost.shown = c.last, c.last // the hub has it
		for where, s := range map[string]state{"copied": copied, "the copy is lost": lost} {
			spec, valid := decided(s)
			wrong := strings.Contains(valid.Message, clusterset.AnnotationExportTo)
			if spec == nil || spec.ExportTo != c.want || wrong == (c.want == "cluster=b,region=eu") {
				t.Errorf("%s, %s: %+v, %s; want it to go to %q", c.what, where, spec, valid.Message, c.want)
			}
		}
	}
}

// TestE11ALostCopyEndsNoExportWithATypingError, also if this agent starts before it sees the hub, which knows the rest.
func TestE11ALostCopyEndsNoExportWithATypingError(t *testing.T) {
	for _, createdAgain := range []bool{false, true} {
		wrong := export()
		wrong.Annotations = map[string]string{clusterset.AnnotationExportTo: "b"}
		shown := exportOf(1)
		shown.ExportTo = "cluster=b"
		if createdAgain {
			shown.ExportedAt = new(metav1.NewTime(wrong.CreationTimestamp.Add(-time.Hour)))
		}
		m := newMember(t, []client.Object{ownRecord("prod", shown)})
		refused := 1 // a webhook
		m.local = plane(t, kube.Local, interceptor.Funcs{Update: func(
			ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption,
		) error {
			if _, ok := o.(*hubv1alpha1.ServiceExportRecord); ok && refused > 0 {
				refused--
				return apierrors.NewInternalError(errors.New("failed calling webhook"))
			}
			return c.Update(ctx, o, opts...)
		}}, wrong, svc(nil), slice("web-1", 1))
		m.restart(pages.OfHub)
		hub := m.hub
		m.hub = nil // not seen yet
		if m.settle(2); m.copied() == nil || m.copied().Spec.ExportTo != "cluster=east" {
			t.Fatalf("before the hub was seen: %+v; want a copy that goes to no other cluster", m.copied())
		}
		m.hub = hub
		for range 3 {
			_, _, _ = m.pass() // the first update is refused
		}
		m.settle(20)
		if here, there := m.copied().Spec.ExportTo, m.record().Spec.ExportTo; here != "cluster=b" || there != here {
			t.Errorf("created again: %v: the copy goes to %q, and the record to %q", createdAgain, here, there)
		}
	}
}

// TestConditionsArePatched: an update would remove the fields of a newer version that this one does not know.
func TestConditionsArePatched(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := mcsv1beta1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	var sent string
	local := fake.NewClientBuilder().WithScheme(scheme).WithObjects(export).WithStatusSubresource(export).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption,
		) error {
			data, err := p.Data(o)
			sent = string(data)
			return errors.Join(err, c.SubResource(sub).Patch(ctx, o, p, opts...))
		}}).Build()
	if err := local.Get(t.Context(), client.ObjectKeyFromObject(export), export); err != nil {
		t.Fatal(err)
	}
	m := kube.Member{Cluster: "a", Local: local, Now: time.Now, Events: noEvents{}}
	r := New(Config{Member: m}).Reconciler.(*reconciler)
	s := &state{export: export}
	d := decide(s, start)
	if err := r.report(t.Context(), s, &d, outcome{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(sent, `"resourceVersion"`) || !strings.Contains(sent, `"conditions"`) ||
		strings.Contains(sent, `"spec"`) {
		t.Errorf("the patch is %q", sent)
	}
}

type noEvents struct{}

func (noEvents) Event(runtime.Object, string, string, string) {}

// TestS3ARecreatedCopyIsNewer than the one that was lost, though the clock was put back since: others hold what is
// older.
func TestS3ARecreatedCopyIsNewer(t *testing.T) {
	ahead := metav1.NewMicroTime(start.Add(10 * time.Minute))
	m := newMember(t, nil, export(), svc(nil), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed},
		Spec:       coordinationv1.LeaseSpec{RenewTime: &ahead},
	})
	m.settle(1)
	if copied := m.copied(); copied.Spec.Revision <= ahead.UnixMilli() ||
		m.record().Spec.Revision <= ahead.UnixMilli() {
		t.Errorf("%+v, %+v; want revisions above %d", copied.Spec, m.record().Spec, ahead.UnixMilli())
	}
}

// TestE4ACopyThatThisClusterRefuses is reported, and its cause stays an error, so that it is tried again. Others get
// the record all the same.
func TestE4ACopyThatThisClusterRefuses(t *testing.T) {
	m := newMember(t, nil, export(), svc(nil), slice("web-1", 1))
	m.local = plane(t, kube.Local, interceptor.Funcs{Create: func(
		_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption,
	) error {
		return quota(o)
	}}, export(), svc(nil), slice("web-1", 1))
	m.restart(pages.OfHub)
	for range 2 {
		if _, _, err := m.pass(); !apierrors.IsForbidden(err) {
			t.Errorf("the pass ends with %v", err)
		}
	}
	if c := m.ready(); c.Reason != "Failed" || !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("condition Ready is %+v", c)
	}
	if m.endpoints() != "inline: 1" {
		t.Errorf("the hub has %s", m.endpoints())
	}
}

// TestC1ExportedAt is the age of the ServiceExport, except after a withdrawal: the same ServiceExport then exports
// again, and others must see that, even if they have missed the withdrawal. It never moves back.
func TestC1ExportedAt(t *testing.T) {
	at := func(second int64) *metav1.Time { return new(metav1.Unix(1_700_000_000+second, 0)) }
	own := func(exported, withdrawn *metav1.Time) *hubv1alpha1.ServiceExportRecord {
		rec := &hubv1alpha1.ServiceExportRecord{}
		rec.Spec.ExportedAt, rec.Spec.WithdrawnAt, rec.Spec.Withdrawn = exported, withdrawn, withdrawn != nil
		return rec
	}
	for _, c := range []struct {
		name    string
		created int64
		own     *hubv1alpha1.ServiceExportRecord
		want    int64
	}{
		{"a new export", 5, nil, 5},
		{"as before", 5, own(at(5), nil), 5},
		{"another ServiceExport", 9, own(at(5), nil), 9},
		{"another ServiceExport, by a clock that was set back", 3, own(at(5), nil), 5},
		{"exported again since its Service was deleted", 5, own(at(5), at(7)), 7},
		{"exported again by another ServiceExport", 9, own(at(5), at(7)), 9},
		{"exported again, by a clock that was set back", 5, own(at(5), at(3)), 6},
		{"exported again after a withdrawal of an earlier version", 5, own(nil, at(7)), 7},
	} {
		if got := exportedAt(*at(c.created), c.own); !got.Equal(at(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, at(c.want))
		}
	}
}

// TestE3AnInvalidPreferenceChangesNothing, or traffic would go everywhere by a mistake in one letter.
func TestE3AnInvalidPreferenceChangesNothing(t *testing.T) {
	for _, c := range []struct {
		preference, minReady string
		exported             bool
		want                 string
	}{
		{"cluster=b", "2", true, "cluster=b 2"},
		{"cluster=b_", "2", true, "local-only 50%"},
		{"prefer-locla", "2", true, "local-only 50%"},
		{"cluster=b", "two", true, "local-only 50%"},
		{"", "", true, " "},
		{"prefer-locla", "2", false, " "},
	} {
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
			CreationTimestamp: metav1.Unix(1_700_000_000, 0),
			Annotations: map[string]string{clusterset.AnnotationPreference: c.preference,
				clusterset.AnnotationMinReady: c.minReady}}}
		s := state{cluster: clusterset.Place{Cluster: "a"}, export: export, service: svc(nil)}
		if c.exported {
			s.own = &hubv1alpha1.ServiceExportRecord{}
			s.own.Spec.ExportedAt = &export.CreationTimestamp
			s.own.Spec.Preference, s.own.Spec.MinReady = hubv1alpha1.LocalOnly, "50%"
		}
		lost := s
		lost.own, lost.shown = nil, s.own
		for _, s := range []state{s, lost} {
			spec, valid := decided(s)
			if spec == nil || string(spec.Preference)+" "+spec.MinReady != c.want {
				t.Errorf("%+v, the copy is lost: %v: %+v, %s", c, s.own == nil, spec, valid.Message)
			}
		}
	}
}

// TestS5ExcludedNamespaces export nothing, and Valid says why. An export ends only by rules that the hub shows.
func TestS5ExcludedNamespaces(t *testing.T) {
	for _, c := range []struct {
		name, namespace string
		deny            []string // by the ClusterSet; nil: the hub has none
		exported        bool     // before
		wantExport      bool
	}{
		{"allowed", "shop", []string{"bank"}, false, true},
		{"excluded", "shop", []string{"shop"}, false, false},
		{"excluded since", "shop", []string{"shop"}, true, false},
		{"assumed, and new", "kube-shop", nil, false, false},
		{"assumed, and exported", "kube-shop", nil, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
				Namespace: c.namespace, Name: "web", CreationTimestamp: metav1.Unix(1_700_000_000, 0),
			}}
			service := svc(func(s *corev1.Service) { s.Namespace = c.namespace })
			local := plane(t, kube.Local, interceptor.Funcs{}, export, service)
			pass := func(deny []string) {
				t.Helper()
				var sets []client.Object
				if deny != nil {
					set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
					set.Spec.Namespaces.Deny = deny
					sets = append(sets, set)
				}
				reads := plane(t, kube.Hub, interceptor.Funcs{}, sets...)
				r := New(Config{
					Member: kube.Member{
						Cluster:      "a",
						HubNamespace: "set",
						Local:        local,
						LocalNow:     local,
						Hub:          func() client.Client { return reads },
						Now:          time.Now,
						Events:       noEvents{},
					},
					Lease: lease{silent: true},
				}).Reconciler
				req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(export)}
				if _, err := r.Reconcile(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			if c.exported {
				pass([]string{"bank"})
			}
			pass(c.deny)
			rec, err := kube.Get[*hubv1alpha1.ServiceExportRecord](t.Context(), local, types.NamespacedName{
				Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", c.namespace, "a"),
			})
			if err != nil || (rec != nil && !rec.Spec.Withdrawn) != c.wantExport {
				t.Errorf("%v: %+v, want an export: %v", err, rec, c.wantExport)
			}
			if err := local.Get(t.Context(), client.ObjectKeyFromObject(export), export); err != nil {
				t.Fatal(err)
			}
			valid := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
			if valid == nil || (valid.Reason == "Valid") != c.wantExport ||
				!c.wantExport && (valid.Reason != "ExcludedNamespace" || valid.Status != metav1.ConditionFalse) {
				t.Errorf("Valid is %+v", valid)
			}
		})
	}
}

// TestARecordThatThisClusterAltersIsLeftAlone: its CRD prunes a field. Each write goes to the hub and is an event for
// all members, so the same content is written again only every ten minutes, and a user's edit is reverted at once.
func TestARecordThatThisClusterAltersIsLeftAlone(t *testing.T) {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", CreationTimestamp: metav1.Unix(1_700_000_000, 0),
	}}
	service := svc(func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferClose") })
	writes := 0
	local := plane(t, kube.Local, interceptor.Funcs{Update: func(
		ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption,
	) error {
		writes++
		stored := o.DeepCopyObject().(*hubv1alpha1.ServiceExportRecord)
		stored.Spec.TrafficDistribution = nil
		stored.Generation++
		err := c.Update(ctx, stored, opts...)
		o.SetResourceVersion(stored.ResourceVersion) // what the answer lacks stays in the object
		o.SetGeneration(stored.Generation)
		return err
	}}, export, service)
	now := time.Unix(1_800_000_000, 0)
	r := New(Config{
		Member: kube.Member{
			Cluster: "a", Local: local, Hub: func() client.Client { return nil },
			Now: func() time.Time { return now }, Events: noEvents{},
		},
		Lease: lease{},
	}).Reconciler
	own := func() *hubv1alpha1.ServiceExportRecord {
		t.Helper()
		rec := &hubv1alpha1.ServiceExportRecord{}
		name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: "web.shop.a"}
		if err := local.Get(t.Context(), name, rec); err != nil {
			t.Fatal(err)
		}
		return rec
	}
	pass := func(want int) {
		t.Helper()
		writes = 0
		for range 6 {
			now = now.Add(time.Second)
			req := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(export)}
			if _, err := r.Reconcile(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			imported := own() // as serviceimport does after each change
			imported.Status.Conditions = []metav1.Condition{{
				Type: hubv1alpha1.ConditionImported, Status: metav1.ConditionTrue, Reason: "Imported",
				Message: fmt.Sprint(now), LastTransitionTime: metav1.NewTime(now),
			}}
			if err := local.Status().Update(t.Context(), imported); err != nil {
				t.Fatal(err)
			}
		}
		if writes != want {
			t.Errorf("six passes wrote the record %d times, want %d", writes, want)
		}
	}
	pass(0) // they create it
	edit := own()
	edit.Spec.TrafficDistribution = nil
	if err := local.Update(t.Context(), edit); err != nil {
		t.Fatal(err)
	}
	pass(1)
	edit = own()
	edit.Spec.SessionAffinity = corev1.ServiceAffinityClientIP // a user's
	if err := local.Update(t.Context(), edit); err != nil {
		t.Fatal(err)
	}
	if pass(1); own().Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		t.Error("a user's edit stays")
	}
	now = now.Add(10 * time.Minute)
	pass(1)
}

// TestF5ALoadBalancerIsLeftOut if the ClusterSet forbids it, or it has no address yet. The export goes on, and Valid
// says why.
func TestF5ALoadBalancerIsLeftOut(t *testing.T) {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		Annotations: map[string]string{clusterset.AnnotationExternal: "true"},
	}}
	for _, c := range []struct {
		name    string
		ip      string
		rule    hubv1alpha1.ExternalNames
		message string
	}{
		{"published", "192.0.2.1", hubv1alpha1.ExternalNamesAllow, ""},
		{"no rule", "192.0.2.1", "", ""},
		{"forbidden", "192.0.2.1", hubv1alpha1.ExternalNamesForbid, "spec.externalNames"},
		{"no address yet", "", hubv1alpha1.ExternalNamesAllow, "no address yet"},
	} {
		spec, valid := decided(state{
			cluster: clusterset.Place{Cluster: "a"}, export: export, external: c.rule,
			service: svc(func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				if c.ip != "" {
					s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: c.ip}}
				}
			}),
		})
		if spec == nil || (spec.External != nil) != (c.message == "") || valid.Status != metav1.ConditionTrue ||
			!strings.Contains(valid.Message, c.message) ||
			strings.Contains(valid.Message, clusterset.AnnotationExternal) != (c.message != "") {
			t.Errorf("%s: %+v, %+v", c.name, spec, valid)
		}
	}
}
