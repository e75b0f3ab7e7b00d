package consumers

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gatewaySystem is the namespace where Envoy Gateway's chart puts it.
const gatewaySystem = "envoy-gateway-system"

// gateways has a Gateway of Envoy Gateway with an HTTPRoute and a TCPRoute to the ServiceImport.
const gateways = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: envoy}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: entry, namespace: shop}
spec:
  gatewayClassName: envoy
  listeners:
  - {name: http, protocol: HTTP, port: 80}
  - {name: tcp, protocol: TCP, port: 5432}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: entry, sectionName: http}]
  rules:
  - backendRefs: [{group: multicluster.x-k8s.io, kind: ServiceImport, name: web, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: entry, sectionName: tcp}]
  rules:
  - backendRefs: [{group: multicluster.x-k8s.io, kind: ServiceImport, name: web, port: 5432}]
`

// envoyGateway runs its control plane on the cluster of the consumers, and returns its version and the credentials that
// it makes for its proxies.
func envoyGateway(t *testing.T, w *world) (version string, creds credentials.TransportCredentials) {
	t.Helper()
	program, version := built(t, "envoy-gateway")
	plane := w.member(here).Cluster
	define(t, plane, module(t, "envoygateway", "github.com/envoyproxy/gateway")+"/charts/gateway-helm/charts/crds/crds")
	w.create(t, here, namespaced(gatewaySystem))
	// Files of a control plane's Pod have fixed paths, and so this one has a root of its own.
	root := t.TempDir()
	kubeconfig, err := clientcmd.LoadFromFile(plane.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := clientcmdapi.FlattenConfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := clientcmd.WriteToFile(*kubeconfig, filepath.Join(root, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	certgen := exec.Command(program, "certgen", "--disable-topology-injector")
	certgen.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig())
	if out, err := certgen.CombinedOutput(); err != nil {
		t.Fatalf("certgen: %v\n%s", err, out)
	}
	secret := func(name string) map[string][]byte {
		s := &corev1.Secret{}
		if err := w.client[here].Get(
			t.Context(),
			client.ObjectKey{Namespace: gatewaySystem, Name: name},
			s,
		); err != nil {
			t.Fatal(err)
		}
		return s.Data
	}
	write := func(name string, text []byte) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range secret("envoy-gateway") {
		write("certs/"+name, text)
	}
	write("tmp/.keep", nil)
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	write("envoy-gateway", text)
	start(t, &exec.Cmd{
		Path: "/envoy-gateway", Args: []string{"envoy-gateway", "server"}, Dir: "/",
		Env:         []string{"KUBECONFIG=/kubeconfig", "HOME=/tmp"},
		SysProcAttr: &syscall.SysProcAttr{Chroot: root},
	})
	if err := plane.Apply(t.Context(), gateways); err != nil {
		t.Fatal(err)
	}
	of := secret("envoy")
	pair, err := tls.X509KeyPair(of["tls.crt"], of["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(of["ca.crt"])
	return version, credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{
			pair,
		},
		RootCAs:    authority,
		ServerName: "envoy-gateway",
		MinVersion: tls.VersionTLS13,
	})
}

// gateway is where a proxy of the Gateway sends what comes in at a port, by its listeners and routes.
func gateway(t *testing.T, creds credentials.TransportCredentials, port int32) func() (set, error) {
	p := connect(t, "127.0.0.1:18000", creds, &corev3.Node{
		Id: fmt.Sprintf("proxy-%d", port), Cluster: namespace + "/entry",
	}, clusters, listeners)
	return func() (set, error) {
		cluster, err := p.through(func(l *listenerv3.Listener) bool {
			// A proxy is no root: it adds 10,000 to low ports.
			at := l.GetAddress().GetSocketAddress().GetPortValue()
			return at == uint32(port) || at == 10000+uint32(port)
		})
		if err != nil {
			return nil, err
		}
		return p.sends(cluster)
	}
}
