package resolution

import (
	"fmt"
	"maps"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// unionPort is a port of the union, and the name that each cluster behind it has for it.
type unionPort struct {
	clusterset.Port
	ownName map[string]string // by cluster id
}

// ports is C3 and C4.
func ports(byAge []clusterset.Export, m *conflict.Merged) int {
	var union []*unionPort
	m.Names = map[string]map[string]string{}
	for _, export := range byAge {
		m.Names[export.Cluster] = map[string]string{}
		for _, port := range export.Ports {
			union = place(union, export.Cluster, port)
		}
	}
	nameTheUnnamed(union)
	for _, port := range union {
		m.Ports = append(m.Ports, port.Port)
		for cluster, own := range port.ownName {
			m.Names[cluster][own] = port.Name
		}
	}
	oldest := portSet(byAge[0])
	return count(byAge, func(e clusterset.Export) bool { return !maps.Equal(portSet(e), oldest) })
}

// place finds a cluster's port its place in the union, if it gets one. appProtocol comes with the port that is
// added, so it is that of
// the oldest export behind it.
func place(union []*unionPort, cluster string, port clusterset.Port) []*unionPort {
	for _, u := range union {
		if u.Protocol == port.Protocol && u.Number == port.Number { // the same port, whatever its name
			u.ownName[cluster] = port.Name
			return union
		}
	}
	for _, u := range union {
		if port.Name != "" && u.Name == port.Name { // another number or protocol has the name: the port loses
			return union
		}
	}
	return append(union, &unionPort{Port: port, ownName: map[string]string{cluster: port.Name}})
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

// portSet is an export's ports without their order, which alone is no conflict.
func portSet(export clusterset.Export) map[clusterset.Port]bool {
	set := map[clusterset.Port]bool{}
	for _, port := range export.Ports {
		set[port] = true
	}
	return set
}
