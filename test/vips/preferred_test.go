package vips

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// TestV2PreferredComesFromTheBlock: in every family, and where the block is full from the cluster's own ranges; the
// hub is asked for
// another block before that.
func TestV2PreferredComesFromTheBlock(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	e.mode(t, ipam.ModeShared)
	e.export(t, ns, "before", both)
	was := e.wantVIPs(t, ns, "before", both)
	wantIn(t, was, "10.96.0.0/16", "fd00:96::/112")

	// The exported Services come first: ordinary ones may draw from the block, too.
	first := map[string][]corev1.IPFamily{"four": v4, "six": v6, "both": both}
	later := map[string][]corev1.IPFamily{
		"more-0": v4,
		"more-1": v4,
		"more-2": v4,
		"more-3": v4,
		"over":   both,
		"again":  v4,
	}
	for _, services := range []map[string][]corev1.IPFamily{first, later} {
		for name, families := range services {
			e.create(t, service(ns, name, families))
		}
	}
	export := func(name string) { e.exportMade(t, ns, name) }
	e.mode(t, ipam.ModePreferred, "10.210.0.0/29", "fd00:210::/120")
	for name, families := range first {
		export(name)
		wantIn(t, e.wantVIPs(t, ns, name, families), "10.210.0.0/29", "fd00:210::/120")
	}
	for _, p := range []string{"10.210.0.0/29", "fd00:210::/120"} { // V6
		for _, name := range []string{"range_allocated", "allocation_duration_seconds_count"} {
			e.wantMetric(t, e.series(name, "range", p), is("2"))
		}
	}
	if now := e.wantVIPs(t, ns, "before", both); now[0] != was[0] || now[1] != was[1] {
		t.Errorf("another mode moved %v to %v", was, now)
	}

	e.wantProperty(t, clusterset.PropertyBlocks, "ipv4=1 ipv6=1")
	for i := range 4 { // of six addresses, two are in use
		export(fmt.Sprint("more-", i))
		wantIn(t, e.wantVIPs(t, ns, fmt.Sprint("more-", i), v4), "10.210.0.0/29")
	}
	e.wantProperty(t, clusterset.PropertyBlocks, "ipv4=2 ipv6=1")
	export("over")
	wantIn(t, e.wantVIPs(t, ns, "over", both), "10.96.0.0/16", "fd00:210::/120")

	e.mode(t, ipam.ModePreferred, "10.210.0.0/29", "fd00:210::/120", "10.210.0.8/29")
	e.wantRange(t, "10.210.0.8/29")
	export("again")
	wantIn(t, e.wantVIPs(t, ns, "again", v4), "10.210.0.8/29")
	e.wantProperty(
		t,
		clusterset.PropertyServiceRanges,
		"10.96.0.0/16 10.210.0.0/29 10.210.0.8/29 fd00:96::/112 fd00:210::/120",
	)
}

// wantProperty waits until this cluster says this of itself.
func (e *env) wantProperty(t *testing.T, name, value string) {
	t.Helper()
	p := &aboutv1beta1.ClusterProperty{}
	eventually(t, "ClusterProperty "+name, func() error {
		if err := e.Get(t.Context(), client.ObjectKey{Name: name}, p); err != nil {
			return err
		}
		if p.Spec.Value != value {
			return fmt.Errorf("%q, want %q", p.Spec.Value, value)
		}
		return nil
	})
}

// wantRange waits until the agent has made this range, and the API server gives out its addresses.
func (e *env) wantRange(t *testing.T, prefix string) {
	t.Helper()
	eventually(t, "ServiceCIDR of "+prefix, func() error {
		c := e.ours(t)[prefix]
		if c == nil {
			return errors.New("there is none")
		}
		ranges, errs := ipam.Ranges(c)
		if len(errs) > 0 || len(ranges) != 1 || ranges[0].State != ipam.Ready {
			return fmt.Errorf("%+v %v", ranges, errs)
		}
		return nil
	})
}
