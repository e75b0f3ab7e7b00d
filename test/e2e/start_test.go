package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// patience is how long an output may take to become what the page shows. It is more than the page promises: DNS
// follows a changed Corefile within two minutes.
const patience = 3 * time.Minute

// promised is what the page promises from the first command to the first curl, images not counted.
const promised = 5 * time.Minute

// TestStartPage walks docs/start.md as written: from clusters as kubeadm leaves them to a curl that a Pod of the other
// cluster answers, failover, and back to clusters without anything of ours.
func TestStartPage(t *testing.T) {
	root, page := read(t, "docs/start.md")
	all, unproven, err := steps(page)
	if err != nil || len(all) == 0 {
		t.Fatalf("docs/start.md: %d steps, %v", len(all), err)
	}
	w := start(t, page)
	before := w.inventory(t)
	names, err := w.placeholders()
	if err != nil {
		t.Fatal(err)
	}

	began, curled := time.Now(), time.Duration(0)
	headings := map[string]bool{}
	for i, s := range all {
		headings[s.heading] = true
		w.walk(t, "docs/start.md", s, names)
		if curled == 0 && strings.Contains(s.commands, "curl") && strings.Contains(s.commands, ".clusterset.local") {
			curled = time.Since(began)
			t.Logf("from the first command to the first answer: %.0f s", curled.Seconds())
		}
		if last := i == len(all)-1; s.heading == failover && (last || all[i+1].heading != failover) {
			t.Run("conformance", w.conforms)
			if os.Getenv("CONFORMANCE") != "" {
				t.Run("upstream's conformance suite", w.upstreams)
			}
			t.Run("the link is cut", w.survivesACut)
		}
	}
	switch {
	case !headings[failover]:
		t.Errorf("docs/start.md has no heading %q", failover)
	case curled == 0:
		t.Error("docs/start.md has no curl of a name in clusterset.local")
	case curled > promised:
		t.Errorf("from the first command to the first answer: %v, want at most %v", curled, promised)
	}
	t.Logf("%d steps of docs/start.md in %s were run as written, %d are marked as unproven", len(all), root, unproven)
	w.wantInventory(t, before)
	t.Run("hack/kind-quickstart.sh walk", w.quickstart)
}

// quickstart types the page once more, as the script for kind does.
func (w *world) quickstart(t *testing.T) {
	out, err := w.shell(t.Context(), fmt.Sprintf("IMAGES=bin/e2e HUB_SERVER=%s hack/kind-quickstart.sh walk",
		`$(kubectl config view -o jsonpath='{.clusters[?(@.name=="east")].cluster.server}')`))
	t.Log(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, w.logs())
	}
	eventually(t, "both clusters answer in east", patience, func(ctx context.Context) error {
		by, err := w.answers(ctx, "east", web, 20)
		if err == nil && (by["east"] == 0 || by["west"] == 0) {
			err = fmt.Errorf("%v", by)
		}
		return err
	})
}

// failover is the heading of the page after whose steps a cluster is cut off.
const failover = "5. Failover"

func read(t *testing.T, name string) (root, text string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return root, string(b)
}

// placeholders are the words of a page that a reader replaces.
func (w *world) placeholders() (*strings.Replacer, error) {
	coredns, err := tagOf(w.archive("coredns"))
	if err != nil {
		return nil, fmt.Errorf("%w: make image writes it", err)
	}
	registry, rest, found := strings.Cut(coredns, "/coredns:")
	if !found {
		return nil, fmt.Errorf("the image is called %s, want …/coredns:VERSION", coredns)
	}
	return strings.NewReplacer("REGISTRY", registry, "VERSION", rest), nil
}

