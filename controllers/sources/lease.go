package sources

import (
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// A member stores its observation of each source in a Lease of its own, so that it survives a restart. renewTime is
// when the source's last renewal was seen, by this cluster's clock. These annotations hold the rest, as times in RFC
// 3339.
const (
	annotationRenewal       = "clusterset-dns.io/renewal"        // renewTime as the source wrote it
	annotationLeaseCreated  = "clusterset-dns.io/lease-created"  // of the source's Lease, by the hub's clock
	annotationObservedUntil = "clusterset-dns.io/observed-until" // the end of the time that counts as observed
	annotationStoppedSince  = "clusterset-dns.io/stopped-since"  // Observation.StoppedSince
	annotationHubSeenUntil  = "clusterset-dns.io/hub-seen-until" // Observation.HubSeenUntil
	annotationExpirations   = "clusterset-dns.io/expirations"    // comma-separated
)

// load returns the observation that a Lease holds; the zero observation if the Lease is nil or was edited.
func load(lease *coordinationv1.Lease) liveness.Observation {
	if lease == nil || lease.Spec.RenewTime == nil {
		return liveness.Observation{}
	}
	valid := true
	required := func(annotation string) time.Time {
		t, err := time.Parse(time.RFC3339Nano, lease.Annotations[annotation])
		valid = valid && err == nil
		return t
	}
	o := liveness.Observation{
		Renewal:       liveness.Renewal{Time: required(annotationRenewal)},
		RenewedAt:     lease.Spec.RenewTime.Time,
		ObservedUntil: required(annotationObservedUntil),
		HubSeenUntil:  required(annotationHubSeenUntil),
		Expired:       liveness.LeaseExpired(lease),
		RenewingSince: liveness.RenewingSince(lease),
	}
	if !valid {
		return liveness.Observation{}
	}
	o.Renewal.Created, _ = time.Parse(time.RFC3339Nano, lease.Annotations[annotationLeaseCreated])
	o.StoppedSince, _ = time.Parse(time.RFC3339Nano, lease.Annotations[annotationStoppedSince])
	for _, text := range strings.Split(lease.Annotations[annotationExpirations], ",") {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			o.Expirations = append(o.Expirations, at)
		}
	}
	return o
}

// store writes the observation and the state of a source into its Lease.
func store(lease *coordinationv1.Lease, cluster string, o liveness.Observation, s liveness.State, l liveness.Limits) {
	lease.Namespace, lease.Name = kube.SystemNamespace, liveness.LeaseName(cluster)
	metav1.SetMetaDataLabel(&lease.ObjectMeta, liveness.LabelSource, cluster)
	metav1.SetMetaDataLabel(&lease.ObjectMeta, derived.LabelManagedBy, kube.Manager)
	seconds, renewedAt := int32(l.Expiry/time.Second), metav1.NewMicroTime(o.RenewedAt)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &cluster, &seconds, &renewedAt
	var expirations []string
	for _, at := range o.Expirations {
		expirations = append(expirations, format(at))
	}
	lease.Annotations = map[string]string{
		annotationRenewal:                format(o.Renewal.Time),
		annotationLeaseCreated:           format(o.Renewal.Created),
		annotationObservedUntil:          format(o.ObservedUntil),
		annotationStoppedSince:           format(o.StoppedSince),
		annotationHubSeenUntil:           format(o.HubSeenUntil),
		annotationExpirations:            strings.Join(expirations, ","),
		liveness.AnnotationLeaseExpired:  strconv.FormatBool(o.Expired),
		liveness.AnnotationRenewingSince: format(o.RenewingSince),
	}
	s.Write(lease.Annotations)
}

func format(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
