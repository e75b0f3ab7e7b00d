package external

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	"github.com/prometheus/client_golang/prometheus"
)

func init() { prometheus.MustRegister(gauges) }

// gauges sum up the watches of the process.
var gauges = kube.NewCollector(pluginName, watches.All, []kube.Gauge{
	{Name: "names", Help: "Services that answer."},
	{Name: "clusters", Help: "Clusters of the Services that answer, by state.", Label: "state"},
	{Name: "left_out", Help: "Parts of EndpointSlices that are left out now, by reason.", Label: "reason"},
}, func(open []*watch, set func(name string, value float64, label string)) {
	services, clusters := 0, map[bool]int{} // by whether they are up
	var out endpointslice.LeftOut
	for _, w := range open {
		for r, n := range w.leftOut() {
			out[r] += n
		}
		_, all := w.Index().Snapshot()
		services += len(all)
		for _, s := range all {
			for i := range s.Clusters() {
				clusters[s.Clusters()[i].Up]++
			}
		}
	}
	set("names", float64(services), "")
	set("clusters", float64(clusters[true]), "up")
	set("clusters", float64(clusters[false]), "down")
	for r, n := range out {
		set("left_out", float64(n), endpointslice.Reason(r).String())
	}
})
