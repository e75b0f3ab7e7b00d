package policies

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// The commands in the READMEs, as they stand there, make members that can write.
func TestREADMEsCommandsMakeAMember(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	root, err := lab.Root()
	must(t, err)
	dir := t.TempDir()
	must(t, os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")))

	hub := commands(t, filepath.Join(root, "deploy/hub/README.md"))
	if len(hub) != 5 {
		t.Fatalf(
			"deploy/hub/README.md has %d blocks of commands; three steps, the check that follows, and Events "+
				"are known here",
			len(hub),
		)
	}
	member := commands(t, filepath.Join(root, "deploy/member/README.md"))
	if len(member) != 3 {
		t.Fatalf("deploy/member/README.md has %d blocks of commands; three steps are known here", len(member))
	}
	operate, err := os.ReadFile(filepath.Join(root, "docs/operate.md"))
	must(t, err)
	leave := "annotate clusterproperty " + clusterset.PropertySet + " " + clusterset.AnnotationLeaving + "=true"
	if !strings.Contains(
		string(operate),
		leave,
	) {
		t.Errorf("docs/operate.md has no way back by %q", leave)
	}
	for _, block := range append(hub[:3:3], member...) {
		if out, err := e.shell(ctx, dir, block); err != nil {
			t.Fatalf("%s\n%v\n%s", block, err, out)
		}
	}
	if out, err := e.shell(
		ctx,
		dir,
		hub[3],
	); err == nil ||
		!strings.Contains(out, "cluster east does not write Lease west") {
		t.Errorf("the check says: %v\n%s", err, out)
	}
	events := hub[4]
	if out, err := e.shell(
		ctx,
		dir,
		events,
	); err != nil ||
		!strings.HasPrefix(events, "kubectl -n clusterset get events") {
		t.Errorf("%s: %v\n%s", events, err, out)
	}
	if out, err := e.shell(
		ctx,
		dir,
		"sed 's/CLUSTER-ID/east/' deploy/hub/member/member.yaml | kubectl create -f -",
	); err == nil ||
		!strings.Contains(out, `clusterprofiles.multicluster.x-k8s.io "east" already exists`) {
		t.Errorf("a taken id: %v\n%s", err, out)
	}
	for ns, deployment := range map[string]string{"clusterset": "clusterset-hub", "blue": "clusterset-hub-blue"} {
		want := "--hub-namespace=" + ns
		if out, err := e.shell(
			ctx,
			dir,
			"kubectl -n clusterset-system get deployment "+deployment+
				" -o jsonpath='{.spec.template.spec.containers[0].args}'",
		); err != nil ||
			!strings.Contains(out, want) {
			t.Errorf("the program of %s has the arguments %s (%v)", ns, out, err)
		}
		if can, err := e.may(
			ctx,
			"system:serviceaccount:clusterset-system:clusterset-hub",
			"delete clusterprofiles.multicluster.x-k8s.io@"+ns,
		); err != nil ||
			!can {
			t.Errorf("the program has no rights in %s (%v)", ns, err)
		}
	}
	if out, err := e.shell(
		ctx,
		dir,
		"kubectl -n clusterset-system get secret hub-kubeconfig -o jsonpath='{.data}'",
	); err != nil ||
		!strings.Contains(out, `"token"`) {
		t.Errorf("the Secret holds %s (%v)", out, err)
	}
	home, err := connect(filepath.Join(dir, "kubeconfig"))
	must(t, err)
	blue, err := e.connectAs(ctx, other, "mcs-east")
	must(t, err)
	r := exportRecord("east", "readme")
	must(t, home.Create(ctx, r.DeepCopy()))
	must(t, home.Delete(ctx, r))
	r.Namespace = other
	must(t, blue.Create(ctx, r.DeepCopy()))
	must(t, blue.Delete(ctx, r))
	var sets hubv1alpha1.ClusterSetList
	must(t, blue.List(ctx, &sets, client.InNamespace(other)))
	if len(sets.Items) != 1 || sets.Items[0].Name != other {
		t.Errorf("ClusterSets in %s: %+v", other, sets.Items)
	}
}

// The commands of docs/operate.md save the settings of a ClusterSet, and restore them in one that init has created.
func TestSettingsOfALostHubAreRestored(t *testing.T) {
	e := setUp(t)
	root, err := lab.Root()
	must(t, err)
	var save, restore string
	for _, block := range commands(t, filepath.Join(root, "docs/operate.md")) {
		block = strings.ReplaceAll(block, " --context=hub", "")
		switch {
		case strings.Contains(block, "> spec.json"):
			save = block
		case strings.Contains(block, "cat spec.json"):
			restore = block
		}
	}
	dir := t.TempDir()
	run := func(script string) string {
		t.Helper()
		out, err := e.shell(t.Context(), dir, script)
		if err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return out
	}
	var before hubv1alpha1.ClusterSet
	must(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: home, Name: home}, &before))
	initial := func() { e.setClusterSet(t, func(s *hubv1alpha1.ClusterSet) { s.Spec = before.Spec }) }
	t.Cleanup(initial)
	e.setClusterSet(t, func(s *hubv1alpha1.ClusterSet) {
		s.Spec.Namespaces = hubv1alpha1.NamespaceRules{Deny: []string{}}
		s.Spec.DeclaredImports, s.Spec.Lease.OnExpiry = hubv1alpha1.DeclaredImportsFill, hubv1alpha1.ExpiryKeep
		s.Spec.VIPs.Mode, s.Spec.VIPs.Pools = hubv1alpha1.VIPModePreferred, []string{"10.200.0.0/13"}
	})
	patch := func(blocks string) {
		run("kubectl -n clusterset patch clusterset clusterset --subresource=status --type=merge " +
			"-p '{\"status\": {\"blocks\": " + blocks + "}}'")
	}
	patch(`[{"clusterID": "west", "cidr": "10.200.4.0/22"}]`)
	defer patch("null")
	const show = "kubectl -n clusterset get clusterset clusterset -o jsonpath='{.spec}{.status.blocks}'"
	want := run(show)
	run(save)
	initial()
	patch("null")
	run(restore)
	if got := run(show); got != want {
		t.Errorf("restored is\n%s, want\n%s", got, want)
	}
}

