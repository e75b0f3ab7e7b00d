package external

import (
	"math"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	syncedDesc   = desc("synced", "1 once the first list of every stanza is complete.")
	namesDesc    = desc("names", "Services that answer.")
	clustersDesc = desc("clusters", "Clusters of the Services that answer, by state.", "state")
	leftOutDesc  = desc("left_out", "Parts of EndpointSlices that are left out now, by reason.", "reason")
	upDesc       = desc("api_up", "0 while an API server cannot be reached or refuses the watch.")
	heardDesc    = desc(
		"last_event_timestamp_seconds",
		"When the API server was last heard, on the watch that was silent longest: answers are as of then.",
	)
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, pluginName, name), help, labels, nil)
}

func init() { prometheus.MustRegister(collector{}) }

// collector sums up the watches of the process when it is asked; of states it gives the worst.
type collector struct{}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{syncedDesc, namesDesc, clustersDesc, leftOutDesc, upDesc, heardDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	open := watches.All()
	if len(open) == 0 {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	synced, up, services := 1.0, 1.0, 0
	heard := int64(math.MaxInt64)
	var out endpointslice.LeftOut
	clusters := map[bool]int{}
	for _, w := range open {
		if !w.Synced() {
			synced = 0
		}
		if !w.Up() {
			up = 0
		}
		heard = min(heard, w.Heard())
		for r, n := range w.leftOut() {
			out[r] += n
		}
		all := w.table().services
		services += len(all)
		for _, s := range all {
			for i := range s.Clusters() {
				clusters[s.Clusters()[i].Up]++
			}
		}
	}
	gauge(syncedDesc, synced)
	gauge(upDesc, up)
	gauge(heardDesc, float64(heard)/1e9)
	gauge(namesDesc, float64(services))
	gauge(clustersDesc, float64(clusters[true]), "up")
	gauge(clustersDesc, float64(clusters[false]), "down")
	for r, n := range out {
		gauge(leftOutDesc, float64(n), endpointslice.Reason(r).String())
	}
}
