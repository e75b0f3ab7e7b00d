package ui

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// TestAClusterIsWhatItsLeaseAndTheOthersSay: what a user sees of a cluster that has failed in some way.
func TestAClusterIsWhatItsLeaseAndTheOthersSay(t *testing.T) {
	silent := func(s *snapshot.Snapshot, id string) { *s.Hub.Lease(id) = lease(id, time.Minute) }
	for name, c := range map[string]struct {
		fault func(s *snapshot.Snapshot)
		state string // of west
		level report.Severity
		cell  string // of what west exports
	}{
		"well": {func(*snapshot.Snapshot) {}, "live", "", "west 1/1 50% "},
		"its agent does not renew, and others reach it": {func(s *snapshot.Snapshot) { silent(s, "west") },
			"expired, still used", report.Error, "west 1/1 50% "},
		"nobody could reach it": {func(s *snapshot.Snapshot) {
			silent(s, "west")
			reach.WriteAddresses(s.Hub.Lease("west"), nil)
		}, "expired", report.Error, "west 1/1 0% expired"},
		"its endpoints stay if it expires": {func(s *snapshot.Snapshot) {
			silent(s, "west")
			reach.WriteAddresses(s.Hub.Lease("west"), nil)
			s.Hub.Sets[0].Spec.Lease.OnExpiry = hubv1alpha1.ExpiryKeep
		}, "expired, still used", report.Error, "west 1/1 50% "},
		"it was killed a moment ago": {func(s *snapshot.Snapshot) {
			unreach(s, "east", "west")
			unreach(s, "south", "west")
		}, "unreachable", report.Error, "west 1/1 0% expired"},
		"it was killed": {func(s *snapshot.Snapshot) {
			silent(s, "west")
			unreach(s, "east", "west")
			unreach(s, "south", "west")
		}, "expired, unreachable", report.Error, "west 1/1 0% expired"},
		"one link is cut": {func(s *snapshot.Snapshot) { unreach(s, "east", "west") },
			"unreachable from east", report.Warning, "west 1/1 50% "},
		"it does not reach another": {func(s *snapshot.Snapshot) { unreach(s, "west", "east") },
			"live", "", "west 1/1 50% "},
		"it says that it does not reach itself": {func(s *snapshot.Snapshot) { unreach(s, "west", "west") },
			"live", "", "west 1/1 50% "},
		"it never renewed": {func(s *snapshot.Snapshot) {
			s.Hub.Leases = slices.DeleteFunc(s.Hub.Leases, func(l coordinationv1.Lease) bool {
				return l.Name == "west"
			})
		}, "joining", report.Error, "west 1/1 0% expired"},
		"what an expired cluster said of it": {func(s *snapshot.Snapshot) {
			silent(s, "east")
			unreach(s, "east", "west")
		}, "live", "", "west 1/1 50% "},
		"what is said of a cluster that was evicted": {func(s *snapshot.Snapshot) { unreach(s, "west", "north") },
			"live", "", "west 1/1 50% "},
	} {
		t.Run(name, func(t *testing.T) {
			s := hub("east", "south", "west")
			export(s, "east", "web", 1, 0)
			export(s, "west", "web", 1, 0)
			c.fault(s)
			v := look(s)
			if len(v.Clusters) != 3 {
				t.Errorf("%d clusters", len(v.Clusters))
			}
			if got := v.cluster(t, "west"); got.State != c.state || got.Level != c.level {
				t.Errorf("west is %q (%q), want %q (%q)", got.State, got.Level, c.state, c.level)
			}
			if got := v.cells("web.shop"); !slices.Contains(got, c.cell) {
				t.Errorf("%q, want %q", got, c.cell)
			}
			if i := slices.IndexFunc(v.Findings, func(f report.Finding) bool {
				return slices.Contains(f.About, "west")
			}); (i >= 0) != (c.level != "") || i >= 0 && v.Findings[i].Severity != c.level {
				t.Errorf("the findings do not agree with the level %q: %v", c.level, v.Findings)
			}
		})
	}
}

