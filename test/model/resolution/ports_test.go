package resolution

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

func tcp(name string, number int32) clusterset.Port {
	return clusterset.Port{Name: name, Protocol: corev1.ProtocolTCP, Number: number}
}

func udp(name string, number int32) clusterset.Port {
	return clusterset.Port{Name: name, Protocol: corev1.ProtocolUDP, Number: number}
}

func app(port clusterset.Port, appProtocol string) clusterset.Port {
	port.AppProtocol = appProtocol
	return port
}

var http80, grpc90 = tcp("http", 80), tcp("grpc", 90)

type (
	list  = []clusterset.Port
	names = map[string]string
)

// byKey returns, by port, the names that want has by the port's own name.
func byKey(ports list, want names) map[clusterset.PortKey]string {
	out := map[clusterset.PortKey]string{}
	for _, p := range ports {
		if name, ok := want[p.Name]; ok {
			out[p.Key()] = name
		}
	}
	return out
}

// Clusters by age; their ids sort the other way.
var portCases = []struct {
	name     string
	clusters []list
	union    list
	names    []names
	disagree int
}{
	{"C3 identical", []list{{http80, grpc90}, {http80, grpc90}},
		list{http80, grpc90}, []names{{"http": "http", "grpc": "grpc"}, {"http": "http", "grpc": "grpc"}}, 0},
	{"C3 order alone is no conflict", []list{{http80, grpc90}, {grpc90, http80}},
		list{http80, grpc90}, []names{{"http": "http", "grpc": "grpc"}, {"http": "http", "grpc": "grpc"}}, 0},
	{
		"C3 union in order of precedence; C4 each serves its own",
		[]list{{grpc90}, {http80, tcp("web", 70)}, {grpc90}},
		list{
			grpc90,
			http80,
			tcp("web", 70),
		},
		[]names{{"grpc": "grpc"}, {"http": "http", "web": "web"}, {"grpc": "grpc"}},
		1,
	},
	{"C3 who disagrees is counted against the oldest, not the most", []list{{http80}, {grpc90}, {grpc90}},
		list{http80, grpc90}, []names{{"http": "http"}, {"grpc": "grpc"}, {"grpc": "grpc"}}, 2},
	{"C3 name taken by another number: loses; C4 no traffic", []list{{http80}, {tcp("http", 81), grpc90}},
		list{http80, grpc90}, []names{{"http": "http"}, {"grpc": "grpc"}}, 1},
	{"C3 name taken by another protocol: loses", []list{{http80}, {udp("http", 80)}},
		list{http80}, []names{{"http": "http"}, {}}, 1},
	{"C3 one number in two protocols is two ports", []list{{tcp("dns-tcp", 53), udp("dns", 53)}, {udp("dns", 53)}},
		list{tcp("dns-tcp", 53), udp("dns", 53)}, []names{{"dns-tcp": "dns-tcp", "dns": "dns"}, {"dns": "dns"}}, 1},
	{"C3 same number, other name: the same port under the winner's name", []list{{http80}, {tcp("web", 80)}},
		list{http80}, []names{{"http": "http"}, {"web": "http"}}, 1},
	{
		"C3 same number, own name taken by another port: still the same port",
		[]list{{http80, grpc90}, {tcp("grpc", 80)}},
		list{http80, grpc90},
		[]names{{"http": "http", "grpc": "grpc"}, {"grpc": "http"}},
		1,
	},
	{"C3 names swapped", []list{{http80, grpc90}, {tcp("grpc", 80), tcp("http", 90)}},
		list{http80, grpc90}, []names{{"http": "http", "grpc": "grpc"}, {"grpc": "http", "http": "grpc"}}, 1},
	{"C3 a renamed port's own name stays free", []list{{http80}, {tcp("web", 80)}, {tcp("web", 81)}},
		list{http80, tcp("web", 81)}, []names{{"http": "http"}, {"web": "http"}, {"web": "web"}}, 2},
	{
		"C3 a lost port's number stays free; C4 who lost it serves what a younger one adds",
		[]list{{http80}, {tcp("http", 81)}, {tcp("web", 81)}},
		list{http80, tcp("web", 81)},
		[]names{{"http": "http"}, {"http": "web"}, {"web": "web"}},
		2,
	},
	{"C3 the second oldest wins a name over the third", []list{{http80}, {grpc90}, {tcp("grpc", 91)}},
		list{http80, grpc90}, []names{{"http": "http"}, {"grpc": "grpc"}, {}}, 2},
	{"C3 unnamed alone stays unnamed", []list{{tcp("", 80)}, {tcp("", 80)}},
		list{tcp("", 80)}, []names{{"": ""}, {"": ""}}, 0},
	{"C3 unnamed serves the named", []list{{http80, grpc90}, {tcp("", 80)}},
		list{http80, grpc90}, []names{{"http": "http", "grpc": "grpc"}, {"": "http"}}, 1},
	{"C3 named serves the unnamed", []list{{tcp("", 80)}, {http80}},
		list{tcp("", 80)}, []names{{"": ""}, {"http": ""}}, 1},
	{"C3 named that serves the unnamed leaves its name free", []list{{tcp("", 80)}, {http80}, {tcp("http", 81)}},
		list{tcp("tcp-80", 80), tcp("http", 81)}, []names{{"": "tcp-80"}, {"http": "tcp-80"}, {"http": "http"}}, 2},
	{"C3 unnamed beside others gets a name", []list{{udp("", 53)}, {udp("", 53), http80}},
		list{udp("udp-53", 53), http80}, []names{{"": "udp-53"}, {"": "udp-53", "http": "http"}}, 1},
	{"C3 younger unnamed beside others gets a name", []list{{http80}, {tcp("", 81)}},
		list{http80, tcp("tcp-81", 81)}, []names{{"http": "http"}, {"": "tcp-81"}}, 1},
	{
		"C3 two unnamed are no name taken",
		[]list{{tcp("", 80)}, {tcp("", 81)}, {udp("", 80)}},
		list{
			tcp("tcp-80", 80),
			tcp("tcp-81", 81),
			udp("udp-80", 80),
		},
		[]names{{"": "tcp-80"}, {"": "tcp-81"}, {"": "udp-80"}},
		2,
	},
	{"C3 made name taken", []list{{tcp("", 80)}, {tcp("tcp-80", 81)}},
		list{tcp("tcp-80-2", 80), tcp("tcp-80", 81)}, []names{{"": "tcp-80-2"}, {"tcp-80": "tcp-80"}}, 1},
	{"C3 made name taken twice", []list{{tcp("tcp-80", 81), tcp("tcp-80-2", 82)}, {tcp("", 80)}},
		list{tcp("tcp-80", 81), tcp("tcp-80-2", 82), tcp("tcp-80-3", 80)},
		[]names{{"tcp-80": "tcp-80", "tcp-80-2": "tcp-80-2"}, {"": "tcp-80-3"}}, 1},
	{
		"C3 a made name takes none from a younger named port",
		[]list{{tcp("", 80)}, {grpc90}, {tcp("tcp-80", 81)}},
		list{
			tcp("tcp-80-2", 80),
			grpc90,
			tcp("tcp-80", 81),
		},
		[]names{{"": "tcp-80-2"}, {"grpc": "grpc"}, {"tcp-80": "tcp-80"}},
		2,
	},
	{"C3 appProtocol is the oldest's", []list{{app(http80, "h2c")}, {app(http80, "http")}},
		list{app(http80, "h2c")}, []names{{"http": "http"}, {"http": "http"}}, 1},
	{"C3 no appProtocol over a younger's", []list{{http80}, {app(tcp("web", 80), "http")}},
		list{http80}, []names{{"http": "http"}, {"web": "http"}}, 1},
	{"C3 appProtocol of a port that the oldest does not have", []list{{http80}, {app(grpc90, "h2c")}, {grpc90}},
		list{http80, app(grpc90, "h2c")}, []names{{"http": "http"}, {"grpc": "grpc"}, {"grpc": "grpc"}}, 2},
	{"C3 no ports at all", []list{nil, nil}, nil, []names{{}, {}}, 0},
	{"C3 the oldest has none", []list{nil, {tcp("", 80)}}, list{tcp("", 80)}, []names{{}, {"": ""}}, 1},
}

