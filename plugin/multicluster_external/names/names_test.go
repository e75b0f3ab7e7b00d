package names

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestX2NamesBelow(t *testing.T) {
	region := func(cluster, region string) Record {
		return with(at(cluster, Location{}), func(r *Record) { r.Region = region })
	}
	s := service(region("a", "eu"), region("x.eu", "us"), region("y.as", ""), region("us", "a"), region("z.us", ""))
	for below, want := range map[string]Kind{
		"a": OneCluster, "us": OneCluster, "x.eu": OneCluster, "y.as": OneCluster, // "us" and "a" are regions, too
		"eu": Region, "as": Empty, "b": None, "x": None, "y": None, "s": None, "x.us": None, ".as": None, "": None,
	} {
		if below == "" {
			continue // never asked
		}
		kind, cluster := s.Find(below)
		if kind != want || (cluster != nil) != (want == OneCluster) {
			t.Errorf("%s: kind %d, cluster %v, want kind %d", below, kind, cluster, want)
		}
		if cluster != nil && cluster.ID != below {
			t.Errorf("%s: cluster %s", below, cluster.ID)
		}
	}
	if got := s.regions(); !slices.Equal(got, []string{"eu"}) {
		t.Errorf("regions %v", got)
	}
}

// X6: what does not depend on the client, from all that may be chosen.
func TestX6Everyone(t *testing.T) {
	addr := func(cluster, a string) Record {
		return with(at(cluster, Location{}), func(r *Record) { r.Addrs = []string{a} })
	}
	host := func(cluster, name string) Record {
		return with(at(cluster, Location{}), func(r *Record) { r.Type, r.Addrs = Host, []string{name} })
	}
	eu := func(r Record) Record { r.Region = "eu"; return r }
	six := func(r Record) Record { r.Type, r.Addrs = V6, []string{"0123456789abcdef"}; return r }
	for _, c := range []struct {
		name    string
		records []Record
		region  string
		want    Content
	}{
		{"all that are up", of(addr("b", "bbbb"), addr("a", "aaaa"), down(addr("c", "cccc"))), "",
			Content{V4: "aaaabbbb"}},
		{"all, if none is up", of(down(addr("a", "aaaa")), down(addr("b", "bbbb"))), "", Content{V4: "aaaabbbb"}},
		{"one address once", of(addr("a", "aaaa"), addr("b", "aaaa")), "", Content{V4: "aaaa"}},
		{"not what clients get only if no other is there", of(addr("a", "aaaa"), weighing(addr("b", "bbbb"), 0)), "",
			Content{V4: "aaaa"}},
		{"a region", of(addr("a", "aaaa"), eu(addr("b", "bbbb"))), "eu", Content{V4: "bbbb"}},
		{"a region that is down", of(addr("a", "aaaa"), eu(down(addr("b", "bbbb")))), "eu", Content{V4: "aaaa"}},
		{"host names beside addresses", of(host("a", "a.example."), addr("b", "bbbb")), "", Content{V4: "bbbb"}},
		{"host names only", of(host("b", "b.example."), host("a", "a.example.")), "", Content{Alias: "a.example."}},
		{"the addresses are down", of(down(addr("a", "aaaa")), host("b", "b.example.")), "",
			Content{Alias: "b.example."}},
		{"not a type of clusters that are down", of(down(six(addr("a", ""))), addr("b", "bbbb")), "",
			Content{V4: "bbbb"}},
	} {
		if got := service(c.records...).everyone(c.region); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// X8: what exceeds the bounds is left out by the order of cluster IDs and addresses, whatever the order of slices.
func TestX8Bounds(t *testing.T) {
	records := make(map[string]Record)
	for i := range 2 * MaxClusters {
		r := at(fmt.Sprintf("c%03d", i), Location{})
		r.Addrs = nil
		for j := range MaxAddresses + 4 {
			r.Addrs = append(r.Addrs, string([]byte{10, byte(i), byte(j), 1}))
		}
		records[fmt.Sprint("slice-", rand.Int64())] = r
	}
	s := New("web.shop", records)
	if n := len(s.Clusters()); n != MaxClusters || s.Clusters()[MaxClusters-1].ID != "c255" {
		t.Errorf("%d clusters, the last %s", n, s.Clusters()[n-1].ID)
	}
	if got := s.Clusters()[7].Addrs(V4); len(got) != 4*MaxAddresses || got[62] != MaxAddresses-1 {
		t.Errorf("addresses % x", got)
	}
	if got, want := s.LeftOut(), (LeftOut{MaxClusters, 8 * MaxClusters}); got != want {
		t.Errorf("left out %+v, want %+v", got, want)
	}
	if c, _ := s.Choose("", V4, Client{}); c == nil {
		t.Error("nobody is chosen")
	}
}

// Of what the slices of a cluster state differently, the first by name counts; addresses add up.
func TestSlicesOfOneCluster(t *testing.T) {
	one, two := at("a", Location{}), weighing(at("a", berlin), 7)
	one.Addrs, two.Addrs, two.Up = []string{"bbbb"}, []string{"aaaa", "bbbb"}, false
	two.Region, two.Continent = "eu", "EU"
	s := service(
		one,
		two,
		with(two, func(r *Record) { r.Weight, r.Region, r.Type, r.Addrs = 9, "us", Host, []string{"x."} }),
	)
	c := s.Clusters()[0]
	if len(s.Clusters()) != 1 || c.content != (Content{V4: "aaaabbbb"}) || !c.Up || c.Weight != 7 || c.Region != "eu" ||
		c.Continent != "EU" || c.location != berlin {
		t.Errorf("%+v", s.Clusters())
	}
	if service(with(one, func(r *Record) { r.Addrs = nil })) != nil {
		t.Error("a Service without addresses exists")
	}
}

func TestSameIsWhatAnswers(t *testing.T) {
	a := at("a", berlin)
	if !service(a).Same(service(a)) || service(a).Same(nil) || !(*Service)(nil).Same(nil) {
		t.Error("equal Services are not the same, or others are")
	}
	for name, b := range map[string]Record{
		"down": down(a), "weight": weighing(a, 3), "place": at("a", sydney), "ID": at("b", berlin),
		"address": with(a, func(r *Record) { r.Addrs = []string{"zzzz"} }),
		"region":  with(a, func(r *Record) { r.Region = "eu" }),
	} {
		if service(a).Same(service(b)) {
			t.Errorf("another %s answers the same", name)
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{3, MaxClusters} {
		var all []Record
		for i := range n {
			all = append(all, at(strings.Repeat("x", i%9+1)+fmt.Sprint(i), At(float64(i%90), float64(i%180))))
		}
		s, who := service(all...), client("203.0.113.1", berlin, "EU")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Choose("", V4, who)
			}
		})
	}
}
