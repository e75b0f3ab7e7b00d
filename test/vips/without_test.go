package vips

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestV7WithoutServiceCIDRs: behind a proxy that hides them and IPAddresses, as on Kubernetes 1.32, an agent starts,
// mode shared works, the
// others say why they do not, and what exists goes on.
func TestV7WithoutServiceCIDRs(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	e.mode(t, ipam.ModeShared)
	e.export(t, ns, "before", both)
	vip := e.wantVIPs(t, ns, "before", both)
	old := e.behind(t, hideRanges)

	old.mode(t, ipam.ModeShared)
	old.export(t, ns, "shared", both)
	wantIn(t, old.wantVIPs(t, ns, "shared", both), strings.Split(serviceRanges, ",")...)
	old.wantMetric(t, old.series("mode_supported", "mode", "shared"), is("1"))

	old.mode(t, ipam.ModePreferred, "10.250.0.0/28", "fd00:250::/124")
	old.wantMetric(t, old.series("mode_supported", "mode", "preferred"), is("0"))
	old.wantEvent(t, "clusterset-system", "clusterset-system", "VIPModeUnsupported", "preferred")
	old.export(t, ns, "preferred", both)
	wantIn(t, old.wantVIPs(t, ns, "preferred", both), strings.Split(serviceRanges, ",")...)

	old.deleteAsAgent(t, derivedOf(ns, "before"))
	old.wantMade(t, ns, "before")
	if now := old.wantVIPs(t, ns, "before", both); !slices.Equal(now, vip) {
		t.Errorf("what existed moved from %v to %v", vip, now)
	}
}

// TestV7WhereAPolicyForbidsRanges: the same where admission refuses ServiceCIDRs, with whatever reason; no reservation
// is left over. Once it
// does not, it recovers.
func TestV7WhereAPolicyForbidsRanges(t *testing.T) {
	for i, c := range []struct {
		reason metav1.StatusReason
		own    []string
	}{
		{metav1.StatusReasonForbidden, []string{"10.251.0.0/28", "fd00:251::/124"}},
		{metav1.StatusReasonRequestEntityTooLarge, []string{"10.251.0.32/28", "fd00:251::20/124"}},
	} {
		t.Run(string(c.reason), func(t *testing.T) {
			e := start(t)
			ns := e.namespace(t)
			said := fmt.Sprint("no ranges here ", i) // an Event of the policy before is none of this one's
			policy := forbidden(said, c.reason)
			if err := e.Cluster.Apply(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			lift := func() {
				if _, err := e.Cluster.Kubectl(
					t.Context(),
					policy,
					"delete",
					"--ignore-not-found",
					"-f",
					"-",
				); err != nil {
					t.Error(err)
				}
			}
			defer lift()
			other := cidr("forbidden", ipam.Shared, "10.251.1.0/28")
			eventually(t, "the policy works", func() error {
				err := e.Create(t.Context(), other.DeepCopy(), client.DryRunAll)
				if err == nil || !strings.Contains(err.Error(), said) || apierrors.ReasonForError(err) != c.reason {
					return errNot(fmt.Sprint("refused: ", err))
				}
				return nil
			})
			e.mode(t, ipam.ModePreferred, c.own...)
			e.wantMetric(t, e.series("mode_supported", "mode", "preferred"), is("0"))
			e.export(t, ns, "preferred", both)
			wantIn(t, e.wantVIPs(t, ns, "preferred", both), strings.Split(serviceRanges, ",")...)
			for _, p := range c.own {
				e.wantEvent(
					t,
					"clusterset-system",
					"clusterset-system",
					"VIPRangeRefused",
					ipam.Name(netip.MustParsePrefix(p)),
				)
			}
			e.wantEvent(t, "clusterset-system", "clusterset-system", "VIPRangeRefused", said)
			e.mode(t, ipam.ModeShared)
			e.export(t, ns, "shared", both)
			wantIn(t, e.wantVIPs(t, ns, "shared", both), strings.Split(serviceRanges, ",")...)
			lift()
			eventually(
				t,
				"the policy is gone",
				func() error { return e.Create(t.Context(), other.DeepCopy(), client.DryRunAll) },
			)
			e.mode(t, ipam.ModePreferred, c.own...)
			e.export(t, ns, "again", both)
			wantIn(t, e.wantVIPs(t, ns, "again", both), c.own...)
		})
	}
}

// forbidden is a policy that refuses ranges with this message and reason.
func forbidden(message string, reason metav1.StatusReason) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-ranges}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [networking.k8s.io], apiVersions: ["*"], resources: [servicecidrs], operations: [CREATE]}
  validations:
  - {expression: "false", message: %q, reason: %s}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-ranges}
