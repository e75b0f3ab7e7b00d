package members

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestAgentStartsBeforeItsKinds: it waits for each kind that deploy/member brings, says what to apply, and answers its probes.
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
	if out, err := cluster.Kubectl(t.Context(), "", "delete", "crd", "serviceexportrecords.hub.clusterset-dns.io"); err != nil {
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
	if out, err := cluster.Kubectl(t.Context(), "", "delete", "crd", "serviceimports.multicluster.x-k8s.io"); err != nil {
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
		if strings.Contains(line, "]") && !(strings.Contains(line, ` cluster="a"`) && strings.Contains(line, ` clusterset="`+lab.HubNamespace+`"`)) {
			t.Errorf("a line does not say whose it is: %s", line)
		}
	}
}
