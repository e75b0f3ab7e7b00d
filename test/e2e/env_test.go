// Package e2e walks docs/start.md as written, on real nodes: two clusters with containerd, kubelet and kube-proxy in
// network namespaces, dual-stack, with the images of make image and the CoreDNS that kubeadm installs. It needs root.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const architecture = runtime.GOARCH

// services is the same range in both clusters, as kubeadm gives it.
const (
	services   = "10.96.0.0/16,fd00:10:96::/112"
	clusterDNS = "10.96.0.10"
)

// world is two clusters, each a control plane and a node in one network namespace, and a router between them. The
// router is also the place of whoever types the page's commands.
//
//	node n   10.77.n.1 fd77:n::1     its side of the link to the router, which has .254
//	pods     10.(200+n).0.0/16 fd02:n::/48
type world struct {
	root     string // of the checkout
	dir      string // of this test
	router   *lab.Namespace
	clusters map[string]*cluster
	bin      *lab.Binaries
	node     *lab.NodeBinaries
	agnhost  string // the image that Pods of tests have
}

type cluster struct {
	name    string
	number  int
	network *lab.Namespace
	plane   *lab.ControlPlane
	node    *lab.Node
}

// start makes the world: clusters as kubeadm leaves them. It ends with the test.
func start(t *testing.T, pages ...string) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("run make e2e as root: it makes network namespaces and mounts")
	}
	began := time.Now()
	w := &world{dir: t.TempDir(), clusters: map[string]*cluster{}}
	t.Cleanup(w.stop)
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"programs", w.programs},
		{"images", func(ctx context.Context) error { return w.pack(ctx, pages) }},
		{"network and clusters", w.network},
		{"CoreDNS", w.stock},
	} {
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v\n%s", step.what, err, w.logs())
		}
		t.Logf("%s: done after %.1f s", step.what, time.Since(began).Seconds())
	}
	return w
}

// programs finds what everything else needs, or builds or installs it.
func (w *world) programs(ctx context.Context) (err error) {
	if w.root, err = lab.Root(); err != nil {
		return err
	}
	if err := lab.Require("ip", "curl", "busybox", "dig"); err != nil {
		return err
	}
	if w.bin, err = lab.Find(ctx); err != nil {
		return err
	}
	if w.node, err = lab.FindNode(ctx); err != nil {
		return err
	}
	for name, pkg := range map[string]string{
		"agnhost": "./test/e2e/agnhost",
		"coredns": "github.com/coredns/coredns", // the stock one, of the version that ours is made of
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", w.path(name), pkg)
		cmd.Dir, cmd.Env = w.root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s failed: %w\n%s", pkg, err, out)
		}
	}
	return nil
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

var (
	imageFlag = regexp.MustCompile(`--image=(\S+/\S+)`)
	stockName = regexp.MustCompile(`image: (\S+/coredns:\S+)`)
)

