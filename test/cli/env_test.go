// Package cli runs kubectl-clusterset on real control planes, as a new admin would: a hub and three clusters. It
// compares what the commands print with testdata. go test ./test/cli -update writes testdata; read the difference.
package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

var update = flag.Bool("update", false, "write testdata")

// limit is far more than anything takes: machines are shared.
const limit = 4 * time.Minute

// environment is the hub and the clusters, by the names of their contexts in one kubeconfig.
type environment struct {
	root, dir  string
	kubeconfig string
	planes     lab.Planes
	admin      map[string]client.Client
	kubelets   map[string]*lab.Kubelet
}

var shared struct {
	sync.Once
	env *environment
	err error
}

// setUp returns the clusters, which the tests share: each leaves them as it found them.
func setUp(t *testing.T) *environment {
	t.Helper()
	shared.Do(func() { shared.env, shared.err = start(context.Background(), "hub", "east", "west", "south") })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for name, k := range shared.env.kubelets {
				t.Logf("what runs in %s said:\n%s", name, k.Log())
			}
		}
	})
	return shared.env
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients
	code := m.Run()
	if shared.env != nil {
		shared.env.stop()
	}
	os.Exit(code)
}

func start(ctx context.Context, names ...string) (*environment, error) {
	e := &environment{admin: map[string]client.Client{}, kubelets: map[string]*lab.Kubelet{}}
	var err error
	if e.root, err = lab.Root(); err != nil {
		return nil, err
	}
	// That go's cache of test results knows when make has built another.
	if _, err := os.Stat(filepath.Join(e.root, "bin", "kubectl-clusterset")); err != nil {
		return nil, fmt.Errorf("%w: make build makes it", err)
	}
	if e.dir, err = os.MkdirTemp("", "clusterset-lab-cli-"); err != nil {
		return nil, err
	}
	if e.planes, err = lab.StartPlanes(ctx, func(string) lab.Options { return lab.Options{} }, names...); err != nil {
		return e, err
	}
	return e, e.connect(names)
}

// connect writes the admin's kubeconfig and makes the clients.
func (e *environment) connect(names []string) error {
	for _, name := range names {
		cfg, err := e.planes[name].RESTConfig()
		if err != nil {
			return err
		}
		cfg.QPS = -1
		if e.admin[name], err = client.New(cfg, client.Options{Scheme: scheme()}); err != nil {
			return err
		}
	}
	e.kubeconfig = filepath.Join(e.dir, "kubeconfig")
	return e.planes.WriteKubeconfig(e.kubeconfig)
}

func scheme() *runtime.Scheme {
	s := agent.Scheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
}

func (e *environment) stop() {
	for _, k := range e.kubelets {
		k.Stop()
	}
	e.planes.Stop()
	_ = os.RemoveAll(e.dir)
}

// run is the program with these arguments.
type result struct {
	stdout, stderr string
	err            error
	took           time.Duration
}

// code is the exit status.
func (r result) code() int { return exitCode(r.err) }

func exitCode(err error) int {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// withImage adds the image that a build without a release must be given.
func withImage(args []string) []string {
	if len(args) == 0 || args[0] != "init" && args[0] != "join" ||
		slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--image") || a == "--renew" }) {
		return args
	}
	return append(slices.Clone(args), "--image=registry.example/clusterset-controller:v0.1.0")
}

func (e *environment) command(ctx context.Context, args ...string) *exec.Cmd {
	args = withImage(args)
	cmd := exec.CommandContext(ctx, filepath.Join(e.root, "bin", "kubectl-clusterset"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig, "HOME=/home/admin")
	return cmd
}

func (e *environment) run(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	cmd := e.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	return result{stdout.String(), stderr.String(), err, time.Since(began)}
}

// ok runs the program, which must succeed.
func (e *environment) ok(t *testing.T, args ...string) result {
	t.Helper()
	r := e.run(t, args...)
	if r.err != nil {
		t.Fatalf("kubectl clusterset %s: %v\n%s%s", strings.Join(args, " "), r.err, r.stdout, r.stderr)
	}
	return r
}

// refused runs the program, which must fail and say all of this.
func (e *environment) refused(t *testing.T, want []string, args ...string) {
	t.Helper()
	r := e.run(t, args...)
	if r.err == nil {
		t.Fatalf("kubectl clusterset %s: it is not refused\n%s%s", strings.Join(args, " "), r.stdout, r.stderr)
	}
	for _, w := range want {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("kubectl clusterset %s: no %q in\n%s", strings.Join(args, " "), w, r.stderr)
		}
	}
}

