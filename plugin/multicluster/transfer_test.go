package multicluster

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/miekg/dns"
)

func transferred(t *testing.T, m *Multicluster) (rrs []dns.RR, most int) {
	t.Helper()
	blocks, err := m.Transfer("ClusterSet.Local.", 0) // names match without case (M1)
	if err != nil {
		t.Fatal(err)
	}
	for block := range blocks {
		rrs, most = append(rrs, block...), max(most, len(block))
	}
	return rrs, most
}

// L6: no more than a block of a name's records is in memory at a time, however many it has.
func TestL6TransfersComeInBlocks(t *testing.T) {
	var ports []catalog.Port
	for i := range 40 {
		ports = append(ports, catalog.Port{Name: fmt.Sprintf("p%d", i), Proto: "TCP", Number: uint16(1000 + i)})
	}
	var endpoints []catalog.Endpoint
	for i := range 2000 {
		endpoints = append(
			endpoints,
			catalog.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})},
		)
	}
	imp := &catalog.Import{Namespace: "test", Name: "huge", Type: catalog.Headless, Ports: ports}
	x := new(catalog.Table[*catalog.Service])
	x.Set("huge.test", catalog.Build(imp, []*catalog.Slice{catalog.NewSlice("s", "a", ports, endpoints)}), 1)
	m := serving(5, x)
	rrs, most := transferred(t, m)
	if most > chunk {
		t.Errorf("%d records at once, want at most %d", most, chunk)
	}
	// The zone's own five records; addresses by Service and by host; SRV by Service and by port.
	if want := 5 + 2*2000 + 2*40*2000; len(rrs) != want {
		t.Errorf("%d records, want %d", len(rrs), want)
	}
}

// M6: with "transfer" a secondary gets as many endpoints as clients do, and always the same.
func TestM6MaxEndpointsOfTransfers(t *testing.T) {
	m := large()
	m.maxEndpoints, m.limitTransfer = 100, true
	var before string
	for range 3 {
		rrs, _ := transferred(t, m)
		counts := map[string]int{}
		for _, rr := range rrs {
			counts[rr.Header().Name+" "+dns.TypeToString[rr.Header().Rrtype]]++
		}
		for set, want := range map[string]int{
			"h1000.test.svc.clusterset.local. A":                   100,
			"_http._tcp.h1000.test.svc.clusterset.local. SRV":      100,
			"h100.test.svc.clusterset.local. A":                    100,
			"pod-500.cluster-0.h1000.test.svc.clusterset.local. A": 1, // host names are no part of it
		} {
			if counts[set] != want {
				t.Errorf("%s: %d records, want %d", set, counts[set], want)
			}
		}
		if content := fmt.Sprint(rrs); before != "" && content != before {
			t.Error("two transfers of one serial differ")
		} else {
			before = content
		}
	}
}

// syncing is a source whose lists may become complete.
type syncing struct {
	index  *catalog.Table[*catalog.Service]
	synced atomic.Bool
}

func (s *syncing) Index() *catalog.Table[*catalog.Service] { return s.index }
func (s *syncing) Synced() bool                            { return s.synced.Load() }
func (s *syncing) Unready() string                         { return "" }

// RFC 1996: secondaries hear of a new serial within a second, once, and of nothing before the first lists.
func TestL6NotifyFollowsTheSerial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := large()
		source := &syncing{index: m.Source.Index()}
		m.Source = source
		stop, sent := make(chan struct{}), make(chan string, 10)
		defer close(stop)
		send := func(zone string) error { sent <- zone; return errors.New("nobody there") }
		go authority.Notify(pluginName, m.Origins, m.Serial, send, stop)
		heard := func(when string, want int) {
			t.Helper()
			time.Sleep(3 * time.Second)
			if synctest.Wait(); len(sent) != want {
				t.Fatalf("%s: %d NOTIFY, want %d", when, len(sent), want)
			}
			for len(sent) > 0 {
				<-sent
			}
		}
		heard("before the first lists", 0)
		source.synced.Store(true)
		heard("after them", 1)
		heard("without a change", 0)
		source.index.Set("web.test", nil, 9)
		heard("after a change", 1)
	})
}
