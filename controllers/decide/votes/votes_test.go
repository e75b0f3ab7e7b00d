package votes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// parse reads "a: web.shop.c/10.0.0.1 api.shop.c/*; b: c/*".
func parse(t *testing.T, text string) map[string]Vote {
	t.Helper()
	out := map[string]Vote{}
	for _, of := range strings.Split(text, ";") {
		member, list, found := strings.Cut(strings.TrimSpace(of), ":")
		if !found {
			continue
		}
		out[member] = Vote{}
		for _, w := range strings.Fields(list) {
			key, address, _ := strings.Cut(w, "/")
			out[member][key] = append(out[member][key], address)
		}
	}
	return out
}

// TestF4AMajorityOfTheLiveDecides: what is withheld of web.shop.c.
func TestF4AMajorityOfTheLiveDecides(t *testing.T) {
	for _, c := range []struct{ what, live, votes, own, withheld, by string }{
		{"nobody votes", "a b c", "", "", "", ""},
		{"one of three is blind", "a b c", "a: c/*", "", "", ""},
		{"two of three are blind", "a b c", "a: c/*; b: c/*", "", "*", "a b"},
		{"two see one endpoint down", "a b c", "a: web.shop.c/10.0.0.1; b: web.shop.c/10.0.0.1", "", "10.0.0.1", "a b"},
		{"two see different ones down", "a b c", "a: web.shop.c/10.0.0.1; b: web.shop.c/10.0.0.2", "", "", ""},
		{"one is blind, one sees one down", "a b c", "a: web.shop.c/*; b: web.shop.c/10.0.0.2", "", "10.0.0.2", "a b"},
		{"another record of the same cluster", "a b c", "a: api.shop.c/*; b: api.shop.c/*", "", "", ""},
		{"another cluster", "a b c d", "a: d/*; b: d/*; c: d/*", "", "", ""},
		{"two of four are no majority", "a b c d", "a: c/*; b: c/*", "", "", ""},
		{"three of four are", "a b c d", "a: c/*; b: c/*; d: web.shop.c/10.0.0.1", "", "10.0.0.1", "a b d"},
		{"who reaches what is withheld is not named", "a b c d e",
			"a: web.shop.c/10.0.0.1; b: web.shop.c/10.0.0.1; d: web.shop.c/10.0.0.1; e: web.shop.c/10.0.0.2", "",
			"10.0.0.1", "a b d"},
		{"nor who does not reach one, where most reach none", "a b c d e",
			"a: c/*; b: c/*; d: c/*; e: web.shop.c/10.0.0.2", "", "*", "a b d"},
		{"the dead do not vote", "a c", "a: c/*; b: c/*", "", "", ""},
		{"nor do they count against", "a b c", "a: c/*; b: c/*; d: c/*; e: c/*", "", "*", "a b"},
		{"of two members none decides alone", "a c", "a: c/*", "", "", ""},
		{"nor does the only one", "a", "a: c/*", "", "", ""},
		{"a cluster does not vote on itself", "a b c", "a: c/*; c: c/*", "", "", ""},
		{"said twice is said once", "a b c", "a: web.shop.c/10.0.0.1 web.shop.c/10.0.0.1", "", "", ""},
		{"the own view decides here", "a b c", "a: c/*", "a", "*", "a"},
		{"another's does not", "a b c", "b: c/*", "a", "", ""},
		{"the own view and the majority's", "a b c d e",
			"a: web.shop.c/10.0.0.1; b: web.shop.c/10.0.0.2; d: c/*; e: web.shop.c/10.0.0.2", "a",
			"10.0.0.1 10.0.0.2", "a b d e"},
	} {
		b := Ballot{Live: strings.Fields(c.live), By: parse(t, c.votes), Own: c.own}
		withheld, by := b.Withheld("c", "web.shop.c")
		if got := strings.Join(withheld, " "); got != c.withheld || strings.Join(by, " ") != c.by {
			t.Errorf("%s: %q by %v, want %q by %q", c.what, got, by, c.withheld, c.by)
		}
	}
}

