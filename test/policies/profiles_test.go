package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// fresh is the ClusterProfile of a member as join made it and the hub's controller and the admin filled it in.
func (e *environment) fresh(t *testing.T, id string) *inventoryv1alpha1.ClusterProfile {
	t.Helper()
	ctx := t.Context()
	p := profile(id)
	must(
		t,
		client.IgnoreNotFound(
			e.admin.Patch(
				ctx,
				p,
				client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)),
			),
		),
	)
	must(t, client.IgnoreNotFound(e.admin.Delete(ctx, p)))
	p = profile(id)
	p.Labels = map[string]string{inventoryv1alpha1.LabelClusterManager: clusterset.ClusterManager}
	p.Finalizers = []string{clusterset.FinalizerRecords}
	p.Annotations = map[string]string{clusterset.AnnotationJoiningUID: "uid"}
	must(t, e.admin.Create(ctx, p))
	p.Status = inventoryv1alpha1.ClusterProfileStatus{
		Conditions: []metav1.Condition{
			{
				Type:               inventoryv1alpha1.ConditionJoined,
				Status:             metav1.ConditionFalse,
				Reason:             "NotClaimed",
				LastTransitionTime: metav1.NewTime(time.Unix(1_700_000_000, 0)),
			},
		},
		AccessProviders: []inventoryv1alpha1.AccessProvider{
			{Name: "oidc", Cluster: clientcmdv1.Cluster{Server: "https://east.example"}},
		},
	}
	must(t, e.admin.Status().Update(ctx, p))
	return p
}

// P3, P4: what an agent writes of its own profile, and how: by patches of what it has read, whatever else others
// have written there.
func TestP3MemberWritesItsPartOfItsProfile(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	for _, id := range memberIDs {
		e.fresh(t, id)
		c := e.members[id]
		// What a Go type without that field, or one that leaves out what is empty, would take away.
		raw := []byte(
			`{"status": {"accessProviders": [{"name": "oidc", "cluster": {"server": "https://east.example",
				"insecure-skip-tls-verify": false}}]}}`,
		)
		must(t, e.admin.Status().Patch(ctx, profile(id), client.RawPatch(types.MergePatchType, raw)))
		var p inventoryv1alpha1.ClusterProfile
		must(t, c.Get(ctx, client.ObjectKey{Namespace: home, Name: id}, &p))
		whole := func(changes client.Patch) error { return c.Patch(ctx, &p, changes) }
		status := func(changes client.Patch) error { return c.Status().Patch(ctx, &p, changes) }
		write := func(patch func(client.Patch) error, change func()) {
			t.Helper()
			was := p.DeepCopy()
			change()
			must(t, patch(kube.Changes(was)))
		}
		write(whole, func() { p.Annotations[clusterset.AnnotationClusterUID] = "uid" })
		for _, version := range []string{"v1.32.0", "v1.36.2"} {
			write(status, func() {
				p.Status.Version.Kubernetes = version
				p.Status.Properties = []inventoryv1alpha1.Property{
					{Name: clusterset.PropertyID, Value: id},
					{Name: "region", Value: version},
				}
			})
		}
		write(status, func() { p.Status.Properties = nil })
		if len(p.Status.Conditions) != 1 || len(p.Status.AccessProviders) != 1 {
			t.Errorf("what is not the member's is lost: %+v", p.Status)
		}
		write(whole, func() { p.Annotations[clusterset.AnnotationLeft] = "true" })
		write(whole, func() {})
	}
}

