package liveness

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestStateSurvivesTheLease: what is written is read back, whatever the Lease held before.
func TestStateSurvivesTheLease(t *testing.T) {
	lease := &coordinationv1.Lease{}
	if StateOf(nil).Expired || StateOf(lease).Expired {
		t.Error("expired without an annotation")
	}
	lease.Annotations = map[string]string{}
	for _, v := range []State{
		{Expired: true, OnExpiry: hubv1alpha1.ExpiryNotReady},
		{Expired: true, OnExpiry: hubv1alpha1.ExpiryRemove},
		{},
	} {
		v.Write(lease.Annotations)
		if got := StateOf(lease); got != v {
			t.Errorf("%+v is read as %+v", v, got)
		}
	}
	if len(lease.Annotations) != 1 {
		t.Errorf("a live source keeps %v", lease.Annotations)
	}
}
