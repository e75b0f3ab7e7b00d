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

// TestT1WhatAnOwnerSaysIsRemembered though it is not what is written: after a restart of the agent that sees no hub, a
// member that is live again is as its owner says. Nothing is written twice.
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
		{Address: "10.2.0.5", Ready: &no},
		// Pods in the network of their host share its address.
		{Address: "10.2.0.9", Ready: &no, Serving: &no},
		{Address: "10.2.0.9", Ready: &yes, Serving: &yes},
		{Address: "10.2.0.9", Ready: &no, Serving: &yes},
	}
	names := keyed(map[string]string{"http": "http"})
	m := &conflict.Merged{Names: map[string]map[clusterset.PortKey]string{"a": names, "b": names}}
	imp := &Import{Namespace: "shop", Name: "web", UID: "i", Derived: "derived-x", Manager: "us", Merged: m}
	expire := func(s *Source) *discoveryv1.EndpointSlice {
		states := map[string]liveness.State{"b": {Expired: true, OnExpiry: hubv1alpha1.ExpiryNotReady}}
		return Desired(Expire([]*Source{s}, states)[0], imp)
	}
	src := serving("b", discoveryv1.AddressTypeIPv4, true, "http")
	src.Name, src.Created, src.Revision, src.Endpoints = "0.b", 100, 7, said
	asItIs, written := Desired(src, imp), expire(src)
	for _, e := range written.Endpoints {
		if *e.Conditions.Ready || *e.Conditions.Serving {
			t.Fatalf("%+v is ready", e)
		}
	}
	seen := written.DeepCopy()
	remembered, err := Restore(seen)
	if err != nil {
		t.Fatal(err)
	}
	plan := func(desired *discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
		return Plan([]*discoveryv1.EndpointSlice{desired}, []*discoveryv1.EndpointSlice{seen}).Update
	}
	if again := plan(expire(&remembered)); len(again) > 0 {
		t.Errorf("a settled slice is written again: %+v", again[0])
	}
	if live := plan(Desired(&remembered, imp)); len(live) != 1 ||
		!equality.Semantic.DeepEqual(live[0].Endpoints, asItIs.Endpoints) ||
		!equality.Semantic.DeepEqual(live[0].Annotations, asItIs.Annotations) {
		t.Errorf("a member that is live again is not as its owner says: %+v", live)
	}
	if !equality.Semantic.DeepEqual(seen, written) {
		t.Error("a cached slice was changed")
	}
}

// TestI9WhatAUserWroteOverCounts until the owner is heard again: readiness is remembered of endpoints only that are
// written as not ready.
func TestI9WhatAUserWroteOverCounts(t *testing.T) {
	src := serving("b", discoveryv1.AddressTypeIPv4, true, "http")
	src.Name, src.Endpoints = "0.b", []hubv1alpha1.Endpoint{{Address: "10.2.0.1"}}
	imp := &Import{Derived: "derived-x", Merged: &conflict.Merged{}}
	yes := true
	for what, edit := range map[string]func(*discoveryv1.EndpointSlice){
		"nonsense":   func(s *discoveryv1.EndpointSlice) { s.Annotations[AnnotationReadiness] = "no" },
		"serving":    func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Serving = &yes },
		"no longer":  func(s *discoveryv1.EndpointSlice) { delete(s.Annotations, AnnotationReadiness) },
		"of another": func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.2.0.9" },
	} {
		slice := Desired(src.notReady(), imp)
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
