package inventory

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

var now = time.Unix(1_700_000_000, 0)

const silence = 40 * time.Second

// profile is a claimed one whose conditions are of those reasons.
func profile(reasons ...string) *inventoryv1alpha1.ClusterProfile {
	p := &inventoryv1alpha1.ClusterProfile{
		ObjectMeta: metav1.ObjectMeta{
			Generation:  1,
			Annotations: map[string]string{clusterset.AnnotationClusterUID: "uid"},
		},
	}
	for _, reason := range reasons {
		c := metav1.Condition{
			Type:               inventoryv1alpha1.ConditionControlPlaneHealthy,
			Status:             metav1.ConditionUnknown,
			Reason:             reason,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		}
		switch reason {
		case ReasonMember:
			c.Type, c.Status = inventoryv1alpha1.ConditionJoined, metav1.ConditionTrue
		case ReasonHeartbeat:
			c.Status = metav1.ConditionTrue
		}
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	return p
}

func seen(ago time.Duration, changed bool) observation {
	return observation{renewed: metav1.NewMicroTime(now), at: now.Add(-ago), changed: changed}
}

// P3.
func TestConditions(t *testing.T) {
	unclaimed := profile()
	unclaimed.Annotations = nil
	for _, c := range []struct {
		name    string
		profile *inventoryv1alpha1.ClusterProfile
		seen    observation
		joined  string
		healthy string
		again   time.Duration
	}{
		{"nobody uses the claim", unclaimed, observation{}, "False/NotClaimed", "Unknown/HeartbeatPending", 0},
		{"a Lease without a claimant is no " +
			"membership", unclaimed, seen(0, true), "False/NotClaimed", "True/Heartbeat", silence},
		{"claimed, no Lease yet", profile(), observation{}, "False/HeartbeatPending", "Unknown/HeartbeatPending", 0},
		{"the first Lease is seen to come", profile(), seen(0, true), "True/Member", "True/Heartbeat", silence},
		{"a Lease was there before us, of a member unknown so " +
			"far", profile(), seen(0, false), "True/Member", "Unknown/HeartbeatPending", silence},
		{"a Lease is renewed", profile(ReasonMember, ReasonHeartbeat), seen(10*time.Second, true), "True/Member",
			"True/Heartbeat", 30 * time.Second},
		{"a Lease is renewed no more", profile(ReasonMember, ReasonHeartbeat), seen(silence, true), "True/Member",
			"Unknown/HeartbeatLost", 0},
		{"a second before it counts as silent", profile(ReasonMember, ReasonHeartbeat), seen(silence-time.Second,
			true), "True/Member", "True/Heartbeat", time.Second},
		{"it comes back", profile(ReasonMember, ReasonHeartbeatLost), seen(0, true), "True/Member", "True/Heartbeat",
			silence},
		{"we start, and it was healthy", profile(ReasonMember, ReasonHeartbeat), seen(0, false), "True/Member",
			"True/Heartbeat", silence},
		{"we start, and it was silent", profile(ReasonMember, ReasonHeartbeatLost), seen(0, false), "True/Member",
			"Unknown/HeartbeatLost", silence},
		{"we started, and it stayed silent", profile(ReasonMember, ReasonHeartbeat), seen(silence, false),
			"True/Member", "Unknown/HeartbeatLost", 0},
		{"a member's Lease was deleted while we were " +
			"away", profile(ReasonMember, ReasonHeartbeat), observation{}, "True/Member", "Unknown/HeartbeatLost", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := c.profile.DeepCopy()
			changed, again := setConditions(p, c.seen, silence, now)
			for kind, want := range map[string]string{inventoryv1alpha1.ConditionJoined: c.joined,
				inventoryv1alpha1.ConditionControlPlaneHealthy: c.healthy} {
				is := meta.FindStatusCondition(p.Status.Conditions, kind)
				if got := string(is.Status) + "/" + is.Reason; got != want {
					t.Errorf("%s is %s, want %s", kind, got, want)
				}
				was := meta.FindStatusCondition(c.profile.Status.Conditions, kind)
				if kept := was != nil &&
					was.LastTransitionTime.Equal(
						&is.LastTransitionTime,
					); kept != (was != nil && was.Status == is.Status) {
					t.Errorf("%s: lastTransitionTime %v after %+v", kind, is.LastTransitionTime, was)
				}
			}
			if again != c.again {
				t.Errorf("looks again in %v, want %v", again, c.again)
			}
			if changed == equality.Semantic.DeepEqual(p, c.profile) {
				t.Errorf("says changed=%v", changed)
			}
			// P5: the same once more writes nothing.
			before := p.DeepCopy()
			if changed, _ := setConditions(p, c.seen, silence, now); changed ||
				!equality.Semantic.DeepEqual(p, before) {
				t.Errorf("a second pass changes %+v to %+v", before.Status, p.Status)
			}
		})
	}
}

// P4, P5: what is others' stays, and what a member writes of its own part causes no write of ours.
func TestConditionsLeaveTheRestAlone(t *testing.T) {
	p := profile()
	setConditions(p, seen(0, true), silence, now)
	p.Status.Version.Kubernetes = "v1.36.2"
	p.Status.Properties = []inventoryv1alpha1.Property{{Name: "a", Value: "b"}}
	p.Status.AccessProviders = []inventoryv1alpha1.AccessProvider{{Name: "oidc"}}
	p.Status.Conditions = append(
		p.Status.Conditions, metav1.Condition{Type: "example.org/Theirs", Status: metav1.ConditionTrue},
	)
	before := p.DeepCopy()
	if changed, _ := setConditions(p, seen(0, true), silence, now.Add(time.Second)); changed ||
		!equality.Semantic.DeepEqual(p, before) {
		t.Errorf("changed=%v: %+v", changed, p.Status)
	}
}

// P2.
func TestMarks(t *testing.T) {
	p := &inventoryv1alpha1.ClusterProfile{}
	p.Finalizers = []string{"example.org/theirs"}
	p.Labels = map[string]string{"theirs": "too", inventoryv1alpha1.LabelClusterManager: "another"}
	if !mark(p) || mark(p) {
		t.Error("the first pass must change it, the second not")
	}
	if p.Labels[inventoryv1alpha1.LabelClusterManager] != clusterset.ClusterManager || p.Labels["theirs"] != "too" {
		t.Errorf("labels: %v", p.Labels)
	}
	if want := []string{"example.org/theirs", clusterset.FinalizerRecords}; !slices.Equal(p.Finalizers, want) {
		t.Errorf("finalizers %v, want %v", p.Finalizers, want)
	}
}
