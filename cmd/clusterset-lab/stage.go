package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// services are what a team has deployed in each cluster before it hears of clustersets.
//
//go:embed services.yaml
var services string

// nets are the members, by cluster id, and their pod networks.
var nets = map[string]string{"east": "10.1.0", "west": "10.2.0"}

// image is where a user's own build would be. Here are no nodes that would pull it: a process of bin/clusterset-controller stands for a pod.
const image = "registry.example/clusterset-controller:dev"

// What an admin types after kubectl clusterset; docs/start.md has the same.
const (
	initHub    = "init --context=hub --image=" + image
	joinEast   = "join --context=east --hub-context=hub --cluster-id=east --image=" + image
	joinWest   = "join --context=west --hub-context=hub --cluster-id=west --image=" + image
	showStatus = "status --context=east --hub-context=hub"
	explainWeb = "explain web.shop --context=west"
	leaveWest  = "leave --context=west --hub-context=hub"
)

// stage is a hub and its members.
type stage struct {
	root       string
	kubeconfig string // of an admin of all of them
	planes     lab.Planes
	hub        *lab.ControlPlane
	nodes      []*lab.Kubelet
	east, west *member
}

// member is a cluster of the demo.
type member struct {
	id      string
	cluster *lab.ControlPlane
	dns     *lab.DNS
}

func (s *stage) members() []*member { return []*member{s.east, s.west} }

