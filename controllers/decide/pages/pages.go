// Package pages decides in which groups an export's endpoints are published: in its record while they are few, else in
// numbered pages (DESIGN §2). Each event of the hub goes to every member, so a change of one endpoint should change one
// small object. Endpoints therefore stay in the group in which they are. It is pure.
package pages

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// Limits say how much one object takes.
type Limits struct {
	Endpoints int // of a group, and of a record; a paged export returns to its record with half of it
	Groups    int // of a record
}

// OfHub are the limits of the hub's CRDs.
var OfHub = Limits{Endpoints: 100, Groups: 8}

// Arrange returns the groups for the endpoints of an export's slices. was are the groups that are published now, by
// number, without a family if the hub has lost one: what is still there keeps its place, so that most groups stay
// equal. There is a group, perhaps without endpoints, if there is a slice. Arrange changes neither.
func (l Limits) Arrange(was, slicesOf []hubv1alpha1.EndpointGroup) []hubv1alpha1.EndpointGroup {
	if len(slicesOf) == 0 {
		return nil
	}
	all := withKinds(slices.Concat(was, slicesOf))
	before, all := all[:len(was)], all[len(was):]
	groups := l.keep(before, all)
	lost := slices.ContainsFunc(was, func(g hubv1alpha1.EndpointGroup) bool { return g.AddressType == "" })
	n := l.needed(all)
	// Nothing moves into a lost group: it is written last.
	if !lost && (len(groups) > 2*n || len(groups) > n && n <= l.Groups && count(slicesOf) <= l.Endpoints) {
		groups = l.compact(groups)
	}
	newest := map[string]string{} // by kind: the time of the latest trigger
	for i := range all {
		if at, k := all[i].LastChangeTriggerTime, all[i].kind; later(at, newest[k]) {
			newest[k] = at
		}
	}
	out := make([]hubv1alpha1.EndpointGroup, len(groups))
	for i := range groups {
		out[i] = groups[i].EndpointGroup
		out[i].LastChangeTriggerTime = newest[groups[i].kind]
		if i < len(was) && same(&was[i], &out[i]) {
			out[i].LastChangeTriggerTime = was[i].LastChangeTriggerTime
		}
	}
	return out
}

// Inline reports whether groups belong into the record. paged says that they are in pages now.
func (l Limits) Inline(groups []hubv1alpha1.EndpointGroup, paged bool) bool {
	return l.fits(groups) && (!paged || count(groups) <= l.Endpoints/2)
}

// Head returns as much of groups as a record takes, for an export whose pages the hub refuses.
func (l Limits) Head(groups []hubv1alpha1.EndpointGroup) []hubv1alpha1.EndpointGroup {
	out, left := slices.Clone(groups[:min(len(groups), l.Groups)]), l.Endpoints
	for i := range out {
		out[i].Endpoints = out[i].Endpoints[:min(len(out[i].Endpoints), left)]
		left -= len(out[i].Endpoints)
	}
	return out
}

func (l Limits) fits(groups []hubv1alpha1.EndpointGroup) bool {
	return len(groups) <= l.Groups && count(groups) <= l.Endpoints
}

func count(groups []hubv1alpha1.EndpointGroup) (n int) {
	for i := range groups {
		n += len(groups[i].Endpoints)
	}
	return n
}

// needed returns into how few groups the endpoints fit.
func (l Limits) needed(all []typed) (n int) {
	endpoints := map[string]int{} // by kind
	for i := range all {
		endpoints[all[i].kind] += len(all[i].Endpoints)
	}
	for _, have := range endpoints {
		n += (have + l.Endpoints - 1) / l.Endpoints
	}
	return max(n, 1)
}

// same reports whether two groups differ at most in the time of what triggered their last change.
func same(a, b *hubv1alpha1.EndpointGroup) bool {
	return a.AddressType == b.AddressType && equality.Semantic.DeepEqual(a.Ports, b.Ports) &&
		equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints)
}

// typed is a group with its kind, which takes long to tell if it has many ports.
type typed struct {
	hubv1alpha1.EndpointGroup
	kind string // of groups whose endpoints may share one
}

// withKinds returns groups with their kinds. Equal kinds are one string, which is fast to compare.
func withKinds(groups []hubv1alpha1.EndpointGroup) []typed {
	out, texts := make([]typed, len(groups)), map[string]string{}
	for i := range groups {
		k := kind(&groups[i])
		if texts[k] == "" {
			texts[k] = k
		}
		out[i] = typed{groups[i], texts[k]}
	}
	return out
}

func kind(g *hubv1alpha1.EndpointGroup) string {
	ports, _ := json.Marshal(g.Ports) // strings and numbers cannot fail
	return string(g.AddressType) + string(ports)
}

// identity tells the endpoints of a group apart. Pods of the network of their host share an address.
type identity struct{ address, hostname, pod string }

func identityOf(e *hubv1alpha1.Endpoint) identity { return identity{e.Address, e.Hostname, e.PodName} }

