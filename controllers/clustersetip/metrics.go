package clustersetip

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// shown is how many ranges have series of their own; the others are counted together.
const (
	shown    = 64
	others   = "others"
	ordinary = "ordinary" // the cluster's own ranges
	other    = "other"    // reasons
)

// counters are what happens; what there is, collect tells from the view (V6).
type counters struct {
	allocations *prometheus.CounterVec
	errors      *prometheus.CounterVec
	duration    *prometheus.HistogramVec
}

func newCounters() *counters {
	c := &counters{
		allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterset_agent_vip_allocations_total", Help: "VIPs that derived Services got, by the range that they are in; ordinary: none for VIPs."}, []string{"range"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterset_agent_vip_errors_total", Help: "Refusals of a VIP, by reason and the range that it was to be in; its family: no range of that."}, []string{"range", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "clusterset_agent_vip_allocation_duration_seconds", Help: "From the choice of an address to the API server's word, by the range that it is in.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}}, []string{"range"}),
	}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		for _, reason := range reasons {
			c.errors.WithLabelValues(string(family), reason.label)
		}
		c.errors.WithLabelValues(string(family), other)
	}
	return c
}

// reasons are the errors of an allocator, by what their text says: the API server's come as text.
var reasons = []struct {
	err   error
	label string
}{
	{ipam.ErrFull, "full"}, {ipam.ErrAllocated, "allocated"}, {ipam.ErrNotInRange, "not_in_range"},
	{ipam.ErrMismatchedNetwork, "no_range"}, {ipam.ErrNotReady, "not_ready"},
}

// failed counts that no VIP of these families was had. Those of the addresses that were refused are told by their range; a family of which
// none was chosen, or of which the API server chooses, has no room in any.
func (c *counters) failed(v *view, families []corev1.IPFamily, addresses []netip.Addr, err error) {
	why := other
	for _, reason := range reasons {
		if errors.Is(err, reason.err) || strings.Contains(err.Error(), strings.TrimPrefix(reason.err.Error(), "address is ")) {
			why = reason.label
			break
		}
	}
	for _, f := range families {
		where := string(f)
		if i := slices.IndexFunc(addresses, func(a netip.Addr) bool { return familyOf(a) == f }); i >= 0 {
			where = v.labelOf(addresses[i])
		}
		c.errors.WithLabelValues(where, why).Inc()
	}
}

// given counts the addresses of these families that a Service has, and how long they took.
func (c *counters) given(v *view, families []corev1.IPFamily, svc *corev1.Service, took time.Duration) {
	for _, text := range svc.Spec.ClusterIPs {
		a, err := netip.ParseAddr(text)
		if err == nil && slices.Contains(families, familyOf(a)) {
			c.allocations.WithLabelValues(v.labelOf(a)).Inc()
			c.duration.WithLabelValues(v.labelOf(a)).Observe(took.Seconds())
		}
	}
}

// forVIPs are the ranges for VIPs that have series of their own, and the rest of them.
func forVIPs(ranges []ipam.Range) (own, rest []ipam.Range) {
	known := map[netip.Prefix]bool{}
	for _, r := range ranges {
		if r.Use != ipam.Ordinary && !known[r.Prefix] {
			known[r.Prefix] = true
			own = append(own, r)
		}
	}
	if len(own) > shown {
		own, rest = own[:shown], own[shown:]
	}
	return own, rest
}

func (v *view) labelOf(a netip.Addr) string {
	for _, r := range v.own {
		if r.Prefix.Contains(a) {
			return r.Prefix.String()
		}
	}
	if slices.ContainsFunc(v.rest, func(r ipam.Range) bool { return r.Prefix.Contains(a) }) {
		return others
	}
	return ordinary
}

var (
	allocated = prometheus.NewDesc("clusterset_agent_vip_range_allocated", "Addresses of a range for VIPs that are in use, whosever they are, or kept for who had them.", []string{"range"}, nil)
	available = prometheus.NewDesc("clusterset_agent_vip_range_available", "Addresses of a range for VIPs that are free.", []string{"range"}, nil)
	supported = prometheus.NewDesc("clusterset_agent_vip_mode_supported", "1 where this cluster can do what the ClusterSet's mode of VIPs asks for, else 0.", []string{"mode"}, nil)
)

func (r *Room) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.count.allocations, r.count.errors, r.count.duration, room{r}}
}

// room shows how much of it there is.
type room struct{ *Room }

// Describe is prometheus.Collector's.
func (room) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{allocated, available, supported} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (r room) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view == nil {
		return
	}
	fits := 0.0
	if r.view.mode == ipam.ModeShared || r.view.unsupported == nil && len(r.refused) == 0 {
		fits = 1
	}
	ch <- prometheus.MustNewConstMetric(supported, prometheus.GaugeValue, fits, string(r.view.mode))
	var taken []netip.Addr
	for _, h := range r.standing(r.view.mode, nil).Held { // what rests is not free either
		taken = append(taken, h.Address)
	}
	for _, u := range ipam.Usages(r.view.own, taken) {
		usage(ch, u.Range.Prefix.String(), float64(u.Allocated), float64(u.Available))
	}
	if len(r.view.rest) > 0 {
		var used, free float64 // a /64 of IPv6 and another range are more than an integer holds
		for _, u := range ipam.Usages(r.view.rest, taken) {
			used, free = used+float64(u.Allocated), free+float64(u.Available)
		}
		usage(ch, others, used, free)
	}
}

func usage(ch chan<- prometheus.Metric, of string, used, free float64) {
	ch <- prometheus.MustNewConstMetric(allocated, prometheus.GaugeValue, used, of)
	ch <- prometheus.MustNewConstMetric(available, prometheus.GaugeValue, free, of)
}
