package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// finding is what status, explain and doctor have of one with -o json.
type finding struct{ Severity, Check, What, Remedy string }

// outcomes is what doctor says with -o json: findings, and checks that were skipped, with the reason.
func (e *environment) outcomes(t *testing.T, args ...string) (found []finding, skipped map[string]string) {
	t.Helper()
	r := e.run(t, append([]string{"doctor", "-o", "json"}, args...)...)
	var report struct {
		Outcomes []struct {
			Check, Skipped string
			Findings       []finding
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("doctor -o json: %v\n%s%s", err, r.stdout, r.stderr)
	}
	skipped = map[string]string{}
	for _, o := range report.Outcomes {
		if o.Skipped != "" {
			skipped[o.Check] = o.Skipped
		}
		found = append(found, o.Findings...)
	}
	isError := func(f finding) bool { return f.Severity == "error" }
	if code := r.code(); (code == 2) != slices.ContainsFunc(found, isError) || code != 0 && code != 2 {
		t.Errorf("the exit status is %d with %v", code, found)
	}
	return found, skipped
}

// others are what status and explain find, each by its name. explain asks with the agent's credentials, and its steps
// do not name the hub.
func (e *environment) others(t *testing.T) map[string][]finding {
	t.Helper()
	out := map[string][]finding{}
	east, hub := eastAndHub[0], eastAndHub[1]
	for _, command := range [][]string{{"status", east, hub}, {"explain", "web.shop", east}} {
		r := e.run(t, append(command, "-o", "json")...)
		var report struct{ Findings []finding }
		if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
			t.Fatalf("%s -o json: %v\n%s%s", command[0], err, r.stdout, r.stderr)
		}
		out[command[0]] = report.Findings
	}
	return out
}

// sound waits until doctor finds nothing. The API server's authorizer, which it asks, and policies follow what is
// written by watches.
func (e *environment) sound(t *testing.T, what string) {
	t.Helper()
	eventually(t, what, func(context.Context) error {
		if found, skipped := e.outcomes(t, eastAndHub...); len(found)+len(skipped) > 0 {
			return fmt.Errorf("doctor finds %v and skips %v", found, skipped)
		}
		return nil
	})
}

var eastAndHub = []string{"--context=east", "--hub-context=hub"}

// TestDoctorFindsWhatIsWrongInRealClusters plants mistakes in clusters as the table of internal/check plants them in
// snapshots. Each is one finding, the same in doctor, status and explain. Where its step repairs something, that is run
// as it is printed, and the mistake is gone.
func TestDoctorFindsWhatIsWrongInRealClusters(t *testing.T) { setUp(t).plant(t, mistakes) }

// TestDoctorFindsWhatIsSeenLate is the same for what is seen when a Lease expires, or an agent asks for its rights.
func TestDoctorFindsWhatIsSeenLate(t *testing.T) { setUp(t).plant(t, late) }

func (e *environment) plant(t *testing.T, mistakes []mistake) {
	t.Helper()
	e.nodes(t, "hub", "east")
	e.ok(t, "init", "--context", "hub")
	e.ok(t, "join", "--context", "east", "--hub-context", "hub", "--cluster-id", "east")
	e.coredns(t, "east")
	e.export(t, "east", "shop", "web")
	eventually(t, "web.shop in east",
		func(ctx context.Context) error { return e.imported(ctx, "east", "shop", "web", 1) })
	e.sound(t, "a sound member")
	eventually(t, "without the hub admin's credentials", func(context.Context) error {
		found, skipped := e.outcomes(t, "--context", "east")
		if got := slices.Sorted(maps.Keys(skipped)); len(found) > 0 || !slices.Equal(got,
			[]string{"hub-controller", "hub-drift"}) {
			return fmt.Errorf("doctor finds %v and skips %v", found, got)
		}
		return nil
	})
	repaired := 0
	for _, m := range mistakes {
		if m.from != "" && lab.KubernetesVersion < m.from {
			continue
		}
		if !t.Run(strings.Join(strings.Fields(m.what)[:2], "_"), func(t *testing.T) {
			e.shell(t, m.plant)
			var is finding
			eventually(t, m.what, func(context.Context) error {
				found, _ := e.outcomes(t, eastAndHub...)
				if len(found) != 1 || !strings.Contains(found[0].What, m.what) {
					return fmt.Errorf("doctor finds %v", found)
				}
				is = found[0]
				for view, those := range e.others(t) {
					if !slices.Contains(m.not, view) && (len(those) != 1 || those[0].What != is.What) {
						return fmt.Errorf("%s has %v, and doctor %v", view, those, is)
					}
				}
				return nil
			})
			if m.undo == "" {
				repaired++
				e.shell(t, is.Remedy)
			} else {
				t.Logf("%s → %s", is.What, is.Remedy)
				e.shell(t, m.undo)
			}
			e.sound(t, m.what+": repaired by "+is.Remedy)
		}) {
			t.FailNow() // what is broken would be found beside the others
		}
	}
	t.Logf("%d mistakes; the step that is printed repairs %d", len(mistakes), repaired)
	e.ok(t, "leave", "--yes", "--context", "east", "--hub-context", "hub")
	e.noCoreDNS(t, "east")
	e.forget(t, "shop")
}

