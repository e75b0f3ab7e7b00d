package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// servicesAreExportedByName: and completed, and withdrawn; a dry run does neither.
func (e *environment) servicesAreExportedByName(t *testing.T) {
	e.service(t, "east", "shop", "db")
	at := []string{"--context", "east", "-n", "shop"}
	run := func(want string, args ...string) {
		t.Helper()
		r := e.ok(t, append(args, at...)...)
		if got := strings.TrimSpace(r.stdout + r.stderr); got != want {
			t.Errorf("%v says %q, want %q", args, got, want)
		}
	}
	exported := func(want bool) {
		t.Helper()
		err := e.admin["east"].Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "db"},
			&mcsv1beta1.ServiceExport{})
		if client.IgnoreNotFound(err) != nil || (err == nil) != want {
			t.Fatalf("ServiceExport db: %v, wanted: %v", err, want)
		}
	}
	completed := func(want string, args ...string) {
		t.Helper()
		out := e.ok(t, append(append([]string{"__complete", args[0]}, at...), args[1:]...)...).stdout
		if names, _, _ := strings.Cut(out, "\n:"); names != want {
			t.Errorf("%v is completed with %q, want %q", args, names, want)
		}
	}
	completed("db", "export", "d")
	run("serviceexport/db created (dry run)", "export", "db", "--dry-run=client")
	exported(false)
	run("serviceexport/db created\nwhat becomes of it: kubectl clusterset --context=east explain db.shop", "export",
		"db")
	exported(true)
	eventually(t, "db.shop in south",
		func(ctx context.Context) error { return e.imported(ctx, "south", "shop", "db", 1) })
	run("serviceexport/db unchanged", "export", "db.shop")
	completed("db\nweb", "export", "--delete", "")
	completed("db.shop", "explain", "d")
	completed("db.shop", "plan", "d")
	run("serviceexport/db deleted (dry run)", "export", "db", "--delete", "--dry-run=client")
	exported(true)
	names := e.ok(t, append([]string{"status", "-o", "name"}, at...)...).stdout
	if count := e.ok(t, append([]string{"status", "-o", `jsonpath={range .names[*]}{.name}.{.namespace}{"\n"}{end}`},
		at...)...).stdout; !strings.Contains(names, "db.shop\n") || count != names {
		t.Errorf("status -o name: %q; by jsonpath: %q", names, count)
	}
	watched := e.watch(t, append([]string{"status", "--watch"}, at...)...)
	eventually(t, "status is shown", func(context.Context) error { return watched(1) })
	run("serviceexport/db deleted", "export", "db", "--delete")
	exported(false)
	eventually(t, "status is shown again", func(context.Context) error { return watched(2) })
	eventually(t, "db.shop is gone from south", func(ctx context.Context) error {
		err := e.admin["south"].Get(ctx, client.ObjectKey{Namespace: "shop", Name: "db"}, &mcsv1beta1.ServiceImport{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	e.refused(t, []string{"there is no ServiceExport shop/db"}, append([]string{"export", "--delete", "db"}, at...)...)
	e.refused(t, []string{"there is no Service shop/nothing"}, append([]string{"export", "nothing"}, at...)...)
}

// watch runs a command until the test ends, and returns a function that fails until it has shown so many reports.
func (e *environment) watch(t *testing.T, args ...string) func(times int) error {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := e.command(t.Context(), args...)
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(cmd.Process.Kill(), cmd.Wait(), out.Close()) })
	return func(times int) error {
		text, err := os.ReadFile(out.Name())
		if n := strings.Count("\n"+string(text), "\nClusterSet "); err == nil && n < times {
			err = fmt.Errorf("it was shown %d times:\n%s", n, text)
		}
		return err
	}
}

// changesArePlanned: as docs/traffic.md has it, and in text, for programs, and by the hub's credentials.
func (e *environment) changesArePlanned(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(e.root, "docs/traffic.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, yaml, _ := strings.Cut(string(page), "```yaml\n")
	yaml, _, _ = strings.Cut(yaml, "```")
	file := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(string(page)) {
		args, found := strings.CutPrefix(line, "    kubectl clusterset plan ")
		if !found {
			continue
		}
		ran++
		r := e.run(t, append([]string{"plan"}, strings.Fields(strings.Replace(args, "shop.yaml", file, 1))...)...)
		takes := strings.Contains(args, "--delete")
		if code := r.code(); code != map[bool]int{true: 2, false: 0}[takes] || !strings.Contains(r.stdout, "CHANGES") {
			t.Errorf("plan %s: exit status %d\n%s%s", args, code, r.stdout, r.stderr)
		}
	}
	if ran != 3 {
		t.Errorf("%d commands of the page were run", ran)
	}
	var report struct {
		Kind      string
		TakesAway bool
		Changes   []struct{ Name, What string }
	}
	r := e.run(t, "plan", "web", "-n", "shop", "--delete", "--context", "west", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code() != 2 || report.Kind != "Plan" ||
		!report.TakesAway || len(report.Changes) == 0 || report.Changes[0].Name != "web.shop" {
		t.Errorf("%v: exit status %d\n%s%s", err, r.code(), r.stdout, r.stderr)
	}
	if out := e.ok(t, "plan", "web.shop", "--context", "east").stdout; out != "Applied in cluster east: 0 changes\n" {
		t.Errorf("an export as it is: %s", out)
	}
	if out := e.ok(t, "plan", "nothing", "-n", "shop", "--context", "east").stdout; !strings.Contains(out,
		"nothing.shop would not be exported: There is no Service shop/nothing") {
		t.Errorf("what is not there: %s", out)
	}
	e.refused(t, []string{"either a name or -f FILE"}, "plan", "web.shop", "-f", file, "--context", "east")
	e.refused(t, []string{`the hub has no member "x"`}, "plan", "web.shop", "--cluster-id=x", "--context=hub")
	e.refused(t, []string{"cluster east was not read"}, "plan", "web.shop", "--cluster-id", "east", "--context", "hub")
}

// whatIsGatheredHasNoCredentials: neither the hub's token, nor what somebody wrote into a Secret, an environment, an
// annotation or the Corefile.
func (e *environment) whatIsGatheredHasNoCredentials(t *testing.T) {
	const canary = "canary-hunter2-hunter2"
	east := e.admin["east"]
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusterset-system", Name: "canary"},
		StringData: map[string]string{"password": canary},
	}
	if err := east.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = east.Delete(context.WithoutCancel(t.Context()), secret) })
	var link corev1.Secret
	key := client.ObjectKey{Namespace: "clusterset-system", Name: "hub-kubeconfig"}
	if err := east.Get(t.Context(), key, &link); err != nil {
		t.Fatal(err)
	}
	token := string(link.Data["token"])
	if strings.Count(token, ".") != 2 {
		t.Fatal("the Secret of the hub has no token")
	}
	secrets := []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), token, strings.Split(token, ".")[2]}

	file := filepath.Join(t.TempDir(), "support.tar.gz")
	e.ok(t, "gather", "--context", "east", "--hub-context", "hub", "-f", file)
	files := e.archive(t, file, secrets)
	for _, want := range []string{"name: web", "type: ClusterSetIP", "multicluster.kubernetes.io/source-cluster: west",
		"name: clusterset-controller", "source-west", "Corefile", "clusterID: east", "name: south", "MemberEvents"} {
		if !strings.Contains(files["snapshot.yaml"], want) {
			t.Errorf("the snapshot has no %q", want)
		}
	}
	for name, want := range map[string]string{"status.txt": "web.shop", "doctor.txt": "agent-down", "errors.txt": ""} {
		if text, there := files[name]; !there || !strings.Contains(text, want) {
			t.Errorf("%s has no %q:\n%.500s", name, want, text)
		}
	}
	e.anArchiveAnswersAsTheClusters(t, file)
	e.refused(t, []string{"exist"}, "gather", "--context", "east", "-f", file)

	// Who may read little gets little, and is told what is missing.
	file = filepath.Join(t.TempDir(), "reader.tar.gz")
	e.ok(t, "gather", "--context", "east", "--as", "nobody", "-f", file)
	files = e.archive(t, file, secrets)
	if !strings.Contains(files["errors.txt"], "serviceexports: this cluster: listing serviceexports failed") ||
		!strings.Contains(files["errors.txt"], "forbidden") {
		t.Errorf("what nobody may read:\n%s", files["errors.txt"])
	}
}

