package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// errWrites is what the first write fails with.
var errWrites = errors.New("it writes")

// user returns what a cluster does for somebody who is no admin and lacks these rights ("patch *": on everything not
// in has). Kinds in odd are those whose dry run ends with that error.
func user(lacks, has []string, odd map[string]error) interceptor.Funcs {
	may := func(verb, resource string) bool {
		all := []string{verb + " " + resource, verb + " *"}
		return verb != "*" && (slices.Contains(has, all[0]) ||
			!slices.ContainsFunc(all, func(r string) bool { return slices.Contains(lacks, r) }))
	}
	write := func(dryRun []string, kind string, verbs ...string) error {
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
		for _, verb := range verbs {
			if !may(verb, plural.Resource) {
				return apierrors.NewForbidden(plural.GroupResource(), "x", fmt.Errorf("cannot %s", verb))
			}
		}
		if len(dryRun) == 0 {
			return errWrites
		}
		return odd[kind]
	}
	kind := func(api client.Client, o client.Object) string {
		gvk, _ := api.GroupVersionKindFor(o)
		return gvk.Kind
	}
	return interceptor.Funcs{
		Create: func(_ context.Context, api client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			if review, is := o.(*authorizationv1.SelfSubjectAccessReview); is {
				a := review.Spec.ResourceAttributes
				review.Status.Allowed = may(a.Verb, strings.TrimSuffix(a.Resource+"/"+a.Subresource, "/"))
				return nil
			}
			return write(nil, kind(api, o), "create")
		},
		Patch: func(_ context.Context, api client.WithWatch, o client.Object, _ client.Patch,
			_ ...client.PatchOption) error {
			return write(nil, kind(api, o), "patch")
		},
		Delete: func(_ context.Context, api client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
			return write(nil, kind(api, o), "delete")
		},
		Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration,
			opts ...client.ApplyOption) error {
			var all client.ApplyOptions
			all.ApplyOptions(opts)
			verbs := []string{"patch", "create"}
			if odd[kindOf(o)] != nil { // which precedes the check of creation
				verbs = verbs[:1]
			}
			return write(all.DryRun, kindOf(o), verbs...)
		},
	}
}

// TestID3WhoCannotFinishToJoinIsRefusedFirst: neither a dry run that fails otherwise nor an object whose namespace or
// kind does not exist yet hides a right that is missing.
func TestID3WhoCannotFinishToJoinIsRefusedFirst(t *testing.T) {
	missing := map[string]error{"Secret": apierrors.NewNotFound(schema.GroupResource{}, kube.SystemNamespace)}
	invalid := map[string]error{"CustomResourceDefinition": apierrors.NewBadRequest("a webhook has no dry run")}
	const token, properties = "create serviceaccounts/token", "create clusterproperties"
	for name, c := range map[string]struct {
		hub, member []string // lacks these rights
		odd         map[string]error
		named       bool // the cluster has an ID
		renew       bool
		claimed     bool // the hub has its ClusterProfile
		here        []client.Object
		want        string
	}{
		"all rights":          {},
		"no token":            {hub: []string{token}, want: "the hub, and nothing was written: you cannot " + token},
		"no token to renew":   {hub: []string{token}, renew: true, want: "cannot " + token + " mcs-east in blue"},
		"no claim":            {hub: []string{"create clusterprofiles"}, want: "cannot create clusterprofiles"},
		"no claim to renew":   {hub: []string{"create clusterprofiles"}, renew: true, claimed: true},
		"no claim again":      {hub: []string{"create clusterprofiles"}, claimed: true},
		"no claim, evicted":   {hub: []string{"create clusterprofiles"}, renew: true, want: "create clusterprofiles"},
		"no Secret":           {member: []string{"create secrets"}, want: "applying Secret clusterset-system/hub-"},
		"no Secret yet":       {member: []string{"create secrets"}, odd: missing, want: "cannot create secrets in "},
		"no ID":               {member: []string{properties}, want: "cannot " + properties + ".about.k8s.io"},
		"no ID that is new":   {member: []string{properties}, named: true},
		"after another error": {member: []string{"patch deployments"}, odd: invalid, want: "applying Deployment"},
		"more than one":       {member: []string{"patch secrets", properties}, want: "cannot patch, and 1 more"},
		"no credentials, which are elsewhere": {hub: []string{token}, member: []string{"patch secrets"},
			here: []client.Object{runs("clusterset-controller", "r/c:v1", "agent", "--hub-kubeconfig=/vault/hub")}},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := options(inMemory(user(c.hub, nil, nil)))
			o.Release = "r/c:v1"
			j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(user(c.member, nil, c.odd), c.here...),
				ClusterID: "east", Renew: c.renew}, claimed: c.claimed}
			if c.named {
				j.id = &aboutv1beta1.ClusterProperty{}
			}
			if err := j.render(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := j.checkRights(t.Context())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestAnAdminOfTheNamespaceAloneIsAskedForTheImage: the hub's Deployment, which shows one, is in another namespace.
func TestAnAdminOfTheNamespaceAloneIsAskedForTheImage(t *testing.T) {
	hub := inMemory(interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey,
		_ client.Object, _ ...client.GetOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, key.Name, errors.New("no"))
	}})
	o, _ := options(hub)
	j := &join{JoinOptions: &JoinOptions{Options: *o, Member: inMemory(interceptor.Funcs{}), ClusterID: "east"}}
	if err := j.render(t.Context()); err == nil || apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "→ name one that the nodes can pull with --image") {
		t.Errorf("%v", err)
	}
}

