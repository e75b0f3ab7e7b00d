package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// outcomes is what doctor says with -o json, by check.
func (e *environment) outcomes(t *testing.T, args ...string) map[string]string {
	t.Helper()
	r := e.run(t, append([]string{"doctor", "-o", "json"}, args...)...)
	var report struct {
		Outcomes []struct {
			Check    string `json:"check"`
			Skipped  string `json:"skipped"`
			Findings []struct {
				Severity string `json:"severity"`
				What     string `json:"what"`
			} `json:"findings"`
		} `json:"outcomes"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("doctor -o json: %v\n%s%s", err, r.stdout, r.stderr)
	}
	out, errors := map[string]string{}, 0
	for _, o := range report.Outcomes {
		if o.Skipped != "" {
			out[o.Check] = "skipped: " + o.Skipped
		}
		for _, f := range o.Findings {
			out[o.Check] += f.Severity + ": " + f.What + "\n"
			if f.Severity == "error" {
				errors++
			}
		}
	}
	if code := r.code(); (errors > 0) != (code == 2) || (len(out) == 0) != (code == 0) && errors > 0 {
		t.Errorf("%d errors, and the exit status is %d", errors, code)
	}
	return out
}

// finds runs doctor until what it finds is right. The API server's authorizer, which it asks, and policies follow
// what is written by watches.
func (e *environment) finds(t *testing.T, what string, right func(found map[string]string) bool, args ...string) {
	t.Helper()
	eventually(t, what, func(context.Context) error {
		if found := e.outcomes(t, args...); !right(found) {
			return fmt.Errorf("doctor finds %v", found)
		}
		return nil
	})
}

// nothing is what doctor finds in a sound member.
func nothing(found map[string]string) bool { return len(found) == 0 }

// TestDoctorFindsWhatIsWrongInRealClusters plants mistakes in clusters as the table of internal/check plants them in
// snapshots: each is one finding.
func TestDoctorFindsWhatIsWrongInRealClusters(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub", "east")
	e.ok(t, "init", "--context", "hub")
	e.ok(t, "join", "--context", "east", "--hub-context", "hub", "--cluster-id", "east")
	e.coredns(t, "east")
	all := []string{"--context", "east", "--hub-context", "hub"}
	e.finds(t, "a sound member", nothing, all...)
	e.finds(t, "without the hub admin's credentials", func(found map[string]string) bool {
		return len(found) == 3 && strings.HasPrefix(found["hub-controller"], "skipped") &&
			strings.HasPrefix(found["hub-drift"], "skipped") && strings.HasPrefix(found["hub-unlabelled"], "skipped")
	}, "--context", "east")

	for _, p := range e.mistakes() {
		if p.check == "ranges-here" && !lab.ServiceCIDRs() {
			continue // what the Services' range is, only those tell
		}
		t.Run(p.check+"_"+strings.Fields(p.what)[0], func(t *testing.T) {
			undo := p.plant(t, e)
			defer undo()
			e.finds(t, fmt.Sprintf("%s: %q", p.check, p.what),
				func(found map[string]string) bool { // and nothing of what it causes
					text := strings.Join(slices.Collect(maps.Values(found)), "")
					return len(found) == 1 && strings.Count(text, "\n") == 1 && strings.Contains(text, p.what)
				}, all...)
		})
	}
	e.finds(t, "all mistakes are undone", nothing, all...)
	e.ok(t, "leave", "--yes", "--context", "east", "--hub-context", "hub")
	e.noCoreDNS(t, "east")
}

// fewRequests: one doctor is at most 40 requests in a member and 20 at the hub.
func (e *environment) fewRequests(t *testing.T) {
	t.Helper()
	w := e.through(t, "east", "hub")
	e.run(t, "doctor", "--kubeconfig", w.kubeconfig, "--context", "east", "--hub-context", "hub")
	for cluster, most := range map[string]int{"east": 40, "hub": 20} {
		if n := len(w.requests[cluster]); n == 0 || n > most {
			t.Errorf("%d requests in %s, want at most %d:\n%s", n, cluster, most,
				strings.Join(w.requests[cluster], "\n"))
		} else {
			t.Logf("%d requests in %s", n, cluster)
		}
	}
}

func (e *environment) noCoreDNS(t *testing.T, cluster string) {
	t.Helper()
	for _, args := range [][]string{{"delete", "-k", filepath.Join(e.root, "deploy/coredns")},
		{"delete", "-f", filepath.Join(e.root, "deploy/coredns/bare.yaml")},
		{"-n", "kube-system", "delete", "configmap", "coredns"}, {"delete", "crd",
			"serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"}} {
		if _, err := e.planes[cluster].Kubectl(t.Context(), "", args...); err != nil {
			t.Error(err)
		}
	}
}

// coredns gives a cluster what kubeadm and deploy/coredns would.
func (e *environment) coredns(t *testing.T, cluster string) {
	t.Helper()
	bare, err := os.ReadFile(filepath.Join(e.root, "deploy/coredns/bare.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	corefile, err := os.ReadFile(filepath.Join(e.root, "corefile.example"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.planes[cluster].Apply(t.Context(), string(bare)); err != nil {
		t.Fatal(err)
	}
	if err := e.planes[cluster].ApplyFolder(t.Context(), filepath.Join(e.root, "deploy/coredns")); err != nil {
		t.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data: map[string]string{"Corefile": string(corefile)}}
	if err := e.admin[cluster].Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// mistake is a command of kubectl that an admin might have given.
type mistake struct {
	check, what, cluster string
	object               []string // kind and name of what it changes, which is put back
	do                   []string
}

func (e *environment) mistakes() []mistake {
	configMap := []string{"-n", "kube-system", "configmap", "coredns"}
	return []mistake{
		{"drift", "ValidatingAdmissionPolicyBinding clusterset-id.clusterset-dns.io is missing", "east",
			[]string{"validatingadmissionpolicybinding", "clusterset-id.clusterset-dns.io"}, []string{"delete"}},
		{"kinds", "kind ServiceImport is not served", "east", nil,
			[]string{"delete", "crd", "serviceimports.multicluster.x-k8s.io"}},
		{"drift", "ClusterRoleBinding clusterset-dns:agent is missing", "east",
			[]string{"clusterrolebinding", "clusterset-dns:agent"}, []string{"delete"}},
		{"drift", "ClusterRoleBinding clusterset-dns:agent-membership is missing", "east",
			[]string{"clusterrolebinding", "clusterset-dns:agent-membership"}, []string{"delete"}},
		{"credentials", "no JSON Web Token", "east", []string{"-n", "clusterset-system", "secret", "hub-kubeconfig"},
			[]string{"patch", "-p", `{"stringData": {"token": "nonsense"}}`}},
		{"credentials", "there is no Secret", "east", []string{"-n", "clusterset-system", "secret", "hub-kubeconfig"},
			[]string{"delete"}},
		{"dns-drift", "ClusterRoleBinding clusterset-dns:coredns is missing", "east",
			[]string{"clusterrolebinding", "clusterset-dns:coredns"}, []string{"delete"}},
		{"dns-none", "does not answer clusterset.local", "east", configMap,
			[]string{"patch", "-p", `{"data": {"Corefile": ".:53 {\n kubernetes cluster.local\n reload\n}\n"}}`}},
		{"dns-stale", "stale answers", "east", configMap, []string{"patch", "-p", `{"data": {"Corefile": ".:53 {\n ` +
			`kubernetes cluster.local\n reload\n}\nclusterset.local:53 {\n cache {\n serve_stale\n }\n forward . ` +
			`10.96.0.53\n}\n"}}`}},
		{"dns-node-cache", "NodeLocal DNS of its own", "east", nil,
			[]string{"-n", "kube-system", "create", "-f", "testdata/node-cache.yaml"}},
		{"hub-rights", "This member may not list/watch/create/update/delete serviceexportrecords", "hub",
			[]string{"-n", "clusterset", "rolebinding", "mcs-east"}, []string{"delete"}},
		{"hub-rights", "create serviceaccounts/token", "hub",
			[]string{"-n", "clusterset", "rolebinding", "mcs-east:token"}, []string{"delete"}},
		{"hub-drift", "ValidatingAdmissionPolicy clusterset-records.clusterset-dns.io is missing", "hub",
			[]string{"validatingadmissionpolicy", "clusterset-records.clusterset-dns.io"}, []string{"delete"}},
		{"hub-unlabelled", "lacks the label", "hub", []string{"namespace", "clusterset"},
			[]string{"label", "multicluster.x-k8s.io/clusterset-"}},
		{"set-none", "does not have exactly one ClusterSet", "hub",
			[]string{"-n", "clusterset", "clusterset", "clusterset"}, []string{"delete"}},
		{"imports-others", "stray.default", "east", nil, []string{"create", "-f", "-"}},
		{"ranges-here", "overlap: 10.96.4.0/24 and 10.96.0.0/16", "east", nil,
			[]string{"create", "-f", "-"}},
	}
}

