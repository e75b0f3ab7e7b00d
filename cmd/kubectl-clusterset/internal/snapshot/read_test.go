package snapshot

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestWhoMayNotListPodsSeesTheAgent: status is documented to need no such right.
func TestWhoMayNotListPodsSeesTheAgent(t *testing.T) {
	agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
		Name: manifest.AgentDeployment}}
	agent.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	c := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(agent).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, of ...client.ListOption) error {
			if _, is := l.(*corev1.PodList); is {
				return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
			}
			return c.List(ctx, l, of...)
		},
	}).Build()
	r := &reader{Snapshot: &Snapshot{Member: &Member{}, Unread: map[Part]Lack{}}}
	r.basics(t.Context(), &cluster.Cluster{Client: c})
	if !r.HasRead(Agent) || r.Snapshot.Member.Agent == nil {
		t.Errorf("%+v", r.Unread)
	}
}

// TestTheAgentReadsItsOwnNamespace of the hub, whatever --hub-namespace says: its credentials are for no other. Without
// a Secret, its arguments show it.
func TestTheAgentReadsItsOwnNamespace(t *testing.T) {
	admin, agent := &cluster.Cluster{}, &appsv1.Deployment{}
	agent.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--hub-namespace=brown"}}}
	for want, c := range map[string]struct {
		hub            *cluster.Cluster
		given, account string
		agent          *appsv1.Deployment
	}{
		"blue":    {nil, "red", "blue", nil},
		"red":     {admin, "red", "blue", nil},
		"green":   {admin, "", "green", nil},
		"yellow":  {nil, "yellow", "", nil},
		"default": {nil, "", "", nil},
		"brown":   {admin, "", "", agent},
	} {
		r := &reader{Source: Source{Hub: c.hub, Given: c.given, Namespace: "default"}, account: c.account}
		if got := r.namespace(&Member{Agent: c.agent}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestTheHubIsReadWithTheTokenOfTheSecret, which its kubeconfig names as a file.
func TestTheHubIsReadWithTheTokenOfTheSecret(t *testing.T) {
	const context = "current-context: hub\ncontexts: [{name: hub, context: {cluster: %s, user: member}}]\n" +
		"clusters: [{name: hub, cluster: {server: 'https://hub.example'}}]\n" +
		"users: [{name: member, user: {tokenFile: token}}]\n"
	token := "a." + base64.RawURLEncoding.EncodeToString(
		[]byte(`{"iat": 1, "exp": 2, "sub": "system:serviceaccount:blue:mcs-east"}`)) + ".c"
	for kubeconfig, works := range map[string]bool{fmt.Sprintf(context, "hub"): true,
		fmt.Sprintf(context, "none"): false, "": false, "[": false} {
		namespace, hub, err := credentials(&corev1.Secret{Data: map[string][]byte{
			"kubeconfig": []byte(kubeconfig), clusterset.SecretToken: []byte(token + "\n")}})
		if namespace != "blue" || (err == nil) != works || works && (hub.Config.Host != "https://hub.example" ||
			hub.Config.BearerToken != token || hub.Config.BearerTokenFile != "" || hub.Config.Timeout != patience) {
			t.Errorf("%q: %s, %v, %v", kubeconfig, namespace, hub, err)
		}
	}
	for _, none := range []*corev1.Secret{nil, {}} {
		if _, hub, err := credentials(none); err == nil || hub != nil {
			t.Errorf("%v: %v", none, hub)
		}
	}
}

// TestTheHubOfAnAgentWithItsOwnCredentialsMustBeNamed: nothing is wrong with them.
func TestTheHubOfAnAgentWithItsOwnCredentialsMustBeNamed(t *testing.T) {
	agent := &appsv1.Deployment{}
	agent.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--hub-kubeconfig=/vault/hub"}}}
	r := &reader{Snapshot: &Snapshot{Member: &Member{Agent: agent}, Unread: map[Part]Lack{}}}
	r.unusable = errors.New("there is no Secret")
	r.reachHub(t.Context())
	if lack := r.Unread[OfHub]; lack.Credentials ||
		!strings.HasSuffix(lack.Why, "a file of its own: name the hub with --hub-context") {
		t.Errorf("%+v", lack)
	}
}

// TestAHubThatIsUnreadForTheCredentialsIsNoted: only another Secret helps then.
func TestAHubThatIsUnreadForTheCredentialsIsNoted(t *testing.T) {
	for status, want := range map[int]bool{http.StatusUnauthorized: true, http.StatusBadGateway: false, 0: true} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
		}))
		defer server.Close()
		r := &reader{Snapshot: &Snapshot{Member: &Member{}, Unread: map[Part]Lack{}}}
		r.agents = &cluster.Cluster{Config: &rest.Config{Host: server.URL}}
		if status == 0 {
			_, r.agents, r.unusable = credentials(nil)
		}
		r.reachHub(t.Context())
		if lack := r.Unread[OfHub]; lack.Credentials != want || lack.Why == "" {
			t.Errorf("%d: %+v, want %v", status, lack, want)
		}
	}
}

// fakeMember builds a client that may be read concurrently: the fake writes a kind that it does not know into the
// scheme.
func fakeMember() *fake.ClientBuilder {
	scheme := cluster.Scheme()
	openshift := schema.FromAPIVersionAndKind("operator.openshift.io/v1", "DNS")
	scheme.AddKnownTypeWithName(openshift, &unstructured.Unstructured{})
	return fake.NewClientBuilder().WithScheme(scheme)
}

// TestStatusKnowsWhatServicesSelect: it says so of one without endpoints. Derived Services are the agent's.
func TestStatusKnowsWhatServicesSelect(t *testing.T) {
	selects := map[string]string{"app": "web"}
	ours := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	ours.Spec.Selector = selects
	agents := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web"),
		Labels: map[string]string{derived.LabelManagedBy: kube.Manager}}}
	r := &reader{Snapshot: &Snapshot{Member: &Member{}, Unread: map[Part]Lack{}}}
	r.member(t.Context(), &cluster.Cluster{Client: fakeMember().WithObjects(ours, agents).Build()})
	if got := r.Snapshot.Member.Services; len(got) != 1 || !maps.Equal(got[0].Selector, selects) {
		t.Errorf("%v, %+v", got, r.Unread)
	}
}

// TestAKindThatIsNotServedIsNoted: without the kind Membership, an agent works and says nothing of how it is.
func TestAKindThatIsNotServedIsNoted(t *testing.T) {
	gone := &meta.NoKindMatchError{}
	c := fakeMember().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			of ...client.GetOption) error {
			if _, is := o.(*hubv1alpha1.Membership); is {
				return gone
			}
			return c.Get(ctx, key, o, of...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, of ...client.ListOption) error {
			if _, is := l.(*hubv1alpha1.MembershipList); is {
				return gone
			}
			return c.List(ctx, l, of...)
		},
	}).Build()
	r := &reader{Snapshot: &Snapshot{Member: &Member{}, Unread: map[Part]Lack{}}}
	r.member(t.Context(), &cluster.Cluster{Client: c})
	if got := r.Snapshot.Member.Unserved; !slices.Equal(got, []string{"Membership"}) {
		t.Errorf("%v, %+v", got, r.Unread)
	}
}
