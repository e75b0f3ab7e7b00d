package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var rangeChecks = []Check{
	{"ranges-own", []Topic{Ranges, Imports, Membership}, rangesOwn},
	{"ranges-peers", []Topic{Imports, Membership}, rangesPeers},
	{"ranges-here", []Topic{Ranges}, func(f *Facts) []report.Finding {
		if p, s, overlap := firstOverlap(f.PodRanges, f.ServiceRanges); overlap {
			return wrong("change one of them", "pod range %s and service range %s of this cluster overlap", p, s)
		}
		return nil
	}},
	{"imports-others", []Topic{Imports}, importsOthers},
	{"pools", []Topic{Hub}, func(f *Facts) []report.Finding { return f.HubFacts.PoolFindings(f.ID) }},
	{"pools-here", []Topic{Hub, Ranges, Membership}, poolsHere},
}

const separate = "members' ranges must not overlap: renumber one, or use a gateway that translates addresses; " +
	report.DocsNetwork

type namedRanges struct {
	name   string
	ranges []netip.Prefix
}

// own returns this cluster's pod ranges and service ranges.
func (f *Facts) own() []namedRanges {
	return []namedRanges{{"pod range", f.PodRanges}, {"service range", f.ServiceRanges}}
}

// rangesOwn finds endpoints of other clusters in this cluster's own ranges: packets to them never leave this cluster.
func rangesOwn(f *Facts) (out []report.Finding) {
	for _, kind := range f.own() {
		seen := map[string]bool{}
		f.eachImportedAddress(func(cluster string, addr netip.Addr) {
			for _, r := range kind.ranges {
				if r.Contains(addr) && !seen[cluster] {
					seen[cluster] = true
					out = append(out, report.Errorf(separate,
						"cluster %s exports the endpoint %s, which is in this cluster's own %s %s",
						cluster, addr, kind.name, r))
				}
			}
		})
	}
	return out
}

// rangesPeers finds endpoint addresses that two other clusters export, and reports one for each pair of clusters. Where
// both export a Service without a selector, that may be as it should be.
func rangesPeers(f *Facts) (out []report.Finding) {
	owner := map[netip.Addr]string{}
	seen := map[[2]string]bool{}
	f.eachImportedAddress(func(cluster string, addr netip.Addr) {
		other, exported := owner[addr]
		owner[addr] = cluster
		pair := [2]string{min(cluster, other), max(cluster, other)}
		if exported && other != cluster && !seen[pair] {
			seen[pair] = true
			out = append(out, report.Warningf("if it is a Pod's: "+separate,
				"clusters %s and %s both export the endpoint %s", pair[0], pair[1], addr))
		}
	})
	return out
}

// eachImportedAddress calls do for each endpoint address that was imported from another cluster.
func (f *Facts) eachImportedAddress(do func(cluster string, addr netip.Addr)) {
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

// importsOthers finds names that are not imported because of other programs, and other ServiceImports that the agent
// did not create.
func importsOthers(f *Facts) []report.Finding {
	out := facts.NotImported(f.Records, hubv1alpha1.ConditionImported)
	for i := range out {
		out[i].What = out[i].About + ": " + out[i].What
	}
	var names []string
	for i := range f.Imported {
		imp := &f.Imported[i]
		about := func(found report.Finding) bool { return found.About == imp.Name+"."+imp.Namespace }
		if !kube.Manages(imp) && !slices.ContainsFunc(out, about) {
			names = append(names, imp.Namespace+"/"+imp.Name)
		}
	}
	if len(names) == 0 {
		return out
	}
	if len(names) > 3 {
		names = append(names[:3], "…")
	}
	return append(out, report.Warningf("remove the other implementation; "+
		report.DocsMigrate+"; or kubectl -n NAMESPACE delete serviceimport NAME",
		"the agent did not create the ServiceImports %s: another implementation of the API runs here (Submariner, "+
			"Cilium), or somebody created them", strings.Join(names, ", ")))
}

// poolsHere finds pools that overlap this cluster's ranges, as this cluster has them: the hub may not know them yet. A
// range inside a block that the hub granted to this cluster is as it should be.
func poolsHere(f *Facts) (out []report.Finding) {
	if len(f.HubFacts.Sets) != 1 {
		return nil
	}
	set := &f.HubFacts.Sets[0]
	remedy := fmt.Sprintf("on the hub: kubectl -n %s edit clusterset %s, and set spec.vips.pools to ranges that no "+
		"cluster uses; %s", set.Namespace, set.Name, report.DocsRanges)
	pools := grants.Decide(grants.Facts{Set: set, Profiles: f.HubFacts.Profiles}).Pools
	for _, kind := range f.own() {
		for _, r := range kind.ranges {
			for _, p := range pools {
				if p.Prefix.Overlaps(r) && !slices.ContainsFunc(set.Status.Blocks, owns(f.ID, r)) {
					out = append(out, report.Warningf(remedy, "pool %s overlaps this cluster's own %s %s", p.Prefix,
						kind.name, r))
				}
			}
		}
	}
	return out
}

// owns returns a filter for the blocks of the cluster id that contain r.
func owns(id string, r netip.Prefix) func(hubv1alpha1.Block) bool {
	return func(b hubv1alpha1.Block) bool {
		p, err := netip.ParsePrefix(b.CIDR)
		return err == nil && grants.Inside(ipam.Known{Member: id, Prefix: r.Masked()},
			ipam.Grant{Member: b.ClusterID, Prefix: p.Masked()})
	}
}

// firstOverlap returns the first two ranges that overlap, one of a and one of b.
func firstOverlap(a, b []netip.Prefix) (p, q netip.Prefix, overlap bool) {
	for _, p := range a {
		for _, q := range b {
			if p.Overlaps(q) {
				return p, q, true
			}
		}
	}
	return p, q, false
}
