package serviceimport

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestS2WhatIsBehindIsNotImported but looked at again: the hub shows an older export than the copy.
func TestS2WhatIsBehindIsNotImported(t *testing.T) {
	r := &reconciler{Config: Config{Cluster: "b"}}
	rec := &hubv1alpha1.EndpointRecord{
		ObjectMeta: metav1.ObjectMeta{Name: "u.c", CreationTimestamp: metav1.Unix(100, 0)},
	}
	rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: "c", ServiceNamespace: "shop", ServiceName: "web", Revision: 10}
	rec.Spec.AddressType = discoveryv1.AddressTypeIPv4
	rec.Spec.Endpoints = []hubv1alpha1.Endpoint{{Address: "10.3.0.1"}}
	merged := &conflict.Merged{Names: map[string]map[string]string{"c": {}}}
	for _, reverted := range []bool{false, true} {
		s := &snapshot{
			name:    types.NamespacedName{Namespace: "shop", Name: "web"},
			hub:     true,
			records: []*hubv1alpha1.EndpointRecord{rec},
			copies:  []hubv1alpha1.ServiceExportRecord{*record("c", kube.SystemNamespace)},
			onHub:   map[string]*hubv1alpha1.ServiceExportRecord{"c": record("c", "set")},
		}
		if reverted {
			s.copies[0].Spec.Revision++
		}
		if found := r.sources(s, &exporters{}, nil, merged); (len(found.sources) == 0) != reverted ||
			found.held != reverted {
			t.Errorf("reverted %v: %d sources, held %v", reverted, len(found.sources), found.held)
		}
	}
}

// TestS2ARelabelledSliceLeavesItsService: its record has become another Service's, and its owner states no other for
// this one. A statement that is older than the imported slice proves nothing, nor does a record without one.
func TestS2ARelabelledSliceLeavesItsService(t *testing.T) {
	for _, c := range []struct {
		name, stated string
		revision     int64
		want         string
	}{
		{"stated", clusterset.EndpointSet(nil), 2, ""},
		{"stated before the slice was imported", clusterset.EndpointSet(nil), 1, "a"},
		{"another set is stated", clusterset.EndpointSet([]string{"v.a"}), 2, "a"},
		{"nothing is stated", "", 2, "a"},
	} {
		rec := &hubv1alpha1.EndpointRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "u.a"}}
		rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: "a", ServiceNamespace: "shop", ServiceName: "api", Revision: 2}
		copied := record("a", kube.SystemNamespace)
		copied.Spec.EndpointRecords, copied.Spec.Revision = c.stated, c.revision
		local := plane(t, kube.Local, append(imported("a"), copied)...)
		if got, _, _ := pass(t, local, plane(t, kube.Hub, record("a", "set"), rec)); got != c.want {
			t.Errorf("%s: endpoints of %q, want %q", c.name, got, c.want)
		}
	}
}

// TestV5ImportsThatWaitForAVIPAskLessAndLess: thousands may wait for one range. Who is answered starts again.
func TestV5ImportsThatWaitForAVIPAskLessAndLess(t *testing.T) {
	var m memory
	web, other := types.NamespacedName{
		Namespace: "shop",
		Name:      "web",
	}, types.NamespacedName{
		Namespace: "shop",
		Name:      "other",
	}
	for round, end := range []func(types.NamespacedName){m.stopWaiting, m.forget, func(types.NamespacedName) {}} {
		for _, want := range []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
			1600 * time.Millisecond, 2 * time.Second, 2 * time.Second} {
			if got := m.wait(web); got != want {
				t.Errorf("round %d: %s, want %s", round, got, want)
			}
		}
		if end(web); round < 2 {
			if got := m.wait(other); got != firstWait<<round {
				t.Errorf("another waits %s", got)
			}
		}
	}
}
