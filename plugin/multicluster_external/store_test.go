package external

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const web = "web.shop." + zone

// M4: the serial is the highest resourceVersion whose change altered an answer, and at the start the highest of the
// objects that answers come from.
func TestX5SerialIsTheLastChangeOfAnAnswer(t *testing.T) {
	instantly(t, x5SerialIsTheLastChangeOfAnAnswer)
}

func x5SerialIsTheLastChangeOfAnAnswer(t *testing.T) {
	s := listed(t, slice(7, "a", "10.0.0.1"), slice(9, "b", "10.0.0.2"), slice(50, "b", "10.0.0.2", "as _"))
	at := func(when string, want uint32) {
		t.Helper()
		if got := s.Index().Serial(); got != want {
			t.Errorf("%s: serial %d, want %d", when, got, want)
		}
	}
	at("after the first list", 9)
	s.update(slice(20, "a", "10.0.0.1"))
	at("after a change of nothing", 9)
	s.update(slice(21, "a", "10.0.0.1", "down"))
	at("after a cluster is down", 21)
	s.update(slice(22, "a", "10.0.0.1", "down", "weight=5000"))
	at("after a wrong weight", 21)
	s.delete(slice(30, "b", "10.0.0.2"))
	at("after a deletion", 30)
	var many string
	for i := range names.MaxAddresses {
		many += fmt.Sprintf("10.0.1.%d ", i)
	}
	s.update(slice(31, "c", many))
	at("after many addresses", 31)
	another := slice(32, "c", "10.9.9.9")
	another.Name = "another"
	s.update(another)
	at("after one too many", 31)
	replace(t, s, "40")
	gone := s.Index().Serial()
	if gone < 40 {
		t.Errorf("after a list without slices: serial %d, want 40 or more", gone)
	}
	replace(t, s, "41")
	at("after the same list", gone)
	if got := newWatch().Index().Serial(); got != 1 {
		t.Errorf("before the first list: %d, want 1", got)
	}
}

// X7: an API server that was restored has lower resourceVersions. What it lists is answered at once.
func TestX7ARestoredAPIServerIsFollowed(t *testing.T) { instantly(t, x7ARestoredAPIServerIsFollowed) }

func x7ARestoredAPIServerIsFollowed(t *testing.T) {
	s := listed(t, slice(5000, "a", "10.0.0.1"), slice(5001, "b", "10.0.0.2"))
	e := serving(s)
	replace(t, s, "90", slice(80, "a", "10.0.0.9"))
	if got := answer(t, e, nowhere, web, dns.TypeA); got != "10.0.0.9" {
		t.Errorf("after the list: %s", got)
	}
	s.update(slice(95, "a", "10.0.0.8"))
	if got := answer(t, e, nowhere, web, dns.TypeA); got != "10.0.0.8" {
		t.Errorf("after an event: %s", got)
	}
	if got := s.Index().Serial(); got != 5004 {
		t.Errorf("the serial is %d, want 5004 after three changes since 5001 (M4)", got)
	}
}

// A slice that moves to another Service, or stops to be one's, leaves the first.
func TestSlicesMove(t *testing.T) { instantly(t, slicesMove) }

func slicesMove(t *testing.T) {
	s := listed(t, slice(1, "a", "10.0.0.1"))
	e := serving(s)
	moved := slice(2, "a", "10.0.0.1", "as db")
	moved.Name = slice(1, "a", "10.0.0.1").Name
	s.update(moved)
	if got := answer(t, e, nowhere, web, dns.TypeA); got != "NXDOMAIN" {
		t.Errorf("the old name: %s", got)
	}
	if got := answer(t, e, nowhere, "db.shop."+zone, dns.TypeA); got != "10.0.0.1" {
		t.Errorf("the new name: %s", got)
	}
	gone := slice(3, "", "10.0.0.1", "as db")
	gone.Name = moved.Name
	s.update(gone)
	if got := answer(t, e, nowhere, "shop."+zone, dns.TypeA); got != "NXDOMAIN" {
		t.Errorf("the namespace of no Service: %s", got)
	}
	if _, all := s.Index().Snapshot(); len(all) != 0 {
		t.Errorf("left: %v", all)
	}
}

// BenchmarkStore is a change of one Service among 5,000.
func BenchmarkStore(b *testing.B) {
	var all []*discoveryv1.EndpointSlice
	for i := range 5000 {
		all = append(all, slice(i+1, "a", "10.0.0.1", fmt.Sprintf("as web%d", i)))
	}
	s := listed(b, all...)
	for i := range b.N {
		s.update(slice(i+6000, "a", fmt.Sprintf("10.0.0.%d", i%250), "as web7"))
	}
}

type counts map[string]int // by reason

