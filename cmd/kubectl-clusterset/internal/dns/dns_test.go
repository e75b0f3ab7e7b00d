package dns

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var update = flag.Bool("update", false, "write the golden files in testdata")

const image = "registry.example/coredns:v1.0.0"

// load returns a cluster with the objects of a file.
func load(t *testing.T, path string, more ...client.Object) *cluster.Cluster {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		more = append(more, o)
	}
	// A fake API server allows nothing, and has no controller that establishes kinds.
	funcs := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if review, is := o.(*authorizationv1.SelfSubjectAccessReview); is {
				review.Status.Allowed = true
				return nil
			}
			return c.Create(ctx, o, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			err := c.Get(ctx, k, o, opts...)
			if crd, is := o.(*apiextensionsv1.CustomResourceDefinition); is && err == nil {
				crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{
					Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
			}
			return err
		},
	}
	c := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(more...).WithInterceptorFuncs(funcs).
		WithReturnManagedFields().Build()
	return &cluster.Cluster{Client: c, Name: "this cluster"}
}

// besideService is that of deploy/coredns/beside, after the API server gave it an address.
func besideService() client.Object {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: besideNamespace, Name: besideName},
		Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.7.7"}}}
}

func besideDeployment() client.Object {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: besideNamespace, Name: besideName},
		Spec: appsv1.DeploymentSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "coredns", Image: image}}}},
		},
	}
}

// TestARefusedKindThatDoesNotExistIsNone: RBAC refuses before the API server says that it has no such kind.
func TestARefusedKindThatDoesNotExistIsNone(t *testing.T) {
	for group, status := range map[string]int{"absent": http.StatusNotFound, "OpenShift's": http.StatusOK} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/operator.openshift.io/v1" {
				t.Errorf("asked for %s", r.URL)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1"}`)
		}))
		defer api.Close()
		here := load(t, "testdata/kubeadm.yaml")
		here.Config = &rest.Config{Host: api.URL}
		here.Client = interceptor.NewClient(here.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if o.GetObjectKind().GroupVersionKind().Kind == "DNS" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "dnses"}, "default", errors.New("no"))
				}
				return c.Get(ctx, k, o, opts...)
			},
		})
		if _, err := Read(t.Context(), here); (err != nil) != (status == http.StatusOK) {
			t.Errorf("%s: %v", group, err)
		}
	}
}

// TestEachDistributionIsDetectedChangedAndRestored: the plan for each captured cluster is that of its golden file,
// nothing is left to do once it is applied, and Uninstall restores every object byte for byte.
func TestEachDistributionIsDetectedChangedAndRestored(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		for _, mode := range []Mode{"", Beside} {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			if mode != "" {
				if name != "kubeadm" && name != "nodelocal" {
					continue // beside is the default
				}
				name += "-beside"
			}
			t.Run(name, func(t *testing.T) { roundTrip(t, file, name, mode) })
		}
	}
}

