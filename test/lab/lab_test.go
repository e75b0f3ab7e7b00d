package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterset-dns/clusterset-dns/test/lab/programs"
)

func TestMain(m *testing.M) {
	if os.Getenv(parentMark) != "" {
		beParent()
	}
	code := m.Run()
	if shared.c != nil {
		shared.c.Stop()
	}
	os.Exit(code)
}

var shared struct {
	sync.Once
	c *ControlPlane
}

// controlPlane is one for all tests that leave it as it was.
func controlPlane(t *testing.T) *ControlPlane {
	t.Helper()
	shared.Do(func() {
		c, err := Start(context.WithoutCancel(t.Context()), Options{})
		if err != nil {
			t.Fatal(err)
		}
		shared.c = c
	})
	if shared.c == nil {
		t.Fatal("the shared control plane did not start: see the first test that uses it")
	}
	return shared.c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func kubectl(t *testing.T, c *ControlPlane, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), "", args...)
	must(t, err)
	return out
}

// namespace is a new one, so that tests can be repeated on one control plane.
func namespace(t *testing.T, c *ControlPlane) string {
	t.Helper()
	name := "test-" + strings.ToLower(rand.Text())
	kubectl(t, c, "create", "namespace", name)
	t.Cleanup(func() {
		_, err := c.Kubectl(context.WithoutCancel(t.Context()), "", "delete", "namespace", name, "--wait=false")
		must(t, err)
	})
	return name
}

// folder is a part of the checkout.
func folder(t *testing.T, name string) string {
	t.Helper()
	root, err := Root()
	must(t, err)
	return filepath.Join(root, name)
}

// status asks an API server with a kubeconfig: the HTTP status, or the error of the connection. It comes back when the
// server says so, which it does while it prepares the storage of a kind.
func status(t *testing.T, kubeconfig, method, path string, limit time.Duration) (int, error) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)
	config.Timeout = limit
	config.Dial = (&net.Dialer{}).DialContext // one of its own, so that no connection of an earlier request is used
	client, err := rest.HTTPClientFor(config)
	must(t, err)
	defer client.CloseIdleConnections()
	for {
		r, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader("{}"))
		must(t, err)
		r.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if resp.StatusCode != http.StatusTooManyRequests || err != nil {
			return resp.StatusCode, nil
		}
		time.Sleep(time.Duration(after) * time.Second)
	}
}

func timedOut(err error) bool {
	var e *url.Error
	return errors.As(err, &e) && e.Timeout()
}

const ordinary = 2 * time.Minute // far more than a request takes

func TestProgramsAreOfTheVersionsThatTheyClaim(t *testing.T) {
	c := controlPlane(t)
	out := kubectl(t, c, "version")
	// One that is installed may be of another patch release.
	for _, want := range []string{"Client Version: v" + programs.Minor, "Server Version: v" + programs.Minor} {
		if !strings.Contains(out, want+".") {
			t.Errorf("kubectl version lacks %q:\n%s", want, out)
		}
	}
}

func TestAppliedKindsCanBeUsedAtOnce(t *testing.T) {
	c := controlPlane(t)
	must(t, c.ApplyFolder(t.Context(), folder(t, "deploy/crds")))
	must(t, c.Apply(t.Context(), `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: web, namespace: default}
spec: {type: ClusterSetIP, ips: [10.96.1.1], ports: [{port: 80}]}
`))
	if ips := kubectl(t, c, "get", "serviceimport", "web", "-o", "jsonpath={.spec.ips}"); ips != `["10.96.1.1"]` {
		t.Errorf("ips are %s", ips)
	}
	if err := c.Apply(t.Context(), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: UPPER}\n"); err == nil {
		t.Error("a ConfigMap that the API server refuses is no error")
	}
}

func TestKilledAPIServerComesBackWithPortDataAndTokens(t *testing.T) {
	c := controlPlane(t)
	ns := namespace(t, c)
	kubectl(t, c, "-n", ns, "create", "configmap", "kept", "--from-literal=a=b")
	kubectl(t, c, "-n", ns, "create", "serviceaccount", "kept")
	kubectl(t, c, "-n", ns, "create", "rolebinding", "kept", "--clusterrole=view", "--serviceaccount="+ns+":kept")
	account, err := c.ServiceAccountKubeconfig(t.Context(), ns, "kept", nil)
	must(t, err)
	c.KillAPIServer()
	if code, err := status(t, c.Kubeconfig(), http.MethodGet, "/readyz", ordinary); err == nil {
		t.Errorf("killed, but it answers %d", code)
	}
	must(t, c.StartAPIServer(t.Context()))
	path := "/api/v1/namespaces/" + ns + "/configmaps/kept"
	if code, err := status(t, account, http.MethodGet, path, ordinary); code != http.StatusOK {
		t.Errorf("killed and started: the ConfigMap with the token of before: %d %v", code, err)
	}
}

func TestPausedAPIServerIsSilentUntilItIsResumed(t *testing.T) {
	c := controlPlane(t)
	must(t, c.PauseAPIServer())
	code, err := status(t, c.Kubeconfig(), http.MethodGet, "/readyz", time.Second)
	must(t, c.ResumeAPIServer())
	if !timedOut(err) {
		t.Errorf("paused: %d %v, want a timeout", code, err)
	}
	if code, err := status(t, c.Kubeconfig(), http.MethodGet, "/readyz", ordinary); code != http.StatusOK {
		t.Errorf("resumed: %d %v", code, err)
	}
}

