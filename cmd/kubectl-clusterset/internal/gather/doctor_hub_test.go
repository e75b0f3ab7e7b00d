package gather

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// refusing is an API server that tells its version, and that whoever asks may do nothing; or that it does not know
// who asks.
func refusing(t *testing.T, known bool) string {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !known:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/version":
			fmt.Fprint(w, `{"gitVersion": "v1.36.0"}`)
		case r.URL.Path == "/api":
			fmt.Fprint(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "authorization.k8s.io",
				"versions": [{"groupVersion": "authorization.k8s.io/v1", "version": "v1"}]}]}`)
		case r.URL.Path == "/apis/authorization.k8s.io/v1":
			fmt.Fprint(
				w,
				`{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "authorization.k8s.io/v1",
				"resources": [{"name": "selfsubjectaccessreviews", "kind": "SelfSubjectAccessReview",
				"namespaced": false, "verbs": ["create"]}]}`,
			)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
				"spec": {}, "status": {"allowed": false}}`)
		default:
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(
				w,
				`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
					"code": 403, "message": "not to be read"}`,
			)
		}
	}))
	t.Cleanup(api.Close)
	return api.URL
}

// inMemory is a cluster of these objects, whose API server tells its version at host.
func inMemory(name, host string, objects ...client.Object) *cluster.Cluster {
	known := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(objects...).WithReturnManagedFields()
	return &cluster.Cluster{Name: name, Config: &rest.Config{Host: host}, Client: known.Build()}
}

// secret holds credentials for the hub at host.
func secret(host string) *corev1.Secret {
	claims := base64.RawURLEncoding.EncodeToString(
		[]byte(`{"iat": 1, "exp": 4102444800, "sub": "system:serviceaccount:blue:mcs-east"}`),
	)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub},
		Data: map[string][]byte{
			"token": []byte("a." + claims + ".c"),
			"kubeconfig": []byte(
				`{apiVersion: v1, kind: Config, current-context: hub,
			clusters: [{name: hub, cluster: {server: "` + host + `"}}],
			users: [{name: member, user: {tokenFile: token}}],
			contexts: [{name: hub, context: {cluster: hub, user: member}}]}`,
			),
		},
	}
}

// TestWhatWasNotAskedOfTheHubIsNotOk: each topic of the hub is read in its own way, and one may fail where another
// does not.
func TestWhatWasNotAskedOfTheHubIsNotOk(t *testing.T) {
	const ok, skipped = "ok", "skipped"
	for what, c := range map[string]struct {
		agent   bool // whether the hub knows the agent's credentials
		hub     bool // named
		answers bool // to its admin
		want    map[string]string
	}{
		"a named hub that does not answer": {false, true, false, map[string]string{"hub-kinds": skipped,
			"hub-policies": skipped, "hub-version": skipped}},
		"a member without its RoleBinding": {true, false, false, map[string]string{"hub-kinds": skipped,
			"hub-version": skipped}},
		"credentials that are refused": {false, true, true, map[string]string{"hub-version": ok,
			"hub-kinds": "the hub has no kind "}},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			here := refusing(t, true)
			s := Source{Member: inMemory("this cluster", here, secret(refusing(t, c.agent))), HubNamespace: "blue"}
			if c.hub {
				s.Hub = inMemory("the hub", refusing(t, c.answers))
			}
			f, err := Doctor(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range doctor.Examine(f).Outcomes {
				want, asked := c.want[o.Check]
				got := ok
				switch {
				case o.Skipped != "":
					got = skipped
				case len(o.Findings) > 0:
					got = o.Findings[0].What
				}
				if asked && !strings.HasPrefix(got, want) {
					t.Errorf("%s: %q, want %q: %+v", o.Check, got, want, o)
				}
			}
		})
	}
}

// TestStatusOfAMemberWhoseNamedHubIsDown tells of the member what it knows, and of the hub why it was not read.
func TestStatusOfAMemberWhoseNamedHubIsDown(t *testing.T) {
	here, down := refusing(t, true), refusing(t, false)
	f, err := Status(t.Context(), Source{Member: inMemory("this cluster", here, secret(down)),
		Hub: inMemory("the hub", down), HubNamespace: "clusterset"})
	if err != nil || f.Member == nil || f.Hub != nil || !strings.Contains(f.HubError, "401") || !f.HubDenied ||
		f.Namespace != "blue" {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = Status(t.Context(), Source{Member: inMemory("this cluster", here, secret(down))})
	if err != nil || !strings.Contains(f.HubError, "401") || f.HubDenied {
		t.Errorf("as the agent: %+v, %v", f, err)
	}
	f, err = Status(t.Context(), Source{Member: inMemory("this cluster", here)})
	if err != nil || f.HubError != "" {
		t.Errorf("no member and no Secret: %+v, %v", f, err)
	}
	if _, err := Status(t.Context(), Source{Hub: inMemory("the hub", down), HubNamespace: "blue"}); err == nil {
		t.Error("of a hub alone there is nothing to tell, and no error")
	}
}

// TestADeletedKindIsNamed, because a list of it is empty.
func TestADeletedKindIsNamed(t *testing.T) {
	here := inMemory("this cluster", refusing(t, true))
	known := meta.NewDefaultRESTMapper(nil)
	for _, o := range []client.Object{&mcsv1beta1.ServiceExport{}, &hubv1alpha1.ServiceExportRecord{}} {
		kind, err := here.GroupVersionKindFor(o)
		if err != nil {
			t.Fatal(err)
		}
		known.Add(kind, meta.RESTScopeNamespace)
	}
	here.Client = fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithRESTMapper(known).Build()
	if m, err := member(t.Context(), here); err != nil || !slices.Equal(m.Unserved, []string{"ServiceImport"}) {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestDoctorOfAHubReadsIt, whatever its ClusterSet is called. A named hub, and that of an agent, come first.
func TestDoctorOfAHubReadsIt(t *testing.T) {
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}
	agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
		Name: manifest.AgentDeployment}}
	host := refusing(t, true)
	for what, c := range map[string]struct {
		source          Source
		here, namespace string
	}{
		"a hub":       {Source{}, "[blue]", "blue"},
		"a namespace": {Source{NamespaceGiven: true}, "[blue]", "clusterset"},
		"itself":      {Source{Hub: inMemory("the hub", host, set)}, "[blue]", "clusterset"},
		"another hub": {Source{Hub: inMemory("the hub", refusing(t, true))}, "[]", "clusterset"},
		"an agent":    {Source{Member: inMemory("this cluster", host, set, agent)}, "[]", "clusterset"},
	} {
		c.source.HubNamespace = "clusterset"
		if c.source.Member == nil {
			c.source.Member = inMemory("this cluster", host, set)
		}
		f, err := Doctor(t.Context(), c.source)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.HubFacts; fmt.Sprint(got.Here) != c.here || got.Namespace != c.namespace ||
			(len(got.Sets) > 0) != (c.namespace == "blue") {
			t.Errorf("%s: %v, %s, %v", what, got.Here, got.Namespace, got.Sets)
		}
	}
}
