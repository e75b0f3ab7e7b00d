package catalog

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"sync"
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

// builder joins slices into a headless. What it works with is kept for the next one; what it makes is not.
type builder struct {
	slices   []*Slice
	clusters []string
	ports    []Ports
	labels   []byte
	hosts    []host
	table    []uint32 // as that of headless
	entries  []entry
	seen     []uint32 // open addressing by hash of address: index of entry + 1
	// next4 and next6 count the octets of each host's addresses, then point to where its next address goes.
	next4, next6 []uint32
	shared       bool // some address belongs to two hosts
}

// entry is one distinct (host, address). The address is that of a slice, from an offset on.
type entry struct {
	slice uint32
	off   uint32
	host  uint32
	copy  bool // the address stands in an earlier entry, of another host
}

var builders = sync.Pool{New: func() any { return new(builder) }}

// join makes the headless of slices that ready gave.
func join(from []*Slice) *headless {
	b := builders.Get().(*builder)
	defer builders.Put(b)
	b.reset(from)
	for i := range from {
		b.add(uint32(i))
	}
	h := &headless{
		clusters: slices.Clone(b.clusters),
		ports:    slices.Clone(b.ports),
		labels:   string(b.labels),
	}
	b.place(h)
	h.hosts = slices.Clone(b.hosts)
	h.table = b.tableOf(h)
	b.slices = nil // not to hold what is gone
	return h
}

func (b *builder) reset(from []*Slice) {
	total := 0
	for _, s := range from {
		total += s.Len()
	}
	b.slices, b.shared = from, false
	b.clusters, b.ports, b.labels, b.hosts, b.entries = b.clusters[:0], b.ports[:0], b.labels[:0], b.hosts[:0], b.entries[:0]
	b.next4, b.next6 = b.next4[:0], b.next6[:0]
	b.table, b.seen = cleared(b.table, tableSize(total)), cleared(b.seen, tableSize(total))
}

// cleared is a table of n zeroes, in the memory of the old one if that suffices.
func cleared(old []uint32, n int) []uint32 {
	if cap(old) < n {
		return make([]uint32, n)
	}
	old = old[:n]
	clear(old)
	return old
}

// tableSize is the power of two that holds n entries with a quarter of it free.
func tableSize(n int) int { return 1 << bits.Len(uint(n+n/3)) }

// add takes in one slice: each endpoint finds or makes its host.
func (b *builder) add(index uint32) {
	s := b.slices[index]
	hosts, w := s.hosts, int(s.width)
	for i, off := 0, 0; off < len(s.addrs); i, off = i+1, off+w {
		var label string
		switch n := hosts[0]; n {
		case 0:
			label, hosts = dashed(s.addrs[off:off+w]), hosts[1:]
		case nameless:
			hosts = hosts[1:]
		default:
			label, hosts = hosts[1:1+n], hosts[1+n:]
		}
		id := b.host(label, s.hashes[i], b.cluster(s.cluster, label))
		if label != "" {
			b.expose(id, s.ports)
		}
		b.enter(entry{slice: index, off: uint32(off), host: id})
	}
}

// cluster finds or makes the index of the cluster that slices stand at. What has no name is below no cluster's.
func (b *builder) cluster(id, label string) uint16 {
	if label == "" {
		return noIndex
	}
	if n := len(b.clusters); n == 0 || b.clusters[n-1] != id {
		b.clusters = append(b.clusters, id)
	}
	return uint16(len(b.clusters) - 1)
}

// host finds or makes the host of a label, with its hash, in a cluster.
func (b *builder) host(label string, hash uint32, cluster uint16) uint32 {
	mask := uint32(len(b.table) - 1)
	i := hashHost(hash, cluster) & mask
	for ; b.table[i] != 0; i = (i + 1) & mask {
		if id := b.table[i] - 1; b.hosts[id].cluster == cluster && string(b.label(id)) == label {
			return id
		}
	}
	id := uint32(len(b.hosts))
	b.table[i] = id + 1
	b.hosts = append(b.hosts, host{label: uint32(len(b.labels)), cluster: cluster, ports: noIndex})
	b.labels = append(b.labels, label...)
	b.next4, b.next6 = append(b.next4, 0), append(b.next6, 0)
	return id
}