// plant does it, and returns what takes it back.
func (m *mistake) plant(t *testing.T, e *environment) (undo func()) {
	t.Helper()
	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := e.planes[m.cluster].Kubectl(t.Context(), input, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	switch {
	case m.check == "kinds":
		crd := filepath.Join(e.root, "deploy/crds", m.do[2][strings.Index(m.do[2], ".")+1:]+"_serviceimports.yaml")
		kubectl("", m.do...)
		return func() { kubectl("", "apply", "--server-side", "--force-conflicts", "-f", crd) }
	case m.check == "imports-others":
		kubectl(
			"---\n"+`{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {namespace: default, name: stray},
				spec: {type: Headless, ports: []}}`,
			m.do...)
		return func() { kubectl("", "-n", "default", "delete", "serviceimport", "stray", "--ignore-not-found") }
	case m.check == "ranges-here":
		kubectl(
			"---\n"+`{apiVersion: v1, kind: Node, metadata: {name: stray},
				spec: {podCIDR: 10.96.4.0/24, podCIDRs: [10.96.4.0/24]}}`,
			m.do...)
		return func() { kubectl("", "delete", "node", "stray") }
	case m.object == nil:
		kubectl("", m.do...)
		return func() { kubectl("", slices.Concat(m.do[:2], []string{"delete"}, m.do[3:5])...) }
	}
	was := kubectl("", slices.Concat([]string{"get", "-o", "json"}, m.object)...)
	kubectl("", slices.Concat(m.do[:1], m.object, m.do[1:])...)
	return func() {
		var o map[string]any
		if err := json.Unmarshal([]byte(was), &o); err != nil {
			t.Fatal(err)
		}
		meta := o["metadata"].(map[string]any)
		for _, key := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"} {
			delete(meta, key)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		kubectl(string(text), "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
}
