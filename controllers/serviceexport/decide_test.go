package serviceexport

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func svc(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.IPFamilies = corev1.ServiceTypeClusterIP, "10.0.0.1", []corev1.IPFamily{"IPv4"}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	if change != nil {
		change(s)
	}
	return s
}

// TestE3E6WhatIsExported: which Services are, as what, and why not.
func TestE3E6WhatIsExported(t *testing.T) {
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.Unix(1_700_000_000, 0)}}
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
		{"headless", export, svc(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), mcsv1beta1.Headless, "Valid"},
		{"NodePort", export, svc(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort }), mcsv1beta1.ClusterSetIP, "Valid"},
		{"LoadBalancer", export, svc(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }), mcsv1beta1.ClusterSetIP, "Valid"},
		{"ExternalName", export, svc(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), "", "InvalidServiceType"},
		{"no Service", export, nil, "", "NoService"},
		{"a derived Service", export, svc(func(s *corev1.Service) {
			s.Name, s.Labels = "derived-0123456789", map[string]string{"app.kubernetes.io/managed-by": kube.Manager}
		}), "", "InvalidServiceType"},
		{"labels that nobody could import", bad, svc(nil), "", "InvalidExport"},
		{"annotations that an import has no room for", big, svc(nil), "", "InvalidExport"},
		{"no export", nil, svc(nil), "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, valid := decide("a", state{export: c.export, svc: c.svc})
			if (spec == nil) != (c.kind == "") || spec != nil && (spec.Type != c.kind || spec.Ports[0].Protocol != corev1.ProtocolTCP) || valid.Reason != c.reason {
				t.Errorf("%+v, %+v; want %q, %s", spec, valid, c.kind, c.reason)
			}
		})
	}
}

// TestE4Ready: by what publishing left on the own record.
func TestE4Ready(t *testing.T) {
	spec := &hubv1alpha1.ServiceExportRecordSpec{}
	own := func(generation, observed int64, status metav1.ConditionStatus) *hubv1alpha1.ServiceExportRecord {
		r := &hubv1alpha1.ServiceExportRecord{}
		r.Generation = generation
		r.Status.Conditions = []metav1.Condition{{Type: hubv1alpha1.ConditionPublished, Status: status, ObservedGeneration: observed, Message: "m"}}
		return r
	}
	for _, c := range []struct {
		name   string
		own    *hubv1alpha1.ServiceExportRecord
		spec   *hubv1alpha1.ServiceExportRecordSpec
		status metav1.ConditionStatus
		reason string
		refuse string
	}{
		{"invalid", nil, nil, metav1.ConditionFalse, "Pending", ""},
		{"not yet recorded", nil, spec, metav1.ConditionUnknown, "Pending", ""},
		{"not yet published", &hubv1alpha1.ServiceExportRecord{}, spec, metav1.ConditionUnknown, "Pending", ""},
		{"published", own(2, 2, metav1.ConditionTrue), spec, metav1.ConditionTrue, "Exported", ""},
		{"an older revision published", own(2, 1, metav1.ConditionTrue), spec, metav1.ConditionFalse, "Pending", ""},
		{"refused", own(2, 2, metav1.ConditionFalse), spec, metav1.ConditionFalse, "Failed", ""},
		{"published, and this member refused since", own(2, 2, metav1.ConditionTrue), spec, metav1.ConditionUnknown, "Pending", "why"},
		{"invalid, and this member refused", nil, nil, metav1.ConditionFalse, "Pending", "why"},
	} {
		if got := ready(c.own, c.spec, c.refuse); got.Status != c.status || got.Reason != c.reason || got.Message == "" {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestS3ARecordMadeAnewIsNewer than the one that was lost, though the clock was put back since: peers hold what is older.
func TestS3ARecordMadeAnewIsNewer(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{coordinationv1.AddToScheme, hubv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Unix(1_900_000_000, 0)
	ahead := metav1.NewMicroTime(now.Add(10 * time.Minute))
	kept := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}, Spec: coordinationv1.LeaseSpec{RenewTime: &ahead}}
	local := fake.NewClientBuilder().WithScheme(scheme).WithObjects(kept).Build()
	r := &reconciler{&kube.Env{Cluster: "a", Local: local, Now: func() time.Time { return now }}}
	if err := r.record(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, nil, &hubv1alpha1.ServiceExportRecordSpec{}); err != nil {
		t.Fatal(err)
	}
	rec, err := kube.Get[*hubv1alpha1.ServiceExportRecord](t.Context(), local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: "web.shop.a"})
	if err != nil || rec == nil || rec.Spec.Revision <= ahead.UnixMilli() {
		t.Errorf("%v: %+v, want a revision above %d", err, rec, ahead.UnixMilli())
	}
}
