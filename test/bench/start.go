package main

import (
	"fmt"
	"os"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/miekg/dns"
)

const aboutStart = "" +
	"From the start of the process until /ready says yes and the last import is answered, on the stub API " +
	"server; ratio: ours through in-tree's. And how long after the last event that it needs, the end of the " +
	"initial imports, /ready says yes: the stub holds that event back until all else is done."

func (b *bench) start() ([]row, error) {
	imports, rounds := 50_000, 5
	if b.quick {
		imports, rounds = 10_000, 2
	}
	api, err := stub.Start(stub.Shape{Imports: imports, Headless: standard(0).Headless})
	if err != nil {
		return nil, err
	}
	defer api.Close()
	rows, err := b.starts(api.URL, imports, rounds)
	if err != nil {
		return nil, err
	}
	for _, n := range []int{1000, imports} {
		r, err := b.lastEvent(n, rounds)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// starts compares starts on one API server.
func (b *bench) starts(api string, imports, rounds int) ([]row, error) {
	wall, spent := map[string][]float64{}, map[string][]float64{}
	for range rounds {
		for _, p := range []string{ours, inTree} {
			took, cpu, err := b.startOnce(p, api, imports)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			wall[p], spent[p] = append(wall[p], took), append(spent[p], cpu)
			fmt.Fprintf(os.Stderr, "%s: %.2f s to ready and answering, %.2f s of CPU time\n", p, took/1e9, cpu/1e9)
		}
	}
	seconds := func(ns float64) string { return number(ns/1e9) + " s" }
	x, y := median(wall[ours]), median(wall[inTree])
	u, v := median(spent[ours]), median(spent[inTree])
	ratio := pairs(wall[ours], wall[inTree])
	return []row{
		row{
			What:   "start to ready and answering, " + number(float64(imports)) + " imports",
			Ours:   seconds(x),
			Theirs: seconds(y),
			Ratio:  number(ratio),
		}.atMost(
			ratio,
			0.5,
			"",
		),
		{
			What:   "CPU time until then",
			Ours:   seconds(u),
			Theirs: seconds(v),
			Ratio:  number(pairs(spent[ours], spent[inTree])),
		},
	}, nil
}

func (b *bench) startOnce(plugin, api string, imports int) (wall, cpu float64, err error) {
	s, err := b.serve(stanza(plugin, api), anyCore)
	if err != nil {
		return 0, 0, err
	}
	defer s.stop()
	if err := s.ready(5 * time.Millisecond); err != nil {
		return 0, 0, err
	}
	name, ns := stub.ClusterSetIP(imports - 1)
	m, err := s.query(question(name+"."+ns+".svc."+zone, dns.TypeA, 0))
	if err != nil {
		return 0, 0, err
	}
	wall = float64(time.Since(s.began))
	if len(m.Answer) != 1 {
		return 0, 0, fmt.Errorf("ready, but %s has %d answers", m.Question[0].Name, len(m.Answer))
	}
	cpu, err = s.cpu()
	return wall, cpu, err
}

// lastEvent measures from the release of the last event to ready.
func (b *bench) lastEvent(imports, rounds int) (row, error) {
	api, err := stub.Start(stub.Shape{Imports: imports})
	if err != nil {
		return row{}, err
	}
	defer api.Close()
	took := map[string][]float64{}
	for range rounds {
		for _, p := range []string{ours, inTree} {
			d, err := b.lastEventOnce(p, api)
			if err != nil {
				return row{}, fmt.Errorf("%s: %w", p, err)
			}
			took[p] = append(took[p], d/1e6)
		}
	}
	x, y := median(took[ours]), median(took[inTree])
	return row{
		What:   "last needed event to ready, " + number(float64(imports)) + " imports",
		Ours:   number(x) + " ms",
		Theirs: number(y) + " ms",
		Ratio:  number(x / y),
	}.atMost(
		x,
		10,
		" ms",
	), nil
}

func (b *bench) lastEventOnce(plugin string, api *stub.Server) (float64, error) {
	release := api.Hold(stub.ServiceImports)
	s, err := b.serve(stanza(plugin, api.URL), anyCore)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	for !api.Settled(stub.EndpointSlices) {
		time.Sleep(time.Millisecond)
	}
	if err := s.quiet(); err != nil {
		return 0, err
	}
	if r, err := poller.Get(s.readyURL); err == nil {
		r.Body.Close()
		if r.StatusCode == 200 {
			return 0, fmt.Errorf("ready before the last event")
		}
	}
	began := time.Now()
	release()
	if err := s.ready(500 * time.Microsecond); err != nil {
		return 0, err
	}
	return float64(time.Since(began)), nil
}
