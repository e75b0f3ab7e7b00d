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
	annotationRenewal = "clusterset-dns.io/renewal" // as the source wrote it
	annotationChecked = "clusterset-dns.io/checked" // RFC 3339: until when it was watched
	annotationState   = "clusterset-dns.io/state"   // Live or Dead
	annotationDeaths  = "clusterset-dns.io/deaths"  // RFC 3339, comma-separated
	annotationBack    = "clusterset-dns.io/back"    // RFC 3339
)

// The values of annotationState.
const (
	stateLive = "Live"
	stateDead = "Dead"
)

// LeaseName is that of the Lease for a source.
func LeaseName(cluster string) string { return "source-" + cluster }

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
	s = liveness.Sight{Renewal: renewal, At: lease.Spec.RenewTime.Time, Checked: checked, Dead: a[annotationState] == stateDead}
	for _, d := range strings.Split(a[annotationDeaths], ",") {
		if at, err := time.Parse(time.RFC3339Nano, d); err == nil {
			s.Deaths = append(s.Deaths, at)
		}
	}
	s.Back, _ = time.Parse(time.RFC3339Nano, a[annotationBack])
	return s
}

// keep writes a Sight of a source into its Lease.
func keep(lease *coordinationv1.Lease, cluster string, s liveness.Sight, l liveness.Limits) {
	lease.Namespace, lease.Name = kube.SystemNamespace, LeaseName(cluster)
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	lease.Labels[liveness.LabelSource], lease.Labels[derived.LabelManagedBy] = cluster, kube.Manager
	seconds, at := int32(l.Dead/time.Second), metav1.NewMicroTime(s.At)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &cluster, &seconds, &at
	state := stateLive
	if s.Dead {
		state = stateDead
	}
	var deaths []string
	for _, d := range s.Deaths {
		deaths = append(deaths, stamp(d))
	}
	lease.Annotations = map[string]string{
		annotationRenewal: stamp(s.Renewal), annotationChecked: stamp(s.Checked), annotationState: state,
		annotationDeaths: strings.Join(deaths, ","), annotationBack: stamp(s.Back),
	}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