const noIndex = ^uint16(0)

func (b *builder) label(id uint32) []byte {
	end := len(b.labels)
	if int(id)+1 < len(b.hosts) {
		end = int(b.hosts[id+1].label)
	}
	return b.labels[b.hosts[id].label:end]
}

// hashLabel hashes a host label; hashHost mixes the cluster in.
func hashLabel(label string) uint32 { return uint32(maphash.String(seed, label)) }

func hashHost(label uint32, cluster uint16) uint32 { return label + uint32(cluster)*0x9e3779b1 }

// hashAddr hashes a packed address.
func hashAddr(addr string) uint32 {
	var h uint64
	for ; len(addr) >= 4; addr = addr[4:] {
		h = (h ^ uint64(addr[0])<<24 ^ uint64(addr[1])<<16 ^ uint64(addr[2])<<8 ^ uint64(addr[3])) * 0x9e3779b97f4a7c15
	}
	return uint32(h >> 32)
}

// expose gives a host the ports of a slice that names it: their union, where several do.
func (b *builder) expose(id uint32, ports Ports) {
	h := &b.hosts[id]
	if h.ports != noIndex {
		ports = b.ports[h.ports].merge(ports)
	}
	for i, p := range b.ports {
		if p == ports {
			h.ports = uint16(i)
			return
		}
	}
	h.ports = uint16(len(b.ports))
	b.ports = append(b.ports, ports)
}

func (b *builder) addr(e *entry) string {
	s := b.slices[e.slice]
	return s.addrs[e.off : e.off+uint32(s.width)]
}

// enter keeps an address of a host, unless the host has it already.
func (b *builder) enter(e entry) {
	addr := b.addr(&e)
	mask := uint32(len(b.seen) - 1)
	i := hashAddr(addr) & mask
	for ; b.seen[i] != 0; i = (i + 1) & mask {
		if o := &b.entries[b.seen[i]-1]; b.addr(o) == addr {
			if o.host == e.host {
				return
			}
			e.copy, b.shared = true, true
		}
	}
	b.entries = append(b.entries, e)
	b.seen[i] = uint32(len(b.entries))
	if len(addr) == 4 {
		b.next4[e.host] += 4
	} else {
		b.next6[e.host] += 16
	}
}

// place lays the addresses out, grouped by host.
func (b *builder) place(h *headless) {
	var a4, a6 uint32
	for i := range b.hosts {
		b.hosts[i].a4, b.hosts[i].a6 = a4, a6
		b.next4[i], a4 = a4, a4+b.next4[i]
		b.next6[i], a6 = a6, a6+b.next6[i]
	}
	b.hosts = append(b.hosts, host{label: uint32(len(b.labels)), a4: a4, a6: a6})
	v4, v6 := make([]byte, a4), make([]byte, a6)
	var all4, all6 strings.Builder
	for i := range b.entries {
		e := &b.entries[i]
		addr := b.addr(e)
		into, next, all := v4, &b.next4[e.host], &all4
		if len(addr) == 16 {
			into, next, all = v6, &b.next6[e.host], &all6
		}
		copy(into[*next:], addr)
		*next += uint32(len(addr))
		if b.shared && !e.copy {
			all.WriteString(addr)
		}
	}
	h.v4, h.v6 = string(v4), string(v6)
	h.all4, h.all6 = h.v4, h.v6
	if b.shared {
		h.all4, h.all6 = all4.String(), all6.String()
	}
}

// tableOf is the table of hosts, in the size that they need: with two families a host has several endpoints.
func (b *builder) tableOf(h *headless) []uint32 {
	size := tableSize(len(h.hosts) - 1)
	if size == len(b.table) {
		return slices.Clone(b.table)
	}
	table := make([]uint32, size)
	for id := range h.hosts[:len(h.hosts)-1] {
		i := hashHost(hashLabel(h.label(id)), h.hosts[id].cluster) & uint32(size-1)
		for ; table[i] != 0; i = (i + 1) & uint32(size-1) {
		}
		table[i] = uint32(id) + 1
	}
	return table
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
