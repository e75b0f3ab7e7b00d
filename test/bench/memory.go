package main

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/miekg/dns"
)

const aboutMemory = "" +
	"Heap: what is live after a garbage collection once every name and type was asked, above a process with " +
	"an empty API server. Resident: the coredns binary, peak above the peak of an empty one; and the peak " +
	"while all watches expire and everything is listed again, through what was resident before. ratio: ours " +
	"through in-tree's."

// many are headless Services of 1,000 endpoints.
func many(endpoints int) stub.Shape {
	var s stub.Shape
	for i := range endpoints / 1000 {
		s.Headless = append(
			s.Headless,
			stub.Headless{Name: fmt.Sprintf("db-%d", i), Endpoints: 1000, First: i * 1000},
		)
	}
	return s
}

func (b *bench) memory() ([]row, error) {
	imports, endpoints := 50_000, 100_000
	if b.quick {
		imports, endpoints = 5_000, 10_000
	}
	var rows []row
	for _, m := range []struct {
		what  string
		n     int
		shape stub.Shape
		bar   float64
	}{
		{"live heap per ClusterSetIP import at " + number(float64(imports)), imports,
			stub.Shape{Imports: imports}, 400},
		{"live heap per endpoint at " + number(float64(endpoints)), endpoints, many(endpoints), 300},
	} {
		per := map[string]float64{}
		for _, p := range []string{ours, inTree} {
			empty, err := b.heap(p, stub.Shape{})
			if err != nil {
				return nil, err
			}
			full, err := b.heap(p, m.shape)
			if err != nil {
				return nil, err
			}
			per[p] = (full - empty) / float64(m.n)
		}
		rows = append(rows, row{What: m.what, Ours: number(per[ours]) + " B", Theirs: number(per[inTree]) + " B",
			Ratio: number(per[ours] / per[inTree])}.atMost(per[ours], m.bar, " B"))
	}
	more, err := b.resident(imports)
	return append(rows, more...), err
}

// heap is the live heap of one plugin in a process of its own, in bytes.
func (b *bench) heap(plugin string, shape stub.Shape) (float64, error) {
	s, err := stub.Start(shape)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	var bytes float64
	err = b.child(&bytes, "heap", plugin, s.URL, strconv.Itoa(shape.Imports), strconv.Itoa(len(shape.Headless)))
	return bytes, err
}

// roleHeap loads one plugin, asks every name and type, and tells the live heap.
func roleHeap(args []string) (any, error) {
	plugin, api := args[0], args[1]
	imports, err := strconv.Atoi(args[2])
	if err != nil {
		return nil, err
	}
	headless, err := strconv.Atoi(args[3])
	if err != nil {
		return nil, err
	}
	instance, err := load(map[string]string{plugin: stanza(plugin, api)})
	if err != nil {
		return nil, err
	}
	a, err := newAsker(plugin)
	if err != nil {
		return nil, err
	}
	if err := a.await(time.Minute); err != nil {
		return nil, err
	}
	if err := a.askAll(imports, headless*1000); err != nil {
		return nil, err
	}
	var m runtime.MemStats
	for range 3 { // what a first collection finalizes is freed by a later one
		runtime.GC()
		runtime.ReadMemStats(&m)
	}
	return float64(m.HeapAlloc), instance.Stop()
}

// askAll asks for every name in every type that it has.
func (a *asker) askAll(imports, endpoints int) error {
	positive := func(name string, types ...uint16) error {
		for _, t := range types {
			m, err := a.answer(question(name, t, 0))
			if err != nil {
				return err
			}
			if t != dns.TypeAAAA && len(m.Answer) == 0 && !m.Truncated {
				return fmt.Errorf(
					"%s %s: %s without an answer",
					name,
					dns.TypeToString[t],
					dns.RcodeToString[m.Rcode],
				)
			}
		}
		return nil
	}
	for i := range imports {
		name, ns := stub.ClusterSetIP(i)
		name += "." + ns + ".svc." + zone
		if err := positive(name, dns.TypeA, dns.TypeAAAA, dns.TypeSRV); err != nil {
			return err
		}
		if err := positive("_https._tcp."+name, dns.TypeSRV); err != nil {
			return err
		}
	}
	for i := range endpoints {
		name := fmt.Sprintf("db-%d.%s.svc.%s", i/1000, stub.HeadlessNamespace, zone)
		if i%1000 == 0 {
			if err := positive(name, dns.TypeA, dns.TypeAAAA, dns.TypeSRV); err != nil {
				return err
			}
			if err := positive("_http._tcp."+name, dns.TypeSRV); err != nil {
				return err
			}
		}
		host, cluster := stub.Headless{}.Host(i % 1000)
		if err := positive(host+"."+cluster+"."+name, dns.TypeA, dns.TypeAAAA); err != nil {
			return err
		}
	}
	return nil
}

