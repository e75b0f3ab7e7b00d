package model

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// fold gives the one form of a name in which names are compared: lower case (M1), no needless escapes, a final dot. It
// is
// false for what cannot be asked: no such question fits on the wire.
func fold(name string) (string, bool) {
	wire := make([]byte, 256)
	end, err := dns.PackDomainName(dns.Fqdn(name), wire, 0, nil, false)
	if err != nil {
		return "", false
	}
	plain, _, err := dns.UnpackDomainName(wire[:end], 0)
	if err != nil {
		return "", false
	}
	return dns.CanonicalName(plain), true
}

// isLabel says whether s, in lower case, is an RFC 1123 label. Underscores, wildcards and dots are not part of one
// (N18).
func isLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 {
		return false
	}
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		inner := i > 0 && i < len(s)-1
		if !letter && !(c == '-' && inner) {
			return false
		}
	}
	return true
}

// isClusterID is N14 and DESIGN §6: one label or two joined by a dot, at most 63 characters in all.
func isClusterID(id string) bool {
	labels := strings.Split(id, ".")
	if len(labels) > 2 || len(id) > 63 {
		return false
	}
	for _, label := range labels {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

// possible says whether name (folded, with its final dot) obeys the limits of RFC 1035 §2.3.4.
func possible(name string) bool {
	if len(name)+1 > 255 {
		return false
	}
	for _, label := range strings.Split(strings.TrimSuffix(name, "."), ".") {
		if len(label) > 63 {
			return false
		}
	}
	return true
}

// below puts labels in front of a name.
func below(name string, labels ...string) string {
	if name == "." {
		return strings.Join(labels, ".") + "."
	}
	return strings.Join(labels, ".") + "." + name
}

// parent takes the first label of a folded name off. The parent of a name of one label is the root.
func parent(name string) string {
	next, end := dns.NextLabel(name, 0)
	if end {
		return "."
	}
	return name[next:]
}

// dashed names an endpoint by its address (N15).
func dashed(addr netip.Addr) string {
	label := strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
	if strings.HasPrefix(label, "-") {
		label = "0" + label
	}
	if strings.HasSuffix(label, "-") {
		label += "0"
	}
	return label
}

// address reads an address as it stands in an object. Not accepted: zones, which mean nothing to another host, and
// IPv4-mapped IPv6 addresses, which Kubernetes refuses as IPv6.
func address(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}, false
	}
	return addr, true
}

func addressType(addr netip.Addr) uint16 {
	if addr.Is4() {
		return dns.TypeA
	}
	return dns.TypeAAAA
}
