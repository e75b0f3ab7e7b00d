// Package arch tests the shape of the repository (docs/spec/DESIGN.md §9): which package may import which, and why.
package arch

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/clusterset-dns/clusterset-dns/"

type pkg struct {
	ImportPath string
	Name       string
	Imports    []string
	Deps       []string
}

// rule forbids packages whose path begins with one of from (but not with one of but) to reach what begins with one of
// forbidden. direct looks at imports only, else at all dependencies.
type rule struct {
	name      string
	reason    string
	from      []string
	but       []string
	forbidden []string
	allowed   []string // exceptions from forbidden
	direct    bool
}

var pure = []string{
	module + "plugin/multicluster/query",
	module + "plugin/multicluster/catalog",
	module + "plugin/multicluster/reply",
	module + "plugin/multicluster_external/names",
}

var rules = []rule{
	{
		name:   "pure packages reach no world",
		reason: "a decision is a function of values: no client, clock, randomness, log or metric; one seed replays it",
		from:   pure,
		forbidden: []string{
			"k8s.io/",
			"sigs.k8s.io/",
			"github.com/prometheus/",
			"github.com/coredns/coredns",
			"net/http",
			"log",
			"os/exec",
			"math/rand",
			"time",
		},
		direct: true,
	},
	{
		name:      "pure packages know no Kubernetes",
		reason:    "objects become records in kube; the packages behind it would otherwise depend on API versions",
		from:      pure,
		forbidden: []string{"k8s.io/", "sigs.k8s.io/"},
	},
	{
		name:      "query and catalog know no messages",
		reason:    "names and records are one thing, DNS messages another: only reply joins them",
		from:      pure[:2],
		forbidden: []string{"github.com/miekg/dns", module + "plugin/multicluster/reply"},
	},
	{
		name:      "query and catalog do not know each other",
		reason:    "never across: the grammar of names does not depend on what exists",
		from:      pure[:1],
		forbidden: []string{module + "plugin/multicluster/catalog"},
	},
	{
		name:      "names knows no messages",
		reason:    "who is chosen depends on the client and the clusters, not on how that is said",
		from:      pure[3:],
		forbidden: []string{"github.com/miekg/dns", module + "plugin/multicluster"},
	},
	{
		name:      "names for outside cost names inside nothing",
		reason:    "each plugin has its own data; what both need lies below them",
		from:      []string{module + "plugin/multicluster"},
		forbidden: []string{module + "plugin/multicluster_external"},
	},
	{
		name:   "kube does not reach up",
		reason: "watches publish into the catalogue; what is asked and answered is no concern of theirs",
		from:   []string{module + "plugin/multicluster/kube"},
		forbidden: []string{
			module + "plugin/multicluster/query",
			module + "plugin/multicluster/reply",
			"github.com/miekg/dns",
		},
		direct: true,
	},
	{
		name:      "the product does not reach its tests",
		reason:    "what users run must not carry the laboratory",
		from:      []string{module + "plugin/", module + "cmd/coredns"},
		forbidden: []string{module + "test/"},
	},
	{
		name:      "the model is written from the text",
		reason:    "an oracle that shares code with what it checks proves nothing",
		from:      []string{module + "test/model"},
		forbidden: []string{module + "plugin/", "github.com/coredns/coredns"},
	},
	{
		name:      "the plugin is read-only",
		reason:    "DNS must not be able to write: it uses no typed clientset",
		from:      []string{module + "plugin/"},
		forbidden: []string{"k8s.io/client-go/kubernetes", "sigs.k8s.io/controller-runtime"},
		direct:    true,
	},
}

// decisions are the pure packages of the controllers: they know the kinds of Kubernetes, as values.
var decisions = []string{module + "controllers/clusterset", module + "controllers/decide"}

// reconcilers are the packages with a controller each.
var reconcilers = []string{
	"serviceexport",
	"serviceimport",
	"servicecidrs",
	"clustersetips",
	"heartbeat",
	"sources",
	"membership",
	"health",
	"inventory",
	"blocks",
	"dnsendpoint",
	"external",
}

// relist is the one package of the controllers that the plugin shares.
const relist = module + "controllers/relist"

// outside are the packages of the plugin that a controller shares.
var outside = []string{
	module + "plugin/multicluster_external/endpointslice", module + "plugin/multicluster_external/names",
}

