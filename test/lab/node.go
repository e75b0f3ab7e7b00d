package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab/programs"
)

// NodeOptions are the addresses of a Node.
type NodeOptions struct {
	Name       string
	Network    *Namespace // with routes to the control plane and to other nodes' Pods
	Addresses  []string   // one per family
	PodRanges  []string   // one per family, both routed to this node
	ClusterDNS string     // clusterIP of the Service kube-dns
	Nameserver string     // for Pods with dnsPolicy Default, such as CoreDNS
}

// Node is a machine of a control plane: containerd, kubelet and kube-proxy, which run real Pods. Its processes have a
// PID namespace and a mount namespace of their own, so that all of it goes with the first process, however that ends.
// kubelet sets some of the machine's kernel parameters, as on every node.
type Node struct {
	plane   *ControlPlane
	options NodeOptions
	dir     string // of configuration, logs and images; deleted at the end
	cgroup  string

	init, containerd, kubelet, proxy *process
	pid                              int // of the first process
}

// nodeInit is the first process of a node: it gives it its own /sys, /run, /var/lib and /var/log, and reaps.
const nodeInit = `set -e
mkdir -p "$1/cgroup" "$1/lib"
mount --rbind /sys/fs/cgroup "$1/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$1/cgroup" /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/log
mount --bind "$1/lib" /var/lib
mount --make-rshared /
touch "$1/ready"
while :; do sleep 86400; done`

