package sources

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// A member's Lease for each of its sources keeps a Sight over restarts. renewTime is when the source's last renewal was seen here, by
// this cluster's clock; the rest is in annotations.
const (
	annotationRenewal = "clusterset-dns.io/renewal"       // as the source wrote it
	annotationLease   = "clusterset-dns.io/lease-created" // RFC 3339: when the Lease that says so was created, by the hub's clock
	annotationChecked = "clusterset-dns.io/checked"       // RFC 3339: until when it was watched
	annotationStood   = "clusterset-dns.io/stood"         // RFC 3339: behind which own renewal the clock stood then; empty if it ran
	annotationSeen    = "clusterset-dns.io/seen"          // RFC 3339: until when the hub was, believed or not
	annotationDeaths  = "clusterset-dns.io/deaths"        // RFC 3339, comma-separated
)

// remember reads what was kept; a Lease that was edited is as good as none.
func remember(lease *coordinationv1.Lease) (s liveness.Sight) {
	if lease == nil || lease.Spec.RenewTime == nil {
		return s
	}
	a := lease.Annotations
	checked, err := time.Parse(time.RFC3339Nano, a[annotationChecked])
	if err != nil {
		return liveness.Sight{}
	}
	renewal, err := time.Parse(time.RFC3339Nano, a[annotationRenewal])
	if err != nil {
		return liveness.Sight{}
	}
	s = liveness.Sight{Renewal: liveness.Renewal{At: renewal}, At: lease.Spec.RenewTime.Time, Checked: checked, Dead: liveness.VerdictOf(lease).Dead}
	if s.Seen, err = time.Parse(time.RFC3339Nano, a[annotationSeen]); err != nil {
		s.Seen = checked
	}
	s.Stood, _ = time.Parse(time.RFC3339Nano, a[annotationStood])
	s.Renewal.Lease, _ = time.Parse(time.RFC3339Nano, a[annotationLease])
	for _, d := range strings.Split(a[annotationDeaths], ",") {
		if at, err := time.Parse(time.RFC3339Nano, d); err == nil {
			s.Deaths = append(s.Deaths, at)
		}
	}
	s.Back = liveness.BackOf(lease)
	return s
}

// keep writes a Sight of a source, and the verdict, into its Lease.
func keep(lease *coordinationv1.Lease, cluster string, s liveness.Sight, v liveness.Verdict, l liveness.Limits) {
	lease.Namespace, lease.Name = kube.SystemNamespace, liveness.LeaseName(cluster)
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[liveness.LabelSource], lease.Labels[derived.LabelManagedBy] = cluster, kube.Manager
	seconds, at := int32(l.Dead/time.Second), metav1.NewMicroTime(s.At)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &cluster, &seconds, &at
	var deaths []string
	for _, d := range s.Deaths {
		deaths = append(deaths, stamp(d))
	}
	lease.Annotations = map[string]string{
		annotationRenewal: stamp(s.Renewal.At), annotationLease: stamp(s.Renewal.Lease), annotationChecked: stamp(s.Checked), annotationStood: stamp(s.Stood), annotationSeen: stamp(s.Seen),
		annotationDeaths: strings.Join(deaths, ","), liveness.AnnotationBack: stamp(s.Back),
	}
	v.Write(lease.Annotations)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
