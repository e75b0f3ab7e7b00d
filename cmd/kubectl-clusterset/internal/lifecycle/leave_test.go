package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestLeavingLeavesAReleaseToHelm, with the namespace, where Helm keeps its record of it. What join added goes, and the
// agent is stopped, because it would write its Membership again. Flux would install the release again.
func TestLeavingLeavesAReleaseToHelm(t *testing.T) {
	for next, labels := range map[string]map[string]string{
		"helm uninstall member -n clusterset-system": nil,
		"delete HelmRelease flux-system/agent": {"helm.toolkit.fluxcd.io/name": "agent",
			"helm.toolkit.fluxcd.io/namespace": "flux-system"},
	} {
		system := metav1.ObjectMeta{Namespace: kube.SystemNamespace}
		agent := &appsv1.Deployment{ObjectMeta: system}
		agent.Name, agent.Labels = "clusterset-controller", labels
		agent.Annotations = map[string]string{"meta.helm.sh/release-name": "member",
			"meta.helm.sh/release-namespace": kube.SystemNamespace}
		agent.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
		secret := &corev1.Secret{ObjectMeta: system}
		secret.Name = clusterset.SecretHub
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: kube.SystemNamespace}}
		set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}
		known := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName}}
		member := inMemory(interceptor.Funcs{
			Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				err := api.Patch(ctx, o, p, opts...)
				if err == nil && o.GetAnnotations()[clusterset.AnnotationLeaving] != "" { // the agent leaves
					err = api.Delete(ctx, set.DeepCopy())
				}
				return err
			},
			Delete: func(ctx context.Context, api client.WithWatch, o client.Object,
				opts ...client.DeleteOption) error {
				if o.GetName() == known.Name {
					err := api.Get(ctx, client.ObjectKeyFromObject(agent), agent)
					if err != nil || ptr.Deref(agent.Spec.Replicas, 1) > 0 {
						t.Errorf("the Membership is deleted while the agent runs: %v", err)
					}
				}
				return api.Delete(ctx, o, opts...)
			},
		}, agent, secret, namespace, set, known,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})
		o, said := options(nil)
		l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member}}
		var err error
		if l.state, err = readState(t.Context(), member); err != nil {
			t.Fatal(err)
		}
		var dry strings.Builder
		preview := func(context.Context) error { l.DryRun = &dry; return l.print() }
		for _, step := range []func(context.Context) error{l.plan, preview, l.run} {
			if err := step(t.Context()); err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
		}
		for o, stays := range map[client.Object]bool{agent: true, namespace: true, secret: false, known: false} {
			err := member.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			if client.IgnoreNotFound(err) != nil || (err == nil) != stays {
				t.Errorf("%s must stay: %v; %v", cluster.Title(o), stays, err)
			}
		}
		if want := "# Helm's release stays, with its agent scaled to 0: " + next + "\n"; !strings.Contains(dry.String(),
			want) {
			t.Errorf("there is no %q:\n%s", want, &dry)
		}
		if want := "\nnext: " + next + "\n"; !strings.HasSuffix(said.String(), want) {
			t.Errorf("it does not end in %q:\n%s", want, said)
		}
	}
}

