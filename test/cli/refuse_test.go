package cli

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// untouched checks that what the program does by a kubeconfig writes nothing to a cluster.
func (e *environment) untouched(t *testing.T, cluster string, do func()) {
	t.Helper()
	direct, w := e.kubeconfig, e.through(t, cluster)
	e.kubeconfig = w.kubeconfig + ":" + direct // of two with the same name, the first counts
	defer func() { e.kubeconfig = direct }()
	do()
	if writes := w.written(); len(writes) > 0 {
		t.Errorf("in %s it wrote %v", cluster, writes)
	}
}

// TestAJoinThatCannotBeIsRefusedBeforeTheClusterIsTouched: each refusal says what to do (ID3; issue 4, B).
func TestAJoinThatCannotBeIsRefusedBeforeTheClusterIsTouched(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub")
	e.readers(t, "west")
	join := func(more ...string) []string {
		return append([]string{"join", "--context", "west", "--hub-context", "hub", "--wait=false"}, more...)
	}
	e.untouched(t, "west", func() {
		e.refused(t, []string{"namespace nowhere of the hub holds no ClusterSet"},
			join("--hub-namespace", "nowhere")...)
		e.ok(t, "init", "--context", "hub")
		e.refused(t, []string{"no flag names the hub", "--hub-context"}, "join", "--context", "west")
		e.refused(t, []string{`cluster ID "Not_One"`, "--cluster-id"}, join("--cluster-id", "Not_One")...)
		e.refused(t, []string{`"kube-system"`, "a namespace of its own"}, join("--hub-namespace", "kube-system")...)
		e.refused(t, []string{"between 10m and 24h"}, join("--token-lifetime", "48h")...)
		e.refused(t, []string{"nothing to renew", "to join: "}, join("--renew")...)
		e.refused(t, []string{"you lack rights on this cluster, and nothing was written",
			`cannot patch resource "customresourcedefinitions"`},
			join("--as", "reader", "--as-group", "system:authenticated", "--as-group", "readers")...)
		e.takenIDs(t, join)
		e.oddServers(t)
	})
}

// takenIDs are claims of others, in each of their states.
func (e *environment) takenIDs(t *testing.T, join func(...string) []string) {
	t.Helper()
	claim := func(annotations map[string]string) *inventoryv1alpha1.ClusterProfile {
		p := &inventoryv1alpha1.ClusterProfile{}
		p.Namespace, p.Name, p.Annotations = "clusterset", "taken", annotations
		p.Spec.ClusterManager.Name = "clusterset-dns"
		return p
	}
	for _, c := range []struct {
		annotations map[string]string
		want        []string
	}{
		{nil, []string{"cluster ID taken is taken", "clusterset-dns.io/joining-uid="}},
		{map[string]string{"clusterset-dns.io/joining-uid": "other"}, []string{"the UID other",
			"evict taken"}},
		{map[string]string{"clusterset-dns.io/cluster-uid": "other"},
			[]string{"by the cluster whose kube-system has the UID other", "choose another with --cluster-id"}},
	} {
		p := claim(c.annotations)
		if err := e.admin["hub"].Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		e.refused(t, c.want, join("--cluster-id", "taken")...)
		e.ok(t, "evict", "--yes", "taken", "--context", "hub")
	}
	p := claim(map[string]string{"clusterset-dns.io/cluster-uid": "other"})
	p.Finalizers = []string{"example.org/stays"}
	if err := e.admin["hub"].Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := e.admin["hub"].Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	e.refused(t, []string{"is not free yet"}, join("--cluster-id", "taken")...)
	eventually(t, "the claim goes", func(ctx context.Context) error {
		if err := e.admin["hub"].Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return client.IgnoreNotFound(err)
		}
		p.Finalizers = nil
		return e.admin["hub"].Update(ctx, p)
	})
}