func roundTrip(t *testing.T, file, name string, mode Mode) {
	c := load(t, file, besideService())
	r := &Runner{Cluster: c}
	before, err := Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Install(before, Wanted{Mode: mode, Image: image})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	fmt.Fprintf(&got, "%s: %s\n--%s, zone given in: %s, restart: %v\n", p.Distribution.Name, p.Distribution.Evidence,
		p.Mode, p.Distribution.Forward, p.Restart)
	objects := p.Objects
	p.Objects = nil
	if err := p.Print(&got, ""); err != nil {
		t.Fatal(err)
	}
	golden(t, name, got.String())

	if p.Mode == Beside {
		if err := c.Create(t.Context(), besideDeployment()); err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range p.changes() {
		if err := r.change(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	after, err := Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Install(after, Wanted{Image: image})
	if err != nil || len(again.changes()) > 0 || again.Mode != p.Mode ||
		len(again.Objects) != len(objects) {
		t.Errorf("a second run would change something: %v\n%+v", err, again)
	}
	out, err := Uninstall(after)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range out.changes() {
		if err := r.change(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	restored, err := Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	restored.Beside = nil // Remove deletes it with the other objects
	if was, is := written(t, before), written(t, restored); was != is {
		t.Errorf("restored is\n%s\nand was\n%s", is, was)
	}
}

// written is a State as text, without what only an API server writes.
func written(t *testing.T, s *State) string {
	t.Helper()
	var out strings.Builder
	add := func(o client.Object, there bool) {
		if !there {
			return
		}
		text, err := text(o)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n" + text)
	}
	add(s.Deployment, s.Deployment != nil)
	add(s.Config, s.Config != nil)
	add(s.Custom, s.Custom != nil)
	add(s.KubeDNS, s.KubeDNS != nil)
	add(s.Operator, s.Operator != nil)
	return out.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: the plan is\n%s\nand not\n%s", path, got, want)
	}
}

// TestTheCorefileIsRestoredByteForByte, whatever is at its end; but a missing line break there is added.
func TestTheCorefileIsRestoredByteForByte(t *testing.T) {
	for _, text := range []string{"", ".:53 {\n reload\n}\n", ".:53 {\n reload\n}", ".:53 {\n reload\n}\n\n# end\n"} {
		block := fmt.Sprintf(answerBlock, "53")
		changed, err := withBlock(text, block)
		if err != nil || !strings.Contains(changed, block) || !strings.HasPrefix(changed, text) {
			t.Fatalf("%q becomes %q: %v", text, changed, err)
		}
		if again, err := withBlock(changed, block); err != nil || again != changed {
			t.Errorf("twice, %q becomes %q: %v", text, again, err)
		}
		for _, block := range []string{block, fmt.Sprintf(forwardBlock, "53", "10.0.0.2")} {
			first, _ := withBlock(text, block)
			if again, err := withBlock(first+"other:53 {\n}\n", block); err != nil || again != first+"other:53 {\n}\n" {
				t.Errorf("what others appended moves our block: %q, %v", again, err)
			}
		}
		if text != "" {
			text = strings.TrimSuffix(text, "\n") + "\n"
		}
		if got := withoutBlock(changed); got != text {
			t.Errorf("%q is restored as %q", text, got)
		}
		if got := withoutBlock(changed + "other:53 {\n}\n"); got != text+"other:53 {\n}\n" {
			t.Errorf("what others appended is lost: %q", got)
		}
	}
}

// TestImportedSlicesAreHiddenFromClusterLocal, where the Corefile's kubernetes can be given labels without a change of
// what its user chose, and shown again byte for byte.
func TestImportedSlicesAreHiddenFromClusterLocal(t *testing.T) {
	const open, end = ".:53 {\n    kubernetes cluster.local {\n", "    }\n}\n"
	const both = "labels a=b,endpointslice.kubernetes.io/managed-by notin (" + kube.Manager + ")\n"
	for text, want := range map[string]struct {
		text  string // "" if it stays
		shown bool
	}{
		open + "ttl 30\n" + end:                        {open + hideOption + hideMark + "\nttl 30\n" + end, false},
		open + end:                                     {open + "    " + hideOption + hideMark + "\n" + end, false},
		open + hideOption + "\n" + end:                 {"", false}, // by the user
		open + "labels a=b\n" + end:                    {"", true},
		open + both + end:                              {"", false},
		open + "multicluster clusterset.local\n" + end: {"", false},
		".:53 {\n kubernetes cluster.local\n}\n":       {"", true},
		".:53 {\n forward . 10.0.0.1\n}\n":             {"", false},
	} {
		got := hideImported(text)
		if got != cmp.Or(want.text, text) || hideImported(got) != got || showsImported(got) != want.shown {
			t.Errorf("%q becomes %q, shown %v", text, got, showsImported(got))
		}
		if unhideImported(got) != text {
			t.Errorf("%q is restored as %q", text, unhideImported(got))
		}
	}
}

// TestABlockOfOthersIsNotChanged: CoreDNS refuses two blocks for one zone.
func TestABlockOfOthersIsNotChanged(t *testing.T) {
	for text, ok := range map[string]bool{
		"clusterset.local:53 {\n multicluster\n}\n":             true, // the README's
		".:53 {\n multicluster clusterset.local\n}\n":           true,
		"clusterset.local:53 {\n forward . 10.0.0.1\n}\n":       false,
		"clusterset.local {\n kubernetes clusterset.local\n}\n": false,
	} {
		got, err := withBlock(text, fmt.Sprintf(answerBlock, "53"))
		if (err == nil) != ok || ok && got != text {
			t.Errorf("%q becomes %q: %v", text, got, err)
		}
		if _, err := withBlock(text, fmt.Sprintf(forwardBlock, "53", "10.0.0.2")); err == nil {
			t.Errorf("a forward is added to %q", text)
		}
	}
}

func TestWithoutAReleaseAnImageIsRequired(t *testing.T) {
	s, err := Read(t.Context(), load(t, "testdata/kubeadm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Install(s, Wanted{}); err == nil || !strings.Contains(err.Error(), "--image") {
		t.Errorf("an image that nobody owns is installed: %v", err)
	}
	if p, err := Install(s, Wanted{Release: "ghcr.io/x/coredns:v1.0.0"}); err != nil ||
		p.Image != "ghcr.io/x/coredns:v1.0.0" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestABuildWithoutAReleaseTakesTheImageBesideTheAgents, where docs/start.md pushes both, but keeps what is installed.
func TestABuildWithoutAReleaseTakesTheImageBesideTheAgents(t *testing.T) {
	for agent, want := range map[string]string{
		"r.example:5000/x/clusterset-controller:v1-3-gabc":                  "r.example:5000/x/coredns:v1-3-gabc",
		"clusterset-controller:dev":                                         "coredns:dev",
		"r.example/clusterset-controller@sha256:" + strings.Repeat("a", 64): "", "r.example/mine:v1": "", "": "",
	} {
		s, err := Read(t.Context(), load(t, "testdata/kubeadm.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := Install(s, Wanted{Agent: agent})
		if (err == nil) != (want != "") || err == nil && p.Image != want {
			t.Errorf("%q: %v, want %q; %v", agent, p, want, err)
		}
	}
}

// TestAnImageThatItsOwnerRestoresIsNotReplaced.
func TestAnImageThatItsOwnerRestoresIsNotReplaced(t *testing.T) {
	for _, name := range []string{"k3s", "rke2", "eks-addon", "aks", "gke", "openshift", "none"} {
		s, err := Read(t.Context(), load(t, "testdata/"+name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := Install(s, Wanted{Mode: Replace, Image: image}); err == nil ||
			!strings.Contains(err.Error(), "--beside") || strings.Contains(err.Error(), "unknown owns") {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

// pods are two ready Pods of the cluster's DNS.
func pods() (out []client.Object) {
	for _, name := range []string{"coredns-a", "coredns-b"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kubeSystem, Name: name,
			Labels: map[string]string{"k8s-app": "kube-dns"}}}
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		out = append(out, p)
	}
	return out
}

// appendTo adds text to the Corefile of the cluster's DNS.
func appendTo(ctx context.Context, t *testing.T, c *cluster.Cluster, text string) {
	t.Helper()
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: kubeSystem, Name: "coredns"}, cm); err != nil {
		t.Fatal(err)
	}
	cm.Data["Corefile"] += text
	if err := c.Update(ctx, cm); err != nil {
		t.Fatal(err)
	}
}

// TestWhatDoesNotAnswerIsRolledBack. The API server and the answers are fakes: make e2e asks real Pods.
func TestWhatDoesNotAnswerIsRolledBack(t *testing.T) {
	const logs = "kubectl -n kube-system logs deployment/coredns | grep -iE 'reload|error' | tail -n 5; if CoreDNS " +
		"refuses the Corefile"
	rolled := appsv1.DeploymentStatus{ObservedGeneration: 9, UpdatedReplicas: 2, AvailableReplicas: 2, Replicas: 2}
	// An old Pod runs on, and two new ones do not.
	stuck := appsv1.DeploymentStatus{ObservedGeneration: 9, UpdatedReplicas: 2, AvailableReplicas: 1, Replicas: 3}
	const edited = "it is refused, and somebody else edits the Corefile meanwhile"
	const yes, refused, failed = miekg.RcodeSuccess, miekg.RcodeRefused, miekg.RcodeServerFailure
	for name, c := range map[string]struct {
		confirm   string
		zone, own int // response codes
		status    appsv1.DeploymentStatus
		noImage   bool
		why       string // it fails, "" if it does not
		remedy    string
	}{
		"answers":             {"y\n", yes, yes, rolled, false, "", ""},
		"the user declines":   {"\n", yes, yes, rolled, false, "not confirmed", "--yes"},
		"nobody is there":     {"", yes, yes, rolled, false, "not confirmed", "--yes"},
		"the zone is refused": {"y\n", refused, yes, rolled, false, "answers REFUSED for clusterset", logs},
		edited: {"y\n", refused, yes, rolled, false,
			"rolling back: this cluster: changing ConfigMap kube-system/coredns",
			"kubectl clusterset dns uninstall"},
		"own names fail": {"y\n", yes, failed, rolled, false, "the cluster's own names", logs},
		"no new replica comes": {"y\n", yes, yes, stuck, false, "0 of 2 new replicas",
			"check that --image is our CoreDNS"},
		"no image": {"y\n", yes, yes, stuck, true, "0 of 2 new replicas are available; pod coredns-c: ErrImagePull",
			"choose an --image that the nodes can pull"},
	} {
		t.Run(name, func(t *testing.T) {
			installed := c.why == ""
			objects := pods()
			if c.noImage {
				p := objects[0].DeepCopyObject().(*corev1.Pod)
				p.Name, p.Status = "coredns-c", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
					State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}}
				objects = append(objects, p)
			}
			here := load(t, "testdata/kubeadm.yaml", objects...)
			d := &appsv1.Deployment{}
			if err := here.Get(t.Context(), client.ObjectKey{Namespace: kubeSystem, Name: "coredns"}, d); err != nil {
				t.Fatal(err)
			}
			d.Status = c.status
			if err := here.Status().Update(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			before, err := Read(t.Context(), here)
			if err != nil {
				t.Fatal(err)
			}
			asked := map[string]bool{}
			var said strings.Builder
			r := &Runner{
				Cluster: here,
				Confirm: strings.NewReader(c.confirm),
				Out:     io.Discard,
				Say:     func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) },
				Wait:    true,
				Timeout: time.Second,
				Ask: func(ctx context.Context, p *corev1.Pod, port int32, q *miekg.Msg) (*miekg.Msg, error) {
					if len(asked) == 0 && name == edited {
						appendTo(ctx, t, here, "# by somebody else\n")
					}
					asked[fmt.Sprint(p.Name, port, q.Question[0].Name)] = true
					a := new(miekg.Msg).SetRcode(q, c.own)
					if q.Question[0].Qtype == miekg.TypeTXT {
						if a.Rcode = c.zone; c.zone == miekg.RcodeSuccess {
							a.Answer = []miekg.RR{&miekg.TXT{Txt: []string{"1.0.0"}}}
						}
					}
					return a, nil
				},
			}
			err = r.Install(t.Context(), Wanted{Image: image})
			if (err == nil) != installed || err != nil && (!strings.Contains(err.Error(), c.why) ||
				!strings.Contains(err.Error(), "\n  → "+c.remedy) && !errors.Is(err, cluster.ErrDeclined)) {
				t.Errorf("it ends with %v, want %q and %q", err, c.why, c.remedy)
			}
			after, err := Read(t.Context(), here)
			if err != nil {
				t.Fatal(err)
			}
			stays := installed || name == edited // a stock CoreDNS would not start with our block
			if same := written(t, after) == written(t, before); same == stays ||
				strings.Contains(written(t, after), "by somebody else") != (name == edited) {
				t.Errorf("afterwards the cluster has\n%s", written(t, after))
			}
			if said := said.String(); strings.Contains(said, "next: kubectl clusterset verify") != installed {
				t.Errorf("it says %s", said)
			}
			if !installed {
				return
			}
			for _, want := range []string{"coredns-a", "coredns-b"} {
				if !asked[want+"53dns-version.clusterset.local."] ||
					!asked[want+"53kubernetes.default.svc.cluster.local."] {
					t.Errorf("asked were %v", asked)
				}
			}
		})
	}
}

// TestAConfigMapThatOthersFilledMeanwhileStays: a rollback would delete it, as this program created it.
func TestAConfigMapThatOthersFilledMeanwhileStays(t *testing.T) {
	for others, stays := range map[string]bool{"": false, "a.example:53 {\n}\n": true} {
		here := load(t, "testdata/k3s.yaml", besideService())
		r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
		s, p, err := r.plan(t.Context(), func(s *State) (*Plan, error) { return Install(s, Wanted{Image: image}) })
		if err != nil {
			t.Fatal(err)
		}
		done, err := r.carryOut(t.Context(), s, p)
		if err != nil || len(done) != 1 {
			t.Fatalf("%d changes, %v", len(done), err)
		}
		custom := done[0].After.DeepCopyObject().(*corev1.ConfigMap)
		if custom.Data["a.server"] = others; stays {
			if err := here.Update(t.Context(), custom); err != nil {
				t.Fatal(err)
			}
		}
		err = r.rollBack(t.Context(), s, p, done, errors.New("no answer"))
		if strings.Contains(err.Error(), "rolling back: ") != stays ||
			strings.Contains(err.Error(), "kubectl clusterset dns uninstall") != stays {
			t.Errorf("it ends with %v", err)
		}
		if s, err := Read(t.Context(), here); err != nil || s.Custom.Data["a.server"] != others {
			t.Errorf("with %q, %v stays, %v", others, s.Custom.Data, err)
		}
	}
}

// TestUninstallTakesBackRightsThatItsInstallGave, also if nothing else is installed; not those that others gave.
func TestUninstallTakesBackRightsThatItsInstallGave(t *testing.T) {
	const byHand = ".:53 {\n multicluster clusterset.local\n kubernetes cluster.local\n reload\n}\n"
	for name, c := range map[string]struct {
		owner   client.FieldOwner
		text    string
		deleted bool
		why     string
	}{
		"ours":                  {manifest.FieldManager, "", true, ""},
		"of others":             {"kubectl", "", false, ""},
		"of others, and needed": {"kubectl", byHand, false, "that this command did not add"},
		"ours, and needed for a block": {manifest.FieldManager, ".:53 {\n reload\n}\n" + fmt.Sprintf(answerBlock, "53"),
			false, "and remove the line multicluster or multicluster_external, or the server block"},
		"ours, and needed for a line": {manifest.FieldManager, byHand, false, "and remove the line multicluster"},
		"ours, and needed for another zone": {manifest.FieldManager,
			strings.Replace(byHand, "clusterset.local", "clusterset.test", 1), false, "needs our image and rights"},
		"ours, and needed for outside": {manifest.FieldManager, "example.org {\n multicluster_external\n reload\n}\n",
			false, "needs our image and rights"},
	} {
		t.Run(name, func(t *testing.T) {
			here := load(t, "testdata/kubeadm.yaml")
			setCorefile(t, here, c.text)
			role := &unstructured.Unstructured{Object: map[string]any{}}
			role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
			role.SetName("clusterset-dns:coredns")
			role.SetLabels(map[string]string{"app.kubernetes.io/part-of": "clusterset-dns"}) // a manager owns fields
			applied := client.ApplyConfigurationFromUnstructured(role)
			if err := here.Client.Apply(t.Context(), applied, c.owner); err != nil {
				t.Fatal(err)
			}
			r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
			if err := r.Uninstall(t.Context()); (err == nil) != (c.why == "") ||
				err != nil && !strings.Contains(err.Error(), c.why) {
				t.Errorf("it ends with %v, want %q", err, c.why)
			}
			err := here.Get(t.Context(), client.ObjectKeyFromObject(role), role)
			if client.IgnoreNotFound(err) != nil || (err != nil) != c.deleted {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestOurImageStaysWhileTheCorefileNeedsIt: a stock CoreDNS refuses a line of our plugins, whatever its zone is.
func TestOurImageStaysWhileTheCorefileNeedsIt(t *testing.T) {
	here := load(t, "testdata/kubeadm.yaml")
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
	if err := r.Install(t.Context(), Wanted{Image: image}); err != nil {
		t.Fatal(err)
	}
	appendTo(t.Context(), t, here, "clusterset.test {\n multicluster clusterset.test\n}\n")
	if err := r.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "needs our image and rights") {
		t.Errorf("it ends with %v", err)
	}
	if s, err := Read(t.Context(), here); err != nil || s.Running() != image || !hasOurBlock(s.Corefile()) {
		t.Errorf("it runs %q, %v", s.Running(), err)
	}
}

// TestOurCoreDNSBesideGoesWhateverTheCorefileHas: a line of our plugins in it needs another image and other rights.
func TestOurCoreDNSBesideGoesWhateverTheCorefileHas(t *testing.T) {
	for what, c := range map[string]struct {
		gave bool // an earlier install with --replace gave rights
		why  string
	}{
		"rights of others": {false, ""}, "our rights": {true, "needs our image and rights"},
	} {
		here := load(t, "testdata/kubeadm.yaml", besideService(), besideDeployment())
		r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
		if err := r.Install(t.Context(), Wanted{Image: image, Mode: Beside}); err != nil {
			t.Fatal(err)
		}
		appendTo(t.Context(), t, here, "clusterset.test {\n multicluster clusterset.test\n}\n")
		if c.gave {
			all, err := manifest.Render(manifest.CoreDNS, manifest.Values{Namespace: "clusterset"})
			if err != nil {
				t.Fatal(err)
			}
			if err := here.Apply(t.Context(), all, t.Logf); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Uninstall(t.Context()); (err == nil) != (c.why == "") ||
			err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: it ends with %v, want %q", what, err, c.why)
		}
		if s, err := Read(t.Context(), here); err != nil || (s.Beside == nil) != (c.why == "") {
			t.Errorf("%s: it stays: %v, %v", what, s.Beside != nil, err)
		}
	}
}

// TestUninstallDoesNotWaitForAnswersOfOthers: the admin has replaced our block by a line of their own.
func TestUninstallDoesNotWaitForAnswersOfOthers(t *testing.T) {
	here := load(t, "testdata/kubeadm.yaml", append(pods(), besideService(), besideDeployment())...)
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf, Timeout: time.Second,
		Ask: func(_ context.Context, _ *corev1.Pod, _ int32, q *miekg.Msg) (*miekg.Msg, error) {
			a := new(miekg.Msg).SetReply(q)
			a.Answer = []miekg.RR{&miekg.SOA{}}
			return a, nil
		}}
	if err := r.Install(t.Context(), Wanted{Image: image, Mode: Beside}); err != nil {
		t.Fatal(err)
	}
	setCorefile(t, here, ".:53 {\n multicluster clusterset.local\n}\nclusterset.local {\n multicluster\n}\n")
	r.Wait = true
	if err := r.Uninstall(t.Context()); err != nil {
		t.Error(err)
	}
	if s, err := Read(t.Context(), here); err != nil || s.Beside != nil {
		t.Errorf("it stays: %v, %v", s.Beside, err)
	}
}

// setCorefile changes that of a cluster, if there is a text.
func setCorefile(t *testing.T, c *cluster.Cluster, text string) {
	t.Helper()
	if text == "" {
		return
	}
	m := &corev1.ConfigMap{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: kubeSystem, Name: "coredns"}, m); err != nil {
		t.Fatal(err)
	}
	m.Data["Corefile"] = text
	if err := c.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// TestOptionsInOurBlockStay: users give it some, as docs/corefile.md says. A block that does not answer is repaired.
func TestOptionsInOurBlockStay(t *testing.T) {
	const own = ".:53 {\n reload\n}\n"
	block := fmt.Sprintf(answerBlock, "53")
	installed, err := withBlock(own, block)
	if err != nil {
		t.Fatal(err)
	}
	const line, withOption = "    multicluster\n", "    multicluster {\n        prefer local west\n    }\n"
	edited := strings.Replace(installed, line, withOption, 1)
	if got, err := withBlock(edited, block); err != nil || got != edited {
		t.Errorf("%q, %v", got, err)
	}
	for name, broken := range map[string]string{
		"mistyped":     strings.Replace(installed, line, "    multiclutser\n", 1),
		"another port": strings.Replace(edited, "clusterset.local:53 ", "clusterset.local:54 ", 1),
	} {
		if got, err := withBlock(broken, block); err != nil || got != installed {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got := withoutBlock(edited); got != own {
		t.Errorf("removed: %q", got)
	}
	config := &corev1.ConfigMap{Data: map[string]string{"Corefile": edited}}
	s := &State{Objects: platform.Objects{Config: config}, ConfigKey: "Corefile"}
	if got := s.Installed(); got != Replace {
		t.Errorf("where the image was ours before, the mode is %q", got)
	}
}

// TestOptionsOfOurCoreDNSStay: users change its Corefile, as docs/troubleshoot.md says. One that does not answer is
// repaired.
func TestOptionsOfOurCoreDNSStay(t *testing.T) {
	here := load(t, "testdata/kubeadm.yaml", besideService())
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
	config := &corev1.ConfigMap{}
	install := func(text string) string {
		if text != "" {
			config.Data["Corefile"] = text
			if err := here.Update(t.Context(), config); err != nil {
				t.Fatal(err)
			}
		}
		err := r.Install(t.Context(), Wanted{Image: image, Mode: Beside})
		if err == nil {
			err = here.Get(t.Context(), client.ObjectKey{Namespace: besideNamespace, Name: besideName}, config)
		}
		if err != nil {
			t.Fatal(err)
		}
		return config.Data["Corefile"]
	}
	installed := install("")
	const line = "    multicluster clusterset.local {\n"
	edited := strings.Replace(installed, line, line+"        prefer local west\n", 1)
	if got := install(edited); edited == installed || got != edited {
		t.Errorf("edited as\n%s\nit becomes\n%s", edited, got)
	}
	for name, broken := range map[string]string{
		"mistyped":     strings.Replace(installed, line, "    multiclutser {\n", 1),
		"another port": strings.Replace(edited, "clusterset.local:53 ", "clusterset.local:54 ", 1),
	} {
		if got := install(broken); got != installed {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestWhatOthersSetOfOurDeploymentStays: admins scale it, and give it memory and nodes; then comes another image.
func TestWhatOthersSetOfOurDeploymentStays(t *testing.T) {
	here := load(t, "testdata/kubeadm.yaml", besideService())
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
	d := &appsv1.Deployment{}
	install := func(image string) {
		err := r.Install(t.Context(), Wanted{Image: image, Mode: Beside})
		if err == nil {
			err = here.Get(t.Context(), client.ObjectKey{Namespace: besideNamespace, Name: besideName}, d)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	install(image)
	pod := &d.Spec.Template.Spec
	d.Spec.Replicas = ptr.To[int32](6)
	pod.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("2Gi")
	pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: "dns", Operator: corev1.TolerationOpExists})
	want := d.DeepCopy()
	if err := here.Update(t.Context(), d, client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	const newer = "registry.example/coredns:v2.0.0"
	install(newer)
	want.Spec.Template.Spec.Containers[0].Image = newer
	if !equality.Semantic.DeepEqual(want.Spec, d.Spec) {
		t.Errorf("it has %d replicas, %+v, %+v", *d.Spec.Replicas, pod.Containers[0].Resources, pod.Tolerations)
	}
}

// TestThePortIsThatOfPlainDNS, which the Service maps port 53 to.
func TestThePortIsThatOfPlainDNS(t *testing.T) {
	for text, want := range map[string]string{
		"": "53", ".:53 {\n}\n": "53", ".:5353 {\n}\n": "5353", "tls://. {\n}\n.:5353 {\n}\n": "5353",
	} {
		if got := port(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// TestACorefileThatCoreDNSRefusesIsNotChanged: it would not apply our block.
func TestACorefileThatCoreDNSRefusesIsNotChanged(t *testing.T) {
	got, err := withBlock(".:53 {\n reload\n}\n. {\n errors\n}\n", fmt.Sprintf(answerBlock, "53"))
	if err == nil || !strings.Contains(err.Error(), "two server blocks of the Corefile are for .:53") {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAZoneThatAnotherProgramServesIsLeftAlone, wherever a cluster's DNS is configured: Submariner has it, for example.
func TestAZoneThatAnotherProgramServesIsLeftAlone(t *testing.T) {
	for name, take := range map[string]func(*State) error{
		"k3s": func(s *State) error {
			s.Custom.Data = map[string]string{"lighthouse.server": "clusterset.local:53 {\n forward . 10.0.0.1\n}\n"}
			return nil
		},
		"aks": func(s *State) error { // in the Corefile itself
			s.Config.Data["Corefile"] += "clusterset.local:53 {\n forward . 10.0.0.1\n}\n"
			return nil
		},
	} {
		s, err := Read(t.Context(), load(t, "testdata/"+name+".yaml", besideService()))
		if err != nil {
			t.Fatal(err)
		}
		if err := take(s); err != nil {
			t.Fatal(err)
		}
		if p, err := Install(s, Wanted{Image: image}); err == nil ||
			!strings.Contains(err.Error(), "serves clusterset.local already") {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if p, err := Uninstall(s); err != nil || p.Forward != nil {
			t.Errorf("%s: uninstalling changes it: %+v, %v", name, p, err)
		}
	}
}

// TestOurBlockStaysInACorefileThatImportsLater: an admin mounts coredns-custom after the install. So does a block of
// the user's own for --replace.
func TestOurBlockStaysInACorefileThatImportsLater(t *testing.T) {
	const own = "clusterset.local:53 {\n    multicluster clusterset.local\n}\n"
	for _, of := range []struct {
		mode Mode
		own  string
	}{{Beside, ""}, {Replace, ""}, {Replace, own}} {
		mode, here := of.mode, load(t, "testdata/kubeadm.yaml", besideService())
		appendTo(t.Context(), t, here, of.own)
		r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
		if err := r.Install(t.Context(), Wanted{Mode: mode, Image: image}); err != nil {
			t.Fatal(err)
		}
		appendTo(t.Context(), t, here, "import custom/*.server\n")
		s, err := Read(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		spec := &s.Deployment.Spec.Template.Spec
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: "custom", MountPath: "/etc/coredns/custom"})
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "custom", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "coredns-custom"}}}})
		if err := here.Update(t.Context(), s.Deployment); err != nil {
			t.Fatal(err)
		}
		const newer = "registry.example/coredns:v2.0.0"
		if err := r.Install(t.Context(), Wanted{Image: newer}); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		after, err := Read(t.Context(), here)
		if err != nil || after.Custom == nil || after.Running() != newer || after.Corefile() != s.Corefile() {
			t.Errorf("%s: %s runs, %v, and the Corefile is\n%s", mode, after.Running(), err, after.Corefile())
		}
	}
}

// TestUninstallRemovesOurBlockFromBothPlaces: the Corefile did not import coredns-custom for a time.
func TestUninstallRemovesOurBlockFromBothPlaces(t *testing.T) {
	here := load(t, "testdata/aks.yaml", besideService())
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
	if err := r.Install(t.Context(), Wanted{Image: image}); err != nil {
		t.Fatal(err)
	}
	appendTo(t.Context(), t, here, begin+fmt.Sprintf(forwardBlock, "53", "10.96.7.7")+end)
	if err := r.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), here)
	if err != nil || hasOurBlock(s.Corefile()) || s.Custom.Data[customKey] != "" || s.Beside != nil {
		t.Errorf("%v, there is\n%s", err, s.Imported())
	}
}

// TestTheClustersOwnImageIsNotOurs, which a kubeadm upgrade brings back. That of a mirror may be one that the user set.
func TestTheClustersOwnImageIsNotOurs(t *testing.T) {
	const mirror = "registry.example/k8s/coredns:v1.14.0"
	for _, back := range []string{"", mirror} {
		here := load(t, "testdata/kubeadm.yaml", pods()...)
		r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
		if err := r.Install(t.Context(), Wanted{Image: image}); err != nil {
			t.Fatal(err)
		}
		s, err := Read(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		stock := s.original()
		delete(s.Deployment.Annotations, platform.AnnotationImage)
		s.container().Image = cmp.Or(back, stock)
		if err := here.Update(t.Context(), s.Deployment); err != nil {
			t.Fatal(err)
		}
		if p, err := Install(s, Wanted{}); err == nil || !strings.Contains(err.Error(), "--image") {
			t.Errorf("%s is taken for ours: %+v, %v", s.container().Image, p, err)
		}
		if got := s.Running(); got != back {
			t.Errorf("%s runs", got)
		}
		if s.Deployment = nil; s.Running() != "" { // our block is in the ConfigMap of a CoreDNS that nothing shows
			t.Errorf("%s runs without a Deployment", s.Running())
		}
	}
}

// TestAStockImageThatCameLaterIsTheOriginal: an upgrade of the cluster replaces ours and keeps the annotation.
func TestAStockImageThatCameLaterIsTheOriginal(t *testing.T) {
	const newer = "registry.k8s.io/coredns/coredns:v1.99.0"
	here := load(t, "testdata/kubeadm.yaml")
	var said strings.Builder
	r := &Runner{Cluster: here, Out: io.Discard,
		Say: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }}
	for what, last := range map[string]func() error{
		"not installed again": func() error { return nil },
		"installed again":     func() error { return r.Install(t.Context(), Wanted{Image: image}) },
	} {
		if err := r.Install(t.Context(), Wanted{Image: image}); err != nil {
			t.Fatal(err)
		}
		s, err := Read(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		if err := here.Update(t.Context(), s.withImage(newer)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(last(), r.Uninstall(t.Context())); err != nil {
			t.Fatal(err)
		}
		if s, err = Read(t.Context(), here); err != nil || s.container().Image != newer || s.original() != "" {
			t.Errorf("%s: %s, instead of %q, %v", what, s.container().Image, s.original(), err)
		}
		if strings.Contains(said.String(), "restoring the image") != (what == "installed again") {
			t.Errorf("%s: it says\n%s", what, &said)
		}
		said.Reset()
	}
}

// TestWithoutReloadCoreDNSIsRestarted, also by a run that does not wait, and when a change is undone.
func TestWithoutReloadCoreDNSIsRestarted(t *testing.T) {
	for _, mode := range []Mode{Beside, Replace} {
		here := load(t, "testdata/kubeadm.yaml", append(pods(), besideService())...)
		setCorefile(t, here, ".:53 {\n kubernetes cluster.local\n}\n")
		read := func() (restarted, image string) {
			s, err := Read(t.Context(), here)
			if err != nil {
				t.Fatal(err)
			}
			template := s.Deployment.Spec.Template
			return template.Annotations["kubectl.kubernetes.io/restartedAt"], template.Spec.Containers[0].Image
		}
		r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
		if err := r.Install(t.Context(), Wanted{Mode: mode, Image: image}); err != nil {
			t.Fatal(err)
		}
		first, _ := read()
		if first == "" {
			t.Errorf("%s: it runs on without our block", mode)
		}
		if err := r.Uninstall(t.Context()); err != nil {
			t.Fatal(err)
		}
		if last, image := read(); last == first || !platform.Stock.MatchString(image) {
			t.Errorf("%s: it runs on with our block, or the image %s", mode, image)
		}
	}
}

// TestOurConfigurationWaitsForOurImage: an old Pod that restarts meanwhile refuses it.
func TestOurConfigurationWaitsForOurImage(t *testing.T) {
	s, err := Read(t.Context(), load(t, "testdata/kubeadm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for mode, refused := range map[Mode]bool{Replace: true, "": true, Beside: false} {
		_, err := Install(s, Wanted{Image: image, Mode: mode, NoWait: true})
		if (err != nil) != refused || err != nil && !strings.Contains(err.Error(), "a Pod of the old image that") {
			t.Errorf("--%s: %v", mode, err)
		}
	}
	metav1.SetMetaDataAnnotation(&s.Deployment.ObjectMeta, platform.AnnotationImage, "stock") // as left by
	// an install with --replace that failed
	_, err = Install(s, Wanted{Image: image, NoWait: true})
	if err == nil || strings.Contains(err.Error(), "--beside") {
		t.Errorf("an install with --replace goes on with: %v", err)
	}
}

// TestOurConfigurationWaitsForTheImageOfAnInterruptedRun: the image is ours, and stock Pods still serve.
func TestOurConfigurationWaitsForTheImageOfAnInterruptedRun(t *testing.T) {
	here := load(t, "testdata/kubeadm.yaml", pods()...)
	before, err := Read(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	d := before.withImage(image)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, platform.AnnotationImage, before.container().Image)
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 9, UpdatedReplicas: 2, AvailableReplicas: 1, Replicas: 3}
	if err := errors.Join(here.Update(t.Context(), d), here.Status().Update(t.Context(), d)); err != nil {
		t.Fatal(err)
	}
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf, Timeout: time.Second,
		Ask: func(context.Context, *corev1.Pod, int32, *miekg.Msg) (*miekg.Msg, error) {
			return nil, errors.New("connection refused")
		}}
	for _, w := range []Wanted{{Image: image}, {Image: image, NoWait: true}} {
		r.Wait = !w.NoWait
		want := map[bool]string{true: "--wait=false", false: "the rollout does not end"}[w.NoWait]
		if err := r.Install(t.Context(), w); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "was restored") || r.Wait && !strings.Contains(err.Error(), "--image") {
			t.Errorf("it ends with %v, want %q", err, want)
		}
		s, err := Read(t.Context(), here)
		if err != nil || s.Config.ResourceVersion != before.Config.ResourceVersion {
			t.Errorf("the configuration changes: %v\n%s", err, s.Corefile())
		}
	}
}

// TestABrokenCorefileIsRepairedThoughNewPodsCrash: they crash because of it.
func TestABrokenCorefileIsRepairedThoughNewPodsCrash(t *testing.T) {
	here := load(t, "testdata/kubeadm.yaml", pods()...)
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf, Timeout: time.Second}
	if err := r.Install(t.Context(), Wanted{Image: image}); err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), here)
	if err != nil {
		t.Fatal(err)
	}
	whole := s.Corefile()
	setCorefile(t, here, strings.Replace(whole, "multicluster", "multicluser", 1))
	s.Deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 9, UpdatedReplicas: 1, AvailableReplicas: 2,
		Replicas: 3}
	if err := here.Status().Update(t.Context(), s.Deployment); err != nil {
		t.Fatal(err)
	}
	r.Wait, r.Ask = true, func(ctx context.Context, _ *corev1.Pod, _ int32, q *miekg.Msg) (*miekg.Msg, error) {
		s, err := Read(ctx, here)
		if err != nil || s.Corefile() != whole {
			return nil, errors.New("connection refused")
		}
		s.Deployment.Status.UpdatedReplicas, s.Deployment.Status.Replicas = 2, 2
		a := new(miekg.Msg).SetReply(q)
		a.Answer = []miekg.RR{&miekg.SOA{}}
		return a, here.Status().Update(ctx, s.Deployment)
	}
	if err := r.Install(t.Context(), Wanted{}); err != nil {
		t.Errorf("it stays broken: %v", err)
	}
}

// TestAReplicaWithoutANodeStopsNothing: as many must be available as before, whatever is changed.
func TestAReplicaWithoutANodeStopsNothing(t *testing.T) {
	for name, runs := range map[string]string{"a repair of the Corefile": image, "a first install": ""} {
		for _, text := range []string{"", ".:53 {\n kubernetes cluster.local\n}\n"} { // without reload: it is restarted
			here := load(t, "testdata/kubeadm.yaml", pods()...)
			setCorefile(t, here, text)
			before, err := Read(t.Context(), here)
			if err != nil {
				t.Fatal(err)
			}
			d := before.Deployment
			if runs != "" {
				d = before.withImage(runs)
				metav1.SetMetaDataAnnotation(&d.ObjectMeta, platform.AnnotationImage, before.container().Image)
			}
			if err := here.Update(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: 9, UpdatedReplicas: 2, Replicas: 2}
			d.Status.AvailableReplicas = 1
			if err := here.Status().Update(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			installed := true
			r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf, Wait: true, Timeout: time.Second,
				Ask: func(_ context.Context, _ *corev1.Pod, _ int32, q *miekg.Msg) (*miekg.Msg, error) {
					a := new(miekg.Msg).SetReply(q)
					if installed {
						a.Answer = []miekg.RR{&miekg.TXT{Txt: []string{"1.0.0"}}}
					}
					return a, nil
				}}
			if err := r.Install(t.Context(), Wanted{Mode: Replace, Image: image}); err != nil {
				t.Errorf("%s of %q: %v", name, text, err)
			}
			installed = false
			if err := r.Uninstall(t.Context()); err != nil {
				t.Errorf("uninstall after %s of %q: %v", name, text, err)
			}
		}
	}
}

// TestALostNodeStopsNoInstallBeside: as many Pods are ready as before, and the others are named.
func TestALostNodeStopsNoInstallBeside(t *testing.T) {
	all := append(pods(), pods()...)
	for _, p := range all[2:] {
		p.SetNamespace(besideNamespace)
		p.SetLabels(map[string]string{"app.kubernetes.io/name": "clusterset-coredns"})
	}
	all[3].(*corev1.Pod).Status.Conditions[0].Status = corev1.ConditionFalse
	here := load(t, "testdata/kubeadm.yaml", append(all, besideService())...)
	var said strings.Builder
	r := &Runner{Cluster: here, Out: io.Discard, Timeout: time.Second,
		Say: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) },
		Ask: func(_ context.Context, _ *corev1.Pod, _ int32, q *miekg.Msg) (*miekg.Msg, error) {
			a := new(miekg.Msg).SetReply(q)
			a.Answer = []miekg.RR{&miekg.TXT{Txt: []string{"1.0.0"}}}
			return a, nil
		}}
	for available, enough := range []bool{false, true} { // without Wait nothing is waited for
		r.Wait = false
		if err := r.Install(t.Context(), Wanted{Mode: Beside, Image: image}); err != nil {
			t.Fatal(err)
		}
		s, err := Read(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []*appsv1.Deployment{s.Deployment, s.Beside} {
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: 9, UpdatedReplicas: 2, Replicas: 2,
				AvailableReplicas: 2}
			if d == s.Beside {
				d.Status.AvailableReplicas = int32(available)
			}
			if err := here.Status().Update(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		r.Wait = true
		if err := r.Install(t.Context(), Wanted{}); (err == nil) != enough {
			t.Errorf("with %d of 2 before: %v", available, err)
		}
	}
	if !strings.Contains(said.String(), "1 of 2 new replicas are available; not ready: coredns-b\n") {
		t.Errorf("it says %s", &said)
	}
}

// TestARoleStaysWhileAnotherBindingNeedsIt: deploy/coredns binds it to the cluster's own CoreDNS.
func TestARoleStaysWhileAnotherBindingNeedsIt(t *testing.T) {
	for what, bound := range map[string]bool{"bound by hand": true, "not bound": false} {
		more := []client.Object{besideService(), besideDeployment()}
		if bound {
			more = append(more, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "clusterset-dns:coredns"},
				RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "clusterset-dns:coredns"},
			})
		}
		here := load(t, "testdata/kubeadm.yaml", more...)
		var out strings.Builder
		r := &Runner{Cluster: here, Out: &out, Say: t.Logf}
		if err := r.Install(t.Context(), Wanted{Image: image, Mode: Beside}); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if err := r.Uninstall(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := here.Get(t.Context(), client.ObjectKey{Name: "clusterset-dns:coredns"}, &rbacv1.ClusterRole{})
		if client.IgnoreNotFound(err) != nil || (err == nil) != bound {
			t.Errorf("%s: the role: %v", what, err)
		}
		n := strings.Count(out.String(), "delete ClusterRole clusterset-dns:coredns\n")
		if n != map[bool]int{false: 1}[bound] {
			t.Errorf("%s: it is deleted %d times:\n%s", what, n, &out)
		}
	}
}

// TestWhatAnInterruptedRunLeftIsRemoved: an install applies the Deployment last, and an uninstall deletes it first.
func TestWhatAnInterruptedRunLeftIsRemoved(t *testing.T) {
	here := load(t, "testdata/kubeadm.yaml")
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
	if err := r.Install(t.Context(), Wanted{Image: image, Mode: Beside}); err != nil {
		t.Fatal(err)
	}
	if err := here.Delete(t.Context(), besideDeployment()); err != nil {
		t.Fatal(err)
	}
	if err := r.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), here)
	if err != nil || s.Service != nil || s.BesideConfig != nil || hasOurBlock(s.Corefile()) {
		t.Errorf("there is %v, %v", s.Service, err)
	}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: besideNamespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-dns:coredns"}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-dns:coredns-beside"}}} {
		if err := here.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%s stays: %v", cluster.Title(o), err)
		}
	}
}

// TestWhoCannotFinishToUninstallIsRefusedFirst, and who can needs no right to apply what is deleted.
func TestWhoCannotFinishToUninstallIsRefusedFirst(t *testing.T) {
	const wrote = "it writes"
	for lacks, want := range map[string]string{
		"delete deployments": "nothing was written: you cannot delete deployments.apps ",
		"patch configmaps":   "nothing was written: you cannot patch configmaps coredns in kube-system",
		"patch clusterroles": wrote,
	} {
		here := load(t, "testdata/kubeadm.yaml", besideService(), besideDeployment())
		r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf}
		if err := r.Install(t.Context(), Wanted{Image: image, Mode: Beside}); err != nil {
			t.Fatal(err)
		}
		here.Client = interceptor.NewClient(here.Client.(client.WithWatch), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				review := o.(*authorizationv1.SelfSubjectAccessReview)
				a := review.Spec.ResourceAttributes
				review.Status.Allowed = a.Verb != "*" && a.Verb+" "+a.Resource != lacks
				return nil
			},
			Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration,
				_ ...client.ApplyOption) error {
				if lacks == "patch clusterroles" {
					return apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New(lacks))
				}
				return nil
			},
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return errors.New(wrote)
			},
		})
		if err := r.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", lacks, err, want)
		}
	}
}