func init() {
	rules = append(rules,
		rule{
			name:   "decisions reach no world",
			reason: "gather, decide, apply: what is decided by values alone is tested by tables, models and seeds",
			from:   decisions,
			forbidden: []string{
				"k8s.io/client-go",
				"sigs.k8s.io/controller-runtime",
				"k8s.io/klog",
				"github.com/go-logr",
				"github.com/prometheus/",
				"net/http",
				"log",
				"os",
				"math/rand",
				"sync",
				module + "controllers/kube",
			},
			direct: true,
		},
		rule{
			name:      "controllers and plugin do not know each other",
			reason:    "the halves meet only in ServiceImport, EndpointSlice and Namespace (DESIGN §1)",
			from:      []string{module + "controllers"},
			forbidden: []string{module + "plugin", "github.com/coredns/coredns", module + "test"},
			allowed:   outside,
		},
		rule{
			name:      "one controller knows names for outside",
			reason:    "dnsendpoint publishes the set that the plugin transfers (DNS X6): one function decides it",
			from:      []string{module + "controllers"},
			but:       []string{module + "controllers/dnsendpoint"},
			forbidden: outside,
			direct:    true,
		},
		rule{
			name:      "the plugin does not know the controllers",
			reason:    "DNS must be buildable into anybody's CoreDNS; both survive a restored API server in one way",
			from:      []string{module + "plugin"},
			forbidden: []string{module + "controllers"},
			allowed:   []string{relist},
		},
		rule{
			name:      "relist needs client-go alone",
			reason:    "the plugin imports it, and must not bring controllers or controller-runtime into a CoreDNS",
			from:      []string{relist},
			forbidden: []string{module, "sigs.k8s.io/controller-runtime"},
			direct:    true,
		})
	for _, name := range reconcilers {
		var others []string
		for _, other := range reconcilers {
			if other != name {
				others = append(others, module+"controllers/"+other)
			}
		}
		rules = append(rules, rule{
			name:      name + " knows no other reconciler",
			reason:    "a controller declares what it needs of another as an interface, which controllers.go fills in",
			from:      []string{module + "controllers/" + name},
			forbidden: append(others, module+"controllers/agent"),
		})
	}
}

// TestDecisionsHaveNoClock: an import of time is needed for durations, so the imports cannot tell.
func TestDecisionsHaveNoClock(t *testing.T) {
	files := 0
	for _, dir := range decisions {
		err := filepath.WalkDir(
			filepath.Join("../..", strings.TrimPrefix(dir, module)),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
					return err
				}
				files++
				text, err := os.ReadFile(path)
				for _, clock := range []string{"time.Now(", "time.Since(", "time.Until(", "metav1.Now("} {
					if strings.Contains(string(text), clock) {
						t.Errorf("%s calls %s): the time is an input of a decision", path, clock)
					}
				}
				return err
			},
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	if files == 0 {
		t.Fatal("no file of a decision found")
	}
}

// unclear are names that say nothing of what a package is for.
var unclear = []string{"util", "utils", "common", "helpers", "types", "misc"}

func TestImports(t *testing.T) {
	all := list(t)
	for _, r := range rules {
		t.Run(strings.ReplaceAll(r.name, " ", "_"), func(t *testing.T) {
			matched := false
			for _, p := range all {
				if !under(p.ImportPath, r.from) || under(p.ImportPath, r.but) {
					continue
				}
				matched = true
				reached := p.Deps
				if r.direct {
					reached = p.Imports
				}
				for _, d := range reached {
					if under(d, r.forbidden) && !under(d, r.allowed) {
						t.Errorf("%s reaches %s: %s", p.ImportPath, d, r.reason)
					}
				}
			}
			if !matched {
				t.Errorf("no package matches %v: fix the rule or delete it", r.from)
			}
		})
	}
}

func TestPackageNames(t *testing.T) {
	for _, p := range list(t) {
		if slices.Contains(unclear, p.Name) {
			t.Errorf("%s: the name %s says nothing of what the package is for", p.ImportPath, p.Name)
		}
	}
}

// under returns whether path is one of the prefixes, or below one: a prefix without a slash at its end matches whole
// elements.
func under(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/") {
			return true
		}
	}
	return false
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Imports,Deps", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}
