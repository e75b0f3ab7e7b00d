package authority

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/fall"
	"github.com/miekg/dns"
)

// maxTTL of records, in seconds.
const maxTTL = 3600

// ParseZones reads the zones of a stanza, each once. A zone outside those of the server block would never be asked, and
// reverse zones are not served (N19).
func ParseZones(c *caddy.Controller, args []string) (origins []string, err error) {
	var served []string
	for _, key := range c.ServerBlockKeys {
		served = append(served, plugin.Host(key).NormalizeExact()...)
	}
	for _, arg := range args {
		zones := plugin.Host(arg).NormalizeExact()
		if len(zones) == 0 {
			return nil, c.Errf("'%s' is not a zone", arg)
		}
		for _, zone := range zones {
			if dns.IsSubDomain("in-addr.arpa.", zone) || dns.IsSubDomain("ip6.arpa.", zone) {
				return nil, c.Errf("not authoritative for reverse zone %s: PTR is not served", zone)
			}
			if len(served) > 0 && plugin.Zones(served).Matches(zone) == "" {
				keys := strings.Join(served, " ")
				return nil, c.Errf("not authoritative for zone %s: this server block serves %s", zone, keys)
			}
			if !slices.Contains(origins, zone) { // a server block may serve one zone over several transports
				origins = append(origins, zone)
			}
		}
	}
	return origins, nil
}

// ParseTTL reads the option ttl.
func ParseTTL(c *caddy.Controller, arg string) (uint32, error) {
	ttl, err := strconv.Atoi(arg)
	if err != nil || ttl < 0 || ttl > maxTTL {
		return 0, c.Errf("ttl must be a number of seconds in [0, %d]: '%s'", maxTTL, arg)
	}
	return uint32(ttl), nil
}

// ParseNameservers reads the option nameserver.
func ParseNameservers(c *caddy.Controller, args []string) (addrs []netip.Addr, err error) {
	for _, arg := range args {
		ip, err := netip.ParseAddr(arg)
		if err != nil || ip.Zone() != "" {
			return nil, c.Errf("nameserver must be an IP address: '%s'", arg)
		}
		addrs = append(addrs, ip.Unmap())
	}
	return addrs, nil
}

// ParseTimeout reads the option startup_timeout.
func ParseTimeout(c *caddy.Controller, arg string) (time.Duration, error) {
	d, err := time.ParseDuration(arg)
	if err != nil || d < 0 {
		return 0, c.Errf("startup_timeout must be a duration such as 5s: '%s'", arg)
	}
	return d, nil
}

// ParseFallthrough reads the option fallthrough of a stanza that serves origins.
func ParseFallthrough(c *caddy.Controller, origins, args []string) (f fall.F, err error) {
	for _, arg := range args {
		zone := dns.CanonicalName(arg)
		if plugin.Zones(origins).Matches(zone) == "" {
			served := strings.Join(origins, " ")
			return f, c.Errf("not authoritative for fallthrough zone %s: this stanza serves %s", zone, served)
		}
	}
	f.SetZonesFromArgs(args)
	return f, nil
}
