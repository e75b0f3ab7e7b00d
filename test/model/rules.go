package model

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// addZone writes down what every zone has, whatever the objects.
func (m *Model) addZone() {
	zone, ttl := m.cfg.Zone, m.cfg.TTL
	ns := below(zone, "ns", "dns")
	m.add(record{owner: zone, rtype: dns.TypeSOA, data: "*", ttl: ttl})         // N1
	m.add(record{owner: zone, rtype: dns.TypeNS, data: ns, ttl: ttl, glue: ns}) // N1
	m.exist(
		ns,
	) // N2; N4: dns.<zone>
	m.exist(below(zone, "svc"))                                                                     // N4
	m.add(record{owner: below(zone, "dns-version"), rtype: dns.TypeTXT, data: `"1.0.0"`, ttl: ttl}) // N3
	for _, addr := range m.cfg.Nameservers {
		m.addAddress(ns, addr.Unmap().WithZone("")) // N2
	}
}

// addServices writes down the names of every import that is asked for.
func (m *Model) addServices(objs Objects) {
	for i, imp := range objs.Imports {
		svc, ns := strings.ToLower(imp.Name), strings.ToLower(imp.Namespace)
		if !isLabel(svc) || !isLabel(ns) || replaced(objs.Imports[i+1:], imp) {
			continue
		}
		if !m.selects(imp.Namespace) || m.cfg.Labels != nil && !m.cfg.Labels.Matches(labels.Set(imp.Labels)) { // O1
			continue
		}
		name := below(m.cfg.Zone, svc, ns, "svc")
		switch imp.Spec.Type {
		case mcsv1beta1.ClusterSetIP:
			m.addClusterSetIP(name, imp) // N11: slices say nothing here
		case mcsv1beta1.Headless:
			m.addHeadless(name, m.endpoints(imp, objs.Slices))
		}
	}
}

func replaced(later []Import, imp Import) bool {
	return slices.ContainsFunc(later, func(other Import) bool {
		return other.Namespace == imp.Namespace && other.Name == imp.Name
	})
}

// selects carries out the option namespaces (O1).
func (m *Model) selects(namespace string) bool {
	return len(m.cfg.Namespaces) == 0 || slices.Contains(m.cfg.Namespaces, namespace)
}

func (m *Model) addClusterSetIP(name string, imp Import) {
	m.exist(name)
	m.pending[name] = true // N5: no IP yet
	for _, text := range imp.Spec.IPs {
		if addr, ok := address(text); ok {
			m.pending[name] = false
			m.addAddress(name, addr) // N5
		}
	}
	for _, p := range first(imp.Spec.Ports, maxPorts) {
		m.addPort(name, port{name: p.Name, protocol: string(p.Protocol), number: p.Port}, name) // N7, N8
	}
}

func (m *Model) addHeadless(name string, endpoints []endpoint) {
	if len(endpoints) > 0 {
		m.headless[name] = endpoints
		m.addZonal(name)
	}
	for _, ep := range endpoints { // N6: without a ready endpoint no name comes to be
		m.addAddress(name, ep.addr) // N6
		if ep.host == "" {
			continue
		}
		host := below(name, ep.host, ep.cluster) // N10, N14: the names between exist by being between
		m.addAddress(host, ep.addr)              // N9
		for _, p := range ep.ports {
			m.addPort(name, p, host) // N7, N8
		}
	}
}

func (m *Model) addAddress(owner string, addr netip.Addr) {
	m.add(record{owner: owner, rtype: addressType(addr), data: addr.String(), ttl: m.cfg.TTL})
}

