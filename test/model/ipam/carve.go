package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// Carve is what the hub grants (DESIGN §5, SPEC V2), block by block and range by range.
func Carve(in ipam.Carving) ipam.Carved {
	var out ipam.Carved
	var taken []netip.Prefix
	for _, g := range in.Granted {
		taken = append(taken, g.Prefix)
	}
	for _, k := range in.Known {
		taken = append(taken, k.Prefix)
	}
	open := map[string]ipam.Ask{}
	var blocks []turn
	for _, a := range in.Asks {
		open[a.Member+string(a.Family)] = a
		have := 0
		for _, g := range in.Granted {
			if g.Member == a.Member && of(g.Prefix.Addr(), a.Family) {
				have++
			}
		}
		for n := have; n < a.Blocks; n++ {
			blocks = append(blocks, turn{n, a})
		}
	}
	slices.SortFunc(blocks, func(a, b turn) int {
		return cmp.Or(
			cmp.Compare(a.nth, b.nth),
			a.ask.Since.Compare(b.ask.Since),
			cmp.Compare(a.ask.Member, b.ask.Member),
			cmp.Compare(a.ask.Family, b.ask.Family),
		)
	})
	for _, b := range blocks {
		if _, waits := open[b.ask.Member+string(b.ask.Family)]; !waits {
			continue
		}
		p, err := first(in, taken, b.ask.Family)
		if err != nil {
			delete(open, b.ask.Member+string(b.ask.Family))
			out.Refused = append(out.Refused, ipam.AskRefused{Member: b.ask.Member, Family: b.ask.Family, Err: err})
			continue
		}
		taken = append(taken, p)
		out.Grants = append(out.Grants, ipam.Grant{Member: b.ask.Member, Prefix: p})
	}
	return out
}

type turn struct {
	nth int
	ask ipam.Ask
}

// first tries every block of every pool.
func first(in ipam.Carving, taken []netip.Prefix, f corev1.IPFamily) (netip.Prefix, error) {
	bits := in.BitsV4
	if f == corev1.IPv6Protocol {
		bits = in.BitsV6
	}
	why := errors.New("no pool is of the family")
	for _, pool := range in.Pools {
		if !of(pool.Addr(), f) {
			continue
		}
		why = ipam.ErrFull
		for a := pool.Masked().Addr(); pool.Contains(a); a = a.Next() {
			p := netip.PrefixFrom(a, bits)
			if p.Masked().Addr() == a && !slices.ContainsFunc(taken, p.Overlaps) {
				return p, nil
			}
		}
	}
	return netip.Prefix{}, why
}

// TryCarve says what is wrong with what carve makes of this input, in either order, and with what it leaves open
// once it was followed.
func TryCarve(in ipam.Carving, carve func(ipam.Carving) ipam.Carved) error {
	want := Carve(in)
	backwards := in
	backwards.Granted, backwards.Known, backwards.Asks = slices.Clone(in.Granted), slices.Clone(in.Known), slices.Clone(
		in.Asks,
	)
	slices.Reverse(backwards.Granted)
	slices.Reverse(backwards.Known)
	slices.Reverse(backwards.Asks)
	for _, given := range []ipam.Carving{in, backwards} {
		got := carve(given)
		if !slices.Equal(got.Grants, want.Grants) ||
			!slices.EqualFunc(got.Refused, want.Refused, func(a, b ipam.AskRefused) bool {
				return a.Member == b.Member && a.Family == b.Family &&
					errors.Is(a.Err, ipam.ErrFull) == errors.Is(b.Err, ipam.ErrFull)
			}) {
			return fmt.Errorf("input %+v\nwant %+v\ngot  %+v", given, want, got)
		}
	}
	after := in
	after.Granted = append(slices.Clone(in.Granted), want.Grants...)
	if again := carve(after); len(again.Grants) > 0 || len(again.Refused) != len(want.Refused) {
		return fmt.Errorf("grants that were written do not settle: %+v\ninput %+v", again, in)
	}
	return nil
}

// of reports whether an address is of a family.
func of(a netip.Addr, f corev1.IPFamily) bool { return a.Is4() == (f == corev1.IPv4Protocol) }
