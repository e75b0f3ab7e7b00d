package kube

import (
	"context"
	"errors"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// VIPs knows where the addresses of derived Services come from (DESIGN §5). Who makes such a Service asks by Reserve, then makes it, then
// tells by Settle what the API server said.
type VIPs interface {
	// Reserve is what a derived Service is to ask for. Its error is ErrVIPBusy, where a pass in a moment will get a better answer, or says
	// what is in the way; one without it is followed by Settle.
	Reserve(context.Context, VIPRequest) (VIPGrant, error)
	// Settle is told the Service as it was made, or the API server's error, and returns that error as it is to be acted on.
	Settle(context.Context, VIPRequest, VIPGrant, *corev1.Service, error) error
	// GiveUp is told before a derived Service is deleted whose quarantine is over: its addresses may be another's at once.
	GiveUp(service types.NamespacedName)
}

// ErrVIPBusy is the error of an address that may be had in a moment.
var ErrVIPBusy = errors.New("the import's address is not free yet")

// VIPRequest is for addresses of these families, which the derived Service does not have.
type VIPRequest struct {
	Import   *mcsv1beta1.ServiceImport
	Service  types.NamespacedName
	Families []corev1.IPFamily
	// Previous are those that the import had, of any family.
	Previous []netip.Addr
	// Try asks the API server whether it would make the Service at all, with whatever addresses. Nothing is made. nil where it is there.
	Try func(context.Context) error
}

// VIPGrant is the answer.
type VIPGrant struct {
	Families  []corev1.IPFamily // those that the Service may have now
	Addresses []netip.Addr      // to ask for by name; the API server chooses for the families without one
	Refused   error             // why other families have to wait; nil if none has
	Asked     time.Time
}
