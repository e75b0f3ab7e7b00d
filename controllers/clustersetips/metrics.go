package clustersetips

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// ordinary is the label of the cluster's own ranges.
const ordinary = "ordinary"

// counters count what happens; servicecidrs shows what there is (SPEC V6).
type counters struct {
	errors   *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newCounters() *counters {
	c := &counters{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "clusterset_agent_vip_errors_total",
			Help: "Refusals of a VIP by the API server, by family and reason.",
		}, []string{"family", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "clusterset_agent_vip_allocation_duration_seconds",
			Help:    "Time from the choice of a VIP to the API server's answer, by its range, or ordinary.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"range"}),
	}
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		for _, reason := range []string{"allocated", "full", "other"} {
			c.errors.WithLabelValues(string(f), reason)
		}
	}
	return c
}

func (c *counters) failed(reason string, families ...corev1.IPFamily) {
	for _, f := range families {
		c.errors.WithLabelValues(string(f), reason).Inc()
	}
}

func (c *counters) allocated(label string, took time.Duration) {
	c.duration.WithLabelValues(label).Observe(took.Seconds())
}

// label is the range for VIPs that an address is in.
func (v *view) label(a netip.Addr) string {
	for i, p := range prefixes(v.ranges, forVIPs) {
		if p.Contains(a) {
			return ipam.RangeLabel(i, p)
		}
	}
	return ordinary
}
