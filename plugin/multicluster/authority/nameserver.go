package authority

import (
	"net"
	"net/netip"
	"os"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
)

// dnsServices are the variables in which a pod is told the clusterIP of the cluster's DNS Service:
// kube-dns, as kubeadm and most others have it, and coredns.
var dnsServices = []string{"KUBE_DNS_SERVICE_HOST", "COREDNS_SERVICE_HOST"}

// Nameservers returns the addresses of ns.dns where the Corefile names none (N2): in a cluster those of the DNS Service
// if the pod was told them, else those that the server is bound to, loopback included.
func Nameservers(config kube.Config, listenHosts []string) []netip.Addr {
	if config.Kubeconfig == "" && config.Endpoint == "" {
		for _, name := range dnsServices {
			if ip, err := netip.ParseAddr(os.Getenv(name)); err == nil {
				return []netip.Addr{ip.Unmap()}
			}
		}
	}
	return bound(listenHosts)
}

// bound are the addresses of the hosts of a bind directive; without one, of all interfaces.
// Link-local ones are left out: a record cannot say which link.
func bound(hosts []string) []netip.Addr {
	var addrs []netip.Addr
	for _, h := range hosts {
		if ip, err := netip.ParseAddr(h); err == nil && !ip.IsUnspecified() && !ip.IsLinkLocalUnicast() {
			addrs = append(addrs, ip.Unmap().WithZone(""))
		}
	}
	if len(addrs) > 0 {
		return addrs
	}
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			addrs = append(addrs, p.Addr().Unmap())
		}
	}
	return addrs
}
