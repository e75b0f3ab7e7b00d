package multicluster

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/transfer"
)

// loads have the watches of our stanzas.
var loads = reload.New()

func init() { plugin.Register(pluginName, setup) }

func setup(c *caddy.Controller) error {
	s, err := parse(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	m := &s.Multicluster
	m.load = loads.Of(c)
	growStacks(c)
	buildInfo.WithLabelValues(version()).Set(1)

	c.OnStartup(func() error {
		addrs := s.nameservers
		if addrs == nil {
			addrs = authority.Nameservers(s.config, dnsserver.GetConfig(c).ListenHosts)
		}
		for _, origin := range m.origins {
			m.zones = append(m.zones, reply.NewZone(origin, s.ttl, addrs))
		}
		w, err := reload.Open(m.load, func() (*kube.Watch, error) { return kube.Open(s.config) }, s.startupTimeout)
		if err != nil {
			return plugin.Error(pluginName, err)
		}
		m.source = w
		return nil
	})
	c.OnStartup(func() error {
		if t, ok := dnsserver.GetConfig(c).Handler("transfer").(*transfer.Transfer); ok {
			go authority.Notify(pluginName, m.origins, m.serial, t.Notify, m.load.Closed())
		}
		return nil
	})

	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		m.Next = next
		return m
	})
	return nil
}
