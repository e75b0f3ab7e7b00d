// Package names holds what one Service answers clients outside the clusters: its clusters with their load balancers,
// and which of them a client gets (docs/spec/DNS.md, X1 to X4). It knows neither objects nor messages.
package names

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Bounds of one Service (X8). What is more is left out.
const (
	MaxClusters  = 256
	MaxAddresses = 16 // of a cluster and an address type
)

// DefaultWeight is that of a cluster that states none, and MaxWeight the highest (SPEC F5).
const (
	DefaultWeight = 100
	MaxWeight     = 1000
)

// Type is an address type.
type Type uint8

// The address types. Other stands for questions of any other type.
const (
	V4 Type = iota
	V6
	Host
	Other
)

// Record is one slice: what a cluster states, and some of its addresses.
type Record struct {
	Cluster           string // ID
	Region, Continent string // "" if unknown
	Weight            int    // negative if not stated
	Location          Location
	Type              Type     // V4, V6 or Host
	Addrs             []string // packed, or host names as they are answered; sorted, without duplicates
	Up                bool     // an endpoint is ready
}

// Location is a place on Earth: a point of the unit sphere. The zero value is unknown.
type Location struct{ x, y, z float64 }

// At returns the place of a latitude and a longitude in degrees. It is unknown if they are out of range.
func At(latitude, longitude float64) Location {
	if !(math.Abs(latitude) <= 90 && math.Abs(longitude) <= 180) { // so that NaN is out of range, too
		return Location{}
	}
	sinLat, cosLat := math.Sincos(latitude * math.Pi / 180)
	sinLon, cosLon := math.Sincos(longitude * math.Pi / 180)
	return Location{cosLat * cosLon, cosLat * sinLon, sinLat}
}

// ParseLocation returns the place of a latitude and a longitude in decimal degrees. It is unknown if one is no number.
func ParseLocation(latitude, longitude string) Location {
	north, err := strconv.ParseFloat(strings.TrimSpace(latitude), 64)
	east, err2 := strconv.ParseFloat(strings.TrimSpace(longitude), 64)
	if err != nil || err2 != nil {
		return Location{}
	}
	return At(north, east)
}

// Known reports whether l is a place.
func (l Location) Known() bool { return l != Location{} }

// Content is what a name answers: packed addresses, or the host name that it stands for.
type Content struct{ V4, V6, Alias string }

// Addresses returns the addresses as text, in the order of their octets.
func (c Content) Addresses() (v4, v6 []string) {
	texts := func(packed []string) (all []string) {
		for _, a := range packed {
			addr, _ := netip.AddrFromSlice([]byte(a))
			all = append(all, addr.String())
		}
		return all
	}
	return texts(split(c.V4, 4)), texts(split(c.V6, 16))
}

// split returns packed addresses one by one.
func split(packed string, octets int) (all []string) {
	for ; packed != ""; packed = packed[octets:] {
		all = append(all, packed[:octets])
	}
	return all
}

// Cluster is what a Service has in one cluster. It is comparable: equal values give the same answers.
type Cluster struct {
	ID                string
	Up                bool   // an endpoint is ready
	Region, Continent string // "" if unknown
	Weight            int
	location          Location
	content           Content
	hash              uint64 // of Service and ID
}

// Content returns what the cluster answers: its addresses, or if it has none, the first of its host names.
func (c *Cluster) Content() Content { return c.content }

// Addrs returns the packed addresses of a type.
func (c *Cluster) Addrs(t Type) string {
	switch t {
	case V4:
		return c.content.V4
	case V6:
		return c.content.V6
	}
	return ""
}

// Service is a name with its clusters, in the order of their IDs. It is immutable.
type Service struct {
	key      string // "<svc>.<ns>"
	clusters []Cluster
	leftOut  LeftOut
}

// LeftOut counts what exceeds the bounds of a Service.
type LeftOut struct{ Clusters, Addresses int }

// New returns the Service of a key, nil if its records have no address. A cluster has the addresses of all its records,
// and is up if one is. Every other property is that of the first record by name that states it.
func New(key string, records map[string]Record) *Service {
	order := make([]string, 0, len(records))
	for name := range records {
		order = append(order, name)
	}
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(strings.Compare(records[a].Cluster, records[b].Cluster), strings.Compare(a, b))
	})
	s := &Service{key: key}
	for len(order) > 0 {
		id := records[order[0]].Cluster
		n := 1
		for n < len(order) && records[order[n]].Cluster == id {
			n++
		}
		s.add(id, order[:n], records)
		order = order[n:]
	}
	if len(s.clusters) == 0 {
		return nil
	}
	return s
}

