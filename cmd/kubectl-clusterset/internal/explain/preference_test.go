package explain_test

import (
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestPreferenceOfTheCorefileIsTold: the order of answers is CoreDNS's own, and the option is shown (T2).
func TestPreferenceOfTheCorefileIsTold(t *testing.T) {
	const east, west = "10.0.101.1 10.0.101.2", "10.0.119.1"
	const none = "10.0.101.1 10.0.119.1 10.0.101.2" // clusters take turns
	for name, c := range map[string]struct{ options, answers, shown string }{
		"none":               {"", none, ""},
		"order":              {"prefer local west", west + " " + east, "prefer local west"},
		"subset":             {"prefer local WEST subset", west, "prefer local WEST subset"},
		"nobody's":           {"prefer local north subset", none, "prefer local north subset"},
		"zone":               {"prefer zone Z2", "10.0.101.2 10.0.101.1 " + west, "prefer zone Z2"},
		"not what it takes":  {"prefer west", none, ""},
		"cluster, then zone": {"prefer local east\nprefer zone z2", "10.0.101.2 10.0.101.1 " + west, "prefer zone z2"},
		"among other options": {"ttl 5\nprefer local west order\nfallthrough", west + " " + east,
			"prefer local west order"},
	} {
		t.Run(name, func(t *testing.T) {
			f := member()
			headless(f)
			zone := "z2"
			f.Slices[1].Endpoints[1].Zone = &zone
			f.Corefile = ".:53 {\n multicluster clusterset.local {\n" + c.options + "\n}\n}\n"
			r := f.explain()
			if got := strings.Join(r.Answers[0].Data, " "); got != c.answers {
				t.Errorf("the answers are %s, want %s", got, c.answers)
			}
			got := strings.Join(strings.Fields(text(&r)), " ")
			if shown := c.shown + " the Corefile here"; strings.Contains(got, "the Corefile here") != (c.shown != "") ||
				c.shown != "" && !strings.Contains(got, shown) {
				t.Errorf("no %q in\n%s", c.shown, text(&r))
			}
		})
	}
}

// TestAClusterWithTrafficInOneFamilyHasTraffic: order is by family, and a dual-stack cluster may serve one alone.
func TestAClusterWithTrafficInOneFamilyHasTraffic(t *testing.T) {
	f := member()
	f.Records[1] = record("east", 2,
		func(s *hubv1alpha1.ServiceExportRecordSpec) { s.Preference = hubv1alpha1.PreferLocal })
	f.Slices[1].Labels[endpoints.LabelStandby] = "true"
	other := slice("east", 2, 0)
	other.Name, other.AddressType = "derived-east-6", discoveryv1.AddressTypeIPv6
	f.Slices = append(f.Slices, other)
	r := f.explain()
	if got := text(&r); strings.Contains(got, "no traffic from the VIP") {
		t.Error(got)
	}
}

// TestWhereAVIPSendsTrafficIsTold by the preference of the oldest export.
func TestWhereAVIPSendsTrafficIsTold(t *testing.T) {
	f := member()
	f.Records[1] = record("east", 2,
		func(s *hubv1alpha1.ServiceExportRecordSpec) { s.Preference = hubv1alpha1.PreferLocal })
	f.Slices[1].Labels[endpoints.LabelStandby] = "true"
	r := f.explain()
	for _, want := range []string{"gets the traffic from the VIP (prefer-local)",
		"no traffic from the VIP"} {
		if !strings.Contains(text(&r), want) {
			t.Errorf("no %q in\n%s", want, text(&r))
		}
	}
	f = member()
	if r := f.explain(); strings.Contains(text(&r), "prefer") {
		t.Errorf("nothing is preferred, and yet:\n%s", text(&r))
	}
}
