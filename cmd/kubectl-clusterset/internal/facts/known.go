package facts

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

// agentLease is the Lease in clusterset-system that the leading agent of a member renews.
const agentLease = "clusterset-controller"

// Known returns what a member's agent knows that its cluster lacks: a finding for each condition of its Membership that
// is False, causes first, with the reason as its check. leases are those of clusterset-system, at now of the member's
// API server. If no agent renews its Lease, the Membership is out of date, and Known returns nothing.
func Known(m *hubv1alpha1.Membership, leases []coordinationv1.Lease, now time.Time) (out []report.Finding) {
	i := slices.IndexFunc(leases, func(l coordinationv1.Lease) bool { return l.Name == agentLease })
	if i < 0 || Expired(&leases[i], now) {
		return nil
	}
	for _, of := range health.Order {
		for _, c := range m.Status.Conditions {
			if c.Type != of || c.Status != metav1.ConditionFalse || of == hubv1alpha1.ConditionMembershipReady {
				continue
			}
			what := strings.TrimSuffix(strings.TrimSpace(strings.TrimSuffix(c.Message, health.URL(c.Reason))), ".")
			remedy := strings.TrimSuffix(strings.ReplaceAll(health.Reasons[c.Reason].Remedy, "`", ""), ".")
			f := report.Errorf(remedy+"; "+health.URL(c.Reason), "%s", what)
			if of == hubv1alpha1.ConditionPeersReachable {
				f.Severity = report.Warning
			}
			f.Check = c.Reason
			out = append(out, f)
		}
	}
	return out
}
