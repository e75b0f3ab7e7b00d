package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/lab/programs"
)

// proxyAccount is what kubeadm gives kube-proxy: a ServiceAccount with the API server's own role for it.
const proxyAccount = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: kube-proxy, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kubeadm:node-proxier}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
subjects: [{kind: ServiceAccount, name: kube-proxy, namespace: kube-system}]
`

// All is kube-proxy's default but for conntrack, whose limits are the machine's and not to be touched. By default
// changes are written to the kernel at most once a second, so what it sees in the wrong order stays wrong that long.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %q}
mode: %s
hostnameOverride: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// Proxy is a running kube-proxy.
type Proxy struct {
	dir  string
	proc *process
}

// StartProxy runs the kube-proxy of a control plane's node, which must exist, with its ServiceAccount, in the mode
// nftables or iptables. in calls a function on a thread that is in the network namespace where it is to run; loopback
// must be up there, and is its way to the API server. It returns when kube-proxy is healthy, and whatever changes of
// its Node from then on is not lost to it.
func StartProxy(
	ctx context.Context, c *ControlPlane, node, mode string, in func(func() error) error,
) (*Proxy, error) {
	path, err := programs.Find(ctx, []string{"kube-proxy"})
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, proxyAccount); err != nil {
		return nil, err
	}
	var way *Forwarder
	err = in(func() (err error) {
		way, err = c.Forward()
		return err
	})
	if err != nil {
		return nil, err
	}
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, "kube-system", "kube-proxy", way)
	if err != nil {
		return nil, err
	}
	p := &Proxy{}
	if p.dir, err = newFolder(os.TempDir(), "proxy"); err != nil {
		return nil, err
	}
	config := filepath.Join(p.dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, proxyConfig, kubeconfig, mode, node), 0o600); err != nil {
		p.Stop()
		return nil, err
	}
	err = in(func() (err error) {
		log := filepath.Join(p.dir, "kube-proxy.log")
		if p.proc, err = spawn(
			c.bin,
			"kube-proxy",
			log,
			[]string{p.dir},
			nil,
			path["kube-proxy"],
			"--config="+config,
		); err != nil {
			return err
		}
		if err := p.proc.until(ctx, "following its Node", startLimit, p.followsNode); err != nil {
			return err
		}
		return p.proc.until(ctx, "healthy", startLimit, healthy)
	})
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// followsNode tells whether it has said what it says once all that is to hear of its Node is registered.
func (p *Proxy) followsNode() bool {
	said, err := os.ReadFile(p.proc.log)
	return err == nil && bytes.Contains(said, []byte("Starting node config controller"))
}

// healthy asks the kube-proxy of the calling thread's network namespace. http.Client would ask from another thread.
func healthy() bool {
	conn, err := net.DialTimeout("tcp", "127.0.0.1:10256", time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return false
	}
	r, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:10256/healthz", nil)
	if err != nil || r.Write(conn) != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Log is the end of what it has said.
func (p *Proxy) Log() string { return p.proc.tail() }

// Stop ends it.
func (p *Proxy) Stop() {
	if p == nil {
		return
	}
	p.proc.kill()
	_ = os.RemoveAll(p.dir)
}
