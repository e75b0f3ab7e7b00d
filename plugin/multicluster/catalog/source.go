package catalog

import (
	"cmp"
	"slices"
)

// source is what one source cluster adds to a headless Service. It is immutable, and goes from one Service to the
// next until a slice of its cluster changes.
type source struct {
	cluster string
	from    []*Slice
	hosts   []host // group by group
	groups  []*group
	byName  map[string]int32 // label → index of hosts
	zones   map[string]*source
}

// group is the hosts of a source that have the same rank and the same ports, in the order of (slice, place in the
// slice).
type group struct {
	cluster string
	rank    uint8   // Topology.rank of the best endpoint of each host
	ports   []Ports // the distinct lists of the hosts' slices; none for hosts without a name, which are no targets
	hosts   []host
}

// host is one name with its distinct addresses, packed. With a preferred zone those of its endpoints are first.
type host struct {
	label  string // "" for a host without a name
	v4, v6 string
}

func (h *host) addrs(wanted Wanted) string {
	if wanted == V6 {
		return h.v6
	}
	return h.v4
}

// same reports whether two sources give the same answers.
func (s *source) same(o *source) bool {
	return s == o || s.cluster == o.cluster && slices.EqualFunc(s.groups, o.groups, (*group).same)
}

func (g *group) same(o *group) bool {
	return g.rank == o.rank && slices.Equal(g.ports, o.ports) && slices.Equal(g.hosts, o.hosts)
}

// maxZones is how many zones of one source cluster have names (N12): those with the most endpoints. Clouds have
// fewer; the bound is for an exporter that gives each endpoint a zone of its own.
const maxZones = 16

// newSource makes the source of the slices of one cluster, in the order of their names.
func newSource(from []*Slice, t Topology) *source {
	n := 0
	for _, slice := range from {
		n += slice.Len()
	}
	s := build(from, t, n, func(string) bool { return true })
	if !t.Zonal {
		return s
	}
	endpoints := make(map[string]int)
	for _, slice := range from {
		for _, zone := range slice.zones {
			if _, known := endpoints[zone]; known || len(endpoints) < 64*maxZones {
				endpoints[zone]++
			}
		}
	}
	delete(endpoints, "")
	s.zones = make(map[string]*source)
	for _, zone := range largest(endpoints) {
		in := build(from, t, endpoints[zone], func(of string) bool { return of == zone })
		in.byName = nil // nothing below the name of a zone has a name
		s.zones[zone] = in
	}
	return s
}

// largest are the zones with the most endpoints, up to maxZones.
func largest(endpoints map[string]int) (zones []string) {
	before := func(a, b string) int { return cmp.Or(endpoints[b]-endpoints[a], cmp.Compare(a, b)) }
	for zone := range endpoints {
		if i, _ := slices.BinarySearchFunc(zones, zone, before); i < maxZones {
			zones = slices.Insert(zones, i, zone)
			zones = zones[:min(len(zones), maxZones)]
		}
	}
	return zones
}

// builder makes the hosts of a source. Each host first gets a place in the order of slices; groups are made at the
// end, when the ports of all are known.
type builder struct {
	topology Topology
	hosts    []host
	ranks    []uint8
	lists    []uint32 // of each host: index of combinations
	byName   map[string]int32
	growing  map[growing]*packer
	// combinations of lists of ports, and the way from each to the one that has another list too.
	combinations [][]Ports
	with         map[extended]uint32
}

type growing struct {
	host  int32
	width int
}

// packer collects the addresses of a host that has several of a family.
type packer struct {
	packed []byte
	seen   map[string]bool
}

type extended struct {
	combination uint32
	ports       Ports
}

// build makes the source of the endpoints in the wanted zones, n of them.
func build(from []*Slice, t Topology, n int, wanted func(zone string) bool) *source {
	b := builder{
		topology: t, byName: make(map[string]int32, n), combinations: [][]Ports{nil},
		hosts: make([]host, 0, n), ranks: make([]uint8, 0, n), lists: make([]uint32, 0, n),
	}
	for _, slice := range from {
		b.add(slice, true, wanted)
	}
	if t.Zone != "" { // other zones have another rank
		for _, slice := range from {
			b.add(slice, false, wanted)
		}
	}
	for key, p := range b.growing {
		if h := &b.hosts[key.host]; key.width == 4 {
			h.v4 = string(p.packed)
		} else {
			h.v6 = string(p.packed)
		}
	}
	s := &source{cluster: from[0].cluster, from: from, byName: b.byName}
	b.group(s)
	return s
}