// TestWhoCannotAskPodsIsRefusedFirst, not after minutes with a changed configuration.
func TestWhoCannotAskPodsIsRefusedFirst(t *testing.T) {
	const lacks = "you cannot create pods/portforward in "
	for name, c := range map[string]struct {
		mode Mode
		wait bool
		want string
	}{
		"replace":      {Replace, true, lacks + "kube-system\n"},
		"beside":       {Beside, true, lacks + "clusterset-dns, and 1 more\n"},
		"without wait": {Beside, false, "it writes"},
	} {
		here := load(t, "testdata/kubeadm.yaml", besideService())
		here.Client = interceptor.NewClient(here.Client.(client.WithWatch), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				review := o.(*authorizationv1.SelfSubjectAccessReview)
				a := review.Spec.ResourceAttributes
				review.Status.Allowed = a.Verb != "*" && a.Subresource != "portforward"
				return nil
			},
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return errors.New("it writes")
			},
		})
		r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf, Wait: c.wait}
		err := r.Install(t.Context(), Wanted{Mode: c.mode, Image: image})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// marked is besideDeployment with what Helm, Flux or another tool adds to what it applies as dns.
func marked(mark string) client.Object {
	o := besideDeployment()
	annotations := map[string]string{mark: "dns"}
	if mark == "helm.toolkit.fluxcd.io/name" {
		o.SetLabels(map[string]string{mark: "dns", "helm.toolkit.fluxcd.io/namespace": "flux-system"})
		annotations = map[string]string{"meta.helm.sh/release-name": "dns"}
	}
	if mark == "app.kubernetes.io/instance" { // Argo CD's by default
		o.SetLabels(annotations)
		return o
	}
	annotations["meta.helm.sh/release-namespace"] = "releases"
	o.SetAnnotations(annotations)
	return o
}

