// Package packets proves with packets what the other tests prove with objects: clients reach a clusterset IP, and
// the right backends answer. A hub and three members run as in test/members; each member has a node with a real
// kube-proxy in nftables mode, and pods in network namespaces, routed flat. One test also asks through a kube-proxy in
// iptables mode. It needs root; where it cannot run, the last line it writes says why.
package packets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/clusterset-dns/clusterset-dns/test/lab/offclock"
)

// reportFile names the file to which the last lines of this package's output are appended, for whoever runs it
// among other packages.
const reportFile = "TEST_REPORT"

var (
	obstacle error // why packets cannot be sent on this machine
	ran      atomic.Int32
	figures  []string // for the report, in the order of the tests
)

func TestMain(m *testing.M) {
	if os.Getenv(parentMark) != "" {
		beParent()
	}
	if err := offclock.Run(); err != nil {
		fmt.Println("packets:", err)
		os.Exit(1)
	}
	log.SetLogger(logr.Discard()) // else controller-runtime asks for one
	var err error
	if obstacle, err = possible(); obstacle != nil && required(os.Environ()) {
		err = obstacle
	}
	if err != nil {
		fmt.Println("packets:", err)
		os.Exit(1)
	}
	code := m.Run()
	if shared.world != nil {
		shared.world.stop()
	}
	if err := report(); err != nil {
		fmt.Println(err)
		code = 1
	}
	os.Exit(code)
}

// required returns whether a run without packets is a failure: PACKETS says so, or a target of make writes a page.
func required(environ []string) bool {
	return slices.ContainsFunc(environ, func(variable string) bool {
		name, value, _ := strings.Cut(variable, "=")
		return value != "" && (name == "PACKETS" || strings.HasSuffix(name, "_PAGE"))
	})
}

func TestPagesNeedPackets(t *testing.T) {
	for variable, want := range map[string]bool{
		"PACKETS=required": true, "HANDOVER_PAGE=docs/page.md": true,
		"PACKETS=": false, "HANDOVER_PAGE=": false, "HOME=/root": false,
	} {
		if required([]string{"PATH=/bin", variable}) != want {
			t.Errorf("%s: a run without packets is a failure: want %v", variable, want)
		}
	}
}