// walk types the commands of a step. Where the page shows an output, they are repeated until it is that.
func (w *world) walk(t *testing.T, page string, s step, names *strings.Replacer) {
	t.Helper()
	began := time.Now()
	commands := names.Replace(s.commands)
	var out string
	var err error
	for deadline := began.Add(patience); ; {
		out, err = w.shell(t.Context(), commands)
		if s.output != "" && err == nil && !s.shows(out) {
			err = fmt.Errorf("the output is not what the page shows:\n%s", s.output)
		}
		if err == nil || s.output == "" || time.Now().After(deadline) {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Logf("%s:%d  (%.1f s)\n$ %s\n%s", page, s.line, time.Since(began).Seconds(),
		strings.ReplaceAll(commands, "\n", "\n  "), out)
	if err != nil {
		t.Fatalf("%s:%d: %v\n%s", page, s.line, err, w.logs())
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, limit time.Duration, f func(context.Context) error) (took time.Duration) {
	t.Helper()
	began := time.Now()
	for {
		err := f(t.Context())
		if err == nil {
			if took = time.Since(began); took > 3*time.Second {
				t.Logf("%s: after %.1f s", what, took.Seconds())
			}
			return took
		}
		if time.Since(began) > limit {
			t.Fatalf("%s: not after %v: %v", what, limit, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// answers are the Pods that answer several requests of a client, by the cluster that their names begin with.
func (w *world) answers(ctx context.Context, from, url string, requests int) (map[string]int, error) {
	out, err := w.clusters[from].plane.Kubectl(ctx, "", "exec", "client", "--", "sh", "-c", fmt.Sprintf(
		"i=0; while [ $i -lt %d ]; do curl -sS -m 3 %s 2>&1; echo; i=$((i+1)); done", requests, url))
	by := map[string]int{}
	for _, line := range strings.Fields(out) {
		name, _, _ := strings.Cut(line, "-")
		by[name]++
	}
	return by, err
}

// web is the page's name.
const web = "http://web.shop.svc.clusterset.local/hostname"

// gone is how long endpoints of a cluster that fell silent may be served: eight seconds, since the agents of the page
// ask each other (SPEC T1), and as much again on a machine with other work.
const gone = 16 * time.Second

// survivesACut cuts west off. East serves its own Pods alone within the promised time, and west goes on with what it
// knows. Then both are as before.
func (w *world) survivesACut(t *testing.T) {
	east := w.clusters["east"]
	only := func(want ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			by, err := w.answers(ctx, "east", web, 20)
			if err != nil {
				return err
			}
			n := 0
			for _, name := range want {
				if by[name] == 0 {
					return fmt.Errorf("%v, want %v", by, want)
				}
				n += by[name]
			}
			if n != 20 {
				return fmt.Errorf("%v, want %v", by, want)
			}
			return nil
		}
	}
	eventually(t, "both clusters answer", time.Minute, only("east", "west"))
	if err := w.cut(w.clusters["west"]); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "the endpoints of west are gone in east", gone, func(ctx context.Context) error {
		out, err := east.plane.Kubectl(ctx, "", "-n", "shop", "get", "endpointslices", "-l",
			"multicluster.kubernetes.io/service-name=web,multicluster.kubernetes.io/source-cluster=west",
			"-o", "jsonpath={.items[*].endpoints[*].conditions.ready}")
		if err == nil && strings.Contains(out, "true") {
			err = errors.New("they are ready: " + out)
		}
		return err
	})
	t.Logf("the endpoints of west are gone in east %.0f s after the cut", time.Since(began).Seconds())
	eventually(t, "every request in east is answered", patience, only("east"))
	if by, err := w.answers(t.Context(), "west", "http://web.shop.svc.cluster.local/hostname", 5); err != nil ||
		by["west"] != 5 {
		t.Errorf("in west, which is cut off, its own Service answers %v, %v", by, err)
	}
	if err := w.connect(w.clusters["west"]); err != nil {
		t.Fatal(err)
	}
	took := eventually(t, "both clusters answer again", time.Minute, only("east", "west"))
	t.Logf("both answer again %.0f s after the repair", took.Seconds())
}

// inventory lists what a cluster has of the kinds that we install, and its CoreDNS, by cluster.
func (w *world) inventory(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for name, c := range w.clusters {
		for _, args := range [][]string{
			{"get", "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings," +
				"validatingadmissionpolicies," +
				"validatingadmissionpolicybindings,servicecidrs,priorityclasses", "-o", "name"},
			{"-n", "kube-system", "get", "deployments,services,configmaps,serviceaccounts,roles,rolebindings",
				"-o", "name"},
			{"-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data}"},
			{"-n", "kube-system", "get", "deployment", "coredns", "-o", "jsonpath={.spec}"},
		} {
			out, err := c.plane.Kubectl(t.Context(), "", args...)
			if err != nil {
				t.Fatal(err)
			}
			all[name] += out + "\n"
		}
	}
	return all
}

// wantInventory compares it with what there was before the page's first step: nothing stays.
func (w *world) wantInventory(t *testing.T, before map[string]string) {
	t.Helper()
	after := w.inventory(t)
	for name := range w.clusters {
		was, is := strings.Split(before[name], "\n"), strings.Split(after[name], "\n")
		for _, line := range is {
			if !slices.Contains(was, line) {
				t.Errorf("%s has something new: %s", name, line)
			}
		}
		for _, line := range was {
			if !slices.Contains(is, line) {
				t.Errorf("%s has no longer: %s", name, line)
			}
		}
	}
}
