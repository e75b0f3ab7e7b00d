package resolution

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// byModel is an implementation without fault: the model, with K1645's messages.
func byModel(exports []clusterset.Export) (conflict.Merged, []conflict.Conflict) {
	m, disagree := resolve(exports)
	var conflicts []conflict.Conflict
	for _, row := range table {
		if n := disagree[row.reason]; n > 0 {
			conflicts = append(conflicts, conflict.Conflict{Reason: row.reason, Message: fmt.Sprintf(
				"Conflicting property. Using the value from oldest service export in %q. %d/%d clusters disagree.",
				precedence(exports)[0].Cluster, n, len(exports))})
		}
	}
	return m, conflicts
}

func TestModelHoldsWhatMustHoldOfAnyResult(t *testing.T) {
	each(func(seed uint64, exports []clusterset.Export) {
		if err := Try(exports, byModel); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	})
}

// disputed is a case in which every property is in conflict, a port lost, one was renamed and one got a name.
func disputed() []clusterset.Export {
	return []clusterset.Export{
		export("eu", 0, func(e *clusterset.Export) {
			e.Ports, e.Families = list{http80, grpc90}, []corev1.IPFamily{v4, v6}
			e.Labels, e.Annotations = names{"tier": "gold"}, names{"note": "x"}
		}),
		export("us", 1, func(e *clusterset.Export) {
			e.Ports, e.Families = list{tcp("web", 80), tcp("grpc", 91)}, []corev1.IPFamily{v6, v4}
			e.SessionAffinity, e.SessionAffinityConfig = corev1.ServiceAffinityClientIP, timeout(60)
			e.InternalTrafficPolicy = corev1.ServiceInternalTrafficPolicyLocal
		}),
		export("ap", 2, headless, func(e *clusterset.Export) {
			e.Ports, e.Families = list{tcp("", 70)}, []corev1.IPFamily{v4}
			e.TrafficDistribution = corev1.ServiceTrafficDistributionPreferClose
			e.Preference = hubv1alpha1.PreferLocal
		}),
		export("af", 3, func(e *clusterset.Export) { e.Families = []corev1.IPFamily{v6} }),
	}
}

// Each fault of a result is found, and called by its name.
var faults = []struct {
	problem string
	do      func(m *conflict.Merged, conflicts *[]conflict.Conflict)
}{
	{"clusters are not sorted", func(m *conflict.Merged, _ *[]conflict.Conflict) { slices.Reverse(m.Clusters) }},
	{"clusters: want", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Clusters = m.Clusters[1:] }},
	{"C2: type: want", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Type = mcsv1beta1.Headless }},
	{"C3: ports: want", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Ports[0].AppProtocol = "h2c" }},
	{"C3: ports: want", func(m *conflict.Merged, _ *[]conflict.Conflict) { slices.Reverse(m.Ports) }},
	{
		`C3: two ports are called "grpc"`,
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Ports = append(m.Ports, tcp("grpc", 91)) },
	},
	{
		"C3: two ports are TCP/80",
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Ports = append(m.Ports, tcp("web", 80)) },
	},
	{"C3: TCP/70 has no name", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Ports[2].Name = "" }},
	{
		`C4: no cluster serves port "x"`,
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Ports = append(m.Ports, tcp("x", 1)) },
	},
	{
		`C4: names do not tell of cluster "us"`,
		func(m *conflict.Merged, _ *[]conflict.Conflict) { delete(m.Names, "us") },
	},
	{"C4: names: want", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Names["sa"] = nil }},
	{
		`C4: cluster "us" has no port 81/TCP`,
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Names["us"][tcp("", 81).Key()] = "http" },
	},
	{
		`C4: port 91/TCP of cluster "us" serves "grpc", another port`,
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Names["us"][tcp("grpc", 91).Key()] = "grpc" },
	},
	{
		`C4: cluster "us" serves port "web", which the union does not have`,
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Names["us"][tcp("web", 80).Key()] = "web" },
	},
	{
		"C5: sessionAffinity: want",
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.SessionAffinity = corev1.ServiceAffinityClientIP },
	},
	{
		"C5: sessionAffinityConfig: want",
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.SessionAffinityConfig = timeout(60) },
	},
	{
		"C6: internalTrafficPolicy: want",
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.InternalTrafficPolicy = "" },
	},
	{"T2: preference: want", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Preference = "local-only" }},
	{
		"C6: trafficDistribution: want",
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.TrafficDistribution = "PreferClose" },
	},
	{
		"C7: families: want",
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Families = []corev1.IPFamily{v4, v6} },
	},
	{"C7: no families", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Families = nil }},
	{
		"C8: labels: want",
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Labels = names{"tier": "gold", "note": "x"} },
	},
	{"C8: annotations: want", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Annotations = nil }},
	{"C9: the oldest's port", func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Ports[1] = tcp("grpc", 91) }},
	{"C9: the oldest's port", func(m *conflict.Merged, _ *[]conflict.Conflict) { delete(m.Names["eu"], http80.Key()) }},
	{
		`C9: the oldest's port "grpc" is gone`,
		func(m *conflict.Merged, _ *[]conflict.Conflict) { m.Ports = m.Ports[:1] },
	},
	{"C1: reasons: want", func(_ *conflict.Merged, c *[]conflict.Conflict) { *c = (*c)[1:] }},
	{"C1: reasons: want", func(_ *conflict.Merged, c *[]conflict.Conflict) { *c = append(*c, (*c)[8]) }},
	{"C1: reasons: want", func(_ *conflict.Merged, c *[]conflict.Conflict) { (*c)[0], (*c)[1] = (*c)[1], (*c)[0] }},
	{`TypeConflict: message does not name the winner "eu"`, func(_ *conflict.Merged, c *[]conflict.Conflict) {
		(*c)[0].Message = `Using "ClusterSetIP" from "eu-2". 1/4 clusters disagree.`
	}},
	{
		"PortConflict: message does not say that 3/4 clusters disagree",
		func(_ *conflict.Merged, c *[]conflict.Conflict) {
			(*c)[1].Message = `Using the union, names from "eu" first. 13/4 clusters disagree.`
		},
	},
	{
		"IPFamilyConflict: message does not say that 1/4 clusters disagree",
		func(_ *conflict.Merged, c *[]conflict.Conflict) {
			(*c)[7].Message = `Using "IPv4" from oldest service export in "eu".`
		},
	},
}

