// Package lab runs real Kubernetes control planes, etcd, kube-apiserver and kube-controller-manager, as processes on
// loopback, and CoreDNS beside them: to start, stop, kill, pause and cut off. Whatever way this process ends, a watchdog
// ends what it started.
package lab

import (
	"context"
	"os"
	"path/filepath"

	"github.com/clusterset-dns/clusterset-dns/test/lab/programs"
)

// KubernetesVersion is that of all programs of Kubernetes that the laboratory runs.
var KubernetesVersion = programs.Kubernetes

// ServiceCIDRs returns whether this version of Kubernetes serves networking.k8s.io/v1 ServiceCIDR and IPAddress.
func ServiceCIDRs() bool { return programs.Minor >= "1.33" }

// Binaries are the paths of the programs.
type Binaries struct {
	Etcd, APIServer, ControllerManager, Kubectl string
	Watchdog                                    string
}

// Root is the checkout at or above the working directory.
func Root() (string, error) { return programs.Root() }

// Program is one of ours: in bin, or in the folder that LAB_BIN names.
func Program(root, name string) string {
	if dir := os.Getenv("LAB_BIN"); dir != "" {
		return filepath.Join(root, dir, name)
	}
	return filepath.Join(root, "bin", name)
}

// Find gives the programs of a control plane. It builds those that are neither installed nor built yet.
func Find(ctx context.Context) (*Binaries, error) {
	p, err := programs.Find(ctx, programs.ControlPlane)
	if err != nil {
		return nil, err
	}
	return &Binaries{
		Etcd: p["etcd"], APIServer: p["kube-apiserver"], ControllerManager: p["kube-controller-manager"],
		Kubectl: p["kubectl"], Watchdog: p[programs.Watchdog],
	}, nil
}

// NodeBinaries are the paths of the programs that clusters with nodes need beside those of a control plane.
type NodeBinaries struct{ Kubelet, KubeProxy, Scheduler, Kubeadm string }

// FindNode gives the programs of nodes, and builds those that no earlier build has.
func FindNode(ctx context.Context) (*NodeBinaries, error) {
	p, err := programs.Find(ctx, []string{"kubelet", "kube-proxy", "kube-scheduler", "kubeadm"})
	if err != nil {
		return nil, err
	}
	return &NodeBinaries{
		Kubelet: p["kubelet"], KubeProxy: p["kube-proxy"], Scheduler: p["kube-scheduler"], Kubeadm: p["kubeadm"],
	}, nil
}