// TestWhoCannotFinishToLeaveIsRefusedFirst, also to undo an unfinished join; who can needs no right to apply.
func TestWhoCannotFinishToLeaveIsRefusedFirst(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"gitVersion": "v1.36.0"}`)
	}))
	defer server.Close()
	noApply := []string{"patch *", "create *"}
	for name, c := range map[string]struct {
		unfinished           bool
		hub, lacks, butNeeds []string
		want                 string
	}{
		"patch, and no delete": {lacks: []string{"delete *"}, want: "you cannot delete "},
		"no delete of the ID":  {lacks: []string{"delete clusterproperties"}, want: "k8s.io cluster.clusterset.k8s.io"},
		"delete, and no patch": {lacks: noApply,
			want: "nothing was written: you cannot patch clusterproperties.about.k8s.io clusterset.k8s.io"},
		"what is needed":            {lacks: noApply, butNeeds: []string{"patch clusterproperties"}, want: "it writes"},
		"the controller's deletion": {hub: []string{"delete *"}, want: "it writes"},
		"unfinished: no patch": {unfinished: true, lacks: noApply,
			want: "you cannot patch deployments.apps clusterset-controller in clusterset-system"},
		"unfinished: what is needed": {unfinished: true, lacks: noApply, butNeeds: []string{"patch deployments"},
			want: "it writes"},
		"unfinished: a claim": {unfinished: true, hub: []string{"delete *"},
			want: "the hub, and nothing was written: you cannot delete clusterprofiles.multicluster.x-k8s.io east"},
	} {
		t.Run(name, func(t *testing.T) {
			in := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
			id := &aboutv1beta1.ClusterProperty{ObjectMeta: in("", clusterset.PropertyID)}
			id.Spec.Value, id.ManagedFields = "east", []metav1.ManagedFieldsEntry{{Manager: "clusterset-controller",
				Operation: "Update", APIVersion: "about.k8s.io/v1beta1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:value":{}}}`)}}
			set := &aboutv1beta1.ClusterProperty{ObjectMeta: in("", clusterset.PropertySet)}
			set.Spec.Value = "blue"
			agent := &appsv1.Deployment{ObjectMeta: in(kube.SystemNamespace, "clusterset-controller")}
			agent.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
			system := &corev1.Namespace{ObjectMeta: in("", "kube-system")}
			system.UID = "uid"
			there, claim := []client.Object{id, agent, system, set}, clusterset.AnnotationClusterUID
			if c.unfinished {
				there, claim = there[:3], clusterset.AnnotationJoiningUID
			}
			o, _ := options(inMemory(user(c.hub, nil, nil), profile("east", claim, "uid")))
			member := inMemory(user(c.lacks, c.butNeeds, nil), there...)
			member.Name, member.Config = "this cluster", &rest.Config{Host: server.URL}
			err := Leave(t.Context(), &LeaveOptions{Options: *o, Member: member})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
