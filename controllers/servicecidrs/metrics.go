package servicecidrs

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

var (
	allocated = prometheus.NewDesc("clusterset_agent_vip_range_allocated",
		"Addresses of a range for VIPs that are in use, by whomever.", []string{"range"}, nil)
	available = prometheus.NewDesc("clusterset_agent_vip_range_available",
		"Free addresses of a range for VIPs.", []string{"range"}, nil)
	supported = prometheus.NewDesc("clusterset_agent_vip_mode_supported",
		"1 if this cluster can do what the ClusterSet's VIP mode asks for, else 0.", []string{"mode"}, nil)
)

// collector counts what the caches show (SPEC V6).
type collector struct{ *reconciler }

func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{allocated, available, supported} {
		ch <- d
	}
}

// Collect is prometheus.Collector's. It shows nothing before the first pass: a replica that does not lead has not
// checked what this cluster serves.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	if !c.passed.Load() {
		return
	}
	// A cache that has not synced, or the API server, may keep it waiting.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s, err := c.gather(ctx)
	if err != nil {
		return
	}
	works := 1.0
	if s.Mode == ipam.ModePreferred && (c.missing() != nil || len(ipam.Plan(s.Standing).Create) > 0) {
		works = 0
	}
	ch <- prometheus.MustNewConstMetric(supported, prometheus.GaugeValue, works, string(s.Mode))
	var ranges []ipam.Range
	for _, r := range s.Ranges {
		if r.VIPs {
			ranges = append(ranges, r)
		}
	}
	names, used, free := []string{}, map[string]float64{}, map[string]float64{} // a /64 is more than an integer holds
	for i, u := range ipam.Usages(ranges, s.Taken) {
		name := ipam.RangeLabel(i, u.Range.Prefix)
		if _, there := used[name]; !there {
			names = append(names, name)
		} else if name != ipam.OtherRanges {
			continue // another ServiceCIDR of the same prefix
		}
		used[name], free[name] = used[name]+float64(u.Allocated), free[name]+float64(u.Available)
	}
	for _, name := range names {
		ch <- prometheus.MustNewConstMetric(allocated, prometheus.GaugeValue, used[name], name)
		ch <- prometheus.MustNewConstMetric(available, prometheus.GaugeValue, free[name], name)
	}
}