// addPort writes down the SRV records of one port of service whose traffic goes to target.
func (m *Model) addPort(service string, p port, target string) {
	if p.name == "" || p.number < 1 || p.number > 65535 {
		return // N7, N8: unnamed ports have none
	}
	data := fmt.Sprintf("0 100 %d %s", p.number, target) // N8: priority and weight
	srv := record{owner: service, rtype: dns.TypeSRV, data: data, ttl: m.cfg.TTL, glue: target}
	add := m.add
	if m.pending[service] { // N5: the target has no address yet
		add = func(r record) { m.exist(r.owner); m.waiting[r.owner] = true }
	}
	if !possible(target) { // N12: no target, but the names of the port exist
		add = func(r record) { m.exist(r.owner) }
	}
	add(srv) // N7
	name, protocol := strings.ToLower(p.name), strings.ToLower(p.protocol)
	if protocol == "" {
		protocol = "tcp" // N8
	}
	if isLabel(name) && len(name) < 63 && isLabel(protocol) && len(protocol) < 63 { // N18; an underscore takes an octet
		srv.owner = below(service, "_"+name, "_"+protocol)
		add(srv) // N8
	}
}

// endpoint is one address of a ready endpoint. host is "" where it has no name that DNS could hold.
type endpoint struct {
	cluster string
	host    string
	zone    string
	addr    netip.Addr
	ports   []port
}

type port struct {
	name     string
	protocol string
	number   int32
}

// endpoints gives the ready endpoints of a headless import, one entry per address.
func (m *Model) endpoints(imp Import, all []discoveryv1.EndpointSlice) []endpoint {
	var found []endpoint
	for _, slice := range all {
		cluster := strings.ToLower(slice.Labels[mcsv1beta1.LabelSourceCluster])
		switch {
		case m.cfg.NoEndpoints: // O1
			continue
		case slice.Namespace != imp.Namespace || slice.Labels[mcsv1beta1.LabelServiceName] != imp.Name:
			continue // N17: also slices with only kubernetes.io/service-name
		case strings.HasSuffix(slice.Labels[discoveryv1.LabelManagedBy], "-controller.k8s.io"):
			continue // N17: Kubernetes copied the labels of a Service
		case !m.selects(slice.Namespace): // O1
			continue
		case !isClusterID(cluster): // N17: no source-cluster, or an impossible one
			continue
		}
		for _, ep := range slice.Endpoints {
			if !ready(ep) {
				continue // N16
			}
			for _, text := range ep.Addresses {
				addr, ok := address(text)
				if !ok || !family(slice.AddressType, addr) {
					continue
				}
				found = append(
					found,
					endpoint{cluster, m.hostname(ep, addr), strings.ToLower(value(ep.Zone)), addr, ports(slice)},
				)
			}
		}
	}
	return found
}

// ready is N16. The slice's own word counts, for terminating endpoints too; a condition left out means true
// (discovery/v1).
func ready(ep discoveryv1.Endpoint) bool {
	return ep.Conditions.Ready == nil || *ep.Conditions.Ready
}

// family says whether addr may stand in a slice of that type. FQDN and unknown types hold no addresses (N17).
func family(addressType discoveryv1.AddressType, addr netip.Addr) bool {
	switch addressType {
	case discoveryv1.AddressTypeIPv4:
		return addr.Is4()
	case discoveryv1.AddressTypeIPv6:
		return addr.Is6()
	}
	return false
}

// hostname is N9 and N15: the endpoint's own name, else by option its pod's, else its address.
func (m *Model) hostname(ep discoveryv1.Endpoint, addr netip.Addr) string {
	if ep.Hostname != nil && *ep.Hostname != "" {
		if host := strings.ToLower(*ep.Hostname); isLabel(host) {
			return host
		}
		return "" // N18
	}
	if m.cfg.EndpointPodNames && ep.TargetRef != nil && ep.TargetRef.Kind == "Pod" {
		if pod := strings.ToLower(ep.TargetRef.Name); isLabel(pod) {
			return pod
		}
	}
	return dashed(addr)
}

// maxPorts is N8: what comes after the first 1,024 does not count.
const maxPorts = 1024

func first[T any](all []T, n int) []T { return all[:min(len(all), n)] }

// ports gives the ports of a slice that have a number.
func ports(slice discoveryv1.EndpointSlice) []port {
	var found []port
	for _, p := range first(slice.Ports, maxPorts) {
		if p.Port == nil {
			continue
		}
		found = append(found, port{value(p.Name), string(value(p.Protocol)), *p.Port})
	}
	return found
}

func value[T ~string](p *T) T {
	if p == nil {
		return ""
	}
	return *p
}
