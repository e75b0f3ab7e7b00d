package catalog

import "strings"

// Topology is where answers are given, and what that does to those of Headless Services: whose endpoints stand first
// or alone (T2), and whether names of zones exist. The zero value knows no places. Cluster and Zone are in lower
// case, "" for none.
type Topology struct {
	Cluster, Zone         string // preferred: a source cluster, and a zone of endpoints
	ClusterOnly, ZoneOnly bool   // others are left out while a preferred one is ready
	Zonal                 bool   // <zone>.pin._zone and <zone>.prefer._zone exist (N12)
}

// Keep is what an endpoint's zone is kept as: no more of it than answers depend on.
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
// zone. If only the zone is a subset, the zone outweighs the cluster, so that the ranks to keep come first.
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
	more, less := t.ClusterOnly, t.ZoneOnly
	if t.zoneFirst() {
		more, less = t.ZoneOnly, t.ClusterOnly
	}
	return more && a>>1 < b>>1 || less && a&1 < b&1
}
