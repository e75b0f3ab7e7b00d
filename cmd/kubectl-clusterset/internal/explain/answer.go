package explain

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
)

// answer asks the catalog that CoreDNS uses.
func (r *Report) answer(n *check.Name, d *dns) {
	service := build(n, d)
	if service == nil {
		return // a Headless name without ready endpoints does not exist
	}
	outcomes := map[catalog.Outcome]Outcome{catalog.Success: Success, catalog.NoData: NoData,
		catalog.NameError: NameError}
	r.Outcome = outcomes[service.Self(catalog.V4, catalog.Window{}).Outcome]
	for _, q := range []struct {
		kind   string
		wanted catalog.Wanted
		width  int
	}{{"A", catalog.V4, 4}, {"AAAA", catalog.V6, 16}} {
		result := service.Self(q.wanted, catalog.Window{})
		if result.Outcome != catalog.Success {
			continue
		}
		r.Outcome = Success
		a := Answer{Question: r.Name, Type: q.kind}
		for packed := range slices.Chunk([]byte(result.Addrs), q.width) {
			addr, _ := netip.AddrFromSlice(packed)
			a.Data = append(a.Data, addr.String())
		}
		r.Answers = append(r.Answers, a)
	}
	for name, proto := range service.NamedPorts() {
		if service.Port(name, proto, catalog.SRV).Outcome == catalog.Success {
			r.Answers = append(r.Answers, r.srv(service, name, proto))
		}
	}
	for host, cluster := range service.Hosts() {
		r.Hosts = append(r.Hosts, host+"."+cluster+"."+r.Name)
	}
	slices.Sort(r.Hosts)
}

func (r *Report) srv(service *catalog.Service, name, proto string) Answer {
	a := Answer{Question: "_" + name + "._" + strings.ToLower(proto) + "." + r.Name, Type: "SRV"}
	walk := service.Targets(name, proto, catalog.Window{})
	for walk.Next() {
		target := r.Name
		if host, cluster := walk.Host(); host != "" {
			target = host + "." + cluster + "." + r.Name
		}
		a.Data = append(a.Data, strconv.Itoa(int(walk.Number()))+" "+target)
	}
	return a
}

// build converts the import as the plugin's watches do, and has them convert the slices.
func build(n *check.Name, d *dns) *catalog.Service {
	imp := &catalog.Import{Namespace: n.Namespace, Name: n.NamespacedName.Name}
	switch n.Import.Spec.Type {
	case mcsv1beta1.ClusterSetIP:
		imp.Type = catalog.ClusterSetIP
	case mcsv1beta1.Headless:
		imp.Type = catalog.Headless
	}
	for _, ip := range n.Import.Spec.IPs {
		if addr, err := netip.ParseAddr(ip); err == nil {
			imp.IPs = append(imp.IPs, addr)
		}
	}
	for _, p := range n.Import.Spec.Ports {
		imp.Ports = append(imp.Ports, catalog.Port{Name: p.Name, Proto: string(p.Protocol), Number: uint16(p.Port)})
	}
	var from []*catalog.Slice
	watches := kube.Config{Topology: d.topology, EndpointPodNames: d.podNames}
	for _, s := range n.Slices() {
		if slice, _ := watches.Slice(s); slice != nil {
			from = append(from, slice)
		}
	}
	return catalog.Rebuild(nil, imp, from, d.topology)
}
