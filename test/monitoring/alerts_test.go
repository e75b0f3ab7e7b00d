package monitoring

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// ruleSpec is a PrometheusRule's, monitoring.coreos.com/v1: the file format of Prometheus.
type ruleSpec struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// alerts are all rules by name, in the order of the files.
func alerts(t *testing.T) (names []string, rules map[string]rule, all ruleSpec) {
	t.Helper()
	rules = map[string]rule{}
	for _, o := range objects(t, "PrometheusRule") {
		var spec ruleSpec
		into(t, o, "spec", &spec)
		all.Groups = append(all.Groups, spec.Groups...)
		for _, g := range spec.Groups {
			for _, r := range g.Rules {
				if _, ok := rules[r.Alert]; ok || r.Alert == "" {
					t.Errorf("alert %q is there twice, or is none", r.Alert)
				}
				names, rules[r.Alert] = append(names, r.Alert), r
			}
		}
	}
	return names, rules, all
}

// alertCase is one of testdata/alerts.yaml.
type alertCase struct {
	Alert       string            `json:"alert"`
	Why         string            `json:"why"`
	Series      map[string]string `json:"series"`
	Quiet       string            `json:"quiet"`
	Rings       string            `json:"rings"`
	Labels      map[string]string `json:"labels"`
	Summary     string            `json:"summary"`
	Description string            `json:"description"` // "": as it stands in the rule, without a template
}

// What promtool reads: https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/.
type (
	promtoolFile struct {
		RuleFiles []string       `json:"rule_files"`
		Tests     []promtoolTest `json:"tests"`
	}
	promtoolTest struct {
		Name     string           `json:"name"`
		Interval string           `json:"interval"`
		Series   []promtoolSeries `json:"input_series"`
		Alerts   []promtoolAlert  `json:"alert_rule_test"`
	}
	promtoolSeries struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	promtoolAlert struct {
		At   string          `json:"eval_time"`
		Name string          `json:"alertname"`
		Want []promtoolFires `json:"exp_alerts"`
	}
	promtoolFires struct {
		Labels      map[string]string `json:"exp_labels"`
		Annotations map[string]string `json:"exp_annotations"`
	}
)

func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("testdata/%s: %v", name, err)
	}
}

func inputs(series map[string]string) (out []promtoolSeries) {
	for _, s := range slices.Sorted(maps.Keys(series)) {
		out = append(out, promtoolSeries{s, series[s]})
	}
	return out
}

// test is what promtool is to find: quiet at the one time, and ringing, with all that it says, at the other.
func (c alertCase) test(r rule) promtoolTest {
	out := promtoolTest{Name: c.Alert + ": " + c.Why, Interval: "1m", Series: inputs(c.Series)}
	out.Alerts = append(out.Alerts, promtoolAlert{At: c.Quiet, Name: c.Alert})
	if c.Rings == "" {
		return out
	}
	says := maps.Clone(r.Annotations)
	says["summary"] = c.Summary
	if c.Description != "" {
		says["description"] = c.Description
	}
	labels := map[string]string{"severity": r.Labels["severity"]}
	maps.Copy(labels, c.Labels)
	out.Alerts = append(
		out.Alerts,
		promtoolAlert{At: c.Rings, Name: c.Alert, Want: []promtoolFires{{labels, says}}},
	)
	return out
}

// promtool writes the rules and the tests where it finds them, and runs it.
func promtool(t *testing.T, rules ruleSpec, tests []promtoolTest) (said string, err error) {
	t.Helper()
	if err := lab.Require("promtool"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, content := range map[string]any{"rules.yaml": rules, "tests.yaml": promtoolFile{[]string{"rules.yaml"},
		tests}} {
		text, err := yaml.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "tests.yaml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return string(out), fmt.Errorf("promtool %s: %w", strings.Join(args, " "), err)
		}
	}
	return "", nil
}

func TestEveryAlertRingsWhenItShouldAndNotBefore(t *testing.T) {
	names, rules, all := alerts(t)
	var cases []alertCase
	read(t, "alerts.yaml", &cases)
	rings := map[string]bool{}
	var tests []promtoolTest
	for _, c := range cases {
		r, ok := rules[c.Alert]
		if !ok || c.Quiet == "" {
			t.Fatalf("testdata/alerts.yaml: %q is no alert, or has no time when it is quiet", c.Alert)
		}
		rings[c.Alert] = rings[c.Alert] || c.Rings != ""
		tests = append(tests, c.test(r))
	}
	for _, name := range names {
		if !rings[name] {
			t.Errorf("testdata/alerts.yaml has no case in which %s rings", name)
		}
	}
	if said, err := promtool(t, all, tests); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

func TestNoAlertRingsInGoodOrder(t *testing.T) {
	names, rules, all := alerts(t)
	series := map[string]string{}
	read(t, "good.yaml", &series)
	day := promtoolTest{Name: "good order", Interval: "1m", Series: inputs(series)}
	for minute := range 180 {
		for _, name := range names {
			day.Alerts = append(day.Alerts, promtoolAlert{At: fmt.Sprintf("%dm", minute), Name: name})
		}
	}
	if said, err := promtool(t, all, []promtoolTest{day}); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	// A day on which nothing is known is a good one too, for a rule that compares: so each must have something to
	// look at.
	for _, name := range names {
		seen := false
		for s := range series {
			metric, _, _ := strings.Cut(s, "{")
			seen = seen || slices.Contains(metrics(rules[name].Expr), metric)
		}
		if !seen {
			t.Errorf("testdata/good.yaml has none of what %s looks at", name)
		}
	}
}

var severities = []string{"critical", "warning", "info"}

// Whoever is woken up must be told what it is, how bad it is, and where it says what to do.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	const page = "https://github.com/clusterset-dns/clusterset-dns/blob/main/docs/troubleshoot.md#"
	text, err := os.ReadFile(filepath.Join(root, "docs/troubleshoot.md"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "deploy/monitoring/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var anchors []string
	for _, m := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(text), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		anchors = append(anchors, strings.ReplaceAll(name, " ", "-"))
	}
	names, rules, _ := alerts(t)
	for _, name := range names {
		r := rules[name]
		anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], page)
		if !ok || !slices.Contains(anchors, anchor) {
			t.Errorf("%s: docs/troubleshoot.md has no heading for %q", name, r.Annotations["runbook_url"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || len(r.Annotations) != 3 {
			t.Errorf(
				"%s: the annotations are %v, want summary, description and runbook_url",
				name,
				slices.Sorted(maps.Keys(r.Annotations)),
			)
		}
		if !slices.Contains(severities, r.Labels["severity"]) || len(r.Labels) != 1 {
			t.Errorf("%s: the labels are %v, want a severity of %v", name, r.Labels, severities)
		}
		if row := fmt.Sprintf(
			"| `%s` | %s | ",
			name,
			r.Labels["severity"],
		); !strings.Contains(
			string(readme),
			row,
		) {
			t.Errorf("deploy/monitoring/README.md has no row %q", row)
		}
	}
	if rows := strings.Count(string(readme), "\n| `Clusterset"); rows != len(names) {
		t.Errorf("deploy/monitoring/README.md lists %d alerts of %d", rows, len(names))
	}
}