func TestCheckFindsEachFaultOfAResult(t *testing.T) {
	if m, conflicts := byModel(disputed()); len(conflicts) != len(table) || Check(disputed(), m, conflicts) != nil {
		t.Fatalf("the case is not sound: %+v", conflicts)
	}
	for _, fault := range faults {
		m, conflicts := byModel(disputed())
		fault.do(&m, &conflicts)
		wantProblem(t, Check(disputed(), m, conflicts), fault.problem)
	}
}

func wantProblem(t *testing.T, err error, problem string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), problem) {
		t.Errorf("want a problem %q, got %v", problem, err)
	}
}

func TestCheckSaysForWhichExports(t *testing.T) {
	wantProblem(t, Check(disputed(), conflict.Merged{}, nil), "exports, oldest first:\n  {Cluster:eu ")
}

func TestCheckTakesNilForEmpty(t *testing.T) {
	exports := []clusterset.Export{export("eu", 0, func(e *clusterset.Export) { e.Ports = nil })}
	m, _ := byModel(exports)
	m.Ports, m.Labels, m.Annotations, m.Names["eu"] = list{}, names{}, names{}, nil
	if err := Check(exports, m, []conflict.Conflict{}); err != nil {
		t.Error(err)
	}
}

// Each way to change what was given is found.
func TestTryFindsAChangedInput(t *testing.T) {
	for name, do := range map[string]func(given []clusterset.Export){
		"order of exports": slices.Reverse[[]clusterset.Export],
		"port":             func(given []clusterset.Export) { given[0].Ports[0].Name = "x" },
		"family":           func(given []clusterset.Export) { given[0].Families[0] = "x" },
		"label":            func(given []clusterset.Export) { given[0].Labels["x"] = "x" },
		"affinity config": func(given []clusterset.Export) {
			*given[0].SessionAffinityConfig.ClientIP.TimeoutSeconds++
		},
		"append behind ports":     func(given []clusterset.Export) { _ = append(given[0].Ports, http80) },
		"append behind families":  func(given []clusterset.Export) { _ = append(given[0].Families, v6) },
		"empty in place of nil":   func(given []clusterset.Export) { given[0].Annotations = names{} },
		"same instant, elsewhere": func(given []clusterset.Export) { given[0].Created = given[0].Created.Local() },
	} {
		t.Run(name, func(t *testing.T) {
			full := func(e *clusterset.Export) {
				e.Labels, e.SessionAffinityConfig = names{"tier": "gold"}, timeout(60)
			}
			exports := []clusterset.Export{export("eu", 0, full), export("us", 1, full)}
			err := Try(exports, func(given []clusterset.Export) (conflict.Merged, []conflict.Conflict) {
				m, conflicts := byModel(copyAll(given))
				do(given)
				return m, conflicts
			})
			wantProblem(t, err, "input changed")
		})
	}
}

func TestTryFindsAResultThatHangsOnTheOrderOfInput(t *testing.T) {
	exports := []clusterset.Export{export("eu", 0), export("us", 1, headless)}
	firstWins := func(given []clusterset.Export) (conflict.Merged, []conflict.Conflict) {
		m, conflicts := byModel(given)
		m.Type = given[0].Type
		return m, conflicts
	}
	wantProblem(t, Try(exports, firstWins), "C2: type: want")
}
