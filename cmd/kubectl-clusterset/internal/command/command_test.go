package command

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
)

// TestWithoutAContextNoClusterIsAsked: clients would ask localhost.
func TestWithoutAContextNoClusterIsAsked(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, args := range [][]string{{"status"}, {"init"}, {"explain", "web.shop"}} {
		cmd := New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "the kubeconfig has no current context\n  → ") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestAMistypedContextIsSaidWithWhereTheyAreListed, by every command.
func TestAMistypedContextIsSaidWithWhereTheyAreListed(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for _, args := range [][]string{{"status"}, {"explain", "web.shop"}, {"export", "web"}} {
		cmd := New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs(append(args, "--context=eest"))
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "eest") || !strings.Contains(err.Error(), "\n  → ") ||
			!strings.Contains(err.Error(), "kubectl config get-contexts") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestExplainTakesTheHub as status and doctor do.
func TestExplainTakesTheHub(t *testing.T) {
	serve(t, map[string]string{"/version": `{"gitVersion": "v1.36.0"}`}, http.StatusNotFound)
	var out strings.Builder
	cmd := New("v0.0.0-test", &out, io.Discard)
	cmd.SetArgs([]string{"explain", "web.shop", "--hub-context=east"})
	if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "web.shop.svc.") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestEvictAsksAsLeaveDoes.
func TestEvictAsksAsLeaveDoes(t *testing.T) {
	const profiles = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/clusterset/clusterprofiles"
	const east = `{"kind": "ClusterProfile", "apiVersion": "multicluster.x-k8s.io/v1alpha1", "metadata": {"namespace":
		"clusterset", "name": "east", "uid": "u", "resourceVersion": "1"}, "spec": {"clusterManager": {"name":
		"clusterset-dns"}}}`
	serve(t, map[string]string{
		"/version": `{"gitVersion": "v1.36.0"}`,
		"/api":     `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "multicluster.x-k8s.io",
			"versions": [{"groupVersion": "multicluster.x-k8s.io/v1alpha1", "version": "v1alpha1"}]}]}`,
		"/apis/multicluster.x-k8s.io/v1alpha1": `{"kind": "APIResourceList", "groupVersion":
			"multicluster.x-k8s.io/v1alpha1", "resources": [{"name": "clusterprofiles", "kind": "ClusterProfile",
			"namespaced": true}]}`,
		profiles: `{"kind": "ClusterProfileList", "apiVersion": "multicluster.x-k8s.io/v1alpha1", "items": [` +
			east + `]}`,
	}, http.StatusNotFound)
	for flag, asks := range map[string]bool{"--timeout=1s": true, "--yes": false} {
		var out strings.Builder
		cmd := New("v0.0.0-test", &out, io.Discard)
		cmd.SetIn(strings.NewReader("")) // of no terminal
		cmd.SetArgs([]string{"evict", "east", flag})
		err := cmd.ExecuteContext(t.Context())
		if errors.Is(err, cluster.ErrDeclined) != asks || strings.Contains(out.String(), "[y/N]") != asks {
			t.Errorf("%s: %v\n%s", flag, err, &out)
		}
	}
}

// TestWrongArgumentsExitAsFailuresOfTheirCommandDo: 1 means something else in doctor and verify.
func TestWrongArgumentsExitAsFailuresOfTheirCommandDo(t *testing.T) {
	for line, want := range map[string]int{
		"status x": 1, "join x": 1, "dns install x": 1, "leave a b": 1, "evict a b": 1, "explain": 1, "plan a b": 1,
		"status --none": 1, "doctor x": 2, "doctor --none": 2, "verify web shop": 2, "verify --none": 2,
	} {
		cmd := New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs(strings.Fields(line))
		err := cmd.ExecuteContext(t.Context())
		if text, code := Ended(cmd, err); code != want || !strings.Contains(text, "\n  → ") {
			t.Errorf("%s: exit status %d, want %d: %v", line, code, want, err)
		}
	}
}

// TestFlagsWithoutEffectAreRefused.
func TestFlagsWithoutEffectAreRefused(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	for line, want := range map[string]string{
		"verify web.shop --with west":    "--with",
		"status --hub-only --from x":     "[from hub-only]",
		"ui --hub-only --from x":         "[from hub-only]",
		"dns install --replace --beside": "[replace beside]",
		"doctor --from x --context west": "have no effect with --from",
		"ui --from x --hub-context hub":  "have no effect with --from",
		"plan web.shop -o wide":          "must be one of json|yaml|jsonpath=\n",
		"verify -o wide":                 "must be one of json|yaml|jsonpath=\n",
	} {
		cmd := New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs(strings.Fields(line))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestRemediesNameTheNamespaceOfTheCredentials: join would look for another ClusterSet, and init would make one.
func TestRemediesNameTheNamespaceOfTheCredentials(t *testing.T) {
	token := "a." + base64.RawURLEncoding.EncodeToString(
		[]byte(`{"iat": 1, "exp": 2, "sub": "system:serviceaccount:blue:mcs-east"}`)) + ".c"
	answers := map[string]string{
		"/version": `{"gitVersion": "v1.36.0"}`,
		"/api":     `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis":    `{"kind": "APIGroupList", "apiVersion": "v1"}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "secrets",
			"kind": "Secret", "namespaced": true}]}`,
		"/api/v1/namespaces/clusterset-system/secrets/hub-kubeconfig": `{"kind": "Secret", "apiVersion": "v1",
			"data": {"token": "` + base64.StdEncoding.EncodeToString([]byte(token)) + `"}}`,
	}
	answers["/apis/about.k8s.io/v1beta1/clusterproperties"] = `{"kind": "ClusterPropertyList", "apiVersion":
		"about.k8s.io/v1beta1", "items": [{"metadata": {"name": "clusterset.k8s.io"}, "spec": {"value": "green"}}]}`
	answers["/apis/hub.clusterset-dns.io/v1alpha1/memberships"] = `{"kind": "MembershipList", "apiVersion":
		"hub.clusterset-dns.io/v1alpha1", "items": [{"status": {"conditions": [{"type": "CredentialsValid",
		"status": "False", "reason": "NoCredentials", "message": "there is no kubeconfig"}]}}]}`
	serve(t, answers, http.StatusForbidden)
	var out strings.Builder
	cmd := New("v0.0.0-test", &out, io.Discard)
	cmd.SetArgs([]string{"doctor"})
	_ = cmd.ExecuteContext(t.Context()) // there are findings
	if want := "join --renew --hub-context=HUB --hub-namespace=blue"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// TestWhoLacksRightsSeesWhat the API server says.
func TestWhoLacksRightsSeesWhat(t *testing.T) {
	answers := map[string]string{
		"/version": `{"gitVersion": "v1.36.0"}`,
		"/api":     `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [
			{"name": "about.k8s.io", "versions": [{"groupVersion": "about.k8s.io/v1beta1", "version": "v1beta1"}]},
			{"name": "hub.clusterset-dns.io", "versions": [{"groupVersion": "hub.clusterset-dns.io/v1alpha1",
			"version": "v1alpha1"}]}]}`,
	}
	for path, kind := range map[string]string{"/api/v1": "Namespace", "/apis/about.k8s.io/v1beta1": "ClusterProperty",
		"/apis/hub.clusterset-dns.io/v1alpha1": "ClusterSet"} {
		answers[path] = `{"kind": "APIResourceList", "groupVersion": "` + path[strings.Index(path[1:], "/")+2:] +
			`", "resources": [{"name": "some", "kind": "` + kind + `"}]}`
	}
	serve(t, answers, http.StatusForbidden)
	for _, args := range [][]string{{"status"}, {"init", "--image=r/c:v1"}, {"join", "--hub-context=east"}} {
		cmd := New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), `User "u" cannot`) {
			t.Errorf("%v: %v", args, err)
		}
		if text, code := Ended(cmd, err); text == "" || code != 1 {
			t.Errorf("%v: exit status %d, printed: %q", args, code, text)
		}
	}
}

