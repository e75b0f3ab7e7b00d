// Package votes decides which endpoints of other members count, where members look at each other's (SPEC F4; DESIGN §7). Pure: what each
// live member says it does not reach in; the addresses that are withheld out. A peer is not trusted: what it says is checked, its size is
// bounded, and alone it decides nothing.
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

// Annotation on a member's Lease on the hub is its Vote, in JSON. It is written with a renewal, so it costs no write, it is as old as the
// Lease, and the policy that lets only the member renew that lets only the member vote.
const Annotation = "clusterset-dns.io/unreached"

// annotationAt is the renewal that a Vote goes with. An agent of a version that does not vote leaves what the one before it said where it was,
// and renews on.
const annotationAt = "clusterset-dns.io/unreached-at"

// Say puts a Vote's text, "" for none, into a Lease as it is renewed.
func Say(lease *coordinationv1.Lease, text string) {
	if text == "" {
		delete(lease.Annotations, Annotation)
		delete(lease.Annotations, annotationAt)
		return
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, Annotation, text)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotationAt, renewal(lease))
}

// Said is the text of the Vote that goes with a Lease's last renewal, "" where none does.
func Said(lease *coordinationv1.Lease) string {
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

// MaxSize of a Vote in its Annotation, in octets: a Lease of that size is written every ten seconds.
const MaxSize = 16 << 10

// All stands for all addresses.
const All = "*"

// Vote is what one member does not reach: addresses (or All) by the name of a ServiceExportRecord; All by the id of a cluster of which
// nothing is reached. A record's name has two dots more than its cluster's id, so they cannot be confused.
type Vote map[string][]string

// Endpoint is one address of what one cluster exports.
type Endpoint struct{ Cluster, Record, Address string }

// Of is the Vote of a member that looks at these endpoints, each of which is down, or not. It does not look at those that are beyond its own
// families, and others do: All would speak of them, too.
func Of(down map[Endpoint]bool, beyond []Endpoint) Vote {
	addresses, up := Vote{}, map[string]bool{} // up: some of the record's, or the cluster's
	clusters := map[string]string{}            // by record
	for e, is := range down {
		clusters[e.Record] = e.Cluster
		if is {
			addresses[e.Record] = append(addresses[e.Record], e.Address)
		} else {
			up[e.Record], up[e.Cluster] = true, true
		}
	}
	for _, e := range beyond {
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

// Says tells whether v says that an endpoint is down.
func (v Vote) Says(e Endpoint) bool {
	return len(v[e.Cluster]) > 0 || slices.Contains(v[e.Record], All) || slices.Contains(v[e.Record], e.Address)
}

// Text is v in an Annotation, "" where all is reached. Of what has no room the record is left out, the longest lists first: what is not
// said to be down is not. left is how many records were.
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
	out, _ := json.Marshal(fits) // cannot fail: strings
	return string(out), left
}

// Parse is the only way from what a peer wrote to a Vote.
func Parse(text string) (Vote, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("%d octets are more than %d", len(text), MaxSize)
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
				return fmt.Errorf("%q names no record: %s", key, p[0])
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
		return fmt.Errorf("%q: of a cluster, only everything can be unreached", key)
	}
	for _, address := range list {
		if _, err := netip.ParseAddr(address); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	return nil
}

// Ballot is what the live members say.
type Ballot struct {
	Live []string        // ids of the members that count as alive, this one among them
	By   map[string]Vote // by member; those of others than the live ones do not count
	// Own is the member whose own view decides beside the majority's, "" for none.
	Own string
}

// Needed is how many must agree: more than half of the live members, and never one alone.
func (b *Ballot) Needed() int { return max(2, len(b.Live)/2+1) }

// Withheld are the addresses (or All) of a cluster's record that do not count, sorted, and who says so of some of them. A cluster says what it thinks of
// its own endpoints by their readiness: by publishing one as ready it speaks for it.
func (b *Ballot) Withheld(cluster, record string) (addresses, who []string) {
	said, by := map[string]int{}, map[string][]string{} // by address, or All
	for _, member := range b.Live {
		v := b.By[member]
		if member == cluster || len(v[cluster])+len(v[record]) == 0 {
			continue
		}
		votes := 1
		if member == b.Own {
			votes = b.Needed()
		}
		list := []string{All}
		if len(v[cluster]) == 0 && v[record][0] != All {
			list = slices.Compact(slices.Sorted(slices.Values(v[record])))
		}
		for _, address := range list {
			said[address] += votes
			by[address] = append(by[address], member)
		}
	}
	if said[All] >= b.Needed() {
		return []string{All}, sorted(by[All])
	}
	for address, votes := range said {
		if address != All && said[All]+votes >= b.Needed() {
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
