package kube

import (
	"maps"
	"math"
	"slices"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const subsystem = "multicluster"

var (
	// programmingDuration is the SLI of
	// https://github.com/kubernetes/community/blob/master/sig-scalability/slos/dns_programming_latency.md: it begins
	// with the annotation that the slice's controller wrote, on the clock of another machine.
	programmingDuration = promauto.NewHistogram(prometheus.HistogramOpts{
		Namespace: plugin.Namespace,
		Subsystem: subsystem,
		Name:      "dns_programming_duration_seconds",
		Help:      "Time from the change of an endpoint to the answer that shows it.",
		// 1 ms to 9 min, as the kubernetes plugin
		Buckets:                     prometheus.ExponentialBuckets(0.001, 2, 20),
		NativeHistogramBucketFactor: plugin.NativeHistogramBucketFactor,
	})
	skippedSlices = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: subsystem,
		Name:      "skipped_slices_total",
		Help:      "EndpointSlices that cannot be answered, each version once.",
	}, []string{"reason"})
)

// What the Watches hold is counted when it is asked for.
var (
	syncedDesc    = desc("synced", "1 once the first list of every stanza is complete.")
	servicesDesc  = desc("services", "Services that answer.", "type")
	endpointsDesc = desc("endpoints", "Ready endpoints of Headless Services by source cluster.", "source")
	upDesc        = desc("api_up", "0 while an API server cannot be reached or refuses a watch.")
	heardDesc     = desc(
		"last_event_timestamp_seconds",
		"When the API server was last heard, on the watch that was silent longest: the age of answers.",
	)
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, subsystem, name), help, labels, nil)
}

func init() {
	for r := range advice {
		skippedSlices.WithLabelValues(string(r))
	}
	prometheus.MustRegister(collector{})
}

// collector sums up the Watches of the process; of states it gives the worst.
type collector struct{}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{syncedDesc, servicesDesc, endpointsDesc, upDesc, heardDesc} {
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
	synced, up := 1.0, 1.0
	heard := int64(math.MaxInt64)
	kinds, endpoints := map[catalog.Type]int{}, map[string]int{}
	for _, w := range open {
		if !w.Synced() {
			synced = 0
		}
		if !w.health.up() {
			up = 0
		}
		heard = min(heard, w.Heard())
		w.store.count(kinds, endpoints)
	}
	gauge(syncedDesc, synced)
	gauge(upDesc, up)
	gauge(heardDesc, float64(heard)/1e9)
	for _, kind := range []catalog.Type{catalog.ClusterSetIP, catalog.Headless} {
		gauge(servicesDesc, float64(kinds[kind]), kind.String())
	}
	for cluster, n := range bounded(endpoints) {
		gauge(endpointsDesc, float64(n), cluster)
	}
}

// Clusters beyond maxClusters share a label value, which no cluster ID can have.
const (
	maxClusters   = 100
	otherClusters = "_other"
)

// bounded keeps the values of the first clusters by ID, and adds up those of the others.
func bounded(endpoints map[string]int) map[string]int {
	if len(endpoints) <= maxClusters {
		return endpoints
	}
	kept := make(map[string]int)
	for i, cluster := range slices.Sorted(maps.Keys(endpoints)) {
		if i >= maxClusters {
			kept[otherClusters] += endpoints[cluster]
		} else {
			kept[cluster] = endpoints[cluster]
		}
	}
	return kept
}

// maxWarnings bounds the lines about skipped slices.
const maxWarnings = 100

// skip counts a slice that cannot be answered and warns of it, once unless the reason changes (N17).
func (s *store) skip(o, old *sliceObject) {
	skippedSlices.WithLabelValues(string(o.content.skipped)).Inc()
	if old != nil && old.content.skipped == o.content.skipped || s.warnings > maxWarnings {
		return
	}
	if s.warnings++; s.warnings > maxWarnings {
		log.Warning("More EndpointSlices are skipped; from here on they are only counted in " +
			"coredns_multicluster_skipped_slices_total")
		return
	}
	name, namespace := splitKey(o.key)
	log.Warningf("EndpointSlice %s/%s is skipped: %s", namespace, name, advice[o.content.skipped])
}

var advice = map[reason]string{
	noSourceCluster:     "it has no label " + labelSourceCluster,
	impossibleClusterID: "its label " + labelSourceCluster + " is no cluster id: one DNS label, or two joined by a dot",
	wrongAddressType:    "its addressType is neither IPv4 nor IPv6",
}
