package versions

import (
	"strings"
	"testing"
)

func TestSkewIsThatOfTheImagesTag(t *testing.T) {
	for image, want := range map[string]string{
		"r/x:v0.3.0":                          "",
		"r/x:v0.3.1":                          "newer",
		"r/x:v0.2.9@sha256:0":                 "older",
		"r/x:v0.1.0":                          "unsupported: more than one minor version apart",
		"r/x:v1.3.0":                          "unsupported: another major version",
		"registry.example:5000/x":             "",
		"registry.example:5000/x:8c7e28b-dev": "",
		"":                                    "",
	} {
		if got := New("v0.3.0", []Component{{Image: image}}).Components[0].Skew; got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
	var out strings.Builder
	r := New("v0.3.0", []Component{{Name: "agent", Image: "r/x:v0.2.0", Kubernetes: "v1.36.0"}, {Name: "DNS"},
		{Name: "hub", Problem: "no"}, {Name: "hub", Image: "r/x:v0.4.0", Problem: "slow"}})
	Print(&out, &r)
	const want = `Client: v0.3.0

COMPONENTS
  NAME    VERSION            KUBERNETES   SKEW
  agent   v0.2.0             v1.36.0      older
  DNS     not installed
  hub     not read
  hub     being rolled out
? hub: no
? hub: slow
`
	if out.String() != want {
		t.Errorf("it prints\n%s", out.String())
	}
}