// add takes the endpoints of a slice that are in the preferred zone, or those that are not. Without a preferred zone
// all are.
func (b *builder) add(s *Slice, near bool, wanted func(zone string) bool) {
	labels := s.labels
	for i := range s.Len() {
		label := labels[1 : 1+labels[0]]
		labels = labels[1+len(label):]
		zone := s.zone(i)
		if (b.topology.Zone == "" || zone == b.topology.Zone) != near || !wanted(zone) {
			continue
		}
		id := b.host(label, b.topology.rank(s.cluster, zone))
		if label != "" && s.ports != noPorts {
			b.addPorts(id, s.ports)
		}
		b.addAddr(id, s.addrs[i*s.width:][:s.width])
	}
}

// host finds or makes the host of a label. Its first endpoint decides its rank. Each endpoint without a name is a host.
func (b *builder) host(label string, rank uint8) int32 {
	if id, ok := b.byName[label]; ok {
		return id
	}
	id := int32(len(b.hosts))
	if label != "" {
		b.byName[label] = id
	}
	b.hosts, b.ranks, b.lists = append(b.hosts, host{label: label}), append(b.ranks, rank), append(b.lists, 0)
	return id
}

// addPorts adds a list to the ports of a host. Hosts of the same slices share the result.
func (b *builder) addPorts(id int32, ports Ports) {
	old := b.lists[id]
	if slices.Contains(b.combinations[old], ports) {
		return
	}
	if last := b.combinations[len(b.combinations)-1]; old == 0 && len(last) == 1 && last[0] == ports { // most
		b.lists[id] = uint32(len(b.combinations) - 1)
		return
	}
	next, ok := b.with[extended{old, ports}]
	if !ok {
		next = uint32(len(b.combinations))
		b.combinations = append(b.combinations, append(slices.Clip(b.combinations[old]), ports))
		if b.with == nil {
			b.with = make(map[extended]uint32)
		}
		b.with[extended{old, ports}] = next
	}
	b.lists[id] = next
}

// addAddr adds an address to a host, unless the host has it. The first of a family stays where the slice has it.
func (b *builder) addAddr(id int32, addr string) {
	h := &b.hosts[id]
	of := &h.v4
	if len(addr) == 16 {
		of = &h.v6
	}
	if *of == "" {
		*of = addr
		return
	}
	if *of == addr {
		return
	}
	p := b.growing[growing{id, len(addr)}]
	if p == nil {
		if b.growing == nil {
			b.growing = make(map[growing]*packer)
		}
		p = &packer{packed: []byte(*of), seen: map[string]bool{*of: true}}
		b.growing[growing{id, len(addr)}] = p
	}
	if p.seen[addr] {
		return
	}
	p.seen[addr] = true
	p.packed = append(p.packed, addr...)
}

// group lays the hosts out group by group.
func (b *builder) group(s *source) {
	type key struct {
		rank  uint8
		lists uint32
	}
	at := make(map[key]int)
	of := make([]int, len(b.hosts))
	var sizes []int
	for i, lists := range b.lists {
		k := key{b.ranks[i], lists}
		g, ok := at[k]
		if !ok {
			g = len(s.groups)
			at[k] = g
			made := &group{cluster: s.cluster, rank: k.rank, ports: b.combinations[lists]}
			s.groups, sizes = append(s.groups, made), append(sizes, 0)
		}
		of[i] = g
		sizes[g]++
	}
	s.hosts = make([]host, len(b.hosts))
	begin := 0
	starts := make([]int, len(sizes))
	for g, n := range sizes {
		s.groups[g].hosts, starts[g] = s.hosts[begin:begin+n:begin+n], begin
		begin += n
	}
	places := make([]int, len(sizes))
	for i, h := range b.hosts {
		at, g := of[i], s.groups[of[i]]
		g.hosts[places[at]] = h
		if h.label != "" {
			if id := starts[at] + places[at]; id != i {
				b.byName[h.label] = int32(id)
			}
		}
		places[at]++
	}
}

// find looks a host up by its label.
func (s *source) find(label string) *host {
	if id, ok := s.byName[label]; ok && label != "" {
		return &s.hosts[id]
	}
	return nil
}
