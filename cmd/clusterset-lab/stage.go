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

// services are the Services of both members, with NET for the pod network.
//
//go:embed services.yaml
var services string

// nets has the first three octets of each member's pod network, by cluster ID.
var nets = map[string]string{"east": "10.1.0", "west": "10.2.0"}

// image stands for the image that a user builds. Nothing pulls it: the demo runs bin/clusterset-controller as a process
// for each pod.
const image = "registry.example/clusterset-controller:dev"

// Commands of an admin, as in docs/start.md.
const (
	initHub    = "init --context=hub --image=" + image
	joinEast   = "join --context=east --hub-context=hub --cluster-id=east --image=" + image
	joinWest   = "join --context=west --hub-context=hub --cluster-id=west --image=" + image
	showStatus = "status --context=east --hub-context=hub"
	explainWeb = "explain web.shop --context=west"
	leaveWest  = "leave --context=west --hub-context=hub --yes"
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

// setUp creates the stage and prints each step. The caller must stop it, also after an error.
func setUp(ctx context.Context, root string) (*stage, error) {
	s := &stage{root: root}
	if err := lab.Require("dig"); err != nil {
		return s, err
	}
	for _, program := range []string{"coredns", "clusterset-controller", "kubectl-clusterset"} {
		if _, err := os.Stat(lab.Program(root, program)); err != nil {
			return s, fmt.Errorf("%s does not exist; to build it: make build: %w", lab.Program(root, program), err)
		}
	}
	for _, step := range []func(context.Context) error{s.clusters, s.clusterset, s.serve, s.services} {
		if err := step(ctx); err != nil {
			return s, err
		}
	}
	return s, nil
}

// clusters starts three clusters.
func (s *stage) clusters(ctx context.Context) (err error) {
	title("Start three clusters: hub, east and west")
	if _, err := lab.Find(ctx); err != nil {
		return err // its output names what is built
	}
	began := time.Now()
	if s.planes, err = lab.StartPlanes(ctx,
		func(string) lab.Options { return lab.Options{ServiceCIDR: "10.96.0.0/16,fd00:10:96::/112"} }, "hub", "east",
		"west"); err != nil {
		return err
	}
	s.hub, s.east, s.west = s.planes["hub"], &member{id: "east", cluster: s.planes["east"]},
		&member{id: "west", cluster: s.planes["west"]}
	for _, c := range s.planes {
		node, err := lab.StartKubelet(c)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
	}
	text("ready after %.1f s: each has etcd, and kube-apiserver and kube-controller-manager %s; pods are processes",
		time.Since(began).Seconds(), lab.KubernetesVersion)
	s.kubeconfig = filepath.Join(s.hub.Dir(), "all.kubeconfig")
	return s.planes.WriteKubeconfig(s.kubeconfig)
}

// clusterset makes a ClusterSet of the clusters, as docs/start.md describes.
func (s *stage) clusterset(ctx context.Context) error {
	title("Create a ClusterSet")
	return s.plugins(ctx, []plugin{
		{"install kinds, policies and the controller on the hub, and check that it refuses forged writes", initHub},
		{"claim a cluster ID for east, install the agent, and give it credentials for the hub", joinEast},
		{"the same for west", joinWest},
		{"show members and findings", showStatus},
	})
}

// serve starts our CoreDNS in each member.
func (s *stage) serve(ctx context.Context) error {
	title("Replace CoreDNS in both members")
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
	text("with corefile.example, except for")
	text("%s", s.west.dns.Fill(shown))
	return nil
}

// services creates Services in both members.
func (s *stage) services(ctx context.Context) error {
	title("Create Services in both clusters; nothing is exported yet")
	for _, m := range s.members() {
		command("kubectl --context=%s apply -f cmd/clusterset-lab/services.yaml   # pods in %s.0/24", m.id, nets[m.id])
		if err := m.cluster.Apply(ctx, strings.ReplaceAll(services, "NET", nets[m.id])); err != nil {
			return err
		}
	}
	return nil
}

// changes returns lines of corefile.example and their replacements: the demo uses free ports, runs outside a pod, and
// forwards no question.
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

// adapt makes the changes to a Corefile, and adds outsideBlock. It returns them as a diff, too, and fails if a line to
// change is missing.
func adapt(corefile, kubeconfig string) (adapted, shown string, err error) {
	for _, c := range changes(kubeconfig) {
		if !strings.Contains(corefile, c[0]+"\n") {
			return "", "", fmt.Errorf("corefile.example has no line %q; update changes in cmd/clusterset-lab", c[0])
		}
		corefile = strings.ReplaceAll(corefile, c[0]+"\n", c[1]+"\n")
		shown += "- " + c[0] + "\n+ " + strings.ReplaceAll(c[1], "\n", "\n+ ") + "\n"
	}
	block := fmt.Sprintf(outsideBlock, kubeconfig)
	return corefile + block, shown + "+ " + strings.ReplaceAll(strings.TrimSpace(block), "\n", "\n+ ") + "\n", nil
}

// limit is how long the demo waits for a change.
const limit = time.Minute

// plugin is a kubectl clusterset command with its purpose.
type plugin struct{ why, line string }

// plugins runs commands and prints their output. Exit status 1 of status means warnings.
func (s *stage) plugins(ctx context.Context, all []plugin) error {
	for _, p := range all {
		remark(p.why)
		command("kubectl clusterset %s", p.line)
		cmd := exec.CommandContext(ctx, lab.Program(s.root, "kubectl-clusterset"), strings.Fields(p.line)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // Ctrl-C is for this process
		out := &indented{}
		cmd.Stdout, cmd.Stderr = out, out
		err := cmd.Run()
		out.end()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 && p.line == showStatus {
			err = nil
		}
		if err != nil {
			return s.withLogs(fmt.Errorf("kubectl clusterset %s: %w", p.line, err))
		}
	}
	return nil
}

// export applies ServiceExports for Services in the namespace shop.
func (s *stage) export(ctx context.Context, m *member, names ...string) error {
	for _, name := range names {
		command("kubectl --context=%s apply -f -   # ServiceExport shop/%s", m.id, name)
		err := m.cluster.Apply(ctx,
			fmt.Sprintf("apiVersion: multicluster.x-k8s.io/v1beta1\nkind: ServiceExport\nmetadata: {name: %s, "+
				"namespace: shop}\n", name))
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

// vip waits for the VIP of shop/web in a member, for A or AAAA.
func (s *stage) vip(ctx context.Context, m *member, family string) (string, error) {
	index := map[string]int{"A": 0, "AAAA": 1}[family] // in spec.ips, which has the order of ipFamilies
	var ip string
	err := s.eventually(func() (wrong, err error) {
		ip, err = m.cluster.Kubectl(ctx, "", "-n", "shop", "get", "serviceimport", "web", "-o",
			fmt.Sprintf("jsonpath={.spec.ips[%d]}", index), "--ignore-not-found")
		if ip == "" {
			wrong = fmt.Errorf("ServiceImport shop/web has no address in %s", m.id)
		}
		return wrong, err
	})
	return ip, err
}

// eventually looks until nothing is wrong, for a limited time.
func (s *stage) eventually(look func() (wrong, err error)) error {
	for deadline := time.Now().Add(limit); ; {
		wrong, err := look()
		switch {
		case err != nil:
			return s.withLogs(err)
		case wrong == nil:
			return nil
		case time.Now().After(deadline):
			return s.withLogs(fmt.Errorf("after %v: %w", limit, wrong))
		}
	}
}

// shell returns what a shell needs for the commands that the demo shows: their contexts and their plugin.
func shell(root, kubeconfig string) string {
	return fmt.Sprintf("export KUBECONFIG=%q PATH=\"%s:$PATH\"\n", kubeconfig,
		filepath.Dir(lab.Program(root, "kubectl-clusterset")))
}

// env returns the content of bin/lab.env.
func (s *stage) env() string {
	out := shell(s.root, s.kubeconfig) + fmt.Sprintf("export HUB_KUBECONFIG=%s\n", s.hub.Kubeconfig())
	for i, m := range s.members() {
		out += fmt.Sprintf("export MEMBER_%[1]d_KUBECONFIG=%[2]s\nexport MEMBER_%[1]d_DNS=%[3]s\n", i+1,
			m.cluster.Kubeconfig(), m.dns.Addr())
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

// withLogs returns err with the logs of CoreDNS and of the nodes.
func (s *stage) withLogs(err error) error {
	errs := []error{err}
	for _, m := range s.members() {
		if m.dns != nil {
			errs = append(errs, fmt.Errorf("log of CoreDNS in %s:\n%s", m.id, m.dns.Log()))
		}
	}
	for _, n := range s.nodes {
		errs = append(errs, fmt.Errorf("log of a node:\n%s", n.Log()))
	}
	return errors.Join(errs...)
}
