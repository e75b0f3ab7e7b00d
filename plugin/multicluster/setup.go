package multicluster

import (
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/transfer"
)

func init() { plugin.Register(pluginName, setup) }

func setup(c *caddy.Controller) error {
	s, err := parse(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	m := &s.Multicluster
	m.generation = generationOf(c)

	c.OnStartup(func() error {
		addrs := s.nameservers
		if addrs == nil {
			addrs = defaultNameservers(s.config, dnsserver.GetConfig(c).ListenHosts)
		}
		for _, origin := range m.origins {
			m.zones = append(m.zones, reply.NewZone(origin, s.ttl, addrs))
		}
		w, err := m.generation.open(s.config, s.startupTimeout)
		if err != nil {
			return plugin.Error(pluginName, err)
		}
		m.source = w
		return nil
	})
	c.OnStartup(func() error {
		if t, ok := dnsserver.GetConfig(c).Handler("transfer").(*transfer.Transfer); ok {
			go m.notify(t.Notify, m.generation.closed)
		}
		return nil
	})
	c.OnRestartFailed(restartFailed)
	c.OnShutdown(m.generation.shutdown)

	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		m.Next = next
		return m
	})
	return nil
}