// TestAPlanWithoutAHubSaysWhichStepIsMissing: the agent's credentials may be fine. No step changes an archive.
func TestAPlanWithoutAHubSaysWhichStepIsMissing(t *testing.T) {
	const member = `{"metadata": {"name": "clusterset.k8s.io"}, "spec": {"value": "blue"}}`
	for _, c := range []struct {
		properties string
		otherwise  int
		want       string
	}{
		{member, http.StatusForbidden, `credentials for the hub failed: User "u" cannot get path "/"` + "\n  → " +
			"--hub-context CONTEXT, or --cluster-id ID with the hub's --context"},
		{"", http.StatusNotFound, "this cluster is a member of no ClusterSet\n  → kubectl clusterset join "},
	} {
		serve(t, map[string]string{
			"/version": `{"gitVersion": "v1.36.0"}`,
			"/apis/about.k8s.io/v1beta1/clusterproperties": `{"kind": "ClusterPropertyList", "apiVersion":
				"about.k8s.io/v1beta1", "items": [` + c.properties + `]}`,
		}, c.otherwise)
		cmd := New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs([]string{"plan", "web.shop"})
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		file := filepath.Join(t.TempDir(), "east.tar.gz")
		cmd = New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs([]string{"gather", "-f", file})
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		cmd.SetArgs([]string{"plan", "web.shop", "--from", file})
		if err := cmd.ExecuteContext(t.Context()); err == nil ||
			!strings.HasPrefix(err.Error(), "reading the hub failed: ") || strings.Contains(err.Error(), "\n  → ") {
			t.Errorf("of an archive: %v", err)
		}
	}
}

