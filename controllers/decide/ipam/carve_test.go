package ipam

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

var (
	v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	now    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func TestBlocksOverlapNeitherEachOtherNorKnownRanges(t *testing.T) {
	in := Carving{
		Pools:  []netip.Prefix{prefix("10.0.0.0/22"), prefix("fd00::/48")},
		BitsV4: 24,
		BitsV6: 64,
		Known: []Known{
			{Member: "eu", Prefix: prefix("10.0.0.128/25"), Use: "pods"},
			{Member: "us", Prefix: prefix("10.0.2.7/32"), Use: "services"},
		},
		Asks: []Ask{
			{Member: "us", Family: v4, Blocks: 2, Since: now},
			{Member: "eu", Family: v4, Blocks: 2, Since: now.Add(time.Second)},
			{Member: "eu", Family: v6, Blocks: 1, Since: now},
		},
	}
	got := Carve(in)
	want := []Grant{{"eu", prefix("fd00::/64")}, {"us", prefix("10.0.1.0/24")}, {"eu", prefix("10.0.3.0/24")}}
	if !slices.Equal(got.Grants, want) {
		t.Errorf("%v, want %v", got.Grants, want)
	}
	if len(got.Refused) != 2 || !errors.Is(got.Refused[0].Err, ErrFull) {
		t.Errorf("second blocks come after first ones, and are refused when nothing is free: %+v", got.Refused)
	}
}

func TestABlockInUseNeverShrinks(t *testing.T) {
	in := Carving{
		Pools:   []netip.Prefix{prefix("10.0.0.0/16")},
		BitsV4:  28,
		Granted: []Grant{{"eu", prefix("10.0.0.0/24")}, {"eu", prefix("172.16.0.0/24")}},
		Asks:    []Ask{{Member: "eu", Family: v4, Blocks: 2}, {Member: "us", Family: v4, Blocks: 1}},
	}
	if got := Carve(in); !slices.Equal(got.Grants, []Grant{{"us", prefix("10.0.1.0/28")}}) {
		t.Errorf("%+v", got)
	}
}

func TestBlocksOfAFamilyWithoutAPool(t *testing.T) {
	got := Carve(Carving{
		Pools: []netip.Prefix{prefix("fd00::/64")}, BitsV4: 24, Asks: []Ask{{Member: "eu", Family: v4, Blocks: 2}},
	})
	if len(got.Grants) > 0 || len(got.Refused) != 1 || errors.Is(got.Refused[0].Err, ErrFull) ||
		!strings.Contains(got.Refused[0].Err.Error(), "no pool is of IPv4; add one") {
		t.Errorf("%+v", got)
	}
}

// TestV6FreeBlocksCanBeCut: FreeBlocks says how many there are to be cut.
func TestV6FreeBlocksCanBeCut(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for n := range 500 {
		pool, family, most := prefix("10.1.0.0/20"), v4, 32
		if n%2 == 1 {
			pool, family, most = prefix("fd00:1::ff00/116"), v6, 128
			pool = pool.Masked()
		}
		length := pool.Bits() + random.IntN(7)
		var taken []netip.Prefix
		for range random.IntN(5) {
			bytes := pool.Addr().AsSlice()
			bytes[len(bytes)-2] |= byte(random.IntN(32)) // half of them lie outside
			bytes[len(bytes)-1] = byte(random.IntN(256))
			a, _ := netip.AddrFromSlice(bytes)
			taken = append(taken, netip.PrefixFrom(a, min(most, pool.Bits()-1+random.IntN(12))))
		}
		said, found := FreeBlocks(pool, taken, length), uint64(0)
		for before := slices.Clone(taken); ; found++ {
			p, err := allocate(
				[]netip.Prefix{pool},
				clusterset.Outermost(taken),
				map[netip.Prefix]netip.Prefix{},
				family,
				length,
			)
			if err != nil {
				taken = before
				break
			}
			taken = append(taken, p)
		}
		if said != found {
			t.Fatalf(
				"pool %s, taken %v: FreeBlocks of /%d says %d, and %d can be cut",
				pool,
				taken,
				length,
				said,
				found,
			)
		}
	}
}

func TestV6FreeBlocksOfLargePools(t *testing.T) {
	for _, c := range []struct {
		pool, taken string
		length      int
		want        uint64
	}{
		{"fd00::/48", "fd00:0:0:1::/64", 112, math.MaxUint64},
		{"fd00::/48", "fd00::/16", 112, 0},
		{"fd00::/47", "fd00:0:0:1::/64", 112, math.MaxUint64},
		{"fd00::/48", "fd00:0:0:1::/64", 64, 1<<16 - 1},
		{"fd00::/49", "fd00::1/128", 112, 1<<63 - 1},
		{"0.0.0.0/0", "255.255.255.255/32", 8, 255},
		{"::/0", "ffff::/16", 16, 1<<16 - 1},
		{"10.0.0.0/24", "10.0.0.0/8", 26, 0},
		{"10.0.0.0/24", "fd00::/8", 26, 4},
	} {
		if got := FreeBlocks(prefix(c.pool), []netip.Prefix{prefix(c.taken)}, c.length); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