// shell runs what an admin types, in a folder of the test's.
func (e *environment) shell(t *testing.T, script string) {
	t.Helper()
	bin, err := lab.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(e.dir, "path")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bin.Kubectl, filepath.Join(dir, "kubectl")); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", "east() { kubectl --context=east \"$@\"; }\n"+
		"hub() { kubectl --context=hub \"$@\"; }\nset -o pipefail\n"+script)
	cmd.Dir = e.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig, "HOME=/home/admin", "DIR="+e.dir, "PATH="+dir+":"+
		filepath.Join(e.root, "bin")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// fewRequests: one doctor is at most 40 requests in a member and 20 at the hub.
func (e *environment) fewRequests(t *testing.T) {
	t.Helper()
	w := e.through(t, "east", "hub")
	e.run(t, "doctor", "--kubeconfig", w.kubeconfig, "--context", "east", "--hub-context", "hub")
	for cluster, most := range map[string]int{"east": 40, "hub": 20} {
		if n := len(w.requests[cluster]); n == 0 || n > most {
			t.Errorf("%d requests in %s, want at most %d:\n%s", n, cluster, most,
				strings.Join(w.requests[cluster], "\n"))
		} else {
			t.Logf("%d requests in %s", n, cluster)
		}
	}
}

func (e *environment) noCoreDNS(t *testing.T, cluster string) {
	t.Helper()
	for _, args := range [][]string{{"delete", "-k", filepath.Join(e.root, "deploy/coredns")},
		{"delete", "-f", filepath.Join(e.root, "deploy/coredns/bare.yaml")},
		{"-n", "kube-system", "delete", "configmap", "coredns"}, {"delete", "crd",
			"serviceexports.multicluster.x-k8s.io", "serviceimports.multicluster.x-k8s.io"}} {
		if _, err := e.planes[cluster].Kubectl(t.Context(), "", args...); err != nil {
			t.Error(err)
		}
	}
}

