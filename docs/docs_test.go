// Package docs_test keeps the guides true: the lists of reference.md are compared with the code, in both
// directions, links lead
// somewhere, folders that a reader is told to apply exist, and Corefiles can be read.
package docs_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

// listed are the first cells of the tables below a heading of reference.md, up to the next heading.
func listed(t *testing.T, heading string) set {
	t.Helper()
	text, err := os.ReadFile("reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut("\n"+string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("reference.md has no heading %q", heading)
	}
	if end := regexp.MustCompile(`(?m)^#+ `).FindStringIndex(below); end != nil {
		below = below[:end[0]]
	}
	out := set{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(below, -1) {
		if out[m[1]] != "" {
			t.Errorf("reference.md lists %s twice below %q", m[1], heading)
		}
		out[m[1]] = "reference.md"
	}
	return out
}

// compare fails where the page and the code differ. A list that is empty proves nothing.
func compare(t *testing.T, heading string, code set) {
	t.Helper()
	page := listed(t, heading)
	if len(page) == 0 || len(code) == 0 {
		t.Errorf("%s: %d in reference.md, %d in the code", heading, len(page), len(code))
	}
	for what, where := range code {
		if page[what] == "" {
			t.Errorf("%s: %s (%s) is not in reference.md", heading, what, where)
		}
	}
	for what := range page {
		if code[what] == "" {
			t.Errorf("%s: reference.md has %s, and the code has not", heading, what)
		}
	}
}

func TestReferenceListsCorefileOptions(t *testing.T) {
	compare(t, "## Corefile options", load(t, "plugin").corefileOptions("multicluster"))
	compare(t, "### Of multicluster_external", load(t, "plugin").corefileOptions("external"))
}

func TestReferenceListsFlags(t *testing.T) {
	s := load(t, "cmd", "controllers")
	compare(t, "### clusterset-controller", s.flags("clusterset-controller"))
	compare(t, "### kubectl clusterset", s.flags("kubectl-clusterset"))
}

func TestReferenceListsMetrics(t *testing.T) {
	compare(t, "### CoreDNS", load(t, "plugin").metrics(t))
	compare(t, "### Agent and hub controller", load(t, "controllers", "cmd").metrics(t))
}

func TestReferenceListsConditionsAndEvents(t *testing.T) {
	events, conditions, types := load(t, "controllers").withUpstream(t).reasons(t)
	// Those of a Membership are in checks.md, which is made from health.Reasons.
	for _, kind := range health.Order {
		if listed(t, "### Types of conditions")[kind] == "" {
			delete(types, kind)
		}
	}
	for reason := range health.Reasons {
		if listed(t, "### Reasons of conditions")[reason] == "" {
			delete(conditions, reason)
		}
	}
	compare(t, "### Types of conditions", types)
	compare(t, "### Reasons of conditions", conditions)
	compare(t, "## Events", events)
}

func TestReferenceListsKeys(t *testing.T) {
	compare(t, "## Annotations, labels, finalizers", load(t, "plugin", "controllers", "cmd").keys(t))
}

func TestReferenceListsFieldsOfTheClusterSet(t *testing.T) {
	compare(t, "## ClusterSet", fields(t, "deploy/crds/hub/hub.clusterset-dns.io_clustersets.yaml"))
}

func TestReferenceListsPolicies(t *testing.T) {
	compare(t, "## Admission policies", policies(t))
}

// pages are all Markdown files of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		out[path] = string(text)
		return err
	})
	if err != nil || len(out) < 10 {
		t.Fatalf("%d pages: %v", len(out), err)
	}
	return out
}

var (
	code    = regexp.MustCompile("(?ms)^(?:~~~|```).*?^(?:~~~|```)\\s*?$|^    .*?$|`[^`\n]*`")
	applied = regexp.MustCompile(`kubectl (?:(?:\S+ )?(?:apply|delete|diff|create)(?: --?[^k\s]\S*)* -k|kustomize) ` +
		`([\w./-]+)`)
	corefile = regexp.MustCompile("(?ms)^ *(?:~~~|```) ?corefile\n(.*?)^ *(?:~~~|```)")
	link     = regexp.MustCompile(`\[[^\]\n]*\]\(([^)\s]+)\)`)
	counted  = regexp.MustCompile(`(?:first|last) \w+ (?:commands?|steps?)\s+\[`)
)