// P2, P4, ID3, ID4: what a member may not, were it given every right.
func TestMembersDoNotWriteWhatIsTheAdmins(t *testing.T) {
	e := setUp(t)
	type change = func(*inventoryv1alpha1.ClusterProfile)
	annotate := func(key, value string) change {
		return func(p *inventoryv1alpha1.ClusterProfile) { p.Annotations[key] = value }
	}
	for name, c := range map[string]struct {
		change change
		says   string
	}{
		"display name": {func(p *inventoryv1alpha1.ClusterProfile) {
			p.Spec.DisplayName = "mine"
		}, "may not change the spec"},
		"label": {func(p *inventoryv1alpha1.ClusterProfile) {
			p.Labels["any"] = "thing"
		}, "may not change labels, finalizers or ownerReferences"},
		"no label": {func(p *inventoryv1alpha1.ClusterProfile) {
			p.Labels = nil
		}, "may not change labels, finalizers or ownerReferences"},
		"no finalizer": {func(p *inventoryv1alpha1.ClusterProfile) {
			p.Finalizers = nil
		}, "may not change labels, finalizers or ownerReferences"},
		"finalizer": {func(p *inventoryv1alpha1.ClusterProfile) {
			p.Finalizers = append(p.Finalizers, "example.org/stay")
		}, "may not change labels, finalizers or ownerReferences"},
		"owner": {func(p *inventoryv1alpha1.ClusterProfile) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "n", UID: "u"}}
		}, "may not change labels, finalizers or ownerReferences"},
		"annotation": {annotate("example.org/any", "thing"), "with clusterset-dns.io/cluster-uid and " +
			"clusterset-dns.io/left only"},
		"admin's annotation": {annotate(clusterset.AnnotationJoiningUID, "other"),
			"may not change or remove annotations"},
		"no annotation": {func(p *inventoryv1alpha1.ClusterProfile) {
			delete(p.Annotations, clusterset.AnnotationJoiningUID)
		}, "may not change or remove annotations"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			p := e.fresh(t, "m")
			c.change(p)
			refused(t, e.mighty["m"].Update(t.Context(), p, client.DryRunAll), "cluster m")
			refused(t, e.mighty["m"].Update(t.Context(), p), c.says)
		})
	}
	for name, change := range map[string]change{
		"conditions": func(p *inventoryv1alpha1.ClusterProfile) {
			p.Status.Conditions[0].Status = metav1.ConditionTrue
		},
		"no conditions": func(p *inventoryv1alpha1.ClusterProfile) { p.Status.Conditions = nil },
		"accessProviders": func(p *inventoryv1alpha1.ClusterProfile) {
			p.Status.AccessProviders[0].Cluster.Server = "https://evil.example"
		},
		"no access": func(p *inventoryv1alpha1.ClusterProfile) { p.Status.AccessProviders = nil },
		"credentials": func(p *inventoryv1alpha1.ClusterProfile) {
			p.Status.CredentialProviders = []inventoryv1alpha1.AccessProvider{{Name: "x",
				Cluster: clientcmdv1.Cluster{Server: "https://evil.example"}}}
		},
	} {
		t.Run("status_"+strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			p := e.fresh(t, "m")
			change(p)
			refused(t, e.mighty["m"].Status().Update(t.Context(), p), "condition MemberReady only in the status")
		})
	}
}

// P3: a member that fills its ClusterProfile could not be evicted, since that writes it.
func TestP3MembersPartOfItsProfileIsBounded(t *testing.T) {
	e := setUp(t)
	ctx, p := t.Context(), e.fresh(t, "m")
	for i := range inventoryv1alpha1.MaxProperties {
		p.Status.Properties = append(p.Status.Properties, inventoryv1alpha1.Property{
			Name: fmt.Sprintf(
				"%s.%03d",
				strings.Repeat("p", 249),
				i,
			),
			Value: strings.Repeat("<", inventoryv1alpha1.MaxPropertyValue), // which JSON may make six of
		})
	}
	p.Status.Version.Kubernetes = strings.Repeat("v", 256)
	must(t, e.mighty["m"].Status().Update(ctx, p))
	was := p.DeepCopy()
	p.Status.Properties = append(p.Status.Properties, inventoryv1alpha1.Property{Name: "one-more", Value: "1"})
	refused(t, e.mighty["m"].Status().Update(ctx, p), "may have 128 properties")
	p = was
	p.Status.Version.Kubernetes += "v"
	refused(t, e.mighty["m"].Status().Update(ctx, p), "a version of 256 characters")
	must(t, e.admin.Delete(ctx, profile("m")))
	must(
		t,
		e.admin.Patch(
			ctx,
			profile("m"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)),
		),
	) // as the hub's controller
}

// P3: who owns which fields is written there, too: by an apply under a new name, which is one entry more, or by
// hand, in one of any size.
func TestP3OwnersOfFieldsDoNotFillAProfile(t *testing.T) {
	e := setUp(t)
	ctx, m := t.Context(), e.mighty["m"]
	e.fresh(t, "m")
	version := fmt.Appendf(
		nil,
		`{"apiVersion": "%s", "kind": "ClusterProfile", "metadata": {"name": "m"},
			"status": {"version": {"kubernetes": "v1.36.0"}}}`,
		inventoryv1alpha1.GroupVersion,
	)
	const says = "may not let the managedFields of its ClusterProfile grow beyond 65536 characters"
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		err = m.Status().
			Patch(ctx, profile("m"), client.RawPatch(types.ApplyPatchType, version),
				client.FieldOwner(fmt.Sprintf("%0128d", i)))
	}
	refused(t, err, says)
	e.fresh(t, "m")
	byHand := func(fields int) error {
		owned := map[string]any{}
		for i := range fields {
			owned[fmt.Sprintf("f:%0200d", i)] = map[string]any{}
		}
		entry := map[string]any{
			"manager":    "any",
			"operation":  "Apply",
			"apiVersion": inventoryv1alpha1.GroupVersion.String(),
			"fieldsType": "FieldsV1",
			"fieldsV1":   owned,
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"managedFields": []any{entry}}})
		must(t, err)
		return m.Patch(ctx, profile("m"), client.RawPatch(types.MergePatchType, patch))
	}
	must(t, byHand(1))
	refused(t, byHand(1000), says)
	must(t, e.admin.Delete(ctx, profile("m")))
	must(
		t,
		e.admin.Patch(
			ctx,
			profile("m"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)),
		),
	) // as the hub's controller
}