// resident compares the memory of the processes.
func (b *bench) resident(imports int) ([]row, error) {
	rounds := 3
	if b.quick {
		rounds = 1
	}
	full, err := stub.Start(stub.Shape{Imports: imports})
	if err != nil {
		return nil, err
	}
	defer full.Close()
	empty, err := stub.Start(stub.Shape{})
	if err != nil {
		return nil, err
	}
	defer empty.Close()
	above, relist := map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for _, p := range []string{ours, inTree} {
			least, _, err := b.peaks(p, empty, 0)
			if err != nil {
				return nil, err
			}
			most, again, err := b.peaks(p, full, imports)
			if err != nil {
				return nil, err
			}
			above[p] = append(above[p], most-least)
			relist[p] = append(relist[p], again)
		}
	}
	x, y := median(above[ours]), median(above[inTree])
	r, s := median(relist[ours]), median(relist[inTree])
	return []row{
		row{What: "peak resident memory above an empty process, " + number(float64(imports)) + " imports",
			Ours: mib(x), Theirs: mib(y), Ratio: number(x / y)}.atMost(x/y, 0.5, ""),
		row{
			What:   "peak during a full relist, through steady",
			Ours:   times(r),
			Theirs: times(s),
			Ratio:  number(r / s),
		}.atMost(
			r,
			1.5,
			" ×",
		),
	}, nil
}

// peaks are the peak of resident memory of a start, in bytes, and that of a full relist through what was resident
// before.
func (b *bench) peaks(plugin string, api *stub.Server, imports int) (peak, relist float64, err error) {
	s, err := b.serve(stanza(plugin, api.URL), anyCore)
	if err != nil {
		return 0, 0, err
	}
	defer s.stop()
	if err := s.ready(20 * time.Millisecond); err != nil {
		return 0, 0, err
	}
	for i := range imports {
		name, ns := stub.ClusterSetIP(i)
		m, err := s.query(question(name+"."+ns+".svc."+zone, dns.TypeA, 0))
		if err != nil {
			return 0, 0, err
		}
		if len(m.Answer) != 1 {
			return 0, 0, fmt.Errorf("%s has %d answers", m.Question[0].Name, len(m.Answer))
		}
	}
	if peak, err = s.memory("VmHWM"); err != nil {
		return 0, 0, err
	}
	before, err := s.steady()
	if err != nil {
		return 0, 0, err
	}
	if err := s.forgetPeak(); err != nil {
		return 0, 0, err
	}
	api.Expire()
	for !api.Settled(stub.ServiceImports) || !api.Settled(stub.EndpointSlices) {
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.quiet(); err != nil {
		return 0, 0, err
	}
	after, err := s.memory("VmHWM")
	return peak, after / before, err
}

// quiet waits until the process does nothing more.
func (s *server) quiet() error {
	for idle := 0; idle < 5; {
		before, err := s.cpu()
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		after, err := s.cpu()
		if err != nil {
			return err
		}
		if idle++; after-before > 5e6 {
			idle = 0
		}
	}
	return nil
}

// steady is what is resident once the runtime has given back what it no longer needs: no less two seconds later.
func (s *server) steady() (float64, error) {
	last, err := s.memory("VmRSS")
	for err == nil {
		time.Sleep(2 * time.Second)
		var now float64
		if now, err = s.memory("VmRSS"); now > 0.99*last {
			return now, err
		}
		last = now
	}
	return 0, err
}
