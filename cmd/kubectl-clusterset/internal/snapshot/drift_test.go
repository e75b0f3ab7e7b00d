package snapshot

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
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

// TestTheRoleIsBoundToTheAccountOfCoreDNS: deploy/coredns binds it to kubeadm's.
func TestTheRoleIsBoundToTheAccountOfCoreDNS(t *testing.T) {
	applied, err := manifest.Render(manifest.CoreDNS, manifest.Values{})
	if err != nil {
		t.Fatal(err)
	}
	drift := func(there ...client.Object) *Member {
		t.Helper()
		for _, o := range applied {
			there = append(there, o.DeepCopy())
		}
		c := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(there...).Build()
		r := &reader{Snapshot: &Snapshot{Namespace: "blue", Member: &Member{}}}
		if err := r.drift(t.Context(), &cluster.Cluster{Client: c}); err != nil {
			t.Fatal(err)
		}
		return r.Snapshot.Member
	}
	if got := drift().DNSDrift; len(got) > 0 {
		t.Errorf("DNS runs elsewhere: %q", got)
	}
	for account, lacks := range map[string]bool{"coredns": false, "rke2-coredns": true, "": true} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns",
			Labels: map[string]string{"k8s-app": "kube-dns"}}}
		d.Spec.Template.Spec.ServiceAccountName = account
		if got := drift(d).DNSDrift; (len(got) > 0) != lacks {
			t.Errorf("account %q: %q", account, got)
		}
		group := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "own"},
			RoleRef:  rbacv1.RoleRef{Name: "clusterset-dns:coredns"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:kube-system"}}}
		if got := drift(d, group).DNSDrift; len(got) > 0 {
			t.Errorf("account %q, and a group: %q", account, got)
		}
	}
	const lost = "ClusterRoleBinding clusterset-dns:coredns-beside is missing, or for another account"
	if got := drift().BesideDrift; !slices.Equal(got, []string{lost}) {
		t.Errorf("beside: %q", got)
	}
	if applied, err = manifest.Render(manifest.Beside, manifest.Values{}); err != nil {
		t.Fatal(err)
	}
	if got := drift().BesideDrift; len(got) > 0 {
		t.Errorf("beside: %q", got)
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

// TestARefusalIsInTheLogOfSomePod: no log is read while the agent says that DNS answers. What it said before it stopped
// does not count, but who may not read Leases does not see that it stopped.
func TestARefusalIsInTheLogOfSomePod(t *testing.T) {
	const refused = "/etc/coredns/Corefile:4 - Error during parsing: Unknown directive 'multicluster'"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		log := "[INFO] Reloading complete"
		if strings.Contains(r.URL.Path, "dns-2") {
			log = refused
		}
		fmt.Fprintln(w, log)
	}))
	defer server.Close()
	c := &cluster.Cluster{Config: &rest.Config{Host: server.URL}}
	for ago, want := range map[time.Duration]string{time.Second: "", time.Hour: refused, -1: ""} {
		now, seconds := time.Now(), int32(40)
		at := metav1.NewTime(now.Add(-ago))
		l := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: facts.AgentLease,
			ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}}}
		l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &metav1.MicroTime{Time: at.Time}, &seconds
		m := &Member{Now: now, Leases: []coordinationv1.Lease{l}, DNS: dns.State{ConfigKey: "Corefile"}}
		m.DNS.Config = &corev1.ConfigMap{Data: map[string]string{"Corefile": ".:53 {\n multicluster\n}\n"}}
		m.Membership.Status.Conditions = []metav1.Condition{{Type: hubv1alpha1.ConditionDNSAnswers,
			Status: metav1.ConditionTrue}}
		for _, name := range []string{"dns-1", "dns-2"} {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
			pod.Spec.Containers = []corev1.Container{{Name: "coredns"}}
			m.DNSPods = append(m.DNSPods, pod)
		}
		s := &Snapshot{Member: m, Unread: map[Part]Lack{}}
		if ago < 0 {
			m.Leases, s.Unread[Leases] = nil, Lack{Right: "list leases"}
		}
		if got := refusal(t.Context(), c, s); got != want {
			t.Errorf("said %v ago: %q, want %q", ago, got, want)
		}
		crashes := corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"} // while the other one still answers
		m.DNSPods[1].Status.ContainerStatuses = []corev1.ContainerStatus{
			{State: corev1.ContainerState{Waiting: &crashes}}}
		if got := refusal(t.Context(), c, s); got != refused {
			t.Errorf("a Pod crashes: %q, want %q", got, refused)
		}
	}
}
