package facts

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

// agentLease is the Lease in clusterset-system that the leading agent of a member renews.
const agentLease = "clusterset-controller"

// Outdated returns why a Membership does not show what is now, or "". leases are those of clusterset-system, at now of
// the member's API server.
func Outdated(m *hubv1alpha1.Membership, leases []coordinationv1.Lease, now time.Time) string {
	switch lease := named(leases, agentLease); {
	case lease == nil || Expired(lease, now):
		return "no agent renews the Lease " + agentLease + " in clusterset-system"
	case len(m.Status.Conditions) == 0:
		return "it has no conditions, or its kind is not there"
	}
	return ""
}

// Known returns what a member's agent knows that its cluster lacks: a finding for each condition of its Membership that
// is False, causes first, with the reason as its check. If the Membership is outdated, Known returns nothing.
func Known(m *hubv1alpha1.Membership, leases []coordinationv1.Lease, now time.Time) (out []report.Finding) {
	if Outdated(m, leases, now) != "" {
		return nil
	}
	for _, of := range health.Order {
		for _, c := range m.Status.Conditions {
			if c.Type != of || c.Status != metav1.ConditionFalse || of == hubv1alpha1.ConditionMembershipReady {
				continue
			}
			remedy := strings.TrimSuffix(strings.ReplaceAll(health.Reasons[c.Reason].Remedy, "`", ""), ".")
			f := report.Errorf(remedy+"; "+health.URL(c.Reason), "%s", stated(&c))
			if of == hubv1alpha1.ConditionPeersReachable {
				f.Severity = report.Warning
			}
			f.Check = c.Reason
			out = append(out, f)
		}
	}
	return out
}

// stated returns the message of a condition without the URL, which is in the remedy.
func stated(c *metav1.Condition) string {
	return strings.TrimSuffix(strings.TrimSpace(strings.TrimSuffix(c.Message, health.URL(c.Reason))), ".")
}

// MemberFindings finds what live members lack by their own statement, except that of the member named by except. Two of
// them whose ranges overlap are among these.
func (h *Hub) MemberFindings(except string) (out []report.Finding) {
	for i := range h.Profiles {
		p := &h.Profiles[i]
		c := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionMemberReady)
		if p.Name != except && c != nil && c.Status == metav1.ConditionFalse && h.Live(p.Name) {
			out = append(out, report.Warningf(DoctorThere+"; "+health.URL(c.Reason), "cluster %s: %s", p.Name,
				stated(c)).On(p.Name))
		}
	}
	return out
}
