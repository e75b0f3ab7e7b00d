package model

import (
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// Preference is what the option prefer says (T2): a source cluster, a zone, or both; Subset: the others are left out
// while a
// preferred one is ready.
type Preference struct {
	Cluster, Zone             string
	ClusterSubset, ZoneSubset bool
}

// candidate is an endpoint's claim that a record be answered.
type candidate struct {
	record      record
	local, near bool // of the preferred cluster, in the preferred zone
}

// claims lists what the endpoints of a headless service claim at its own name or at that of a port. An endpoint is a
// candidate for addresses whatever its family. A target of SRV is one candidate for each of its ports. All endpoints of
// a host are near if one is.
func (m *Model) claims(name string, qtype uint16) []candidate {
	service := name
	if strings.HasPrefix(name, "_") {
		service = parent(parent(name))
	}
	var all []candidate
	for _, ep := range m.headless[service] {
		c := candidate{local: ep.cluster == strings.ToLower(m.cfg.Prefer.Cluster), near: m.near(service, ep)}
		if qtype != dns.TypeSRV {
			c.record = record{owner: name, rtype: addressType(ep.addr), data: ep.addr.String(), ttl: m.cfg.TTL}
			all = append(all, c)
			continue
		}
		for _, r := range m.records[name] {
			if r.rtype == dns.TypeSRV && ep.host != "" && r.glue == below(service, ep.host, ep.cluster) {
				c.record = r
				all = append(all, c)
			}
		}
	}
	return all
}

// prefer gives the records that are answered, those of each list before those of the next (T2): the cluster decides,
// then the zone.
func (m *Model) prefer(name string, qtype uint16) [][]record {
	p, all := m.cfg.Prefer, m.claims(name, qtype)
	if p.Cluster != "" && p.ClusterSubset {
		all = onlyIfAny(all, func(c candidate) bool { return c.local })
	}
	if p.Zone != "" && p.ZoneSubset {
		all = onlyIfAny(all, func(c candidate) bool { return c.near })
	}
	tiers := make([][]record, 4)
	for _, c := range all {
		tier := 0
		if p.Cluster != "" && !c.local {
			tier += 2
		}
		if p.Zone != "" && !c.near {
			tier++
		}
		if c.record.rtype == qtype {
			tiers[tier] = append(tiers[tier], c.record)
		}
	}
	return firstOnly(tiers)
}

// near says whether an endpoint, or another with its host name, is in the preferred zone.
func (m *Model) near(service string, ep endpoint) bool {
	zone := strings.ToLower(m.cfg.Prefer.Zone)
	return ep.zone == zone || ep.host != "" && slices.ContainsFunc(m.headless[service], func(o endpoint) bool {
		return o.host == ep.host && o.cluster == ep.cluster && o.zone == zone
	})
}

func onlyIfAny(all []candidate, preferred func(candidate) bool) []candidate {
	some := slices.DeleteFunc(slices.Clone(all), func(c candidate) bool { return !preferred(c) })
	if len(some) == 0 {
		return all
	}
	return some
}

// firstOnly leaves each record where it stands first (N6: duplicates removed).
func firstOnly(tiers [][]record) [][]record {
	seen := map[record]bool{}
	for i := range tiers {
		tiers[i] = slices.DeleteFunc(tiers[i], func(r record) bool {
			again := seen[r]
			seen[r] = true
			return again
		})
	}
	return tiers
}

// addZonal makes the names exist that stand above those of zones (N12). Those of zones have no end, so they are no part
// of Names
// and Zone.
func (m *Model) addZonal(service string) {
	if m.cfg.Zonal {
		m.exist(below(service, "pin", "_zone"))
		m.exist(below(service, "prefer", "_zone"))
	}
}

// zonal answers "<zone>.pin._zone.svc.ns" and "<zone>.prefer._zone.svc.ns" (N12): as the service would if it had the
// endpoints of
// that zone only; without any, pin is NODATA and prefer is the service.
func (m *Model) zonal(name string, qtype uint16) (Reply, bool) {
	if !m.cfg.Zonal || strings.Contains(name, `\`) {
		return Reply{}, false
	}
	for service, endpoints := range m.headless {
		for _, directive := range []string{"pin", "prefer"} {
			zone, ok := strings.CutSuffix(name, "."+below(service, directive, "_zone"))
			if !ok {
				continue
			}
			in := slices.DeleteFunc(slices.Clone(endpoints), func(ep endpoint) bool { return ep.zone != zone })
			switch {
			case len(in) > 0:
			case directive == "pin":
				return Reply{Outcome: NoData, Zone: m.cfg.Zone, NegativeTTL: m.cfg.TTL}, true
			default:
				in = endpoints
			}
			alone := empty(m.cfg)
			alone.addHeadless(service, in)
			reply := alone.Answer(service, qtype)
			for i, text := range reply.Answer {
				renamed := name + strings.TrimPrefix(text, service)
				reply.Answer[i] = renamed
				reply.Tier[renamed] = reply.Tier[text]
			}
			return reply, true
		}
	}
	return Reply{}, false
}
