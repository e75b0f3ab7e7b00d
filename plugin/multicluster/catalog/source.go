package catalog

import (
	"cmp"
	"maps"
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

func (h *host) addrs(wanted Wanted) string { return *h.family(width(wanted)) }

// family returns the addresses that have a width in octets.
func (h *host) family(width int) *string {
	if width == 16 {
		return &h.v6
	}
	return &h.v4
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
	before := func(a, b string) int { return cmp.Or(endpoints[b]-endpoints[a], cmp.Compare(a, b)) }
	zones := slices.SortedFunc(maps.Keys(endpoints), before)
	for _, zone := range zones[:min(len(zones), maxZones)] {
		in := build(from, t, endpoints[zone], func(of string) bool { return of == zone })
		in.byName = nil // nothing below the name of a zone has a name
		s.zones[zone] = in
	}
	return s
}

// builder makes the hosts of a source. Each host first gets a place in the order of slices; groups are made at the
// end, when the ports of all are known.
type builder struct {
	topology Topology
	hosts    []host
	ranks    []uint8
	ports    []*portSet // of each host
	byName   map[string]int32
	sets     map[portSet]*portSet
	seen     map[hostAddr]bool // of hosts that have several addresses of a family, all but the first
	packed   map[family][]byte // the addresses of such a host
}

// portSet is a chain of distinct lists of ports. Hosts with endpoints in the same slices share one. nil is empty.
type portSet struct {
	others *portSet
	list   Ports
}

type hostAddr struct {
	host int32
	addr string
}

type family struct {
	host  int32
	width int
}

// build makes the source of the endpoints in the wanted zones, n of them.
func build(from []*Slice, t Topology, n int, wanted func(zone string) bool) *source {
	b := builder{
		topology: t, byName: make(map[string]int32, n),
		hosts: make([]host, 0, n), ranks: make([]uint8, 0, n), ports: make([]*portSet, 0, n),
		sets: make(map[portSet]*portSet), seen: make(map[hostAddr]bool), packed: make(map[family][]byte),
	}
	for _, slice := range from {
		b.add(slice, true, wanted)
	}
	if t.Zone != "" { // other zones have another rank
		for _, slice := range from {
			b.add(slice, false, wanted)
		}
	}
	for of, packed := range b.packed {
		*b.hosts[of.host].family(of.width) = string(packed)
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
	b.hosts, b.ranks, b.ports = append(b.hosts, host{label: label}), append(b.ranks, rank), append(b.ports, nil)
	return id
}

// addPorts adds a list to the ports of a host.
func (b *builder) addPorts(id int32, list Ports) {
	for set := b.ports[id]; set != nil; set = set.others {
		if set.list == list {
			return
		}
	}
	with := portSet{b.ports[id], list}
	set := b.sets[with]
	if set == nil {
		set = &portSet{with.others, list}
		b.sets[with] = set
	}
	b.ports[id] = set
}

// lists returns the lists of a set.
func (s *portSet) lists() (lists []Ports) {
	for ; s != nil; s = s.others {
		lists = append(lists, s.list)
	}
	slices.Reverse(lists)
	return lists
}

// addAddr adds an address to a host, unless the host has it. The first of a family stays where the slice has it.
func (b *builder) addAddr(id int32, addr string) {
	first := b.hosts[id].family(len(addr))
	switch {
	case *first == "":
		*first = addr
		return
	case *first == addr || b.seen[hostAddr{id, addr}]:
		return
	}
	b.seen[hostAddr{id, addr}] = true
	of := family{id, len(addr)}
	if b.packed[of] == nil {
		b.packed[of] = []byte(*first)
	}
	b.packed[of] = append(b.packed[of], addr...)
}

// group lays the hosts out group by group.
func (b *builder) group(s *source) {
	type key struct {
		rank  uint8
		ports *portSet
	}
	at := make(map[key]int)
	of := make([]int, len(b.hosts))
	var sizes []int
	for i, ports := range b.ports {
		k := key{b.ranks[i], ports}
		g, ok := at[k]
		if !ok {
			g = len(s.groups)
			at[k] = g
			made := &group{cluster: s.cluster, rank: k.rank, ports: ports.lists()}
			s.groups, sizes = append(s.groups, made), append(sizes, 0)
		}
		of[i] = g
		sizes[g]++
	}
	s.hosts = make([]host, len(b.hosts))
	next, begin := make([]int, len(sizes)), 0
	for g, n := range sizes {
		s.groups[g].hosts, next[g] = s.hosts[begin:begin+n:begin+n], begin
		begin += n
	}
	for i, h := range b.hosts {
		id := next[of[i]]
		next[of[i]]++
		s.hosts[id] = h
		if h.label != "" && id != i {
			b.byName[h.label] = int32(id)
		}
	}
}

// find looks a host up by its label.
func (s *source) find(label string) *host {
	if id, ok := s.byName[label]; ok && label != "" {
		return &s.hosts[id]
	}
	return nil
}