// golden compares a run with testdata/NAME: the command, what it printed, and how it ended.
func (e *environment) golden(t *testing.T, name string, r result, args ...string) {
	t.Helper()
	got := "$ kubectl clusterset " + strings.Join(withImage(args), " ") + "\n" + e.normal(r.stderr+r.stdout)
	if code := r.code(); code != 0 {
		got += fmt.Sprintf("exit status %d\n", code)
	}
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := string(text); got != want {
		t.Errorf("%s: it prints\n%s\nand not\n%s", name, got, want)
	}
}

// What differs from run to run.
var differs = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`https://127\.0\.0\.1:\d+`), "https://ADDRESS"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\b(\d+[smhd])+ ago`), "AGE ago"},
	{regexp.MustCompile(`v1\.\d+\.\d+(-[a-z0-9.]+)?`), "VERSION"},
	{regexp.MustCompile(`Versions: kubectl-clusterset [^,\s]+`), "Versions: kubectl-clusterset VERSION"},
	{regexp.MustCompile(`10\.96\.\d+\.\d+`), "VIP"},
	{regexp.MustCompile(`(?m)^(  \S+ +)\d+[smh](\d+s)? `), "${1}AGE "},
	{regexp.MustCompile(`(VERSION +\d+ +)\d+[smh](\d+s)?`), "${1}AGE"},
	{regexp.MustCompile(`\b\d+ checks`), "N checks"},
	{regexp.MustCompile(`(certificate-authority-data|kubeconfig): \S+`), "$1: DATA"},
}

func (e *environment) normal(text string) string {
	// It depends on how long that takes.
	text = regexp.MustCompile(`(?m)^waiting (for|up to) .*\n`).ReplaceAllString(text, "")
	for _, d := range differs {
		text = d.pattern.ReplaceAllString(text, d.with)
	}
	return regexp.MustCompile(` +(\n|  )`).ReplaceAllStringFunc(text, func(s string) string {
		if strings.HasSuffix(s, "\n") {
			return "\n"
		}
		return "   "
	})
}

// eventually asks until there is no error. A question that hangs ends a minute after the limit.
func eventually(t *testing.T, what string, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit+time.Minute)
	defer cancel()
	if err := lab.Until(ctx, limit, what, func() error { return ask(ctx) }); err != nil {
		t.Fatal(err)
	}
}

// nodes has the clusters run what is deployed in them, until the test ends.
func (e *environment) nodes(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		e.node(t, name)
	}
}

func (e *environment) node(t *testing.T, name string) *lab.Kubelet {
	t.Helper()
	k, err := lab.StartKubelet(e.planes[name])
	if err != nil {
		t.Fatal(err)
	}
	e.kubelets[name] = k
	t.Cleanup(k.Stop)
	return k
}

// healthy checks that the hub shows all these members as healthy, with a version.
func (e *environment) healthy(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		p := &inventoryv1alpha1.ClusterProfile{}
		if err := e.admin["hub"].Get(ctx, client.ObjectKey{Namespace: "clusterset", Name: id}, p); err != nil {
			return err
		}
		for _, c := range []string{inventoryv1alpha1.ConditionJoined, inventoryv1alpha1.ConditionControlPlaneHealthy} {
			if !meta.IsStatusConditionTrue(p.Status.Conditions, c) || p.Status.Version.Kubernetes == "" {
				return fmt.Errorf("%s: %+v", id, p.Status)
			}
		}
	}
	return nil
}
