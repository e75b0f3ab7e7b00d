package multicluster

import (
	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// shedTotal counts what the option shed refuses. The metrics of watches and of what they hold are in
// kube/metrics.go.
var shedTotal = promauto.NewCounter(prometheus.CounterOpts{
	Namespace: plugin.Namespace,
	Subsystem: pluginName,
	Name:      "shed_total",
	Help:      "Questions over TCP that were refused by shed.",
})