// anArchiveAnswersAsTheClusters: status, doctor, explain and plan print of it what they print of the clusters.
func (e *environment) anArchiveAnswersAsTheClusters(t *testing.T, file string) {
	t.Helper()
	at := []string{"--context", "east", "--hub-context", "hub"}
	for _, args := range [][]string{{"status", "-o", "wide"}, {"doctor", "-o", "wide"},
		{"explain", "web.shop", "-o", "wide"},
		{"explain", "nothing.shop"}, {"plan", "web.shop", "--delete"}} {
		var live, again string
		eventually(t, strings.Join(args, " "), func(context.Context) error { // the clusters may change in between
			flags := at
			if args[0] == "explain" {
				flags = at[:2]
			}
			live = e.normal(e.run(t, append(slices.Clone(args), flags...)...).stdout)
			again = e.normal(e.run(t, append(slices.Clone(args), "--from", file)...).stdout)
			if live != again {
				return fmt.Errorf("of the archive it prints\n%s\nand of the clusters\n%s", again, live)
			}
			return nil
		})
	}
	if r := e.run(t, "status", "--from", filepath.Join(e.root, "go.mod")); r.err == nil ||
		!strings.Contains(r.stderr, "reading the archive") {
		t.Errorf("of no archive: %s%s", r.stdout, r.stderr)
	}
}

// archive reads one, in which none of the secrets may be.
func (e *environment) archive(t *testing.T, path string, secrets []string) map[string]string {
	t.Helper()
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(unzipped); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(head.Name, "clusterset-support/")] = string(text)
		for _, s := range secrets {
			if bytes.Contains(text, []byte(s)) {
				t.Errorf("%s has the credential %.12s…", head.Name, s)
			}
		}
	}
}