func report() error {
	line := fmt.Sprintf("packets: ran %d", ran.Load())
	if obstacle != nil {
		line = fmt.Sprintf("packets: NOT RUN (%v)", obstacle)
	}
	line = strings.Join(append(figures, line), "\n")
	fmt.Println(line)
	name := os.Getenv(reportFile)
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%s: %w", reportFile, err)
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// possible reports whether this machine lets us make network namespaces and nftables rules. Where it does, whatever
// fails is a failure, and so is for root a program that is missing and cannot be installed.
func possible() (obstacle, err error) {
	if os.Geteuid() != 0 {
		return errors.New("not root"), nil
	}
	if err := lab.Require("ip", "nft", "iptables", "conntrack", "dig", "nsenter"); err != nil {
		return nil, err
	}
	n, obstacle := lab.NewNamespace()
	if obstacle != nil {
		return obstacle, nil
	}
	defer n.Close()
	return n.Do(func() error {
		if out, err := exec.Command("nft", "add", "table", "inet", "probe").CombinedOutput(); err != nil {
			return fmt.Errorf("nft: %w %s", err, bytes.TrimSpace(out))
		}
		return nil
	}), nil
}

// world is the clusterset and its network.
type world struct {
	set      *lab.ClusterSet
	net      *network
	a, b, c  *cluster
	clusters []*cluster
}

type cluster struct {
	*lab.Member
	client.Client // the admin's
	node          *node
	proxy         *lab.Proxy
	zone          string
	pod           *pod            // asks
	backends      map[string]*pod // answer; named after the cluster: a1, a2
}

var shared struct {
	sync.Once
	world *world
	err   error
}

// clusters are three members that all tests share; each test keeps to a namespace of its own, which it gets here in
// all three.
func clusters(t *testing.T) (w *world, namespace string) {
	t.Helper()
	if obstacle != nil {
		t.Skipf("packets cannot be sent here: %v", obstacle)
	}
	shared.Do(func() {
		shared.world = &world{}
		shared.err = shared.world.start(context.Background())
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	w = shared.world
	ran.Add(1)
	t.Cleanup(func() {
		if t.Failed() {
			w.tell(t)
		}
	})
	namespace = fmt.Sprintf("test-%d", ran.Load())
	for _, c := range w.clusters {
		c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	}
	return w, namespace
}

// serving are the ports on which every backend answers, by TCP and UDP.
var serving = []int{8080, 8081, 8082}

func (w *world) start(ctx context.Context) (err error) {
	if w.net, err = newNetwork(5); err != nil { // one is for who joins later, one for another mode of kube-proxy
		return err
	}
	w.set, err = lab.StartClusterSet(ctx, lab.ClusterSetOptions{
		Members: []string{"a", "b", "c"},
		Plane: func(string) lab.Options {
			return lab.Options{ServiceCIDR: "10.96.0.0/16,fd00:10:96::/112"} // the same in all, as it often is
		},
	})
	if err != nil {
		return err
	}
	zones := []string{"east", "west", "east"}
	errs := make([]error, 3)
	var all sync.WaitGroup
	for i, m := range w.set.Members {
		c := &cluster{Member: m, node: w.net.nodes[i], zone: zones[i], backends: map[string]*pod{}}
		w.clusters = append(w.clusters, c)
		all.Go(func() { errs[i] = c.start(ctx) })
	}
	all.Wait()
	w.a, w.b, w.c = w.clusters[0], w.clusters[1], w.clusters[2]
	return errors.Join(errs...)
}

// nodeName is the same in all clusters, as it often is: an equal name is not this cluster's node.
const nodeName = "node"

func (c *cluster) start(ctx context.Context) (err error) {
	if c.Client, err = c.Cluster.Client(agent.Scheme()); err != nil {
		return err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelHostname: nodeName}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.77.%d.1", c.node.number)},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd77:%d::1", c.node.number)},
		}},
	}
	if err := c.Create(ctx, node); err != nil {
		return err
	}
	if c.pod, err = c.node.pod(c.ID); err != nil {
		return err
	}
	for i := 1; i <= 2; i++ {
		p, err := c.node.pod(fmt.Sprint(c.ID, i))
		if err != nil {
			return err
		}
		c.backends[p.name] = p
		for _, port := range serving {
			if err := p.serve(port); err != nil {
				return err
			}
		}
	}
	if c.proxy, err = lab.StartProxy(ctx, c.Cluster, nodeName, "nftables", c.node.Do); err != nil {
		return err
	}
	// The zone that its Node has at its start kube-proxy may miss for good: its informer runs already, and may show
	// the Node to NewNodeTopologyConfig before the proxier is registered there; what has not changed since is not
	// told again. So the label comes later.
	before := node.DeepCopy()
	node.Labels[corev1.LabelTopologyZone] = c.zone
	return c.Patch(ctx, node, client.MergeFrom(before))
}

// tell logs what a failure may come from.
func (w *world) tell(t *testing.T) {
	for _, c := range w.clusters {
		log := strings.Split(c.Agent.Log(), "\n")
		t.Logf("agent %s:\n%s", c.ID, strings.Join(log[max(0, len(log)-40):], "\n"))
		t.Logf("kube-proxy %s:\n%s", c.ID, c.proxy.Log())
		rules, err := c.node.ruleset()
		t.Logf("rules of %s: %v\n%s", c.ID, err, rules)
	}
}

func (w *world) stop() {
	for _, c := range w.clusters {
		c.proxy.Stop()
	}
	if w.set != nil {
		w.set.Stop()
	}
	if w.net != nil {
		w.net.close()
	}
}