// TestWhatOthersAppliedIsTheirsToUninstall.
func TestWhatOthersAppliedIsTheirsToUninstall(t *testing.T) {
	const left = "remove it from the source of dns in Argo CD, Flux or kapp; if nothing applies it any more, first: "
	const label = left + "kubectl -n clusterset-dns label deployment coredns "
	const source = left + "kubectl -n clusterset-dns annotate deployment coredns "
	for mark, want := range map[string]string{
		"meta.helm.sh/release-name":        "helm uninstall dns -n releases",
		"helm.toolkit.fluxcd.io/name":      "delete HelmRelease flux-system/dns",
		"argocd.argoproj.io/tracking-id":   source + "argocd.argoproj.io/tracking-id-",
		"app.kubernetes.io/instance":       label + "app.kubernetes.io/instance-",
		"kustomize.toolkit.fluxcd.io/name": source + "kustomize.toolkit.fluxcd.io/name-",
		"kapp.k14s.io/app":                 source + "kapp.k14s.io/app-",
	} {
		theirs := marked(mark)
		here := load(t, "testdata/kubeadm.yaml", besideService(), theirs)
		var out, said strings.Builder
		r := &Runner{Cluster: here, Confirm: strings.NewReader(""), Out: &out, // nobody is asked
			Say: func(format string, args ...any) { fmt.Fprintf(&said, format, args...) }}
		if err := r.Uninstall(t.Context()); err != nil || !strings.Contains(out.String(), want) || said.Len() > 0 {
			t.Errorf("%s: %v\n%s%s", mark, err, &out, &said)
		}
		if s, err := Read(t.Context(), here); err != nil || s.Beside == nil {
			t.Errorf("%s: it is gone: %v", mark, err)
		}
		theirs.SetAnnotations(nil)
		theirs.SetLabels(nil)
		theirs.SetResourceVersion("")
		if err := here.Update(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		r.Confirm = nil
		if err := r.Uninstall(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err := Read(t.Context(), here); err != nil || s.Beside != nil {
			t.Errorf("%s: without the mark, it stays: %v", mark, err)
		}
	}
}

// TestWhatOthersAppliedIsTheirsToChange, and the cluster's DNS forwards the zone to it.
func TestWhatOthersAppliedIsTheirsToChange(t *testing.T) {
	for mark, change := range map[string]string{
		"meta.helm.sh/release-name":      "upgrade Helm release releases/dns",
		"helm.toolkit.fluxcd.io/name":    "edit HelmRelease flux-system/dns",
		"argocd.argoproj.io/tracking-id": "edit the source of dns in Argo CD, Flux or kapp",
	} {
		theirs := marked(mark)
		here := load(t, "testdata/kubeadm.yaml", besideService(), theirs)
		var out strings.Builder
		r := &Runner{Cluster: here, Out: &out, Say: t.Logf}
		err := r.Install(t.Context(), Wanted{Image: "registry.example/coredns:v2.0.0"})
		if err != nil || !strings.Contains(out.String(), change) || strings.Contains(out.String(), "apply ") {
			t.Errorf("%s: %v\n%s", mark, err, &out)
		}
		s, err := Read(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Running(); got != image || !slices.Equal(sentTo(s.Corefile()), s.address()) {
			t.Errorf("%s: it runs %s, and the Corefile is\n%s", mark, got, s.Corefile())
		}
		r.Wait, r.Timeout = true, time.Millisecond
		if err := r.Install(t.Context(), Wanted{}); err == nil || !strings.Contains(err.Error(), change) {
			t.Errorf("%s: where it does not run: %v", mark, err)
		}
	}
}

// TestAnImageThatDoesNotRunBesideIsTakenBack: without --image, the next run would take it for the one to keep. The Pods
// that would show why are gone.
func TestAnImageThatDoesNotRunBesideIsTakenBack(t *testing.T) {
	pod := pods()[0].(*corev1.Pod)
	pod.Namespace, pod.Labels = besideNamespace, map[string]string{"app.kubernetes.io/name": "clusterset-coredns"}
	pod.Status = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}}
	here := load(t, "testdata/kubeadm.yaml", besideService(), pod)
	var said strings.Builder
	r := &Runner{Cluster: here, Out: io.Discard, Timeout: time.Second,
		Say: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) }}
	if err := r.Install(t.Context(), Wanted{Mode: Beside, Image: image}); err != nil {
		t.Fatal(err)
	}
	r.Wait = true
	err := r.Install(t.Context(), Wanted{Image: "registry.example/coredns:absent"})
	if err == nil || !strings.Contains(said.String(), "rolled back: our CoreDNS has image "+image+" again") ||
		!strings.Contains(err.Error(), "\n  → choose an --image that the nodes can pull") {
		t.Errorf("%v\n%s", err, &said)
	}
	if s, err := Read(t.Context(), here); err != nil || s.Running() != image {
		t.Errorf("it runs %s, %v", s.Running(), err)
	}
}

