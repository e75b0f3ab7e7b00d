package main

import (
	"fmt"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

const aboutUpdates = "" +
	"A headless Service of 1,000 endpoints in ten EndpointSlices; each update changes one slice. CPU time of " +
	"the server per update at 100 updates a second, less what it takes when nothing happens. ratio: ours " +
	"through in-tree's."

var changing = stub.Headless{Name: "db-1000", Endpoints: 1000}

func (b *bench) updates() ([]row, error) {
	rounds, n := 7, 200
	if b.quick {
		rounds, n = 2, 100
	}
	type side struct {
		api   *stub.Server
		srv   *server
		spent []float64
	}
	sides := map[string]*side{}
	for _, p := range []string{ours, inTree} {
		api, err := stub.Start(stub.Shape{Imports: 1000, Headless: []stub.Headless{changing}})
		if err != nil {
			return nil, err
		}
		defer api.Close()
		s, err := b.serve(stanza(p, api.URL), 0)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		if err := s.ready(20 * time.Millisecond); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		sides[p] = &side{api: api, srv: s}
	}
	for range rounds {
		for _, p := range []string{ours, inTree} {
			d := sides[p]
			idle, err := d.srv.over(time.Duration(n)*10*time.Millisecond, nil)
			if err != nil {
				return nil, err
			}
			busy, err := d.srv.over(
				time.Duration(n)*10*time.Millisecond,
				func(i int) error { return toggle(d.api, i) },
			)
			if err != nil {
				return nil, err
			}
			d.spent = append(d.spent, (busy-idle)/float64(n))
		}
	}
	x, y := median(sides[ours].spent), median(sides[inTree].spent)
	ratio := pairs(sides[ours].spent, sides[inTree].spent)
	rows := []row{
		row{What: "CPU per update of a 1,000-endpoint Service", Ours: microseconds(x), Theirs: microseconds(y),
			Ratio: number(ratio)}.atMost(ratio, 0.5, ""),
	}
	lat := map[string][]float64{}
	for i := range 50 * rounds {
		for _, p := range []string{ours, inTree} {
			d, err := sides[p].srv.follow(changing, i, sides[p].api.PutSlice)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			lat[p] = append(lat[p], d)
		}
	}
	for _, p := range []float64{0.5, 0.99} {
		x, y := percentile(lat[ours], p), percentile(lat[inTree], p)
		rows = append(
			rows,
			row{
				What:   fmt.Sprintf("event on the stub to changed answer, p%.0f", p*100),
				Ours:   microseconds(x),
				Theirs: microseconds(y),
				Ratio:  number(x / y),
			},
		)
	}
	return rows, nil
}

// toggle makes an endpoint of slice i unready or, the next time around, ready again.
func toggle(api *stub.Server, i int) error {
	slices := changing.Slices()
	slice := slices[i%len(slices)]
	slice.Endpoints[7].Conditions.Ready = new(i/len(slices)%2 == 1)
	return api.PutSlice(slice)
}

// over tells the CPU time of the process during a time in which f is called every 10 ms, in nanoseconds.
func (s *server) over(d time.Duration, f func(i int) error) (float64, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := range int(d / (10 * time.Millisecond)) {
		<-tick.C
		if f != nil {
			if err := f(i); err != nil {
				return 0, err
			}
		}
	}
	time.Sleep(50 * time.Millisecond) // the last update is worked on
	after, err := s.cpu()
	return after - before, err
}

// follow makes an endpoint unready or ready and tells how long it takes until its name is answered accordingly, in
// nanoseconds; put writes the changed slice.
func (s *server) follow(h stub.Headless, i int, put func(*discoveryv1.EndpointSlice) error) (float64, error) {
	slice := h.Slices()[0]
	ready := i%2 == 1
	changed := &slice.Endpoints[1]
	changed.Conditions.Ready = &ready
	r := question(
		fmt.Sprintf(
			"%s.%s.%s.%s.svc.%s",
			*changed.Hostname,
			slice.Labels[mcsv1beta1.LabelSourceCluster],
			h.Name,
			stub.HeadlessNamespace,
			zone,
		),
		dns.TypeA,
		0,
	)
	began := time.Now()
	if err := put(slice); err != nil {
		return 0, err
	}
	for end := began.Add(10 * time.Second); time.Now().Before(end); {
		m, err := s.query(r)
		if err != nil {
			return 0, err
		}
		if len(m.Answer) > 0 == ready {
			return float64(time.Since(began)), nil
		}
	}
	return 0, fmt.Errorf("%s did not change within ten seconds", r.Question[0].Name)
}
