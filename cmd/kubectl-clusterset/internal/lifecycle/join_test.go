package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// runs is a Deployment of one container.
func runs(name, image string, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: name}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: image, Args: args}}
	return d
}

// TestAnUpgradeKeepsTheArgumentsThatSomebodyAdded: --reserved-cidrs guards against peers that lie, and nobody would
// miss it.
func TestAnUpgradeKeepsTheArgumentsThatSomebodyAdded(t *testing.T) {
	before := []string{"agent", "--hub-kubeconfig=/etc/clusterset/hub/kubeconfig", "--hub-namespace", "old",
		"--cluster-id=east", "--reserved-cidrs", "192.0.2.0/24", "-pprof-bind-address=:6060"}
	o, _ := options(inMemory(interceptor.Funcs{}))
	o.Image = "r/c:v2"
	j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{},
		runs("clusterset-controller", "r/c:v1", before...)), ClusterID: "east"}}
	if err := j.render(t.Context()); err != nil {
		t.Fatal(err)
	}
	check := func(objects []*unstructured.Unstructured, image string, want ...string) {
		t.Helper()
		containers, _, _ := unstructured.NestedSlice(only(objects, "Deployment")[0].Object, "spec", "template", "spec",
			"containers")
		c := containers[0].(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(c, "args")
		if !slices.Equal(args, want) || c["image"] != image {
			t.Errorf("%v is to run with %q, want %s with %q", c["image"], args, image, want)
		}
	}
	check(j.here, "r/c:v2", "agent", "--hub-kubeconfig=/etc/clusterset/hub/kubeconfig", "--hub-namespace=blue",
		"--cluster-id=east", "--reserved-cidrs", "192.0.2.0/24", "-pprof-bind-address=:6060")

	o, _ = options(inMemory(interceptor.Funcs{}))
	o.Timeout = 100 * time.Millisecond
	own := inMemory(interceptor.Funcs{}, runs("clusterset-controller", "r/c:v1", "agent",
		"--hub-kubeconfig=/etc/clusterset/hub/kubeconfig", "--hub-kubeconfig", "/vault/hub", "--reserved-cidrs=::/0"))
	j = &join{JoinOptions: &JoinOptions{Options: *o, Member: own, ClusterID: "east"}}
	err := errors.Join(j.render(t.Context()), j.writeCredentials(t.Context()), j.readSecret(t.Context()))
	if err != nil || j.current != nil {
		t.Errorf("with credentials of its own, it got a Secret: %v, %v", j.current != nil, err)
	}
	check(j.here, "r/c:v1", "agent", "--hub-kubeconfig=/etc/clusterset/hub/kubeconfig", "--hub-namespace=blue",
		"--cluster-id=east", "--reserved-cidrs=::/0", "--hub-kubeconfig=/vault/hub")
	if err := j.await(t.Context()); err == nil || strings.Contains(err.Error(), "--hub-server") {
		t.Errorf("waiting for it: %v", err)
	}
	for flag, o := range map[string]JoinOptions{"--renew": {Renew: true}, "--hub-server": {HubServer: "https://hub"},
		"--token-lifetime": {TokenLifetime: time.Hour}} {
		o.Options, o.Member = j.Options, j.Member
		err := (&join{JoinOptions: &o}).render(t.Context())
		if err == nil || !strings.Contains(err.Error(), "/vault/hub") {
			t.Errorf("join %s: %v", flag, err)
		}
	}

	o, _ = options(inMemory(interceptor.Funcs{}, runs("clusterset-hub-blue", "r/c:v3", "hub")))
	j = &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}), ClusterID: "east"}}
	if err := j.render(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(j.here, "r/c:v3", "agent", "--hub-kubeconfig=/etc/clusterset/hub/kubeconfig", "--hub-namespace=blue",
		"--cluster-id=east") // of a build without a release

	hub, _ := options(inMemory(interceptor.Funcs{}, runs("clusterset-hub-blue", "r/c:v1", "hub", "--hub-namespace=blue",
		"--pprof-bind-address=:6060")))
	objects, err := hub.renderHub(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	check(objects, "r/c:v1", "hub", "--hub-namespace=blue", "--pprof-bind-address=:6060")
}

// TestAnUpgradeKeepsTheResourcesThatSomebodySet, replicas and priority class too, but brings new defaults.
func TestAnUpgradeKeepsTheResourcesThatSomebodySet(t *testing.T) {
	for _, c := range []struct {
		by       string
		replicas int32
		want     int64
		memory   string // -limit of the agent
		class    string // of its priority
	}{
		{"helm", 3, 3, "2Gi", "high"}, {"helm", 0, 2, "2Gi", "high"},
		{"kubectl-clusterset", 3, 2, "1Gi", "system-cluster-critical"},
	} {
		set := func(d *appsv1.Deployment) *appsv1.Deployment {
			d.Spec.Replicas = &c.replicas
			d.Spec.Template.Spec.Containers[0].Name, d.Spec.Template.Spec.PriorityClassName = "agent", "high"
			d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("2Gi")}
			d.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: c.by, Operation: "Update", APIVersion: "apps/v1",
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec": {"f:replicas": {}, "f:template": {
					"f:spec": {"f:priorityClassName": {}, "f:containers": {"k:{\"name\":\"agent\"}": {
						"f:resources": {"f:limits": {}}}}}}}}`)}}
			return d
		}
		o, _ := options(inMemory(interceptor.Funcs{}, set(runs("clusterset-hub-blue", "r/c:v1", "hub"))))
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{},
			set(runs("clusterset-controller", "r/c:v1", "agent"))), ClusterID: "east"}}
		hub, err := o.renderHub(t.Context())
		if err := errors.Join(err, j.render(t.Context())); err != nil {
			t.Fatal(err)
		}
		for _, objects := range [][]*unstructured.Unstructured{j.here, hub} {
			d := &appsv1.Deployment{}
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(only(objects, "Deployment")[0].Object, d)
			if err != nil || int64(*d.Spec.Replicas) != c.want {
				t.Errorf("%s, %s: %d replicas, want %d: %v", c.by, d.Name, *d.Spec.Replicas, c.want, err)
			}
			memory := d.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String()
			if d.Name == "clusterset-controller" && memory != c.memory {
				t.Errorf("%s: %s, want %s", c.by, memory, c.memory)
			}
			class := d.Spec.Template.Spec.PriorityClassName
			if d.Name == "clusterset-controller" && class != c.class {
				t.Errorf("%s: priority class %s, want %s", c.by, class, c.class)
			}
		}
	}
}

// TestAMemberIsNotTakenToAnotherHub while it is alive on its own: hubs are told apart by nothing but the clusterset's
// name, and every upgrade gives this command again.
func TestAMemberIsNotTakenToAnotherHub(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	renewed := func(namespace, name string, ago time.Duration) *coordinationv1.Lease {
		at, by, lives := metav1.NewTime(now.Add(-ago)), metav1.NewMicroTime(now.Add(-ago)), int32(40)
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace,
				Name:      name,
				ManagedFields: []metav1.ManagedFieldsEntry{
					{
						Manager:    "agent",
						Operation:  metav1.ManagedFieldsOperationUpdate,
						APIVersion: "coordination.k8s.io/v1",
						Time:       &at,
						FieldsType: "FieldsV1",
						FieldsV1:   metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`),
					},
				},
			},
			Spec: coordinationv1.LeaseSpec{RenewTime: &by, LeaseDurationSeconds: &lives},
		}
	}
	kept := &corev1.Secret{
		Data: map[string][]byte{
			kubeconfigKey: []byte(
				`{"current-context": "hub", "contexts": [{"name": "hub", "context": {"cluster": "hub"}}], 
					"clusters": [{"name": "hub", "cluster": {"server": "https://prod"}}]}`,
			),
		},
	}
	for what, c := range map[string]struct {
		here, there *coordinationv1.Lease
		departed    time.Duration // ago; 0 if it has not
		used        string        // the hub's URL, by the agent
		refused     bool
	}{
		"alive on another": {renewed(kube.SystemNamespace, clusterset.LeaseRenewed, 5*time.Second), nil,
			0, "https://prod", true},
		"alive on this one until it lost its namespace": {
			renewed(kube.SystemNamespace, clusterset.LeaseRenewed, 5*time.Second), nil, 0, "https://hub", false},
		"departed long ago, alive on another": {renewed(kube.SystemNamespace, clusterset.LeaseRenewed, 5*time.Second),
			nil, time.Hour, "", true},
		"which has an old copy of it": {renewed(kube.SystemNamespace, clusterset.LeaseRenewed, 5*time.Second),
			renewed("blue", "east", time.Hour), 0, "", true},
		"alive on this one": {renewed(kube.SystemNamespace, clusterset.LeaseRenewed, 5*time.Second),
			renewed("blue", "east", 5*time.Second), 0, "", false},
		"evicted from this one": {renewed(kube.SystemNamespace, clusterset.LeaseRenewed, 5*time.Second), nil,
			30 * time.Second, "", false},
		"its hub is gone": {renewed(kube.SystemNamespace, clusterset.LeaseRenewed, time.Hour), nil, 0, "",
			false},
		"it has never been on one": {nil, nil, 0, "", false},
	} {
		var here []client.Object
		if c.here != nil {
			here = append(here, c.here)
		}
		o, _ := options(inMemory(interceptor.Funcs{}))
		j := &join{
			JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}, here...), ClusterID: "east"},
			current:     kept,
			lease:       c.there,
			hubSet:      &hubv1alpha1.ClusterSet{},
			now:         now,
			hubNow:      now,
		}
		j.Hub.Config = &rest.Config{Host: "https://hub"}
		j.setProperty, j.usedHub = &aboutv1beta1.ClusterProperty{}, c.used
		if c.departed > 0 {
			j.hubSet.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "east",
				At: metav1.NewTime(now.Add(-c.departed))}}
		}
		if err := j.checkSameHub(t.Context()); (err != nil) != c.refused || err != nil &&
			(!strings.Contains(err.Error(), "its Lease on another hub, at https://prod\n") ||
				!strings.HasSuffix(err.Error(), "; to move all members to this one: "+report.DocsMoving)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestJoinTakesTheIDOfAnAgentThatIsInstalled, as by a chart: whoever applies that again would restore it.
func TestJoinTakesTheIDOfAnAgentThatIsInstalled(t *testing.T) {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}}
	for want, args := range map[string][]string{"east": {"agent", "--cluster-id=east"}, "uid": {"agent"}} {
		o, said := options(nil)
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}, system.DeepCopy(),
			runs("clusterset-controller", "r/c:v1", args...))}}
		var err error
		if j.state, err = readState(t.Context(), j.Member); err != nil {
			t.Fatal(err)
		}
		if err := j.chooseID(t.Context()); err != nil || j.ClusterID != want ||
			strings.Contains(said.String(), "is the UID") != (want == "uid") {
			t.Errorf("with %q it is %s: %v\n%s", args, j.ClusterID, err, said)
		}
	}
}

