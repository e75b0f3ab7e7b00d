package main

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestID6EveryMetricSaysWhoseItIs: libraries' metrics, too; a label that a metric has already stays.
func TestID6EveryMetricSaysWhoseItIs(t *testing.T) {
	own := prometheus.NewGauge(prometheus.GaugeOpts{Name: "own", ConstLabels: prometheus.Labels{"cluster": "z"}})
	plain := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "plain"}, []string{"a", "x"})
	plain.WithLabelValues("1", "2").Inc()
	registry := prometheus.NewRegistry()
	registry.MustRegister(own, plain)
	all := labelled{registry, prometheus.Labels{"cluster": "east", "clusterset": "blue"}}
	for range 2 { // gathering twice changes nothing
		families, err := all.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range families {
			for _, p := range f.Metric[0].Label {
				got[f.GetName()] += p.GetName() + "=" + p.GetValue() + " "
			}
		}
		for name, want := range map[string]string{
			"own": "cluster=z clusterset=blue ", "plain": "a=1 cluster=east clusterset=blue x=2 ",
		} {
			if got[name] != want {
				t.Errorf("%s: %q, want %q", name, got[name], want)
			}
		}
	}
}
