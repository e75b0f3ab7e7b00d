package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

// metric is a row of docs/reference.md, whose names docs_test.go compares with the code.
type metric struct {
	kind   string
	labels map[string][]string // to the values that there are; none: open
}

// bears are labels that every series of a program has (ID6), beside the metric's own.
var bears = map[string][]string{
	"clusterset_agent_": {"cluster", "clusterset"},
	"clusterset_hub_":   {"clusterset"},
}

// scraped are labels that Prometheus adds; cluster is an external label, where one has several clusters.
var scraped = []string{"cluster", "namespace", "pod", "job"}

func reference(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metric{}
	row := regexp.MustCompile("(?m)^\\| `((?:coredns|clusterset)_[a-z_]+)` \\| (gauge|counter|histogram) \\|([^|]*)\\|")
	quoted := regexp.MustCompile("`([a-z_]+)`")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = metric{m[2], map[string][]string{}}
		for one := range strings.SplitSeq(m[3], ";") {
			name, values, _ := strings.Cut(one, ":")
			if label := quoted.FindStringSubmatch(name); label != nil {
				out[m[1]].labels[label[1]] = nil
				for _, v := range quoted.FindAllStringSubmatch(values, -1) {
					out[m[1]].labels[label[1]] = append(out[m[1]].labels[label[1]], v[1])
				}
			}
		}
		for prefix, labels := range bears {
			if strings.HasPrefix(m[1], prefix) {
				add(out[m[1]].labels, labels)
			}
		}
		add(out[m[1]].labels, scraped)
	}
	if len(out) == 0 {
		t.Fatal("docs/reference.md lists no metrics")
	}
	conditions := out["clusterset_agent_condition"].labels
	conditions["condition"], conditions["reason"] = health.Order, health.Names()
	return out
}

func add(to map[string][]string, labels []string) {
	for _, l := range labels {
		to[l] = nil
	}
}

var (
	quotes    = regexp.MustCompile(`"[^"]*"`)
	grouping  = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	ranges    = regexp.MustCompile(`\[[^\]]*\]`)
	braces    = regexp.MustCompile(`\{[^}]*\}`)
	numbers   = regexp.MustCompile(`\b\d[\w.]*`)
	selectors = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}`)
	words     = regexp.MustCompile(`[a-zA-Z_:][\w:]*\s*\(?`)
	matcher   = regexp.MustCompile(`^\s*(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"\s*$`)
	named     = regexp.MustCompile(`__name__=~"([^"]*)"`)
	operators = []string{"and", "or", "unless", "bool", "offset", "inf", "nan"}
)

// metrics are the names in an expression: words that are no function, operator, label or string, and those that a
// matcher of __name__ lists.
func metrics(expr string) (out []string) {
	for _, m := range named.FindAllStringSubmatch(expr, -1) {
		for name := range strings.SplitSeq(m[1], "|") {
			if before, rest, ok := strings.Cut(name, "("); ok { // one part that may be missing
				part, after, _ := strings.Cut(rest, ")?")
				out, name = append(out, before+part+after), before+after
			}
			out = append(out, name)
		}
	}
	rest := braces.ReplaceAllString(quotes.ReplaceAllString(expr, ""), "")
	rest = ranges.ReplaceAllString(grouping.ReplaceAllString(rest, ""), "")
	rest = numbers.ReplaceAllString(rest, "")
	for _, w := range words.FindAllString(rest, -1) {
		if !strings.HasSuffix(w, "(") && !slices.Contains(operators, strings.ToLower(strings.TrimSpace(w))) {
			out = append(out, strings.TrimSpace(w))
		}
	}
	return out
}

// base is a histogram's name without the ending of a series of it.
func base(name string, known map[string]metric) string {
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if b, ok := strings.CutSuffix(name, end); ok && known[b].kind == "histogram" {
			return b
		}
	}
	return name
}

// wrong is what an expression names that no program of ours shows.
func wrong(expr string, known map[string]metric) (out []string) {
	names := metrics(expr)
	if len(names) == 0 {
		return []string{"it looks at no metric"}
	}
	for _, name := range names {
		m, ok := known[base(name, known)]
		switch {
		case !ok:
			out = append(out, "there is no metric "+name)
		case m.kind == "histogram" && base(name, known) == name:
			out = append(out, name+" is a histogram: its series are _bucket, _sum and _count")
		case (m.kind == "counter" || m.kind == "histogram") &&
			!regexp.MustCompile(`\b(rate|increase)\(`+name+`\b[^)]*\[`).MatchString(expr):
			out = append(out, name+" only grows: take its rate or increase")
		}
	}
	for _, sel := range selectors.FindAllStringSubmatch(expr, -1) {
		for _, m := range strings.Split(sel[2], ",") {
			out = append(out, wrongMatcher(base(sel[1], known), m, known)...)
		}
	}
	for _, at := range grouping.FindAllStringSubmatchIndex(expr, -1) {
		of := names
		if expr[at[2]:at[3]] == "by" {
			of = metrics(within(expr[at[1]:]))
		}
		for _, label := range strings.Split(expr[at[4]:at[5]], ",") {
			label = strings.TrimSpace(label)
			for _, name := range of {
				if _, ok := known[base(name, known)].labels[label]; !ok && label != "le" {
					out = append(out, name+" has no label "+label)
				}
			}
		}
	}
	return out
}