// C3 is the union, C4 who serves what in it.
func TestC3C4Ports(t *testing.T) {
	for _, test := range portCases {
		t.Run(test.name, func(t *testing.T) {
			var exports []clusterset.Export
			wantNames := map[string]map[clusterset.PortKey]string{}
			for i, ports := range test.clusters {
				e := export(string(rune('z'-i)), i, func(e *clusterset.Export) { e.Ports = ports })
				exports = slices.Insert(exports, 0, e)
				wantNames[e.Cluster] = byKey(ports, test.names[i])
			}
			m := wantDisagree(t, exports, "PortConflict", test.disagree)
			if !slices.Equal(m.Ports, test.union) {
				t.Errorf("ports: got %+v, want %+v", m.Ports, test.union)
			}
			if !reflect.DeepEqual(m.Names, wantNames) {
				t.Errorf("names: got %v, want %v", m.Names, wantNames)
			}
		})
	}
}

// Clients of a headless import learn a port's number from each cluster's slices (SRV): only its name makes it the same.
func TestC3C4PortsOfAHeadlessImport(t *testing.T) {
	for _, test := range []struct {
		name     string
		clusters []list
		union    list
		names    []names
		disagree int
	}{
		{"another number is no conflict", []list{{http80}, {tcp("http", 8080)}},
			list{http80}, []names{{"http": "http"}, {"http": "http"}}, 0},
		{"another protocol loses", []list{{http80}, {udp("http", 80)}},
			list{http80}, []names{{"http": "http"}, {}}, 1},
		{"another appProtocol is one", []list{{http80}, {app(tcp("http", 8080), "h2c")}},
			list{http80}, []names{{"http": "http"}, {"http": "http"}}, 1},
		{"another name is another port, with the same number, too", []list{{http80}, {tcp("web", 80)}},
			list{http80, tcp("web", 80)}, []names{{"http": "http"}, {"web": "web"}}, 1},
		{"names whose numbers are swapped", []list{{http80, grpc90}, {tcp("grpc", 80), tcp("http", 90)}},
			list{http80, grpc90}, []names{{"http": "http", "grpc": "grpc"}, {"http": "http", "grpc": "grpc"}}, 0},
		{"unnamed ones are the same", []list{{tcp("", 80)}, {tcp("", 81)}},
			list{tcp("", 80)}, []names{{"": ""}, {"": ""}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			var exports []clusterset.Export
			wantNames := map[string]map[clusterset.PortKey]string{}
			for i, ports := range test.clusters {
				e := export(string(rune('z'-i)), i, headless, func(e *clusterset.Export) { e.Ports = ports })
				exports = append(exports, e)
				wantNames[e.Cluster] = byKey(ports, test.names[i])
			}
			m := wantDisagree(t, exports, "PortConflict", test.disagree)
			if !slices.Equal(m.Ports, test.union) || !reflect.DeepEqual(m.Names, wantNames) {
				t.Errorf("got %+v %v, want %+v %v", m.Ports, m.Names, test.union, wantNames)
			}
		})
	}
}