// setUp makes the stage and tells the user each step. What it returns is to be stopped, error or not.
func setUp(ctx context.Context, root string) (*stage, error) {
	s := &stage{root: root}
	if err := lab.Require("dig"); err != nil {
		return s, err
	}
	for _, program := range []string{"coredns", "clusterset-controller", "kubectl-clusterset"} {
		if _, err := os.Stat(filepath.Join(root, "bin", program)); err != nil {
			return s, fmt.Errorf("build bin/%s first (make build): %w", program, err)
		}
	}
	for _, step := range []func(context.Context) error{s.clusters, s.clusterset, s.serve, s.services} {
		if err := step(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

// clusters are there before anything else.
func (s *stage) clusters(ctx context.Context) (err error) {
	title("Three clusters, as an admin has them: hub, east and west")
	if _, err := lab.Find(ctx); err != nil {
		return err // it was told what is built
	}
	began := time.Now()
	if s.planes, err = lab.StartPlanes(ctx, func(string) lab.Options { return lab.Options{ServiceCIDR: "10.96.0.0/16,fd00:10:96::/112"} }, "hub", "east", "west"); err != nil {
		return err
	}
	s.hub, s.east, s.west = s.planes["hub"], &member{id: "east", cluster: s.planes["east"]}, &member{id: "west", cluster: s.planes["west"]}
	for _, c := range s.planes {
		node, err := lab.StartKubelet(c)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
	}
	text("up after %.1f s: each with its own etcd %s, kube-apiserver and kube-controller-manager %s; processes stand for pods",
		time.Since(began).Seconds(), lab.EtcdVersion, lab.KubernetesVersion)
	s.kubeconfig = filepath.Join(s.hub.Dir(), "all.kubeconfig")
	return s.planes.WriteKubeconfig(s.kubeconfig)
}

// clusterset is made of them, as docs/start.md tells.
func (s *stage) clusterset(ctx context.Context) error {
	title("They become a clusterset")
	return s.plugins(ctx, []plugin{
		{"the hub gets the kinds, the policies that keep members apart, and its controller; then init tries a forged write", initHub},
		{"east claims its id, and gets the agent, and credentials for the hub", joinEast},
		{"so does west", joinWest},
		{"who is in it, and is all well?", showStatus},
	})
}

// serve has our CoreDNS answer in each member.
func (s *stage) serve(ctx context.Context) error {
	title("In both, our CoreDNS takes the place of theirs")
	example, err := os.ReadFile(filepath.Join(s.root, "corefile.example"))
	if err != nil {
		return err
	}
	_, shown, err := adapt(string(example), "KUBECONFIG")
	if err != nil {
		return err
	}
	errs := make([]error, len(s.members()))
	var all sync.WaitGroup
	for i, m := range s.members() {
		command("kubectl --context=%s apply -k deploy/coredns", m.id)
		all.Go(func() {
			m.dns, errs[i] = lab.ServeDNS(ctx, m.cluster, func(kubeconfig string) (string, error) {
				corefile, _, err := adapt(string(example), kubeconfig)
				return corefile, err
			})
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	text("with corefile.example but for")
	text("%s", s.west.dns.Fill(shown))
	return nil
}

// services are a team's.
func (s *stage) services(ctx context.Context) error {
	title("A team's Services, in both clusters; nothing is exported yet")
	for _, m := range s.members() {
		command("kubectl --context=%s apply -f cmd/clusterset-lab/services.yaml   # pods in %s.0/24", m.id, nets[m.id])
		if err := m.cluster.Apply(ctx, strings.ReplaceAll(services, "NET", nets[m.id])); err != nil {
			return err
		}
	}
	return nil
}

// changes are lines of corefile.example and what the demo writes instead: it needs free ports, is not in a pod, and asks
// nobody outside.
func changes(kubeconfig string) [][2]string {
	return [][2]string{
		{".:53 {", ".:DNS_PORT {\n    bind 127.0.0.1"},
		{"clusterset.local:53 {", "clusterset.local:DNS_PORT {\n    bind 127.0.0.1"},
		{"    health {", "    health HEALTH_ADDR {"},
		{"    ready", "    ready READY_ADDR"},
		{"    multicluster", "    multicluster {\n       kubeconfig " + kubeconfig + "\n    }"},
		{"    kubernetes cluster.local in-addr.arpa ip6.arpa {",
			"    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       kubeconfig " + kubeconfig},
		{"    prometheus :9153", "    prometheus METRICS_ADDR"},
		{"    forward . /etc/resolv.conf {", "    forward . 127.0.0.1:1 {"},
	}
}

// adapt makes these changes to a Corefile, and shows them.
func adapt(corefile, kubeconfig string) (adapted, shown string, err error) {
	for _, c := range changes(kubeconfig) {
		if !strings.Contains(corefile, c[0]+"\n") {
			return "", "", fmt.Errorf("corefile.example has no line %q, which the demo changes: update changes in cmd/clusterset-lab", c[0])
		}
		corefile = strings.ReplaceAll(corefile, c[0]+"\n", c[1]+"\n")
		shown += "- " + c[0] + "\n+ " + strings.ReplaceAll(c[1], "\n", "\n+ ") + "\n"
	}
	return corefile, shown, nil
}

// limit of everything that the demo waits for: far more than it takes.
const limit = time.Minute

// plugin is a command of kubectl clusterset, and why one gives it.
type plugin struct{ why, line string }

// plugins runs them as a user would, who sees what they say.
func (s *stage) plugins(ctx context.Context, all []plugin) error {
	for _, p := range all {
		remark(p.why)
		command("kubectl clusterset %s", p.line)
		cmd := exec.CommandContext(ctx, filepath.Join(s.root, "bin", "kubectl-clusterset"), strings.Fields(p.line)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // a Ctrl-C is ours
		out := &indented{}
		cmd.Stdout, cmd.Stderr = out, out
		err := cmd.Run()
		out.end()
		if err != nil {
			return s.wrong(fmt.Errorf("kubectl clusterset %s: %w", p.line, err))
		}
	}
	return nil
}

// export applies a ServiceExport, as a user does.
func (s *stage) export(ctx context.Context, m *member, names ...string) error {
	for _, name := range names {
		command("kubectl --context=%s apply -f -   # ServiceExport shop/%s", m.id, name)
		err := m.cluster.Apply(ctx, fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: %s, namespace: shop}\n", name))
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) kubectl(ctx context.Context, m *member, args ...string) (string, error) {
	command("kubectl --context=%s -n shop %s", m.id, quoted(args))
	return m.cluster.Kubectl(ctx, "", append([]string{"-n", "shop"}, args...)...)
}

// vip waits for the address of shop/web in a member that answers A or AAAA.
func (s *stage) vip(ctx context.Context, m *member, family string) (string, error) {
	of := map[string]int{"A": 0, "AAAA": 1}[family] // in the order of ipFamilies
	deadline := time.Now().Add(limit)
	for {
		ip, err := m.cluster.Kubectl(ctx, "", "-n", "shop", "get", "serviceimport", "web", "-o", fmt.Sprintf("jsonpath={.spec.ips[%d]}", of), "--ignore-not-found")
		if err != nil || ip != "" {
			return ip, err
		}
		if time.Now().After(deadline) {
			return "", s.wrong(fmt.Errorf("ServiceImport shop/web has no address in %s after %v", m.id, limit))
		}
	}
}

// env is what bin/lab.env says.
func (s *stage) env() string {
	out := fmt.Sprintf("export HUB_KUBECONFIG=%s\n", s.hub.Kubeconfig())
	for i, m := range s.members() {
		out += fmt.Sprintf("export MEMBER_%[1]d_KUBECONFIG=%[2]s\nexport MEMBER_%[1]d_DNS=%[3]s\n", i+1, m.cluster.Kubeconfig(), m.dns.Addr())
	}
	return out
}

func (s *stage) stop() {
	for _, n := range s.nodes {
		n.Stop()
	}
	if s.planes == nil {
		return
	}
	for _, m := range s.members() {
		m.dns.Stop()
	}
	s.planes.Stop()
}

// wrong adds what programs have said to an error.
func (s *stage) wrong(err error) error {
	errs := []error{err}
	for _, m := range s.members() {
		if m.dns != nil {
			errs = append(errs, fmt.Errorf("CoreDNS of %s said:\n%s", m.id, m.dns.Log()))
		}
	}
	for _, n := range s.nodes {
		errs = append(errs, fmt.Errorf("a node's programs said:\n%s", n.Log()))
	}
	return errors.Join(errs...)
}