func TestServiceAccountIsRefusedWhatRBACDoesNotGive(t *testing.T) {
	c := controlPlane(t)
	must(t, c.ApplyFolder(t.Context(), folder(t, "deploy/crds")))
	ns := namespace(t, c)
	kubectl(t, c, "-n", ns, "create", "serviceaccount", "reader")
	kubectl(
		t,
		c,
		"-n",
		ns,
		"create",
		"role",
		"reader",
		"--verb=list",
		"--resource=serviceimports.multicluster.x-k8s.io",
	)
	kubectl(t, c, "-n", ns, "create", "rolebinding", "reader", "--role=reader", "--serviceaccount="+ns+":reader")
	account, err := c.ServiceAccountKubeconfig(t.Context(), ns, "reader", nil)
	must(t, err)
	imports := "/apis/multicluster.x-k8s.io/v1beta1/namespaces/" + ns + "/serviceimports"
	for _, r := range []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, imports, http.StatusOK},
		{http.MethodPost, imports, http.StatusForbidden},
		{http.MethodGet, "/api/v1/namespaces/" + ns + "/secrets", http.StatusForbidden},
	} {
		if code, err := status(t, account, r.method, r.path, ordinary); code != r.want {
			t.Errorf("%s %s: %d %v, want %d", r.method, r.path, code, err, r.want)
		}
	}
	if _, err := c.ServiceAccountKubeconfig(t.Context(), ns, "absent", nil); err == nil {
		t.Error("a kubeconfig for a ServiceAccount that does not exist")
	}
}

func TestClientBehindAForwarderIsCutOffAloneAndReturns(t *testing.T) {
	c := controlPlane(t)
	ns := namespace(t, c)
	kubectl(t, c, "-n", ns, "create", "serviceaccount", "far")
	f, err := c.Forward()
	must(t, err)
	via, err := c.ServiceAccountKubeconfig(t.Context(), ns, "far", f)
	must(t, err)
	reach := func(kubeconfig string, limit time.Duration) error {
		code, err := status(t, kubeconfig, http.MethodGet, "/version", limit)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		return err
	}
	must(t, reach(via, ordinary))
	for _, cut := range []struct {
		how   string
		do    func()
		limit time.Duration
		want  func(error) bool
	}{
		{"cut", f.Cut, ordinary, func(err error) bool { return err != nil && !timedOut(err) }},
		{"hanging", f.Hang, 2 * time.Second, timedOut},
	} {
		cut.do()
		if err := reach(via, cut.limit); !cut.want(err) {
			t.Errorf("%s: the client behind the forwarder gets %v", cut.how, err)
		}
		if err := reach(c.Kubeconfig(), ordinary); err != nil {
			t.Errorf("%s: the client beside the forwarder gets %v", cut.how, err)
		}
		f.Restore()
		if err := reach(via, ordinary); err != nil {
			t.Errorf("restored after %s: %v", cut.how, err)
		}
	}
}

// Two at once, the second with its options.
func TestControlPlanesStandSideBySide(t *testing.T) {
	first := controlPlane(t)
	second := Run(
		t,
		Options{
			ServiceCIDR:         "10.97.0.0/16",
			NoControllerManager: true,
			APIServer:           []string{"--service-node-port-range=31000-31001"},
		},
	)
	// Where it has the name of an earlier run it has its address too.
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: one, namespace: default}\nspec: {type: NodePort, ports: [{port: 80}]}\n"
	must(t, first.Apply(t.Context(), service))
	must(t, second.Apply(t.Context(), service))
	if ip := kubectl(
		t,
		first,
		"get",
		"service",
		"one",
		"-o",
		"jsonpath={.spec.clusterIP}",
	); !strings.HasPrefix(
		ip,
		"10.96.",
	) {
		t.Errorf("the first gives %s", ip)
	}
	if ip := kubectl(
		t,
		second,
		"get",
		"service",
		"one",
		"-o",
		"jsonpath={.spec.clusterIP}",
	); !strings.HasPrefix(
		ip,
		"10.97.",
	) {
		t.Errorf("the second gives %s", ip)
	}
	if port := kubectl(
		t,
		second,
		"get",
		"service",
		"one",
		"-o",
		"jsonpath={.spec.ports[0].nodePort}",
	); !strings.HasPrefix(
		port,
		"3100",
	) {
		t.Errorf("the second gives node port %s", port)
	}
	if out := kubectl(t, second, "get", "serviceaccounts", "-o", "name"); out != "" {
		t.Errorf("without controller manager there are %s", out)
	}
}

// What came after the snapshot never was.
func TestSnapshotIsAllThatThereIsAfterItsRestore(t *testing.T) {
	c := Run(t, Options{NoControllerManager: true})
	kubectl(t, c, "create", "namespace", "before")
	snapshot, err := c.Snapshot()
	must(t, err)
	kubectl(t, c, "create", "namespace", "after")
	must(t, c.Restore(t.Context(), snapshot))
	if out := kubectl(
		t,
		c,
		"get",
		"namespaces",
		"before",
		"after",
		"--ignore-not-found",
		"-o",
		"name",
	); strings.TrimSpace(out) != "namespace/before" {
		t.Errorf("there are %q", out)
	}
}
