package multicluster

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"
)

// loads are the loads of the Corefile, whose watches stay open over a reload.
var loads = reload.New()

func init() { plugin.Register(pluginName, setup) }

func setup(c *caddy.Controller) error {
	m, err := parse(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	growStacks(c)
	buildInfo.WithLabelValues(version()).Set(1)
	authority.Setup(c, &m.Stanza, loads, m, func() (*kube.Watch, error) { return kube.Open(m.Config) })
	return nil
}