// TestAnUninstallThatGoesOnWaitsAsTheFirst: Pods may still have our block, with which a stock CoreDNS does not start,
// or forward to our CoreDNS.
func TestAnUninstallThatGoesOnWaitsAsTheFirst(t *testing.T) {
	for _, mode := range []Mode{Replace, Beside} {
		here := load(t, "testdata/kubeadm.yaml", append(pods(), besideService())...)
		before, err := Read(t.Context(), here)
		if err != nil {
			t.Fatal(err)
		}
		r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf, Timeout: time.Second,
			Ask: func(_ context.Context, _ *corev1.Pod, _ int32, q *miekg.Msg) (*miekg.Msg, error) {
				a := new(miekg.Msg).SetReply(q)
				a.Answer = []miekg.RR{&miekg.SOA{}}
				return a, nil
			}}
		if err := r.Install(t.Context(), Wanted{Image: image, Mode: mode}); err != nil {
			t.Fatal(err)
		}
		setCorefile(t, here, before.Corefile())
		r.Wait = true
		if err := r.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "still answers for") {
			t.Errorf("%s: it ends with %v", mode, err)
		}
		if s, err := Read(t.Context(), here); err != nil || s.Running() != image {
			t.Errorf("%s: it runs %q, %v", mode, s.Running(), err)
		}
		here.Client = interceptor.NewClient(here.Client.(client.WithWatch), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				a := o.(*authorizationv1.SelfSubjectAccessReview)
				a.Status.Allowed = a.Spec.ResourceAttributes.Verb != "*" &&
					a.Spec.ResourceAttributes.Subresource != "portforward"
				return nil
			},
		})
		if err := r.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "create pods/portforward") {
			t.Errorf("%s: without the right to ask: %v", mode, err)
		}
	}
}

