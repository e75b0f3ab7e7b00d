package external

import (
	"slices"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/miekg/dns"
)

// serial returns the zones' serial, and whether there is anything to transfer.
func (e *External) serial() (uint32, bool) { return e.source.Index().Serial(), e.source.Synced() }

// Transfer implements transfer.Transferer (X6).
func (e *External) Transfer(zone string, serial uint32) (<-chan []dns.RR, error) {
	synced := e.source.Synced() // before the index is read
	current, services := e.source.Index().Snapshot()
	return authority.Transfer(e.zones, zone, serial, current, synced, func(z *reply.Zone, out chan<- []dns.RR) {
		for _, s := range services {
			for name, content := range s.Names() {
				out <- records(z, name+"."+z.Name(), content)
			}
		}
	})
}

// records returns the records of a name. One that is too long for DNS has none.
func records(z *reply.Zone, name string, c names.Content) []dns.RR {
	switch {
	case len(name) > catalog.MaxName:
		return nil
	case c.Alias != "":
		return z.CNAME(new(dns.Msg).SetQuestion(name, dns.TypeCNAME), c.Alias).Answer
	}
	return slices.Concat(z.AddressRecords(name, dns.TypeA, c.V4), z.AddressRecords(name, dns.TypeAAAA, c.V6))
}
