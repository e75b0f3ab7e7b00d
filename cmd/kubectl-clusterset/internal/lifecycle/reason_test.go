package lifecycle

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestJoinSaysWhatTheAgentWaitsFor, by its Membership. One that lacks nothing explains no wait.
func TestJoinSaysWhatTheAgentWaitsFor(t *testing.T) {
	for status, told := range map[metav1.ConditionStatus]bool{
		metav1.ConditionFalse: true, metav1.ConditionUnknown: true, metav1.ConditionTrue: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			known := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName}}
			known.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: status, Message: "no route"}}
			o, _ := options(nil)
			o.Hub, o.Timeout = inMemory(interceptor.Funcs{}), time.Minute
			member := inMemory(interceptor.Funcs{}, known)
			err := (&join{JoinOptions: &JoinOptions{Options: *o, Member: member, ClusterID: "east"}}).await(t.Context())
			if err == nil || strings.Contains(err.Error(), "no route") != told ||
				strings.Contains(err.Error(), "it has no Pod yet") == told {
				t.Errorf("Ready is %s, told must be %v: %v", status, told, err)
			}
		})
	}
}
