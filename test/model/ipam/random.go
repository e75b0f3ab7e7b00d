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
	// Small ones, so that they fill; some overlap, some hold nothing, some cannot be counted out.
	prefixes = parse("10.0.0.0/30", "10.0.0.0/29", "10.0.0.0/28", "10.0.0.8/29", "10.0.0.16/29", "10.0.0.9/32", "10.0.0.10/31",
		"fd00::/126", "fd00::/125", "fd00::4/126", "fd00::8/125", "fd00::/64", "fd00::5/128")
	families = [][]corev1.IPFamily{nil, {v4}, {v4}, {v6}, {v4, v6}, {v6, v4}}
)

func parse(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// Random is an input in which room is short, and everything that can be in the way is.
func Random(r *rand.Rand) Input {
	in := Input{
		Mode: pick(r, ipam.ModeShared, ipam.ModePreferred, ipam.ModePreferred, ipam.ModeExclusive, ipam.ModeExclusive),
		Now:  start.Add(time.Hour),
	}
	for i := range r.IntN(6) {
		in.Ranges = append(in.Ranges, ipam.Range{
			Name: fmt.Sprintf("r%d", i), Prefix: pick(r, prefixes...), State: ipam.State(max(0, r.IntN(8)-4)),
			Use: pick(r, ipam.Ordinary, ipam.Shared, ipam.Exclusive, ipam.Exclusive),
		})
	}
	owners := 1 + r.IntN(12)
	owner := func() ipam.Owner {
		return ipam.Owner{Namespace: pick(r, "a", "b"), Name: fmt.Sprintf("s%d", r.IntN(owners))}
	}
	for range r.IntN(10) {
		in.Held = append(in.Held, ipam.Held{Owner: owner(), Address: address(r), Foreign: r.IntN(4) == 0})
	}
	for range r.IntN(6) {
		q := ipam.Quarantined{Address: address(r), Until: start.Add(time.Duration(r.IntN(120)) * time.Minute)}
		if len(in.Held) > 0 && r.IntN(2) == 0 { // of what is held
			q.Address = pick(r, in.Held...).Address
		}
		in.Quarantined = append(in.Quarantined, q)
	}
	seen := map[ipam.Owner]bool{}
	for range r.IntN(2 * owners) {
		w := ipam.Wanted{Owner: owner(), Families: pick(r, families...), Since: start.Add(time.Duration(r.IntN(4)) * time.Second)}
		for range r.IntN(3) {
			w.Previous = append(w.Previous, address(r))
		}
		if !seen[w.Owner] {
			in.Wanted = append(in.Wanted, w)
		}
		seen[w.Owner] = true
	}
	return in
}

func address(r *rand.Rand) netip.Addr {
	if r.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(26))})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(r.IntN(18))})
}

// RandomCarving is an input in which blocks are short and ranges are in the way.
func RandomCarving(r *rand.Rand) ipam.Carving {
	in := ipam.Carving{BitsV4: pick(r, 26, 28, 30), BitsV6: pick(r, 122, 124), Own: map[string][]netip.Prefix{}}
	for range r.IntN(4) {
		in.Pools = append(in.Pools, pick(r, parse("10.0.0.0/24", "10.0.0.128/25", "10.0.1.0/27", "255.255.255.0/25", "fd00::/120", "fd00::80/122", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/121")...))
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
		if k := (ipam.Known{Member: member(), Prefix: prefix(), For: pick(r, "services", "pods")}); !known[k] {
			in.Known, known[k] = append(in.Known, k), true
			if k.For == "services" {
				in.Own[k.Member] = append(in.Own[k.Member], k.Prefix)
			}
		}
	}
	asked := map[string]bool{}
	for range r.IntN(8) {
		a := ipam.Ask{Member: member(), Family: pick(r, v4, v6), Blocks: r.IntN(4), Since: start.Add(time.Duration(r.IntN(3)) * time.Second)}
		if !asked[a.Member+string(a.Family)] {
			in.Asks = append(in.Asks, a)
		}
		asked[a.Member+string(a.Family)] = true
	}
	return in
}
