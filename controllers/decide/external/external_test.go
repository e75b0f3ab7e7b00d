package external

import (
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

var web = &Import{Namespace: "shop", Name: "web", UID: "u", Manager: "us"}

func source(cluster string, ready bool) Source {
	return Source{cluster, &clusterset.External{ExternalAddresses: hubv1alpha1.ExternalAddresses{
		IPs: []string{"192.0.2.1"}, Weight: new(int32(100)),
	}}, ready, "2026-11-02T00:00:00Z"}
}

// says are the clusters that a member does not reach.
func says(clusters ...string) sets.Set[string] { return sets.New(clusters...) }

// TestF5WhichClustersAreUp by their endpoints and the votes of live members.
func TestF5WhichClustersAreUp(t *testing.T) {
	for _, c := range []struct {
		name        string
		ready       []string    // of a, b and c
		unreachable Unreachable // of live members
		want        []string
	}{
		{"all reach all", []string{"a", "b", "c"}, Unreachable{"a": nil, "b": nil, "c": nil}, []string{"a", "b", "c"}},
		{"no ready endpoint", []string{"a", "c"}, Unreachable{"a": nil, "b": nil, "c": nil}, []string{"a", "c"}},
		{"one of two others", []string{"a"}, Unreachable{"b": says("a"), "c": nil}, []string{"a"}},
		{"both others", []string{"a", "b"}, Unreachable{"b": says("a"), "c": says("a")}, []string{"b"}},
		{"two of three others", []string{"a"}, Unreachable{"b": says("a"), "c": says("a"), "d": nil}, nil},
		{"two of four others", []string{"a"}, Unreachable{"b": says("a"), "c": says("a"), "d": nil, "e": nil},
			[]string{"a"}},
		{"nobody votes about itself", []string{"a"}, Unreachable{"a": nil, "b": says("a")}, nil},
		{"nor for another's fault", []string{"a"}, Unreachable{"a": says("a"), "b": nil}, []string{"a"}},
		{"a blind voter speaks for it", []string{"a", "b"}, Unreachable{"b": says("a"), "c": nil, "d": says("a", "b")},
			[]string{"b"}},
		{"all are blind", []string{"a", "b", "c"}, Unreachable{"a": says(), "b": says(), "c": says()},
			[]string{"a", "b", "c"}},
		{"two members, the other one lost", []string{"a", "b"}, Unreachable{"a": says("b")}, []string{"a"}},
		{"nobody else is live", []string{"a", "b"}, Unreachable{}, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sources []Source
			for _, id := range []string{"a", "b", "c"} {
				sources = append(sources, source(id, slices.Contains(c.ready, id)))
			}
			var up []string
			for _, s := range Desired(web, sources, c.unreachable) {
				if *s.Endpoints[0].Conditions.Ready {
					up = append(up, s.Labels[mcsv1beta1.LabelSourceCluster])
				}
			}
			if !slices.Equal(up, c.want) {
				t.Errorf("up are %v, want %v", up, c.want)
			}
		})
	}
}

// TestF5ASlicePerAddressType with what CoreDNS reads, and without what gives endpoints to a Service.
func TestF5ASlicePerAddressType(t *testing.T) {
	s := source("b.c", true)
	s.IPs, s.Hostnames = []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"}, []string{"lb.example.com"}
	s.Weight, s.Region, s.Location = new(int32(0)), "eu", "50,8"
	got := Desired(web, []Source{s}, nil)
	want := map[string]discoveryv1.AddressType{
		"web.b.c.external-ipv4": discoveryv1.AddressTypeIPv4, "web.b.c.external-ipv6": discoveryv1.AddressTypeIPv6,
		"web.b.c.external-fqdn": discoveryv1.AddressTypeFQDN,
	}
	if len(got) != len(want) || len(got[0].Endpoints) != 2 {
		t.Fatalf("%+v", got)
	}
	for _, e := range got {
		owner := e.OwnerReferences[0]
		if want[e.Name] != e.AddressType || ServiceOf(e.Name) != "web" || e.Namespace != "shop" ||
			owner.Kind != "ServiceImport" || owner.Name != "web" || owner.UID != "u" || *owner.Controller {
			t.Errorf("%+v", e)
		}
		if !equality.Semantic.DeepEqual(e.Annotations, map[string]string{
			AnnotationWeight: "0", AnnotationRegion: "eu", AnnotationLocation: "50,8",
			clusterset.AnnotationCreated: "2026-11-02T00:00:00Z",
		}) || !equality.Semantic.DeepEqual(e.Labels, map[string]string{
			Label: "web", mcsv1beta1.LabelSourceCluster: "b.c", discoveryv1.LabelManagedBy: "us",
			"service.kubernetes.io/headless": "", "service.kubernetes.io/service-proxy-name": "none",
		}) {
			t.Errorf("%v %v", e.Annotations, e.Labels)
		}
	}
}

func TestServiceOfOtherNames(t *testing.T) {
	for name, want := range map[string]string{
		"web.external-ipv4":                                "",
		"web.a.external-ipv5":                              "",
		"web.a.b.c.external-ipv4":                          "",
		"derived-0123456789-abcdefghij0123456789":          "",
		SliceName("web", "c.external-ipv4", "IPv4"):        "web",
		SliceName("external-ipv4", "external-ipv4", "x"):   "",
		SliceName("external-ipv4", "external-1", "FQDN"):   "external-ipv4",
		SliceName("web", "a", discoveryv1.AddressTypeIPv6): "web",
	} {
		if got := ServiceOf(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestI9AnEditIsReverted except for what belongs to others, and existing slices are not changed.
func TestI9AnEditIsReverted(t *testing.T) {
	desired := Desired(web, []Source{source("a", true)}, nil)[0]
	edited := desired.DeepCopy()
	edited.ResourceVersion, edited.Labels["theirs"], edited.Annotations["theirs"] = "7", "x", "x"
	if u := Updated(edited, desired); !equality.Semantic.DeepEqual(u, edited) {
		t.Errorf("what others added is changed: %+v", u)
	}
	want := edited.DeepCopy()
	edited.Labels[discoveryv1.LabelServiceName], edited.Labels[mcsv1beta1.LabelServiceName] = "web", "web"
	edited.Labels[Label], edited.Annotations[AnnotationRegion] = "other", "eu"
	edited.Annotations["clusterset-dns.io/adopt"] = "true"
	edited.Endpoints, edited.OwnerReferences = nil, nil
	before := edited.DeepCopy()
	if u := Updated(edited, desired); !equality.Semantic.DeepEqual(u, want) {
		t.Errorf("%+v, want %+v", u, want)
	}
	if !equality.Semantic.DeepEqual(edited, before) {
		t.Error("the existing slice was changed")
	}
	if u := Updated(&discoveryv1.EndpointSlice{}, desired); u.Labels[Label] != "web" {
		t.Errorf("%+v", u)
	}
}
