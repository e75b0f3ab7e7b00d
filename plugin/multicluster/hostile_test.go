//go:build !race

// The race detector multiplies costs, so these tests of costs are not built with it.

package multicluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// hostileRecords is how many EndpointPages a compromised member exports for one Service, each as large as the hub
// admits: 1,000 endpoints with names of 63 octets and a zone each, and 256 ports of its own.
const hostileRecords = 50

// The Service's names: with long ones no name of an endpoint fits into DNS (N12).
const (
	shortKey = "db.test"
	longKey  = long63 + "." + long63
	long63   = "sssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss"
	evil     = "evil-cluster-whose-name-is-as-long-as-a-uid" // its ID
)

// hostileSlice makes what importing clusters see of record i. All records have the port "common", the last has
// "rare".
func hostileSlice(i int) *catalog.Slice {
	long := strings.Repeat("x", 55)
	ports := []catalog.Port{{Name: "common", Number: 80}}
	for p := range 254 {
		port := catalog.Port{Name: fmt.Sprintf("%s-%02d-%03d", long, i, p), Number: uint16(1000 + i*254 + p)}
		ports = append(ports, port)
	}
	if i == hostileRecords-1 {
		ports = append(ports, catalog.Port{Name: "rare", Number: 81})
	}
	endpoints := make([]catalog.Endpoint, 1000)
	for e := range endpoints {
		endpoints[e] = catalog.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(i), byte(e >> 8), byte(e)}),
			Host: fmt.Sprintf("%s-%02d-%04d", long, i, e), Zone: fmt.Sprintf("zone-%02d-%04d", i, e),
		}
	}
	endpoints[1].Addr = netip.AddrFrom4([4]byte{10, 200, 1, 1}) // that of a host of every record
	return catalog.NewSlice(fmt.Sprintf("slice-%02d", i), evil, ports, endpoints)
}

// hostile serves a Service, "<svc>.<ns>", of hostileRecords records. change replaces the first one.
func hostile(key string, topology catalog.Topology) (m *Multicluster, change func()) {
	name, namespace, _ := strings.Cut(key, ".")
	imp := &catalog.Import{Name: name, Namespace: namespace, Type: catalog.Headless}
	from := make([]*catalog.Slice, hostileRecords)
	for i := range from {
		from[i] = hostileSlice(i)
	}
	x, version := new(catalog.Table[*catalog.Service]), uint64(0)
	set := func() {
		version++
		x.Set(key, catalog.Rebuild(x.Service(key), imp, from, topology), version)
	}
	set()
	m = serving(defaultTTL, x)
	return m, func() {
		from[0] = catalog.NewSlice("slice-00", "evil", []catalog.Port{{Name: "common", Number: uint16(version)}},
			[]catalog.Endpoint{{Addr: netip.AddrFrom4([4]byte{10, 200, 0, byte(version)}), Host: "h"}})
		set()
	}
}

// cpuTime returns the least CPU time of the thread for one call of f, over several batches of calls.
func cpuTime(calls int, f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var u unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &u); err != nil {
			panic(err)
		}
		return time.Duration(u.Nano())
	}
	least := time.Hour
	for range 5 {
		start := used()
		for range calls {
			f()
		}
		least = min(least, (used()-start)/time.Duration(calls))
	}
	return least
}

// hostileQuestions has every kind of question about the Service of hostile.
var hostileQuestions = []struct {
	prefix string
	qtypes []uint16
}{
	{"", []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT}},
	{"_common._tcp.", []uint16{dns.TypeSRV, dns.TypeA}},
	{"_rare._tcp.", []uint16{dns.TypeSRV, dns.TypeA}},
	{"_absent._tcp.", []uint16{dns.TypeSRV}},
	{"_tcp.", []uint16{dns.TypeSRV}},
	{"_sctp.", []uint16{dns.TypeSRV}},
	{strings.Repeat("x", 55) + "-49-0999." + evil + ".", []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV}},
	{"absent." + evil + ".", []uint16{dns.TypeA}},
	{evil + ".", []uint16{dns.TypeA}},
	{"absent.", []uint16{dns.TypeA}},
	{"zone-00-0000.pin._zone.", []uint16{dns.TypeA, dns.TypeSRV}},
	{"absent.prefer._zone.", []uint16{dns.TypeA, dns.TypeSRV}},
}

// TestNoQuestionAboutAHostileExportIsExpensive: through ServeDNS, until its reply is packed, each takes at most 5 ms
// of
// CPU time, over TCP too. Each change takes at most 50 ms.
func TestNoQuestionAboutAHostileExportIsExpensive(t *testing.T) {
	writers := map[string]dns.ResponseWriter{"UDP": new(packing), "TCP": new(stream)}
	for _, test := range []struct {
		name     string
		key      string
		topology catalog.Topology
	}{
		{"plain", shortKey, catalog.Topology{}},
		{"long names", longKey, catalog.Topology{}},
		{"zonal", shortKey, catalog.Topology{Zonal: true}},
		{"prefer", shortKey, catalog.Topology{Zone: "zone-00-0000"}},
	} {
		m, change := hostile(test.key, test.topology)
		for _, most := range []int{0, 100, 5000} {
			m.maxEndpoints = most
			for _, q := range hostileQuestions {
				name := q.prefix + test.key + ".svc.clusterset.local."
				if _, ok := dns.IsDomainName(name); !ok {
					continue
				}
				for _, qtype := range q.qtypes {
					for transport, w := range writers {
						r := question(name, qtype, dns.MaxMsgSize)
						took := cpuTime(3, func() { mustServe(t, m, w, r) })
						if took > 5*time.Millisecond {
							t.Errorf("%s, max_endpoints %d: %s %s over %s takes %v",
								test.name, most, q.prefix, dns.TypeToString[qtype], transport, took)
						}
					}
				}
			}
		}
		if took := cpuTime(1, change); took > 50*time.Millisecond {
			t.Errorf("%s: one change takes %v", test.name, took)
		}
	}
}

// TestRarePortCostsNoMore: a question for a port that one of fifty records has costs at most twice a question for the
// port that all have, whatever the client's buffer.
func TestRarePortCostsNoMore(t *testing.T) {
	m, _ := hostile(shortKey, catalog.Topology{})
	for _, buffer := range []uint16{0, 1232, 4096, dns.MaxMsgSize} {
		cost := func(port string) time.Duration {
			r := question("_"+port+"._tcp.db.test.svc.clusterset.local.", dns.TypeSRV, buffer)
			return cpuTime(100, func() { mustServe(t, m, new(packing), r) })
		}
		common, rare := cost("common"), cost("rare")
		if t.Logf("EDNS %d: common %v, rare %v", buffer, common, rare); rare > 2*common {
			t.Errorf("EDNS %d: the rare port takes %v, the common one %v", buffer, rare, common)
		}
	}
}

// stream is packing over TCP.
type stream struct{ packing }

func (*stream) RemoteAddr() net.Addr { return streamRemote }

var streamRemote net.Addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40212}

func mustServe(t *testing.T, m *Multicluster, w dns.ResponseWriter, r *dns.Msg) {
	t.Helper()
	if _, err := m.ServeDNS(context.Background(), request.NewScrubWriter(r, w), r); err != nil {
		t.Fatal(err)
	}
}