// TestF4WhatIsSaid: as few words as are true.
func TestF4WhatIsSaid(t *testing.T) {
	web6 := Endpoint{"c", "web.shop.c", "fd00::1"}
	web1, web2 := Endpoint{"c", "web.shop.c", "10.0.0.1"}, Endpoint{"c", "web.shop.c", "10.0.0.2"}
	api, other := Endpoint{"c", "api.shop.c", "10.0.0.3"}, Endpoint{"d", "api.shop.d", "10.1.0.1"}
	for _, c := range []struct {
		down   map[Endpoint]bool
		beyond []Endpoint
		want   string
	}{
		{nil, nil, ""},
		{map[Endpoint]bool{web1: false, other: false}, nil, ""},
		{map[Endpoint]bool{web1: true, web2: false, other: false}, nil, `{"web.shop.c":["10.0.0.1"]}`},
		{map[Endpoint]bool{web1: true, web2: true, api: false}, nil, `{"web.shop.c":["*"]}`},
		{map[Endpoint]bool{web1: true, web2: true, api: true, other: false}, nil, `{"c":["*"]}`},
		{map[Endpoint]bool{web1: true, web2: true, api: true, other: true}, nil, `{"c":["*"],"d":["*"]}`},
		{map[Endpoint]bool{web1: true, web2: true, api: true}, []Endpoint{web6},
			`{"api.shop.c":["*"],"web.shop.c":["10.0.0.1","10.0.0.2"]}`},
		{map[Endpoint]bool{web1: true, other: true}, []Endpoint{{"c", "six.shop.c", "fd00::9"}},
			`{"d":["*"],"web.shop.c":["*"]}`},
		{nil, []Endpoint{web6}, ""},
	} {
		v := Of(c.down, c.beyond)
		for _, e := range c.beyond {
			if v.Includes(e) {
				t.Errorf("%v, which it does not look at, is said to be down", e)
			}
		}
		got, left := v.Text()
		if got != c.want || left != 0 {
			t.Errorf("%v: %s, want %s", c.down, got, c.want)
		}
		for e, down := range c.down {
			if v.Includes(e) != down {
				t.Errorf("%s: %v down %v", got, e, !down)
			}
		}
	}
}

// TestF4APeersVoteIsChecked: what is accepted, and what is not.
func TestF4APeersVoteIsChecked(t *testing.T) {
	for text, ok := range map[string]bool{
		"":                                      true,
		"{}":                                    true,
		`{"c":["*"]}`:                           true,
		`{"c.eu":["*"],"web.shop.c.eu":["*"]}`:  true,
		`{"web.shop.c":["10.0.0.1","fd00::1"]}`: true,
		`{"web.shop.c":["*","10.0.0.1"]}`:       false,
		`{"web.shop.c":["web"]}`:                false,
		`{"c":["10.0.0.1"]}`:                    false,
		`{"C":["*"]}`:                           false,
		`{"web.SHOP.c":["*"]}`:                  false,
		`{"":["*"]}`:                            false,
		`["c"]`:                                 false,
		`{"c":"*"}`:                             false,
		`{"c":["*"]`:                            false,
		`{"c":["*"]}` + strings.Repeat(" ", MaxSize): false,
	} {
		if _, err := Parse(text); (err == nil) != ok {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

// TestF4AVoteIsBounded: what exceeds the limit is left out, the longest lists first; the rest can be parsed.
func TestF4AVoteIsBounded(t *testing.T) {
	v := Vote{"d": {All}, "all.shop.c": {All}}
	for r := range 100 {
		for i := range 10 + r {
			key := fmt.Sprintf("s%d.shop.c", r)
			v[key] = append(v[key], fmt.Sprintf("10.0.%d.%d", r, i))
		}
	}
	text, left := v.Text()
	if len(text) > MaxSize || len(text) < MaxSize*9/10 || left == 0 {
		t.Errorf("%d octets, %d left out", len(text), left)
	}
	back, err := Parse(text)
	if err != nil || len(back) != len(v)-left || len(back["d"]) == 0 || len(back["all.shop.c"]) == 0 ||
		len(back["s0.shop.c"]) == 0 ||
		len(back["s99.shop.c"]) != 0 {
		t.Errorf("%d of %d: %v", len(back), len(v), err)
	}
}

// TestF4NoMinorityDecides: for random clustersets, in which a minority of the live members (or any one) says whatever
// it likes, by itself or with all the dead, what is withheld is withheld by what the honest ones say too; with nobody
// down for them, it is nothing. And the order in which members are named does not matter.
func TestF4NoMinorityDecides(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 4))
		n := 1 + r.IntN(7)
		b := Ballot{By: map[string]Vote{}}
		for i := range n {
			b.Live = append(b.Live, fmt.Sprintf("m%d", i))
		}
		liars := max((n-1)/2, 1)
		for i := range liars {
			b.By[b.Live[i]] = anything(r)
		}
		for i := range r.IntN(5) {
			b.By[fmt.Sprintf("dead%d", i)] = anything(r)
		}
		if w, by := b.Withheld("c", "web.shop.c"); w != nil {
			t.Fatalf("seed %d: %d liars of %d have %v withheld (%v): %v", seed, liars, n, w, by, b.By)
		}
		for _, honest := range b.Live[liars:] {
			if r.IntN(2) == 0 {
				b.By[honest] = Vote{"web.shop.c": {"10.0.0.1"}}
			}
		}
		w, _ := b.Withheld("c", "web.shop.c")
		for _, address := range w {
			if address != "10.0.0.1" && honestVotes(b, liars) == 0 {
				t.Fatalf("seed %d: %v: %v", seed, w, b.By)
			}
		}
		if slices.Contains(w, All) {
			t.Fatalf("seed %d: everything is withheld, though only liars voted so: %v", seed, b.By)
		}
		shuffled := Ballot{By: maps.Clone(b.By), Live: slices.Clone(b.Live)}
		r.Shuffle(n, func(i, j int) { shuffled.Live[i], shuffled.Live[j] = shuffled.Live[j], shuffled.Live[i] })
		if again, _ := shuffled.Withheld("c", "web.shop.c"); !slices.Equal(w, again) {
			t.Fatalf("seed %d: %v, then %v", seed, w, again)
		}
	}
}

