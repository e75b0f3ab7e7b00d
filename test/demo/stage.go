package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// stage is a hub and its members, east and west.
type stage struct {
	root       string
	kubectl    string // the program
	kubeconfig string // of an admin of all of them
	planes     lab.Planes
	nodes      []*lab.Kubelet
	dns        map[string]*lab.DNS // by member
}

var members = []string{"east", "west"}

// start starts three clusters.
func (s *stage) start(ctx context.Context) error {
	if err := lab.Require("dig"); err != nil {
		return err
	}
	for _, program := range []string{"coredns", "clusterset-controller", "kubectl-clusterset"} {
		if _, err := os.Stat(lab.Program(s.root, program)); err != nil {
			return fmt.Errorf("%s does not exist; to build it: make build: %w", lab.Program(s.root, program), err)
		}
	}
	title("Start three clusters: hub, east and west")
	found, err := lab.Find(ctx) // its output names what is built
	if err != nil {
		return err
	}
	s.kubectl = found.Kubectl
	began := time.Now()
	if s.planes, err = lab.StartPlanes(ctx, func(string) lab.Options {
		return lab.Options{ServiceCIDR: "10.96.0.0/16,fd00:10:96::/112"}
	}, append([]string{"hub"}, members...)...); err != nil {
		return err
	}
	for _, c := range s.planes {
		node, err := lab.StartKubelet(c)
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
	}
	text("ready after %.1f s: each has etcd, and kube-apiserver and kube-controller-manager %s; pods are processes",
		time.Since(began).Seconds(), lab.KubernetesVersion)
	s.kubeconfig = filepath.Join(s.planes["hub"].Dir(), "all.kubeconfig")
	return s.planes.WriteKubeconfig(s.kubeconfig)
}

// serve starts our CoreDNS in each member.
func (s *stage) serve(ctx context.Context) error {
	example, err := os.ReadFile(filepath.Join(s.root, "corefile.example"))
	if err != nil {
		return err
	}
	_, shown, err := adapt(string(example), "KUBECONFIG")
	if err != nil {
		return err
	}
	errs, served := make([]error, len(members)), make([]*lab.DNS, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		fmt.Printf("    $ kubectl --context=%s apply -k deploy/coredns\n", m)
		all.Go(func() {
			served[i], errs[i] = lab.ServeDNS(ctx, s.planes[m], func(kubeconfig string) (string, error) {
				corefile, _, err := adapt(string(example), kubeconfig)
				return corefile, err
			})
		})
	}
	all.Wait()
	for i, m := range members {
		if served[i] != nil {
			s.dns[m] = served[i]
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	text("with corefile.example, except for\n%s", s.dns["west"].Fill(shown))
	return nil
}

// outside is the server block for clients outside the clusters that the demo adds to corefile.example.
const outside = `# Answers clients outside the clusters.
global.example:DNS_PORT {
    bind 127.0.0.1
    errors
    multicluster_external {
       kubeconfig %s
       nameserver 192.0.2.53
    }
}
`

// adapt changes lines of a Corefile, because the demo uses free ports, runs outside a Pod, and forwards no question,
// and adds the block for clients outside. It returns the changes as a diff, too, and fails if a line is missing.
func adapt(corefile, kubeconfig string) (adapted, shown string, err error) {
	for _, c := range [][2]string{
		{".:53 {", ".:DNS_PORT {\n    bind 127.0.0.1"},
		{"clusterset.local:53 {", "clusterset.local:DNS_PORT {\n    bind 127.0.0.1"},
		{"    health {", "    health HEALTH_ADDR {"},
		{"    ready", "    ready READY_ADDR"},
		{"    multicluster", "    multicluster {\n       kubeconfig " + kubeconfig + "\n    }"},
		{"    kubernetes cluster.local in-addr.arpa ip6.arpa {",
			"    kubernetes cluster.local in-addr.arpa ip6.arpa {\n       kubeconfig " + kubeconfig},
		{"    prometheus :9153", "    prometheus METRICS_ADDR"},
		{"    forward . /etc/resolv.conf {", "    forward . 127.0.0.1:1 {"},
	} {
		if !strings.Contains(corefile, c[0]+"\n") {
			return "", "", fmt.Errorf("corefile.example has no line %q; update adapt in test/demo", c[0])
		}
		corefile = strings.ReplaceAll(corefile, c[0]+"\n", c[1]+"\n")
		shown += "- " + c[0] + "\n+ " + strings.ReplaceAll(c[1], "\n", "\n+ ") + "\n"
	}
	block := fmt.Sprintf(outside, kubeconfig)
	return corefile + block, shown + "+ " + strings.ReplaceAll(strings.TrimSpace(block), "\n", "\n+ ") + "\n", nil
}

// shell returns what a shell needs for the commands of the script: their contexts, kubectl, and its plugin.
func (s *stage) shell() []string {
	plugin := filepath.Dir(lab.Program(s.root, "kubectl-clusterset"))
	return []string{"KUBECONFIG=" + s.kubeconfig, "PATH=" + plugin + ":" + filepath.Dir(s.kubectl) + ":" +
		os.Getenv("PATH")}
}

// env returns the content of bin/lab.env, with the address of each member's DNS.
func (s *stage) env(dns func(member string) string) string {
	out := fmt.Sprintf("export KUBECONFIG=%q PATH=\"%s:$PATH\"\nexport HUB_KUBECONFIG=%s\n", s.kubeconfig,
		filepath.Dir(lab.Program(s.root, "kubectl-clusterset")), s.planes["hub"].Kubeconfig())
	for i, m := range members {
		out += fmt.Sprintf("export MEMBER_%[1]d_KUBECONFIG=%[2]s\nexport MEMBER_%[1]d_DNS=%[3]s\n", i+1,
			s.planes[m].Kubeconfig(), dns(m))
	}
	return out
}

func (s *stage) stop() {
	for _, n := range s.nodes {
		n.Stop()
	}
	for _, d := range s.dns {
		d.Stop()
	}
	s.planes.Stop()
}

// withLogs returns err with the logs of CoreDNS and of the nodes.
func (s *stage) withLogs(err error) error {
	errs := []error{err}
	for _, m := range slices.Sorted(maps.Keys(s.dns)) {
		errs = append(errs, fmt.Errorf("log of CoreDNS in %s:\n%s", m, s.dns[m].Log()))
	}
	for _, n := range s.nodes {
		errs = append(errs, fmt.Errorf("log of a node:\n%s", n.Log()))
	}
	return errors.Join(errs...)
}
