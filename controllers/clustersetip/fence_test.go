package clustersetip

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestI6ABrokenFenceMovesNobody: a reservation is missing, and those who had an address of the range come back to it; others wait.
func TestI6ABrokenFenceMovesNobody(t *testing.T) {
	r := roomOn(t, exclusiveSet(), exclusiveRange("vips", "10.0.0.0/29"), imported("web", "10.0.0.1"), reservation("10.0.0.1", "vips"), reservation("10.0.0.2", "vips"))
	r.view = nil
	if got := reserved(t, r, "other"); got != "" {
		t.Errorf("another import gets %q of a range whose fence has a hole", got)
	}
	if got := reserved(t, r, "web", "10.0.0.1"); got != "10.0.0.1" {
		t.Errorf("its own import gets %q", got)
	}
	again, err := r.lay(t.Context())
	if err != nil || again.RequeueAfter == settle {
		t.Errorf("%v, again after %s", err, again.RequeueAfter)
	}
	if got := reserved(t, r, "other"); got == "" {
		t.Error("another import gets nothing once the fence is whole")
	}
	// A reservation is lost while the ranges are judged, and is there again before anybody looks.
	r.note(netip.MustParseAddr("10.0.0.6"), entry{})
	r.fit(ipam.ModeExclusive, rangesOf([]*networkingv1.ServiceCIDR{exclusiveRange("vips", "10.0.0.0/29")}))
	r.note(netip.MustParseAddr("10.0.0.6"), entry{fence: true, uid: "again"})
	if !r.pending(ipam.Standing{}, ipam.Layout{}) {
		t.Error("it is not judged again")
	}
}

