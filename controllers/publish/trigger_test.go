package publish

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestTheTimeOfATriggerIsPublishedWithItsChange and not alone: each write is an event for all members.
func TestTheTimeOfATriggerIsPublishedWithItsChange(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := hubv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).Build()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := reconcilerOf(nil, hub, lease{}, &now)
	slice := discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u"},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	s := &state{own: &hubv1alpha1.ServiceExportRecord{}, endpoints: map[string]*hubv1alpha1.EndpointRecord{}}
	s.own.Spec.Origin = hubv1alpha1.Origin{ClusterID: "me", ServiceNamespace: "shop", ServiceName: "web"}
	for _, step := range []struct{ address, trigger, published string }{
		{"10.0.0.1", "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.5Z"},
		{"10.0.0.1", "2026-01-01T00:01:00Z", "2026-01-01T00:00:00.5Z"},
		{"10.0.0.2", "2026-01-01T00:02:00Z", "2026-01-01T00:02:00Z"},
		{"10.0.0.3", "the day before yesterday, and more than the hub takes, which has sixty-four octets", ""},
	} {
		now = now.Add(time.Minute)
		slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: step.trigger}
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{step.address}}}
		s.wanted = nil
		s.setEndpoints([]discoveryv1.EndpointSlice{slice})
		wanted := s.wanted[0]
		if _, err := r.publishSlice(t.Context(), s, wanted.name, wanted.spec); err != nil {
			t.Fatal(err)
		}
		rec := &hubv1alpha1.EndpointRecord{ObjectMeta: metav1.ObjectMeta{Namespace: r.HubNamespace, Name: wanted.name}}
		if err := hub.Get(t.Context(), client.ObjectKeyFromObject(rec), rec); err != nil {
			t.Fatal(err)
		}
		got, address := rec.Spec.LastChangeTriggerTime, rec.Spec.Endpoints[0].Address
		if got != step.published || address != step.address {
			t.Errorf("%+v: the hub has %q", step, got)
		}
		s.endpoints[rec.Name] = rec
	}
}
