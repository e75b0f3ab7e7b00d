package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

var (
	v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	start  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func parse(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// RandomCarving is an input in which blocks are short and ranges are in the way.
func RandomCarving(r *rand.Rand) ipam.Carving {
	in := ipam.Carving{BitsV4: pick(r, 26, 28, 30), BitsV6: pick(r, 122, 124)}
	for range r.IntN(4) {
		in.Pools = append(
			in.Pools,
			pick(
				r,
				parse(
					"10.0.0.0/24",
					"10.0.0.128/25",
					"10.0.1.0/26",
					"255.255.255.0/25",
					"fd00::/120",
					"fd00::80/122",
					"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/121",
				)...),
		)
	}
	prefix := func() netip.Prefix {
		a := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(256))})
		if r.IntN(2) == 0 {
			a = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(r.IntN(256))})
		}
		return netip.PrefixFrom(a, a.BitLen()-r.IntN(7)).Masked()
	}
	member := func() string { return fmt.Sprintf("m%d", r.IntN(5)) }
	blocks := map[netip.Prefix]bool{}
	for range r.IntN(5) {
		if p := prefix(); !blocks[p] {
			in.Granted, blocks[p] = append(in.Granted, ipam.Grant{Member: member(), Prefix: p}), true
		}
	}
	known := map[ipam.Known]bool{}
	for range r.IntN(6) {
		if k := (ipam.Known{Member: member(), Prefix: prefix(), Use: pick(r, "services", "pods")}); !known[k] {
			in.Known, known[k] = append(in.Known, k), true
		}
	}
	asked := map[string]bool{}
	for range r.IntN(8) {
		a := ipam.Ask{
			Member: member(),
			Family: pick(r, v4, v6),
			Blocks: r.IntN(4),
			Since:  start.Add(time.Duration(r.IntN(3)) * time.Second),
		}
		if !asked[a.Member+string(a.Family)] {
			in.Asks = append(in.Asks, a)
		}
		asked[a.Member+string(a.Family)] = true
	}
	return in
}
