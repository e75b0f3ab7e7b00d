package consumers

import (
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
	slowest              time.Duration
}

func TestIstioSendsTrafficWhereTheExportsSay(t *testing.T) {
	w := begin(t, here, "b", "c")
	follow(t, w, append(kubeProxies(t, w), istios(t, w)...))
}

func TestEnvoyGatewaySendsTrafficWhereTheExportsSay(t *testing.T) {
	w := begin(t, here, "b", "c")
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
					err = difference(got, w.exported(c.port))
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
		t.Logf("%s: %d endpoints seen by all after %v", what, len(w.exported(80)), time.Since(began).Round(time.Millisecond))
		return took
	}
	agree("at first", limit)
	clusters := []string{here, "b", "c"}
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
	w.serving = map[string]bool{"b": true, "c": true}
	agree("prefer local, none of whose endpoints is ready", soon)
	for range 3 {
		w.add(t, here)
	}
	w.serving = map[string]bool{here: true}
	agree("prefer local, which has endpoints again", soon)
	w.prefer(t, "")
	w.serving = map[string]bool{here: true, "b": true, "c": true}
	agree("no preference", soon)

	w.member("c").Agent.Kill()
	delete(w.serving, "c")
	agree("c is lost", limit)
	w.change(t, "b")
	agree("a change while c is lost", soon)
	if err := w.member("c").Agent.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.serving["c"] = true
	agree("c is back", limit)
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

func istios(t *testing.T, w *world) []*consumer {
	installIstio(t, w)
	plain, version := istiod(t, w)
	ambient, _ := istiod(t, w, "PILOT_ENABLE_AMBIENT=true")
	mcs, _ := istiod(t, w, "ENABLE_MCS_SERVICE_DISCOVERY=true", "ENABLE_MCS_HOST=true")
	of := func(name, asked string, port int32, before string, sees func() (set, error)) *consumer {
		return &consumer{
			name: name, version: short(version), asked: asked, port: port, before: before, sees: sees,
		}
	}
	return []*consumer{
		of("Istio, sidecar", "the VIP, port 80", 80, "?", sidecar(t, w, plain, 80)),
		of("Istio, sidecar", "the VIP, port 5432", 5432, "?", sidecar(t, w, plain, 5432)),
		of("Istio, gateway", "the derived Service, port 80", 80, "?", router(t, w, plain, 80)),
		of("Istio, sidecar, `ENABLE_MCS_*`", "the VIP, port 80", 80, "?", sidecar(t, w, mcs, 80)),
		of("Istio, ztunnel (ambient)", "the VIP, port 80", 80, "?", ztunnel(t, w, ambient, 80)),
		of("Istio, ztunnel (ambient)", "the VIP, port 5432", 5432, "?", ztunnel(t, w, ambient, 5432)),
	}
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
		of("HTTPRoute to the ServiceImport, port 80", 80, "?"),
		of("TCPRoute to the ServiceImport, port 5432", 5432, "?"),
	}
}

// table is docs/consumers.md.
func table() string {
	var out strings.Builder
	out.WriteString(heading)
	for _, c := range followed {
		if c.version != "" {
			fmt.Fprintf(&out, "| %s | %s | %s | %s | equal after every step, at most %.1f s later |\n",
				c.name, c.version, c.asked, c.before, c.slowest.Seconds())
		}
	}
	return out.String()
}

const heading = `# What others make of it
`
