package kube

import (
	"net/netip"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

// importReader makes records of ServiceImports. Names are copied: what it reads from is used again for the next object. It belongs
// to one stream.
type importReader struct {
	store     *store
	names     interner
	namespace []byte
	name      []byte
	key       []byte
	version   uint64
	sum       sum
	ips       []netip.Addr
	ports     []catalog.Port
	kind      catalog.Type
}

// read makes a record of the JSON of one ServiceImport, in one pass, since metadata comes before spec. If the store holds it
// already it is that one. nil: it has no name.
func (r *importReader) read(b []byte) *importObject {
	r.namespace, r.name, r.key, r.version = nil, nil, r.key[:0], 0
	r.ips, r.ports, r.kind, r.sum = r.ips[:0], r.ports[:0], catalog.Unknown, sumOf(b)
	var held *importObject
	c := cursor{b: b}
	c.object(func(key []byte) {
		switch string(key) {
		case "metadata":
			r.metadata(&c)
			if held = r.held(); held != nil {
				c.i = len(c.b)
			}
		case "spec":
			r.spec(&c)
		}
	})
	if held != nil {
		return held
	}
	if len(r.namespace) == 0 || len(r.name) == 0 || r.version == 0 {
		return nil
	}
	return r.record()
}

func (r *importReader) held() *importObject {
	if len(r.namespace) == 0 || len(r.name) == 0 {
		return nil
	}
	r.key = append(append(append(r.key[:0], r.name...), '.'), r.namespace...)
	return r.store.heldImport(r.key, r.version, r.sum)
}

func (r *importReader) record() *importObject {
	o := &importObject{key: string(r.key), version: r.version, kind: r.kind, sum: r.sum}
	if r.kind != catalog.ClusterSetIP {
		return o
	}
	imp := catalog.Import{Type: r.kind, IPs: r.ips, Ports: r.ports}
	imp.Name, imp.Namespace = splitKey(o.key)
	if o.service = catalog.Build(&imp, nil); o.service != nil {
		o.key = o.service.Key()
	}
	return o
}

func (r *importReader) metadata(c *cursor) {
	c.object(func(key []byte) {
		switch string(key) {
		case "name":
			r.name = c.text()
		case "namespace":
			r.namespace = c.text()
		case "resourceVersion":
			r.version = parseUint(c.text(), 64)
		}
	})
}

func (r *importReader) spec(c *cursor) {
	c.object(func(key []byte) {
		switch string(key) {
		case "type":
			r.kind = kindOf(c.text())
		case "ips":
			c.array(func() {
				if ip, ok := address(c.text()); ok {
					r.ips = append(r.ips, ip)
				}
			})
		case "ports":
			c.array(func() { r.ports = append(r.ports, r.port(c)) })
		}
	})
}

func (r *importReader) port(c *cursor) (p catalog.Port) {
	c.object(func(key []byte) {
		switch string(key) {
		case "name":
			p.Name = r.names.intern(c.text())
		case "protocol":
			p.Proto = r.names.intern(c.text())
		case "port":
			p.Number = uint16(c.uint(16))
		}
	})
	return p
}

func kindOf(text []byte) catalog.Type {
	switch string(text) {
	case "ClusterSetIP":
		return catalog.ClusterSetIP
	case "Headless":
		return catalog.Headless
	}
	return catalog.Unknown
}

// address reads an address of an object. Zones mean nothing to another host, and IPv4-mapped IPv6 addresses are refused by
// Kubernetes too.
func address(text []byte) (netip.Addr, bool) {
	if addr, ok := address4(text); ok {
		return addr, true
	}
	addr, err := netip.ParseAddr(string(text))
	return addr, err == nil && addr.Zone() == "" && !addr.Is4In6()
}

// address4 reads what netip.ParseAddr reads of IPv4, without making a string of it: most addresses are.
func address4(text []byte) (netip.Addr, bool) {
	var octets [4]byte
	at, digits, n := 0, 0, 0
	for i := 0; i <= len(text); i++ {
		if i == len(text) || text[i] == '.' {
			if digits == 0 || at == 4 {
				return netip.Addr{}, false
			}
			octets[at], at, digits, n = byte(n), at+1, 0, 0
			continue
		}
		c := text[i]
		if c < '0' || c > '9' || digits > 0 && n == 0 {
			return netip.Addr{}, false
		}
		if n = n*10 + int(c-'0'); n > 255 {
			return netip.Addr{}, false
		}
		digits++
	}
	if at != 4 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4(octets), true
}

// interner keeps one copy of strings that many objects repeat. It forgets all of them when there are too many.
type interner map[string]string

func (in *interner) intern(b []byte) string {
	if s, ok := (*in)[string(b)]; ok {
		return s
	}
	if *in == nil || len(*in) >= 4096 {
		*in = make(interner)
	}
	s := string(b)
	(*in)[s] = s
	return s
}
