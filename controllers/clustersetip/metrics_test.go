package clustersetip

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestV6ErrorsAndTimesAreARanges, in each family; what was refused without an address, a family's.
func TestV6ErrorsAndTimesAreARanges(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	invalid := func(text string) error {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), "web", field.ErrorList{field.InternalError(nil, errors.New(text))})
	}
	for _, c := range []struct {
		name     string
		families []corev1.IPFamily
		said     func(grant []netip.Addr) error
		want     string
	}{
		{"one family", []corev1.IPFamily{v6}, nil, "given fd00::/120, timed fd00::/120"},
		{"both", []corev1.IPFamily{v4, v6}, nil, "given 10.0.0.0/29, given fd00::/120, timed 10.0.0.0/29, timed fd00::/120"},
		{"one of them is refused", []corev1.IPFamily{v4, v6}, func(asked []netip.Addr) error {
			return invalid(fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", asked[1]))
		}, "allocated in fd00::/120"},
		{"the Service is refused", []corev1.IPFamily{v4, v6}, func([]netip.Addr) error {
			return apierrors.NewForbidden(corev1.Resource("services"), "web", errors.New("exceeded quota"))
		}, "other in 10.0.0.0/29, other in fd00::/120"},
	} {
		r := roomOn(t, exclusiveSet(), exclusiveRange("four", "10.0.0.0/29"), exclusiveRange("six", "fd00::/120"))
		r.view = nil
		q := kube.VIPRequest{Import: imported("web"), Service: types.NamespacedName{Namespace: "shop", Name: derived.Name("shop", "web")}, Families: c.families}
		if _, err := r.lay(t.Context()); err != nil {
			t.Fatal(err)
		}
		grant, err := r.Reserve(t.Context(), q)
		if err != nil || len(grant.Addresses) != len(c.families) {
			t.Fatalf("%s: %v, %v", c.name, grant.Addresses, err)
		}
		svc := &corev1.Service{}
		for _, a := range grant.Addresses {
			svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, a.String())
		}
		var said error
		if c.said != nil {
			said = c.said(grant.Addresses)
		}
		if err := r.Settle(t.Context(), q, grant, svc, said); (err == nil) != (said == nil) {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := counted(t, r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	r := roomOn(t, exclusiveSet())
	q := kube.VIPRequest{Import: imported("web"), Families: []corev1.IPFamily{v4, v6}}
	r.view = nil
	if _, err := r.lay(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reserve(t.Context(), q); err == nil {
		t.Fatal("there is no range")
	}
	if got, want := counted(t, r), "no_range in IPv4, no_range in IPv6"; got != want {
		t.Errorf("without ranges: %s, want %s", got, want)
	}
}

// counted is what a room's series of VIPs given, refused and timed show beside zeros.
func counted(t *testing.T, r *Room) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch f.GetName() {
			case "clusterset_agent_vip_allocations_total":
				out = append(out, "given "+labels["range"])
			case "clusterset_agent_vip_allocation_duration_seconds":
				out = append(out, "timed "+labels["range"])
			case "clusterset_agent_vip_errors_total":
				if m.GetCounter().GetValue() > 0 {
					out = append(out, labels["reason"]+" in "+labels["range"])
				}
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