// keep returns the groups of was with what all say of their endpoints; new endpoints fill places that have become free,
// and then further groups. A group with nothing left gets what is new.
func (l Limits) keep(was, all []typed) []typed {
	wanted := map[string]map[identity][]hubv1alpha1.Endpoint{} // by kind
	for i := range all {
		of := wanted[all[i].kind]
		if of == nil {
			of = map[identity][]hubv1alpha1.Endpoint{}
			wanted[all[i].kind] = of
		}
		for _, e := range all[i].Endpoints {
			of[identityOf(&e)] = append(of[identityOf(&e)], e)
		}
	}
	out := make([]typed, len(was))
	for i := range was {
		out[i] = renamed(&was[i], all).empty()
		of := wanted[out[i].kind]
		for j := range was[i].Endpoints {
			id := identityOf(&was[i].Endpoints[j])
			if left := of[id]; len(left) > 0 && len(out[i].Endpoints) < l.Endpoints {
				at := 0
				if len(left) > 1 { // another group may have the other
					at = max(0, slices.IndexFunc(left, func(e hubv1alpha1.Endpoint) bool {
						return equality.Semantic.DeepEqual(e, was[i].Endpoints[j])
					}))
				}
				out[i].Endpoints, of[id] = append(out[i].Endpoints, left[at]), slices.Delete(left, at, at+1)
			}
		}
	}
	rest := slices.Clone(all)
	for i := range rest {
		of := wanted[rest[i].kind]
		rest[i] = rest[i].empty()
		for j := range all[i].Endpoints {
			id := identityOf(&all[i].Endpoints[j])
			if left := of[id]; len(left) > 0 { // of several that are equal, not the one that has a place
				rest[i].Endpoints, of[id] = append(rest[i].Endpoints, left[0]), left[1:]
			}
		}
	}
	return l.pack(out, rest)
}

// empty returns a group of the same kind without endpoints.
func (g *typed) empty() typed {
	return typed{hubv1alpha1.EndpointGroup{AddressType: g.AddressType, Ports: g.Ports}, g.kind}
}

// renamed returns the one of all whose kind a group gets: the first of its own kind, else the first with an endpoint of
// the group. Ports may have other names or numbers now, and endpoints should not move between pages for that.
func renamed(was *typed, all []typed) *typed {
	if i := slices.IndexFunc(all, func(g typed) bool { return g.kind == was.kind }); i >= 0 {
		return &all[i]
	}
	have := map[identity]bool{}
	for i := range was.Endpoints {
		have[identityOf(&was.Endpoints[i])] = true
	}
	for i := range all {
		if slices.ContainsFunc(all[i].Endpoints, func(e hubv1alpha1.Endpoint) bool { return have[identityOf(&e)] }) {
			return &all[i]
		}
	}
	return was
}

// pack adds the endpoints of all to groups: to those of their kind with a free place, then to empty ones, then to new
// ones. Groups that have no endpoints then are left out at the end. If no group has any, the first kind of all has one.
// It changes groups.
func (l Limits) pack(groups, all []typed) []typed {
	for i := range all {
		for _, e := range all[i].Endpoints {
			at := l.placeFor(all[i].kind, groups)
			if at == len(groups) {
				groups = append(groups, typed{})
			}
			if len(groups[at].Endpoints) == 0 {
				groups[at] = all[i].empty()
			}
			groups[at].Endpoints = append(groups[at].Endpoints, e)
		}
	}
	for len(groups) > 0 && len(groups[len(groups)-1].Endpoints) == 0 {
		groups = groups[:len(groups)-1]
	}
	if len(groups) == 0 {
		groups = []typed{all[0].empty()}
	}
	for i := range groups {
		if groups[i].AddressType == "" { // a page that the hub lost, and that nothing fills
			groups[i].AddressType = all[0].AddressType
		}
	}
	return groups
}

// compact fills free places with endpoints of later groups. Pages are written in their order: an endpoint is in its new
// page before it leaves the old one. It changes groups.
func (l Limits) compact(groups []typed) []typed {
	for i := len(groups) - 1; i > 0; i-- {
		if i < len(groups) { // else groups without endpoints went
			last := groups[i]
			groups = append(l.pack(slices.Clip(groups[:i]), []typed{last}), groups[i+1:]...)
		}
	}
	return groups
}

// placeFor returns the group for another endpoint of a kind; len(groups) for a new one.
func (l Limits) placeFor(kind string, groups []typed) int {
	empty := len(groups)
	for i := range groups {
		switch n := len(groups[i].Endpoints); {
		case n == 0:
			empty = min(empty, i)
		case n < l.Endpoints && groups[i].kind == kind:
			return i
		}
	}
	return empty
}

// later reports whether a is a later time than b; "" is none.
func later(a, b string) bool {
	x, err := time.Parse(time.RFC3339Nano, a)
	if err != nil {
		return false
	}
	y, err := time.Parse(time.RFC3339Nano, b)
	return err != nil || x.After(y) || x.Equal(y) && strings.Compare(a, b) > 0
}
