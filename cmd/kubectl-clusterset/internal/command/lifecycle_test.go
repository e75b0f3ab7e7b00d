package command

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

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
			"versions": [{"groupVersion": "about.k8s.io/v1beta1", "version": "v1beta1"}]}]}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "namespaces",
			"kind": "Namespace"}]}`,
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
