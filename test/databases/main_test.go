//go:build databases

// Package databases forms databases over three clusters by names of the clusterset alone, replaces their Pods, loses
// the cluster that leads and restores it. Control planes, agents and CoreDNS are real; a Pod of a real StatefulSet is
// a process with an address and a resolv.conf of its own. It does not run kubelets or images: the programs are
// Debian's and Go modules'. docs/databases.md has the manifests, and its table and docs/databases.log are written here.
// make databases runs it.
package databases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// inside names the folder of downloaded programs to the process that runs the tests: it has a network of its own, with
// routes to all Pods.
const inside = "DATABASES_INSIDE"

// enter puts the downloaded packages over /usr, and gives databases a /var/lib of their own.
const enter = `set -e
mount -t overlay overlay -o "lowerdir=$0/debian/usr:/usr" /usr
mount -t tmpfs tmpfs /var/lib
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
exec "$@"`

// path is where Pods and the page's commands find programs: the laboratory's etcd and kubectl, Debian's and NATS'.
var path string

func TestMain(m *testing.M) {
	if os.Getenv(inside) == "" {
		if err := runInside(); err != nil {
			fmt.Println("databases:", err)
			os.Exit(1)
		}
		return
	}
	log.SetLogger(logr.Discard()) // else controller-runtime asks for one
	bin, err := lab.Find(context.Background())
	if err != nil {
		fmt.Println("databases:", err)
		os.Exit(1)
	}
	path = strings.Join([]string{filepath.Dir(bin.Etcd), os.Getenv("PATH"), "/usr/local/bin", "/usr/sbin"}, ":")
	code := m.Run()
	if shared.world != nil {
		shared.world.stop()
	}
	os.Exit(code)
}

func runInside() error {
	if err := lab.Require("ip", "nft", "dig", "unshare", "setpriv", "hostname", "openssl"); err != nil {
		return err
	}
	if _, err := lab.Find(context.Background()); err != nil { // built once, where there is a network
		return err
	}
	ours, err := filepath.Abs(os.Getenv("DATABASES_BIN"))
	if err != nil || os.Getenv("DATABASES_BIN") == "" {
		return errors.New("DATABASES_BIN is not set: run make databases, as root")
	}
	cmd := exec.Command("sh", append([]string{"-c", enter, ours}, os.Args...)...)
	cmd.Env = append(os.Environ(), inside+"="+ours)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
	}
	return cmd.Run()
}

// world is a clusterset of three members, whose Pods reach each other.
//
//	cluster n   10.77.n.1 its agent, 10.77.n.53 its CoreDNS, 10.(200+n).0.0/16 its Pods
type world struct {
	set      *lab.ClusterSet
	clusters []*cluster
}

type cluster struct {
	*lab.Member
	client.Client // the admin's
	number        int
	kubelet       *kubelet
}

var shared struct {
	sync.Once
	world *world
	err   error
}