// TestLeavingAfterAnAgentThatIsGoneForGood: nobody else deletes what it made, which answers and takes VIPs still; a
// range of the user's is let go, and what is the user's stays. An API server forgets the policy that reserves derived
// Services to the agent a moment later.
func TestLeavingAfterAnAgentThatIsGoneForGood(t *testing.T) {
	ours := map[string]string{derived.LabelManagedBy: kube.Manager, discoveryv1.LabelManagedBy: kube.Manager,
		networkingv1.LabelManagedBy: kube.Manager}
	in := func(ns, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}
	}
	service := &corev1.Service{ObjectMeta: in("shop", derived.Name("shop", "web"), ours)}
	service.Annotations = map[string]string{derived.AnnotationImport: "shop/web"}
	made := []client.Object{service, &mcsv1beta1.ServiceImport{ObjectMeta: in("shop", "web", ours)},
		&discoveryv1.EndpointSlice{ObjectMeta: in("shop", "derived-x", ours)},
		&appsv1.Deployment{ObjectMeta: in(kube.SystemNamespace, "clusterset-controller", nil)},
		&rbacv1.ClusterRole{ObjectMeta: in("", "clusterset-dns:agent-dnsendpoints", nil)}, // deploy/member/dnsendpoint
		&rbacv1.ClusterRoleBinding{ObjectMeta: in("", "clusterset-dns:agent-dnsendpoints", nil)},
		&corev1.Namespace{ObjectMeta: in("", kube.SystemNamespace, nil)}}
	theirs := &networkingv1.ServiceCIDR{ObjectMeta: in("", "users", nil)}
	theirs.Finalizers = []string{clusterset.FinalizerVIPs}
	refusals := 0
	member := inMemory(interceptor.Funcs{
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, is := o.(*corev1.Service); is && refusals < 2 {
				refusals++
				return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, o.GetName(), nil)
			}
			return api.Delete(ctx, o, opts...)
		},
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			switch list.(type) {
			case *hubv1alpha1.ServiceExportRecordList:
				return &meta.NoKindMatchError{}
			case *aboutv1beta1.ClusterPropertyList:
				return apierrors.NewNotFound(schema.GroupResource{Resource: "clusterproperties"}, "")
			}
			return api.List(ctx, list, opts...)
		},
	}, append(made, theirs, &corev1.Service{ObjectMeta: in("shop", "web", nil)})...)
	o, said := options(nil)
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member}}
	if err := l.plan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.clean(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	for _, o := range made {
		if err := member.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is left: %v", o, o.GetName(), err)
		}
	}
	for _, o := range []client.Object{theirs, &corev1.Service{ObjectMeta: in("shop", "web", nil)}} {
		if err := member.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || len(o.GetFinalizers()) > 0 {
			t.Errorf("the user's %T %s: %v, %v", o, o.GetName(), err, o.GetFinalizers())
		}
	}
}

// TestAReleaseOfHelmGoesBeforeWhatItsAgentMade if that runs no more: its policies reserve derived Services to the
// agent. What shows that there is something to delete stays until then.
func TestAReleaseOfHelmGoesBeforeWhatItsAgentMade(t *testing.T) {
	ours := map[string]string{derived.LabelManagedBy: kube.Manager}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web"),
		Labels: ours, Annotations: map[string]string{derived.AnnotationImport: "shop/web"}}}
	agent := runs("clusterset-controller", "r/c:v1")
	agent.Annotations = map[string]string{"meta.helm.sh/release-name": "member",
		"meta.helm.sh/release-namespace": kube.SystemNamespace}
	known := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName}}
	installed := true
	member := inMemory(interceptor.Funcs{
		Delete: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, is := o.(*corev1.Service); is && installed {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, o.GetName(), nil)
			}
			return api.Delete(ctx, o, opts...)
		},
	}, service, agent, known)
	o, _ := options(nil)
	o.Timeout = time.Second
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member}}
	err := l.clean(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "\n  → helm uninstall member -n clusterset-system") {
		t.Errorf("%v", err)
	}
	installed = false
	if err := errors.Join(member.Delete(t.Context(), agent), l.plan(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(l.objects) == 0 {
		t.Error("leave would find nothing to delete")
	}
	if err := l.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{service, known} {
		if err := member.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%s is left: %v", cluster.Title(o), err)
		}
	}
}

// TestADryRunOfLeaveTellsAllThatGoes: the claim on the hub as well, and what nobody but this program deletes where
// there is no agent.
func TestADryRunOfLeaveTellsAllThatGoes(t *testing.T) {
	for was, says := range map[*aboutv1beta1.ClusterProperty]string{
		nil: "with all that its agent has created:\n", {}: "when its agent has withdrawn its exports:\n",
	} {
		var out strings.Builder
		o, _ := options(inMemory(interceptor.Funcs{}))
		o.DryRun = &out
		l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: &cluster.Cluster{Name: "this cluster"}},
			state: state{setProperty: was}, claims: []string{"east"}}
		says += fmt.Sprintf(onHub, "the hub", "blue", "east")
		if err := l.print(); err != nil || !strings.HasSuffix(out.String(), says) {
			t.Errorf("%v, want %q\n%s", err, says, out.String())
		}
	}
}