// The kustomization that the README tells to write sets what it is for.
func TestREADMEsKustomizationSetsImageAndID(t *testing.T) {
	e := setUp(t)
	root, err := lab.Root()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "deploy/member/README.md"))
	must(t, err)
	_, block, _ := strings.Cut(string(text), "~~~ yaml\n")
	block, _, found := strings.Cut(block, "~~~")
	if !found {
		t.Fatal("deploy/member/README.md shows no kustomization")
	}
	dir := t.TempDir()
	must(t, os.Symlink(root, filepath.Join(dir, "clusterset-dns")))
	must(t, os.Mkdir(filepath.Join(dir, "mine"), 0o755))
	must(
		t,
		os.WriteFile(
			filepath.Join(dir, "mine/kustomization.yaml"),
			[]byte(strings.ReplaceAll(block, "\n   ", "\n")[3:]),
			0o644,
		),
	)
	out, err := e.shell(t.Context(), dir, "kubectl kustomize mine")
	must(t, err)
	for _, want := range []string{"image: REGISTRY/clusterset-controller:VERSION\n",
		"- --hub-namespace=clusterset\n        - --cluster-id=east\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the manifests lack %q:\n%s", want, out)
		}
	}
}

// commands are a page's indented blocks, without what is fenced.
func commands(t *testing.T, page string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	must(t, err)
	inside, fenced := false, false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimSpace(line), "~~~") {
			fenced = !fenced
		}
		if fenced || !strings.HasPrefix(line, "    ") {
			inside = inside && strings.TrimSpace(line) != ""
			continue
		}
		if !inside {
			blocks = append(blocks, "")
			inside = true
		}
		blocks[len(blocks)-1] += strings.TrimSpace(line) + "\n"
	}
	return blocks
}

// shell runs a script in dir as the admin does: with kubectl in the path, and the first failure as its own.
func (e *environment) shell(ctx context.Context, dir, script string) (string, error) {
	bin, err := lab.Find(ctx)
	if err != nil {
		return "", err
	}
	if filepath.Base(bin.Kubectl) != "kubectl" {
		return "", errors.New(bin.Kubectl + " is not called kubectl")
	}
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(
		os.Environ(),
		"KUBECONFIG="+e.cp.Kubeconfig(),
		"PATH="+filepath.Dir(bin.Kubectl)+":"+os.Getenv("PATH"),
		"HOME="+dir,
	)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