// pack writes the archives that nodes get beside those of make image: a stand-in for each image that a page names, the
// stock CoreDNS, and pause.
func (w *world) pack(ctx context.Context, pages []string) error {
	names := map[string]bool{}
	for _, page := range pages {
		for _, m := range imageFlag.FindAllStringSubmatch(page, -1) {
			if !strings.HasPrefix(m[1], "REGISTRY/") {
				names[m[1]] = true
			}
		}
	}
	tools := image{
		tags: []string{}, entrypoint: []string{"/agnhost"}, command: []string{"pause"},
		files: map[string]string{"agnhost": w.path("agnhost")}, links: map[string]string{},
	}
	for name := range names {
		tools.tags = append(tools.tags, name)
		w.agnhost = name
	}
	if len(names) != 1 {
		return fmt.Errorf("the pages name the images %v, want one", names)
	}
	programs := []string{"curl", "dig"}
	if os.Getenv("CONFORMANCE") != "" { // upstream's suite has images of its own, with these programs
		tools.tags = append(tools.tags, "docker.io/alpine/socat:1.7.4.4", "docker.io/nicolaka/netshoot:v0.15")
		programs = append(programs, "nslookup", "socat", "nc.openbsd", "dash")
		if err := lab.Require(programs...); err != nil {
			return err
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	tools.files["bin/busybox"] = busybox
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return err
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet != "busybox" {
			tools.links["bin/"+applet] = "busybox"
		}
	}
	for _, program := range programs {
		if err := tools.withProgram(program); err != nil {
			return err
		}
		delete(tools.links, "bin/"+program)
	}
	if tools.files["usr/bin/dash"] != "" { // busybox's own shell prefers its own nslookup and nc
		tools.links["bin/sh"], tools.links["bin/nc"] = "/usr/bin/dash", "/usr/bin/nc.openbsd"
	}
	manifests, err := w.kubeadm(ctx)
	if err != nil {
		return err
	}
	stock := stockName.FindStringSubmatch(manifests)
	if stock == nil {
		return fmt.Errorf("kubeadm names no image of CoreDNS:\n%s", manifests)
	}
	return errors.Join(
		tools.write(w.path("tools.tar")),
		image{
			tags: []string{
				stock[1],
			},
			entrypoint: []string{"/coredns"},
			files:      map[string]string{"coredns": w.path("coredns")},
		}.write(w.path("stock.tar")),
		image{
			tags: []string{lab.PauseImage}, entrypoint: []string{"/agnhost", "pause"},
			files: map[string]string{"agnhost": w.path("agnhost")},
		}.write(w.path("pause.tar")))
}

// kubeadm gives what it installs for CoreDNS.
func (w *world) kubeadm(ctx context.Context) (string, error) {
	config := w.path("kubeadm.yaml")
	text := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n" +
		"localAPIEndpoint: {advertiseAddress: 10.77.1.1}\n" +
		"nodeRegistration: {name: node, criSocket: unix:///none}\n---\n" +
		"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: " + lab.KubernetesVersion +
		"\nnetworking: {serviceSubnet: \"" + services + "\"}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(
		ctx,
		w.node.Kubeadm,
		"init",
		"phase",
		"addon",
		"coredns",
		"--config="+config,
		"--print-manifest",
	)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubeadm: %w: %s", err, said.String())
	}
	return string(out), nil
}

