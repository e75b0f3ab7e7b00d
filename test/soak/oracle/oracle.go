// Package oracle classifies DNS answers of a clusterset in trouble. It is told what was published when, what was in
// trouble when, and what was seen of the members' Leases; an answer is right if it follows from these by the text
// (docs/spec/SPEC.md T1, T3, I2, I6, S3;
// DESIGN.md §7), and not by how the product comes to it:
//
// - Fail static: of what a cluster published, a member answers with some state; never with one that was not
// published, and never with
//
//	one older than it has answered with before.
//
// - In quiet it answers with the latest: Converge after that was published and everything on its way was in order.
// - Endpoints of another cluster may be missing only after that was silent for longer than Dead while the hub was
// there, must be when it
//
//	  was silent for Gone, and come back with it; imports and their VIPs stay.
//	- A VIP is what it was at first.
//
// All times are the caller's; there is no clock here.
package oracle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds are what is promised.
type Bounds struct {
	Renew    time.Duration // from one Lease renewal to the next
	Dead     time.Duration // silence after which endpoints may go
	Gone     time.Duration // silence after which they must have gone
	Hold     bool          // nobody goes while most are silent together
	Converge time.Duration // for everything to follow, once all is in order
}

// Hub is what is in trouble where it is not a member: its name for Trouble and Healed. A member's link to the hub
// is Link.
const Hub = "the hub"

// Link is a member's way to the hub, for Trouble and Healed.
func Link(member string) string { return "link of " + member }

// Oracle is told and asked by many.
type Oracle struct {
	mu       sync.Mutex
	bounds   Bounds
	members  []string
	names    map[string]*name
	owner    map[string]string // of an address: name and cluster
	trouble  map[string]*trouble
	servers  map[string]*trouble // CoreDNS
	leases   map[string]*lease
	away     []span // of the hub's API server
	gone     []time.Duration
	returned []time.Duration
}

// name is a Service under one name in all clusters.
type name struct {
	vips   map[string]string   // by member; nil: headless
	shown  map[string]bool     // members that have answered with the VIP
	values map[string][]*value // by cluster that publishes
	// index of the oldest value that a member may still go by, as to whether it is exported
	exports  map[pair]int
	seen     map[pair]int // and as to its addresses: an export and its endpoints travel each by itself
	answered map[string]last
	missing  map[pair]bool      // endpoints of a cluster by reason of its death
	again    map[pair]time.Time // when they were back, as long as its Lease is not known to be renewed
}

// pair is who answers with whose.
type pair struct{ member, cluster string }

// value is a state of one cluster's share in a name. Nothing published is a state, too.
type value struct {
	exported  bool
	addresses []string  // sorted; none of a VIP
	from, due time.Time // written at the earliest; known to be written, zero if not yet
}

type last struct {
	at        time.Time
	code      string
	addresses []string
}

// trouble is how many faults are at work on something, and when the last one ended.
type trouble struct {
	active int
	ended  time.Time
}

func (t *trouble) clear() time.Time {
	switch {
	case t == nil:
		return time.Time{}
	case t.active > 0:
		return future
	}
	return t.ended
}

var future = time.Unix(1<<40, 0)

// New knows members, and nothing of what they publish.
func New(b Bounds, members ...string) *Oracle {
	return &Oracle{
		bounds:  b,
		members: members,
		names:   map[string]*name{},
		owner:   map[string]string{},
		trouble: map[string]*trouble{},
		servers: map[string]*trouble{},
		leases:  map[string]*lease{},
	}
}

// Bound changes what is promised, as when the ClusterSet's Lease is another.
func (o *Oracle) Bound(b Bounds) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bounds = b
}

func (o *Oracle) name(of string) *name {
	n := o.names[of]
	if n == nil {
		n = &name{
			shown:    map[string]bool{},
			values:   map[string][]*value{},
			exports:  map[pair]int{},
			seen:     map[pair]int{},
			answered: map[string]last{},
			missing:  map[pair]bool{},
			again:    map[pair]time.Time{},
		}
		o.names[of] = n
		for _, c := range o.members {
			n.values[c] = []*value{{due: time.Unix(0, 1)}}
		}
	}
	return n
}

