package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "github.com/clusterset-dns/clusterset-dns/plugin/multicluster"
	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind"        // and the other directives of the Corefiles here
	_ "github.com/coredns/coredns/plugin/cache"       //
	_ "github.com/coredns/coredns/plugin/errors"      //
	_ "github.com/coredns/coredns/plugin/kubernetes"  //
	_ "github.com/coredns/coredns/plugin/loadbalance" //
	_ "github.com/coredns/coredns/plugin/metrics"     //
	_ "github.com/coredns/coredns/plugin/whoami"      //
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

const zone = "clusterset.local."

// plugins that are compared, as stanzas of a Corefile.
const (
	ours    = "multicluster"
	inTree  = "kubernetes"
	ceiling = "whoami"
)

// stanza of a plugin; api is the URL of a stub or the path of a kubeconfig.
func stanza(plugin, api string) string {
	options := "\n\t\tendpoint " + api
	if filepath.IsAbs(api) {
		options = "\n\t\tkubeconfig " + api
	}
	options += "\n\t\tstartup_timeout 60s\n\t}"
	switch plugin {
	case ours:
		return "multicluster clusterset.local {" + options
	case inTree:
		return "kubernetes clusterset.local {\n\t\tmulticluster clusterset.local" + options
	}
	return plugin
}

// kubeadm is what kubeadm's Corefile puts around the plugin that answers. Its health, ready, reload, loop and
// forward take no part in a query that is answered.
func kubeadm(answering, metrics string) string {
	return strings.Join([]string{"errors", "prometheus " + metrics,
		"cache 30 {\n\t\tdisable success clusterset.local\n\t\tdisable denial clusterset.local\n\t}",
		"loadbalance", answering}, "\n\t")
}

// chains are the plugin chains of this process, by the name that the directive capture gave them. The directive is
// this program's own: it stands where a server's first plugin stands and keeps the chain behind it.
var chains = map[string]plugin.Handler{}

func init() {
	at := slices.Index(dnsserver.Directives, "prometheus")
	dnsserver.Directives = slices.Insert(dnsserver.Directives, at, "capture")
	at = slices.Index(dnsserver.Directives, inTree)
	dnsserver.Directives = slices.Insert(dnsserver.Directives, at, ours)
	dnsserver.Quiet = true
	caddy.Quiet = true
	plugin.Register("capture", func(c *caddy.Controller) error {
		c.Next()
		if !c.NextArg() {
			return c.ArgErr()
		}
		name := c.Val()
		dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
			chains[name] = next
			return next
		})
		return nil
	})
}

// load starts a server in this process with one server block per chain, each on a port of its own.
func load(blocks map[string]string) (*caddy.Instance, error) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, ".:%d {\n\tbind 127.0.0.1\n\tcapture %s\n\t%s\n}\n", port, name, blocks[name])
	}
	return caddy.Start(caddy.CaddyfileInput{Contents: []byte(b.String()), Filepath: "Corefile", ServerTypeName: "dns"})
}

// freePort is free for UDP and TCP now.
func freePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenPacket("udp", l.Addr().String())
		l.Close()
		if err == nil {
			u.Close()
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port is free for both UDP and TCP")
}

// asker puts questions to a chain as the server does.
type asker struct {
	chain plugin.Handler
	ctx   context.Context
	w     packer
}

func newAsker(name string) (*asker, error) {
	chain, ok := chains[name]
	if !ok {
		return nil, fmt.Errorf("no chain %q was loaded", name)
	}
	ctx := context.WithValue(context.Background(), dnsserver.Key{}, &dnsserver.Server{Addr: "dns://:53"})
	return &asker{
		chain: chain,
		ctx:   context.WithValue(ctx, dnsserver.LoopKey{}, 0),
		w:     packer{remote: udpClient},
	}, nil
}

// ask serves r once; the reply is packed as the server packs it.
func (a *asker) ask(r *dns.Msg) error {
	a.w.packed = nil
	rcode, err := a.chain.ServeDNS(a.ctx, request.NewScrubWriter(r, &a.w), r)
	switch {
	case err != nil:
		return err
	case a.w.packed == nil && !plugin.ClientWrite(rcode):
		return fmt.Errorf("%s: no reply but %s", r.Question[0].Name, dns.RcodeToString[rcode])
	}
	return nil
}

// answer is the reply to r, unpacked.
func (a *asker) answer(r *dns.Msg) (*dns.Msg, error) {
	if err := a.ask(r); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	return m, m.Unpack(a.w.packed)
}

// await asks until the plugin has what it needs: until then it fails, or answers no name.
func (a *asker) await(limit time.Duration) error {
	r := question("no-such."+stub.HeadlessNamespace+".svc."+zone, dns.TypeA, 0)
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := a.ask(r)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not ready after %v: %w", limit, err)
		}
	}
}

var (
	udpClient = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}
	tcpClient = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}
)

// packer is a dns.ResponseWriter that packs the reply and keeps it.
type packer struct {
	dns.ResponseWriter
	remote net.Addr
	packed []byte
}

func (p *packer) LocalAddr() net.Addr  { return p.remote }
func (p *packer) RemoteAddr() net.Addr { return p.remote }

func (p *packer) WriteMsg(m *dns.Msg) (err error) {
	p.packed, err = m.Pack()
	return err
}

// question with the EDNS buffer size given; 0: without EDNS.
func question(name string, qtype uint16, size uint16) *dns.Msg {
	r := new(dns.Msg)
	r.SetQuestion(name, qtype)
	if size > 0 {
		r.SetEdns0(size, false)
	}
	return r
}
