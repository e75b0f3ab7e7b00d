package resolution

import (
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

var noon = time.Date(2020, 3, 30, 12, 0, 0, 0, time.UTC)

const (
	v4 = corev1.IPv4Protocol
	v6 = corev1.IPv6Protocol
)

// export is what the defaults make of a Service with one port, exported that many seconds after noon.
func export(cluster string, second int, changes ...func(*clusterset.Export)) clusterset.Export {
	e := clusterset.Export{
		Cluster: cluster, Namespace: "test", Name: "web",
		Created:               noon.Add(time.Duration(second) * time.Second),
		Type:                  mcsv1beta1.ClusterSetIP,
		Ports:                 []clusterset.Port{http80},
		SessionAffinity:       corev1.ServiceAffinityNone,
		InternalTrafficPolicy: corev1.ServiceInternalTrafficPolicyCluster,
		Families:              []corev1.IPFamily{v4},
	}
	for _, change := range changes {
		change(&e)
	}
	return e
}

// on puts the record on the hub that many seconds after noon.
func on(second int) func(*clusterset.Export) {
	return func(e *clusterset.Export) { e.Published = noon.Add(time.Duration(second) * time.Second) }
}

func timeout(seconds int32) *corev1.SessionAffinityConfig {
	return &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
}

func headless(e *clusterset.Export) { e.Type = mcsv1beta1.Headless }

// wantDisagree demands the one reason and its number of clusters, and no other; 0 demands none at all.
func wantDisagree(t *testing.T, exports []clusterset.Export, r reason, clusters int) conflict.Merged {
	t.Helper()
	m, disagree := resolve(exports)
	for _, row := range table {
		want := 0
		if row.reason == r {
			want = clusters
		}
		if got := disagree[row.reason]; got != want {
			t.Errorf("%s: %d clusters disagree, want %d", row.reason, got, want)
		}
	}
	return m
}

func TestC1OldestFirstAndTiesByClusterIDBytewise(t *testing.T) {
	west := noon.In(time.FixedZone("west", -3600))
	tests := map[string]struct {
		exports []clusterset.Export
		want    []string
	}{
		"older before younger, whatever the ids": {
			[]clusterset.Export{export("a", 2), export("c", 0), export("b", 1)}, []string{"c", "b", "a"}},
		"equal times by id": {
			[]clusterset.Export{export("b", 0), export("a", 0)}, []string{"a", "b"}},
		"ids bytewise: hyphen, dot, digit, letter; not as numbers": {
			[]clusterset.Export{
				export("ab", 0),
				export("9", 0),
				export("a0", 0),
				export("a.b", 0),
				export("10", 0),
				export("a-b", 0),
				export("a", 0),
			},
			[]string{"10", "9", "a", "a-b", "a.b", "a0", "ab"},
		},
		"one instant in two time zones is a tie": {
			[]clusterset.Export{
				export("b", 0),
				export("a", 0, func(e *clusterset.Export) { e.Created = west }),
			},
			[]string{"a", "b"},
		},
		"ties only among the equally old": {
			[]clusterset.Export{export("a", 1), export("c", 0), export("b", 0)}, []string{"b", "c", "a"}},
		"within ten minutes of the first record by age": {
			[]clusterset.Export{export("b", 1, on(0)), export("a", 0, on(600))}, []string{"a", "b"}},
		"later ones last, however old": {
			[]clusterset.Export{export("b", 1, on(0)), export("a", 0, on(601))}, []string{"b", "a"}},
		"later ones as they came": {
			[]clusterset.Export{export("c", 9, on(0)), export("b", 1, on(3600)), export("a", 0, on(3601))},
			[]string{"c", "b", "a"},
		},
		"ten minutes of the first, not of the one before": {
			[]clusterset.Export{export("c", 9, on(0)), export("b", 1, on(599)), export("a", 0, on(1000))},
			[]string{"b", "c", "a"},
		},
		"later ones of one second by id, not by age": {
			[]clusterset.Export{export("c", 9, on(0)), export("b", 1, on(3600)), export("a", 2, on(3600))},
			[]string{"c", "a", "b"},
		},
		"one without a time was there before all others": {
			[]clusterset.Export{export("c", 0, on(0)), export("b", 1, on(3600)), export("z", -1)},
			[]string{"z", "c", "b"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range precedence(test.exports) {
				got = append(got, e.Cluster)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestC1OneExportIsItsOwnResult(t *testing.T) {
	dual := func(e *clusterset.Export) { e.Families = []corev1.IPFamily{v6, v4} }
	e := export("eu", 0, headless, dual, func(e *clusterset.Export) {
		e.Ports = []clusterset.Port{http80, grpc90}
		e.SessionAffinity, e.SessionAffinityConfig = corev1.ServiceAffinityClientIP, timeout(60)
		e.InternalTrafficPolicy = corev1.ServiceInternalTrafficPolicyLocal
		e.TrafficDistribution = corev1.ServiceTrafficDistributionPreferClose
		e.Labels, e.Annotations = map[string]string{"tier": "gold"}, map[string]string{"note": "x"}
	})
	want := conflict.Merged{
		Clusters: []string{"eu"}, Type: e.Type, Ports: e.Ports,
		SessionAffinity: e.SessionAffinity, SessionAffinityConfig: e.SessionAffinityConfig,
		InternalTrafficPolicy: e.InternalTrafficPolicy, TrafficDistribution: e.TrafficDistribution,
		Families: e.Families, Labels: e.Labels, Annotations: e.Annotations,
		Names: map[string]map[clusterset.PortKey]string{"eu": {http80.Key(): "http", grpc90.Key(): "grpc"}},
	}
	if got, reasons := Resolve([]clusterset.Export{e}); !reflect.DeepEqual(got, want) || reasons != nil {
		t.Errorf("got %+v %q, want %+v and no conflict", got, reasons, want)
	}
}

func TestC1AllReasonsThatHoldInTheTablesOrder(t *testing.T) {
	other := export("us", 1, headless, func(e *clusterset.Export) {
		e.Ports = []clusterset.Port{grpc90}
		e.SessionAffinity, e.SessionAffinityConfig = corev1.ServiceAffinityClientIP, timeout(60)
		e.InternalTrafficPolicy = corev1.ServiceInternalTrafficPolicyLocal
		e.Preference = hubv1alpha1.PreferLocal
		e.TrafficDistribution = corev1.ServiceTrafficDistributionPreferClose
		e.Families = []corev1.IPFamily{v6}
		e.Labels, e.Annotations = map[string]string{"tier": "gold"}, map[string]string{"note": "x"}
	})
	m, got := Resolve([]clusterset.Export{other, export("eu", 0)})
	want := []reason{
		"TypeConflict",
		"PortConflict",
		"SessionAffinityConflict",
		"SessionAffinityConfigConflict",
		"InternalTrafficPolicyConflict",
		"TrafficDistributionConflict",
		"PreferenceConflict",
		"IPFamilyConflict",
		"LabelsConflict",
		"AnnotationsConflict",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"eu", "us"}; !slices.Equal(m.Clusters, want) {
		t.Errorf("clusters: got %q, want %q, sorted by id", m.Clusters, want)
	}
}

type change = func(*clusterset.Export)

func same(*clusterset.Export) {}

func affinity(v corev1.ServiceAffinity) change {
	return func(e *clusterset.Export) { e.SessionAffinity = v }
}

func config(v *corev1.SessionAffinityConfig) change {
	return func(e *clusterset.Export) { e.SessionAffinityConfig = v }
}

func policy(v corev1.ServiceInternalTrafficPolicy) change {
	return func(e *clusterset.Export) { e.InternalTrafficPolicy = v }
}

func distribution(v string) change {
	return func(e *clusterset.Export) { e.TrafficDistribution = v }
}

func label(v map[string]string) change {
	return func(e *clusterset.Export) { e.Labels = v }
}

func note(v map[string]string) change {
	return func(e *clusterset.Export) { e.Annotations = v }
}

var gold, goldOne = names{"tier": "gold"}, names{"tier": "gold", "team": "one"}

// The rows where the oldest wins as a whole: the values of three clusters by age, and how many disagree with the
// first.
var oldestWins = []struct {
	name     string
	values   [3]change
	reason   reason
	disagree int
}{
	{"C2 ClusterSetIP over Headless", [3]change{same, headless, headless}, "TypeConflict", 2},
	{"C2 Headless over ClusterSetIP", [3]change{headless, same, headless}, "TypeConflict", 1},
	{"C2 agreed", [3]change{headless, headless, headless}, "", 0},
	{"C5 None over ClientIP", [3]change{same, affinity("ClientIP"), same}, "SessionAffinityConflict", 1},
	{"C5 ClientIP over None", [3]change{affinity("ClientIP"), same, same}, "SessionAffinityConflict", 2},
	{
		"C5 config, shorter over longer",
		[3]change{config(timeout(1)), config(timeout(2)), config(timeout(1))},
		"SessionAffinityConfigConflict",
		1,
	},
	{"C5 config, absent over set", [3]change{same, config(timeout(2)), same}, "SessionAffinityConfigConflict", 1},
	{"C5 config, set over absent", [3]change{config(timeout(2)), same, same}, "SessionAffinityConfigConflict", 2},
	{
		"C5 config, equal at different addresses",
		[3]change{config(timeout(2)), config(timeout(2)), config(timeout(2))},
		"",
		0,
	},
	{"C6 Local over Cluster", [3]change{policy("Local"), same, same}, "InternalTrafficPolicyConflict", 2},
	{"C6 Cluster over Local", [3]change{same, same, policy("Local")}, "InternalTrafficPolicyConflict", 1},
	{
		"C6 distribution, one over another",
		[3]change{distribution("PreferClose"), distribution("PreferSameNode"), same},
		"TrafficDistributionConflict",
		2,
	},
	{
		"C6 distribution, absent over set",
		[3]change{same, same, distribution("PreferClose")},
		"TrafficDistributionConflict",
		1,
	},
	{
		"C8 labels, none are lent from a younger set",
		[3]change{label(gold), label(goldOne), label(gold)},
		"LabelsConflict",
		1,
	},
	{
		"C8 labels, none are kept from an older set",
		[3]change{label(nil), label(goldOne), label(gold)},
		"LabelsConflict",
		2,
	},
	{
		"C8 labels, an empty value is a value",
		[3]change{label(names{"a": ""}), label(names{"b": ""}), label(nil)},
		"LabelsConflict",
		2,
	},
	{"C8 labels, nil is empty", [3]change{label(nil), label(names{}), label(nil)}, "", 0},
	{"C8 annotations", [3]change{note(goldOne), note(gold), note(goldOne)}, "AnnotationsConflict", 1},
}

func TestC2C5C6C8OldestWins(t *testing.T) {
	for _, test := range oldestWins {
		t.Run(test.name, func(t *testing.T) {
			// The ids sort against the ages, and the youngest stands first.
			exports := []clusterset.Export{
				export("a", 2, test.values[2]),
				export("c", 0, test.values[0]),
				export("b", 1, test.values[1]),
			}
			got, want := wantDisagree(t, exports, test.reason, test.disagree), export("", 0, test.values[0])
			if got.Type != want.Type || got.SessionAffinity != want.SessionAffinity ||
				!reflect.DeepEqual(got.SessionAffinityConfig, want.SessionAffinityConfig) ||
				got.InternalTrafficPolicy != want.InternalTrafficPolicy ||
				got.TrafficDistribution != want.TrafficDistribution ||
				!reflect.DeepEqual(
					got.Labels,
					want.Labels,
				) || !reflect.DeepEqual(got.Annotations, want.Annotations) {
				t.Errorf("got %+v, want the properties of %+v", got, want)
			}
		})
	}
}

func TestC7RunningIntersectionInTheOldestsOrder(t *testing.T) {
	tests := []struct {
		name     string
		families [][]corev1.IPFamily // by age
		want     []corev1.IPFamily
		leftOut  int
	}{
		{"order is the oldest's", [][]corev1.IPFamily{{v6, v4}, {v4, v6}}, []corev1.IPFamily{v6, v4}, 0},
		{"the common family reaches all", [][]corev1.IPFamily{{v6, v4}, {v4}}, []corev1.IPFamily{v4}, 0},
		{"the oldest's only family reaches all", [][]corev1.IPFamily{{v4}, {v6, v4}}, []corev1.IPFamily{v4}, 0},
		{"nothing in common", [][]corev1.IPFamily{{v4}, {v6}}, []corev1.IPFamily{v4}, 1},
		{"who is left out narrows nothing", [][]corev1.IPFamily{{v4}, {v6}, {v4, v6}}, []corev1.IPFamily{v4}, 1},
		{
			"the second decides against the third",
			[][]corev1.IPFamily{{v4, v6}, {v6}, {v4}},
			[]corev1.IPFamily{v6},
			1,
		},
		{"each left out is counted", [][]corev1.IPFamily{{v4, v6}, {v4}, {v6}, {v6}}, []corev1.IPFamily{v4}, 2},
		{
			"after a left out, others still narrow",
			[][]corev1.IPFamily{{v6, v4}, {v4, v6}, {v6}, {v4}},
			[]corev1.IPFamily{v6},
			1,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var exports []clusterset.Export
			for i, list := range test.families {
				e := export(string(rune('z'-i)), i, func(e *clusterset.Export) { e.Families = list })
				exports = slices.Insert(exports, 0, e)
			}
			if m := wantDisagree(
				t,
				exports,
				"IPFamilyConflict",
				test.leftOut,
			); !slices.Equal(
				m.Families,
				test.want,
			) {
				t.Errorf("got %v, want %v", m.Families, test.want)
			}
		})
	}
}

// C1 of families: nobody gives up a family for who came late.
func TestC7WhoCameLateNarrowsNothing(t *testing.T) {
	of := func(list ...corev1.IPFamily) func(*clusterset.Export) {
		return func(e *clusterset.Export) { e.Families = list }
	}
	exports := []clusterset.Export{
		export("a", 0, on(3600), of(v6)), export("b", 1, on(3600), of(v6, v4)),
		export("c", 2, on(0), of(v4, v6)), export("d", 3, on(1), of(v4, v6)),
	}
	m := wantDisagree(t, exports, "IPFamilyConflict", 1)
	if !slices.Equal(m.Families, []corev1.IPFamily{v4, v6}) {
		t.Errorf("got %v, want both", m.Families)
	}
}
