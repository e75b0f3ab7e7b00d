package doctor

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
)

// externalChecks look at names for clients outside the clusters, but not for a server of their zone: that may run in
// another cluster or at a DNS provider.
var externalChecks = []Check{
	{"external-exports", []Topic{Exports}, externalExports},
	{"external-addresses", []Topic{Imports}, externalAddresses},
}

// externalExports finds exports whose load balancer is not published as they ask: the ClusterSet forbids it, the
// Service is of another type, or has no address yet. Only these names fail: the export itself is valid.
func externalExports(f *Facts) (out []report.Finding) {
	for i := range f.Exported {
		e := &f.Exported[i]
		valid := meta.FindStatusCondition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
		what := conditions.LeftOut(cmp.Or(valid, &metav1.Condition{}))
		if strings.Contains(what, clusterset.AnnotationExternal) {
			out = append(out, report.Warningf("correct what the message names, or: kubectl -n "+e.Namespace+
				" annotate serviceexport "+e.Name+" "+clusterset.AnnotationExternal+"-", "ServiceExport %s/%s: %s",
				e.Namespace, e.Name, what))
		}
	}
	return out
}

// externalAddresses finds names with public addresses in some clusters, and only private ones in others: hardly any
// client reaches both. A name with private addresses only is for clients of a private network.
func externalAddresses(f *Facts) (out []report.Finding) {
	type reachable struct{ public, private []string }
	byName := map[string]map[string]reachable{} // by name and cluster
	for i := range f.ExternalSlices {
		s := &f.ExternalSlices[i]
		name, cluster := s.Labels[external.Label]+"."+s.Namespace, s.Labels[mcsv1beta1.LabelSourceCluster]
		if byName[name] == nil {
			byName[name] = map[string]reachable{}
		}
		at := byName[name][cluster]
		for j := range s.Endpoints {
			for _, a := range s.Endpoints[j].Addresses {
				if isPrivate(s.AddressType, a) {
					at.private = append(at.private, a)
				} else {
					at.public = append(at.public, a)
				}
			}
		}
		byName[name][cluster] = at
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var public []string
		for _, cluster := range slices.Sorted(maps.Keys(byName[name])) {
			if len(byName[name][cluster].public) > 0 {
				public = append(public, cluster)
			}
		}
		for _, cluster := range slices.Sorted(maps.Keys(byName[name])) {
			if at := byName[name][cluster]; len(at.public) == 0 && len(public) > 0 {
				remedy := "in cluster " + cluster + ", give the Service a load balancer that the same clients reach, " +
					"or remove the annotation " + clusterset.AnnotationExternal + " of its ServiceExport"
				out = append(out, report.Warningf(remedy,
					"%s: clients outside the clusters may get %s of cluster %s, which are private addresses; those of "+
						"%s are public", name, strings.Join(at.private, ", "), cluster, strings.Join(public, ", ")))
			}
		}
	}
	return out
}

// carrierNAT is the range between a carrier's address translation and its customers (RFC 6598).
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// isPrivate reports whether the Internet does not route an address (RFC 1918, RFC 4193, RFC 6598).
func isPrivate(kind discoveryv1.AddressType, address string) bool {
	if kind == discoveryv1.AddressTypeFQDN {
		return false
	}
	a, err := netip.ParseAddr(address)
	return err == nil && (a.IsPrivate() || carrierNAT.Contains(a))
}