// TestUninstallRestoresACoreDNSThatCrashes: nobody can ask its Pods.
func TestUninstallRestoresACoreDNSThatCrashes(t *testing.T) {
	crashing := pods()
	for _, p := range crashing {
		p.(*corev1.Pod).Status.Conditions[0].Status = corev1.ConditionFalse
	}
	here := load(t, "testdata/kubeadm.yaml", crashing...)
	r := &Runner{Cluster: here, Out: io.Discard, Say: t.Logf, Timeout: time.Second}
	if err := r.Install(t.Context(), Wanted{Image: image}); err != nil {
		t.Fatal(err)
	}
	d := &appsv1.Deployment{}
	if err := here.Get(t.Context(), client.ObjectKey{Namespace: kubeSystem, Name: "coredns"}, d); err != nil {
		t.Fatal(err)
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: 9, UpdatedReplicas: 2, AvailableReplicas: 2, Replicas: 2}
	if err := here.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	r.Wait = true
	r.Ask = func(context.Context, *corev1.Pod, int32, *miekg.Msg) (*miekg.Msg, error) {
		return nil, errors.New("connection refused")
	}
	if err := r.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := Read(t.Context(), here); err != nil || !platform.Stock.MatchString(s.container().Image) {
		t.Errorf("it keeps %s, %v", s.container().Image, err)
	}
}

