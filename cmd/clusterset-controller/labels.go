package main

import (
	"slices"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// labelMetrics gives every metric that this program shows the labels cluster and clusterset (ID6), also those of libraries. It must come
// before anything asks for metrics.Registry.
func labelMetrics(labels map[string]string) {
	metrics.Registry = labelled{metrics.Registry, labels}
}

type labelled struct {
	metrics.RegistererGatherer
	labels map[string]string
}

// Gather is prometheus.Gatherer's. A label that a metric has already stays.
func (l labelled) Gather() ([]*dto.MetricFamily, error) {
	families, err := l.RegistererGatherer.Gather()
	for _, f := range families {
		for _, m := range f.Metric {
			for name, value := range l.labels {
				if !slices.ContainsFunc(m.Label, func(p *dto.LabelPair) bool { return p.GetName() == name }) {
					m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &value})
				}
			}
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int {
				if a.GetName() < b.GetName() {
					return -1
				}
				return 1
			})
		}
	}
	return families, err
}
