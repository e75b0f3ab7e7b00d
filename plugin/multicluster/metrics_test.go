package multicluster

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTheVersionIsThatOfTheProgram(t *testing.T) {
	t.Cleanup(func() { Version = "" })
	Version = "v1.2.3"
	registry := prometheus.NewRegistry()
	registry.MustRegister(builder{})
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	m := families[0].Metric[0]
	if families[0].GetName() != "coredns_multicluster_build_info" || m.GetGauge().GetValue() != 1 ||
		m.Label[0].GetName() != "version" || m.Label[0].GetValue() != "v1.2.3" {
		t.Errorf("%v", families)
	}
	Version = ""
	if got := version(); got == "" || got == "v1.2.3" {
		t.Errorf("without a version of the program: %q", got)
	}
}
