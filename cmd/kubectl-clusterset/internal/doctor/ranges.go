package doctor

import (
	"net/netip"
	"slices"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var rangeChecks = []Check{
	{"ranges-own", []Topic{Ranges, Imports, Membership}, rangesOwn},
	{"ranges-peers", []Topic{Imports, Membership}, rangesPeers},
	{"ranges-here", []Topic{Ranges}, func(f *Facts) []Finding {
		for _, p := range f.PodRanges {
			for _, s := range f.ServiceRanges {
				if p.Overlaps(s) {
					return wrong("change one of them", "this cluster's pod range %s and its service range %s overlap: an address is both a pod's and a VIP", p, s)
				}
			}
		}
		return nil
	}},
	{"imports-others", []Topic{Imports}, importsOthers},
}

// rangesOwn finds peers' endpoints at addresses that mean something else here: packets to them never leave this cluster.
func rangesOwn(f *Facts) (out []Finding) {
	for _, kind := range []struct {
		name   string
		ranges []netip.Prefix
	}{{"pod range", f.PodRanges}, {"service range", f.ServiceRanges}} {
		told := map[string]bool{}
		f.eachPeerAddress(func(cluster string, addr netip.Addr) {
			for _, r := range kind.ranges {
				if r.Contains(addr) && !told[cluster] {
					told[cluster] = true
					out = append(out, wrong("the clusters' ranges must not overlap for packets to find their way: renumber one, or put a gateway that translates between them",
						"cluster %s exports an endpoint %s, which lies in this cluster's own %s %s", cluster, addr, kind.name, r)...)
				}
			}
		})
	}
	return out
}

// rangesPeers finds an address that two clusters export.
func rangesPeers(f *Facts) (out []Finding) {
	owner := map[netip.Addr]string{}
	told := map[string]bool{}
	f.eachPeerAddress(func(cluster string, addr netip.Addr) {
		other, there := owner[addr]
		owner[addr] = cluster
		pair := []string{cluster, other}
		slices.Sort(pair)
		if key := strings.Join(pair, " "); there && other != cluster && !told[key] {
			told[key] = true
			out = append(out, wrong("the clusters' pod ranges must not overlap: renumber one, or put a gateway that translates between them",
				"clusters %s and %s both export an endpoint %s", pair[0], pair[1], addr)...)
		}
	})
	return out
}

func (f *Facts) eachPeerAddress(do func(cluster string, addr netip.Addr)) {
	for i := range f.Slices {
		s := &f.Slices[i]
		cluster := s.Labels[mcsv1beta1.LabelSourceCluster]
		if cluster == "" || cluster == f.ID {
			continue
		}
		for j := range s.Endpoints {
			for _, a := range s.Endpoints[j].Addresses {
				if addr, err := netip.ParseAddr(a); err == nil {
					do(cluster, addr)
				}
			}
		}
	}
}

// importsOthers: another implementation of the API writes the same kinds.
func importsOthers(f *Facts) []Finding {
	var names []string
	for i := range f.Imported {
		if imp := &f.Imported[i]; imp.Labels[derived.LabelManagedBy] != kube.Manager {
			names = append(names, imp.Namespace+"/"+imp.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if n := len(names); n > 3 {
		names = append(names[:3], "…")
	}
	return warn("take the other implementation out (docs/migrate.md); an import without any export: kubectl delete it",
		"ServiceImports that the agent did not make: %s: another implementation of the API runs here (Submariner, Cilium), or somebody made them by hand", strings.Join(names, ", "))
}
