package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
)

// TestStartWaitsForTheAPIServer and for its kinds, alive but not ready for a kubelet, and gives the address of the
// probes back. A manager does not ask for those kinds again, and finds others that come later.
func TestStartWaitsForTheAPIServer(t *testing.T) {
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	api, probes := free(), free()
	var kinds meta.RESTMapper
	done := make(chan error, 1)
	go func() {
		var err error
		kinds, err = waitForKinds(t.Context(), logr.Discard(), &rest.Config{Host: "http://" + api}, probes)
		done <- err
	}()
	get := func(path string) int {
		r, err := http.Get("http://" + probes + path)
		if err != nil {
			return 0
		}
		r.Body.Close()
		return r.StatusCode
	}
	for deadline := time.Now().Add(time.Minute); get("/healthz") != http.StatusOK; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("/healthz is not served")
		}
	}
	if code := get("/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d", code)
	}
	select {
	case err := <-done:
		t.Fatalf("it does not wait: %v", err)
	default:
	}
	l, err := net.Listen("tcp", api)
	if err != nil {
		t.Fatal(err)
	}
	missing, served, asked, later := make(chan struct{}), atomic.Bool{}, atomic.Int64{}, atomic.Bool{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case req.URL.Path == "/apis/later.example/v1" && later.Load():
			_, _ = w.Write(
				[]byte(
					`{"kind": "APIResourceList", "groupVersion": "later.example/v1",
						"resources": [{"name": "things", "kind": "Thing"}]}`,
				),
			)
		case req.URL.Path != "/apis/hub.clusterset-dns.io/v1alpha1":
			_, _ = w.Write([]byte(`{}`))
		case !served.Load():
			w.WriteHeader(http.StatusNotFound)
			missing <- struct{}{}
		default:
			_, _ = w.Write(
				[]byte(`{"kind": "APIResourceList", "groupVersion": "hub.clusterset-dns.io/v1alpha1", "resources": [
				{"name": "serviceexportrecords", "kind": "ServiceExportRecord", "namespaced": true}]}`),
			)
		}
	})}
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	<-missing
	served.Store(true) // a second time it is asked all the same: it waits
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if l, err = net.Listen("tcp", probes); err != nil {
		t.Fatalf("the manager needs the address: %v", err)
	}
	l.Close()

	for name, of := range map[string]ctrl.Options{
		"agent": agentOptions(agentFlags{}, kinds), "hub": hubOptions(hubFlags{}, kinds),
	} {
		mapper, err := of.MapperProvider(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		before := asked.Load()
		if _, err := mapper.RESTMapping(
			schema.GroupKind{Group: "hub.clusterset-dns.io", Kind: "ServiceExportRecord"},
			"v1alpha1",
		); err != nil ||
			asked.Load() != before {
			t.Errorf("%s: %d requests for a kind that was found: %v", name, asked.Load()-before, err)
		}
	}
	thing := schema.GroupKind{Group: "later.example", Kind: "Thing"}
	if _, err := kinds.RESTMapping(thing, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that is not there: %v", err)
	}
	later.Store(true)
	if _, err := kinds.RESTMapping(thing, "v1"); err != nil {
		t.Errorf("a kind that came later: %v", err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := waitForKinds(ended, logr.Discard(), &rest.Config{Host: "http://" + free()}, "0"); err == nil {
		t.Error("it was to end, and says that the API server answers")
	}
}

// TestStartWaitsForTheID: a kubelet that found nobody at /healthz would restart the agent again and again.
func TestStartWaitsForTheID(t *testing.T) {
	var id atomic.Pointer[string]
	id.Store(new("not an ID"))
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		const property = `{"kind": "ClusterProperty", "apiVersion": "about.k8s.io/v1beta1", "spec": {"value": %q}}`
		fmt.Fprintf(w, property, *id.Load())
	}))
	defer api.Close()
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(aboutv1beta1.GroupVersion.WithKind("ClusterProperty"), meta.RESTScopeRoot)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	probes := l.Addr().String()
	l.Close()
	done := make(chan error, 1)
	var got string
	go func() {
		var err error
		got, err = waitForID(t.Context(), logr.Discard(), &rest.Config{Host: api.URL}, kinds, probes, "")
		done <- err
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if r, err := http.Get("http://" + probes + "/healthz"); err == nil {
			r.Body.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("/healthz is not served")
		}
	}
	id.Store(new("east"))
	if err := <-done; err != nil || got != "east" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAnAgentWithAnotherIDThanTheMembersNeverLeads: it would refuse to work, and a rollout would end those that do. It
