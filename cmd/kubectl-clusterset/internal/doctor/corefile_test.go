package doctor_test

import (
	"os"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
)

// inOneBlock returns kubeadm's Corefile with multicluster in .:53.
func inOneBlock(t *testing.T) string {
	t.Helper()
	kubeadm, err := os.ReadFile("../../../../deploy/coredns/testdata/kubeadm.corefile")
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(
		"    ready\n", "    ready\n    multicluster clusterset.local\n",
	).Replace(string(kubeadm))
}

// inABlockOfItsOwn has the Corefile of corefile.example.
func inABlockOfItsOwn(t *testing.T) *doctor.Facts {
	t.Helper()
	example, err := os.ReadFile("../../../../corefile.example")
	if err != nil {
		t.Fatal(err)
	}
	f := sound(t)
	f.DNSFacts.Corefile = string(example)
	return f
}

func TestABlockOfItsOwnIsSound(t *testing.T) {
	for _, o := range doctor.Examine(inABlockOfItsOwn(t)).Outcomes {
		if len(o.Findings) > 0 {
			t.Errorf("%+v", o)
		}
	}
}

// What holds for the block of .:53 does not reach the zone's own block, and what is wrong in that is found.
func TestABlockOfItsOwnIsExamined(t *testing.T) {
	for name, c := range map[string]struct{ old, with, check, want string }{
		"cached": {"    multicluster\n", "    multicluster\n    cache 30\n", "", ""}, // which leaves ours out
		// It keeps an answer for its TTL.
		"sent on, and cached": {"    multicluster\n", "    cache 30\n    forward . 10.96.0.53\n", "", ""},
		"sent on, and stale": {"    multicluster\n",
			"    cache {\n        serve_stale\n    }\n    forward . 10.96.0.53\n", "corefile-cache", "stale answers"},
		"sent on":     {"    multicluster\n", "    forward . /etc/resolv.conf\n", "", ""}, // dns-answers asks
		"no stanza":   {"    multicluster\n", "", "corefile-stanza", "clusterset.local"},
		"both blocks": {"    loadbalance\n}", "    loadbalance\n    multicluster\n}", "", ""},
		"no ready":    {"    errors\n    ready\n", "    errors\n", "corefile-options", "has no ready"},
	} {
		f := inABlockOfItsOwn(t)
		edit(c.old, c.with)(f)
		for _, o := range doctor.Examine(f).Outcomes {
			found := len(o.Findings) > 0
			if found != (o.Check == c.check) || found && !strings.Contains(o.Findings[0].What, c.want) {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
}
