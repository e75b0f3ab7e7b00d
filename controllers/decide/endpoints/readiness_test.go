package endpoints

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
)

// TestT1WhatAnOwnerSaysIsRemembered though it is not what is written: where the agent restarts and sees no hub,
// keepLast finds what it kept before, and what nothing is against any more is as its owner says. Nothing is written
// twice.
func TestT1WhatAnOwnerSaysIsRemembered(t *testing.T) {
	yes, no := true, false
	said := []hubv1alpha1.Endpoint{
		{Address: "10.2.0.1", Ready: &yes, Serving: &yes},
		{Address: "10.2.0.2"},
		{
			Address:     "10.2.0.3",
			Ready:       &no,
			Serving:     &yes,
			Terminating: &yes,
		},
		{Address: "10.2.0.4", Ready: &no, Serving: &no},
	}
	names := map[string]string{"http": "http"}
	m := &conflict.Merged{Names: map[string]map[string]string{"a": names, "b": names}}
	imp := &Import{Namespace: "shop", Name: "web", UID: "i", Derived: "derived-x", Manager: "us", Merged: m}
	against := map[string]func([]*Source) []*Source{
		"the dead": func(s []*Source) []*Source {
			return Expire(s, map[string]liveness.State{
				"b": {Expired: true, OnExpiry: hubv1alpha1.ExpiryNotReady, KeepLast: true},
			}, clusterset.Place{Cluster: "me"}, m)
		},
	}
	for what, decided := range against {
		own, lost := serving("a", discoveryv1.AddressTypeIPv4, true, "http"), serving(
			"a",
			discoveryv1.AddressTypeIPv4,
			false,
			"http",
		)
		src := serving("b", discoveryv1.AddressTypeIPv4, true, "http")
		src.Record, src.Created, src.Revision, src.Endpoints = "u.b", 100, 7, said
		src.ServiceNamespace, src.ServiceName = "shop", "web"
		asItIs := Desired(src, imp)
		written := Desired(decided([]*Source{own, src})[1], imp)
		for _, e := range written.Endpoints {
			if *e.Conditions.Ready || *e.Conditions.Serving {
				t.Fatalf("%s: %+v is ready", what, e)
			}
		}
		seen := written.DeepCopy()
		remembered, err := Restore(seen)
		if err != nil {
			t.Fatal(err)
		}
		if again := Plan(
			[]*discoveryv1.EndpointSlice{Desired(decided([]*Source{own, &remembered})[1], imp)},
			[]*discoveryv1.EndpointSlice{seen},
		); len(
			again.Update,
		) > 0 {
			t.Errorf("%s: a settled slice is written again: %+v", what, again.Update[0])
		}
		floor := Plan(
			[]*discoveryv1.EndpointSlice{Desired(decided([]*Source{lost, &remembered})[1], imp)},
			[]*discoveryv1.EndpointSlice{seen},
		)
		if len(floor.Update) != 1 || !equality.Semantic.DeepEqual(floor.Update[0].Endpoints, asItIs.Endpoints) ||
			!equality.Semantic.DeepEqual(floor.Update[0].Annotations, asItIs.Annotations) {
			t.Errorf("%s: the last are not kept as their owner says: %+v", what, floor.Update)
		}
		if !equality.Semantic.DeepEqual(seen, written) {
			t.Errorf("%s: a cached slice was changed", what)
		}
	}
}

// TestI9WhatAUserWroteOverCounts until the owner is heard again: readiness is remembered of endpoints only that are
// written as not ready.
func TestI9WhatAUserWroteOverCounts(t *testing.T) {
	src := serving("b", discoveryv1.AddressTypeIPv4, true, "http")
	src.Record, src.Endpoints = "u.b", []hubv1alpha1.Endpoint{{Address: "10.2.0.1"}}
	imp := &Import{Derived: "derived-x", Merged: &conflict.Merged{}}
	yes := true
	for what, edit := range map[string]func(*discoveryv1.EndpointSlice){
		"nonsense":   func(s *discoveryv1.EndpointSlice) { s.Annotations[AnnotationReadiness] = "no" },
		"serving":    func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Serving = &yes },
		"no longer":  func(s *discoveryv1.EndpointSlice) { delete(s.Annotations, AnnotationReadiness) },
		"of another": func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.2.0.9" },
	} {
		slice := Desired(src.notReady(func(string) bool { return true }), imp)
		edit(slice)
		if got, err := Restore(slice); err != nil || !equality.Semantic.DeepEqual(got.Native, slice.Endpoints) {
			t.Errorf("%s: %+v of %+v, %v", what, got.Native, slice.Endpoints, err)
		}
	}
	slice := Desired(src, imp)
	edited := slice.DeepCopy()
	edited.Annotations[AnnotationReadiness] = "{}"
	if c := Plan([]*discoveryv1.EndpointSlice{slice}, []*discoveryv1.EndpointSlice{edited}); len(c.Update) != 1 ||
		c.Update[0].Annotations[AnnotationReadiness] != "" {
		t.Errorf("an annotation that a user has put there stays: %+v", c.Update)
	}
}
