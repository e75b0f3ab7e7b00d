package catalog

import (
	"slices"
	"strings"
	"sync"
)

// part is what one source cluster adds to a headless, by rank: its ready endpoints, grouped by host name. Hosts stand in the order
// of (slice, place in the slice), the addresses of each host together. It is immutable, and goes from one headless to the next
// until a slice of its cluster changes.
type part struct {
	cluster string
	rank    uint8    // Topology.rank of all its endpoints
	from    []*Slice // that it was made of
	ports   []Ports  // the distinct port lists of its slices, each that of some host, or in its union
	unions  []union  // of the ports of hosts that stand in several slices
	least   []uint8  // length of the shortest label of the hosts that have just these ports, then just these unions; 0: none has a name
	labels  string   // host labels, each behind its length octet; length 0: hosts without a name
	hosts   []host   // one more than there are hosts: the last holds the ends
	v4, v6  string   // addresses, grouped by host
	table   []uint32 // open addressing by hash of label: index of host + 1
}

// host is an offset record: its addresses run to the same offset of the next one.
type host struct {
	label  uint32 // into labels
	a4, a6 uint32 // into v4 and v6, in octets
	ports  uint32 // into ports, and past them into unions
}

// named tells whether some host has a name that fits: what has none is below no cluster's.
func (p *part) named(room int) bool {
	return slices.ContainsFunc(p.least, func(label uint8) bool { return p.fits(label, room) })
}

// fits tells whether "<label>.<clusterid>." has its place in a room of octets.
func (p *part) fits(label uint8, room int) bool {
	return label > 0 && int(label)+1+len(p.cluster)+1 <= room
}

// anyPorts tells whether the ports of a host whose name fits are such.
func (p *part) anyPorts(room int, such func(union) bool) bool {
	if p.fits(maxLabel, room) { // nearly always: who has them need not be asked
		return slices.ContainsFunc(p.ports, func(ports Ports) bool { return such(union{first: ports}) })
	}
	for at, label := range p.least {
		if p.fits(label, room) && such(p.portsAt(at)) {
			return true
		}
	}
	return false
}

// find looks a host up by its label.
func (p *part) find(label string) (id int, ok bool) {
	mask := uint32(len(p.table) - 1)
	for i := hashLabel(label) & mask; p.table[i] != 0; i = (i + 1) & mask {
		if id := int(p.table[i] - 1); p.label(id) == label {
			return id, true
		}
	}
	return 0, false
}

func (p *part) label(id int) string { return labelAt(p.labels, p.hosts[id].label) }

// labelAt is the label whose length stands at an offset.
func labelAt(labels string, at uint32) string { return labels[at+1:][:labels[at]] }

func (p *part) addrs(id int, wanted Wanted) string {
	if wanted == V6 {
		return p.v6[p.hosts[id].a6:p.hosts[id+1].a6]
	}
	return p.v4[p.hosts[id].a4:p.hosts[id+1].a4]
}

// union is the ports of a host.
func (p *part) union(id int) union { return p.portsAt(int(p.hosts[id].ports)) }

func (p *part) portsAt(at int) union {
	if at < len(p.ports) {
		return union{first: p.ports[at]}
	}
	return p.unions[at-len(p.ports)]
}

func (p *part) same(o *part) bool {
	return p == o || p.cluster == o.cluster && p.rank == o.rank && p.labels == o.labels && p.v4 == o.v4 && p.v6 == o.v6 &&
		slices.Equal(p.ports, o.ports) && slices.Equal(p.hosts, o.hosts) &&
		slices.EqualFunc(p.unions, o.unions, func(u, v union) bool { return u.first == v.first && slices.Equal(u.more, v.more) })
}

// builder makes parts. What it works with is kept for the next one; what it makes is not.
type builder struct {
	*part  // being made
	text   strings.Builder
	hashes []uint32       // of the labels of hosts
	ids    []uint32       // host of each endpoint
	sets   []set          // of lists of ports
	merged map[set]uint32 // what merge gave for this part
	seen   []uint32       // open addressing: in group, by hash of host and address, index of entry + 1; in once, by hash of address, where it stands + 1, or itself if IPv4
	zero   bool           // 0.0.0.0 is in seen
	// What group works with: next4 and next6 count the octets of each host's addresses, then point to where its next address goes.
	entries      []entry
	next4, next6 []uint32
}