// network makes the router, and a cluster on each of its links.
func (w *world) network(ctx context.Context) (err error) {
	if w.router, err = lab.NewNamespace(); err != nil {
		return err
	}
	for i, name := range []string{"east", "west"} {
		c := &cluster{name: name, number: i + 1}
		w.clusters[name] = c
		n := c.number
		if c.network, err = lab.NewNamespace(); err != nil {
			return err
		}
		err = errors.Join(
			w.router.IP(
				fmt.Sprintf("link add %s type veth peer name router netns %s", name, c.network.Path()),
				fmt.Sprintf("addr add 10.77.%d.254/24 dev %s", n, name),
				fmt.Sprintf("addr add fd77:%d::254/64 dev %s nodad", n, name)),
			c.network.IP(
				fmt.Sprintf("addr add 10.77.%d.1/24 dev router", n),
				fmt.Sprintf("addr add fd77:%d::1/64 dev router nodad", n),
				"link set router up",
				fmt.Sprintf("route add default via 10.77.%d.254", n)),
			w.connect(c),
			c.network.IP(fmt.Sprintf("route add default via fd77:%d::254", n)))
		if err != nil {
			return err
		}
	}
	errs := make([]error, 0, len(w.clusters))
	var all sync.WaitGroup
	var mu sync.Mutex
	for _, c := range w.clusters {
		all.Go(func() {
			err := c.start(ctx, w)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	planes := lab.Planes{}
	for name, c := range w.clusters {
		planes[name] = c.plane
	}
	return planes.WriteKubeconfig(w.path("kubeconfig")) // contexts as the page assumes
}

// connect brings a cluster's link up; cut takes it away, with its routes.
func (w *world) connect(c *cluster) error {
	return w.router.IP(
		fmt.Sprintf("link set %s up", c.name),
		// A link that goes down loses its IPv6 addresses.
		fmt.Sprintf("addr replace fd77:%d::254/64 dev %s nodad", c.number, c.name),
		fmt.Sprintf("route add 10.%d.0.0/16 via 10.77.%d.1", 200+c.number, c.number),
		fmt.Sprintf("route add fd02:%d::/48 via fd77:%[1]d::1", c.number))
}

func (w *world) cut(c *cluster) error { return w.router.IP(fmt.Sprintf("link set %s down", c.name)) }

func (c *cluster) start(ctx context.Context, w *world) (err error) {
	n := c.number
	c.plane, err = lab.Start(ctx, lab.Options{
		ServiceCIDR: services, Scheduler: true, In: c.network.Do, Address: fmt.Sprintf("10.77.%d.1", n),
		APIServer: []string{"--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP"},
		ControllerManager: []string{
			"--allocate-node-cidrs=true", "--service-cluster-ip-range=" + services,
			fmt.Sprintf("--cluster-cidr=10.%d.0.0/16,fd02:%d::/48", 200+n, n),
			"--node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size-ipv6=64",
		},
	})
	if err != nil {
		return err
	}
	c.node, err = lab.StartNode(ctx, c.plane, lab.NodeOptions{
		Name: "node", Network: c.network, // the same name in both: an equal name is not this cluster's node
		Addresses:  []string{fmt.Sprintf("10.77.%d.1", n), fmt.Sprintf("fd77:%d::1", n)},
		PodRanges:  []string{fmt.Sprintf("10.%d.0.0/24", 200+n), fmt.Sprintf("fd02:%d::/64", n)},
		ClusterDNS: clusterDNS, Nameserver: fmt.Sprintf("10.77.%d.254", n), // where nobody answers
	})
	if err != nil {
		return err
	}
	archives := []string{w.path("tools.tar"), w.path("stock.tar"), w.path("pause.tar")}
	for _, program := range []string{"coredns", "clusterset-controller"} {
		archives = append(archives, w.archive(program))
	}
	for _, archive := range archives {
		if err := c.node.Import(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// archive is one of make image's.
func (w *world) archive(program string) string {
	return filepath.Join(w.root, "bin", "e2e", program+"-docker-"+architecture+".tar")
}

// stock installs kubeadm's CoreDNS in both clusters.
func (w *world) stock(ctx context.Context) error {
	manifests, err := w.kubeadm(ctx)
	if err != nil {
		return err
	}
	for _, c := range w.clusters {
		if _, err := c.plane.Kubectl(ctx, manifests, "apply", "-f", "-"); err != nil {
			return err
		}
	}
	for _, c := range w.clusters {
		if _, err := c.plane.Kubectl(ctx, "", "-n", "kube-system", "rollout", "status", "deployment/coredns",
			"--timeout=120s"); err != nil {
			return err
		}
	}
	return nil
}

// shell runs commands as the reader types them: at the root of the checkout, with variables of earlier commands.
func (w *world) shell(ctx context.Context, commands string) (string, error) {
	variables := w.path("variables")
	script := fmt.Sprintf(
		"set -eu -o pipefail -a\n[ ! -f %[1]s ] || source %[1]s\n%[2]s\nexport -p > %[1]s\n",
		variables,
		commands,
	)
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = w.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.path("kubeconfig"), "HOME="+w.dir,
		"PATH="+filepath.Join(w.root, "bin")+":"+filepath.Dir(w.bin.Kubectl)+":"+os.Getenv("PATH"))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := w.router.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}

// logs is what each node's programs and each cluster's Pods say.
func (w *world) logs() (all string) {
	for name, c := range w.clusters {
		if c.node != nil {
			all += name + ":\n" + c.node.Log()
		}
		if c.plane != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			pods, err := c.plane.Kubectl(ctx, "", "get", "pods,events", "-A", "-o", "wide")
			all += fmt.Sprintf("%s %v\n", pods, err)
			cancel()
		}
	}
	return all
}

func (w *world) stop() {
	for _, c := range w.clusters {
		c.node.Stop()
		if c.plane != nil {
			c.plane.Stop()
		}
		c.network.Close()
	}
	w.router.Close()
}
