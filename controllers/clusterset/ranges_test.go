package clusterset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

func TestV2BlocksWanted(t *testing.T) {
	for _, b := range []BlocksWanted{{}, {1, 0}, {0, 1}, {2, 1}, {MaxBlocksWanted, MaxBlocksWanted}} {
		if got, err := ParseBlocks(b.String()); err != nil || got != b {
			t.Errorf("%q: %v, %v", b, got, err)
		}
	}
	if got, err := ParseBlocks("ipv6=3"); err != nil || got != (BlocksWanted{IPv6: 3}) {
		t.Errorf("one family: %v, %v", got, err)
	}
	for _, value := range []string{
		"", " ", "2", "ipv4", "ipv4=", "ipv4=x", "ipv4=-1", "ipv4=+1", "ipv4=01", "ipv4=65", "ipv4=1.5", "ipv5=1",
		"IPv4=1", "=1", "ipv4=1 ", " ipv4=1",
		"ipv4=1  ipv6=1", "ipv4=1,ipv6=1", "ipv4=1 ipv4=2", "ipv4=1 ipv6=1 x=1", "ipv4=99999999999999999999",
		"ipv4=1=1", "ipv4=1\n",
	} {
		if got, err := ParseBlocks(value); err == nil || got != (BlocksWanted{}) {
			t.Errorf("%q was taken for %v", value, got)
		}
	}
}

func TestV2RangesOfMembers(t *testing.T) {
	var ranges []netip.Prefix
	for _, text := range []string{"fd00:1::/108", "10.96.3.0/24", "10.244.0.7/16", "10.96.0.0/16", "10.96.0.0/16"} {
		ranges = append(ranges, netip.MustParsePrefix(text))
	}
	value, left := FormatRanges(ranges)
	if want := "10.96.0.0/16 10.244.0.0/16 fd00:1::/108"; value != want || left != nil {
		t.Errorf("%q and %v left, want %q", value, left, want)
	}
	if got, err := ParseRanges(value); err != nil || fmt.Sprint(got) != "["+value+"]" {
		t.Errorf("%v, %v", got, err)
	}
	if value, left := FormatRanges(nil); value != "" || left != nil {
		t.Errorf("%q, %v", value, left)
	}
	for _, value := range []string{
		" ", "10.0.0.0", "10.0.0.1/24", "10.0.0.0/24 ", "10.0.0.0/24  10.1.0.0/24", "10.0.0.0/24,10.1.0.0/24",
		"10.0.0.0/33", "10.0.0.0/024", "0.0.0.0/0",
		"10.0.0.0/7", "fd00::/8", "FD00::/48", "fd00:0::/48", "::ffff:10.0.0.0/120", "fe80::%eth0/64",
		"10.0.0.0/24 10.0.0.0/24", strings.Repeat("x", 2000),
	} {
		if got, err := ParseRanges(value); err == nil || got != nil {
			t.Errorf("%q was taken for %v", value, got)
		}
	}
}

// What does not fit is left out, the smallest first, and told; what is told can be read.
func TestV2RangesThatDoNotFit(t *testing.T) {
	v4, v6 := []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/7"),
		netip.MustParsePrefix("172.16.0.0/12"),
	}, []netip.Prefix{}
	for i := range 100 {
		v4 = append(v4, netip.MustParsePrefix(fmt.Sprintf("192.168.%d.0/24", 2*i)))
		v6 = append(v6, netip.MustParsePrefix(fmt.Sprintf("fd12:3456:789a:bcde:1111:2222:3333:%x00/120", 0x10+2*i)))
	}
	for name, ranges := range map[string][]netip.Prefix{"too many": v4, "too long": v6} {
		value, left := FormatRanges(ranges)
		got, err := ParseRanges(value)
		if err != nil || len(value) > inventoryv1alpha1.MaxPropertyValue || len(got)+len(left) != len(ranges) ||
			len(left) == 0 {
			t.Errorf("%s: %d told, %d left of %d: %v", name, len(got), len(left), len(ranges), err)
		}
		if name == "too many" && (!slices.Contains(got, v4[1]) || !slices.Contains(left, v4[0])) {
			t.Errorf("told are %v", got)
		}
	}
	if _, err := ParseRanges(strings.Repeat("10.0.0.0/8 ", MaxRanges) + "11.0.0.0/8"); err == nil {
		t.Error("too many ranges were taken")
	}
}