// TestID3AnUnfinishedJoinIsUndoneThoughItsAgentRuns: its agent is stopped first. If it has become a member before
// that, it runs again and leaves as one, before anything is deleted.
func TestID3AnUnfinishedJoinIsUndoneThoughItsAgentRuns(t *testing.T) {
	for _, becomesMember := range []bool{false, true} {
		t.Run(fmt.Sprint("becomes a member: ", becomesMember), func(t *testing.T) {
			labels := map[string]string{"app.kubernetes.io/name": "clusterset-controller"}
			agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
				Name: "clusterset-controller"}}
			agent.Spec.Replicas, agent.Spec.Selector = ptr.To[int32](2), &metav1.LabelSelector{MatchLabels: labels}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "agent",
				Labels: labels}}
			evicted := pod.DeepCopy()
			evicted.Name, evicted.Status.Phase = "evicted", corev1.PodFailed
			set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet},
				Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}
			id := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyID},
				Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}}
			hub := inMemory(interceptor.Funcs{}, profile("east", clusterset.AnnotationJoiningUID, "uid"))
			var steps []string
			member := inMemory(interceptor.Funcs{
				Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch,
					opts ...client.PatchOption) error {
					if err := api.Patch(ctx, o, p, opts...); err != nil {
						return err
					}
					d, scaled := o.(*appsv1.Deployment)
					switch {
					case scaled && *d.Spec.Replicas > 0:
						steps = append(steps, "started")
					case scaled && becomesMember:
						if err := api.Create(ctx, set.DeepCopy()); err != nil {
							return err
						}
						fallthrough
					case scaled:
						steps = append(steps, "stopped")
						return api.Delete(ctx, pod.DeepCopy())
					case o.GetAnnotations()[clusterset.AnnotationLeaving] != "": // the agent leaves
						steps = append(steps, "leaves")
						if err := hub.Client.Delete(ctx, profile("east", "", "")); err != nil {
							return err
						}
						return api.Delete(ctx, set.DeepCopy())
					}
					return nil
				},
				Delete: func(ctx context.Context, api client.WithWatch, o client.Object,
					opts ...client.DeleteOption) error {
					if len(steps) == 0 || steps[len(steps)-1] != "deleted" {
						steps = append(steps, "deleted")
					}
					return api.Delete(ctx, o, opts...)
				},
			}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}}, id, agent, pod,
				evicted)
			o, said := options(hub)
			l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member}}
			var err error
			if l.state, err = readState(t.Context(), member); err != nil {
				t.Fatal(err)
			}
			for _, step := range []func(context.Context) error{l.plan, l.claimed, l.run} {
				if err := step(t.Context()); err != nil {
					t.Fatalf("%v\n%s", err, said)
				}
			}
			want := "stopped deleted"
			if becomesMember {
				want = "stopped started leaves deleted"
			}
			if got := strings.Join(steps, " "); got != want {
				t.Errorf("it was %s, want %s\n%s", got, want, said)
			}
			p := profile("east", "", "")
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
				t.Errorf("the claim on the hub: %v\n%s", err, said)
			}
		})
	}
}