// within returns what the first parentheses of an expression enclose.
func within(expr string) string {
	depth := 0
	for i, c := range expr {
		switch c {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return expr[:i]
			}
		}
	}
	return expr
}

func wrongMatcher(name, text string, known map[string]metric) (out []string) {
	m := matcher.FindStringSubmatch(text)
	if m == nil {
		return []string{"cannot read the matcher " + text}
	}
	values, ok := known[name].labels[m[1]]
	if !ok {
		out = append(out, name+" has no label "+m[1])
	}
	all := []string{m[3]}
	if strings.Contains(m[2], "~") {
		all = strings.Split(m[3], "|")
	}
	for _, value := range all {
		if len(values) > 0 && value != "" && !slices.Contains(values, value) {
			out = append(out, fmt.Sprintf("label %s of %s is never %q but one of %v", m[1], name, value, values))
		}
	}
	return out
}

func TestRulesNameMetricsThatExist(t *testing.T) {
	known := reference(t)
	names, rules, _ := alerts(t)
	for _, name := range names {
		for _, what := range wrong(rules[name].Expr, known) {
			t.Errorf("%s: %s", name, what)
		}
	}
}

// What promtool is fed must be what Prometheus would scrape.
func TestCasesAreOfSeriesThatExist(t *testing.T) {
	known := reference(t)
	var cases []alertCase
	read(t, "alerts.yaml", &cases)
	good := map[string]string{}
	read(t, "good.yaml", &good)
	for _, c := range append(cases, alertCase{Alert: "good.yaml", Series: good}) {
		for s := range c.Series {
			name, labels, ok := strings.Cut(strings.TrimSuffix(s, "}"), "{")
			if _, exists := known[name]; !exists || !ok {
				t.Errorf("%s: there is no metric %s", c.Alert, name)
			}
			for _, l := range strings.Split(labels, ",") {
				for _, what := range wrongMatcher(name, l, known) {
					t.Errorf("%s: %s", c.Alert, what)
				}
			}
			for prefix, must := range bears {
				for _, l := range must {
					if strings.HasPrefix(name, prefix) && !regexp.MustCompile(`[{,]`+l+`="`).MatchString(s) {
						t.Errorf("%s: %s lacks %s, which every series of it bears", c.Alert, s, l)
					}
				}
			}
		}
	}
}

// The reader of expressions must find what is wrong; a test of it, since nothing else would tell.
func TestWrongExpressionsAreFound(t *testing.T) {
	known := map[string]metric{
		"a_live":    {"gauge", map[string][]string{"state": {"on", "off"}, "pod": nil}},
		"b_total":   {"counter", map[string][]string{"pod": nil}},
		"c_seconds": {"histogram", map[string][]string{"pod": nil}},
		"d_open":    {"gauge", map[string][]string{"pod": nil}},
	}
	for _, expr := range []string{
		`max by (pod, state) (a_live{state="on"}) == 1 unless on (pod) a_live{pod=~"$pod"} > 0.5e3`,
		`sum(increase(b_total[1h])) > 3 and time() - a_live > 300`,
		`max by (pod, state) (a_live{state=~"on|off"}) > 0 and on (pod) max by (pod) (d_open) == 1`,
		`time() - max({__name__=~"a_live|d_open"} > 0)`,
		`histogram_quantile(0.99, sum by (le) (rate(c_seconds_bucket[$__rate_interval])))`,
	} {
		if what := wrong(expr, known); what != nil {
			t.Errorf("%s is right, and is refused: %v", expr, what)
		}
	}
	for _, expr := range []string{
		`a_dead == 1`, `absent(nothing)`, `a_live{state="maybe"}`, `a_live{colour="on"}`, `max by (node) (a_live)`,
		`a_live{state=~"on|maybe"}`, `max by (pod, state) (d_open) and on (pod) max by (pod) (a_live)`,
		`b_total > 3`, `c_seconds > 3`, `time() > 3`,
		`a_live and b_gone`, `max({__name__=~"a_live|a_dead"})`, `max({__name__=~"a(_dead)?_live"})`,
		`rate(a_live_bucket[5m])`,
	} {
		if wrong(expr, known) == nil {
			t.Errorf("%s is wrong, and is not found", expr)
		}
	}
}
