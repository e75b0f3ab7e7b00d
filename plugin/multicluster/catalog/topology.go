package catalog

import "strings"

// Topology is the place of this CoreDNS, and what it does to answers of Headless Services: whose endpoints stand first
// or alone (T2), and whether names of zones exist. The zero value has no place. Cluster and Zone are in lower
// case, "" for none.
type Topology struct {
	Cluster, Zone         string // preferred: a source cluster, and a zone of endpoints
	ClusterOnly, ZoneOnly bool   // others are left out while a preferred one is ready
	Zonal                 bool   // <zone>.pin._zone and <zone>.prefer._zone exist (N12)
}

// Keep returns the zone to store for an endpoint: no more of it than answers depend on.
func (t Topology) Keep(zone string) string {
	if !t.Zonal && t.Zone == "" {
		return ""
	}
	if zone = strings.ToLower(zone); t.Zonal || zone == t.Zone {
		return zone
	}
	return ""
}

// rank is the place of a cluster's endpoints in a zone, 0 to 3. The preferred cluster weighs more than the preferred
// zone. With ZoneOnly and without ClusterOnly it is the other way, so that the endpoints to keep have the lowest ranks.
func (t Topology) rank(cluster, zone string) uint8 {
	var c, z uint8
	if t.Cluster != "" && cluster != t.Cluster {
		c = 1
	}
	if t.Zone != "" && zone != t.Zone {
		z = 1
	}
	if t.zoneFirst() {
		return z<<1 | c
	}
	return c<<1 | z
}

func (t Topology) zoneFirst() bool { return t.ZoneOnly && !t.ClusterOnly }

// alone reports whether endpoints of rank a are answered without those of a later rank b.
func (t Topology) alone(a, b uint8) bool {
	heavyOnly, lightOnly := t.ClusterOnly, t.ZoneOnly // bit 1 of a rank, and bit 0
	if t.zoneFirst() {
		heavyOnly, lightOnly = t.ZoneOnly, t.ClusterOnly
	}
	return heavyOnly && a>>1 < b>>1 || lightOnly && a&1 < b&1
}
