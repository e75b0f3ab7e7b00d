package ipam

import (
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A reservation says for whom its address is kept, and until when: an agent that starts has nothing else to know that by.
const (
	AnnotationKeptFor   = "clusterset-dns.io/kept-for"
	AnnotationKeptUntil = "clusterset-dns.io/kept-until"
)

// Reserves tells whether an IPAddress is this manager's reservation of an address of a fenced range.
func Reserves(ip *networkingv1.IPAddress, manager string) bool {
	ref := ip.Spec.ParentRef
	return ip.Labels[networkingv1.LabelManagedBy] == manager && ref != nil && ref.Resource == "servicecidrs"
}

// Keep notes on a reservation for whom its address is kept.
func Keep(reservation *networkingv1.IPAddress, owner Owner, until time.Time) {
	metav1.SetMetaDataAnnotation(&reservation.ObjectMeta, AnnotationKeptFor, owner.String())
	metav1.SetMetaDataAnnotation(&reservation.ObjectMeta, AnnotationKeptUntil, until.UTC().Format(time.RFC3339))
}

// Kept is what Keep noted; kept is false where there is nothing, or its time is over.
func Kept(reservation *networkingv1.IPAddress, now time.Time) (owner Owner, until time.Time, kept bool) {
	var slash bool
	owner.Namespace, owner.Name, slash = strings.Cut(reservation.Annotations[AnnotationKeptFor], "/")
	until, err := time.Parse(time.RFC3339, reservation.Annotations[AnnotationKeptUntil])
	return owner, until, slash && err == nil && now.Before(until)
}