// set is of lists of ports: another one, and a list that is not in it. While a part is made, the ports of a host are an index of a
// list, or that of a set with the bit isSet.
type set struct{ rest, list uint32 }

const isSet = 1 << 31

// entry is one distinct (host, address). The address is that of a slice, from an offset on.
type entry struct{ slice, off, host uint32 }

var builders = sync.Pool{New: func() any { return new(builder) }}

func newPart(from []*Slice, rank uint8) *part {
	b := builders.Get().(*builder)
	defer builders.Put(b)
	endpoints, octets := 0, 0
	for _, s := range from {
		endpoints += s.count()
		octets += len(s.labels)
	}
	p := &part{cluster: from[0].cluster, rank: rank, from: slices.Clone(from), hosts: make([]host, 0, endpoints+1), table: make([]uint32, tableSize(endpoints))}
	b.part = p
	b.text.Grow(octets)
	b.hashes, b.ids = b.hashes[:0], b.ids[:0]
	for _, s := range from {
		b.add(s)
	}
	b.unite()
	p.labels = b.text.String()
	b.measure()
	if len(p.hosts) == endpoints && !slices.ContainsFunc(from, func(s *Slice) bool { return s.width != from[0].width }) {
		b.line()
	} else {
		b.group()
		b.fit()
	}
	b.part, b.text, b.sets, b.merged = nil, strings.Builder{}, nil, nil // not to hold what is gone
	return p
}

// add takes in one slice: each endpoint finds or makes its host.
func (b *builder) add(s *Slice) {
	at := uint32(0)
	for _, hash := range s.hashes {
		label, ports := labelAt(s.labels, at), s.ports
		at += 1 + uint32(len(label))
		if label == "" {
			ports = noPorts // what has no name is no target
		}
		list := b.list(ports)
		id, found := b.host(label, hash, list)
		if h := &b.hosts[id]; found && h.ports != list { // its ports are the union
			h.ports = b.merge(h.ports, list)
		}
		b.ids = append(b.ids, id)
	}
}

// list finds or makes the index of a list of ports.
func (b *builder) list(ports Ports) uint32 {
	i := slices.Index(b.ports, ports)
	if i < 0 {
		i = len(b.ports)
		b.ports = append(b.ports, ports)
	}
	return uint32(i)
}

// merge is the set that has a list, too. Hosts of the same slices have the same one.
func (b *builder) merge(ports, list uint32) uint32 {
	both := set{ports, list}
	id, ok := b.merged[both]
	if !ok {
		if id = ports; !b.in(list, ports) {
			id = isSet | uint32(len(b.sets))
			b.sets = append(b.sets, both)
		}
		if b.merged == nil {
			b.merged = make(map[set]uint32)
		}
		b.merged[both] = id
	}
	return id
}

func (b *builder) in(list, ports uint32) bool {
	for ; ports&isSet != 0; ports = b.sets[ports&^isSet].rest {
		if b.sets[ports&^isSet].list == list {
			return true
		}
	}
	return ports == list
}

// unite makes the unions of the sets that hosts were left with, not of those on the way there.
func (b *builder) unite() {
	if len(b.sets) == 0 {
		return
	}
	made := make(map[uint32]uint32)
	for i := range b.hosts {
		ports := b.hosts[i].ports
		if ports&isSet == 0 {
			continue
		}
		at, ok := made[ports]
		if !ok {
			at = uint32(len(b.ports) + len(b.unions))
			b.unions = append(b.unions, b.lists(ports))
			made[ports] = at
		}
		b.hosts[i].ports = at
	}
}

// measure takes down the shortest labels.
func (b *builder) measure() {
	b.least = make([]uint8, len(b.ports)+len(b.unions))
	for _, h := range b.hosts {
		label := b.labels[h.label]
		if least := &b.least[h.ports]; label > 0 && (*least == 0 || label < *least) {
			*least = label
		}
	}
}

