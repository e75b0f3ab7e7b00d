package members

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestAgentStartsBeforeItsKinds: it waits for each kind that deploy/member brings, says what to apply, and answers
// its probes.
func TestAgentStartsBeforeItsKinds(t *testing.T) {
	t.Parallel()
	cluster := lab.Run(t, lab.Options{})
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.ApplyFolder(t.Context(), filepath.Join(root, "deploy/member")); err != nil {
		t.Fatal(err)
	}
	if out, err := cluster.Kubectl(
		t.Context(),
		"",
		"delete",
		"crd",
		"serviceexportrecords.hub.clusterset-dns.io",
	); err != nil {
		t.Fatal(err, out)
	}
	local, err := cluster.ServiceAccountKubeconfig(t.Context(), "clusterset-system", "clusterset-controller", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := lab.StartAgent(t.Context(), filepath.Join(root, "bin", "clusterset-controller"), lab.AgentOptions{
		Kubeconfig: local, HubKubeconfig: local, HubNamespace: lab.HubNamespace, ClusterID: "a",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	said := func(what string) {
		t.Helper()
		eventually(t, what, func() error {
			if log := a.Log(); !strings.Contains(log, what) {
				return fmt.Errorf("running %v, log: %s", a.Running(), log)
			}
			return nil
		})
	}
	said("waiting for the API server to answer, and to serve hub.clusterset-dns.io/v1alpha1")
	said("kubectl apply -k deploy/member")
	if !a.Alive() || a.Ready() {
		t.Errorf("alive %v, ready %v; want alive and not ready", a.Alive(), a.Ready())
	}
	if out, err := cluster.Kubectl(
		t.Context(),
		"",
		"delete",
		"crd",
		"serviceimports.multicluster.x-k8s.io",
	); err != nil {
		t.Fatal(err, out)
	}
	if err := cluster.ApplyFolder(t.Context(), filepath.Join(root, "deploy/crds/record")); err != nil {
		t.Fatal(err)
	}
	said(`"waiting for this cluster"`)
	if err := cluster.ApplyFolder(t.Context(), filepath.Join(root, "deploy/crds")); err != nil {
		t.Fatal(err)
	}
	said(`"waiting for membership"`) // the hub is this cluster, where deploy/hub was not applied
	_, since, knows := strings.Cut(a.Log(), `] "starting"`)
	if !knows {
		t.Errorf("log: %s", a.Log())
	}
	for line := range strings.Lines("]" + since) { // ID6, from when the agent knows who it is
		if strings.Contains(line, "]") &&
			!(strings.Contains(line, ` cluster="a"`) && strings.Contains(line, ` clusterset="`+lab.HubNamespace+`"`)) {
			t.Errorf("a line does not say whose it is: %s", line)
		}
	}
}

// TestARenewedCredentialIsTaken: the hub knows a member's token no more, also one that it let in until
// then, and who keeps the
// member's kubeconfig puts another there. The agent starts again for that one, once.
func TestARenewedCredentialIsTaken(t *testing.T) {
	t.Parallel()
	s, err := start(t.Context(), "a", "b")
	if s != nil {
		t.Cleanup(s.Stop)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.logAgents(t)
	a, b := s.members["a"], s.members["b"]
	ns := s.namespace(t, "a", "b")
	a.exported(t, service(ns, "before", port("http", 80)), "10.1.0.1")
	b.wantImport(t, ns, "before", ready("a"))

	account := clusterset.AccountPrefix + "b"
	if err := s.hub.Delete(
		t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: account}},
	); err != nil {
		t.Fatal(err)
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Hub.Apply(t.Context(), lab.HubMember(root, "b")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is refused", func() error {
		if log := b.Agent.Log(); !strings.Contains(log, "Unauthorized") {
			return fmt.Errorf("log: %s", tail(log, 5))
		}
		return nil
	})
	if _, err := s.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, account, b.ToHub); err != nil {
		t.Fatal(err)
	}
	b.exported(t, service(ns, "after", port("http", 80)), "10.2.0.1")
	a.wantImport(t, ns, "after", ready("b"))
	a.exported(t, service(ns, "then", port("http", 80)), "10.1.0.2")
	b.wantImport(t, ns, "then", ready("a"))
	if started := strings.Count(b.Agent.Log(), `] "starting" `); started != 2 {
		t.Errorf("b's agent started %d times", started)
	}
}