// add adds a cluster, unless its records have no address.
func (s *Service) add(id string, order []string, records map[string]Record) {
	c := Cluster{ID: id, Weight: -1, hash: mix(text(text(offset, s.key), id))}
	var addrs [Other][]string
	for _, name := range order {
		r := records[name]
		c.Region, c.Continent = cmp.Or(c.Region, r.Region), cmp.Or(c.Continent, r.Continent)
		if c.Weight < 0 {
			c.Weight = r.Weight
		}
		if !c.location.Known() {
			c.location = r.Location
		}
		c.Up = c.Up || r.Up
		addrs[r.Type] = append(addrs[r.Type], r.Addrs...)
	}
	if c.Weight < 0 {
		c.Weight = DefaultWeight
	}
	for t, all := range addrs {
		slices.Sort(all)
		all = slices.Compact(all)
		if n := len(all) - MaxAddresses; n > 0 {
			s.leftOut.Addresses += n
			all = all[:MaxAddresses]
		}
		addrs[t] = all
	}
	c.content = Content{V4: strings.Join(addrs[V4], ""), V6: strings.Join(addrs[V6], "")}
	if c.content == (Content{}) && len(addrs[Host]) > 0 {
		c.content.Alias = addrs[Host][0]
	}
	switch {
	case c.content == Content{}:
	case len(s.clusters) == MaxClusters:
		s.leftOut.Clusters++
	default:
		s.clusters = append(s.clusters, c)
	}
}

// Clusters returns the clusters in the order of their IDs. They must not be changed.
func (s *Service) Clusters() []Cluster { return s.clusters }

// LeftOut returns what exceeds the bounds.
func (s *Service) LeftOut() LeftOut {
	if s == nil {
		return LeftOut{}
	}
	return s.leftOut
}

// Same reports whether two Services of one key, nil for none, give the same answers.
func (s *Service) Same(o *Service) bool {
	if s == nil || o == nil {
		return s == o
	}
	return slices.Equal(s.clusters, o.clusters)
}

// Kind is what a name below a Service stands for (X2).
type Kind uint8

// The kinds of names. None does not exist, Empty is an empty non-terminal.
const (
	None Kind = iota
	Empty
	OneCluster
	Region
)

// Find returns what a name of labels below the Service stands for. cluster is that of OneCluster.
func (s *Service) Find(below string) (kind Kind, cluster *Cluster) {
	i, found := slices.BinarySearchFunc(s.clusters, below, func(c Cluster, id string) int {
		return strings.Compare(c.ID, id)
	})
	if found {
		return OneCluster, &s.clusters[i]
	}
	for i := range s.clusters {
		c := &s.clusters[i]
		if c.Region == below {
			return Region, nil
		}
		if n := len(c.ID) - len(below); n > 1 && c.ID[n-1] == '.' && c.ID[n:] == below {
			kind = Empty
		}
	}
	return kind, nil
}

// regions returns the regions that are names: those that are no cluster IDs.
func (s *Service) regions() (all []string) {
	for i := range s.clusters {
		if region := s.clusters[i].Region; region != "" {
			if kind, _ := s.Find(region); kind == Region {
				all = append(all, region)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Names returns what does not depend on the client, by name without the zone: for the Service and each region what
// clients get together, and for each cluster its own (X6).
func (s *Service) Names() map[string]Content {
	all := map[string]Content{s.key: s.everyone("")}
	for _, region := range s.regions() {
		all[region+"."+s.key] = s.everyone(region)
	}
	for i := range s.clusters {
		all[s.clusters[i].ID+"."+s.key] = s.clusters[i].content
	}
	return all
}

// Client is who asks, as far as the choice depends on it.
type Client struct {
	network   uint64
	location  Location
	continent string
}

// The networks that clients are told apart by, in bits of the prefix (X3).
const (
	Network4 = 24
	Network6 = 48
)

// NewClient returns the client at an address. An unknown location is the zero value, an unknown continent "".
func NewClient(addr netip.Addr, location Location, continent string) Client {
	octets := addr.Unmap().As16() // IPv4 in its last 4 octets, so families do not meet
	if addr.Unmap().Is4() {
		clear(octets[12+Network4/8:])
	} else {
		clear(octets[Network6/8:])
	}
	h := uint64(offset)
	for _, b := range octets {
		h = step(h, b)
	}
	return Client{network: mix(h), location: location, continent: continent}
}
