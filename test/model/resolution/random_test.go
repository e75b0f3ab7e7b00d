package resolution

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

const seeds = 3000

// each calls f for the exports of many seeds.
func each(f func(seed uint64, exports []clusterset.Export)) {
	for seed := range uint64(seeds) {
		f(seed, Random(rand.New(rand.NewPCG(seed, 0))))
	}
}

func TestRandomObeysTheInvariantsOfExport(t *testing.T) {
	each(func(seed uint64, exports []clusterset.Export) {
		seen := map[string]bool{}
		for _, e := range exports {
			whole := e.Created.Nanosecond() == 0 && e.Cluster != "" && e.Type != "" && e.SessionAffinity != "" &&
				e.InternalTrafficPolicy != ""
			normal := (e.Ports == nil || len(e.Ports) > 0) && (e.Labels == nil || len(e.Labels) > 0) &&
				(e.Annotations == nil || len(e.Annotations) > 0)
			families := len(e.Families) == 1 || len(e.Families) == 2 && e.Families[0] != e.Families[1]
			if !whole || !normal || !families || seen[e.Cluster] {
				t.Fatalf("seed %d: %+v", seed, exports)
			}
			seen[e.Cluster] = true
			if err := distinct(e.Ports, mcsv1beta1.ClusterSetIP); err != nil {
				t.Fatalf("seed %d: %v in %+v", seed, err, e)
			}
		}
	})
}

func TestRandomIsReplayedByItsSeed(t *testing.T) {
	each(func(seed uint64, exports []clusterset.Export) {
		if err := unchanged(exports, Random(rand.New(rand.NewPCG(seed, 0)))); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	})
}

// seenPort is a port of an export beside what became of it.
type seenPort struct {
	own, union clusterset.Port // union: of the same protocol and number, if there is one
	name       string          // that it serves
	serves     bool
	nameTaken  bool // by any port of the union
}

var portSituations = map[string]func(seenPort) bool{
	"lost port": func(p seenPort) bool { return !p.serves },
	"renamed port": func(p seenPort) bool {
		return p.serves && p.own.Name != "" && p.name != p.own.Name
	},
	"renamed port with another's name": func(p seenPort) bool {
		return p.serves && p.name != p.own.Name && p.nameTaken
	},
	"named port serves an unnamed": func(p seenPort) bool { return p.serves && p.own.Name != "" && p.name == "" },
	"unnamed port serves a named": func(p seenPort) bool {
		return p.serves && p.own.Name == "" && p.name == "http"
	},
	"made name":                 func(p seenPort) bool { return p.own.Name == "" && p.name == "tcp-80" },
	"made name was taken":       func(p seenPort) bool { return p.own.Name == "" && p.name == "tcp-80-2" },
	"made name was taken twice": func(p seenPort) bool { return p.own.Name == "" && p.name == "tcp-80-3" },
	"other appProtocol": func(p seenPort) bool {
		return p.serves && p.own.AppProtocol != p.union.AppProtocol
	},
}

// neighbours are two exports that follow each other in order of precedence.
var neighbours = map[string]func(a, b clusterset.Export) bool{
	"tie": func(a, b clusterset.Export) bool { return a.Created.Equal(b.Created) },
	"tie in two time zones": func(a, b clusterset.Export) bool {
		return a.Created.Equal(b.Created) && a.Created != b.Created
	},
	"an older export that came late": func(a, b clusterset.Export) bool { return b.Created.Before(a.Created) },
	"two that came late at once": func(a, b clusterset.Export) bool {
		return a.Published.Equal(b.Published) && b.Created.Before(a.Created)
	},
	"no ports": func(a, b clusterset.Export) bool { return len(a.Ports) == 0 && len(b.Ports) > 0 },
	"other order of ports": func(a, b clusterset.Export) bool {
		return maps.Equal(portSet(a, mcsv1beta1.ClusterSetIP), portSet(b, mcsv1beta1.ClusterSetIP)) &&
			!slices.Equal(a.Ports, b.Ports)
	},
	"two unnamed ports": func(a, b clusterset.Export) bool {
		return len(a.Ports) == 1 && len(b.Ports) == 1 && a.Ports[0].Name+b.Ports[0].Name == "" &&
			a.Ports[0].Number != b.Ports[0].Number
	},
}

// What the property test is to find must come often enough to be found in a short run.
func TestRandomMeetsEverySituation(t *testing.T) {
	met := map[string]int{"agreement of three": 0, "families narrowed in peace": 0}
	for _, row := range table {
		met["some "+string(row.reason)], met["only "+string(row.reason)] = 0, 0
	}
	for situation := range portSituations {
		met[situation] = 0
	}
	for situation := range neighbours {
		met[situation] = 0
	}
	each(func(_ uint64, exports []clusterset.Export) { meet(met, exports) })
	for situation, times := range met {
		if times < seeds/300 {
			t.Errorf("%s: %d times in %d, want %d", situation, times, seeds, seeds/300)
		}
	}
}

func meet(met map[string]int, exports []clusterset.Export) {
	m, reasons := Resolve(exports)
	byAge := precedence(exports)
	for _, r := range reasons {
		met["some "+string(r)]++
	}
	switch {
	case len(reasons) == 1:
		met["only "+string(reasons[0])]++
	case len(reasons) == 0 && len(exports) >= 3:
		met["agreement of three"]++
	}
	if len(m.Families) < len(byAge[0].Families) &&
		!slices.Contains(reasons, mcsv1beta1.ServiceExportReasonIPFamilyConflict) {
		met["families narrowed in peace"]++
	}
	for i, e := range byAge {
		for situation, holds := range neighbours {
			if i > 0 && holds(byAge[i-1], e) {
				met[situation]++
			}
		}
		for _, own := range e.Ports {
			p := seenPort{own: own}
			p.name, p.serves = m.Names[e.Cluster][own.Key()]
			for _, union := range m.Ports {
				p.nameTaken = p.nameTaken || union.Name == own.Name
				if union.Protocol == own.Protocol && union.Number == own.Number {
					p.union = union
				}
			}
			for situation, holds := range portSituations {
				if holds(p) {
					met[situation]++
				}
			}
		}
	}
}
