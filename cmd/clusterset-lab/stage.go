package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// services are what a team has deployed in each cluster before it hears of clustersets.
//
//go:embed services.yaml
var services string

// nets are the members, by cluster id, and their pod networks.
var nets = map[string]string{"north": "10.1.0", "south": "10.2.0"}

// stage is a hub and its members.
type stage struct {
	set          *lab.ClusterSet
	north, south *lab.Member
}

// setUp makes the stage and tells the user each step. What it returns is to be stopped, error or not.
func setUp(ctx context.Context, root string) (*stage, error) {
	s := &stage{}
	if err := lab.Require("dig"); err != nil {
		return s, err
	}
	if _, err := lab.Find(ctx); err != nil {
		return s, err
	}
	for _, program := range []string{"coredns", "clusterset-controller"} {
		if _, err := os.Stat(filepath.Join(root, "bin", program)); err != nil {
			return s, fmt.Errorf("build bin/%s first (make build): %w", program, err)
		}
	}
	title("A hub and two member clusters, north and south, and what their admin applies")
	text("three control planes of their own: etcd %s, kube-apiserver and kube-controller-manager %s", lab.EtcdVersion, lab.KubernetesVersion)
	began := time.Now()
	example, err := os.ReadFile(filepath.Join(root, "corefile.example"))
	if err != nil {
		return s, err
	}
	_, shown, err := adapt(string(example), "KUBECONFIG")
	if err != nil {
		return s, err
	}
	s.set, err = lab.StartClusterSet(ctx, lab.ClusterSetOptions{
		Members: []string{"north", "south"}, DNS: true, Step: command,
		Corefile: func(kubeconfig string) (string, error) {
			corefile, _, err := adapt(string(example), kubeconfig)
			return corefile, err
		},
	})
	if err != nil {
		return s, err
	}
	s.north, s.south = s.set.Members[0], s.set.Members[1]
	text("all ready after %.1f s; in each member one agent and our CoreDNS, with corefile.example but for", time.Since(began).Seconds())
	text("%s", s.south.DNS.Fill(shown))

	title("A team's Services, in both clusters; nothing is exported yet")
	for _, m := range s.set.Members {
		command("kubectl --context %s apply -f cmd/clusterset-lab/services.yaml   # pods in %s.0/24", m.ID, nets[m.ID])
		if err := m.Cluster.Apply(ctx, strings.ReplaceAll(services, "NET", nets[m.ID])); err != nil {
			return s, err
		}
	}
	return s, nil
}

// changes are the lines of corefile.example that the demo changes, and into what: it needs free ports, is not in a pod, and asks
// nobody outside.
func changes(kubeconfig string) [][2]string {
	return [][2]string{
		{".:53 {", ".:DNS_PORT {\n    bind 127.0.0.1"},
		{"    health {", "    health HEALTH_ADDR {"},
		{"    ready", "    ready READY_ADDR"},
		{"    multicluster clusterset.local", "    multicluster clusterset.local {\n       kubeconfig " + kubeconfig + "\n    }"},
		{"    kubernetes cluster.local in-addr.arpa ip6.arpa {", "    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       kubeconfig " + kubeconfig},
		{"    prometheus :9153", "    prometheus METRICS_ADDR"},
		{"    forward . /etc/resolv.conf {", "    forward . 127.0.0.1:1 {"},
	}
}

// adapt makes these changes to a Corefile, and shows them.
func adapt(corefile, kubeconfig string) (adapted, shown string, err error) {
	for _, c := range changes(kubeconfig) {
		if strings.Count(corefile, c[0]+"\n") != 1 {
			return "", "", fmt.Errorf("corefile.example has no line %q any more, which the demo changes: mend changes in cmd/clusterset-lab", c[0])
		}
		corefile = strings.Replace(corefile, c[0]+"\n", c[1]+"\n", 1)
		shown += "- " + c[0] + "\n+ " + strings.ReplaceAll(c[1], "\n", "\n+ ") + "\n"
	}
	return corefile, shown, nil
}

// limit of everything that the demo waits for: far more than it takes.
const limit = time.Minute

// export applies or deletes a ServiceExport, as a user does.
func (s *stage) export(ctx context.Context, m *lab.Member, names ...string) error {
	for _, name := range names {
		command("kubectl --context %s apply -f -   # ServiceExport shop/%s", m.ID, name)
		err := m.Cluster.Apply(ctx, fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: %s, namespace: shop}\n", name))
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) kubectl(ctx context.Context, m *lab.Member, args ...string) (string, error) {
	command("kubectl --context %s -n shop %s", m.ID, strings.Join(args, " "))
	return m.Cluster.Kubectl(ctx, "", append([]string{"-n", "shop"}, args...)...)
}

// vip waits for the address of shop/web in a member.
func (s *stage) vip(ctx context.Context, m *lab.Member) (string, error) {
	deadline := time.Now().Add(limit)
	for {
		ip, err := m.Cluster.Kubectl(ctx, "", "-n", "shop", "get", "serviceimport", "web", "-o", "jsonpath={.spec.ips[0]}", "--ignore-not-found")
		if err != nil || ip != "" {
			return ip, err
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("ServiceImport shop/web has no address in %s after %v; its agent says:\n%s", m.ID, limit, m.Agent.Log())
		}
	}
}

// env is what bin/lab.env says.
func (s *stage) env() string {
	out := fmt.Sprintf("export HUB_KUBECONFIG=%s\n", s.set.Hub.Kubeconfig())
	for i, m := range s.set.Members {
		out += fmt.Sprintf("export MEMBER_%[1]d_KUBECONFIG=%[2]s\nexport MEMBER_%[1]d_DNS=%[3]s\n", i+1, m.Cluster.Kubeconfig(), m.DNS.Addr())
	}
	return out
}

func (s *stage) stop() {
	if s.set != nil {
		s.set.Stop()
	}
}

// wrong adds what programs have said to an error.
func (s *stage) wrong(m *lab.Member, err error) error {
	errs := []error{err, fmt.Errorf("CoreDNS of %s said:\n%s", m.ID, m.DNS.Log())}
	for _, m := range s.set.Members {
		log := strings.Split(m.Agent.Log(), "\n")
		errs = append(errs, fmt.Errorf("the agent of %s said:\n%s", m.ID, strings.Join(log[max(0, len(log)-30):], "\n")))
	}
	return errors.Join(errs...)
}
