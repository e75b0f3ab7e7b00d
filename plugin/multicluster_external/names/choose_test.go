package names

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// The places of the tests, with their distances from Berlin in km: Potsdam 27, Leipzig 149, Dublin 1314, New York 6385,
// Sydney 16091.
var (
	berlin  = At(52.52, 13.405)
	potsdam = At(52.4, 13.066)
	leipzig = At(51.34, 12.375)
	dublin  = At(53.35, -6.26)
	newYork = At(40.71, -74.01)
	sydney  = At(-33.87, 151.21)
)

// at is a cluster's record with one IPv4 address.
func at(cluster string, l Location) Record {
	return Record{Cluster: cluster, Weight: -1, Location: l, Addrs: []string{"\x0a\x00\x00\x01"}, Up: true}
}

func with(r Record, change func(*Record)) Record { change(&r); return r }

func down(r Record) Record { r.Up = false; return r }

func weighing(r Record, weight int) Record { r.Weight = weight; return r }

func of(records ...Record) []Record { return records }

func service(records ...Record) *Service {
	all := make(map[string]Record)
	for i, r := range records {
		all[fmt.Sprintf("slice-%03d", i)] = r
	}
	return New("web.shop", all)
}

func client(addr string, l Location, continent string) Client {
	return NewClient(netip.MustParseAddr(addr), l, continent)
}