// ID3: of two clusters with one id, or with copied credentials, the first keeps it.
func TestID3ClaimIsUsedByOneCluster(t *testing.T) {
	e := setUp(t)
	ctx, m := t.Context(), e.mighty["m"]
	p := e.fresh(t, "m")
	p.Annotations[clusterset.AnnotationClusterUID] = ""
	must(t, e.admin.Update(ctx, p)) // an empty one is none
	other := p.DeepCopy()
	other.Annotations[clusterset.AnnotationClusterUID] = "first"
	refused(
		t,
		m.Update(ctx, other),
		"ClusterProfile m was made for the cluster with the kube-system UID uid: join with an id of your own",
	)
	delete(p.Annotations, clusterset.AnnotationJoiningUID) // as by hand
	must(t, e.admin.Update(ctx, p))
	p.Annotations[clusterset.AnnotationClusterUID] = "first"
	must(t, m.Update(ctx, p))
	says := "ClusterProfile m is in use by the cluster with the kube-system UID first: join with an id of your own"
	second := p.DeepCopy()
	second.Annotations[clusterset.AnnotationClusterUID] = "second"
	refused(t, m.Update(ctx, second), says)
	delete(second.Annotations, clusterset.AnnotationClusterUID)
	refused(t, m.Update(ctx, second), says)

	p.Annotations[clusterset.AnnotationLeft] = "true"
	must(t, m.Update(ctx, p))
	back := p.DeepCopy()
	delete(back.Annotations, clusterset.AnnotationLeft)
	refused(t, m.Update(ctx, back), "may not change or remove annotations")
	back.Annotations[clusterset.AnnotationLeft] = "false"
	refused(t, m.Update(ctx, back), "may not change or remove annotations")
}

// P6, and forged writes: another's profile, and another clusterset's, are out of reach.
func TestProfilesOfOthersAreOutOfReach(t *testing.T) {
	e := setUp(t)
	ctx, m := t.Context(), e.mighty["m"]
	p := e.fresh(t, "x.n") // n is its end
	p.Annotations[clusterset.AnnotationClusterUID] = "mine"
	refused(t, m.Update(ctx, p.DeepCopy()), "cluster m does not write ClusterProfile x.n")
	refused(t, e.mighty["n"].Update(ctx, p.DeepCopy()), "cluster n does not write ClusterProfile x.n")
	p.Status.Version.Kubernetes = "v1.0.0"
	refused(t, m.Status().Update(ctx, p.DeepCopy()), "cluster m does not write ClusterProfile x.n")
	refused(t, m.Delete(ctx, p.DeepCopy()), "cluster m neither creates nor deletes ClusterProfiles")
	refused(t, m.Delete(ctx, e.fresh(t, "m")), "joining and evicting are the hub admin's")
	refused(t, m.DeleteAllOf(ctx, profile("m"), client.InNamespace(home)), "neither creates nor deletes")
	refused(t, m.Create(ctx, profile("another")), "cluster m neither creates nor deletes ClusterProfiles")

	foreign := profile("m")
	foreign.Namespace = other
	must(t, e.admin.Create(ctx, foreign))
	t.Cleanup(func() { must(t, e.admin.Delete(context.WithoutCancel(ctx), foreign)) })
	foreign.Annotations = map[string]string{clusterset.AnnotationClusterUID: "mine"}
	refused(
		t,
		m.Update(ctx, foreign.DeepCopy()),
		"cluster m is a member in namespace clusterset and writes nothing in blue",
	)

	// The shipped Role alone: a member does not see another clusterset's at all.
	a := e.members["a"]
	refused(
		t,
		a.List(ctx, &inventoryv1alpha1.ClusterProfileList{}, client.InNamespace(other)),
		"cannot list resource",
	)
	refused(t, a.List(ctx, &inventoryv1alpha1.ClusterProfileList{}), "cannot list resource")
	must(t, a.List(ctx, &inventoryv1alpha1.ClusterProfileList{}, client.InNamespace(home)))
	refused(t, a.Delete(ctx, e.fresh(t, "a")), "cannot delete resource")
	refused(t, a.Create(ctx, profile("another")), "cannot create resource")
}

// P2, ID5: what the schema holds, as upstream's does.
func TestP2ProfilesSchema(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	p := e.fresh(t, "m")
	p.Spec.DisplayName = "the consumers' own"
	must(t, e.admin.Update(ctx, p))
	p.Spec.ClusterManager.Name = "another"
	refused(t, e.admin.Update(ctx, p.DeepCopy()), "ClusterManager is immutable")
	for value, says := range map[string]string{
		strings.Repeat("é", inventoryv1alpha1.MaxPropertyValue+1): "may not be more than 1024",
		"": "should be at least 1 chars long",
	} {
		long := e.fresh(t, "m")
		long.Status.Properties = []inventoryv1alpha1.Property{{Name: "p", Value: value}}
		refused(t, e.mighty["m"].Status().Update(ctx, long), says)
	}
	p = e.fresh(t, "m")
	p.Status.Properties = []inventoryv1alpha1.Property{
		{Name: strings.Repeat("p", 253), Value: strings.Repeat("é", inventoryv1alpha1.MaxPropertyValue)},
	}
	must(t, e.mighty["m"].Status().Update(ctx, p))
}
