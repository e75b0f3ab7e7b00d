package names

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// set is a set of clusters of one Service, by their index.
type set [MaxClusters / 64]uint64

func (s *set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *set) has(i int) bool { return s[i/64]>>(i%64)&1 == 1 }

func (s *set) len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// filter returns the clusters in from with a property.
func (s *Service) filter(from set, property func(c *Cluster) bool) (some set) {
	for i := range s.clusters {
		if from.has(i) && property(&s.clusters[i]) {
			some.add(i)
		}
	}
	return some
}

// prefer returns the clusters in from with a property, or from if none has it.
func (s *Service) prefer(from set, property func(c *Cluster) bool) set {
	if some := s.filter(from, property); some.len() > 0 {
		return some
	}
	return from
}

// candidates returns the clusters that some client may get: the ones that are up, of these the ones in the region if it
// is not "", and of these the ones with a weight above 0. A step that would leave none is left out.
func (s *Service) candidates(region string) (all set) {
	for i := range s.clusters {
		all.add(i)
	}
	all = s.prefer(all, func(c *Cluster) bool { return c.Up })
	if region != "" {
		all = s.prefer(all, func(c *Cluster) bool { return c.Region == region })
	}
	return s.prefer(all, func(c *Cluster) bool { return c.Weight > 0 })
}

// Choose returns the cluster that answers a client (X3): the client's pick of the candidates with addresses of the
// type, nil if none has any. tailored reports whether another client may get another cluster.
//
// If the client's pick of all candidates has only a host name, it answers every type, because resolvers use a cached
// CNAME for every type (RFC 1034, section 3.6.2). Host names of other candidates answer nothing.
func (s *Service) Choose(region string, t Type, client Client) (chosen *Cluster, tailored bool) {
	from := s.candidates(region)
	tailored = from.len() > 1
	chosen = s.pick(from, client)
	if chosen.content.Alias != "" {
		return chosen, tailored
	}
	return s.pick(s.filter(from, func(c *Cluster) bool { return c.Addrs(t) != "" }), client), tailored
}

// pick returns the client's cluster in from, nil if from is empty.
func (s *Service) pick(from set, client Client) (chosen *Cluster) {
	if from.len() > 1 {
		from = s.near(from, client)
	}
	best := math.Inf(1)
	for i := range s.clusters {
		if !from.has(i) {
			continue
		}
		// Rendezvous hashing: each cluster draws a number from an exponential distribution whose rate is its weight.
		// The smallest is that of a cluster with a probability in proportion to its weight.
		c := &s.clusters[i]
		draw := -math.Log(unit(mix(client.network^c.hash))) / float64(max(c.Weight, 1))
		if draw < best {
			chosen, best = c, draw
		}
	}
	return chosen
}

// Shares returns, by cluster ID, the shares of the clients whose place is unknown (X3). Together they are 1. A cluster
// that none of these clients gets is left out.
func (s *Service) Shares() map[string]float64 {
	from := s.candidates("")
	shares, sum := make(map[string]float64), 0.0
	for i := range s.clusters {
		if c := &s.clusters[i]; from.has(i) {
			shares[c.ID] = float64(max(c.Weight, 1))
			sum += shares[c.ID]
		}
	}
	for id := range shares {
		shares[id] /= sum
	}
	return shares
}

// slack is how much farther than the nearest cluster others may be, in radians of a great circle: 100 km.
const slack = 100.0 / 6371

// near returns the clusters in from that are nearest to the client, or else those of its continent, or else from.
func (s *Service) near(from set, client Client) set {
	nearest := math.Inf(1)
	if client.location.Known() {
		for i := range s.clusters {
			if at := s.clusters[i].location; from.has(i) && at.Known() {
				nearest = min(nearest, haversine(at, client.location))
			}
		}
	}
	if !math.IsInf(nearest, 1) {
		angle := 2*math.Asin(math.Sqrt(min(nearest, 1))) + slack
		limit := math.Pow(math.Sin(min(angle, math.Pi)/2), 2)
		return s.prefer(from, func(c *Cluster) bool {
			return c.location.Known() && haversine(c.location, client.location) <= limit
		})
	}
	if client.continent == "" {
		return from
	}
	return s.prefer(from, func(c *Cluster) bool { return c.Continent == client.continent })
}

// haversine returns the haversine of the angle between two places, which is a quarter of the square of the straight
// line between them. It grows with the distance.
func haversine(a, b Location) float64 {
	x, y, z := a.x-b.x, a.y-b.y, a.z-b.z
	return (x*x + y*y + z*z) / 4
}

// everyone returns an answer for all clients at once: the addresses of all candidates, without duplicates, or if they
// have none, the host name of the first (X6).
func (s *Service) everyone(region string) Content {
	var v4, v6 []string
	alias, from := "", s.candidates(region)
	for i := range s.clusters {
		if c := &s.clusters[i].content; from.has(i) {
			v4, v6 = append(v4, split(c.V4, 4)...), append(v6, split(c.V6, 16)...)
			alias = cmp.Or(alias, c.Alias)
		}
	}
	if len(v4)+len(v6) > 0 {
		alias = ""
	}
	join := func(all []string) string {
		slices.Sort(all)
		return strings.Join(slices.Compact(all), "")
	}
	return Content{join(v4), join(v6), alias}
}

// The hash must be the same in every replica and after every restart: FNV-1a, with the finalizer of SplitMix64, because
// FNV alone leaves similar inputs similar.
const offset = 14695981039346656037

func step(h uint64, b byte) uint64 { return (h ^ uint64(b)) * 1099511628211 }

// text hashes a string and its end.
func text(h uint64, s string) uint64 {
	for i := range len(s) {
		h = step(h, s[i])
	}
	return step(h, 0)
}

func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// unit returns a number above 0 and at most 1, so its logarithm is finite.
func unit(h uint64) float64 { return (float64(h>>11) + 0.5) / (1 << 53) }
