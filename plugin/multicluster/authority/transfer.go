package authority

import (
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"
)

// Send returns the blocks of a transfer (RFC 5936): SOA and NS of the zone with that name, what records sends of the
// Services, and the SOA again; or one SOA if the secondary's serial is the current one (RFC 1995). It fails if no zone
// has the name, and while they are not synced.
func (s *Server[S]) Send(
	name string, serial uint32, records func(zone *reply.Zone, services []S, out chan<- []dns.RR),
) (<-chan []dns.RR, error) {
	i := slices.IndexFunc(s.Zones, func(z *reply.Zone) bool { return strings.EqualFold(z.Name(), name) })
	if i < 0 {
		return nil, transfer.ErrNotAuthoritative
	}
	if !s.Source.Synced() { // before the index is read
		return nil, errors.New("zone is not transferred before the first complete list")
	}
	zone, out := s.Zones[i], make(chan []dns.RR)
	current, services := s.Source.Index().Snapshot()
	soa := zone.SOA(new(dns.Msg).SetQuestion(name, dns.TypeSOA), name, current).Answer
	go func() {
		defer close(out)
		out <- soa
		if serial != 0 && !catalog.Newer(current, serial) {
			return
		}
		ns := zone.NS(new(dns.Msg).SetQuestion(zone.Name(), dns.TypeNS), zone.Name(), math.MaxInt32)
		out <- append(ns.Answer, ns.Extra...)
		records(zone, services, out)
		out <- soa
	}()
	return out, nil
}