spec: {policyName: no-ranges, validationActions: [Deny]}
`, message, reason)
}

type errNot string

func (e errNot) Error() string { return "not " + string(e) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// behind stops the agent, and starts one that reaches its API server by a proxy. The test's end brings the first one
// back.
func (e *env) behind(t *testing.T, change func(*httputil.ReverseProxy)) *env {
	t.Helper()
	kubeconfig, err := e.Cluster.ServiceAccountKubeconfig(
		t.Context(),
		"clusterset-system",
		"clusterset-controller",
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target := must(url.Parse(cfg.Host))
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	change(proxy)
	server := httptest.NewServer(proxy)
	t.Cleanup(server.CloseClientConnections)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: p, cluster: {server: \"" + server.URL + "\"}}]\n" +
		"users: [{name: p, user: {}}]\ncontexts: [{name: p, context: {cluster: p, user: p}}]\ncurrent-context: p\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	hub, err := e.set.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, "mcs-"+e.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Agent.Terminate()
	old := *e
	member := *e.Member
	old.Member = &member
	member.Agent, err = lab.StartAgent(
		t.Context(),
		filepath.Join(must(lab.Root()), "bin", "clusterset-controller"),
		lab.AgentOptions{
			Kubeconfig: file, HubKubeconfig: hub, HubNamespace: lab.HubNamespace, ClusterID: e.ID,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		member.Agent.Terminate()
		member.Agent.Stop()
		if err := e.Agent.Start(t.Context()); err != nil {
			t.Error(err)
		}
	})
	old.tellOf(t)
	return &old
}

// hideRanges makes an API server one of Kubernetes 1.32.
func hideRanges(p *httputil.ReverseProxy) {
	const group = "/apis/networking.k8s.io/v1"
	rewrite := p.Rewrite
	p.Rewrite = func(r *httputil.ProxyRequest) {
		rewrite(r)
		if r.In.URL.Path == "/apis" || r.In.URL.Path == group {
			r.Out.Header.Set("Accept", "application/json") // not the list of all groups' resources in one
			r.Out.Header.Del("Accept-Encoding")
		}
	}
	p.ModifyResponse = func(r *http.Response) error {
		path := r.Request.URL.Path
		if strings.HasPrefix(path, group+"/servicecidrs") || strings.HasPrefix(path, group+"/ipaddresses") {
			r.Body.Close()
			body := []byte("404 page not found\n")
			r.StatusCode, r.Status, r.Body, r.ContentLength = http.StatusNotFound, "404 Not Found", io.NopCloser(
				bytes.NewReader(body),
			), int64(len(body))
			r.Header = http.Header{"Content-Type": {"text/plain"}}
			return nil
		}
		if path != group {
			return nil
		}
		var list metav1.APIResourceList
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
			return err
		}
		r.Body.Close()
		list.APIResources = slices.DeleteFunc(
			list.APIResources,
			func(a metav1.APIResource) bool { return a.Kind == "ServiceCIDR" || a.Kind == "IPAddress" },
		)
		body, err := json.Marshal(list)
		if err != nil {
			return err
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Del("Content-Length")
		return nil
	}
}