// coredns gives a cluster what kubeadm and deploy/coredns would.
func (e *environment) coredns(t *testing.T, cluster string) {
	t.Helper()
	bare, err := os.ReadFile(filepath.Join(e.root, "deploy/coredns/bare.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	corefile, err := os.ReadFile(filepath.Join(e.root, "corefile.example"))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.planes[cluster].Apply(t.Context(), string(bare)); err != nil {
		t.Fatal(err)
	}
	if err := e.planes[cluster].ApplyFolder(t.Context(), filepath.Join(e.root, "deploy/coredns")); err != nil {
		t.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Data: map[string]string{"Corefile": string(corefile)}}
	if err := e.admin[cluster].Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// mistake is what an admin might have typed.
type mistake struct {
	what  string // a part of the finding
	plant string
	undo  string   // if the finding's step only shows something; "" runs the step
	not   []string // which do not show it
	from  string   // the first version of Kubernetes that has what it needs
}

const (
	setCorefile = `east -n kube-system create configmap coredns --dry-run=client -o yaml --from-file=Corefile=%s |
		east apply --server-side --force-conflicts -f -`
)

// corefile replaces the Corefile of east.
func corefile(text string) string {
	return fmt.Sprintf(setCorefile, "<(cat <<'EOF'\n"+text+"\nEOF\n)")
}

var (
	usual    = fmt.Sprintf(setCorefile, "corefile.example")
	mistakes = []mistake{
		{what: "ValidatingAdmissionPolicyBinding clusterset-id.clusterset-dns.io is missing",
			plant: `east delete validatingadmissionpolicybinding clusterset-id.clusterset-dns.io`},
		{what: "kind ServiceImport is not served", plant: `east delete crd serviceimports.multicluster.x-k8s.io`},
		{what: "ClusterRoleBinding clusterset-dns:agent is missing",
			plant: `east delete clusterrolebinding clusterset-dns:agent`},
		{what: "ClusterRoleBinding clusterset-dns:agent-membership is missing",
			plant: `east delete clusterrolebinding clusterset-dns:agent-membership`},
		{what: "ClusterRoleBinding clusterset-dns:coredns is missing",
			plant: `east delete clusterrolebinding clusterset-dns:coredns`, undo: `east apply -k deploy/coredns`},
		{what: "does not answer clusterset.local", plant: corefile(".:53 {\n kubernetes cluster.local\n reload\n}"),
			undo: usual},
		{what: "multicluster is in a server block that gets no question for it", plant: corefile(
			".:53 {\n kubernetes cluster.local\n reload\n}\nexample.org:53 {\n multicluster clusterset.local\n}"),
			undo: usual},
		{what: "CoreDNS cannot use its Corefile", plant: corefile(".:53 {\n kubernetes cluster.local\n"), undo: usual},
		{what: "the Corefile hides names of shop", plant: corefile(".:53 {\n kubernetes cluster.local\n reload\n" +
			" multicluster clusterset.local {\n namespaces other\n }\n}"), undo: usual},
		{what: "NodeLocal DNS of its own", plant: `east -n kube-system create -f test/cli/testdata/node-cache.yaml`,
			undo: `east -n kube-system delete -f test/cli/testdata/node-cache.yaml`},
		{what: "ValidatingAdmissionPolicy clusterset-records.clusterset-dns.io is missing",
			plant: `hub delete validatingadmissionpolicy clusterset-records.clusterset-dns.io`,
			not:   []string{"explain"}},
		{what: "lacks the label", plant: `hub label namespace clusterset multicluster.x-k8s.io/clusterset-`,
			not: []string{"explain"}},
		{what: "does not have exactly one ClusterSet", plant: `hub -n clusterset delete clusterset clusterset`},
		{what: "the agent did not create the ServiceImport stray.default", plant: `east create -f - <<'EOF'
{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceImport, metadata: {namespace: default, name: stray},
 spec: {type: Headless, ports: []}}
EOF`, undo: `east delete serviceimport stray`, not: []string{"explain"}},
		{what: "overlap: 10.96.4.0/24 and 10.96.0.0/16", plant: `east create -f - <<'EOF'
{apiVersion: v1, kind: Node, metadata: {name: stray}, spec: {podCIDR: 10.96.4.0/24, podCIDRs: [10.96.4.0/24]}}
EOF`, undo: `east delete node stray`, from: "v1.33"},
		{what: "the export of web.shop here is not valid: NoService", plant: `east -n shop get service web -o yaml |
	sed '/resourceVersion:/d; /uid:/d' >"$DIR/service.yaml"; east -n shop delete service web`,
			undo: `east create -f "$DIR/service.yaml"`},
		{what: "the export of web.shop is not on the hub", plant: `
hub -n clusterset create quota none --hard=count/serviceexportrecords.hub.clusterset-dns.io=0
hub -n clusterset wait --for=jsonpath='{.status.hard}' quota none
hub -n clusterset delete serviceexportrecords --all`, undo: `hub -n clusterset delete quota none`},
		{what: "no cluster has a ready endpoint of web.shop", plant: `east -n shop patch endpointslice web-1 ` +
			`--type=json -p '[{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": false}]'`,
			undo: `east -n shop patch endpointslice web-1 --type=json -p ` +
				`'[{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": true}]'`},
		{what: "the export of web.shop goes to a cluster that is no member: weast", plant: `east -n shop annotate ` +
			`serviceexport web ` + clusterset.AnnotationExportTo + `=cluster=east,cluster=weast`,
			undo: `east -n shop annotate serviceexport web ` + clusterset.AnnotationExportTo + `-`},
	}
	late = []mistake{
		{what: "Deployment clusterset-controller is scaled to 0",
			plant: `east -n clusterset-system scale deployment clusterset-controller --replicas=0`},
		{what: "the agent is not there",
			plant: `east -n clusterset-system delete deployment clusterset-controller`},
		{what: "The hub refuses the agent's token", plant: `east -n clusterset-system patch secret ` +
			`hub-kubeconfig -p '{"stringData": {"token": "nonsense"}}'`},
		{what: "The hub does not let this member read or write",
			plant: `hub -n clusterset delete rolebinding mcs-east`},
		{what: "create serviceaccounts/token", plant: `hub -n clusterset delete rolebinding mcs-east:token`},
		{what: "the hub does not know this cluster as a member",
			plant: `hub -n clusterset delete clusterprofile east`, not: []string{"explain"}},
		{what: "the hub's controller does not run as it should",
			plant: `hub -n clusterset-system scale deployment clusterset-hub --replicas=0`,
			not:   []string{"explain"}},
	}
)
