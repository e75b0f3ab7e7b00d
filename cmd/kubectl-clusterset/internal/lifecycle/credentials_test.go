package lifecycle

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestRenewingKeepsTheWayToTheHub: address, name and lifetime stay as they were first asked for, unless others are,
// or the hub is another; and what changes is said.
func TestRenewingKeepsTheWayToTheHub(t *testing.T) {
	const first, there, here = "https://hub.internal:6443", "https://127.0.0.1:1", "https://127.0.0.1:2"
	server := httptest.NewTLSServer(nil)
	server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for what, c := range map[string]struct {
		ca, server string // of this run
		lifetime   time.Duration
		address    string
		name       string // of the hub's certificate
		lives      time.Duration
		says       string
	}{
		"as it was":     {ca, "", 0, first, "hub", time.Hour, "stays " + first},
		"asked for":     {ca + "\n", "https://new", 2 * time.Hour, "https://new", "here", 2 * time.Hour, ""},
		"another hub's": {ca + ca, "", 0, here, "here", time.Hour, "not " + first + " any more"},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			member := inMemory(interceptor.Funcs{},
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
			run := func(ca, address, name, server string, lifetime time.Duration) (*clientcmdapi.Cluster,
				time.Duration, string) {
				var asked time.Duration
				hub := inMemory(interceptor.Funcs{SubResourceCreate: func(_ context.Context, _ client.Client, _ string,
					_, sub client.Object, _ ...client.SubResourceCreateOption) error {
					request := sub.(*authenticationv1.TokenRequest)
					asked = time.Duration(*request.Spec.ExpirationSeconds) * time.Second
					request.Status.Token = "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil,
						`{"iat":1,"exp":%d}`, 1+*request.Spec.ExpirationSeconds)) + ".sig"
					return nil
				}})
				hub.Config = &rest.Config{Host: address, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(ca),
					ServerName: name}}
				o, said := options(hub)
				j := &join{JoinOptions: &JoinOptions{Options: *o, Member: member, ClusterID: "east", HubServer: server,
					TokenLifetime: lifetime}}
				if err := errors.Join(j.readSecret(t.Context()), j.writeCredentials(t.Context()),
					j.readSecret(t.Context())); err != nil {
					t.Fatal(err)
				}
				return j.currentAddress(), asked, said.String()
			}
			if _, lives, _ := run(ca, there, "hub", "", 0); lives != 24*time.Hour {
				t.Errorf("a token at first lives for %v", lives)
			}
			run(ca, there, "hub", first, time.Hour)
			way, lives, said := run(c.ca, here, "here", c.server, c.lifetime)
			if way.Server != c.address || way.TLSServerName != c.name ||
				string(way.CertificateAuthorityData) != c.ca || lives != c.lives {
				t.Errorf("%+v, for %v", way, lives)
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("it says %q, and not %q", said, c.says)
			}
		})
	}
}

