package clusterset

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// PageName returns the name of a page of an export's endpoints.
func PageName(number int32, service, namespace, cluster string) string {
	return strconv.Itoa(int(number)) + "." + RecordName(service, namespace, cluster)
}

// CheckPage returns an error if a page's content is not that of its name. The hub's policy checks only the name.
func CheckPage(page *hubv1alpha1.EndpointPage) error {
	o := &page.Spec.Origin
	if err := checkOrigin(o); err != nil {
		return err
	}
	if want := PageName(page.Spec.Number, o.ServiceName, o.ServiceNamespace, o.ClusterID); page.Name != want {
		return fmt.Errorf("the page is named %q, but its content asks for %q", page.Name, want)
	}
	return nil
}

// ParseGroup returns the part of a group that may be imported. It leaves out ports of unknown protocols, and endpoints
// with an invalid address, hostname or zone, or an address that no other cluster may have (SPEC S4): refused says why.
// It fails if the address type or a port is invalid. It does not change group.
func ParseGroup(
	group *hubv1alpha1.EndpointGroup, reserved []netip.Prefix,
) (out hubv1alpha1.EndpointGroup, refused []string, err error) {
	out = *group
	if out.AddressType != discoveryv1.AddressTypeIPv4 && out.AddressType != discoveryv1.AddressTypeIPv6 {
		return out, nil, fmt.Errorf("addressType %q is neither IPv4 nor IPv6", out.AddressType)
	}
	used := map[PortKey]bool{}
	out.Ports = nil
	for _, p := range group.Ports {
		if !slices.Contains(protocols, p.Protocol) {
			continue
		}
		err := cmp.Or(checkPort("", &p.Port, ptr.Deref(p.AppProtocol, "")), checkPort("", p.Target, ""))
		if err != nil {
			return out, nil, fmt.Errorf("port %d/%s: %w", p.Port, p.Protocol, err)
		}
		key := PortKey{p.Protocol, p.Port}
		if used[key] {
			return out, nil, fmt.Errorf("port %d/%s is used twice", p.Port, p.Protocol)
		}
		used[key] = true
		out.Ports = append(out.Ports, p)
	}
	out.Endpoints = make([]hubv1alpha1.Endpoint, 0, len(group.Endpoints))
	for _, e := range group.Endpoints {
		if err := checkEndpoint(&e, out.AddressType, reserved); err != nil {
			refused = append(refused, err.Error())
			continue
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out, refused, nil
}

func checkEndpoint(e *hubv1alpha1.Endpoint, family discoveryv1.AddressType, reserved []netip.Prefix) error {
	addr, err := netip.ParseAddr(e.Address)
	if err != nil {
		return fmt.Errorf("address %q is no IP address", e.Address)
	}
	if addr.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		return fmt.Errorf("address %s is not %s", addr, family)
	}
	if err := checkAddress(addr, reserved); err != nil {
		return err
	}
	if e.Hostname != "" && len(validation.IsDNS1123Label(e.Hostname)) > 0 {
		return fmt.Errorf("address %s: hostname %q is no DNS label", addr, e.Hostname)
	}
	if e.Zone != "" && len(validation.IsValidLabelValue(e.Zone)) > 0 {
		return fmt.Errorf("address %s: zone %q is no label value", addr, e.Zone)
	}
	return nil
}

// Claimable returns whether another cluster may have the address (SPEC S4).
func Claimable(address string, reserved []netip.Prefix) bool {
	addr, err := netip.ParseAddr(address)
	return err == nil && checkAddress(addr, reserved) == nil
}

// neverImported lists the ranges, beside those that netip knows, that no endpoint may be in. Those with the name of a
// cloud are of its metadata services, which give out the credentials of machines.
var neverImported = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),              // this network (RFC 791)
	netip.MustParsePrefix("255.255.255.255/32"),     // broadcast
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle Cloud
	netip.MustParsePrefix("fd00:ec2::254/128"),      // AWS
	netip.MustParsePrefix("fd00:ec2::23/128"),       // AWS: EKS Pod Identity
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google Cloud
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle Cloud
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
	netip.MustParsePrefix("::ffff:0:0/96"),          // IPv4-mapped (RFC 4291): Kubernetes refuses it
	netip.MustParsePrefix("64:ff9b:1::/48"),         // local NAT64 (RFC 8215): any octets may be an IPv4 address
}

// embedded maps IPv6 ranges whose addresses contain an IPv4 address to its first octet (RFC 4291, RFC 6052, RFC 3056).
// If the IPv4 address is refused, so is the IPv6 one.
var embedded = map[netip.Prefix]int{
	netip.MustParsePrefix("::/96"):        12,
	netip.MustParsePrefix("64:ff9b::/96"): 12,
	netip.MustParsePrefix("2002::/16"):    2,
}

// checkAddress returns why no other cluster may have the address (SPEC S4), nil if one may.
func checkAddress(addr netip.Addr, reserved []netip.Prefix) error {
	var why error
	switch {
	case addr.Zone() != "":
		why = errors.New("has a zone")
	case addr.IsLoopback():
		why = errors.New("is a loopback address")
	case addr.IsLinkLocalUnicast():
		why = errors.New("is a link-local address")
	case addr.IsMulticast():
		why = errors.New("is a multicast address")
	case addr.IsUnspecified():
		why = errors.New("is the unspecified address")
	}
	for _, p := range neverImported {
		if why == nil && p.Contains(addr) {
			why = fmt.Errorf("is in the reserved range %s", p)
		}
	}
	for _, p := range reserved {
		if why == nil && p.Contains(addr) {
			why = fmt.Errorf("is in %s, which --reserved-cidrs reserves for this cluster", p)
		}
	}
	for p, at := range embedded {
		if octets := addr.As16(); why == nil && p.Contains(addr) {
			if err := checkAddress(netip.AddrFrom4([4]byte(octets[at:at+4])), reserved); err != nil {
				why = fmt.Errorf("contains an IPv4 address: %w", err)
			}
		}
	}
	if why != nil {
		return fmt.Errorf("address %s %w", addr, why)
	}
	return nil
}
