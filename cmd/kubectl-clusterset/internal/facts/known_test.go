package facts

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

// TestKnown: what the agent knows is found once each, causes first; Ready repeats one of them, and is none. Of an agent
// that does not run, nothing counts.
func TestKnown(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	m := &hubv1alpha1.Membership{}
	condition := func(of, reason, message string, status metav1.ConditionStatus) {
		m.Status.Conditions = append(m.Status.Conditions,
			metav1.Condition{Type: of, Reason: reason, Message: message, Status: status})
	}
	condition("PeersReachable", "Expired", "no traffic to west. "+health.URL("Expired"), metav1.ConditionFalse)
	condition("DNSAnswers", "NotServed", "no clusterset.local. "+health.URL("NotServed"), metav1.ConditionFalse)
	condition("Ready", "NotServed", "no clusterset.local. "+health.URL("NotServed"), metav1.ConditionFalse)
	condition("Admitted", "Member", "It is a member.", metav1.ConditionTrue)
	condition("RangesDisjoint", "NoPodRanges", "Not known.", metav1.ConditionUnknown)
	renewed := func(ago time.Duration) []coordinationv1.Lease {
		at := metav1.NewTime(now.Add(-ago))
		l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-controller",
			ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}}}
		l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = new(int32(15)), &metav1.MicroTime{Time: at.Time}
		return []coordinationv1.Lease{l}
	}
	got := Known(m, renewed(time.Second), now)
	if len(got) != 2 || got[0].What != "no clusterset.local" || got[0].Severity != report.Error ||
		!strings.HasPrefix(got[0].Remedy, "kubectl clusterset dns install;") ||
		!strings.HasSuffix(got[0].Remedy, "checks.md#notserved") || got[1].Severity != report.Warning {
		t.Errorf("%+v", got)
	}
	if why := Outdated(m, renewed(time.Second), now); why != "" {
		t.Error(why)
	}
	for _, leases := range [][]coordinationv1.Lease{nil, renewed(16 * time.Second)} {
		if got, why := Known(m, leases, now), Outdated(m, leases, now); len(got) > 0 || why == "" {
			t.Errorf("%+v of an agent that does not run, %q", got, why)
		}
	}
	if Outdated(&hubv1alpha1.Membership{}, renewed(time.Second), now) == "" {
		t.Error("a Membership without conditions is not outdated")
	}
}
