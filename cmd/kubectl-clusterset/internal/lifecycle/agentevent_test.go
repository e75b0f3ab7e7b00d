package lifecycle

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestAnotherRunTellsWhatTheAgentWaitsFor, which it said before this run began; but not what it said before it was to
// leave.
func TestAnotherRunTellsWhatTheAgentWaitsFor(t *testing.T) {
	joins := func(t *testing.T, o Options, c *cluster.Cluster) error {
		return (&join{JoinOptions: &JoinOptions{Options: o, Member: c, ClusterID: "east"}}).await(t.Context())
	}
	leaves := func(t *testing.T, o Options, c *cluster.Cluster) error {
		state, err := read(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return (&leave{LeaveOptions: &LeaveOptions{Options: o, Member: c}, state: state}).withdraw(t.Context())
	}
	for what, c := range map[string]struct {
		run     func(*testing.T, Options, *cluster.Cluster) error
		age     time.Duration // of its word
		leaving string        // before this run
		told    bool
	}{
		"join":             {joins, 9 * time.Minute, "", true},
		"join, later":      {joins, 11 * time.Minute, "", false},
		"leave again":      {leaves, 9 * time.Minute, "kubectl-clusterset", true},
		"leave, the first": {leaves, 9 * time.Minute, "", false},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "e"},
					Reason: "NotAMember", Note: "For 4m0s: no route"}
				said.EventTime = metav1.NewMicroTime(time.Now().Add(-c.age))
				system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
				evicted := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "evicted",
					Labels: map[string]string{"app.kubernetes.io/name": manifest.AgentDeployment}}}
				evicted.Status.Phase = corev1.PodFailed
				objects := []client.Object{said, system, evicted}
				if strings.HasPrefix(what, "leave") {
					set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}
					if c.leaving != "" {
						set.Annotations = map[string]string{clusterset.AnnotationLeaving: c.leaving}
					}
					objects = append(objects, set)
				}
				o, _ := options(nil)
				if strings.HasPrefix(what, "join") {
					o.Hub = inMemory(interceptor.Funcs{})
				}
				o.Timeout = time.Minute
				err := c.run(t, *o, inMemory(interceptor.Funcs{}, objects...))
				if err == nil || strings.Contains(err.Error(), said.Note) != c.told ||
					strings.Contains(err.Error(), "it has no Pod yet") == c.told {
					t.Errorf("told must be %v: %v", c.told, err)
				}
			})
		})
	}
}
