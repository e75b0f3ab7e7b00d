package external

import (
	"slices"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/miekg/dns"
)

// Transfer implements transfer.Transferer (X6).
func (e *External) Transfer(zone string, serial uint32) (<-chan []dns.RR, error) {
	return e.Send(zone, serial, func(z *reply.Zone, services []*names.Service, out chan<- []dns.RR) {
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