// TestID4LeavingFindsItsClaimWithoutTheMembership: after clusterset.k8s.io is gone, or before it is there, the agent's
// Membership or arguments name the ClusterSet's namespace. The arguments are newer: the agent copies them.
func TestID4LeavingFindsItsClaimWithoutTheMembership(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"gitVersion": "v1.36.0"}`)
	}))
	defer server.Close()
	member := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName},
		Status: hubv1alpha1.MembershipStatus{HubNamespace: "blue"}}
	stale := member.DeepCopy()
	stale.Status.HubNamespace = "red"
	agent := runs("clusterset-controller", "r/c:v1", "agent", "--hub-namespace=blue")
	for what, left := range map[string][]client.Object{
		"Membership":                    {member},
		"agent":                         {agent},
		"two words":                     {runs("clusterset-controller", "r/c:v1", "agent", "--hub-namespace", "blue")},
		"agent, and a stale Membership": {agent, stale},
	} {
		here := inMemory(interceptor.Funcs{}, append(left,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}},
			&aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyID},
				Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}})...)
		here.Config = &rest.Config{Host: server.URL}
		var out strings.Builder
		o, _ := options(inMemory(interceptor.Funcs{}, profile("east", clusterset.AnnotationClusterUID, "uid")))
		o.HubNamespace, o.DryRun = "", &out
		err := Leave(t.Context(), &LeaveOptions{Options: *o, Member: here})
		if err != nil || !strings.HasSuffix(out.String(), "\nClusterProfile blue/east\n") {
			t.Errorf("%s: %v\n%s", what, err, out.String())
		}
	}
}

// TestID3WhatAMemberThatIsLeavingMayJoin: nothing, but its credentials may be replaced, because leaving needs the
// hub unless it is forced. Each refusal names the remedy.
func TestID3WhatAMemberThatIsLeavingMayJoin(t *testing.T) {
	for what, c := range map[string]struct {
		leaving, hub string
		renew        bool
		refusal      string
	}{
		"join":                {"true", "blue", false, "kubectl clusterset leave"},
		"renew":               {"true", "blue", true, ""},
		"renew, withdrawn":    {clusterset.LeavingWithdrawn, "blue", true, ""},
		"renew, forced":       {clusterset.LeavingForced, "blue", true, "kubectl clusterset leave"},
		"renew, another's":    {"true", "green", true, "cannot be one of two"},
		"renew, not leaving":  {"", "blue", true, ""},
		"join, not leaving":   {"", "blue", false, ""},
		"join, forced before": {clusterset.LeavingForced, "blue", false, "kubectl clusterset leave"},
	} {
		set := &aboutv1beta1.ClusterProperty{Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}
		set.Annotations = map[string]string{clusterset.AnnotationLeaving: c.leaving}
		j := &join{JoinOptions: &JoinOptions{Member: &cluster.Cluster{Name: "this cluster"}, Renew: c.renew},
			state: state{setProperty: set}, set: c.hub}
		err := j.checkMembership(t.Context())
		if (err == nil) != (c.refusal == "") || err != nil && !strings.Contains(err.Error(), c.refusal) {
			t.Errorf("%s: %v, and not %q", what, err, c.refusal)
		}
	}
}

// TestLeavingWithoutAnAgentSaysSo: what it said last explains nothing.
func TestLeavingWithoutAnAgentSaysSo(t *testing.T) {
	set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet}}
	last := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName}}
	last.Status.Conditions = []metav1.Condition{{Type: hubv1alpha1.ConditionMembershipReady,
		Status: metav1.ConditionFalse, Message: "The hub does not answer"}}
	o, _ := options(nil)
	o.Timeout = 500 * time.Millisecond
	l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: inMemory(interceptor.Funcs{}, set, last)},
		state: state{setProperty: set}}
	if err := l.withdraw(t.Context()); err == nil || !strings.Contains(err.Error(), "there is no Deployment cluster") {
		t.Errorf("%v", err)
	}
}

// TestP2OnlyMembersAreEvicted: another cluster manager's ClusterProfile is not ours to delete.
func TestP2OnlyMembersAreEvicted(t *testing.T) {
	all := make([]inventoryv1alpha1.ClusterProfile, 2)
	all[0].Name, all[0].Spec.ClusterManager.Name = "theirs", "another"
	all[1].Name, all[1].Spec.ClusterManager.Name = "east", "clusterset-dns"
	for id, says := range map[string]string{"east": "", "theirs": "belongs to the cluster manager another",
		"nobody": "no member nobody; members are: east"} {
		err := evictable(all, id)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestWhatIsNoHubEvictsNobody, and the error says so: a member has no ClusterProfiles.
func TestWhatIsNoHubEvictsNobody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`)
	}))
	defer server.Close()
	hub := inMemory(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return &meta.NoKindMatchError{}
		},
	})
	o, _ := options(hub)
	o.Hub.Config = &rest.Config{Host: server.URL}
	if err := Evict(t.Context(), o, "east"); err == nil ||
		err.Error() != "namespace blue of the hub holds no ClusterSet\n  → name the hub with --hub-context" {
		t.Error(err)
	}
}