// lists is the union of a set, in the order of slices.
func (b *builder) lists(ports uint32) union {
	var more []Ports
	for ; ports&isSet != 0; ports = b.sets[ports&^isSet].rest {
		more = append(more, b.ports[b.sets[ports&^isSet].list])
	}
	slices.Reverse(more)
	return union{first: b.ports[ports], more: slices.Clip(more)}
}

// host finds or makes the host of a label.
func (b *builder) host(label string, hash, ports uint32) (id uint32, found bool) {
	mask := uint32(len(b.table) - 1)
	i := hash & mask
	for ; b.table[i] != 0; i = (i + 1) & mask {
		id := b.table[i] - 1
		if b.hashes[id] == hash && labelAt(b.text.String(), b.hosts[id].label) == label {
			return id, true
		}
	}
	id = uint32(len(b.hosts))
	b.table[i] = id + 1
	b.hosts, b.hashes = append(b.hosts, host{label: uint32(b.text.Len()), ports: ports}), append(b.hashes, hash)
	b.text.WriteByte(byte(len(label)))
	b.text.WriteString(label)
	return id, false
}

// line lays the addresses out where all are of one family and each has a host of its own.
func (b *builder) line() {
	w := uint32(b.from[0].width)
	var all strings.Builder
	all.Grow(len(b.hosts) * int(w))
	for _, s := range b.from {
		all.WriteString(s.addrs)
	}
	b.hosts = append(b.hosts, host{})
	if w == 4 {
		b.v4 = all.String()
		for i := range b.hosts {
			b.hosts[i].a4 = uint32(i) * w
		}
		return
	}
	b.v6 = all.String()
	for i := range b.hosts {
		b.hosts[i].a6 = uint32(i) * w
	}
}

// group lays the addresses out, grouped by host, each once in a group.
func (b *builder) group() {
	b.entries, b.seen = b.entries[:0], cleared(b.seen, tableSize(len(b.ids)))
	b.next4, b.next6 = cleared(b.next4, len(b.hosts)), cleared(b.next6, len(b.hosts))
	n := 0
	for i, s := range b.from {
		for off := 0; off < len(s.addrs); off += int(s.width) {
			b.enter(entry{uint32(i), uint32(off), b.ids[n]})
			n++
		}
	}
	var a4, a6 uint32
	for i := range b.hosts {
		b.hosts[i].a4, b.hosts[i].a6 = a4, a6
		b.next4[i], a4 = a4, a4+b.next4[i]
		b.next6[i], a6 = a6, a6+b.next6[i]
	}
	b.hosts = append(b.hosts, host{a4: a4, a6: a6})
	v4, v6 := make([]byte, a4), make([]byte, a6)
	for i := range b.entries {
		e := &b.entries[i]
		addr, into, next := b.addr(e), v4, &b.next4[e.host]
		if len(addr) == 16 {
			into, next = v6, &b.next6[e.host]
		}
		copy(into[*next:], addr)
		*next += uint32(len(addr))
	}
	b.v4, b.v6 = string(v4), string(v6)
}

func (b *builder) addr(e *entry) string {
	s := b.from[e.slice]
	return s.addrs[e.off:][:s.width]
}

// enter keeps an address of a host, unless the host has it already.
func (b *builder) enter(e entry) {
	addr := b.addr(&e)
	mask := uint32(len(b.seen) - 1)
	i := hashAddr(addr, e.host) & mask
	for ; b.seen[i] != 0; i = (i + 1) & mask {
		if o := &b.entries[b.seen[i]-1]; o.host == e.host && b.addr(o) == addr {
			return
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

// fit takes what was made for a host per endpoint down to the size that the hosts need.
func (b *builder) fit() {
	b.hosts, b.labels = slices.Clone(b.hosts), strings.Clone(b.labels)
	size := tableSize(len(b.hosts) - 1)
	if size == len(b.table) {
		return
	}
	b.table = make([]uint32, size)
	for id, hash := range b.hashes {
		i := hash & uint32(size-1)
		for ; b.table[i] != 0; i = (i + 1) & uint32(size-1) {
		}
		b.table[i] = uint32(id) + 1
	}
}
