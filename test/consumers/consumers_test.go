package consumers

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients
	code := m.Run()
	if page := os.Getenv("CONSUMERS_PAGE"); page != "" && code == 0 {
		if err := os.WriteFile(page, []byte(table()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func namespaced(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// consumer is one row of docs/consumers.md.
type consumer struct {
	name, version, asked string
	port                 int32
	before               string // what it saw before slices had a form for it, at 81ab5485
	sees                 func() (set, error)
	want                 func() set // that; nil: all that should get traffic
	what                 string     // in words
	slowest              time.Duration
}

func TestIstioSendsTrafficWhereTheExportsSay(t *testing.T) {
	w := begin(t, here, "b")
	follow(t, w, append(kubeProxies(t, w), sidecars(t, w)...))
}

func TestAmbientSendsTrafficWhereTheExportsSay(t *testing.T) {
	w := begin(t, here, "b")
	follow(t, w, append(kubeProxies(t, w), ztunnels(t, w)...))
}

func TestEnvoyGatewaySendsTrafficWhereTheExportsSay(t *testing.T) {
	w := begin(t, here, "b")
	follow(t, w, append(kubeProxies(t, w), envoyGateways(t, w)...))
}

// follow compares where each consumer sends new connections to with the ready endpoints of the clusters that are to get
// them, after every step.
func follow(t *testing.T, w *world, all []*consumer) {
	t.Helper()
	// agree waits until all see what is exported, and returns how long that took each.
	agree := func(what string, limit time.Duration) map[*consumer]time.Duration {
		t.Helper()
		began, took := time.Now(), map[*consumer]time.Duration{}
		err := lab.Until(t.Context(), limit, what, func() (missing error) {
			for _, c := range all {
				if took[c] > 0 {
					continue
				}
				got, err := c.sees()
				if err == nil {
					want := w.exported(c.port, w.serving, false)
					if c.want != nil {
						want = c.want()
					}
					err = difference(got, want)
				}
				if err != nil {
					missing = errors.Join(missing, fmt.Errorf("%s, %s: %w", c.name, c.asked, err))
					continue
				}
				took[c] = time.Since(began)
			}
			return missing
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf(
			"%s: %d endpoints seen by all after %v",
			what,
			len(w.exported(80, w.serving, false)),
			time.Since(began).Round(time.Millisecond),
		)
		return took
	}
	agree("at first", limit)
	clusters := []string{here, "b"}
	churn := func(what string, batches int) {
		t.Helper()
		for batch := range batches {
			for range 10 {
				w.change(t, clusters[w.random.IntN(len(clusters))])
			}
			for c, took := range agree(fmt.Sprintf("%s, batch %d", what, batch+1), soon) {
				c.slowest = max(c.slowest, took)
			}
		}
	}
	churn("churn", 15)

	w.prefer(t, "local,any")
	w.serving = map[string]bool{here: true}
	agree("prefer local", soon)
	churn("churn with prefer local", 5)
	for _, p := range w.pods[here] {
		if p.ready && !p.terminating {
			p.ready = false
			w.report(t, here, p)
		}
	}
	w.serving = map[string]bool{"b": true}
	agree("prefer local, none of whose endpoints is ready", soon)
	for range 3 {
		w.add(t, here)
	}
	w.serving = map[string]bool{here: true}
	agree("prefer local, which has endpoints again", soon)
	w.prefer(t, "")
	w.serving = map[string]bool{here: true, "b": true}
	agree("no preference", soon)

	w.member("b").Agent.Kill()
	delete(w.serving, "b")
	delete(w.live, "b")
	agree("b is lost", limit)
	w.add(t, here)
	agree("a change while b is lost", soon)
	if err := w.member("b").Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.serving["b"], w.live["b"] = true, true
	agree("b is back", limit)
	followed = append(followed, all...)
}

// followed are the rows of docs/consumers.md.
var followed []*consumer

// kubeProxies are what this project says itself: beside it all others are read.
func kubeProxies(t *testing.T, w *world) (out []*consumer) {
	for port := range ports {
		out = append(out, &consumer{
			name: "kube-proxy", asked: fmt.Sprintf("the VIP, port %d", port), port: port,
			sees: func() (set, error) { return w.proxied(t.Context(), port) },
		})
	}
	return out
}

func sidecars(t *testing.T, w *world) []*consumer {
	installIstio(t, w)
	plain, version := istiod(t, w)
	mcs, _ := istiod(t, w, "ENABLE_MCS_SERVICE_DISCOVERY=true", "ENABLE_MCS_HOST=true")
	return []*consumer{
		{
			name: "Istio, sidecar", version: short(version), asked: "the VIP, port 80", port: 80,
			before: "none", sees: sidecar(t, w, plain, 80),
		},
		{
			name: "Istio, sidecar", version: short(version), asked: "the VIP, port 5432", port: 5432,
			before: "none", sees: sidecar(t, w, plain, 5432),
		},
		{
			name: "Istio, gateway", version: short(version), asked: "the derived Service, port 80", port: 80,
			before: "none", sees: router(t, w, plain, 80),
		},
		{
			name: "Istio, sidecar, `ENABLE_MCS_*`", version: short(version), asked: "the VIP, port 80", port: 80,
			before: "those of its own cluster", sees: sidecar(t, w, mcs, 80), what: "those of its own cluster",
			want: func() set { return w.exported(80, map[string]bool{here: true}, false) },
		},
	}
}

func ztunnels(t *testing.T, w *world) []*consumer {
	installIstio(t, w)
	addr, version := istiod(t, w, "PILOT_ENABLE_AMBIENT=true")
	const before = "those of others, and its own cluster's at the VIP's port, where no Pod listens"
	of := func(port int32) *consumer {
		return &consumer{
			name: "Istio, ztunnel (ambient)", version: short(version), asked: fmt.Sprintf("the VIP, port %d", port),
			port: port, before: before, sees: ztunnel(t, w, addr, port),
		}
	}
	return []*consumer{of(80), of(5432)}
}

func envoyGateways(t *testing.T, w *world) []*consumer {
	version, creds := envoyGateway(t, w)
	of := func(asked string, port int32, before string) *consumer {
		return &consumer{
			name: "Envoy Gateway", version: version, asked: asked, port: port, before: before,
			sees: gateway(t, creds, port),
		}
	}
	return []*consumer{
		of("HTTPRoute to the ServiceImport, port 80", 80, "no cluster: it answers 503"),
		of("TCPRoute to the ServiceImport, port 5432", 5432, "none"),
	}
}

// table is docs/consumers.md.
func table() string {
	var out strings.Builder
	out.WriteString(heading)
	for _, c := range followed {
		if c.version != "" {
			fmt.Fprintf(&out, "| %s | %s | %s | %s | %s, at most %.1f s after a change |\n", c.name, c.version,
				c.asked, c.before, cmp.Or(c.what, "all that should get traffic"), c.slowest.Seconds())
		}
	}
	return out.String()
}

const heading = `# Meshes, gateways and Prometheus

Written by ` + "`make consumers`" + `. It runs the control planes of others on a clusterset of two members that both
export one ClusterSetIP Service, and asks them by xDS as their proxies do. Both columns say to which endpoints
connections would go, without any slice made for these readers (before) and now: through 200 changes of Pods,
` + "`local,any`" + `, no local endpoint, and the loss and return of a cluster. No traffic is sent.

Prometheus is asked for its targets, where a Headless Service of the same Pods is exported, too, and the kinds of
Envoy Gateway are installed. It looks at what it has found every 5 s.

With ` + "`ENABLE_MCS_*`" + ` Istio makes a Service of its own with the cluster's addresses of the name, and of that one and
the derived Service takes the older. Its own has no endpoints of clusters that Istio has no remote secret of. Leave
these flags off.

| consumer | version | asked for | saw before | sees now |
| --- | --- | --- | --- | --- |
`
