package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
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

// external fills what the slices for clients outside say, as of this cluster.
func (r *Report) external(f *Facts) {
	byID := map[string]*External{}
	for i := range f.Outside {
		s := &f.Outside[i]
		id := s.Labels[mcsv1beta1.LabelSourceCluster]
		x := byID[id]
		if x == nil {
			x = &External{
				Cluster: id, Weight: 100, Region: s.Annotations[external.AnnotationRegion],
				Continent: s.Annotations[external.AnnotationContinent],
				Location:  s.Annotations[external.AnnotationLocation],
			}
			if n, err := strconv.Atoi(s.Annotations[external.AnnotationWeight]); err == nil {
				x.Weight = n
			}
			byID[id] = x
		}
		for j := range s.Endpoints {
			x.Addresses = append(x.Addresses, s.Endpoints[j].Addresses...)
			x.Up = x.Up || isReady(&s.Endpoints[j])
		}
	}
	for _, x := range byID {
		slices.Sort(x.Addresses)
		if !x.Up {
			x.Why = r.whyDown(f, x.Cluster)
		}
		r.External = append(r.External, *x)
	}
	slices.SortFunc(r.External, func(a, b External) int { return cmp.Compare(a.Cluster, b.Cluster) })
	r.chosen(f)
}

// Chosen is the cluster that a client outside the clusters gets for a question of a type, if its place is not known.
type Chosen struct {
	Client  string `json:"client"`
	Type    string `json:"type"`
	Cluster string `json:"cluster"`
}

// chosen asks the code of CoreDNS which share of the clients each cluster gets, and which clusters one client gets.
func (r *Report) chosen(f *Facts) {
	records := map[string]names.Record{}
	for i := range r.External {
		x := &r.External[i]
		for _, text := range x.Addresses {
			rec := names.Record{
				Cluster: x.Cluster, Weight: x.Weight, Up: x.Up, Type: names.Host, Addrs: []string{text},
			}
			if addr, err := netip.ParseAddr(text); err == nil {
				rec.Addrs, rec.Type = []string{string(addr.AsSlice())}, names.V6
				if addr.Is4() {
					rec.Type = names.V4
				}
			}
			records[x.Cluster+" "+text] = rec
		}
	}
	service := names.New(f.Name.Name+"."+f.Name.Namespace, records)
	if service == nil {
		return
	}
	shares := service.Shares()
	for i := range r.External {
		r.External[i].Share = 100 * shares[r.External[i].Cluster]
	}
	if !f.From.IsValid() {
		return
	}
	client := names.NewClient(f.From, names.Location{}, "")
	for _, q := range []struct {
		text string
		of   names.Type
	}{{"A", names.V4}, {"AAAA", names.V6}} {
		if c, _ := service.Choose("", q.of, client); c != nil {
			r.Chosen = append(r.Chosen, Chosen{f.From.String(), q.text, c.ID})
		}
	}
}

// whyDown returns why no client gets a cluster, as far as this cluster shows it.
func (r *Report) whyDown(f *Facts, cluster string) string {
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
	return []string{
		x.Cluster, strings.Join(x.Addresses, " "), up, strconv.Itoa(x.Weight), fmt.Sprintf("%.0f%%", x.Share),
		strings.Join(where, " "), x.Why,
	}
}
