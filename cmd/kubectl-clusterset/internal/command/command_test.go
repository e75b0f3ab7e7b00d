package command

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	serve(t, answers, http.StatusForbidden)
	var out strings.Builder
	cmd := New("v0.0.0-test", &out, io.Discard)
	cmd.SetArgs([]string{"doctor"})
	_ = cmd.ExecuteContext(t.Context()) // there are findings
	if want := "join --hub-context=HUB --hub-namespace=blue --renew"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// serve makes an API server with these answers, by path, the current context east. It has another status for the rest.
func serve(t *testing.T, answers map[string]string, otherwise int) {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if answers[r.URL.Path] == "" {
			w.WriteHeader(otherwise)
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
