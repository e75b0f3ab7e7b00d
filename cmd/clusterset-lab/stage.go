package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// objects are what an implementation of the Multi-Cluster Services API writes into a member: here the demo does.
//
//go:embed objects.yaml
var objects string

// stage is a member cluster with its CoreDNS.
type stage struct {
	cluster *lab.ControlPlane
	dns     *lab.DNS
}

// setUp makes the stage and tells the user each step. What it returns is to be stopped, error or not.
func setUp(ctx context.Context, root string) (*stage, error) {
	s := &stage{}
	if err := lab.Require("dig"); err != nil {
		return s, err
	}
	bin, err := lab.Find(ctx)
	if err != nil {
		return s, err
	}
	began := time.Now()
	title("A cluster's control plane: etcd %s, kube-apiserver and kube-controller-manager %s", lab.EtcdVersion, lab.KubernetesVersion)
	if s.cluster, err = lab.Start(ctx, lab.Options{}); err != nil {
		return s, err
	}
	text("real processes on loopback, ready after %.1f s", time.Since(began).Seconds())

	title("What its admin applies, and what clusters north and south have exported to it")
	if err := s.deploy(ctx, root); err != nil {
		return s, err
	}
	title("Our CoreDNS: bin/coredns as ServiceAccount kube-system/coredns, with corefile.example but for")
	return s, s.serve(ctx, bin, root)
}

func (s *stage) deploy(ctx context.Context, root string) error {
	command("kubectl apply --server-side -k deploy/crds")
	if err := s.cluster.ApplyFolder(ctx, filepath.Join(root, "deploy/crds")); err != nil {
		return err
	}
	command("kubectl apply --server-side -f deploy/coredns/bare.yaml   # what kubeadm would have made")
	bare, err := os.ReadFile(filepath.Join(root, "deploy/coredns/bare.yaml"))
	if err != nil {
		return err
	}
	if err := s.cluster.Apply(ctx, string(bare)); err != nil {
		return err
	}
	command("kubectl apply --server-side -k deploy/coredns")
	if err := s.cluster.ApplyFolder(ctx, filepath.Join(root, "deploy/coredns")); err != nil {
		return err
	}
	command("kubectl apply --server-side -f cmd/clusterset-lab/objects.yaml")
	if err := s.cluster.Apply(ctx, objects); err != nil {
		return err
	}
	table, err := s.cluster.Kubectl(ctx, "", "-n", "shop", "get", "serviceimports", "-o",
		"custom-columns=SERVICEIMPORT:.metadata.name,TYPE:.spec.type,IPS:.spec.ips[*],PORTS:.spec.ports[*].name")
	if err != nil {
		return err
	}
	text("%s", table)
	table, err = s.cluster.Kubectl(ctx, "", "-n", "shop", "get", "endpointslices", "-o",
		"custom-columns=ENDPOINTSLICE:.metadata.name,"+
			`CLUSTER:.metadata.labels.multicluster\.kubernetes\.io/source-cluster,`+
			"HOSTS:.endpoints[*].hostname,ADDRESSES:.endpoints[*].addresses[*]")
	if err == nil {
		text("%s", table)
	}
	return err
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

func (s *stage) serve(ctx context.Context, bin *lab.Binaries, root string) error {
	kubeconfig, err := s.cluster.ServiceAccountKubeconfig(ctx, "kube-system", "coredns", nil)
	if err != nil {
		return err
	}
	example, err := os.ReadFile(filepath.Join(root, "corefile.example"))
	if err != nil {
		return err
	}
	corefile, shown, err := adapt(string(example), kubeconfig)
	if err != nil {
		return err
	}
	program := filepath.Join(root, "bin", "coredns")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("build bin/coredns first (make build): %w", err)
	}
	began := time.Now()
	if s.dns, err = lab.StartDNS(ctx, bin, program, corefile); err != nil {
		return err
	}
	text("%s", s.dns.Fill(shown))
	if err := s.untilReady(ctx); err != nil {
		return err
	}
	text("ready after %.1f s at %s", time.Since(began).Seconds(), s.dns.Addr())
	return nil
}

// limit of everything that the demo waits for: far more than it takes.
const limit = time.Minute

func (s *stage) untilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !s.dns.Ready() {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("CoreDNS is not ready: %w\n%s", ctx.Err(), s.dns.Log())
		}
	}
	return nil
}

// env is what bin/lab.env says. The hub may be a member, and here it is.
func (s *stage) env() string {
	return fmt.Sprintf("export HUB_KUBECONFIG=%[1]s\nexport MEMBER_1_KUBECONFIG=%[1]s\nexport MEMBER_1_DNS=%[2]s\n",
		s.cluster.Kubeconfig(), s.dns.Addr())
}

func (s *stage) stop() {
	if s.dns != nil {
		s.dns.Stop()
	}
	if s.cluster != nil {
		s.cluster.Stop()
	}
}
