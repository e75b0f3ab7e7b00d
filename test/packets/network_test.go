package packets

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// network is a router with a node per cluster behind it, and pods behind each node. Pods are routed flat between
// clusters; addresses
// of Services are not, so a packet to one that no kube-proxy has rewritten gets nowhere.
//
//	node n   10.77.n.1 fd77:n::1     its side of the link to the router, which has .254
//	pod p    10.(200+n).0.p fd02:n::p, and as a client also all of 10.(200+n).p.0/24 fd02:n:0:p::/64
type network struct {
	router *lab.Namespace
	nodes  []*node
}

type node struct {
	*lab.Namespace
	number int
	pods   []*pod
}

// pod is a namespace with one address of each family, a client or a backend.
type pod struct {
	*lab.Namespace
	name      string
	v4, v6    netip.Addr
	number    [2]int // of its node, of itself
	servers   []io.Closer
	listeners map[int]net.Listener // of TCP, by port
}

func newNetwork(nodes int) (*network, error) {
	w := &network{}
	var err error
	if w.router, err = lab.NewNamespace(); err != nil {
		return w, err
	}
	for n := 1; n <= nodes; n++ {
		nd := &node{number: n}
		w.nodes = append(w.nodes, nd)
		if nd.Namespace, err = lab.NewNamespace(); err != nil {
			return w, err
		}
		err = errors.Join(
			w.router.IP(
				fmt.Sprintf("link add node%d type veth peer name router netns %s", n, nd.Path()),
				fmt.Sprintf("addr add 10.77.%d.254/24 dev node%[1]d", n),
				fmt.Sprintf("addr add fd77:%d::254/64 dev node%[1]d nodad", n),
				fmt.Sprintf("link set node%d up", n)),
			nd.IP(
				fmt.Sprintf("addr add 10.77.%d.1/24 dev router", n),
				fmt.Sprintf("addr add fd77:%d::1/64 dev router nodad", n),
				"link set router up",
				fmt.Sprintf("route add default via 10.77.%d.254", n),
				fmt.Sprintf("route add default via fd77:%d::254", n)),
			w.router.IP(
				fmt.Sprintf("route add 10.%d.0.0/16 via 10.77.%d.1", 200+n, n),
				fmt.Sprintf("route add fd02:%d::/48 via fd77:%[1]d::1", n)))
		if err != nil {
			return w, err
		}
	}
	return w, nil
}

// pod adds one to the node. Each has a link of its own, so that every packet, to a pod of the same node as well,
// passes kube-proxy's
// rules both ways.
func (nd *node) pod(name string) (*pod, error) {
	n, p := nd.number, len(nd.pods)+2 // .1 is the gateway's
	out := &pod{
		name:      name,
		listeners: map[int]net.Listener{},
		number:    [2]int{n, p},
		v4:        netip.MustParseAddr(fmt.Sprintf("10.%d.0.%d", 200+n, p)),
		v6:        netip.MustParseAddr(fmt.Sprintf("fd02:%d::%d", n, p)),
	}
	var err error
	if out.Namespace, err = lab.NewNamespace(); err != nil {
		return nil, err
	}
	nd.pods = append(nd.pods, out)
	gateway4, gateway6 := fmt.Sprintf("10.%d.0.1", 200+n), fmt.Sprintf("fd02:%d::1", n)
	return out, errors.Join(
		nd.IP(
			fmt.Sprintf("link add pod%d type veth peer name eth0 netns %s", p, out.Path()),
			fmt.Sprintf("addr add %s/32 dev pod%d", gateway4, p),
			fmt.Sprintf("addr add %s/128 dev pod%d nodad", gateway6, p),
			fmt.Sprintf("link set pod%d up", p),
			fmt.Sprintf("route add %s dev pod%d", out.v4, p),
			fmt.Sprintf("route add %s dev pod%d", out.v6, p),
			fmt.Sprintf("route add %s via %s dev pod%d", out.sources(out.v4), out.v4, p),
			fmt.Sprintf("route add %s via %s dev pod%d", out.sources(out.v6), out.v6, p)),
		out.IP(
			fmt.Sprintf("addr add %s/32 dev eth0", out.v4),
			fmt.Sprintf("addr add %s/128 dev eth0 nodad", out.v6),
			"link set eth0 up",
			fmt.Sprintf("route add %s dev eth0", gateway4),
			fmt.Sprintf("route add %s dev eth0", gateway6),
			"route add default via "+gateway4,
			"route add default via "+gateway6,
			fmt.Sprintf("route add local %s dev lo", out.sources(out.v4)),
			fmt.Sprintf("route add local %s dev lo", out.sources(out.v6))))
}

// sources are further addresses that the pod may ask an address of this one's family from.
func (p *pod) sources(to netip.Addr) netip.Prefix {
	if to.Is6() {
		return netip.MustParsePrefix(fmt.Sprintf("fd02:%d:0:%d::/64", p.number[0], p.number[1]))
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(200 + p.number[0]), byte(p.number[1]), 0}), 24)
}

// close gives all namespaces up. Programs in them have ended by then.
func (w *network) close() {
	for _, nd := range w.nodes {
		for _, p := range nd.pods {
			for _, s := range p.servers {
				s.Close()
			}
			for _, l := range p.listeners {
				l.Close()
			}
			p.Close()
		}
		nd.Close()
	}
	w.router.Close()
}

// forget deletes what the cluster's node remembers of connections to an address that got no answer. If somebody asks
// before kube-proxy has the address, the kernel keeps an entry without a backend for two minutes. A new connection from
// the same source port follows it, and kube-proxy refuses that. With hundreds of connections a second, the source ports
// come around within ten seconds.
func (c *cluster) forget(t *testing.T, protocol string, to netip.AddrPort) {
	t.Helper()
	if protocol != "tcp" { // kube-proxy itself deletes those of UDP
		return
	}
	family := "ipv4"
	if to.Addr().Is6() {
		family = "ipv6"
	}
	if err := c.node.Do(func() error {
		out, err := exec.Command(
			"conntrack", "-D", "-f", family, "-p", "tcp", "--state", "SYN_SENT", "-d", to.Addr().String(),
		).CombinedOutput()
		if err != nil && strings.Contains(string(out), " 0 flow entries have been deleted") {
			return nil
		}
		if err != nil {
			return fmt.Errorf("conntrack: %w: %s", err, out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// ruleset is what nft(8) shows of all rules at the node.
func (nd *node) ruleset() (out string, err error) {
	err = nd.Do(func() error {
		said, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
		out = string(said)
		return err
	})
	return out, err
}

// command runs a program with input.
func command(input, program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s\n%s", program, strings.Join(args, " "), err, out, input)
	}
	return nil
}
