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

var (
	// programmingDuration is the SLI of
	// https://github.com/kubernetes/community/blob/master/sig-scalability/slos/dns_programming_latency.md: it begins
	// with the annotation that the slice's controller wrote, on the clock of another machine.
	programmingDuration = promauto.NewHistogram(prometheus.HistogramOpts{
		Namespace: plugin.Namespace,
		Subsystem: pluginName,
		Name:      "dns_programming_duration_seconds",
		Help:      "Time from the change of an endpoint to the answer that shows it.",
		// 1 ms to 9 min, as the kubernetes plugin
		Buckets:                     prometheus.ExponentialBuckets(0.001, 2, 20),
		NativeHistogramBucketFactor: plugin.NativeHistogramBucketFactor,
	})
	skippedSlices = promauto.NewCounterVec(prometheus.CounterOpts{
		Namespace: plugin.Namespace,
		Subsystem: pluginName,
		Name:      "skipped_slices_total",
		Help:      "EndpointSlices that cannot be answered, each version once.",
	}, []string{"reason"})
)

func init() {
	for r := range advice {
		skippedSlices.WithLabelValues(string(r))
	}
	prometheus.MustRegister(gauges)
}

// gauges sum up the Watches of the process. Of those that hold the same objects, the one with the most counts: another
// one may have no endpoints, or may not have listed yet.
var gauges = NewCollector(pluginName, watches.All, []Gauge{
	{"services", "Services that answer.", "type"},
	{"endpoints", "Addresses of ready endpoints of Headless Services by source cluster.", "source"},
}, func(open []*Watch, set func(name string, value float64, label string)) {
	kinds, endpoints := map[catalog.Type]int{}, map[string]int{}
	fullest := make(map[string]*Watch) // by selection
	for _, w := range open {
		if other := fullest[w.selection]; other == nil || w.size() > other.size() {
			fullest[w.selection] = w
		}
	}
	for _, w := range fullest {
		w.count(kinds, endpoints)
	}
	for _, kind := range []catalog.Type{catalog.ClusterSetIP, catalog.Headless} {
		set("services", float64(kinds[kind]), kind.String())
	}
	for cluster, n := range bounded(endpoints) {
		set("endpoints", float64(n), cluster)
	}
})

// Gauge is a metric of what a plugin's watches hold.
type Gauge struct{ Name, Help, Label string } // no Label: none

// Collector counts what the open watches of a plugin hold when it is asked. Of their states it gives the worst.
type Collector[W State] struct {
	descs map[string]*prometheus.Desc
	open  func() []W
	count func(open []W, set func(name string, value float64, label string))
}

// State is what every watch reports.
type State interface {
	Synced() bool // the first lists are complete
	Up() bool     // the API server answers
	Heard() int64 // when it was last heard, in Unix nanoseconds
}

// NewCollector returns a Collector of a plugin's states, and of gauges, which count sets.
func NewCollector[W State](
	name string, open func() []W, gauges []Gauge,
	count func(open []W, set func(name string, value float64, label string)),
) *Collector[W] {
	c := &Collector[W]{make(map[string]*prometheus.Desc), open, count}
	for _, g := range append([]Gauge{
		{"synced", "1 once the first list of every stanza is complete.", ""},
		{"api_up", "0 while an API server cannot be reached or refuses a watch.", ""},
		{"last_event_timestamp_seconds",
			"When the API server was last heard, on the watch that was silent longest: the age of answers.", ""},
	}, gauges...) {
		var labels []string
		if g.Label != "" {
			labels = []string{g.Label}
		}
		full := prometheus.BuildFQName(plugin.Namespace, name, g.Name)
		c.descs[g.Name] = prometheus.NewDesc(full, g.Help, labels, nil)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector[W]) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector[W]) Collect(ch chan<- prometheus.Metric) {
	open := c.open()
	if len(open) == 0 {
		return
	}
	set := func(name string, value float64, label string) {
		var labels []string
		if label != "" {
			labels = []string{label}
		}
		ch <- prometheus.MustNewConstMetric(c.descs[name], prometheus.GaugeValue, value, labels...)
	}
	synced, up, heard := 1.0, 1.0, int64(math.MaxInt64)
	for _, w := range open {
		if !w.Synced() {
			synced = 0
		}
		if !w.Up() {
			up = 0
		}
		heard = min(heard, w.Heard())
	}
	set("synced", synced, "")
	set("api_up", up, "")
	set("last_event_timestamp_seconds", float64(heard)/1e9, "")
	c.count(open, set)
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

// skip counts a slice that cannot be answered and warns of it, once unless the reason changes (N17).
func (s *store) skip(o, old *sliceObject) {
	skippedSlices.WithLabelValues(string(o.content.skipped)).Inc()
	if old != nil && old.content.skipped == o.content.skipped {
		return
	}
	name, namespace := splitKey(o.key)
	s.warnf("coredns_multicluster_skipped_slices_total", "EndpointSlice %s/%s is skipped: %s",
		namespace, name, advice[o.content.skipped])
}

var advice = map[reason]string{
	noSourceCluster:     "it has no label " + labelSourceCluster,
	impossibleClusterID: "its label " + labelSourceCluster + " is no cluster id: one DNS label, or two joined by a dot",
	wrongAddressType:    "its addressType is neither IPv4 nor IPv6",
}
