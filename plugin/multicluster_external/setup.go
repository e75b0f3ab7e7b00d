package external

import (
	"errors"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reload"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"
)

// loads are the loads of the Corefile, whose watches stay open over a reload.
var loads = reload.New()

func init() { plugin.Register(pluginName, setup) }

func setup(c *caddy.Controller) error {
	e, err := parseStanza(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	defaulted := e.Nameservers == nil // read before the startup hook of authority.Setup, which fills them
	authority.Setup(c, &e.Stanza, loads, e, func() (*watch, error) { return openWatch(e.Config) })
	c.OnStartup(func() error {
		if defaulted {
			log.Warningf("The name server of %s has addresses %v, which clients outside may not reach: set nameserver",
				strings.Join(e.Origins, " "), e.Nameservers)
		}
		return nil
	})
	return nil
}

const defaultTTL = 30

// parseStanza reads the stanza. Its errors name the line of the Corefile (O2).
func parseStanza(c *caddy.Controller) (*External, error) {
	e := &External{Stanza: authority.NewStanza[*names.Service](pluginName, defaultTTL)}
	return e, e.Parse(c, c.ServerBlockKeys, e.options(), func() error {
		if len(e.Origins) == 0 || slices.Contains(e.Origins, ".") {
			return errors.New("there is no default zone: " +
				"name the zone, as in 'multicluster_external global.example.org'")
		}
		return nil
	})
}

// options are those that multicluster does not have. edns-subnet is named as in geoip.
func (e *External) options() map[string]authority.Option {
	return map[string]authority.Option{
		"edns-subnet": {Set: func([]string) error { e.subnet = true; return nil }},
	}
}