// chosen are the clusters that clients of 2000 networks get, at one place.
func chosen(s *Service, region string, t Type, l Location, continent string) (ids []string) {
	seen := map[string]bool{}
	for i := range 2000 {
		addr := netip.AddrFrom4([4]byte{198, byte(i >> 8), byte(i), 1})
		if c, _ := s.Choose(region, t, NewClient(addr, l, continent)); c != nil {
			seen[c.ID] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func TestX3WhoIsChosen(t *testing.T) {
	v6 := func(r Record) Record {
		return with(r, func(r *Record) { r.Type, r.Addrs = V6, []string{"0123456789abcdef"} })
	}
	host := func(r Record) Record {
		return with(r, func(r *Record) { r.Type, r.Addrs = Host, []string{"lb.example."} })
	}
	in := func(region, continent string, r Record) Record {
		return with(r, func(r *Record) { r.Region, r.Continent = region, continent })
	}
	none := Location{}
	for _, c := range []struct {
		name      string
		records   []Record
		region    string
		t         Type
		from      Location
		continent string
		want      []string
	}{
		{"all by weight", of(at("a", none), at("b", none)), "", V4, none, "", []string{"a", "b"}},
		{"only what is up", of(at("a", none), down(at("b", none))), "", V4, none, "", []string{"a"}},
		{"all, if none is up", of(down(at("a", none)), down(at("b", none))), "", V4, none, "", []string{"a", "b"}},
		{"the nearest", of(at("a", dublin), at("b", newYork)), "", V4, berlin, "", []string{"a"}},
		{"the nearest that is up", of(down(at("a", dublin)), at("b", newYork), at("c", sydney)), "", V4, berlin, "",
			[]string{"b"}},
		{"within 100 km of the nearest", of(at("a", berlin), at("b", potsdam), at("c", leipzig)), "", V4, berlin, "",
			[]string{"a", "b"}},
		{"the nearest has a weight of 0", of(weighing(at("a", berlin), 0), at("b", sydney)), "", V4, berlin, "",
			[]string{"b"}},
		{"no weight but 0 is up", of(weighing(at("a", berlin), 0), down(at("b", sydney))), "", V4, berlin, "",
			[]string{"a"}},
		{"weights of 0 only", of(weighing(at("a", none), 0), weighing(at("b", none), 0)), "", V4, none, "",
			[]string{"a", "b"}},
		{"who is nowhere is not near", of(at("a", none), at("b", sydney)), "", V4, berlin, "", []string{"b"}},
		{"the continent", of(in("", "EU", at("a", none)), in("", "NA", at("b", none))), "", V4, none, "NA",
			[]string{"b"}},
		{"the continent of a client whose place is known", of(in("", "EU", at("a", none)), at("b", none)), "", V4,
			berlin, "EU", []string{"a"}},
		{"coordinates before the continent", of(in("", "AS", at("a", dublin)), in("", "EU", at("b", sydney))), "", V4,
			berlin, "EU", []string{"a"}},
		{"nobody on the continent", of(in("", "EU", at("a", none)), at("b", none)), "", V4, none, "AF",
			[]string{"a", "b"}},
		{"a client on no continent", of(in("", "EU", at("a", none)), at("b", none)), "", V4, none, "",
			[]string{"a", "b"}},
		{"a region", of(in("eu", "", at("a", none)), in("us", "", at("b", none))), "us", V4, none, "", []string{"b"}},
		{"a region that is down", of(in("eu", "", at("a", none)), in("us", "", down(at("b", none)))), "us", V4, none,
			"", []string{"a"}},
		{"a region, and nobody is up", of(in("eu", "", down(at("a", none))), in("us", "", down(at("b", none)))), "us",
			V4, none, "", []string{"b"}},
		{"a type that not all have", of(at("a", none), v6(at("b", none))), "", V6, none, "", []string{"b"}},
		{"host names for any type", of(at("a", none), host(at("b", none))), "", V6, none, "", []string{"b"}},
		{"host names beside addresses", of(at("a", none), host(at("a", none)), v6(at("b", none))), "", V6, none, "",
			[]string{"b"}},
		{"the host name of a cluster that is down", of(at("a", none), down(host(at("b", none)))), "", V6, none, "",
			nil},
		{"the host name of a cluster without weight", of(at("a", none), weighing(host(at("b", none)), 0)), "", V6, none,
			"", nil},
		{"a type that nobody has", of(at("a", none), at("b", none)), "", V6, none, "", nil},
		{"a type of a cluster that is down", of(at("a", none), down(v6(at("b", none)))), "", V6, none, "", nil},
		{"a type of a cluster without weight", of(at("a", none), weighing(v6(at("b", none)), 0)), "", V6, none, "",
			nil},
		{"a type of another region", of(in("eu", "", at("a", none)), in("us", "", v6(at("b", none)))), "eu", V6, none,
			"", nil},
		{"a type that a farther cluster has", of(at("a", dublin), v6(at("b", sydney))), "", V6, berlin, "",
			[]string{"b"}},
	} {
		if got := chosen(service(c.records...), c.region, c.t, c.from, c.continent); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// random is a Service of clusters at random places, some of them down or without weight.
func random(r *rand.Rand, clusters int) map[string]Record {
	all := make(map[string]Record)
	for i := range clusters {
		rec := at(fmt.Sprintf("c%d", i), At(r.Float64()*180-90, r.Float64()*360-180))
		rec.Up, rec.Region = r.IntN(3) > 0, fmt.Sprintf("r%d", r.IntN(3))
		if rec.Weight = r.IntN(200); r.IntN(4) == 0 {
			rec.Location = Location{}
		}
		all[rec.Cluster] = rec
	}
	return all
}

// X3: for any Service that has the type, someone is chosen; up before down; and if a cluster that was not chosen goes,
// the choice stays.
func TestX3TheChoiceIsStableAndNeverEmpty(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	moved := 0
	for range 3000 {
		records := random(r, 1+r.IntN(8))
		s := New("web.shop", records)
		from := At(r.Float64()*180-90, r.Float64()*360-180)
		if r.IntN(3) == 0 {
			from = Location{}
		}
		who := NewClient(
			netip.AddrFrom4([4]byte{byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256)), 9}),
			from,
			"EU",
		)
		region := []string{"", "r0"}[r.IntN(2)]
		c, _ := s.Choose(region, V4, who)
		if c == nil {
			t.Fatalf("nobody is chosen of %+v", records)
		}
		anyUp := slices.ContainsFunc(s.Clusters(), func(c Cluster) bool { return c.Up })
		if anyUp && !c.Up {
			t.Fatalf("%s is chosen, which is down, of %+v", c.ID, records)
		}
		for id := range records {
			if id == c.ID {
				continue
			}
			fewer := maps.Clone(records)
			delete(fewer, id)
			again, _ := New("web.shop", fewer).Choose(region, V4, who)
			// Of the nearest and those that are up to 100 km farther, the loss of the nearest may let others in.
			if again.ID != c.ID && (!from.Known() || !records[id].Location.Known()) {
				t.Fatalf("without %s, %s is chosen instead of %s", id, again.ID, c.ID)
			}
			if again.ID != c.ID {
				moved++
			}
		}
	}
	if moved > 30 {
		t.Errorf("%d choices changed when another cluster near the chosen one went", moved)
	}
}

// X3: clients spread by weight, a client that comes back gets the same cluster, and the other one gets only its own
// clients when one leaves.
func TestX3ClientsSpreadByWeight(t *testing.T) {
	const clients = 60_000
	weights := map[string]int{"a": 100, "b": 200, "c": 50, "d": 1000}
	var records []Record
	total := 0
	for _, id := range slices.Sorted(maps.Keys(weights)) {
		records = append(records, weighing(at(id, Location{}), weights[id]))
		total += weights[id]
	}
	all, fewer := service(records...), service(records[:3]...)
	for _, family := range []string{"IPv4", "IPv6"} {
		got := map[string]int{}
		for i := range clients {
			addr := netip.AddrFrom4([4]byte{100, byte(i >> 8), byte(i), byte(i * 7)})
			if family == "IPv6" {
				addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(i >> 8), byte(i), byte(i), 15: byte(i)})
			}
			who := NewClient(addr, Location{}, "")
			c, tailored := all.Choose("", V4, who)
			if !tailored {
				t.Fatal("a choice among four depends on nobody")
			}
			got[c.ID]++
			if left, _ := fewer.Choose("", V4, who); c.ID != "d" && left.ID != c.ID {
				t.Fatalf("without d, a client of %s gets %s", c.ID, left.ID)
			}
		}
		networks := clients // of IPv4, 65,536 networks at most repeat; of IPv6, all differ
		for id, w := range weights {
			want := float64(networks) * float64(w) / float64(total)
			if off := math.Abs(float64(got[id]) - want); off > 5*math.Sqrt(want) {
				t.Errorf("%s: %s has %d clients, want about %.0f", family, id, got[id], want)
			}
		}
	}
}

// X3: shares are by weight, among those that are up and have one.
func TestX3Shares(t *testing.T) {
	for _, c := range []struct {
		name    string
		records []Record
		want    map[string]float64
	}{
		{"by weight, wherever they are", of(weighing(at("a", berlin), 300), at("b", sydney)),
			map[string]float64{"a": 0.75, "b": 0.25}},
		{"a cluster that is down", of(at("a", berlin), down(at("b", berlin))), map[string]float64{"a": 1}},
		{"a weight of 0", of(at("a", berlin), weighing(at("b", berlin), 0)), map[string]float64{"a": 1}},
		{"weights of 0 only", of(weighing(at("a", berlin), 0), weighing(at("b", berlin), 0)),
			map[string]float64{"a": 0.5, "b": 0.5}},
		{"nobody is up", of(down(at("a", berlin))), map[string]float64{"a": 1}},
	} {
		if got := service(c.records...).Shares(); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// X3: one network has one choice.
func TestX3NetworksStayTogether(t *testing.T) {
	s := service(at("a", Location{}), at("b", Location{}), at("c", Location{}))
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"203.0.113.1", "203.0.113.254", true},
		{"203.0.113.1", "::ffff:203.0.113.9", true},
		{"2001:db8:1:2::1", "2001:db8:1:ffff::9", true},
	} {
		one, _ := s.Choose("", V4, client(c.a, Location{}, ""))
		other, _ := s.Choose("", V4, client(c.b, Location{}, ""))
		if one.ID != other.ID {
			t.Errorf("%s gets %s, and %s gets %s", c.a, one.ID, c.b, other.ID)
		}
	}
	if got := chosen(s, "", V4, Location{}, ""); len(got) != 3 {
		t.Errorf("2000 networks get %v", got)
	}
}

// X4: what one cluster alone can answer depends on no client.
func TestX4ATheOnlyChoiceIsNotTailored(t *testing.T) {
	if _, tailored := service(at("a", berlin), down(at("b", berlin))).Choose("", V4, Client{}); tailored {
		t.Error("one cluster is up, and the answer is said to depend on the client")
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b Location
		km   float64
	}{
		{"none", berlin, berlin, 0},
		{"Potsdam", berlin, potsdam, 27},
		{"New York", berlin, newYork, 6385},
		{"Sydney", berlin, sydney, 16090},
		{"across the date line", At(0, 179.5), At(0, -179.5), 111},
		{"antipodes", At(90, 0), At(-90, 0), 20015},
	} {
		if got := 2 * 6371 * math.Asin(math.Sqrt(haversine(c.a, c.b))); math.Abs(got-c.km) > 3+c.km/500 {
			t.Errorf("%s: %.0f km, want %.0f", c.name, got, c.km)
		}
	}
	for _, wrong := range [][2]float64{{90.1, 0}, {-91, 0}, {0, 180.5}, {math.NaN(), 0}, {0, math.Inf(1)}} {
		if At(wrong[0], wrong[1]).Known() {
			t.Errorf("%v is a place", wrong)
		}
	}
	if !At(0, 0).Known() {
		t.Error("0, 0 is no place")
	}
}
