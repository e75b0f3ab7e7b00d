// Package grants proves that deploy/ gives every program the rights that it uses, and no other: real control planes
// write audit logs of a clusterset's whole life, in which the agents, the hub's program and CoreDNS run each with
// its own ServiceAccount, and what these
// asked for is compared with what RBAC gives them. make builds the programs.
package grants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// limit is far more than anything takes: machines are shared.
const limit = 4 * time.Minute

// set is a clusterset of a and b, with an admin's client on each cluster.
type set struct {
	*lab.ClusterSet
	root    string
	hub     client.Client
	a, b    *member
	clients map[string]client.Client // by the name of the cluster
}

type member struct {
	*lab.Member
	client.Client
}

// planes are as the planes of users are: one has the admission plugin that asks for rights to owners, the other no
// watches that list.
func planes(name string) lab.Options {
	o := lab.Options{Audit: true}
	switch name {
	case "a":
		o.APIServer = []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"}
	case "b", "hub":
		o.APIServer = []string{"--feature-gates=WatchList=false"}
	}
	return o
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients
	os.Exit(m.Run())
}

func start(t *testing.T) *set {
	t.Helper()
	ctx := t.Context()
	root, err := lab.Root()
	must(t, err)
	cs, err := lab.StartClusterSet(ctx, lab.ClusterSetOptions{
		Members: []string{"a", "b"}, Plane: planes,
		AgentArgs: map[string][]string{"b": {"--reserved-cidrs", "10.77.0.0/16"}},
	})
	must(t, err)
	t.Cleanup(cs.Stop)
	s := &set{ClusterSet: cs, root: root, hub: admin(t, cs.Hub), clients: map[string]client.Client{}}
	s.a, s.b = &member{
		cs.Members[0],
		admin(t, cs.Members[0].Cluster),
	}, &member{
		cs.Members[1],
		admin(t, cs.Members[1].Cluster),
	}
	s.clients["hub"], s.clients["a"], s.clients["b"] = s.hub, s.a.Client, s.b.Client
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range cs.Members {
				t.Logf("agent %s:\n%s", m.ID, tail(m.Agent.Log(), 40))
			}
		}
	})
	must(t, cs.Hub.ApplyFolder(ctx, filepath.Join(root, "deploy/hub/controller")))
	kubeconfig, err := cs.Hub.ServiceAccountKubeconfig(ctx, kube.SystemNamespace, "clusterset-hub", nil)
	must(t, err)
	runHub(t, root, kubeconfig)
	s.serve(t)
	return s
}

func admin(t *testing.T, cp *lab.ControlPlane) client.Client {
	t.Helper()
	scheme := agent.Scheme()
	must(t, rbacv1.AddToScheme(scheme))
	c, err := cp.Client(scheme)
	must(t, err)
	return c
}

// runHub runs clusterset-controller hub until the end of the test.
func runHub(t *testing.T, root, kubeconfig string) {
	t.Helper()
	hub, err := lab.StartHub(
		t.Context(),
		filepath.Join(root, "bin/clusterset-controller"),
		kubeconfig,
		lab.HubNamespace,
	)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the hub's program:\n%s", tail(hub.Log(), 40))
		}
		hub.Stop()
	})
	must(t, hub.UntilReady(t.Context()))
}

// serve runs CoreDNS in b, with the rights of deploy/coredns alone and the option that needs them all.
func (s *set) serve(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	bare, err := os.ReadFile(filepath.Join(s.root, "deploy/coredns/bare.yaml"))
	must(t, err)
	account, _, _ := strings.Cut(string(bare), "\n---\n") // the rest is for CoreDNS's other plugins
	must(t, s.b.Cluster.Apply(ctx, account))
	must(t, s.b.Cluster.ApplyFolder(ctx, filepath.Join(s.root, "deploy/coredns")))
	kubeconfig, err := s.b.Cluster.ServiceAccountKubeconfig(ctx, "kube-system", "coredns", nil)
	must(t, err)
	bin, err := lab.Find(ctx)
	must(t, err)
	dns, err := lab.StartDNS(ctx, bin, filepath.Join(s.root, "bin/coredns"), fmt.Sprintf(`.:DNS_PORT {
    bind 127.0.0.1
    errors
    health HEALTH_ADDR
    ready READY_ADDR
    prometheus METRICS_ADDR
    multicluster clusterset.local {
        kubeconfig %s
        namespace_labels !private
    }
}
`, kubeconfig))
	must(t, err)
	t.Cleanup(dns.Stop)
	until(t, "CoreDNS is ready", func() error {
		if !dns.Ready() {
			return errors.New(dns.Log())
		}
		return nil
	})
}

// requests are those of all clusters, in the order of time within each.
func (s *set) requests(t *testing.T) (out []request) {
	t.Helper()
	for name, cp := range map[string]*lab.ControlPlane{"hub": s.Hub, "a": s.a.Cluster, "b": s.b.Cluster} {
		of, err := readAudit(name, cp)
		must(t, err)
		out = append(out, of...)
	}
	return out
}

// until asks until there is no error.
func until(t *testing.T, what string, ask func() error) {
	t.Helper()
	must(t, lab.Until(t.Context(), limit, what, ask))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tail(s string, lines int) string {
	all := strings.Split(s, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