// X8: what is wrong is left out by itself, and counted.
func TestX8WrongPartsAreLeftOut(t *testing.T) {
	const all = "10.0.0.1"
	many := make([]string, 40)
	for i := range many {
		many[i] = fmt.Sprintf("10.0.1.%d", i)
	}
	typed := func(s *discoveryv1.EndpointSlice, of discoveryv1.AddressType) *discoveryv1.EndpointSlice {
		s.AddressType = of
		return s
	}
	for name, c := range map[string]struct {
		slice *discoveryv1.EndpointSlice
		out   counts
		want  string // the answer at the cluster's name, "" for none
	}{
		"nothing":                  {slice(1, "a", all), nil, "10.0.0.1"},
		"no cluster":               {slice(1, "", all), counts{"cluster_id": 1}, ""},
		"a cluster of three":       {slice(1, "a.b.c", all), counts{"cluster_id": 1}, ""},
		"a cluster like _a":        {slice(1, "_a", all), counts{"cluster_id": 1}, ""},
		"no service":               {slice(1, "a", all, "as "), counts{"service": 1}, ""},
		"a service of two labels":  {slice(1, "a", all, "as web.x"), counts{"service": 1}, ""},
		"a negative weight":        {slice(1, "a", all, "external-weight=-1"), counts{"weight": 1}, "10.0.0.1"},
		"a high weight":            {slice(1, "a", all, "external-weight=1001"), counts{"weight": 1}, "10.0.0.1"},
		"a weight that is no text": {slice(1, "a", all, "external-weight= 1"), counts{"weight": 1}, "10.0.0.1"},
		"a region of two labels":   {slice(1, "a", all, "region=eu.west"), counts{"region": 1}, "10.0.0.1"},
		"another continent":        {slice(1, "a", all, "continent=eu"), counts{"continent": 1}, "10.0.0.1"},
		"a latitude of 91":         {slice(1, "a", all, "location=91,0"), counts{"location": 1}, "10.0.0.1"},
		"one number":               {slice(1, "a", all, "location=52"), counts{"location": 1}, "10.0.0.1"},
		"no number":                {slice(1, "a", all, "location=NaN,NaN"), counts{"location": 1}, "10.0.0.1"},
		"all of them": {slice(1, "a", all, "location=", "region=", "continent=", "external-weight="),
			counts{"location": 1, "region": 1, "continent": 1, "weight": 1}, "10.0.0.1"},
		"no addresses": {slice(1, "a", ""), nil, ""},
		"an address of another type": {typed(slice(1, "a", "10.0.0.1 2001:db8::1"), discoveryv1.AddressTypeIPv4),
			counts{"address": 1}, "10.0.0.1"},
		"addresses that are none": {
			typed(slice(1, "a", "10.0.0.1 10.0.0 x ::ffff:10.0.0.2"), discoveryv1.AddressTypeIPv4),
			counts{"address": 3}, "10.0.0.1",
		},
		"IPv6 with a zone": {typed(slice(1, "a", "fe80::1%eth0 ::ffff:10.0.0.2"), discoveryv1.AddressTypeIPv6),
			counts{"address": 2}, ""},
		"host names that are none": {typed(slice(1, "a",
			"10.0.0.1 *.example a..b _x.example ok.example. "+strings.Repeat("a.", 128)+" "+
				strings.Repeat("a", 64)+".example"),
			discoveryv1.AddressTypeFQDN), counts{"address": 6}, "ok.example."},
		"many addresses": {slice(1, "a", strings.Join(many, " ")), counts{"addresses": 24}, "16"},
	} {
		s := listed(t, c.slice)
		out := counts{}
		for r, n := range s.leftOut() {
			if n > 0 {
				out[endpointslice.Reason(r).String()] = n
			}
		}
		if !maps.Equal(out, c.out) {
			t.Errorf("%s: left out %v, want %v", name, out, c.out)
		}
		if n := len(endpointslice.Read(c.slice).Record.Addrs); n > names.MaxAddresses {
			t.Errorf("%s: %d addresses are kept", name, n)
		}
		got := answer(t, serving(s), nowhere, "a."+web, dns.TypeA)
		if n := len(strings.Fields(got)); n > 1 {
			got = fmt.Sprint(n)
		}
		if c.want == "" {
			c.want = "NXDOMAIN"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// X8: more slices than bounds allow change nothing for others, and are counted.
func TestX8HostileNumbers(t *testing.T) {
	all := []*discoveryv1.EndpointSlice{slice(1, "victim", "10.9.9.9", "as db")}
	for i := range 600 {
		all = append(all, slice(i+2, fmt.Sprintf("c%03d", i), fmt.Sprintf("10.1.%d.%d", i/256, i%256)))
	}
	for i := range 40 { // one cluster with many slices
		s := slice(i+1000, "c000", fmt.Sprintf("10.2.0.%d", i))
		s.Name += fmt.Sprint(i)
		all = append(all, s)
	}
	s := listed(t, all...)
	out := s.leftOut()
	if out[endpointslice.TooManyClusters] != 600-names.MaxClusters ||
		out[endpointslice.TooManyAddresses] != 41-names.MaxAddresses {
		t.Errorf("left out %v", out)
	}
	e := serving(s)
	for name, want := range map[string]string{
		"c255." + web: "10.1.0.255", "c256." + web: "NXDOMAIN", "db.shop." + zone: "10.9.9.9",
	} {
		if got := answer(t, e, nowhere, name, dns.TypeA); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	// The same, in another order of arrival.
	slices.Reverse(all)
	other := listed(t, all...)
	if !other.Index().Service("web.shop").Same(s.Index().Service("web.shop")) {
		t.Error("answers depend on the order in which slices come")
	}
}

// The name server has its name, whatever Services there are (X5).
func TestX5NoServiceTakesTheNameOfTheNameServer(t *testing.T) {
	hostile := slice(1, "a", "10.0.0.1", "as ns")
	hostile.Namespace = "dns"
	other := slice(2, "a", "10.0.0.2", "as web")
	other.Namespace = "dns"
	s := listed(t, hostile, other)
	e := serving(s)
	for name, want := range map[string]string{
		"ns.dns": "192.0.2.53", "a.ns.dns": "NXDOMAIN", "web.dns": "10.0.0.2", "dns": "NODATA",
	} {
		if got := answer(t, e, nowhere, name+"."+zone, dns.TypeA); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if s.leftOut()[endpointslice.WrongService] != 1 {
		t.Errorf("left out %v", s.leftOut())
	}
}

// transferred are the records of a transfer, the SOA at both ends apart, in lines.
func transferred(t *testing.T, e *External, serial uint32) (records []string, soas int) {
	t.Helper()
	ch, err := e.Transfer(strings.ToUpper(zone), serial) // names match without case (M1)
	if err != nil {
		t.Fatal(err)
	}
	for rrs := range ch {
		for _, rr := range rrs {
			if _, ok := rr.(*dns.SOA); ok {
				soas++
				continue
			}
			records = append(records, strings.Join(strings.Fields(rr.String()), " "))
		}
	}
	return sorted(records), soas
}

func TestX6Transfer(t *testing.T) { instantly(t, x6Transfer) }

func x6Transfer(t *testing.T) {
	s := three(t)
	s.update(slice(16, "kyoto", "10.3.0.1", "region=asia", "down"))
	e := serving(s)
	got, soas := transferred(t, e, 0)
	name := func(below, record string) string { return below + web + " 30 IN " + record }
	want := sorted([]string{
		zone + " 30 IN NS ns.dns." + zone, "ns.dns." + zone + " 30 IN A 192.0.2.53",
		name("", "A 198.51.100.1"), name("", "A 198.51.100.2"), name("", "A 203.0.113.1"), name("", "AAAA 2001:db8::1"),
		name("berlin.", "A 198.51.100.1"), name("berlin.", "A 198.51.100.2"), name("berlin.", "AAAA 2001:db8::1"),
		name("eu.", "A 198.51.100.1"), name("eu.", "A 198.51.100.2"), name("eu.", "AAAA 2001:db8::1"),
		name("ny.us.", "A 203.0.113.1"), name("us.", "A 203.0.113.1"),
		name("tokyo.", "CNAME a.elb.example."), name("asia.", "CNAME a.elb.example."), name("kyoto.", "A 10.3.0.1"),
	})
	if !slices.Equal(got, want) || soas != 2 {
		t.Errorf("%d SOA and\n%s\nwant\n%s", soas, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got, soas := transferred(t, e, s.Index().Serial()); len(got) != 0 || soas != 1 {
		t.Errorf("with the current serial: %d SOA and %v", soas, got)
	}
	if got, soas := transferred(t, e, s.Index().Serial()-1); len(got) != len(want) || soas != 2 {
		t.Errorf("with an older serial: %d SOA and %d records", soas, len(got))
	}
	if _, err := e.Transfer("example.org.", 0); err == nil {
		t.Error("another zone is transferred")
	}
}

// X6: what questions get at some client is in the transfer, or the name stands for a host name; and a name of one
// cluster has exactly that.
func TestX6TransferIsWhatQuestionsGet(t *testing.T) {
	e := serving(three(t))
	records, _ := transferred(t, e, 0)
	at := func(name string, qtype uint16) (data []string) {
		for _, r := range records {
			if f := strings.Fields(r); f[0] == name && f[3] == dns.TypeToString[qtype] {
				data = append(data, f[4])
			}
		}
		return data
	}
	for _, below := range []string{"", "berlin.", "ny.us.", "tokyo.", "eu.", "us.", "asia."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			seen := map[string]bool{}
			for i := range 200 {
				r := asked(below+web, qtype, netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, byte(i)}), 24).String())
				m, _ := ask(t, e, context.Background(), r)
				for _, rr := range m.Answer {
					seen[strings.TrimPrefix(rr.String(), rr.Header().String())] = rr.Header().Rrtype == qtype
				}
			}
			for data, address := range seen {
				if address && !slices.Contains(at(below+web, qtype), data) {
					t.Errorf("%s: clients get %s, which is not transferred", below, data)
				}
			}
			for _, data := range at(below+web, qtype) {
				if !seen[data] {
					t.Errorf("%s: %s is transferred, and no client gets it", below, data)
				}
			}
		}
	}
}