// TestAPodWithoutListsHasTheZone, and answers nothing below: an install reports that, and an uninstall waits.
func TestAPodWithoutListsHasTheZone(t *testing.T) {
	here := load(t, "testdata/kubeadm.yaml", pods()...)
	var said strings.Builder
	r := &Runner{Cluster: here, Out: io.Discard, Timeout: time.Second,
		Say: func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) },
		Ask: func(_ context.Context, _ *corev1.Pod, _ int32, q *miekg.Msg) (*miekg.Msg, error) {
			a := new(miekg.Msg).SetRcode(q, miekg.RcodeServerFailure)
			if q.Question[0].Qtype != miekg.TypeTXT {
				a.Rcode, a.Answer = miekg.RcodeSuccess, []miekg.RR{&miekg.SOA{}}
			}
			return a, nil
		}}
	if err := r.Install(t.Context(), Wanted{Image: image}); err != nil {
		t.Fatal(err)
	}
	r.Wait = true
	said.Reset()
	if err := r.Install(t.Context(), Wanted{}); err == nil || strings.Contains(said.String(), "is answered") ||
		!strings.Contains(err.Error(), "answers SERVFAIL for clusterset.local") {
		t.Errorf("installed: %v\n%s", err, &said)
	}
	if err := r.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "still answers for") {
		t.Errorf("uninstalled: %v", err)
	}
}