// TestNamesThatAreWrongComeFirst, with what is wrong.
func TestNamesThatAreWrongComeFirst(t *testing.T) {
	v := look(shop(t))
	var got []string
	for _, n := range v.Names {
		line := n.Name + " " + string(n.Level)
		for _, i := range n.Findings {
			line += " " + v.Findings[i].Check
		}
		got = append(got, line)
	}
	want := []string{"cart.shop error no-endpoint", "orders.shop warning exporter-idle", "web.shop warning conflict",
		"search.shop ", "api.shop ", "prices.shop "}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for name, want := range map[string][]string{
		"web.shop":    {"east 2/2 100% ", "west 1/1 0% port conflict"},
		"cart.shop":   {"east 0/2 0% "},
		"search.shop": {"east 1/1 100% ", "south 1/1 0% expired"},
		"prices.shop": {"east 1/1 -1% ", "west 1/1 -1% "},
	} {
		if got := v.cells(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestExplainSaysWhatTheHubKnows, of a name that it has.
func TestExplainSaysWhatTheHubKnows(t *testing.T) {
	w := check.See(shop(t), nil)
	got, err := Explain(w, "web.shop")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(got)
	for _, want := range []string{`"name":"web.shop.svc.clusterset.local"`, `"others":{"west":"http 8080/TCP"}`,
		`"outcome":"Unknown"`, `"ready":2`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(string(text), "none was published") {
		t.Errorf("something is withheld of an exporter with ready endpoints: %s", text)
	}
	if got, err := Explain(w, "none.shop"); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// TestAMembersPageSaysThatTheHubIsAway: it knows no members then.
func TestAMembersPageSaysThatTheHubIsAway(t *testing.T) {
	s := shop(t)
	if v := look(s); v.HubUnread {
		t.Error("the hub was read")
	}
	s.Member = &snapshot.Member{Now: now, Records: s.Hub.Records}
	s.Hub, s.Unread[snapshot.OfHub] = nil, snapshot.Lack{Why: "no answer"}
	v := look(s)
	if !v.HubUnread || len(v.Clusters) != 4 {
		t.Errorf("unread: %v, %+v", v.HubUnread, v.Clusters)
	}
	for _, c := range v.Clusters {
		if c.State != "hub not read" || c.Joined != "" { // by which the page knows a member
			t.Errorf("%+v", c)
		}
	}
}

// TestThePageHasNoCredential, neither in what others wrote nor in the path of the user's kubeconfig.
func TestThePageHasNoCredential(t *testing.T) {
	s := shop(t)
	s.Hub.Records[0].Spec.ExportedAnnotations = map[string]string{"note": "password: hunter2 </script>"}
	s.Hub.Profiles[0].Status.Version.Kubernetes = "v1 </script><script>alert(1)</script>"
	*s.Hub.Leader = lease(s.Hub.Leader.Name, time.Hour) // a finding with a step on the hub
	page, err := File(check.See(s, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"hunter2", "/home/jane", "<script>alert"} {
		if strings.Contains(string(page), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if !strings.Contains(string(page), "kubectl --context=hub -n clusterset-system") {
		t.Error("no step names the hub's context")
	}
}

// TestTheFileSaysWhereItsPartsAre: a file whose policy does not allow its own script shows nothing.
func TestTheFileSaysWhereItsPartsAre(t *testing.T) {
	page, err := File(check.See(hub("east"), nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][2]string{{"<style>", "</style>"}, {"<script>", "</script>"}} {
		_, rest, _ := strings.Cut(string(page), part[0])
		text, _, found := strings.Cut(rest, part[1])
		if !found || !strings.Contains(string(page), hash(text)) {
			t.Errorf("the policy does not have the hash of %s", part[0])
		}
	}
	for _, loaded := range []string{"src=", "href=\"style", "http:"} {
		if strings.Contains(strings.ReplaceAll(string(page), "http://www.w3.org/2000/svg", ""), loaded) {
			t.Errorf("the file has %s", loaded)
		}
	}
}

// TestPages writes prepared clustersets, with something wrong in each, for people to look at: UI_PAGES=DIR.
func TestPages(t *testing.T) {
	dir := os.Getenv("UI_PAGES")
	if dir == "" {
		t.Skip("UI_PAGES names no directory")
	}
	cut := shop(t)
	for _, id := range []string{"east", "west", "north"} {
		unreach(cut, id)
	}
	*cut.Hub.Lease("south") = lease("south", 3*time.Second)
	unreach(cut, "south", "east")
	unreach(cut, "east", "south")
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("edge-%02d", i))
	}
	large := hub(many...)
	for i := range 300 {
		for j := range 1 + i%5 {
			export(large, many[(7*i+j)%40], fmt.Sprintf("svc-%03d", i), 3, i%61/60)
		}
	}
	export(large, many[0], "svc-000x", 0, 2)
	*large.Hub.Lease("edge-07") = lease("edge-07", 10*time.Minute)
	unreach(large, "edge-11", "edge-20", "edge-21")
	unreach(large, "edge-12", "edge-20")
	for name, s := range map[string]*snapshot.Snapshot{"killed": shop(t), "cut": cut, "large": large,
		"well": hub("east", "west")} {
		page, err := File(check.See(s, nil))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".html"), page, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// shop has a conflict, a cluster that was killed, a name without endpoints, and one with a preference.
func shop(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	s := hub("east", "north", "south", "west")
	export(s, "east", "web", 2, 0)
	export(s, "west", "web", 1, 0).Ports[0].Port = 8080
	export(s, "east", "cart", 0, 2)
	export(s, "east", "search", 1, 0)
	export(s, "south", "search", 1, 0)
	export(s, "north", "api", 3, 0)
	export(s, "west", "api", 3, 0)
	export(s, "north", "orders", 0, 1)
	export(s, "west", "orders", 2, 0)
	for _, id := range []string{"east", "west"} {
		export(s, id, "prices", 1, 0).Preference = hubv1alpha1.PreferLocal
	}
	*s.Hub.Lease("south") = lease("south", 2*time.Minute)
	for _, id := range []string{"east", "north", "west"} {
		unreach(s, id, "south")
	}
	return s
}