func honestVotes(b Ballot, liars int) (n int) {
	for _, honest := range b.Live[liars:] {
		if b.By[honest] != nil {
			n++
		}
	}
	return n
}

func anything(r *rand.Rand) Vote {
	v := Vote{}
	for _, key := range []string{"c", "d", "web.shop.c", "api.shop.c"} {
		switch r.IntN(3) {
		case 0:
			v[key] = []string{All}
		case 1:
			if strings.Contains(key, ".") {
				v[key] = []string{fmt.Sprintf("10.0.0.%d", r.IntN(3)), fmt.Sprintf("10.0.0.%d", r.IntN(3))}
			}
		}
	}
	return v
}

// TestLookNeedsMoreThanOneResult: "-" is a failure, "+" a success.
func TestLookNeedsMoreThanOneResult(t *testing.T) {
	for results, down := range map[string]bool{
		"": false, "--": false, "---": true, "--+--": false, "--+---": true, "---+": true, "---+-+": true,
		"---++": false, "---++--": false,
	} {
		var l Result
		for _, r := range results {
			l = l.Next(r == '+')
		}
		if l.Down != down {
			t.Errorf("%s: down %v", results, l.Down)
		}
	}
}

// TestPaceIsBoundedForAllTogether: no endpoint is looked at more than once a second by all members, nor while a
// result may change; first looks spread over the interval, a first failure is looked into sooner, and two members
// never go in step.
func TestPaceIsBoundedForAllTogether(t *testing.T) {
	p := Pace{Interval: 10 * time.Second, Timeout: time.Second}
	if got := p.For(3).Interval; got != 10*time.Second {
		t.Error(got)
	}
	if got := p.For(101).Interval; got != 100*time.Second {
		t.Error(got)
	}
	for _, live := range []int{31, 101} {
		var looks float64 // a second
		for i := range live - 1 {
			looks += 1 / p.For(live).
				Again(fmt.Sprint("m", i), Endpoint{"c", "web.shop.c", "10.0.0.1"}, Result{Differs: 1}, i).
				Seconds()
		}
		if looks > 1.05 { // a tenth more or less, each
			t.Errorf("%d members look %.1f times a second at an endpoint whose result may change", live, looks)
		}
	}
	var early int
	waits := map[time.Duration]bool{}
	for i := range 1000 {
		e := Endpoint{"c", "web.shop.c", fmt.Sprint("10.0.0.", i)}
		first := p.First("a", e)
		if first < 0 || first >= p.Interval {
			t.Fatal(first)
		}
		if first < p.Interval/2 {
			early++
		}
		again := p.Again("a", e, Result{}, i)
		if again < 9*time.Second || again > 11*time.Second || again == p.Again("b", e, Result{}, i) {
			t.Fatal(again)
		}
		waits[again] = true
		if soon := p.For(3).Again("a", e, Result{Differs: 1}, i); soon > 4*time.Second {
			t.Fatal(soon)
		}
	}
	if early < 400 || early > 600 || len(waits) < 900 {
		t.Errorf("%d of 1000 in the first half, %d different waits", early, len(waits))
	}
}