// C9: a younger cluster raises a conflict, and what was there before it goes on.
func TestC9YoungerConflictLeavesTheRestAsItWas(t *testing.T) {
	before := []clusterset.Export{
		export("z", 0, func(e *clusterset.Export) { e.Ports, e.Families = list{http80}, []corev1.IPFamily{v4} }),
		export(
			"y",
			1,
			func(e *clusterset.Export) { e.Ports, e.Families = list{tcp("web", 80), grpc90}, []corev1.IPFamily{v4} },
		),
	}
	after := append(slices.Clone(before), export("x", 2, headless, func(e *clusterset.Export) {
		e.Ports, e.Families = list{tcp("http", 90), udp("grpc", 90)}, []corev1.IPFamily{v6}
	}))
	was, _ := Resolve(before)
	is, reasons := Resolve(after)
	if want := []reason{"TypeConflict", "PortConflict", "IPFamilyConflict"}; !slices.Equal(reasons, want) {
		t.Fatalf("reasons: got %q, want %q", reasons, want)
	}
	if want := byKey(list{tcp("http", 90)}, names{"http": "grpc"}); !reflect.DeepEqual(is.Names["x"], want) {
		t.Errorf("names of the younger: got %v, want %v", is.Names["x"], want)
	}
	is.Clusters = was.Clusters
	delete(is.Names, "x")
	if !reflect.DeepEqual(is, was) {
		t.Errorf("got %+v, want %+v", is, was)
	}
}

// C9 for any exports: the youngest adds behind the union, takes nothing away, and moves no cluster to another port.
// The only names that
// may change are made ones (DESIGN §4 lets slices carry both in between).
func TestC9YoungestOnlyAddsPorts(t *testing.T) {
	each(func(seed uint64, exports []clusterset.Export) {
		byAge := precedence(exports)
		older := byAge[:len(byAge)-1]
		was, _ := Resolve(older)
		is, _ := Resolve(byAge)
		renamed := map[string]string{}
		for i, port := range was.Ports {
			if i >= len(is.Ports) {
				t.Fatalf("seed %d: port %+v is gone: %+v", seed, port, exports)
			}
			renamed[port.Name] = is.Ports[i].Name
			made := port.Name == "" ||
				strings.HasPrefix(
					port.Name,
					fmt.Sprintf("%s-%d", strings.ToLower(string(port.Protocol)), port.Number),
				)
			if made {
				port.Name = is.Ports[i].Name
			}
			if is.Ports[i] != port {
				t.Fatalf("seed %d: port %+v became %+v: %+v", seed, port, is.Ports[i], exports)
			}
		}
		for _, e := range older {
			added := maps.Clone(is.Names[e.Cluster])
			for own, name := range was.Names[e.Cluster] {
				was.Names[e.Cluster][own] = renamed[name]
				delete(added, own)
			}
			for own, name := range added { // what lost its name serves a port that the youngest adds
				isNew := func(p clusterset.Port) bool { return p.Name == name }
				if slices.ContainsFunc(is.Ports[len(was.Ports):], isNew) {
					was.Names[e.Cluster][own] = name
				}
			}
			if !maps.Equal(was.Names[e.Cluster], is.Names[e.Cluster]) {
				t.Fatalf(
					"seed %d: cluster %q serves %v, before %v: %+v",
					seed,
					e.Cluster,
					is.Names[e.Cluster],
					was.Names[e.Cluster],
					exports,
				)
			}
		}
	})
}
