package catalog

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// seed is that of every table of hosts; tables live and die with the process.
var seed = maphash.MakeSeed()

// ready are the slices with an endpoint, in the order of (cluster, name) that makes answers stable (M2).
func ready(all []*Slice) []*Slice {
	out := make([]*Slice, 0, len(all))
	for _, s := range all {
		if s.Len() > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *Slice) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name))
	})
	return out
}

// builder joins slices into a headless. An entry is one distinct (host, address).
type builder struct {
	slices  []*Slice
	out     headless
	labels  []byte
	entries []entry
	// next4 and next6 count the octets of each host's addresses, then point to where its next address goes.
	next4, next6 []uint32
	seen         []uint32 // open addressing by hash of address: index of entry + 1
	shared       bool     // some address belongs to two hosts
}

type entry struct {
	addr string
	host uint32
	copy bool // the address stands in an earlier entry, of another host
}

func (b *builder) build() *headless {
	total := 0
	for _, s := range b.slices {
		total += s.Len()
	}
	b.out.table = make([]uint32, tableSize(total))
	b.seen = make([]uint32, tableSize(total))
	b.entries = make([]entry, 0, total)
	b.out.hosts = make([]host, 0, total+1)
	b.labels = make([]byte, 0, total*12)
	for _, s := range b.slices {
		b.add(s)
	}
	b.place()
	b.out.labels = string(b.labels)
	b.out.hosts = slices.Clip(b.out.hosts)
	if cap := tableSize(len(b.out.hosts)); cap < len(b.out.table) {
		b.shrink(cap)
	}
	return &b.out
}

// tableSize is the power of two that holds n entries with a quarter of it free.
func tableSize(n int) int { return 1 << bits.Len(uint(n+n/3)) }

// add takes in one slice: each endpoint finds or makes its host.
func (b *builder) add(s *Slice) {
	hosts, w := s.hosts, int(s.width)
	for off := 0; off < len(s.addrs); off += w {
		addr := s.addrs[off : off+w]
		var label string
		switch n := hosts[0]; n {
		case 0:
			label, hosts = dashed(addr), hosts[1:]
		case nameless:
			hosts = hosts[1:]
		default:
			label, hosts = hosts[1:1+n], hosts[1+n:]
		}
		id := b.host(label, b.cluster(s.cluster, label))
		if label != "" {
			b.expose(id, s.ports)
		}
		b.enter(entry{addr: addr, host: id})
	}
}

// cluster finds or makes the index of the cluster that slices stand at. What has no name is below no cluster's.
func (b *builder) cluster(id, label string) uint16 {
	if label == "" {
		return noIndex
	}
	if n := len(b.out.clusters); n == 0 || b.out.clusters[n-1] != id {
		b.out.clusters = append(b.out.clusters, id)
	}
	return uint16(len(b.out.clusters) - 1)
}

// host finds or makes the host of a label in a cluster.
func (b *builder) host(label string, cluster uint16) uint32 {
	mask := uint32(len(b.out.table) - 1)
	i := hashHost(label, cluster) & mask
	for ; b.out.table[i] != 0; i = (i + 1) & mask {
		h := b.out.hosts[b.out.table[i]-1]
		if h.cluster == cluster && b.labelOf(b.out.table[i]-1) == label {
			return b.out.table[i] - 1
		}
	}
	id := uint32(len(b.out.hosts))
	b.out.table[i] = id + 1
	b.out.hosts = append(b.out.hosts, host{label: uint32(len(b.labels)), cluster: cluster, ports: noIndex})
	b.labels = append(b.labels, label...)
	b.next4, b.next6 = append(b.next4, 0), append(b.next6, 0)
	return id
}

const noIndex = ^uint16(0)

func (b *builder) labelOf(id uint32) string {
	end := len(b.labels)
	if int(id)+1 < len(b.out.hosts) {
		end = int(b.out.hosts[id+1].label)
	}
	return string(b.labels[b.out.hosts[id].label:end]) // compared at once: the compiler makes no copy
}

// hashHost hashes a host label in a cluster.
func hashHost(label string, cluster uint16) uint32 {
	return uint32(maphash.String(seed, label)) + uint32(cluster)*0x9e3779b1
}

// expose gives a host the ports of a slice that names it: their union, where several do.
func (b *builder) expose(id uint32, ports Ports) {
	h := &b.out.hosts[id]
	if h.ports != noIndex {
		ports = b.out.ports[h.ports].merge(ports)
	}
	for i, p := range b.out.ports {
		if p == ports {
			h.ports = uint16(i)
			return
		}
	}
	h.ports = uint16(len(b.out.ports))
	b.out.ports = append(b.out.ports, ports)
}

// enter keeps an address of a host, unless the host has it already.
func (b *builder) enter(e entry) {
	mask := uint32(len(b.seen) - 1)
	i := uint32(maphash.String(seed, e.addr)) & mask
	for ; b.seen[i] != 0; i = (i + 1) & mask {
		if o := &b.entries[b.seen[i]-1]; o.addr == e.addr {
			if o.host == e.host {
				return
			}
			e.copy, b.shared = true, true
		}
	}
	b.entries = append(b.entries, e)
	b.seen[i] = uint32(len(b.entries))
	if len(e.addr) == 4 {
		b.next4[e.host] += 4
	} else {
		b.next6[e.host] += 16
	}
}

// place lays the addresses out, grouped by host.
func (b *builder) place() {
	var a4, a6 uint32
	for i := range b.out.hosts {
		b.out.hosts[i].a4, b.out.hosts[i].a6 = a4, a6
		b.next4[i], a4 = a4, a4+b.next4[i]
		b.next6[i], a6 = a6, a6+b.next6[i]
	}
	b.out.hosts = append(b.out.hosts, host{label: uint32(len(b.labels)), a4: a4, a6: a6})
	v4, v6 := make([]byte, a4), make([]byte, a6)
	var all4, all6 strings.Builder
	for _, e := range b.entries {
		into, next, all := v4, &b.next4[e.host], &all4
		if len(e.addr) == 16 {
			into, next, all = v6, &b.next6[e.host], &all6
		}
		copy(into[*next:], e.addr)
		*next += uint32(len(e.addr))
		if b.shared && !e.copy {
			all.WriteString(e.addr)
		}
	}
	b.out.v4, b.out.v6 = string(v4), string(v6)
	b.out.all4, b.out.all6 = b.out.v4, b.out.v6
	if b.shared {
		b.out.all4, b.out.all6 = all4.String(), all6.String()
	}
}

// shrink makes the table of hosts again in the size that they need: with two families a host has several endpoints.
func (b *builder) shrink(size int) {
	b.out.table = make([]uint32, size)
	mask := uint32(size - 1)
	for id := range b.out.hosts[:len(b.out.hosts)-1] {
		i := hashHost(b.labelOf(uint32(id)), b.out.hosts[id].cluster) & mask
		for ; b.out.table[i] != 0; i = (i + 1) & mask {
		}
		b.out.table[i] = uint32(id) + 1
	}
}

// dashed names an endpoint without hostname by its address (N15). A label may not begin or end in a dash.
func dashed(addr string) string {
	a, _ := netip.AddrFromSlice([]byte(addr))
	s := strings.Map(func(r rune) rune {
		if r == '.' || r == ':' {
			return '-'
		}
		return r
	}, a.String())
	if s[0] == '-' {
		s = "0" + s
	}
	if s[len(s)-1] == '-' {
		s += "0"
	}
	return s
}