// VIP tells a name's address in a member, which it keeps.
func (o *Oracle) VIP(of, member, address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.name(of)
	if n.vips == nil {
		n.vips = map[string]string{}
	}
	n.vips[member] = address
}

// Publish is called right before a cluster's share in a name is written, as exported with these addresses or as not
// exported. What it
// returns is called when it is known to be written.
func (o *Oracle) Publish(
	of, cluster string,
	exported bool,
	addresses []string,
	at time.Time,
) (written func(time.Time)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.name(of)
	v := &value{exported: exported, addresses: slices.Sorted(slices.Values(addresses)), from: at}
	n.values[cluster] = append(n.values[cluster], v)
	for _, a := range addresses {
		o.owner[of+" "+a] = cluster
	}
	return func(at time.Time) {
		o.mu.Lock()
		defer o.mu.Unlock()
		v.due = at
	}
}

// Trouble begins with something: a member, Link of one, or Hub.
func (o *Oracle) Trouble(with string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	begin(o.trouble, with)
}

// Healed ends it.
func (o *Oracle) Healed(with string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end(o.trouble, with, at)
}

// Down is called before a member's CoreDNS is ended.
func (o *Oracle) Down(member string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	begin(o.servers, member)
}

// Up is called when it says that it is ready.
func (o *Oracle) Up(member string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end(o.servers, member, at)
}

func begin(in map[string]*trouble, what string) {
	if in[what] == nil {
		in[what] = &trouble{}
	}
	in[what].active++
}

func end(in map[string]*trouble, what string, at time.Time) {
	t := in[what]
	t.active--
	t.ended = at
}

// clear is since when everything between a cluster and a member's answers is in order; far in the future where it
// is not. Within a cluster
// neither the hub nor the link to it matters: local exports appear locally.
func (o *Oracle) clear(member, cluster string) time.Time {
	on := []string{member}
	if cluster != member {
		on = append(on, cluster, Link(cluster), Link(member), Hub)
	}
	var since time.Time
	for _, what := range on {
		if t := o.trouble[what].clear(); t.After(since) {
			since = t
		}
	}
	// A CoreDNS that came back reads everything first.
	if t := o.servers[member].clear(); t.After(since) {
		since = t
	}
	return since
}

// required is the index of the value that the member must have by now.
func (o *Oracle) required(n *name, p pair, sent time.Time) int {
	if sent.Sub(o.clear(p.member, p.cluster)) < o.bounds.Converge {
		return 0
	}
	values := n.values[p.cluster]
	for i := len(values) - 1; i > 0; i-- {
		if !values[i].due.IsZero() && sent.Sub(values[i].due) >= o.bounds.Converge {
			return i
		}
	}
	return 0
}

// Behind are the members' answers, among those asked after since, that are not what is published now, or that have
// not been asked yet.
func (o *Oracle) Behind(since time.Time) (out []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for of, n := range o.names {
		for _, m := range o.members {
			a := n.answered[m]
			code, addresses := n.now(m)
			if !a.at.After(since) || a.code != code || !slices.Equal(a.addresses, addresses) {
				out = append(
					out,
					fmt.Sprintf(
						"%s in %s: %s %v, and published is %s %v",
						of,
						m,
						a.code,
						a.addresses,
						code,
						addresses,
					),
				)
			}
		}
	}
	slices.Sort(out)
	return out
}

// now is what a member answers when nothing is in trouble.
func (n *name) now(member string) (code string, addresses []string) {
	code = NameError
	for _, values := range n.values {
		if v := values[len(values)-1]; v.exported {
			code = NoError
			addresses = append(addresses, v.addresses...)
		}
	}
	if code == NoError && n.vips != nil {
		addresses = []string{n.vips[member]}
	}
	slices.Sort(addresses)
	return code, addresses
}

// Exporters are the clusters that export a name now, and their addresses.
func (o *Oracle) Exporters(of string) map[string][]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string][]string{}
	for c, values := range o.name(of).values {
		if v := values[len(values)-1]; v.exported {
			out[c] = v.addresses
		}
	}
	return out
}

func join(addresses []string) string {
	if len(addresses) == 0 {
		return "nothing"
	}
	return strings.Join(addresses, " ")
}

// AddressOf is a name's VIP in a member.
func (o *Oracle) AddressOf(of, member string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.name(of).vips[member]
}
