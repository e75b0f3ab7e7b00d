package snapshot

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// TestWhatDiffersFromAManifest: what the API server or others add does not.
func TestWhatDiffersFromAManifest(t *testing.T) {
	const want = `{"rules": [{"resources": ["services"], "verbs": ["get", "list"]}], "note": "a in [\n\n  b]\n"}`
	for there, same := range map[string]bool{
		want: true,
		`{"rules": [{"resources": ["pods"], "verbs": ["get"]}, {"resources": ["services"], "verbs": ["list", "get", "watch"],
			"apiGroups": [""]}], "note": "a in [\n  b]", "default": 1}`: true,
		`{"rules": [{"resources": ["services"], "verbs": ["get"]}], "note": "a in [\n  b]"}`: false,
		`{"rules": [], "note": "a in [\n  b]"}`:                                              false,
		`{"rules": [{"resources": ["services"], "verbs": ["get", "list"]}], "note": "b"}`:    false,
		`{"note": "a in [\n  b]"}`:                                                           false,
	} {
		var a, b any
		for text, into := range map[string]*any{want: &a, there: &b} {
			if err := json.Unmarshal([]byte(strings.ReplaceAll(text, "\n\t", " ")), into); err != nil {
				t.Fatal(err)
			}
		}
		if text := there; text == want {
			b = a
		}
		if got := within(a, b); got != same {
			t.Errorf("%s: %v", there, got)
		}
	}
}

// TestTheLabelOfAClusterSetsNamespace: others may add theirs.
func TestTheLabelOfAClusterSetsNamespace(t *testing.T) {
	const want = "Namespace blue lacks the label " + clusterset.LabelSet
	for label, lacks := range map[string]bool{clusterset.LabelSet: false, "example.org/team": true} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "blue", Labels: map[string]string{label: "blue"}}}
		ns.Labels["example.org/tier"] = "1"
		c := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(ns).Build()
		r := &reader{Snapshot: &Snapshot{Namespace: "blue", Hub: &Hub{}}}
		if err := r.hubDrift(t.Context(), &cluster.Cluster{Client: c}); err != nil ||
			slices.Contains(r.Snapshot.Hub.Drift, want) != lacks {
			t.Errorf("label %s: %q, %v", label, r.Snapshot.Hub.Drift, err)
		}
	}
}

// TestTheLastWordOfCoreDNSCounts about its Corefile.
func TestTheLastWordOfCoreDNSCounts(t *testing.T) {
	const refused = "[ERROR] plugin/reload: Corefile changed but reload failed: starting with listener file " +
		"descriptors: plugin/multicluster: unknown option 'x'"
	const unknown = "/etc/coredns/Corefile:4 - Error during parsing: Unknown directive 'multicluster'"
	for log, want := range map[string]string{
		"[INFO] Reloading\n" + refused + "\n[INFO] 10.0.0.1 NOERROR\n": refused,
		refused + "\n[INFO] Reloading complete\n":                      "",
		"[ERROR] plugin/errors: 2 web. A: timeout\n":                   "",
		unknown + "\n": unknown,
	} {
		if got := lastOutcome(log); got != want {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}
