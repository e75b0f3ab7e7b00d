package consumers

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
)

// addresses is the type of what ztunnel gets: Workloads and Services.
const addresses = "type.googleapis.com/istio.workload.Address"

// istiod runs Istio's control plane on the cluster of the consumers, and returns where it serves xDS and its version.
func istiod(t *testing.T, w *world, env ...string) (addr, version string) {
	t.Helper()
	program, version := built(t, "pilot-discovery")
	grpc := port(t).Addr()
	cmd := exec.Command(program, "discovery", "--kubeconfig", w.member(here).Cluster.Kubeconfig(),
		"--grpcAddr", grpc, "--secureGRPCAddr", port(t).Addr(), "--httpAddr", port(t).Addr(),
		"--httpsAddr", port(t).Addr(), "--monitoringAddr", port(t).Addr(),
		"--ctrlz_port", fmt.Sprint(port(t).Number))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), append(env, "POD_NAMESPACE=istio-system", "POD_NAME=istiod")...)
	start(t, cmd)
	return grpc, version
}

// istioNode is what a proxy says of itself.
func istioNode(kind string) *corev3.Node {
	metadata, _ := structpb.NewStruct(map[string]any{ // strings cannot fail
		"CLUSTER_ID": "Kubernetes", "NAMESPACE": namespace, "ISTIO_VERSION": "1.32.0",
	})
	return &corev3.Node{
		Id:       fmt.Sprintf("%s~10.200.0.1~client.%s~%s.svc.cluster.local", kind, namespace, namespace),
		Metadata: metadata,
	}
}

// sidecar is where a Pod's sidecar sends connections to the VIP's port: by its listeners and routes, whose only cluster
// it follows.
func sidecar(t *testing.T, w *world, addr string, port int32) func() (set, error) {
	p := connect(t, addr, insecure.NewCredentials(), istioNode("sidecar"), clusters, listeners)
	return func() (set, error) {
		cluster, err := p.through(func(l *listenerv3.Listener) bool {
			at := l.GetAddress().GetSocketAddress()
			return at.GetAddress() == w.vip && at.GetPortValue() == uint32(port)
		})
		if err != nil {
			return nil, err
		}
		return p.sends(cluster)
	}
}

// router is where a gateway sends what its routes send to the derived Service.
func router(t *testing.T, w *world, addr string, port int32) func() (set, error) {
	p := connect(t, addr, insecure.NewCredentials(), istioNode("router"), clusters)
	cluster := fmt.Sprintf("outbound|%d||%s.%s.svc.cluster.local", port, w.derived, namespace)
	return func() (set, error) { return p.sends(cluster) }
}

// ztunnel is where a node's ztunnel sends connections to the VIP's port: to the healthy workloads of the service that
// has the VIP, of those that have the port.
func ztunnel(t *testing.T, w *world, addr string, port int32) func() (set, error) {
	p := connect(t, addr, insecure.NewCredentials(), istioNode("ztunnel"), addresses)
	vip := netip.MustParseAddr(w.vip)
	return func() (set, error) {
		all, err := p.all(addresses)
		if err != nil {
			return nil, err
		}
		key := ""
		for name, packed := range all {
			for _, address := range fields(fields(packed.Value)[2].first())[4] {
				ip, _ := netip.AddrFromSlice(fields(address)[2].first())
				if ip == vip {
					key = name
				}
			}
		}
		if key == "" {
			return nil, fmt.Errorf("no service has %v, among %d resources", vip, len(all))
		}
		out := set{}
		for _, packed := range all {
			workload := fields(fields(packed.Value)[1].first())
			if workload[17].number() != 0 { // WorkloadStatus: HEALTHY is 0
				continue
			}
			for _, entry := range workload[22] {
				if string(fields(entry)[1].first()) != key {
					continue
				}
				for _, pair := range fields(fields(entry)[2].first())[1] {
					if fields(pair)[1].number() != uint64(port) {
						continue
					}
					ip, _ := netip.AddrFromSlice(workload[3].first())
					at := fmt.Sprintf("%v:%d", ip, fields(pair)[2].number())
					if out[at] {
						return nil, fmt.Errorf("two workloads of %s are %s", key, at)
					}
					out[at] = true
				}
			}
		}
		return out, nil
	}
}

// values of a field in a message of protocol buffers; those of numbers as they are encoded.
type values [][]byte

func (v values) first() []byte {
	if len(v) == 0 {
		return nil
	}
	return v[0]
}

// number is 0 where the field is missing.
func (v values) number() uint64 {
	n, _ := protowire.ConsumeVarint(v.first())
	return max(n, 0)
}

// fields decodes a message of istio.workload (pkg/workloadapi/workload.proto), which is in no module of types.
func fields(message []byte) map[protowire.Number]values {
	out := map[protowire.Number]values{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return out
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(number, kind, message)
		if n < 0 {
			return out
		}
		value := message[:n]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		out[number] = append(out[number], value)
		message = message[n:]
	}
	return out
}

// installIstio makes what istioctl makes beside the Deployment and its rights.
func installIstio(t *testing.T, w *world) {
	t.Helper()
	base := module(t, "istio", "istio.io/istio") + "/manifests/charts/base/files"
	text, err := os.ReadFile(base + "/crd-all.gen.yaml")
	if err != nil {
		t.Fatal(err)
	}
	system := "apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system}\n---\n"
	if err := w.member(here).Cluster.Apply(t.Context(), system+string(text)); err != nil {
		t.Fatal(err)
	}
}

// short is a version without the time and commit of a pseudo-version's middle.
func short(version string) string {
	parts := strings.Split(version, "-")
	if len(parts) == 3 && len(parts[1]) == 14 {
		return "main of " + parts[1][:4] + "-" + parts[1][4:6] + "-" + parts[1][6:8] + " (" + parts[2] + ")"
	}
	return version
}
