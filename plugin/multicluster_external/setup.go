package external

import (
	"net/netip"
	"slices"
	"strings"
	"time"

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
	s, err := parseStanza(c)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	e := &s.External
	e.load = loads.Of(c)

	c.OnStartup(func() error {
		addrs := s.nameservers
		if addrs == nil {
			addrs = authority.Nameservers(s.config, dnsserver.GetConfig(c).ListenHosts)
			log.Warningf("The name server of %s has addresses %v, which clients outside may not reach: set nameserver",
				strings.Join(e.origins, " "), addrs)
		}
		for _, origin := range e.origins {
			e.zones = append(e.zones, reply.NewZone(origin, s.ttl, addrs))
		}
		w, err := reload.Open(e.load, func() (*watch, error) { return openWatch(s.config) }, s.startupTimeout)
		if err != nil {
			return plugin.Error(pluginName, err)
		}
		e.source = w
		return nil
	})
	c.OnStartup(func() error {
		if t, ok := dnsserver.GetConfig(c).Handler("transfer").(*transfer.Transfer); ok {
			go authority.Notify(pluginName, e.origins, e.serial, t.Notify, e.load.Closed())
		}
		return nil
	})

	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		e.Next = next
		return e
	})
	return nil
}

// stanza is what the Corefile says.
type stanza struct {
	External
	config         kube.Config
	ttl            uint32
	nameservers    []netip.Addr
	startupTimeout time.Duration
}

const (
	defaultTTL            = 30
	defaultStartupTimeout = 5 * time.Second
)

// parseStanza reads the stanza. Its errors name the line of the Corefile (O2).
func parseStanza(c *caddy.Controller) (*stanza, error) {
	c.Next() // the directive's name
	s := &stanza{ttl: defaultTTL, startupTimeout: defaultStartupTimeout}
	zones := c.RemainingArgs()
	if len(zones) == 0 {
		zones = c.ServerBlockKeys
	}
	var err error
	if s.origins, err = authority.ParseZones(c, zones); err != nil {
		return nil, err
	}
	if len(s.origins) == 0 || slices.Contains(s.origins, ".") {
		return nil, c.Err("there is no default zone: name the zone, as in 'multicluster_external global.example.org'")
	}
	for c.NextBlock() {
		name, args := c.Val(), c.RemainingArgs()
		o, ok := options[name]
		if !ok {
			return nil, c.Errf("unknown option '%s'", name)
		}
		if len(args) < o.min || o.max >= 0 && len(args) > o.max {
			usage := strings.TrimSpace(name + " " + o.usage)
			return nil, c.Errf("wrong number of arguments for %s: usage is '%s'", name, usage)
		}
		if err := o.set(s, c, args); err != nil {
			return nil, err
		}
		if err := s.config.Check(); err != nil {
			return nil, c.Err(err.Error())
		}
	}
	if c.Next() {
		return nil, c.Err("only one multicluster_external stanza is allowed in a server block: name all zones in it")
	}
	return s, nil
}

// option is one property of the stanza: how many arguments it takes (no max: any number), and what they mean.
type option struct {
	min, max int
	usage    string
	set      func(s *stanza, c *caddy.Controller, args []string) error
}

// options of the stanza. Those that the plugin multicluster has mean the same; edns-subnet is named as in geoip.
var options = map[string]option{
	"kubeconfig": {1, 2, "PATH [CONTEXT]", func(s *stanza, _ *caddy.Controller, args []string) error {
		s.config.Kubeconfig = args[0]
		if len(args) == 2 {
			s.config.Context = args[1]
		}
		return nil
	}},
	"namespaces": {1, -1, "NAMESPACE...", func(s *stanza, _ *caddy.Controller, args []string) error {
		s.config.Namespaces = append(s.config.Namespaces, args...)
		return nil
	}},
	"ttl": {1, 1, "SECONDS", func(s *stanza, c *caddy.Controller, args []string) (err error) {
		s.ttl, err = authority.ParseTTL(c, args[0])
		return err
	}},
	"edns-subnet": {0, 0, "", func(s *stanza, _ *caddy.Controller, _ []string) error {
		s.subnet = true
		return nil
	}},
	"nameserver": {1, -1, "IP...", func(s *stanza, c *caddy.Controller, args []string) error {
		addrs, err := authority.ParseNameservers(c, args)
		s.nameservers = append(s.nameservers, addrs...)
		return err
	}},
	"startup_timeout": {1, 1, "DURATION", func(s *stanza, c *caddy.Controller, args []string) (err error) {
		s.startupTimeout, err = authority.ParseTimeout(c, args[0])
		return err
	}},
	"fallthrough": {0, -1, "[ZONES...]", func(s *stanza, c *caddy.Controller, args []string) (err error) {
		s.Fall, err = authority.ParseFallthrough(c, s.origins, args)
		return err
	}},
}