func TestLinksLeadSomewhere(t *testing.T) {
	all, links := pages(t), 0
	for page, text := range all {
		if m := counted.FindString(text); m != "" {
			t.Errorf("%s: %q counts what another page may change: link a heading of its own", page, m)
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			to, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(page), to)
			if to == "" {
				target = page
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(all[target]), anchor) {
				t.Errorf("%s: %s has no heading for the link %s", page, target, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("no links were found")
	}
}

// anchors are the names of the headings of a page, as GitHub makes them.
func anchors(text string) (out []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(name, " ", "-"))
	}
	return out
}

// A page names folders from the root of the repository.
func TestFoldersToApplyExist(t *testing.T) {
	folders := 0
	for page, text := range pages(t) {
		for _, m := range applied.FindAllStringSubmatch(text, -1) {
			folders++
			if _, err := os.Stat(filepath.Join("..", m[1], "kustomization.yaml")); err != nil {
				t.Errorf("%s: `%s`: %v", page, m[0], err)
			}
		}
	}
	if folders == 0 {
		t.Error("no folders were found")
	}
}

// Each block marked corefile is read as CoreDNS does, and its stanzas of ours know the options that they use. Where the
// zone has a server block of its own, ready is in it: it asks the plugins of its own block only (L2). A server with
// health answers on until its Pod's endpoint is gone.
func TestCorefilesCanBeRead(t *testing.T) {
	s := load(t, "plugin")
	ours := map[string]set{
		"multicluster":          s.corefileOptions("multicluster"),
		"multicluster_external": s.corefileOptions("external"),
	}
	directives := append(slices.Clone(dnsserver.Directives), slices.Collect(maps.Keys(ours))...)
	all, blocks := pages(t), 0
	for _, file := range []string{"../corefile.example", "../deploy/coredns/beside/Corefile"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[file] = "~~~ corefile\n" + string(text) + "~~~\n"
	}
	for page, text := range all {
		for _, m := range corefile.FindAllStringSubmatch(text, -1) {
			blocks++
			servers, err := caddyfile.Parse(page, strings.NewReader(m[1]), directives)
			if err != nil {
				t.Error(err)
			}
			for _, server := range servers {
				if health := server.Tokens["health"]; health != nil && !slices.ContainsFunc(health,
					func(word caddyfile.Token) bool { return word.Text == "lameduck" }) {
					t.Errorf("%s: %s has health without lameduck", page, server.Keys[0])
				}
				for name, options := range ours {
					stanza := server.Tokens[name]
					if stanza != nil && server.Tokens["ready"] == nil && !strings.HasPrefix(server.Keys[0], ".") {
						t.Errorf("%s: %s has %s and not ready", page, server.Keys[0], name)
					}
					d := caddyfile.NewDispenserTokens(page, stanza)
					for d.Next() {
						for d.NextBlock() {
							if options[d.Val()] == "" {
								t.Errorf("%s: %s has no option %s", page, name, d.Val())
							}
							d.RemainingArgs()
						}
					}
				}
			}
		}
	}
	if blocks == 0 {
		t.Error("no Corefile was found")
	}
}

// The page of the soak says what was run, has all that is played, and belongs to the log beside it.
func TestReliabilityIsOfItsLog(t *testing.T) {
	page, err := os.ReadFile("reliability.md")
	if err != nil {
		t.Fatal(err)
	}
	has := func(line string) bool {
		return regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line)).Match(page)
	}
	if !has("Version ") {
		t.Error("reliability.md does not say which version was run")
	}
	sources, err := filepath.Glob("../test/soak/*.go")
	if err != nil {
		t.Fatal(err)
	}
	sections := 0
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(?:\\n## )?([A-Z]\. [^"\\]+)`).FindAllStringSubmatch(string(text), -1) {
			sections++
			if !has("## " + m[1]) {
				t.Errorf("reliability.md has no section %q", m[1])
			}
		}
	}
	if sections == 0 {
		t.Error("no scenarios were found")
	}
	log, err := os.ReadFile("reliability.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf(
		"`reliability.log.gz`: %.1f MB, SHA-256 `%x`",
		float64(len(log))/1e6,
		sha256.Sum256(log),
	); !strings.Contains(
		string(page),
		sum,
	) {
		t.Errorf("reliability.md is of another log than reliability.log.gz, which is %s", sum)
	}
}