// TestAHubWithoutAnAuthorityIsKnownByItsAddress: its certificate is of a public one, as another hub's may be.
func TestAHubWithoutAnAuthorityIsKnownByItsAddress(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"gitVersion": "v1.36.0"}`)
	}))
	defer server.Close()
	for was, asks := range map[string]bool{server.URL: false, "https://old": true} {
		for _, given := range []string{"", "https://new"} {
			kept := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
				Name: clusterset.SecretHub}}
			kept.Data = map[string][]byte{kubeconfigKey: fmt.Appendf(nil, `{"current-context": "hub", "contexts":
				[{"name": "hub", "context": {"cluster": "hub"}}], "clusters": [{"name": "hub", "cluster":
				{"server": %q}}]}`, was)}
			member := inMemory(interceptor.Funcs{}, kept,
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}})
			hub := inMemory(interceptor.Funcs{},
				&hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}})
			member.Config, hub.Config = &rest.Config{Host: server.URL}, &rest.Config{Host: server.URL}
			o, _ := options(hub)
			var out strings.Builder
			o.DryRun, o.Release = &out, "r/c:v1"
			err := Join(t.Context(), &JoinOptions{Options: *o, Member: member, HubServer: given})
			if refused := asks && given == ""; (err != nil) != refused || refused &&
				!strings.Contains(err.Error(), "--hub-server: https://old if it is the same hub") {
				t.Errorf("with %s, and --hub-server %q: %v", was, given, err)
			}
		}
	}
}

// TestTheProxyToTheHubGoesWithItsAddress: that of the kubeconfig, but not one on this machine. A member keeps the one
// that it has, also with --hub-server. No password is printed.
func TestTheProxyToTheHubGoesWithItsAddress(t *testing.T) {
	const hub, ours, other, local = "https://hub", "http://u:secret@proxy:3128", "http://other:3128",
		"socks5://localhost:1080"
	kept := func(server, proxy, ca string) *clientcmdapi.Cluster {
		return &clientcmdapi.Cluster{Server: server, ProxyURL: proxy, CertificateAuthorityData: []byte(ca)}
	}
	for what, c := range map[string]struct {
		was         *clientcmdapi.Cluster
		from, given string // the proxy-url of the kubeconfig, and --hub-server
		server      string
		proxy       string
		says        string
	}{
		"none":                     {nil, "", "", hub, "", ""},
		"first join":               {nil, ours, "", hub, ours, hub + " through the proxy http://u:xxxxx@proxy:3128"},
		"on this machine":          {nil, local, "", hub, "", "is on this machine"},
		"with --hub-server":        {nil, ours, "https://new", "https://new", "", ""},
		"the same":                 {kept(hub, ours, "ca"), ours, "", hub, ours, ""},
		"kept":                     {kept(hub, ours, "ca"), other, "", hub, ours, "first delete Secret"},
		"kept, with the address":   {kept("https://old", ours, "ca"), other, "", "https://old", ours, "--hub-server"},
		"kept, with --hub-server":  {kept(hub, ours, "ca"), other, "https://new", "https://new", ours, "first delete Secret"},
		"kept, without a proxy":    {kept(hub, "", "ca"), ours, "", hub, "", "stays " + hub + ";"},
		"of another hub":           {kept(hub, ours, "old"), other, "", hub, other, "authority has changed"},
		"another hub, and address": {kept(hub, ours, "old"), other, "https://new", "https://new", "", ""},
	} {
		o, said := options(nil)
		j := &join{JoinOptions: &JoinOptions{Options: *o, HubServer: c.given}}
		if c.was != nil {
			text, err := clientcmd.Write(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"hub": c.was},
				Contexts: map[string]*clientcmdapi.Context{"hub": {Cluster: "hub"}}, CurrentContext: "hub"})
			if err != nil {
				t.Fatal(err)
			}
			j.current = &corev1.Secret{Data: map[string][]byte{kubeconfigKey: text}}
		}
		cfg, err := clientcmd.NewDefaultClientConfig(clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{
			"hub": kept(hub, c.from, "ca")}, Contexts: map[string]*clientcmdapi.Context{"hub": {Cluster: "hub"}},
			CurrentContext: "hub"}, nil).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		to, text := j.address(cfg), said.String()
		if to.Server != c.server || to.ProxyURL != c.proxy {
			t.Errorf("%s: %s through %q, want %s through %q", what, to.Server, to.ProxyURL, c.server, c.proxy)
		}
		if !strings.Contains(text, c.says) || c.says == "" && text != "" || strings.Contains(text, "secret") {
			t.Errorf("%s: it says %q, want %q", what, text, c.says)
		}
	}
}

// TestAProxyThatRefusesTokensIsNoWayToTheHub for an agent, which has nothing else. After any other answer, join goes
// on. It does not try another way than the admin's, which may not lead to the hub from here.
func TestAProxyThatRefusesTokensIsNoWayToTheHub(t *testing.T) {
	for what, c := range map[string]struct {
		status  int
		server  string
		refused bool
	}{
		"a proxy":             {http.StatusUnauthorized, "", true},
		"a proxy, and around": {http.StatusUnauthorized, "https://127.0.0.1:1", false},
		"without rights yet":  {http.StatusForbidden, "", false},
		"broken":              {http.StatusServiceUnavailable, "", false},
	} {
		t.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if is := r.Header.Get("Authorization"); is != "Bearer issued" {
					t.Errorf("asked as %q", is)
				}
				w.WriteHeader(c.status)
			}))
			defer server.Close()
			hub := inMemory(interceptor.Funcs{SubResourceCreate: func(_ context.Context, _ client.Client, _ string,
				_, sub client.Object, _ ...client.SubResourceCreateOption) error {
				sub.(*authenticationv1.TokenRequest).Status.Token = "issued"
				return nil
			}})
			hub.Config = &rest.Config{Host: server.URL, BearerToken: "the admin's"}
			o, _ := options(hub)
			j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}), ClusterID: "east",
				HubServer: c.server}}
			err := j.writeCredentials(t.Context())
			if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(),
				"--hub-kubeconfig FILE, with the API server's own address and CA") {
				t.Errorf("refused: %v, want %v", err, c.refused)
			}
			if err := j.readSecret(t.Context()); err != nil || (j.current == nil) != c.refused {
				t.Errorf("a Secret is written: %v, %v", j.current != nil, err)
			}
		})
	}
}

// TestRenewingWaitsForTheNewAddress: an agent keeps the connection that works, and renews its Lease by it. Who waits
// needs no right to get Leases in the member. It also waits until the agent no longer says that earlier credentials
// were refused: status would ask for --renew again.
func TestRenewingWaitsForTheNewAddress(t *testing.T) {
	const was, is = "https://hub.internal:6443", "https://hub.example"
	const address, refused = "uses the hub at " + was + " and not at " + is, "The hub refuses the agent's token"
	for _, c := range []struct {
		used, reason string // of CredentialsValid
		waits        string // for
	}{{was, "", address}, {is, "", ""}, {"", "", ""}, {is, "Accepted", ""}, {is, "Refused", refused},
		{is, "NoCredentials", refused}, {is, "NotRenewed", ""}} {
		lease := func(namespace, name string) *coordinationv1.Lease {
			return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		}
		renewed := lease(kube.SystemNamespace, clusterset.LeaseRenewed)
		renewed.Annotations = map[string]string{clusterset.AnnotationRenewed: "999 of "} // the fake client's version
		lists := interceptor.Funcs{Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey,
			o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*coordinationv1.Lease); is {
				return apierrors.NewForbidden(coordinationv1.Resource("leases"), key.Name, nil)
			}
			return api.Get(ctx, key, o, opts...)
		}}
		member := inMemory(lists, renewed,
			&hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName},
				Status: hubv1alpha1.MembershipStatus{Hub: c.used, Conditions: []metav1.Condition{{
					Type: hubv1alpha1.ConditionCredentialsValid, Reason: c.reason, Message: refused}}}},
			&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}})
		o, _ := options(inMemory(interceptor.Funcs{}, lease("blue", "east")))
		o.Timeout = 100 * time.Millisecond
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: member, ClusterID: "east", Renew: true}, server: is}
		err := j.await(t.Context())
		said := fmt.Sprint(err)
		if !strings.Contains(said, c.waits) || (c.waits == "") != (err == nil) ||
			(c.waits == address) != strings.Contains(said, "--renew --hub-server "+was) {
			t.Errorf("with the hub at %q, %s: %v", c.used, c.reason, err)
		}
	}
}

// TestID4ACloneIsNoMemberByItsOriginalsRenewals: its ClusterProperty and Membership are the original's, from a backup.
// An agent that cannot store its renewals looks the same, and must not leave.
func TestID4ACloneIsNoMemberByItsOriginalsRenewals(t *testing.T) {
	for _, renew := range []bool{false, true} {
		renewed := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
			Name: clusterset.LeaseRenewed, Annotations: map[string]string{clusterset.AnnotationRenewed: "1 of "}}}
		member := inMemory(interceptor.Funcs{}, renewed,
			&hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName},
				Status: hubv1alpha1.MembershipStatus{Hub: "https://hub"}},
			&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}})
		o, _ := options(inMemory(interceptor.Funcs{}, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "blue", Name: "east"}}))
		o.Timeout = 100 * time.Millisecond
		before := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}}
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: member, ClusterID: "east", Renew: renew},
			server: "https://hub", lease: before}
		const want = "either it could not write Lease clusterset-system/hub-renewed, and its log says why; or " +
			"another agent renews Lease east on the hub, and this cluster may be a clone. Only in a clone: " +
			"kubectl clusterset leave --force\n"
		if err := j.await(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("renew %v: %v", renew, err)
		}
	}
}

// TestAnAgentThatIsScaledToZeroIsNotWaitedFor, and the command that starts it is said.
func TestAnAgentThatIsScaledToZeroIsNotWaitedFor(t *testing.T) {
	agent := runs("clusterset-controller", "r/c:v1")
	agent.Spec.Replicas = new(int32)
	o, _ := options(inMemory(interceptor.Funcs{}))
	j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}, agent), Renew: true}}
	if err := j.await(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "\n  → "+facts.ScaleAgent+"2") {
		t.Errorf("%v", err)
	}
}

// TestJoinSaysWhatTheAgentWaitsFor, by its Membership. One that lacks nothing explains no wait.
func TestJoinSaysWhatTheAgentWaitsFor(t *testing.T) {
	for status, told := range map[metav1.ConditionStatus]bool{
		metav1.ConditionFalse: true, metav1.ConditionUnknown: true, metav1.ConditionTrue: false,
	} {
		synctest.Test(t, func(t *testing.T) {
			known := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName}}
			known.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: status, Message: "no route"}}
			o, _ := options(nil)
			o.Hub, o.Timeout = inMemory(interceptor.Funcs{}), time.Minute
			member := inMemory(interceptor.Funcs{}, known)
			err := (&join{JoinOptions: &JoinOptions{Options: *o, Member: member, ClusterID: "east"}}).await(t.Context())
			if err == nil || strings.Contains(err.Error(), "no route") != told ||
				strings.Contains(err.Error(), "there is no Deployment clusterset-controller") == told {
				t.Errorf("Ready is %s, told must be %v: %v", status, told, err)
			}
		})
	}
}

// TestJoinSaysWhyTheAgentDoesNotStart, whatever an earlier one has stated, also in a cluster that is a member already.
// So does leave. Of an agent that runs, its own reason is said.
func TestJoinSaysWhyTheAgentDoesNotStart(t *testing.T) {
	pulls := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff",
		Message: `Back-off pulling image "r/c:typo": ErrImagePull: not found`}}
	const failed = "pod agent-1: ErrImagePull: not found"
	for _, c := range []struct {
		member bool
		state  corev1.ContainerState
		want   string
	}{
		{false, pulls, failed}, {true, pulls, failed},
		{false, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, "no route"},
	} {
		synctest.Test(t, func(t *testing.T) {
			agent := runs("clusterset-controller", "r/c:typo")
			agent.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "agent-1",
				Labels: agent.Spec.Selector.MatchLabels}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: c.state}}
			known := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName}}
			known.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Message: "no route"}}
			here := []client.Object{agent, pod, known}
			if c.member {
				here = append(here, &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{
					Name: clusterset.PropertySet}})
			}
			o, said := options(inMemory(interceptor.Funcs{}))
			o.Timeout = time.Minute
			j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}, here...),
				ClusterID: "east"}}
			if err := j.await(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(said.String(), c.want) {
				t.Errorf("%+v: said %q and %v", c, said, err)
			}
			l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: j.Member}}
			l.setProperty = &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}
			if err := l.withdraw(t.Context()); c.member && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("leave: %v", err)
			}
		})
	}
}
