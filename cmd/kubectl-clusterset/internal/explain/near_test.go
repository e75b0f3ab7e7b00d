package explain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestPreferenceOfTheCorefileIsTold: the order of answers is CoreDNS's own, and what is left out is said (T2).
func TestPreferenceOfTheCorefileIsTold(t *testing.T) {
	const east, west = "10.0.101.1 10.0.101.2", "10.0.119.1"
	const none = "10.0.101.1 10.0.119.1 10.0.101.2" // clusters take turns
	for name, c := range map[string]struct {
		options   string
		answers   string
		preferred map[string]string // by cluster
		withheld  string            // cluster: what
	}{
		"none": {"", none, nil, ""},
		"order": {"prefer local west", west + " " + east,
			map[string]string{"west": "prefer local west"}, ""},
		"subset": {"prefer local WEST subset", west, map[string]string{"west": "prefer local west"},
			"east: 2 ready endpoints"},
		"nobody's": {"prefer local north subset", none, nil, ""},
		"zone": {"prefer zone Z2", "10.0.101.2 10.0.101.1 " + west,
			map[string]string{"east": "prefer zone z2: 1"}, ""},
		"cluster, then zone": {"prefer local east\nprefer zone z2", "10.0.101.2 10.0.101.1 " + west,
			map[string]string{"east": "prefer local east, prefer zone z2: 1"}, ""},
		"other options beside": {"ttl 5\nprefer local west order\nfallthrough", west + " " + east,
			map[string]string{"west": "prefer local west"}, ""},
		"not what prefer takes": {"prefer west", none, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := member()
			headless(f)
			zone := "z2"
			f.Slices[1].Endpoints[1].Zone = &zone
			f.Corefile = ".:53 {\n multicluster clusterset.local {\n" + c.options + "\n}\n}\n"
			r := explain.Explain(f)
			if got := strings.Join(r.Answers[0].Data, " "); got != c.answers {
				t.Errorf("the answers are %s, want %s", got, c.answers)
			}
			for _, x := range r.Exporters {
				if x.Preferred != c.preferred[x.Cluster] {
					t.Errorf("%s is preferred by %q, want %q", x.Cluster, x.Preferred, c.preferred[x.Cluster])
				}
				if said := strings.Contains(text(&r), "answered first here ("+x.Preferred+")"); x.Preferred != "" &&
					!said {
					t.Errorf("it is not printed:\n%s", text(&r))
				}
			}
			var withheld []string
			for _, w := range r.Withheld {
				withheld = append(withheld, w.Cluster+": "+w.What)
				if !strings.Contains(w.Why, "prefer local west subset") {
					t.Errorf("why: %s", w.Why)
				}
			}
			if got := strings.Join(withheld, "; "); got != c.withheld {
				t.Errorf("withheld is %s, want %s", got, c.withheld)
			}
		})
	}
}

// TestAPodOfBothFamiliesIsOneEndpoint, although it is in a slice of each.
func TestAPodOfBothFamiliesIsOneEndpoint(t *testing.T) {
	f := member()
	headless(f)
	zone := "z2"
	six := slice("east", 2, 0)
	six.AddressType = discoveryv1.AddressTypeIPv6
	for i := range six.Endpoints {
		six.Endpoints[i].Addresses = []string{fmt.Sprintf("fd00::%d", i+1)}
		six.Endpoints[i].Zone, f.Slices[1].Endpoints[i].Zone = &zone, &zone
	}
	f.Slices = append(f.Slices, six)
	for options, want := range map[string]string{"prefer local west subset": "east: 2 ready endpoints",
		"prefer zone z2": "east: prefer zone z2: 2"} {
		f.Corefile = ".:53 {\n multicluster clusterset.local {\n" + options + "\n}\n}\n"
		r := explain.Explain(f)
		var got []string
		for _, w := range r.Withheld {
			got = append(got, w.Cluster+": "+w.What)
		}
		for _, x := range r.Exporters {
			got = append(got, x.Cluster+": "+x.Preferred)
		}
		if !slices.Contains(got, want) {
			t.Errorf("%s: %q, want %s", options, got, want)
		}
	}
}

// TestAPreferenceThatNobodyServesIsAnError, and nobody gets the traffic.
func TestAPreferenceThatNobodyServesIsAnError(t *testing.T) {
	f := member()
	f.Records[1] = record("east", 2,
		func(s *hubv1alpha1.ServiceExportRecordSpec) { s.Preference = "local" })
	f.Slices = []discoveryv1.EndpointSlice{slice("west", 0, 1), slice("east", 2, 0)}
	f.Slices[1].Labels[corev1.IsHeadlessService] = ""
	r := explain.Explain(f)
	if got := text(&r); !strings.Contains(got, "x the preference selects no cluster that has a ready endpoint") ||
		strings.Contains(got, "gets the traffic") {
		t.Error(got)
	}
}

// TestAClusterWithTrafficInOneFamilyHasTraffic: order is by family, and a dual-stack cluster may serve one alone.
func TestAClusterWithTrafficInOneFamilyHasTraffic(t *testing.T) {
	f := member()
	f.Records[1] = record("east", 2,
		func(s *hubv1alpha1.ServiceExportRecordSpec) { s.Preference = hubv1alpha1.PreferLocal })
	f.Slices[1].Labels[corev1.IsHeadlessService] = ""
	other := slice("east", 2, 0)
	other.Name, other.AddressType = "derived-east-6", discoveryv1.AddressTypeIPv6
	f.Slices = append(f.Slices, other)
	r := explain.Explain(f)
	if got := text(&r); strings.Contains(got, "no traffic from the VIP") {
		t.Error(got)
	}
}

// TestWhereAVIPSendsTrafficIsTold by the preference of the oldest export.
func TestWhereAVIPSendsTrafficIsTold(t *testing.T) {
	f := member()
	f.Records[1] = record("east", 2,
		func(s *hubv1alpha1.ServiceExportRecordSpec) { s.Preference = hubv1alpha1.PreferLocal })
	f.Slices[1].Labels[corev1.IsHeadlessService] = ""
	r := explain.Explain(f)
	for _, want := range []string{"gets the traffic from the VIP (prefer-local)",
		"no traffic from the VIP"} {
		if !strings.Contains(text(&r), want) {
			t.Errorf("no %q in\n%s", want, text(&r))
		}
	}
	f = member()
	if r := explain.Explain(f); strings.Contains(text(&r), "prefer") {
		t.Errorf("nothing is preferred, and yet:\n%s", text(&r))
	}
}