// is not ready and says why. In a cluster that is no member, it leads, and its Membership says what differs.
func TestAnAgentWithAnotherIDThanTheMembersNeverLeads(t *testing.T) {
	var left, leads atomic.Bool
	const kinds = `{"kind": "APIResourceList", "groupVersion": %q, "resources": [
		{"name": %q, "kind": %q, "namespaced": %t}]}`
	const property = `{"kind": "ClusterProperty", "apiVersion": "about.k8s.io/v1beta1", "spec": {"value": %q}}`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch path := req.URL.Path; {
		case path == "/apis/hub.clusterset-dns.io/v1alpha1":
			fmt.Fprintf(w, kinds, "hub.clusterset-dns.io/v1alpha1", "serviceexportrecords", "ServiceExportRecord", true)
		case path == "/apis/coordination.k8s.io/v1":
			fmt.Fprintf(w, kinds, "coordination.k8s.io/v1", "leases", "Lease", true)
		case path == "/apis/about.k8s.io/v1beta1":
			fmt.Fprintf(w, kinds, "about.k8s.io/v1beta1", "clusterproperties", "ClusterProperty", false)
		case strings.HasSuffix(path, "/cluster.clusterset.k8s.io"):
			fmt.Fprintf(w, property, "east")
		case strings.HasSuffix(path, "/clusterset.k8s.io") && !left.Load():
			fmt.Fprintf(w, property, "blue")
		case strings.Contains(path, "/clusterset.k8s.io"), strings.Contains(path, "/leases"):
			leads.Store(leads.Load() || strings.Contains(path, "/leases"))
			http.NotFound(w, req)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"current-context": "x", "contexts": [{"name": "x", "context":
		{"cluster": "x"}}], "clusters": [{"name": "x", "cluster": {"server": %q}}]}`, api.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	probes := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- agentCommand(ctx, logr.Discard(), []string{"--cluster-id=west", "--kubeconfig=" + kubeconfig,
			"--hub-kubeconfig=/none", "--hub-namespace=blue", "--metrics-bind-address=0",
			"--health-probe-bind-address=" + probes})
	}()
	why := ""
	for deadline := time.Now().Add(time.Minute); !strings.Contains(why, `"east"`); time.Sleep(10 * time.Millisecond) {
		if leads.Load() || time.Now().After(deadline) {
			t.Fatalf("leads: %v; /readyz: %s", leads.Load(), why)
		}
		if r, err := http.Get("http://" + probes + "/readyz"); err == nil {
			text, _ := io.ReadAll(r.Body)
			r.Body.Close()
			why = fmt.Sprint(r.StatusCode, string(text))
		}
	}
	if !strings.HasPrefix(why, "503") || !strings.Contains(why, `"west"`) {
		t.Errorf("/readyz: %s", why)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	left.Store(true)
	cfg := &rest.Config{Host: api.URL}
	all, err := waitForKinds(t.Context(), logr.Discard(), cfg, "0")
	if err != nil {
		t.Fatal(err)
	}
	if id, err := waitForID(t.Context(), logr.Discard(), cfg, all, "0", "west"); err != nil || id != "west" {
		t.Errorf("without membership it has the ID %q: %v", id, err)
	}
}