// clusters returns the world, which all tests share.
func clusters(t *testing.T) *world {
	t.Helper()
	shared.Do(func() {
		shared.world = &world{}
		p := readPage(t, "docs/databases.md")
		before, domains := p.section(t, "Before you start"), p.section(t, "CockroachDB")
		shared.err = shared.world.start(context.Background(), before, domains)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.world
}

// start starts it. Each cluster gets what is typed before, and a CoreDNS with the block of domains.
func (w *world) start(ctx context.Context, before, domains section) (err error) {
	ids := []string{"east", "north", "west"}
	args, env := map[string][]string{}, map[string][]string{}
	for i, id := range ids {
		at := fmt.Sprintf("10.77.%d", i+1)
		if err := command("ip", "addr", "add", at+".1/32", "dev", "lo"); err != nil {
			return err
		}
		if err := command("ip", "addr", "add", at+".53/32", "dev", "lo"); err != nil {
			return err
		}
		args[id] = []string{"--answer-bind-address=" + at + ".1:8082"}
		env[id] = []string{"POD_IPS=" + at + ".1"}
	}
	w.set, err = lab.StartClusterSet(ctx, lab.ClusterSetOptions{Members: ids, AgentArgs: args, AgentEnv: env})
	if err != nil {
		return err
	}
	for i, m := range w.set.Members {
		w.clusters = append(w.clusters, &cluster{Member: m, number: i + 1})
	}
	return w.each(func(c *cluster) error { return c.start(ctx, before, domains) })
}

// each does something for all clusters at once.
func (w *world) each(do func(*cluster) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(w.clusters))
	for i, c := range w.clusters {
		all.Go(func() {
			if err := do(c); err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.ID, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// dns is where the cluster's Pods ask.
func (c *cluster) dns() string { return fmt.Sprintf("10.77.%d.53", c.number) }

// resolvConf is that of its Pods.
func (c *cluster) resolvConf() string {
	return "nameserver " + c.dns() + "\nsearch db.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
}

// corefile is what a cluster's CoreDNS has beside the page's block.
const corefile = `.:53 {
    bind %[1]s
    errors
    health HEALTH_ADDR
    kubernetes cluster.local {
        kubeconfig %[2]s
    }
}
%[3]s`

func (c *cluster) start(ctx context.Context, before, domains section) (err error) {
	if c.Client, err = c.Cluster.Client(agent.Scheme()); err != nil {
		return err
	}
	c.DNS, err = lab.ServeDNS(ctx, c.Cluster, func(kubeconfig string) (string, error) {
		block := strings.NewReplacer(
			"ready\n",
			"bind "+c.dns()+"\n    ready READY_ADDR\n",
			"multicluster clusterset.local\n",
			"multicluster clusterset.local {\n        kubeconfig "+kubeconfig+"\n    }\n",
		).Replace(domains.blocks("corefile"))
		return fmt.Sprintf(corefile, c.dns(), kubeconfig, block), nil
	})
	if err != nil {
		return err
	}
	if err := c.run(ctx, before, ""); err != nil {
		return err
	}
	c.kubelet, err = startKubelet(c)
	return err
}

// run types the commands of a section in a folder that has its manifest.
func (c *cluster) run(ctx context.Context, s section, manifest string) error {
	dir, err := os.MkdirTemp("", "databases-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if manifest != "" {
		if err := os.WriteFile(filepath.Join(dir, manifest), []byte(s.blocks("yaml")), 0o600); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "bash", "-ec", s.blocks("sh"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path, "KUBECONFIG="+c.Cluster.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", s.name, err, out)
	}
	return nil
}

// lose takes a whole cluster's power: Pods, agent, CoreDNS and control plane end, and nothing of it answers, not even
// with a refusal.
func (w *world) lose(c *cluster) error {
	err := command("nft", fmt.Sprintf("add table inet lost-%[1]s; add chain inet lost-%[1]s in "+
		"{ type filter hook prerouting priority -300; }; "+
		"add rule inet lost-%[1]s in ip saddr { 10.77.%[2]d.0/24, 10.%[3]d.0.0/16 } drop; "+
		"add rule inet lost-%[1]s in ip daddr 10.77.%[2]d.0/24 drop", c.ID, c.number, 200+c.number))
	c.kubelet.stop()
	c.Agent.Kill()
	c.DNS.Kill()
	c.Cluster.KillAPIServer()
	c.Cluster.KillEtcd()
	return err
}

// restore gives the power back. Volumes are what they were; Pods get other addresses.
func (w *world) restore(ctx context.Context, c *cluster) (err error) {
	if err := command("nft", "delete table inet lost-"+c.ID); err != nil {
		return err
	}
	if err := c.Cluster.StartEtcd(); err != nil {
		return err
	}
	if err := c.Cluster.StartAPIServer(ctx); err != nil {
		return err
	}
	if err := c.Agent.Start(ctx); err != nil {
		return err
	}
	if err := c.DNS.Start(ctx); err != nil {
		return err
	}
	c.kubelet, err = startKubelet(c)
	return err
}

func (w *world) stop() {
	for _, c := range w.clusters {
		c.kubelet.stop()
	}
	if w.set != nil {
		w.set.Stop()
	}
}

func command(program string, args ...string) error {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return nil
}