// StartNode starts one, and returns when it is Ready. It needs root.
func StartNode(ctx context.Context, c *ControlPlane, o NodeOptions) (*Node, error) {
	if err := Require("containerd", "runc", "ptp", "nft", "conntrack", "unshare", "ip"); err != nil {
		return nil, err
	}
	bin, err := FindNode(ctx)
	if err != nil {
		return nil, err
	}
	n := &Node{plane: c, options: o, cgroup: fmt.Sprintf("clusterset-lab-%s-%d", o.Name, os.Getpid())}
	if n.dir, err = newFolder(os.TempDir(), "node"); err != nil {
		return nil, err
	}
	if err := n.start(ctx, bin); err != nil {
		err = fmt.Errorf("node %s: %w\n%s", o.Name, err, n.Log())
		n.Stop()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx context.Context, bin *NodeBinaries) error {
	if err := n.configure(); err != nil {
		return err
	}
	err := n.options.Network.Do(func() (err error) {
		n.init, err = spawn(n.plane.bin, "node", n.path("init.log"), []string{n.dir}, nil,
			"unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc",
			"sh", "-c", nodeInit, "node", n.dir)
		return err
	})
	if err != nil {
		return err
	}
	ready := func() bool { return programs.Exists(n.path("ready")) }
	if err := n.init.until(ctx, "set up", startLimit, ready); err != nil {
		return err
	}
	child, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", n.init.pid))
	if err != nil {
		return err
	}
	if n.pid, err = strconv.Atoi(strings.TrimSpace(string(child))); err != nil {
		return fmt.Errorf("the node's first process: %w", err)
	}
	if err := n.makeCgroups(); err != nil {
		return err
	}
	if n.containerd, err = n.spawn("containerd", "containerd", "--config="+n.path("containerd.toml")); err != nil {
		return err
	}
	err = n.containerd.until(ctx, "serving", startLimit, func() bool {
		return n.command(ctx, "ctr", "version").Run() == nil
	})
	if err != nil {
		return err
	}
	n.kubelet, err = n.spawn("kubelet", bin.Kubelet, "--config="+n.path("kubelet.yaml"),
		"--kubeconfig="+n.plane.Kubeconfig(), "--hostname-override="+n.options.Name,
		"--node-ip="+strings.Join(n.options.Addresses, ","))
	if err != nil {
		return err
	}
	if n.proxy, err = n.spawn("kube-proxy", bin.KubeProxy, "--config="+n.path("kube-proxy.yaml")); err != nil {
		return err
	}
	return n.kubelet.until(ctx, "Ready", startLimit, func() bool {
		said, err := n.plane.Kubectl(ctx, "", "get", "node", n.options.Name, "--ignore-not-found",
			`-o=jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return err == nil && said == "True"
	})
}

// command runs a program as one of the node.
func (n *Node) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", n.enter(args...)...)
}

func (n *Node) enter(args ...string) []string {
	return append([]string{"--target=" + strconv.Itoa(n.pid), "--mount", "--pid", "--net", "--"}, args...)
}

func (n *Node) spawn(name, program string, args ...string) (*process, error) {
	return spawn(n.plane.bin, name, n.path(name+".log"), nil, nil, "nsenter",
		n.enter(append([]string{program}, args...)...)...)
}

// Import gives the node the images of a docker archive.
func (n *Node) Import(ctx context.Context, archive string) error {
	out, err := n.command(ctx, "ctr", "-n", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr images import %s: %w: %s", archive, err, out)
	}
	return nil
}

func (n *Node) path(name string) string { return filepath.Join(n.dir, name) }

// Log is the end of what each of its programs has written.
func (n *Node) Log() (all string) {
	for _, p := range []*process{n.init, n.containerd, n.kubelet, n.proxy} {
		if p != nil {
			all += p.name + ":\n" + p.tail() + "\n"
		}
	}
	return all
}

// Stop ends it at once, as the loss of the machine would.
func (n *Node) Stop() {
	if n == nil {
		return
	}
	for _, p := range []*process{n.proxy, n.kubelet, n.containerd, n.init} {
		p.kill()
	}
	_ = os.RemoveAll(n.dir) // the watchdog did it already
	removeCgroups(n.cgroup)
}

// configure writes the files that its programs read.
func (n *Node) configure() error {
	said, err := exec.Command("containerd", "--version").Output()
	if err != nil {
		return err
	}
	containerd := containerd2
	if bytes.Contains(said, []byte(" 1.")) || bytes.Contains(said, []byte(" v1.")) {
		containerd = containerd1
	}
	plugins := pluginFolder()
	ranges := make([]string, len(n.options.PodRanges))
	for i, r := range n.options.PodRanges {
		ranges[i] = fmt.Sprintf(`[{"subnet": %q}]`, r)
	}
	if err := os.Mkdir(n.path("cni"), 0o755); err != nil {
		return err
	}
	var errs []error
	for name, text := range map[string]string{
		"containerd.toml":     fmt.Sprintf(containerd, plugins, n.path("cni")),
		"cni/10-lab.conflist": fmt.Sprintf(cniConfig, strings.Join(ranges, ", ")),
		"resolv.conf":         "nameserver " + n.options.Nameserver + "\n",
		"kubelet.yaml":        fmt.Sprintf(kubeletConfig, n.cgroup, n.options.ClusterDNS, n.path("resolv.conf")),
		"kube-proxy.yaml":     fmt.Sprintf(proxyConfig, n.plane.Kubeconfig(), "nftables", n.options.Name),
	} {
		errs = append(errs, os.WriteFile(n.path(name), []byte(text), 0o600))
	}
	return errors.Join(errs...)
}

// pluginFolder has the CNI plugins: Debian's, or where others put them.
func pluginFolder() string {
	for _, dir := range pluginFolders {
		if programs.Exists(filepath.Join(dir, "ptp")) {
			return dir
		}
	}
	return ""
}

// makeCgroups makes the node's cgroup, which kubelet expects. In cgroup v1 there is one per controller.
func (n *Node) makeCgroups() error {
	for _, old := range cgroups("clusterset-lab-*-*") { // of runs that were killed
		owner := old[strings.LastIndex(old, "-")+1:]
		if ended(owner) {
			removeCgroups(filepath.Base(old))
		}
	}
	if programs.Exists("/sys/fs/cgroup/cgroup.controllers") {
		return os.MkdirAll(filepath.Join("/sys/fs/cgroup", n.cgroup), 0o755)
	}
	controllers := []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"}
	for _, controller := range controllers {
		parent := filepath.Join("/sys/fs/cgroup", controller)
		if err := os.MkdirAll(filepath.Join(parent, n.cgroup), 0o755); err != nil {
			return err
		}
		if controller != "cpuset" {
			continue
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(parent, name))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(parent, n.cgroup, name), all, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// cgroups are the folders of a cgroup by its name: one in cgroup v2, one per controller in v1.
func cgroups(name string) []string {
	v2, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", name)) // the pattern is ours
	v1, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", name))
	return append(v2, v1...)
}

// removeCgroups removes a cgroup once its processes have ended. The kernel refuses before that.
func removeCgroups(name string) {
	for deadline := time.Now().Add(5 * time.Second); len(cgroups(name)) > 0 && time.Now().Before(deadline); {
		for _, top := range cgroups(name) {
			var folders []string
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error { // gone is as good
				if err == nil && d.IsDir() {
					folders = append(folders, path)
				}
				return nil
			})
			for _, folder := range slices.Backward(folders) {
				_ = os.Remove(folder)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}