// TestV4AFencedAddressRestsThroughARestart: its Service went without a quarantine, and answers with it may still live in caches.
func TestV4AFencedAddressRestsThroughARestart(t *testing.T) {
	a, owner := netip.MustParseAddr("10.0.0.1"), ipam.Owner{Namespace: "shop", Name: derived.Name("shop", "web")}
	r := roomOn(t, exclusiveSet(), exclusiveRange("vips", "10.0.0.0/30"), reservation("10.0.0.2", "vips"))
	r.fit(ipam.ModeExclusive, nil)
	r.note(a, entry{held: ipam.Held{Owner: owner, Address: a}, uid: "of-the-service"})
	r.note(a, entry{})
	if err := r.reserve(t.Context(), a, "vips"); err != nil {
		t.Fatal(err)
	}
	restart := func() {
		r.view = nil
		clear(r.gifts)
		clear(r.rests)
	}
	for i, want := range []string{"10.0.0.2", ""} {
		restart()
		if got := reserved(t, r, fmt.Sprint("other", i)); got != want {
			t.Errorf("another import gets %q, want %q", got, want)
		}
		if i == 0 { // whoever got it has it
			if err := r.Local.Create(t.Context(), ipam.Reference(netip.MustParseAddr("10.0.0.2"), ipam.Owner{Namespace: "shop", Name: derived.Name("shop", "other0")})); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := reserved(t, r, "web"); got != "10.0.0.1" {
		t.Errorf("its own import gets %q", got)
	}
	if err := r.reserve(t.Context(), a, "vips"); err != nil {
		t.Fatal(err)
	}
	restart()
	r.Now = func() time.Time { return time.Now().Add(derived.Quarantine) }
	if got := reserved(t, r, "other"); got != "10.0.0.1" {
		t.Errorf("once it has rested another import gets %q", got)
	}
}

// TestI6AnAddressRestsOnce: that of a Service which goes since its quarantine is over is another's at once; that of one which goes otherwise,
// or was wanted again, is not.
func TestI6AnAddressRestsOnce(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.1")
	service := derivedService(a.String())
	service.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	owner := client.ObjectKeyFromObject(service)
	for _, c := range []struct {
		name string
		then func(r *Room)
		want bool // that it rests
	}{
		{"given up", func(*Room) {}, false},
		{"and its Service is still to be seen", func(r *Room) {
			if err := r.Local.Create(t.Context(), service.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"not deleted then", func(r *Room) { r.over[owner] = r.Now().Add(-abandoned) }, true},
		{"wanted again", func(r *Room) { _, _ = r.Reserve(t.Context(), kube.VIPRequest{Import: imported("web"), Service: owner}) }, true},
		{"deleted by somebody", func(r *Room) { delete(r.over, owner) }, true},
	} {
		for _, after := range []entry{{}, {fence: true, uid: "a-fence"}} { // the watch may show only what came of it
			r := roomOn(t)
			r.note(a, entry{held: ipam.Held{Owner: owner, Address: a}, uid: "of-the-service"})
			r.GiveUp(owner)
			c.then(r)
			r.note(a, after)
			all, err := r.claimants(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			r.keep(all)
			if _, rests := r.rests[a]; rests != c.want {
				t.Errorf("%s, fenced since %v: it rests: %v", c.name, after.fence, rests)
			}
		}
	}
}

// TestV2WhatIsKnownOfAFenceIsWhatStands: else it counts as broken, and is looked at five times a second for ever.
func TestV2WhatIsKnownOfAFenceIsWhatStands(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.1")
	t.Run("a reservation that was made anew while the former was deleted", func(t *testing.T) {
		r := roomOn(t)
		r.fit(ipam.ModeExclusive, nil)
		r.note(a, entry{fence: true, uid: "former"})
		r.Local = interceptor.NewClient(r.Local.(client.WithWatch), interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			r.note(a, entry{fence: true, uid: "latter"}) // the watch
			return apierrors.NewConflict(networkingv1.Resource("ipaddresses"), a.String(), nil)
		}})
		if err := r.lift(t.Context(), fences{}); err != nil || r.view.addresses[a].uid != "latter" {
			t.Errorf("%v, %+v", err, r.view.addresses[a])
		}
	})
	t.Run("an IPAddress that is there already", func(t *testing.T) {
		r := roomOn(t, ipam.Reference(a, ipam.Owner{Namespace: "shop", Name: "db"}))
		r.fit(ipam.ModeExclusive, nil)
		there, want := &networkingv1.IPAddress{}, "uid-of-db"
		if err := r.Local.Get(t.Context(), client.ObjectKey{Name: a.String()}, there); err != nil {
			t.Fatal(err)
		}
		there.SetUID("uid-of-db")
		if err := r.Local.Update(t.Context(), there); err != nil {
			t.Fatal(err)
		}
		if err := r.reserve(t.Context(), a, "vips"); err != nil || string(r.view.addresses[a].uid) != want || r.view.addresses[a].fence {
			t.Errorf("%v, %+v", err, r.view.addresses[a])
		}
	})
}

// TestV2OfAFenceOnlyOrdinaryServicesAreLosses, also those whose names are like derived ones': they are counted and no VIPs, whichever is
// seen first, the Service or its IPAddress. Another controller's IPAddress is told, and is no Service's.
func TestV2OfAFenceOnlyOrdinaryServicesAreLosses(t *testing.T) {
	const looksDerived = "derived-collection"
	ordinary := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.0.0.1"}}}
	}
	ours := ordinary(derived.Name("shop", "web"))
	ours.Labels = map[string]string{derived.LabelManagedBy: kube.Manager}
	gateway := &networkingv1.ParentReference{Group: "gateway.networking.k8s.io", Resource: "gateways", Namespace: "infra", Name: "edge"}
	for _, c := range []struct {
		name    string
		service *corev1.Service
		parent  *networkingv1.ParentReference // where it is no Service
		losses  float64
		event   string
		vips    int
	}{
		{"an ordinary one", ordinary("db"), nil, 1, "make that Service anew", 0},
		{"one like a derived one", ordinary(looksDerived), nil, 1, "shop/" + looksDerived + " has 10.0.0.1", 0},
		{"a VIP", ours, nil, 0, "", 1},
		{"another controller's", nil, gateway, 0, "gateway.networking.k8s.io/gateways infra/edge", 0},
	} {
		for _, late := range []bool{false, true} { // the Service is seen after its IPAddress
			r, events := roomOn(t, exclusiveSet(), exclusiveRange("vips", "10.0.0.0/30"), reservation("10.0.0.2", "vips")), told{}
			r.view, r.Events = nil, &events
			if _, err := r.lay(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := netip.MustParseAddr("10.0.0.1")
			if err := r.Local.Delete(t.Context(), reservation("10.0.0.1", "vips")); err != nil {
				t.Fatal(err)
			}
			ip, objects := ipam.Reference(a, ipam.Owner{}), []client.Object{}
			if ip.Spec.ParentRef = c.parent; c.service != nil {
				ip = ipam.Reference(a, client.ObjectKeyFromObject(c.service))
				objects = append(objects, c.service.DeepCopy())
			}
			seen := func() {
				if _, err := r.address(t.Context(), a.String()); err != nil {
					t.Fatal(err)
				}
			}
			if objects = append(objects, ip); late {
				slices.Reverse(objects)
			}
			for _, o := range objects {
				if err := r.Local.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				if o == client.Object(ip) {
					seen()
				}
			}
			for range 2 {
				if _, err := r.lay(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			said := strings.Join(events, "\n")
			var lost dto.Metric
			if err := r.count.lost.Write(&lost); err != nil {
				t.Fatal(err)
			}
			if got := lost.GetCounter().GetValue(); got != c.losses || strings.Count(said, "VIPSwapLost") != min(1, len(c.event)) || !strings.Contains(said, c.event) {
				t.Errorf("%s, late %v: %v losses, Events %q", c.name, late, got, said)
			}
			if s, _, _, err := r.gather(t.Context()); err != nil || len(ipam.Holding(s.Ranges[0], s.Ranges, vipsOf(s.Held))) != c.vips {
				t.Errorf("%s, late %v: %v, VIPs %+v", c.name, late, err, s.Held)
			}
			if err := r.Local.Delete(t.Context(), ip); err != nil {
				t.Fatal(err)
			}
			if c.service != nil {
				if err := r.Local.Delete(t.Context(), c.service.DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
			seen()
			if _, rests := r.rests[a]; rests != (c.vips > 0) {
				t.Errorf("%s, late %v: it rests: %v", c.name, late, rests)
			}
		}
	}
}

func vipsOf(held []ipam.Held) []ipam.Held {
	return slices.DeleteFunc(slices.Clone(held), func(h ipam.Held) bool { return h.Foreign })
}

// TestV4WhatWentUnseenIsFree: addresses were freed before there was a watch of them. What only a cache that lags does not show stays.
func TestV4WhatWentUnseenIsFree(t *testing.T) {
	for _, lags := range []bool{false, true} {
		objects := []client.Object{exclusiveSet(), exclusiveRange("vips", "10.0.0.0/30"), reservation("10.0.0.2", "vips"),
			ipam.Reference(netip.MustParseAddr("10.0.0.1"), ipam.Owner{Namespace: "shop", Name: "plain"})}
		objects[3].SetUID("uid-of-plain")
		r := roomOn(t, objects...)
		r.view = nil
		if lags {
			r.LocalNow = roomOn(t, objects...).LocalNow
		}
		if err := r.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, o := range objects[2:] {
			if err := r.Local.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.lay(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, a := range []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")} {
			ip, err := kube.Get[*networkingv1.IPAddress](t.Context(), r.Local, types.NamespacedName{Name: a.String()})
			if err != nil || (ip == nil) != lags || !lags && r.view.addresses[a].uid != ip.UID {
				t.Errorf("lags %v: %v, %s is known as %+v, and there is %v", lags, err, a, r.view.addresses[a], ip)
			}
		}
	}
}

// TestV6WhatRestsIsNotFree: nobody else gets it.
func TestV6WhatRestsIsNotFree(t *testing.T) {
	a, owner := netip.MustParseAddr("10.0.0.1"), ipam.Owner{Namespace: "shop", Name: derived.Name("shop", "web")}
	r := roomOn(t, exclusiveSet(), exclusiveRange("vips", "10.0.0.0/29"), reservation("10.0.0.2", "vips"))
	r.view = nil
	if err := r.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.note(a, entry{held: ipam.Held{Owner: owner, Address: a}, uid: "of-the-service"})
	r.note(a, entry{})
	r.note(a, entry{fence: true, uid: "fenced-again"})
	all, values := make(chan prometheus.Metric, 10), map[string]float64{}
	room{r}.Collect(all)
	close(all)
	for m := range all {
		var one dto.Metric
		if err := m.Write(&one); err != nil {
			t.Fatal(err)
		}
		for _, d := range []*prometheus.Desc{allocated, available} {
			if m.Desc() == d {
				values[d.String()] = one.GetGauge().GetValue()
			}
		}
	}
	if values[allocated.String()] != 1 || values[available.String()] != 5 {
		t.Errorf("%v", values)
	}
}
