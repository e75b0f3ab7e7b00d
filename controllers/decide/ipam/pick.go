package ipam

import (
	"hash/fnv"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// maxSize limits how many addresses of one range are given out.
const maxSize = 1 << 40

// Request asks for an address of each of Families, which the derived Service lacks.
type Request struct {
	Import   *mcsv1beta1.ServiceImport
	Service  types.NamespacedName // the derived Service
	Families []corev1.IPFamily
	// Lost lists the addresses that this import cannot get, each with the reason.
	Lost map[netip.Addr]error
}

// Previous returns the address of this family in the import's spec, or an invalid one.
func (q *Request) Previous(f corev1.IPFamily) netip.Addr {
	for _, text := range q.Import.Spec.IPs {
		if a, err := netip.ParseAddr(text); err == nil && Family(a) == f {
			return a
		}
	}
	return netip.Addr{}
}

// Lose records that this import cannot get an address.
func (q *Request) Lose(a netip.Addr, why error) {
	if q.Lost == nil {
		q.Lost = map[netip.Addr]error{}
	}
	q.Lost[a] = why
}

// Waited returns for how long the import has not been Ready. A clock that was set back since then ends no wait later.
func (q *Request) Waited(now time.Time) time.Duration {
	for _, c := range q.Import.Status.Conditions {
		if c.Type == string(mcsv1beta1.ServiceImportConditionReady) && c.Status != "True" {
			return now.Sub(c.LastTransitionTime.Time).Abs()
		}
	}
	return 0
}

// Pick returns an address of the ranges that is not taken, or false after that many probes, or if all are taken. It
// starts at a hash of key, so that a retry starts at the same address.
func Pick(ranges []netip.Prefix, key string, probes int, taken func(netip.Addr) bool) (netip.Addr, bool) {
	hash := fnv.New64a()
	hash.Write([]byte(key))
	start := hash.Sum64()
	for i := range ranges {
		p := ranges[(start+uint64(i))%uint64(len(ranges))]
		size := min(size(p), maxSize)
		for n := range size {
			if probes--; probes < 0 {
				return netip.Addr{}, false
			}
			if a := nth(p, 1+(start%size+n)%size); !taken(a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}
