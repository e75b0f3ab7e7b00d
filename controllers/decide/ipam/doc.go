// Package ipam decides which ranges a member has for VIPs, which address a VIP gets, and which blocks the hub
// grants (DESIGN §5, SPEC V). It does no I/O and keeps no state: the IPAddress object in the API server locks an
// address. If a stale cache leads to a wrong decision, the API server rejects it, and the caller decides again.
package ipam

import (
	"errors"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reasons why no address or block is available. Errors of this package name the remedy.
var (
	ErrFull = errors.New("range is full")
	// ErrPending means that a later attempt gets a better answer.
	ErrPending = errors.New("waiting for the address")
	// ErrTaken means that another Service has the address. Its text is a prefix: callers append the Service.
	ErrTaken = errors.New("it belongs to")
)

// LostError is an address that an import had, and that another Service has now.
type LostError string

func (e LostError) Error() string { return string(e) + " belongs to another Service" }

// Held is an address of a derived Service or its import.
type Held struct {
	Owner   types.NamespacedName // the derived Service
	Address netip.Addr
}

func Family(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
