package serviceimport

import (
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestS2WhatABackupShowsIsNotTheOwnersLastWord, for as long as the owner may be expected to say it again; what it
// says then counts at once, and so does a record that was recreated.
func TestS2WhatABackupShowsIsNotTheOwnersLastWord(t *testing.T) {
	var m memory
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	show := func(what string, want bool, created, revision int64) {
		t.Helper()
		now = now.Add(time.Second)
		rec := &hubv1alpha1.EndpointRecord{
			ObjectMeta: metav1.ObjectMeta{Name: "u.c", CreationTimestamp: metav1.Unix(created, 0)},
		}
		rec.Spec.Revision = revision
		if got := m.reverted(name, []*hubv1alpha1.EndpointRecord{rec}, now)["u.c"]; got != want {
			t.Errorf("%s: reverted %v, want %v", what, got, want)
		}
	}
	show("the first time", false, 100, 10)
	show("the next", false, 100, 12)
	show("a backup's", true, 100, 10)
	now = now.Add(endpoints.Patience / 2)
	show("still", true, 100, 10)
	show("the owner's, who has seen that", false, 100, 13)
	show("the same again", false, 100, 13)
	show("a backup's once more", true, 100, 10)
	now = now.Add(endpoints.Patience)
	show("and for too long", false, 100, 10)
	show("by which it is", false, 100, 10)
	show("recreated, by a clock that went back", false, 200, 5)
	m.reverted(name, nil, now)
	if len(m.versions) > 0 {
		t.Errorf("what is gone is remembered: %v", m.versions)
	}
}

// TestS2WhatIsBehindIsNotImported but looked at again; an imported slice is held as it is.
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
			name:     types.NamespacedName{Namespace: "shop", Name: "web"},
			hub:      true,
			records:  []*hubv1alpha1.EndpointRecord{rec},
			reverted: map[string]bool{"u.c": reverted},
		}
		if found := r.sources(s, &exporters{}, nil, merged); (len(found.sources) == 0) != reverted ||
			found.held != reverted {
			t.Errorf("reverted %v: %d sources, held %v", reverted, len(found.sources), found.held)
		}
	}
}

// TestWhatIsRememberedGoesWithItsNamespace: the memory of names that come and go is bounded.
func TestWhatIsRememberedGoesWithItsNamespace(t *testing.T) {
	var m memory
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	m.reverted(name, []*hubv1alpha1.EndpointRecord{{ObjectMeta: metav1.ObjectMeta{Name: "u.c"}}}, time.Unix(1, 0))
	if len(m.versions) != 1 {
		t.Fatalf("%v is remembered", m.versions)
	}
	if m.forget(name); len(m.versions) != 0 {
		t.Errorf("%v is remembered still", m.versions)
	}
}

// TestS2ARelabelledSliceLeavesItsService: its owner shows the record as another Service's, which is its word; what a
// backup shows is not.
func TestS2ARelabelledSliceLeavesItsService(t *testing.T) {
	for _, c := range []struct {
		name    string
		created int64
		want    string
	}{{"recreated", 200, ""}, {"a backup's", 50, "a"}} {
		rec := &hubv1alpha1.EndpointRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "u.a", CreationTimestamp: metav1.Unix(c.created, 0)},
		}
		rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: "a", ServiceNamespace: "shop", ServiceName: "api", Revision: 1}
		local := plane(t, kube.Local, append(imported("a"), record("a", kube.SystemNamespace))...)
		if got, _, _ := pass(t, local, plane(t, kube.Hub, record("a", "set"), rec), false); got != c.want {
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
