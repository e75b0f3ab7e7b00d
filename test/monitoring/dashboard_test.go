package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// dashboard is as much of Grafana's model as is checked.
type dashboard struct {
	UID        string
	Title      string
	Templating struct {
		List []struct {
			Name, Type string
			Datasource source
			Definition string
		}
	}
	Panels []panel
}

type source struct{ Type, UID string }

type panel struct {
	ID          int
	Type, Title string
	Datasource  source
	GridPos     struct{ X, Y, W, H int }
	Targets     []target
	Panels      []panel // of a row that is folded
}

type target struct {
	RefID, Expr string
	Datasource  source
}

func load(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/monitoring/grafana/clusterset-dns.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("deploy/monitoring/grafana/clusterset-dns.json: %v", err)
	}
	if len(d.Panels) == 0 || d.UID == "" || d.Title == "" {
		t.Fatalf("the dashboard has %d panels, uid %q, title %q", len(d.Panels), d.UID, d.Title)
	}
	return d
}

func TestDashboardTakesTheReadersDatasource(t *testing.T) {
	d := load(t)
	variables := map[string]string{}
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
		if v.Type == "query" && v.Datasource.UID != "${datasource}" {
			t.Errorf("variable %s asks the data source %q, which is somebody's own", v.Name, v.Datasource.UID)
		}
	}
	if variables["datasource"] != "datasource" {
		t.Errorf("the variables are %v: there is no datasource to choose", variables)
	}
	for _, p := range d.Panels {
		if p.Type != "row" && p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q asks the data source %q, which is somebody's own", p.Title, p.Datasource.UID)
		}
		for _, target := range p.Targets {
			if target.Datasource != p.Datasource {
				t.Errorf("panel %q, %s asks the data source %q", p.Title, target.RefID, target.Datasource.UID)
			}
			for _, m := range regexp.MustCompile(`"\$(\w+)"`).FindAllStringSubmatch(target.Expr, -1) {
				if variables[m[1]] != "query" {
					t.Errorf("panel %q: there is no variable %s", p.Title, m[1])
				}
			}
		}
	}
}

func TestPanelsHaveIDsAndPlacesOfTheirOwn(t *testing.T) {
	ids, places := map[int]string{}, map[[2]int]string{}
	for _, p := range load(t).Panels {
		if other, ok := ids[p.ID]; ok || p.ID == 0 {
			t.Errorf("panels %q and %q have the id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if p.Title == "" || p.Type != "row" && len(p.Targets) == 0 || len(p.Panels) > 0 {
			t.Errorf("panel %d, %q, shows nothing, or hides what it shows", p.ID, p.Title)
		}
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q stands at %+v, outside of 24 columns", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := places[[2]int{x, y}]; ok {
					t.Errorf("panels %q and %q overlap", other, p.Title)
					return
				}
				places[[2]int{x, y}] = p.Title
			}
		}
	}
}

// In both directions: a panel of nothing is empty for ever, and a metric that is shown nowhere might as well not
// be.
func TestDashboardShowsTheMetricsThatExist(t *testing.T) {
	known, shown := reference(t), map[string]bool{}
	d := load(t)
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		args, ok := strings.CutPrefix(strings.TrimSuffix(v.Definition, ")"), "label_values(")
		name, label, both := strings.Cut(args, ", ")
		if _, exists := known[name].labels[label]; !ok || !both || !exists {
			t.Errorf("variable %s: %s: no such metric or label", v.Name, v.Definition)
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			for _, what := range wrong(target.Expr, known) {
				t.Errorf("panel %q: %s", p.Title, what)
			}
			for _, name := range metrics(target.Expr) {
				shown[base(name, known)] = true
			}
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// A CoreDNS may be scraped twice (deploy/monitoring/README.md): only a maximum by Pod counts it once.
func TestDashboardCountsEachCoreDNSOnce(t *testing.T) {
	adds := regexp.MustCompile(`\b(count|sum|avg)\b.*\(coredns_`)
	for _, p := range load(t).Panels {
		for _, target := range p.Targets {
			if adds.MatchString(target.Expr) && !strings.Contains(target.Expr, "(max by (cluster, namespace, pod, ") {
				t.Errorf("panel %q adds up scrapes of one Pod: %s", p.Title, target.Expr)
			}
		}
	}
}
