package explain

import (
	"fmt"
	"net/netip"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

// options are those of a topology in the Corefile.
func options(t catalog.Topology) string {
	var out []string
	for _, o := range []struct {
		what, name string
		only       bool
	}{{"local", t.Cluster, t.ClusterOnly}, {"zone", t.Zone, t.ZoneOnly}} {
		if o.name != "" {
			out = append(out, "prefer "+o.what+" "+o.name+map[bool]string{true: " subset", false: " order"}[o.only])
		}
	}
	return strings.Join(out, ", ")
}

// near adds which endpoints of a Headless name come first here, and which are omitted.
func (r *Report) near(f *Facts, t catalog.Topology) {
	if r.Type != string(mcsv1beta1.Headless) || t == (catalog.Topology{}) {
		return
	}
	answered := map[string]bool{}
	for _, a := range r.Answers {
		if a.Question == r.Name {
			for _, d := range a.Data {
				answered[d] = true
			}
		}
	}
	for i := range r.Exporters {
		x := &r.Exporters[i]
		// By family, because a dual-stack pod counts once.
		inZone, left := map[discoveryv1.AddressType]int{}, map[discoveryv1.AddressType]int{}
		for j := range f.Slices {
			s := &f.Slices[j]
			if s.Labels[mcsv1beta1.LabelSourceCluster] != x.Cluster || s.AddressType == discoveryv1.AddressTypeFQDN {
				continue
			}
			for k := range s.Endpoints {
				e := &s.Endpoints[k]
				if !isReady(e) {
					continue
				}
				if t.Zone != "" && zone(e) == t.Zone {
					inZone[s.AddressType]++
				}
				if len(e.Addresses) > 0 && !answered[written(e.Addresses[0])] {
					left[s.AddressType]++
				}
			}
		}
		x.Preferred = preferred(x.Cluster, t, most(inZone))
		if n := most(left); n > 0 {
			r.Withheld = append(r.Withheld, Withheld{x.Cluster, report.Number(n, "ready endpoint"),
				"omitted while a preferred endpoint is ready: this cluster's Corefile has " + options(t)})
		}
	}
}

// preferred returns by which option a cluster's endpoints, or inZone of them, come first.
func preferred(cluster string, t catalog.Topology, inZone int) string {
	var out []string
	if t.Cluster == cluster {
		out = append(out, "prefer local "+cluster)
	}
	if inZone > 0 {
		out = append(out, fmt.Sprintf("prefer zone %s: %d", t.Zone, inZone))
	}
	return strings.Join(out, ", ")
}

func zone(e *discoveryv1.Endpoint) string {
	if e.Zone == nil {
		return ""
	}
	return strings.ToLower(*e.Zone)
}

// written is an address in the form of answers.
func written(address string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		return a.String()
	}
	return address
}
