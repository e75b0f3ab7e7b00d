package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
)

// External is what clients outside the clusters may get of one cluster.
type External struct {
	Cluster   string   `json:"cluster"`
	Addresses []string `json:"addresses"`
	Up        bool     `json:"up"`
	Why       string   `json:"why,omitempty"` // it is not up
	Weight    int      `json:"weight"`
	// Share is the percentage of the clients whose place is not known. Clients whose place is known get the nearest of
	// the clusters that have a share.
	Share     float64 `json:"share"`
	Region    string  `json:"region,omitempty"`
	Continent string  `json:"continent,omitempty"`
	Location  string  `json:"location,omitempty"`
}

// external fills what the slices for clients outside say, as of this cluster: by the code of CoreDNS.
func (r *Report) external(w *check.World) {
	n := w.Asked()
	outside := slices.DeleteFunc(slices.Clone(w.Member.Outside), func(s discoveryv1.EndpointSlice) bool {
		return s.Namespace != n.Namespace || s.Labels[external.Label] != n.NamespacedName.Name
	})
	service := endpointslice.Service(n.String(), outside)
	if service == nil {
		return
	}
	locations := map[string]string{} // as they are written
	for i := range outside {
		s := &outside[i]
		locations[s.Labels[endpointslice.LabelCluster]] = s.Annotations[endpointslice.AnnotationLocation]
	}
	shares := service.Shares()
	for i := range service.Clusters() {
		c := &service.Clusters()[i]
		v4, v6 := c.Content().Addresses()
		x := External{
			Cluster: c.ID, Addresses: slices.Concat(v4, v6), Up: c.Up, Weight: c.Weight, Share: 100 * shares[c.ID],
			Region: c.Region, Continent: c.Continent, Location: locations[c.ID],
		}
		if alias := c.Content().Alias; alias != "" {
			x.Addresses = []string{strings.TrimSuffix(alias, ".")}
		}
		if !x.Up {
			x.Why = r.whyDown(x.Cluster)
		}
		r.External = append(r.External, x)
	}
}

// whyDown returns why no client gets a cluster, as far as this cluster shows it.
func (r *Report) whyDown(cluster string) string {
	for i := range r.Exporters {
		if x := &r.Exporters[i]; x.Cluster == cluster && x.Ready == 0 && !x.NotCounted && x.Expired == "" {
			return "no endpoint of the Service is ready there"
		}
	}
	return "more than half of the other live members do not reach it, or no endpoint is ready there: " +
		"kubectl clusterset status"
}

func (x *External) row() []string {
	up := "yes"
	if !x.Up {
		up = "no"
	}
	where := slices.DeleteFunc([]string{x.Region, x.Continent, x.Location}, func(s string) bool { return s == "" })
	return []string{x.Cluster, strings.Join(x.Addresses, " "), up, strconv.Itoa(x.Weight),
		fmt.Sprintf("%.0f%%", x.Share), strings.Join(where, " "), x.Why}
}
