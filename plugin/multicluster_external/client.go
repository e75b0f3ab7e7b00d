package external

import (
	"context"
	"net"
	"net/netip"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/miekg/dns"
)

// asker is who asks (X4).
type asker struct {
	addr   netip.Addr
	subnet *dns.EDNS0_SUBNET // of the query, if it counts; else nil
}

// asker returns who asks: the client subnet of the query where that counts and names one, else the address that the
// query comes from. It fails if the subnet has bits beyond its length (RFC 7871 §6).
func (e *External) asker(w dns.ResponseWriter, r *dns.Msg) (who asker, ok bool) {
	if e.subnet {
		who.subnet = clientSubnet(r)
	}
	if s := who.subnet; s != nil {
		addr, _ := netip.AddrFromSlice(s.Address)
		if s.Family != 2 { // 1, or 0 by dig +subnet=0
			addr = addr.Unmap()
		}
		prefix, err := addr.Prefix(int(s.SourceNetmask))
		if err != nil || prefix.Addr() != addr {
			return who, false
		}
		if s.SourceNetmask > 0 { // 0: the client does not want to be known
			who.addr = addr.Unmap()
			return who, true
		}
	}
	who.addr = remote(authority.Remote(w))
	return who, true
}

func clientSubnet(r *dns.Msg) *dns.EDNS0_SUBNET {
	if opt := r.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if s, ok := o.(*dns.EDNS0_SUBNET); ok {
				return s
			}
		}
	}
	return nil
}

// remote returns the IP address of a, or none. Formatting would allocate.
func remote(a net.Addr) (addr netip.Addr) {
	switch a := a.(type) {
	case *net.UDPAddr:
		addr = a.AddrPort().Addr()
	case *net.TCPAddr:
		addr = a.AddrPort().Addr()
	case nil:
	default:
		if from, err := netip.ParseAddrPort(a.String()); err == nil {
			addr = from.Addr()
		}
	}
	return addr.Unmap().WithZone("")
}

// client returns the client with what the geoip plugin knows of it. That plugin's own option edns-subnet decides whose
// place it is.
func (a asker) client(ctx context.Context) names.Client {
	known := func(label string) string {
		if value := metadata.ValueFunc(ctx, "geoip/"+label); value != nil {
			return value()
		}
		return ""
	}
	place := names.Location{}
	// Without a database there is nothing to read, and the error would allocate.
	if latitude, longitude := known("latitude"), known("longitude"); latitude != "" && longitude != "" {
		place = names.ParseLocation(latitude, longitude)
	}
	return names.NewClient(a.addr, place, known("continent/code"))
}

// scoped is the OPT record of a reply to a query with a client subnet, in one allocation. The server completes it.
type scoped struct {
	opt     dns.OPT
	subnet  dns.EDNS0_SUBNET
	options [1]dns.EDNS0
}

// mark gives a reply the client subnet of its query, with the scope that was used (RFC 7871 §7.2.1): the networks that
// clients are told apart by, or 0 if all clients get this reply.
func (a asker) mark(m *dns.Msg, tailored bool) {
	if a.subnet == nil {
		return
	}
	s := new(scoped)
	s.subnet = *a.subnet
	s.subnet.SourceScope = 0
	if tailored && s.subnet.SourceNetmask > 0 {
		s.subnet.SourceScope = names.Network4
		switch {
		case a.addr.Is6():
			s.subnet.SourceScope = names.Network6
		case s.subnet.Family == 2: // an IPv4-mapped address
			s.subnet.SourceScope += 96
		}
	}
	s.options[0] = &s.subnet
	s.opt.Hdr.Name, s.opt.Hdr.Rrtype = ".", dns.TypeOPT
	s.opt.Option = s.options[:]
	m.Extra = append(m.Extra, &s.opt)
}
