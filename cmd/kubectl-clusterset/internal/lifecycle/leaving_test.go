package lifecycle

import (
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// TestID3WhatAMemberThatIsLeavingMayJoin: nothing, but its credentials may be replaced, because leaving needs the
// hub unless it is forced. Each refusal names the remedy.
func TestID3WhatAMemberThatIsLeavingMayJoin(t *testing.T) {
	for what, c := range map[string]struct {
		leaving, hub string
		renew        bool
		refusal      string
	}{
		"join":                {"true", "blue", false, "kubectl clusterset leave"},
		"renew":               {"true", "blue", true, ""},
		"renew, withdrawn":    {clusterset.LeavingWithdrawn, "blue", true, ""},
		"renew, forced":       {clusterset.LeavingForced, "blue", true, "kubectl clusterset leave"},
		"renew, another's":    {"true", "green", true, "cannot be one of two"},
		"renew, not leaving":  {"", "blue", true, ""},
		"join, not leaving":   {"", "blue", false, ""},
		"join, forced before": {clusterset.LeavingForced, "blue", false, "kubectl clusterset leave"},
	} {
		set := &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}
		set.Annotations = map[string]string{clusterset.AnnotationLeaving: c.leaving}
		j := &join{JoinOptions: &JoinOptions{Member: &cluster.Cluster{Name: "this cluster"}, Renew: c.renew},
			state: state{setProperty: set}, set: c.hub}
		err := j.membership(t.Context())
		if (err == nil) != (c.refusal == "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %v, and not %q", what, err, c.refusal)
		}
	}
}
