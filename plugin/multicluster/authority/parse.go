package authority

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"
	"github.com/miekg/dns"
)

// maxTTL of records, in seconds.
const maxTTL = 3600

// Stanza is what the Corefile says, as far as the plugins share it.
type Stanza[S catalog.Answers[S]] struct {
	Server[S]
	Config         kube.Config
	TTL            uint32
	Nameservers    []netip.Addr // nil: not set
	StartupTimeout time.Duration
}

// NewStanza returns the stanza of a plugin, with the default TTL in seconds.
func NewStanza[S catalog.Answers[S]](plugin string, ttl uint32) Stanza[S] {
	return Stanza[S]{Server: Server[S]{Plugin: plugin}, TTL: ttl, StartupTimeout: 5 * time.Second}
}

// Option is one property of a stanza: how many arguments it takes (no Max: any number), and what they mean.
type Option struct {
	Min, Max int
	Usage    string
	Set      func(args []string) error
}

// Takes returns an option with so many arguments. A negative max is no limit.
func Takes(min, max int, usage string, set func(args []string) error) Option {
	return Option{min, max, usage, set}
}

// Parse reads a stanza with the options that both plugins have, and own ones. Zones are those of the stanza, else
// zones. check is called before the first option and after each. Errors name the line of the Corefile (O2).
func (s *Stanza[S]) Parse(c *caddy.Controller, zones []string, own map[string]Option, check func() error) error {
	c.Next() // the directive's name
	if args := c.RemainingArgs(); len(args) > 0 {
		zones = args
	}
	if err := s.parseZones(c, zones); err != nil {
		return err
	}
	if err := check(); err != nil {
		return c.Err(err.Error())
	}
	maps.Copy(own, s.Shared())
	for c.NextBlock() {
		name, args := c.Val(), c.RemainingArgs()
		switch o, ok := own[name]; {
		case !ok:
			return c.Errf("unknown option '%s'", name)
		case len(args) < o.Min || o.Max >= 0 && len(args) > o.Max:
			return c.Errf("wrong number of arguments for %s: usage is '%s'", name, strings.TrimSpace(name+" "+o.Usage))
		}
		if err := cmp.Or(own[name].Set(args), check(), s.Config.Check()); err != nil {
			return c.Err(err.Error())
		}
	}
	if c.Next() {
		return c.Errf("only one %s stanza is allowed in a server block: name all zones in it", s.Plugin)
	}
	return nil
}

// parseZones reads the zones of a stanza, each once. A zone outside those of the server block would never be asked, and
// reverse zones are not served (N19).
func (s *Stanza[S]) parseZones(c *caddy.Controller, args []string) error {
	var served []string
	for _, key := range c.ServerBlockKeys {
		served = append(served, plugin.Host(key).NormalizeExact()...)
	}
	for _, arg := range args {
		zones := plugin.Host(arg).NormalizeExact()
		if len(zones) == 0 {
			return c.Errf("'%s' is not a zone", arg)
		}
		for _, zone := range zones {
			if dns.IsSubDomain("in-addr.arpa.", zone) || dns.IsSubDomain("ip6.arpa.", zone) {
				return c.Errf("not authoritative for reverse zone %s: PTR is not served", zone)
			}
			if len(served) > 0 && plugin.Zones(served).Matches(zone) == "" {
				keys := strings.Join(served, " ")
				return c.Errf("not authoritative for zone %s: this server block serves %s", zone, keys)
			}
			if !slices.Contains(s.Origins, zone) { // a server block may serve one zone over several transports
				s.Origins = append(s.Origins, zone)
			}
		}
	}
	return nil
}

// Shared are the options that both plugins have. They mean the same in both, and in the kubernetes plugin (O1).
func (s *Stanza[S]) Shared() map[string]Option {
	return map[string]Option{
		"kubeconfig": {1, 2, "PATH [CONTEXT]", func(args []string) error {
			s.Config.Kubeconfig = args[0]
			if len(args) == 2 {
				s.Config.Context = args[1]
			}
			return nil
		}},
		"namespaces": {1, -1, "NAMESPACE...", func(args []string) error {
			s.Config.Namespaces = append(s.Config.Namespaces, args...)
			return nil
		}},
		"ttl": {1, 1, "SECONDS", func(args []string) error {
			ttl, err := strconv.Atoi(args[0])
			if err != nil || ttl < 0 || ttl > maxTTL {
				return fmt.Errorf("ttl must be a number of seconds in [0, %d]: '%s'", maxTTL, args[0])
			}
			s.TTL = uint32(ttl)
			return nil
		}},
		"nameserver": {1, -1, "IP...", func(args []string) error {
			for _, arg := range args {
				ip, err := netip.ParseAddr(arg)
				if err != nil || ip.Zone() != "" {
					return fmt.Errorf("nameserver must be an IP address: '%s'", arg)
				}
				s.Nameservers = append(s.Nameservers, ip.Unmap())
			}
			return nil
		}},
		"startup_timeout": {1, 1, "DURATION", func(args []string) (err error) {
			if s.StartupTimeout, err = time.ParseDuration(args[0]); err != nil || s.StartupTimeout < 0 {
				return fmt.Errorf("startup_timeout must be a duration such as 5s: '%s'", args[0])
			}
			return nil
		}},
		"fallthrough": {0, -1, "[ZONES...]", func(args []string) error {
			for _, arg := range args {
				zone := dns.CanonicalName(arg)
				if plugin.Zones(s.Origins).Matches(zone) == "" {
					served := strings.Join(s.Origins, " ")
					return fmt.Errorf("not authoritative for fallthrough zone %s: this stanza serves %s", zone, served)
				}
			}
			s.Fall.SetZonesFromArgs(args)
			return nil
		}},
	}
}
