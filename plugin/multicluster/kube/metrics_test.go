package kube

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

func samples(t *testing.T, h prometheus.Histogram) uint64 {
	t.Helper()
	var m dto.Metric
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleCount()
}

// hide takes Services out of an index. built returns how many of them were built again since.
func hide(x *catalog.Table[*catalog.Service], keys ...string) (built func() int) {
	none := make(map[string]*catalog.Service)
	for _, key := range keys {
		none[key] = nil
	}
	x.SetAll(none, 0)
	return func() (n int) {
		for _, key := range keys {
			if x.Service(key) != nil {
				n++
			}
		}
		return n
	}
}

// counted is how many slices were skipped for a reason so far.
func counted(t *testing.T, r reason) float64 {
	t.Helper()
	var m dto.Metric
	if err := skippedSlices.WithLabelValues(string(r)).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func gather(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(gauges, programmingDuration, skippedSlices)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// gaugesOf are the values of all gauges, by name and label.
func gaugesOf(t *testing.T) map[string]float64 {
	all := make(map[string]float64)
	for _, f := range gather(t) {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "coredns_multicluster_")
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			if m.GetGauge() != nil {
				all[name] = m.GetGauge().GetValue()
			}
		}
	}
	return all
}

func TestO3Metrics(t *testing.T) {
	a := startAPI(t)
	a.put(
		clusterSetIP("web", "10.42.0.1"),
		headless("db"),
		slice("s", "db", "eu", "10.1.0.1"),
		slice("t", "db", "us", "10.2.0.1", "10.2.0.2"),
	)
	before := float64(time.Now().Unix())
	w := synced(t, open(t, a.config()))
	eventually(t, "api_up", w.health.up)
	families := gather(t)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 || len(families) != 7 {
		t.Errorf("promlint of %d metrics: %v %v", len(families), problems, err)
	}
	got := gaugesOf(t)
	if at := got["last_event_timestamp_seconds"]; at < before || at > float64(time.Now().Unix()+1) {
		t.Errorf("last event at %v", at)
	}
	delete(got, "last_event_timestamp_seconds")
	want := map[string]float64{
		"api_up":                1,
		"synced":                1,
		"services/ClusterSetIP": 1,
		"services/Headless":     1,
		"endpoints/eu":          1,
		"endpoints/us":          2,
	}
	if !maps.Equal(got, want) {
		t.Errorf("gauges %v, want %v", got, want)
	}
	a.delete(slice("t", "db", "us"))
	answers(t, w, "db.test", "10.1.0.1")
	if _, there := gaugesOf(t)["endpoints/us"]; there {
		t.Error("a cluster that is gone has a series")
	}
	a.down()
	eventually(t, "api_up is 0 while the API server is down", func() bool { return gaugesOf(t)["api_up"] == 0 })
	if gaugesOf(t)["synced"] != 1 {
		t.Error("synced went back")
	}
}

// TestO3StanzasOfOneSelectionCountOnce: stanzas that differ in what they make of it have watches of their own.
func TestO3StanzasOfOneSelectionCountOnce(t *testing.T) {
	a := startAPI(t)
	a.put(clusterSetIP("web", "10.42.0.1"), headless("db"), slice("s", "db", "eu", "10.1.0.1"))
	prefer, podNames, noEndpoints, labels := a.config(), a.config(), a.config(), a.config()
	prefer.Topology.Cluster = "eu"
	podNames.EndpointPodNames = true
	noEndpoints.NoEndpoints = true
	for _, c := range []Config{noEndpoints, a.config(), prefer, podNames} {
		synced(t, open(t, c))
	}
	want := func(clusterSetIPs float64) {
		t.Helper()
		got := gaugesOf(t)
		if got["services/ClusterSetIP"] != clusterSetIPs || got["services/Headless"] != 1 || got["endpoints/eu"] != 1 {
			t.Errorf("gauges %v, want %v Services with an IP, one without and its endpoint", got, clusterSetIPs)
		}
	}
	want(1)
	labels.Labels = "!none"
	labels.NoEndpoints = true
	synced(t, open(t, labels)) // another selection
	want(2)
}

func TestProgrammingDurationFollowsTheTrigger(t *testing.T) {
	b := listed(t)
	b.put(headless("db"))
	before := samples(t, programmingDuration)
	s := slice("s", "db", "eu", "10.1.0.1")
	b.put(s)
	s = slice("s", "db", "eu", "10.1.0.2")
	s.Annotations = map[string]string{
		"endpoints.kubernetes.io/last-change-trigger-time": time.Now().Add(-time.Second).Format(time.RFC3339Nano),
	}
	b.put(s)
	b.put(s) // alters no answer
	if n := samples(t, programmingDuration) - before; n != 1 {
		t.Errorf("%d samples, want 1: of the change that had a trigger and altered an answer", n)
	}
}

// TestO3TheLabelOfASourceIsBounded: a hub with many members makes no more series than that.
func TestO3TheLabelOfASourceIsBounded(t *testing.T) {
	all, sum := map[string]int{}, 0
	for i := range 250 {
		all[fmt.Sprintf("c%03d", i)] = i
	}
	kept := bounded(all)
	for _, n := range kept {
		sum += n
	}
	if len(kept) != maxClusters+1 || kept["c099"] != 99 || kept[otherClusters] == 0 || sum != 250*249/2 {
		t.Errorf("%d labels with %d endpoints: %v", len(kept), sum, kept)
	}
	delete(all, "c000")
	for i := 100; i < 250; i++ {
		delete(all, fmt.Sprintf("c%03d", i))
	}
	if got := bounded(all); len(got) != 99 {
		t.Errorf("of 99 clusters %d have a label", len(got))
	}
}