// TestAPlanOfNothingFails: in CI, a mistyped folder would pass.
func TestAPlanOfNothingFails(t *testing.T) {
	serve(t, nil, http.StatusForbidden)
	file := filepath.Join(t.TempDir(), "shop.yaml")
	text := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := New("v0.0.0-test", io.Discard, io.Discard)
	cmd.SetArgs([]string{"plan", "-f", file})
	err := cmd.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), file+" has no ServiceExport and no Service") {
		t.Errorf("it ends with %v", err)
	}
}

// TestAnArchiveThatLacksMuchSaysSo.
func TestAnArchiveThatLacksMuchSaysSo(t *testing.T) {
	serve(t, map[string]string{"/version": `{"gitVersion": "v1.36.0"}`}, http.StatusForbidden)
	var said strings.Builder
	cmd := New("v0.0.0-test", io.Discard, &said)
	cmd.SetArgs([]string{"gather", "-f", filepath.Join(t.TempDir(), "east.tar.gz")})
	err := cmd.ExecuteContext(t.Context())
	if err != nil || !strings.Contains(said.String(), " things could not be read: see errors.txt in it\n") {
		t.Errorf("%v\n%s", err, &said)
	}
}

// TestAnArchiveHasNoPathOfAKubeconfig, which names the user, also not in the steps of its reports.
func TestAnArchiveHasNoPathOfAKubeconfig(t *testing.T) {
	serve(t, map[string]string{"/version": `{"gitVersion": "v1.20.0"}`,
		"/apis/about.k8s.io/v1beta1/clusterproperties": `{"kind": "ClusterPropertyList",
			"apiVersion": "about.k8s.io/v1beta1", "items": []}`}, http.StatusNotFound)
	kubeconfig, file := os.Getenv("KUBECONFIG"), filepath.Join(t.TempDir(), "east.tar.gz")
	cmd := New("v0.0.0-test", io.Discard, io.Discard)
	cmd.SetArgs([]string{"gather", "-f", file, "--kubeconfig=" + kubeconfig, "--hub-kubeconfig=" + kubeconfig})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	zipped, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer zipped.Close()
	unzipped, err := gzip.NewReader(zipped)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil || !strings.Contains(string(text), "  → kubectl clusterset join") ||
		strings.Contains(string(text), kubeconfig) {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestTheArchivesPageCanBeRead, also if a namespace is called like a credential: the page maps names to what they are.
func TestTheArchivesPageCanBeRead(t *testing.T) {
	serve(t, map[string]string{"/version": `{"gitVersion": "v1.36.0"}`,
		"/apis/multicluster.x-k8s.io/v1beta1/serviceimports": `{"kind": "ServiceImportList", "apiVersion":
			"multicluster.x-k8s.io/v1beta1", "items": [{"metadata": {"namespace": "vault-secret", "name": "web"}}]}`,
	}, http.StatusNotFound)
	file := filepath.Join(t.TempDir(), "east.tar.gz")
	cmd := New("v0.0.0-test", io.Discard, io.Discard)
	cmd.SetArgs([]string{"gather", "-f", file})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	zipped, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ := strings.Cut(string(text), `<script type="application/json" id="data">`)
	data, _, _ = strings.Cut(data, "</script>")
	var page struct{ Explained map[string]any }
	if err := json.Unmarshal([]byte(data), &page); err != nil || page.Explained["web.vault-secret"] == nil {
		t.Errorf("%v\n%s", err, data)
	}
}

// TestAGatherThatFailsLeavesNoArchive: the next one would fail because there is one.
func TestAGatherThatFailsLeavesNoArchive(t *testing.T) {
	serve(t, nil, http.StatusServiceUnavailable)
	file := filepath.Join(t.TempDir(), "east.tar.gz")
	cmd := New("v0.0.0-test", io.Discard, io.Discard)
	cmd.SetArgs([]string{"gather", "-f", file})
	if err := cmd.ExecuteContext(t.Context()); err == nil {
		t.Error("it does not fail")
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is %s: %v", file, err)
	}
}

// serve makes an API server with these answers, by path, the current context east. It has another status for the rest.
func serve(t *testing.T, answers map[string]string, otherwise int) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answers[r.URL.Path] == "" {
			w.WriteHeader(otherwise)
			fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "message":
				"User \"u\" cannot get path \"/\""}`, otherwise)
		}
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	t.Cleanup(api.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: east,
		clusters: [{name: east, cluster: {server: "`+api.URL+`"}}],
		contexts: [{name: east, context: {cluster: east}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
}

// TestRemediesKeepTheUser, for this cluster, and for the hub if it is this cluster.
func TestRemediesKeepTheUser(t *testing.T) {
	serve(t, nil, http.StatusForbidden)
	cmd := New("v0.0.0-test", io.Discard, io.Discard)
	r := &root{config: genericclioptions.NewConfigFlags(true)}
	r.config.AddFlags(cmd.Flags())
	if err := cmd.Flags().Parse([]string{"--context=east", "--as=jane", "--as-group=a", "--as-group=b",
		"--cluster=east", "--token=secret"}); err != nil {
		t.Fatal(err)
	}
	const flags = "kubectl --context=east --cluster=east --as=jane --as-group=a --as-group=b get "
	if got := r.flags().Here("kubectl get pods"); got != flags+"pods" {
		t.Errorf("%s, want %s", got, flags)
	}
	if got := r.flags().AtHub("kubectl get nodes"); got != "on the hub: kubectl get nodes" {
		t.Errorf("of an unknown hub: %s", got)
	}
	hub, err := r.hubOrThis()
	if err != nil {
		t.Fatal(err)
	}
	if got := hub.Command("kubectl get nodes"); got != flags+"nodes" {
		t.Errorf("%s, want %s", got, flags)
	}
	if got := r.flags().OfHub().Here("kubectl clusterset join --context MEMBER --hub-context=HUB"); got !=
		"kubectl clusterset join --context MEMBER --hub-context=east" {
		t.Error(got)
	}
}

// TestDoctorNamesTheHubThatItIs in its remedies.
func TestDoctorNamesTheHubThatItIs(t *testing.T) {
	const sets = "/apis/hub.clusterset-dns.io/v1alpha1/"
	serve(t, map[string]string{
		"/version": `{"gitVersion": "v1.36.0"}`,
		sets + "clustersets": `{"kind": "ClusterSetList", "apiVersion": "hub.clusterset-dns.io/v1alpha1",
			"items": [{"metadata": {"namespace": "blue", "name": "blue"}}]}`,
		sets + "namespaces/blue/clustersets": `{"kind": "ClusterSetList", "apiVersion":
			"hub.clusterset-dns.io/v1alpha1", "items": []}`,
	}, http.StatusNotFound)
	var out strings.Builder
	cmd := New("v0.0.0-test", &out, io.Discard)
	cmd.SetArgs([]string{"doctor", "--context=east"})
	_ = cmd.ExecuteContext(t.Context()) // there are findings
	for _, want := range []string{"This cluster, the hub: ", "kubectl clusterset --context=east init " +
		"--hub-context=east --hub-namespace=blue\n", "does not have exactly one ClusterSet: blue has none"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// TestJoinTakesTheNamespaceOfTheMembership without --hub-namespace, as in the remedies that say join --renew.
func TestJoinTakesTheNamespaceOfTheMembership(t *testing.T) {
	property := func(name, value string) string {
		return `{"kind": "ClusterProperty", "apiVersion": "about.k8s.io/v1beta1", "metadata": {"name": "` + name +
			`"}, "spec": {"value": "` + value + `"}}`
	}
	answers := map[string]string{
		"/version": `{"gitVersion": "v1.36.0"}`,
		"/api":     `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "about.k8s.io",
			"versions": [{"groupVersion": "about.k8s.io/v1beta1", "version": "v1beta1"}]}, {"name": "apps",
			"versions": [{"groupVersion": "apps/v1", "version": "v1"}]}]}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "namespaces",
			"kind": "Namespace"}]}`,
		"/apis/apps/v1": `{"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": [{"name": "deployments",
			"kind": "Deployment", "namespaced": true}]}`,
		"/apis/about.k8s.io/v1beta1": `{"kind": "APIResourceList", "groupVersion": "about.k8s.io/v1beta1",
			"resources": [{"name": "clusterproperties", "kind": "ClusterProperty"}]}`,
		"/api/v1/namespaces/kube-system": `{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system",
			"uid": "uid"}}`,
	}
	for name, value := range map[string]string{"cluster.clusterset.k8s.io": "east", "clusterset.k8s.io": "blue"} {
		answers["/apis/about.k8s.io/v1beta1/clusterproperties/"+name] = property(name, value)
	}
	serve(t, answers, http.StatusNotFound)
	for line, want := range map[string]string{
		"join --renew": "its namespace blue holds no ClusterSet",
		"join --renew --hub-namespace clusterset": "its namespace clusterset holds no ClusterSet",
	} {
		cmd := New("v0.0.0-test", io.Discard, io.Discard)
		cmd.SetArgs(append(strings.Fields(line), "--hub-context", "east"))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestCommandsOfThePagesExist, also one whose words are in two lines.
func TestCommandsOfThePagesExist(t *testing.T) {
	const root = "../../../.."
	named := regexp.MustCompile("kubectl clusterset((?:\\s+-[^\\s`]+)*\\s+[a-z]+(?:\\s+[a-z]+)?)")
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			cmd, rest, err := New("", io.Discard, io.Discard).Find(strings.Fields(m[1]))
			if err != nil || cmd.HasSubCommands() && len(rest) > 0 {
				t.Errorf("%s: there is no %q", path, m[0])
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d commands: %v", found, err)
	}
}

// TestAnInterruptedCommandSaysWhatFailed, such as its roll-back, and to run it again only if that continues it.
func TestAnInterruptedCommandSaysWhatFailed(t *testing.T) {
	const again = "interrupted; run the same command again to continue\n"
	canceled := fmt.Errorf("reading failed: %w", context.Canceled)
	undone := errors.Join(canceled, errors.New("rolling back failed"))
	for _, c := range []struct {
		command string
		ended   bool
		err     error
		want    string
		code    int
	}{
		{"dns install", false, nil, "", 0},
		{"dns install", false, undone, "error: reading failed: context canceled\nrolling back failed\n", 1},
		{"dns install", true, nil, "", 0},
		{"dns install", true, undone, "interrupted\nerror: reading failed: context canceled\nrolling back failed\n",
			130},
		{"dns install", true, context.Canceled, "interrupted\n", 130},
		{"verify", true, exit{context.Canceled, 2}, "interrupted\n", 130},
		{"verify", true, exit{errFindings, 2}, "", 2},
		{"join", true, context.Canceled, again, 130},
		{"join", true, canceled, again + "error: reading failed: context canceled\n", 130},
	} {
		cmd, _, err := New("", io.Discard, io.Discard).Find(strings.Fields(c.command))
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		if c.ended {
			end()
		}
		cmd.SetContext(ctx)
		if text, code := Ended(cmd, c.err); text != c.want || code != c.code {
			t.Errorf("%s, %v: %q, exit status %d", c.command, c.err, text, code)
		}
		end()
	}
}
