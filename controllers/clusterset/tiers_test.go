package clusterset

import (
	"fmt"
	"strings"
	"testing"
)

// TestT2APreferenceHasOneForm, so that clusters that mean the same agree.
func TestT2APreferenceHasOneForm(t *testing.T) {
	for text, want := range map[string]string{
		"": "none", " ": "none", "none": "none", "any": "none",
		"local,any": "prefer-local", " local , any ": "prefer-local", "prefer-local": "prefer-local",
		"prefer-local\n":                "prefer-local", // a YAML block
		"local":                         "local-only",
		"cluster=eu-1, same:region,any": "cluster=eu-1,same:region,any",
		"region=eu west":                "region=eu west",
		// invalid:
		"near": "", "any,local": "", "local,local": "", "local,,any": "", "none,local": "",
		"prefer-local,cluster=a": "", "cluster=": "", "cluster=A_": "", "same:": "",
		"region=": "", "Region=eu": "", "example.com/x=y": "", "region=" + strings.Repeat("x", 129): "",
	} {
		got, err := ParsePreference(text)
		if string(got) != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
		if again, err := ParsePreference(string(got)); err != nil || want != "" && again != got {
			t.Errorf("%q is then %q, %v", got, again, err)
		}
	}
	_, err := ParsePreference(strings.Repeat("any,", 100_000))
	if err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("a list of 400,000 characters: %v", err)
	}
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprint("cluster=c", i))
	}
	if _, err := ParsePreference(strings.Join(many, ",")); err == nil {
		t.Error("17 tiers are accepted")
	}
}

// TestT2APropertyThatNoRecordStatesSelectsNobody, so that no preference is exported that asks for it. Of a neighbour,
// it is accepted.
func TestT2APropertyThatNoRecordStatesSelectsNobody(t *testing.T) {
	for text, valid := range map[string]bool{
		"cluster.clusterset.k8s.io=west": false, "cluster=west,clusterset.k8s.io=shop,any": false,
		"same:clusterset.k8s.io": false, "vip-blocks.clusterset-dns.io=x": false,
		"": true, "local-only": true, "cluster=west": true, "same:region,region=eu,any": true,
	} {
		_, err := parseOwnPreference(text)
		if (err == nil) != valid || !valid && !strings.Contains(err.Error(), "cluster=ID") {
			t.Errorf("%q: %v", text, err)
		}
		if _, err := ParsePreference(text); err != nil {
			t.Errorf("%q of a neighbour: %v", text, err)
		}
	}
}

// TestE11WhoMayImport: the cluster itself, and those that are listed.
func TestE11WhoMayImport(t *testing.T) {
	eu := map[string]string{"region": "eu"}
	for _, c := range []struct {
		to       string
		importer Place
		want     bool
	}{
		{"", Place{Cluster: "b"}, true},
		{"cluster=b", Place{Cluster: "b"}, true},
		{"cluster=b", Place{Cluster: "c"}, false},
		{"cluster=b", Place{Cluster: "a"}, true},
		{"cluster=b,region=eu", Place{"c", eu}, true},
		{"cluster=b,region=eu", Place{"c", map[string]string{"region": "us"}}, false},
		{"region=eu", Place{Cluster: "c"}, false},
	} {
		e := Export{Cluster: "a", ExportTo: c.to}
		if got := e.GoesTo(c.importer); got != c.want {
			t.Errorf("%q goes to %v: %v", c.to, c.importer, got)
		}
	}
	for text, valid := range map[string]bool{
		"": true, "cluster=b": true, "region=eu": true, "any": false, "local": false, "same:region": false, "b": false,
	} {
		if _, err := ParseExportTo(text); (err == nil) != valid {
			t.Errorf("export-to %q: %v", text, err)
		}
	}
}

func TestT2Enough(t *testing.T) {
	for _, c := range []struct {
		text       string
		ready, all int
		want       bool
	}{
		{"", 1, 9, true}, {"", 0, 9, false}, {"3", 2, 9, false}, {"3\n", 3, 9, true}, {"50%", 4, 9, false},
		{"50%", 5, 9, true}, {"50%", 0, 0, false}, {"100%", 9, 9, true}, {"1%", 0, 9, false},
	} {
		m, err := ParseMinReady(c.text)
		if err != nil || m.Enough(c.ready, c.all) != c.want {
			t.Errorf("%q: %d of %d are enough: %v, %v", c.text, c.ready, c.all, !c.want, err)
		}
	}
	for _, text := range []string{"0", "-1", "x", "50 %", "101%", "0%", "1.5", "007", "+3", "999999"} {
		if m, err := ParseMinReady(text); err == nil {
			t.Errorf("%q is %q", text, m)
		}
	}
}

// TestStatedPropertiesAreFew: neither those of the clusterset nor long ones, and no more than a record may have.
func TestStatedPropertiesAreFew(t *testing.T) {
	all := map[string]string{
		PropertyID:        "a",
		PropertySet:       "s",
		PropertyPodRanges: "10.0.0.0/8",
		"region":          "eu",
		"long":            strings.Repeat("x", 129),
	}
	if got := fmt.Sprint(Stated(all)); got != "map[region:eu]" {
		t.Errorf("stated: %s", got)
	}
	for i := range 40 {
		all[fmt.Sprintf("p%02d", i)] = ""
	}
	if got := Stated(all); len(got) != 16 || checkProperties(got) != nil {
		t.Errorf("stated: %v", got)
	}
	if Stated(map[string]string{PropertyID: "a"}) != nil {
		t.Error("nothing to state is not nil")
	}
}