// TestADryRunShowsWhatIsLeftToDoByHand.
func TestADryRunShowsWhatIsLeftToDoByHand(t *testing.T) {
	for _, name := range []string{"rke2", "eks-addon", "gke", "openshift"} {
		var out strings.Builder
		r := &Runner{Cluster: load(t, "testdata/"+name+".yaml"), Out: &out, Say: t.Logf, DryRun: cluster.DryRunClient}
		if err := r.Install(t.Context(), Wanted{Image: image}); err != nil ||
			!strings.Contains(out.String(), "one step is yours: ") {
			t.Errorf("%s: %v\n%s", name, err, &out)
		}
	}
}

// TestAStepIsPrintedWithOurAddress at last: the plan of a first install has a placeholder, as in its changes.
func TestAStepIsPrintedWithOurAddress(t *testing.T) {
	for name, want := range map[string]string{
		"nodelocal": `stubDomains={"clusterset.local":["10.96.7.7"]}`,
		"kubespray": "nameservers: [10.96.7.7]",
	} {
		here := load(t, "testdata/"+name+".yaml")
		here.Client = interceptor.NewClient(here.Client.(client.WithWatch), interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration,
				opts ...client.ApplyOption) error {
				if u, is := o.(interface{ GetKind() string }); is && u.GetKind() == "Service" {
					return c.Create(ctx, besideService())
				}
				return c.Apply(ctx, o, opts...)
			},
		})
		var out strings.Builder
		r := &Runner{Cluster: here, Out: &out, Say: t.Logf}
		if err := r.Install(t.Context(), Wanted{Mode: Beside, Image: image}); err != nil ||
			strings.LastIndex(out.String(), want) <= strings.LastIndex(out.String(), "CLUSTERIP") ||
			strings.Count(out.String(), "\n! CLUSTERIP stands for the address of our Service") != 1 {
			t.Errorf("%s: %v\n%s", name, err, &out)
		}
	}
}

// TestWhatWasNotWaitedForDoesNotRun: its image may need a secret that does not exist yet.
func TestWhatWasNotWaitedForDoesNotRun(t *testing.T) {
	var out strings.Builder
	r := &Runner{Cluster: load(t, "testdata/gke.yaml", besideService()), Out: &out, Say: t.Logf}
	if err := r.Install(t.Context(), Wanted{Image: image, NoWait: true}); err != nil ||
		!strings.Contains(out.String(), "\nOur CoreDNS is applied, and was not waited for. One step") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestUninstallTellsWhatIsLeftToDoByHand, before it deletes what the cluster's DNS may forward to.
func TestUninstallTellsWhatIsLeftToDoByHand(t *testing.T) {
	here := load(t, "testdata/eks-auto.yaml", besideService(), besideDeployment())
	var out strings.Builder
	r := &Runner{Cluster: here, Out: &out, Say: t.Logf}
	if err := r.Uninstall(t.Context()); err != nil || !strings.Contains(out.String(),
		"first remove what forwards clusterset.local from the cluster's DNS") {
		t.Errorf("%v\n%s", err, &out)
	}
	const block = "clusterset.local:53 {\n forward . 10.96.7.7\n}\n"
	for name, forward := range map[string]func(s *State) (by string){
		"aks": func(s *State) string {
			s.Custom.Data = map[string]string{"own.server": block}
			return "the cluster's DNS"
		},
		"nodelocal": func(s *State) string {
			s.KubeDNS = &corev1.ConfigMap{Data: map[string]string{"stubDomains": `{"clusterset.local":["10.96.7.7"]}`}}
			return "key stubDomains of ConfigMap kube-dns"
		},
		"kubespray": func(s *State) string {
			s.NodeFile += block
			return "the Corefile of NodeLocal DNS"
		},
		"kubeadm": func(*State) string { return "" },
	} {
		s, err := Read(t.Context(), load(t, "testdata/"+name+".yaml", besideService(), besideDeployment()))
		if err != nil {
			t.Fatal(err)
		}
		by := forward(s)
		if p, err := Uninstall(s); (err == nil) != (by == "") || err == nil && p.ByHand != "" ||
			err != nil && !strings.Contains(err.Error(), "is still forwarded to our CoreDNS by "+by+"\n") {
			t.Errorf("%s: %v, want %q", name, err, by)
		}
	}
}

// TestWhatTheCorefileImportsIsRead, and stands where it is imported.
func TestWhatTheCorefileImportsIsRead(t *testing.T) {
	custom := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kubeSystem, Name: "coredns-custom"},
		Data: map[string]string{"a.server": "a.example:53 {\n}", "b.override": "log"}}
	s, err := ReadCorefile(t.Context(), load(t, "testdata/k3s.yaml", custom))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Imported(); strings.Contains(got, "import") || !strings.HasSuffix(got, "log\n}\na.example:53 {\n}\n") {
		t.Error(got)
	}
}

// TestKubeDNSIsAskedWhereClientsAskIt: its first container listens at 10053.
func TestKubeDNSIsAskedWhereClientsAskIt(t *testing.T) {
	s, err := Read(t.Context(), load(t, "testdata/gke.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, port := s.servers(); port != 53 {
		t.Errorf("at %d", port)
	}
}