// TestAMemberJoinsAgainInItsOwnClusterSet if --hub-namespace is not given, as in the remedies that say join --renew.
// The ClusterSet need not have the name of its namespace.
func TestAMemberJoinsAgainInItsOwnClusterSet(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"gitVersion": "v1.36.0"}`)
	}))
	defer server.Close()
	property := func(name, value string) client.Object {
		return &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}
	}
	known := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName},
		Status: hubv1alpha1.MembershipStatus{HubNamespace: "blue"}}
	agent := runs("clusterset-controller", "r/c:v1", "agent", "--hub-namespace=blue")
	for _, c := range []struct {
		given, set string
		shows      client.Object
		want       string
	}{
		{"", "blue", nil, "namespace: blue\n"},
		{"", "prod", agent, "namespace: blue\n"},
		{"", "prod", known, "namespace: blue\n"},
		{"red", "blue", nil, "namespace red of the hub holds no ClusterSet; it is the hub of: blue\n"},
		{"", "", nil, "namespace clusterset of the hub holds no ClusterSet; it is the hub of: blue\n"},
	} {
		here := []client.Object{property(clusterset.PropertyID, "east"),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}}}
		if c.set != "" {
			here = append(here, property(clusterset.PropertySet, c.set))
		}
		if c.shows != nil {
			here = append(here, c.shows)
		}
		member := inMemory(interceptor.Funcs{}, here...)
		hub := inMemory(interceptor.Funcs{}, profile("east", clusterset.AnnotationClusterUID, "uid"),
			&hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: cmp.Or(c.set, "blue")}})
		member.Config, hub.Config = &rest.Config{Host: server.URL}, &rest.Config{Host: server.URL}
		o, _ := options(hub)
		var out strings.Builder
		o.HubNamespace, o.DryRun, o.Release = c.given, &out, "r/c:v1"
		err := Join(t.Context(), &JoinOptions{Options: *o, Member: member, Renew: true})
		if got := fmt.Sprint(out.String(), err); !strings.Contains(got, c.want) {
			t.Errorf("%q, in %q: %s, want %q", c.given, c.set, got, c.want)
		}
	}
}

// TestRenewingNeedsFewRights: who may replace the credentials need not be able to create CRDs and policies.
func TestRenewingNeedsFewRights(t *testing.T) {
	for _, renew := range []bool{false, true} {
		asked := map[string]bool{}
		reviewed := interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				review := o.(*authorizationv1.SelfSubjectAccessReview)
				a := review.Spec.ResourceAttributes
				asked[a.Resource], review.Status.Allowed = true, a.Verb != "*"
				return nil
			},
			Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration,
				_ ...client.ApplyOption) error {
				asked[kindOf(o)] = true
				return nil
			},
		}
		o, _ := options(inMemory(reviewed))
		o.Release = "r/c:v1"
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(reviewed), ClusterID: "east", Renew: renew},
			claimed: renew}
		if err := errors.Join(j.render(t.Context()), j.checkRights(t.Context())); err != nil {
			t.Fatal(err)
		}
		for _, always := range []string{"ServiceAccount", "RoleBinding", "Secret", "serviceaccounts"} {
			if !asked[always] {
				t.Errorf("renew %v: not asked for %s", renew, always)
			}
		}
		for _, once := range []string{"CustomResourceDefinition", "ValidatingAdmissionPolicy", "Deployment",
			"clusterprofiles", "clusterproperties"} {
			if asked[once] == renew {
				t.Errorf("renew %v: asked for %s: %v", renew, once, asked[once])
			}
		}
	}
}

// TestATokensLifetimeHasLimits, which API servers and the hub's policy set.
func TestATokensLifetimeHasLimits(t *testing.T) {
	hub := &cluster.Cluster{Config: &rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}}
	for lifetime, want := range map[time.Duration]string{
		0: "insecure", 10 * time.Minute: "insecure", 24 * time.Hour: "insecure",
		9 * time.Minute: "between 10m and 24h", 25 * time.Hour: "between 10m and 24h", -1: "between 10m and 24h",
	} {
		j := &join{JoinOptions: &JoinOptions{Options: Options{Hub: hub}, TokenLifetime: lifetime}}
		if err := j.preflight(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", lifetime, err, want)
		}
	}
}

// TestABuildWithoutAReleaseNeedsAnImage, unless something runs already.
func TestABuildWithoutAReleaseNeedsAnImage(t *testing.T) {
	runs := &corev1.Container{Image: "running"}
	for name, c := range map[string]struct {
		o    Options
		runs *corev1.Container
		want string
	}{
		"nothing": {},
		"flag":    {Options{Image: "given", Release: "released"}, runs, "given"},
		"runs":    {Options{Release: "released"}, runs, "running"},
		"release": {Options{Release: "released"}, nil, "released"},
	} {
		got, err := c.o.image(c.runs)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "\n  → name one that the nodes can pull with --image; ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnotherClusterIDIsChangedByLeaving once a join has begun: the hub has its claim.
func TestAnotherClusterIDIsChangedByLeaving(t *testing.T) {
	for want, objects := range map[string][]client.Object{
		"kubectl delete clusterproperty": nil,
		"kubectl clusterset leave":       {runs("clusterset-controller", "r/c:v1")},
	} {
		o, _ := options(inMemory(interceptor.Funcs{}))
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}, objects...),
			ClusterID: "west"}}
		j.id = &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "uid"}}
		if err := j.chooseID(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestOfTwoJoinsAtOnceOneNamesTheCluster: the other fails before it touches the agent, and names its claim. It is not
// told to run again, which would be refused.
func TestOfTwoJoinsAtOnceOneNamesTheCluster(t *testing.T) {
	const void = "this join is void: another one has meanwhile given the hub the cluster ID east\n" +
		"  → to delete its claim of west: kubectl clusterset evict west --hub-context=HUB"
	for value, want := range map[string]string{"east": void, "west": "<nil>"} {
		o, _ := options(inMemory(interceptor.Funcs{}))
		j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{},
			&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyID},
				Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}), ClusterID: "west"}, claimed: true, file: "/hub"}
		if got := fmt.Sprint(j.write(t.Context())); got != want {
			t.Errorf("the other one made it %s: %s, want %s", value, got, want)
		}
	}
}

// TestWhoIsInTheWrongClusterIsToldWhichItIs: contexts of merged kubeconfigs may lead to one cluster.
func TestWhoIsInTheWrongClusterIsToldWhichItIs(t *testing.T) {
	member := &cluster.Cluster{Name: "this cluster", Config: &rest.Config{Host: "https://east.example:6443"}}
	j := &join{JoinOptions: &JoinOptions{Member: member, ClusterID: "west"}}
	j.setProperty = &aboutv1beta1.ClusterProperty{}
	j.id = &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}}
	err := j.chooseID(t.Context())
	for _, want := range []string{"this cluster, at https://east.example:6443, is a member as", "another cluster"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestAMemberThatIsTakenForTheHubIsSaidToBeOne, with where its hub is, and init makes no second hub there.
func TestAMemberThatIsTakenForTheHubIsSaidToBeOne(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"gitVersion": "v1.36.0"}`)
	}))
	defer server.Close()
	renewed := func(ago time.Duration) *coordinationv1.Lease {
		at := metav1.NewTime(time.Now().Add(-ago))
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
			Name: clusterset.LeaseRenewed,
			ManagedFields: []metav1.ManagedFieldsEntry{{Operation: "Update", APIVersion: "coordination.k8s.io/v1",
				Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}")}},
		}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(40)),
			RenewTime: &metav1.MicroTime{Time: at.Time}}}
	}
	set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}
	id := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyID},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}}
	onHub := renewed(time.Second)
	onHub.Namespace, onHub.Name = "blue", "east"
	known := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName},
		Status: hubv1alpha1.MembershipStatus{Hub: "https://hub"}}
	own := inMemory(interceptor.Funcs{}, set.DeepCopy(), id.DeepCopy(), renewed(time.Second), onHub, known)
	own.Config = &rest.Config{Host: server.URL}
	o, _ := options(own)
	var made strings.Builder
	o.DryRun, o.Release = &made, "r/c:v1"
	if err := Init(t.Context(), o); err != nil {
		t.Errorf("a hub that is its own member, and has lost its ClusterSet, is not made again: %v", err)
	}
	at := known.DeepCopy()
	at.Status.Hub = server.URL
	own = inMemory(interceptor.Funcs{}, set.DeepCopy(), id.DeepCopy(), renewed(time.Second), at) // with its namespace
	own.Config = &rest.Config{Host: server.URL}
	o.Hub = own
	if err := Init(t.Context(), o); err != nil {
		t.Errorf("a hub that is its own member, and has lost its namespace, is not made again: %v", err)
	}
	lost := &join{JoinOptions: &JoinOptions{Options: *o}, state: state{setProperty: set, usedHub: server.URL}}
	if err := lost.readClusterSet(t.Context()); err == nil || !strings.HasSuffix(err.Error(),
		"namespace blue of the hub holds no ClusterSet\n  → "+facts.Init) {
		t.Errorf("join, at a hub that has lost its namespace: %v", err)
	}
	at.Status.HubNamespace = "red" // another name than its ClusterSet's
	red := inMemory(interceptor.Funcs{}, set.DeepCopy(), id.DeepCopy(), at.DeepCopy(),
		&hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "blue"}})
	red.Config = own.Config
	if role := cluster.RoleOf(t.Context(), red); role.MemberOf != "blue" {
		t.Errorf("a hub that is its own member is none: %+v", role)
	}
	const says = "is a member of ClusterSet blue, whose hub is https://hub"
	for _, c := range []struct {
		ago       time.Duration
		namespace string
		refused   bool // by init
	}{{time.Second, "blue", true}, {time.Second, "red", false}, {time.Hour, "blue", false}} {
		taken := inMemory(interceptor.Funcs{}, set.DeepCopy(), id.DeepCopy(), renewed(c.ago),
			known.DeepCopy())
		taken.Config = &rest.Config{Host: server.URL}
		o, _ := options(taken)
		o.HubNamespace, o.Release = c.namespace, "r/c:v1"
		j := &join{JoinOptions: &JoinOptions{Options: *o}}
		l := &leave{LeaveOptions: &LeaveOptions{Options: *o}, state: state{setProperty: set, id: id}}
		leaves := l.evicted(t.Context())
		for what, err := range map[string]error{"join": j.readClusterSet(t.Context()), "leave": leaves,
			"evict": Evict(t.Context(), o, "west")} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", what, err)
			}
		}
		var out strings.Builder
		o.DryRun = &out
		err := Init(t.Context(), o)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("init, %+v: %v", c, err)
		}
	}
}

// TestAnUpgradeWaitsForTheNewReplicas: the old ones would hide that those do not start. Where none ran, as for an agent
// elsewhere, there is nothing to wait for.
func TestAnUpgradeWaitsForTheNewReplicas(t *testing.T) {
	d := runs("clusterset-controller", "r/c:v1")
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	d.Spec.Replicas = new(int32(2))
	d.Status = appsv1.DeploymentStatus{UpdatedReplicas: 1, AvailableReplicas: 2, Replicas: 3}
	here := inMemory(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList,
		...client.ListOption) error {
		return apierrors.NewForbidden(corev1.Resource("pods"), "", nil) // they only show why it takes long
	}}, d)
	o, _ := options(nil)
	o.Timeout = 100 * time.Millisecond
	if err := o.awaitRollout(t.Context(), here, d.Name, 0); err != nil {
		t.Errorf("none ran: %v", err)
	}
	ran, err := available(t.Context(), here, d.Name)
	if err != nil || ran != 2 {
		t.Fatalf("%d available, %v", ran, err)
	}
	if err := o.awaitRollout(t.Context(), here, d.Name, ran); err == nil ||
		!strings.Contains(err.Error(), "0 of 2 new replicas are available") {
		t.Errorf("two ran: %v", err)
	}
}
