// Package ipam decides who gets which VIP, and which member gets which block (DESIGN §5, SPEC V, docs/design.md). Pure: ranges, what
// is held and what is wanted, in; what to reserve, mend and grant, out. The lock on an address is the API server's IPAddress
// object, not anything here: what is decided from a cache that lags is refused there, and decided again.
//
//   - Allocator answers requests, at a cost that depends neither on how many addresses are held nor on how many ranges there are (V5).
//   - Repair compares imports, derived Services, IPAddresses and ServiceCIDRs (V4).
//   - Carve gives members their blocks, on the hub; Block cuts one range out of a block.
//
// It knows no client, clock or randomness. An address tried first comes from a hash of its owner's name, so that a restart finds the same.
package ipam

import (
	"errors"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Why an address or a block was not given: the error set of the Kubernetes ipallocator. What is returned wraps one of them, and says
// what to do.
var (
	ErrFull              = errors.New("range is full")
	ErrAllocated         = errors.New("address is already allocated")
	ErrNotInRange        = errors.New("address is not in a valid range")
	ErrMismatchedNetwork = errors.New("no range of this family")
	ErrNotReady          = errors.New("range is not ready")
)

// Owner is the import (namespace/name) that an address belongs to.
type Owner = types.NamespacedName

// Held is an address in use: of a derived Service, of a reservation for one, or of somebody else.
type Held struct {
	Owner   Owner
	Address netip.Addr
	// Foreign is what is in the way and not ours to release: an ordinary Service, another controller's IPAddress.
	Foreign bool
}

// Quarantined is an address that nobody is given before Until: the API server refused it, and by then it shows who has it.
type Quarantined struct {
	Address netip.Addr
	Until   time.Time
}

// Wanted is an import that is to have an address of each of these families, in their order; there is one per owner. One without families
// (Headless) keeps what it holds and asks for nothing.
type Wanted struct {
	Owner    Owner
	Families []corev1.IPFamily
	// Previous are the addresses it had, of any family, the best first.
	Previous []netip.Addr
	// Since orders requests when room is short.
	Since time.Time
}

// Reservation is an address to ask the API server for.
type Reservation struct {
	Owner  Owner
	Family corev1.IPFamily
	// Address is not valid where the API server is to choose: in mode shared, and in mode preferred when the ranges for VIPs have no room;
	// not while a range of the family is draining.
	Address netip.Addr
	// Lost is why it is not the previous address; Overflow why it is not one of the ranges for VIPs. Both may be nil.
	Lost, Overflow error
}

// Refusal is a request that stays open. Lost is as in Reservation.
type Refusal struct {
	Owner  Owner
	Family corev1.IPFamily
	Lost   error
	Err    error
}

func family(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// canonical is the one form in which addresses are compared.
func canonical(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
