package liveness

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestVerdictsSurviveTheirLease: what is written is what is read, whatever the Lease said before.
func TestVerdictsSurviveTheirLease(t *testing.T) {
	lease := &coordinationv1.Lease{}
	if VerdictOf(nil).Dead || VerdictOf(lease).Dead {
		t.Error("dead without a word")
	}
	lease.Annotations = map[string]string{}
	for _, v := range []Verdict{
		{Dead: true, OnExpiry: hubv1alpha1.ExpiryNotReady, KeepLast: true},
		{Dead: true, OnExpiry: hubv1alpha1.ExpiryRemove},
		{},
	} {
		v.Write(lease.Annotations)
		if got := VerdictOf(lease); got != v {
			t.Errorf("%+v is read as %+v", v, got)
		}
	}
	if len(lease.Annotations) != 1 {
		t.Errorf("of a living source remains %v", lease.Annotations)
	}
}
