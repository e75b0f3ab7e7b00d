// Package votes decides which endpoints of other members are withheld because too few members reach them (SPEC F4;
// DESIGN §7). The input is the vote of each live member. It is pure. Members are not trusted: a vote is validated and
// bounded in size, and one vote alone decides nothing.
package votes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Annotation on a member's Lease on the hub holds its Vote in JSON. It is written with a renewal, so it costs no
// extra write and is as old as the Lease.
const Annotation = "clusterset-dns.io/unreached"

// annotationAt is the renewTime that the vote belongs to. An older agent that does not vote renews the Lease and
// leaves both annotations.
const annotationAt = "clusterset-dns.io/unreached-at"

// Write puts the text of a Vote ("" for none) into a Lease that is being renewed.
func Write(lease *coordinationv1.Lease, text string) {
	if text == "" {
		delete(lease.Annotations, Annotation)
		delete(lease.Annotations, annotationAt)
		return
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, Annotation, text)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotationAt, renewal(lease))
}

// Read returns the text of the Vote that belongs to the last renewal of a Lease, or "".
func Read(lease *coordinationv1.Lease) string {
	if at := renewal(lease); at == "" || lease.Annotations[annotationAt] != at {
		return ""
	}
	return lease.Annotations[Annotation]
}

func renewal(lease *coordinationv1.Lease) string {
	if lease.Spec.RenewTime == nil {
		return ""
	}
	return lease.Spec.RenewTime.UTC().Format(metav1.RFC3339Micro)
}

// MaxSize of a Vote in its Annotation, in bytes. A Lease of that size is written every ten seconds.
const MaxSize = 16 << 10

// All stands for all addresses.
const All = "*"

// Vote is what one member does not reach: addresses or All by the name of a ServiceExportRecord, or All by cluster ID
// if it reaches no endpoint there. The name of a record has two more dots than a cluster ID.
type Vote map[string][]string

// Endpoint is one address of one record of a cluster.
type Endpoint struct{ Cluster, Record, Address string }

// Of returns the Vote of a member that probes these endpoints; down says which it does not reach. notProbed are
// endpoints of address families that this member lacks. Because of these it must not vote All.
func Of(down map[Endpoint]bool, notProbed []Endpoint) Vote {
	addresses, up := Vote{}, map[string]bool{} // up: records and clusters with an endpoint that may be reached
	clusters := map[string]string{}            // by record
	for e, is := range down {
		clusters[e.Record] = e.Cluster
		if is {
			addresses[e.Record] = append(addresses[e.Record], e.Address)
		} else {
			up[e.Record], up[e.Cluster] = true, true
		}
	}
	for _, e := range notProbed {
		up[e.Record], up[e.Cluster] = true, true
	}
	v := Vote{}
	for record, list := range addresses {
		switch cluster := clusters[record]; {
		case !up[cluster]:
			v[cluster] = []string{All}
		case !up[record]:
			v[record] = []string{All}
		default:
			slices.Sort(list)
			v[record] = slices.Compact(list)
		}
	}
	return v
}

// Includes reports whether v says that an endpoint is not reached.
func (v Vote) Includes(e Endpoint) bool {
	return len(v[e.Cluster]) > 0 || slices.Contains(v[e.Record], All) || slices.Contains(v[e.Record], e.Address)
}

// Text returns the value of Annotation, "" if everything is reached. If it would exceed MaxSize, the longest lists
// are left out, which counts as reached. left is how many were left out.
func (v Vote) Text() (text string, left int) {
	if len(v) == 0 {
		return "", 0
	}
	size := len("{}")
	fits := Vote{}
	for _, key := range slices.SortedFunc(maps.Keys(v), func(a, b string) int {
		return 2*(len(v[a])-len(v[b])) + strings.Compare(a, b)
	}) {
		entry := len(key) + len(`"":[],`)
		for _, address := range v[key] {
			entry += len(address) + len(`"",`)
		}
		if size+entry > MaxSize {
			left++
			continue
		}
		size += entry
		fits[key] = v[key]
	}
	out, _ := json.Marshal(fits) // strings cannot fail
	return string(out), left
}

// Parse returns the Vote in a text of another member, or an error if it is not valid.
func Parse(text string) (Vote, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), MaxSize)
	}
	var v Vote
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	for key, list := range v {
		if err := check(key, list); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func check(key string, list []string) error {
	cluster, record := key, false
	if parts := strings.SplitN(key, ".", 3); len(parts) == 3 {
		for _, label := range parts[:2] {
			if p := validation.IsDNS1123Label(label); len(p) > 0 {
				return fmt.Errorf("%q is not the name of a record: %s", key, p[0])
			}
		}
		cluster, record = parts[2], true
	}
	if err := clusterset.CheckID(cluster); err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	if len(list) == 1 && list[0] == All {
		return nil
	}
	if !record {
		return fmt.Errorf("%q: the list of a cluster must be *", key)
	}
	for _, address := range list {
		if _, err := netip.ParseAddr(address); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	return nil
}

// Ballot holds the votes of all live members.
type Ballot struct {
	Live []string        // IDs of the live members, including this one
	By   map[string]Vote // by member; only votes of live members count
	Own  string          // the member whose vote also decides alone, or ""
}

// Needed returns how many members must agree: more than half of the live ones, and at least two.
func (b *Ballot) Needed() int { return max(2, len(b.Live)/2+1) }

// Withheld returns the sorted addresses (or All) of a cluster's record that are withheld, and the members that voted
// so. The vote of the cluster itself does not count: it publishes the readiness of its endpoints.
func (b *Ballot) Withheld(cluster, record string) (addresses, who []string) {
	votes, by := map[string]int{}, map[string][]string{} // by address, or All
	for _, member := range b.Live {
		v := b.By[member]
		if member == cluster || len(v[cluster])+len(v[record]) == 0 {
			continue
		}
		weight := 1
		if member == b.Own {
			weight = b.Needed()
		}
		list := []string{All}
		if len(v[cluster]) == 0 && v[record][0] != All {
			list = slices.Compact(slices.Sorted(slices.Values(v[record])))
		}
		for _, address := range list {
			votes[address] += weight
			by[address] = append(by[address], member)
		}
	}
	if votes[All] >= b.Needed() {
		return []string{All}, sorted(by[All])
	}
	for address, n := range votes {
		if address != All && votes[All]+n >= b.Needed() {
			addresses, who = append(addresses, address), append(who, by[address]...)
		}
	}
	if addresses == nil {
		return nil, nil
	}
	return sorted(addresses), slices.Compact(sorted(append(who, by[All]...)))
}

func sorted(in []string) []string {
	slices.Sort(in)
	return in
}
