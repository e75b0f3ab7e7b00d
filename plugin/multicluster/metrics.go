package multicluster

import (
	"runtime/debug"

	"github.com/coredns/coredns/plugin"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Version is set by our coredns. In other programs it is empty, and version returns the module's version.
var Version string

const module = "github.com/clusterset-dns/clusterset-dns"

// version returns Version, or else the module's version, or "unknown".
func version() string {
	if Version != "" {
		return Version
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(build.Deps, &build.Main) {
			if m.Path == module && m.Version != "" {
				return m.Version
			}
		}
	}
	return "unknown"
}

// buildInfo gets its value in setup, because a program sets Version after this package is initialized.
var buildInfo = promauto.NewGaugeVec(prometheus.GaugeOpts{
	Namespace: plugin.Namespace,
	Subsystem: pluginName,
	Name:      "build_info",
	Help:      "Always 1, with the version of the plugin.",
}, []string{"version"})
