package resolution

import (
	"fmt"
	"maps"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// unionPort is a port of the union, and the port that each cluster behind it has for it.
type unionPort struct {
	clusterset.Port
	own map[string]clusterset.PortKey // by cluster id
}

// ports is C3 and C4.
func ports(byAge []clusterset.Export, m *conflict.Merged) int {
	var union []*unionPort
	m.Names = map[string]map[clusterset.PortKey]string{}
	for _, export := range byAge {
		m.Names[export.Cluster] = map[clusterset.PortKey]string{}
		for _, port := range export.Ports {
			union = place(union, port, m.Type == mcsv1beta1.Headless)
		}
	}
	for _, export := range byAge { // what lost its name, and whose number another export has added under a free one
		for _, port := range export.Ports {
			for _, u := range union {
				if isPort(u, port, m.Type == mcsv1beta1.Headless) {
					u.own[export.Cluster] = clusterset.PortKey{Protocol: port.Protocol, Number: port.Number}
				}
			}
		}
	}
	nameTheUnnamed(union)
	for _, port := range union {
		m.Ports = append(m.Ports, port.Port)
		for cluster, own := range port.own {
			m.Names[cluster][own] = port.Name
		}
	}
	oldest := portSet(byAge[0], m.Type)
	return count(byAge, func(e clusterset.Export) bool { return !maps.Equal(portSet(e, m.Type), oldest) })
}

// place finds a cluster's port its place in the union, if it gets one. appProtocol comes with the port that is
// added, so it is that of the oldest export that did not lose it.
func place(union []*unionPort, port clusterset.Port, headless bool) []*unionPort {
	for _, u := range union {
		if isPort(u, port, headless) {
			return union
		}
	}
	for _, u := range union {
		if port.Name != "" && u.Name == port.Name { // another number or protocol has the name: the port loses
			return union
		}
	}
	return append(union, &unionPort{port, map[string]clusterset.PortKey{}})
}

// isPort returns whether a cluster's port is a port of the union. Of a headless union clients learn the number by the
// name, from each cluster's slices, so there the name makes the port, and otherwise the number.
func isPort(u *unionPort, port clusterset.Port, headless bool) bool {
	if headless {
		return u.Name == port.Name && u.Protocol == port.Protocol
	}
	return u.Number == port.Number && u.Protocol == port.Protocol
}

// nameTheUnnamed makes names from protocol and number, because only a Service's single port may go without (K1645,
// core/v1).
func nameTheUnnamed(union []*unionPort) {
	if len(union) == 1 {
		return
	}
	taken := map[string]bool{}
	for _, port := range union {
		taken[port.Name] = true
	}
	for _, port := range union {
		if port.Name != "" {
			continue
		}
		base := fmt.Sprintf("%s-%d", strings.ToLower(string(port.Protocol)), port.Number)
		port.Name = base
		for i := 2; taken[port.Name]; i++ {
			port.Name = fmt.Sprintf("%s-%d", base, i)
		}
		taken[port.Name] = true
	}
}

// portSet is an export's ports without their order, which alone is no conflict, and without numbers that no client
// goes by.
func portSet(export clusterset.Export, merged mcsv1beta1.ServiceImportType) map[clusterset.Port]bool {
	set := map[clusterset.Port]bool{}
	for _, port := range export.Ports {
		if merged == mcsv1beta1.Headless {
			port.Number = 0
		}
		set[port] = true
	}
	return set
}
