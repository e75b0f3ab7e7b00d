package main

import (
	"cmp"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// labelled adds labels to every metric, also those of libraries. If a metric has a label of that name, it keeps it.
type labelled struct {
	prometheus.Gatherer
	labels prometheus.Labels
}

func (l labelled) Gather() ([]*dto.MetricFamily, error) {
	families, err := l.Gatherer.Gather()
	for _, f := range families {
		for _, m := range f.Metric {
			for name, value := range l.labels {
				if !slices.ContainsFunc(m.Label, func(p *dto.LabelPair) bool { return p.GetName() == name }) {
					m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &value})
				}
			}
			// Labels of a Gatherer are sorted; those of a map come in any order.
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
		}
	}
	return families, err
}