// oddServers are too old, have another time, or cannot be told from others.
func (e *environment) oddServers(t *testing.T) {
	t.Helper()
	w := e.through(t, "hub", "west")
	join := func(want ...string) {
		t.Helper()
		e.refused(t, want, "join", "--kubeconfig", w.kubeconfig, "--context", "west", "--hub-context", "hub",
			"--wait=false")
	}
	w.changing(func(cluster string, r *http.Response) error {
		if cluster == "west" {
			// in whole seconds
			r.Header.Set("Date", time.Now().Add(-time.Hour-30*time.Second).UTC().Format(http.TimeFormat))
		}
		return nil
	})
	join("clocks", "1h0m", "NTP")
	w.changing(func(cluster string, r *http.Response) error {
		if cluster == "hub" && r.Request.URL.Path == "/version" {
			old := `{"major": "1", "minor": "31", "gitVersion": "v1.31.4"}`
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(old)), int64(len(old))
			r.Header.Set("Content-Length", strconv.Itoa(len(old)))
		}
		return nil
	})
	join("the hub runs Kubernetes v1.31.4", "1.32 is the oldest", "upgrade")

	all := e.config(t)
	all.Clusters["hub"].InsecureSkipTLSVerify, all.Clusters["hub"].CertificateAuthority = true, ""
	insecure := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*all, insecure); err != nil {
		t.Fatal(err)
	}
	e.refused(t, []string{"insecure-skip-tls-verify", "certificate authority"}, "join", "--kubeconfig", insecure,
		"--context", "west", "--hub-context", "hub")
	all.Clusters["hub"].Server, all.Clusters["hub"].InsecureSkipTLSVerify = "https://127.0.0.1:1", false
	if err := clientcmd.WriteToFile(*all, insecure); err != nil {
		t.Fatal(err)
	}
	e.refused(t, []string{"the hub: connecting failed"}, "join", "--kubeconfig", insecure, "--context", "west",
		"--hub-context", "hub")
}

// TestAMemberStaysWhatItIs: another id, another clusterset, twice on one hub.
func TestAMemberStaysWhatItIs(t *testing.T) {
	e := setUp(t)
	e.nodes(t, "hub", "west")
	e.ok(t, "init", "--context", "hub")
	e.ok(t, "init", "--context", "hub", "--hub-namespace", "blue")
	join := func(more ...string) []string {
		return append([]string{"join", "--context", "west", "--hub-context", "hub"}, more...)
	}
	e.ok(t, join("--cluster-id", "west")...)
	e.refused(t, []string{`is a member as "west"`, "keeps that cluster ID until it leaves"},
		join("--cluster-id", "other")...)
	e.refused(t, []string{"is a member of ClusterSet clusterset, and cannot be one of two",
		"to change to ClusterSet blue, first: kubectl clusterset --context=west leave"},
		join("--hub-namespace", "blue")...)
	e.refused(t, []string{"cluster ID west is taken", "by the cluster whose kube-system has the UID"},
		"join", "--context", "east", "--hub-context", "hub", "--cluster-id", "west", "--wait=false")
	e.refused(t, []string{"has no member west", "name the hub of ClusterSet clusterset"},
		"leave", "--yes", "--context", "west", "--hub-context", "hub", "--hub-namespace", "blue")

	// It moves: by leaving the one first.
	e.ok(t, "leave", "--yes", "--context", "west", "--hub-context", "hub")
	e.ok(t, join("--hub-namespace", "blue", "--cluster-id", "west")...)
	r := e.run(t, "status", "--context", "west")
	if !strings.HasPrefix(r.stdout, "ClusterSet blue: 1 member,") {
		t.Errorf("status:\n%s", r.stdout)
	}
	e.ok(t, "leave", "--yes", "--context", "west", "--hub-context", "hub", "--hub-namespace", "blue")
	for _, args := range [][]string{{"delete", "namespace", "blue"}, {"-n", "clusterset-system", "delete",
		"deployment", "clusterset-hub-blue"}} {
		if _, err := e.planes["hub"].Kubectl(t.Context(), "", args...); err != nil {
			t.Fatal(err)
		}
	}
}

// readers may read everything in a cluster, and write nothing.
func (e *environment) readers(t *testing.T, cluster string) {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "readers"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"},
			Verbs: []string{"get", "list", "watch"}}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := e.admin[cluster].Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.admin[cluster].Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		})
	}
}
