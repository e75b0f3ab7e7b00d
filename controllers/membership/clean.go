package membership

import (
	"context"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Clean deletes everything that the agent made in this cluster, and its conditions on ServiceExports. It deletes
// nothing that users made, and empties the imports that other programs declared.
func (g *Gate) Clean(ctx context.Context) error {
	if err := g.clean(ctx); err != nil {
		return err
	}
	return g.deleteRenewed(ctx)
}

// deleteRenewed deletes the proof that this cluster made its Lease's last renewal on the hub (checkClone). Clean
// deletes it last, because an attempt that is repeated after a failure needs it.
func (g *Gate) deleteRenewed(ctx context.Context) error {
	name := metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}
	return kube.DeleteNamed(ctx, g.Local, g.Local, &coordinationv1.Lease{ObjectMeta: name})
}

// clean is Clean without deleteRenewed. What an API server refuses holds up nothing of other kinds.
func (g *Gate) clean(ctx context.Context) error {
	ours := client.MatchingLabels{derived.LabelManagedBy: kube.Manager}
	ourSlices := client.MatchingLabels{discoveryv1.LabelManagedBy: kube.Manager}
	ourLeases := &client.ListOptions{
		Namespace: kube.SystemNamespace, LabelSelector: labels.SelectorFromSet(labels.Set(ours))}
	remove := func(o client.Object) error { return kube.Delete(ctx, g.Local, o) }
	removeDerived := func(o client.Object) error {
		of := derived.Import(o.GetAnnotations())
		if derived.Name(o.GetNamespace(), of.Name) != o.GetName() {
			return nil // a user's copy
		}
		return remove(o)
	}
	removeLease := func(o client.Object) error {
		if o.GetName() == clusterset.LeaseRenewed {
			return nil
		}
		return remove(o)
	}
	foreign, stated := map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	if err := kube.ForEach(ctx, g.Local, &mcsv1beta1.ServiceImportList{}, func(o client.Object) error {
		foreign[client.ObjectKeyFromObject(o)] = !kube.Manages(o)
		return nil
	}); err != nil {
		return err
	}
	err := kube.ForEach(ctx, g.Local, &mcsv1beta1.ServiceExportList{}, func(o client.Object) error {
		stated[client.ObjectKeyFromObject(o)] = true
		return nil
	})
	errs := []error{err}
	if err == nil {
		errs = append(errs, kube.ForEach(ctx, g.Local, &mcsv1beta1.ServiceExportList{}, func(o client.Object) error {
			name := client.ObjectKeyFromObject(o)
			err := g.removeConditions(ctx, o.(*mcsv1beta1.ServiceExport), foreign[name])
			stated[name] = err != nil
			return err
		}))
		// What is filled says whose the conditions are, until these are gone.
		errs = append(errs, kube.ForEach(ctx, g.Local, &mcsv1beta1.ServiceImportList{}, func(o client.Object) error {
			if !kube.Filled(o) || stated[client.ObjectKeyFromObject(o)] {
				return nil
			}
			return kube.TakeBack(ctx, g.Local, o.(*mcsv1beta1.ServiceImport))
		}))
	}
	for _, kind := range []struct {
		list   client.ObjectList
		option client.ListOption
		do     func(client.Object) error
	}{
		{&mcsv1beta1.ServiceImportList{}, ours, remove},
		{&discoveryv1.EndpointSliceList{}, ourSlices, remove},
		{&corev1.ServiceList{}, ours, removeDerived},
		{&aboutv1beta1.ClusterPropertyList{}, ours, remove},
		{&hubv1alpha1.ServiceExportRecordList{}, client.InNamespace(kube.SystemNamespace), remove},
		{&coordinationv1.LeaseList{}, ourLeases, removeLease},
	} {
		errs = append(errs, kube.ForEach(ctx, g.Local, kind.list, kind.do, kind.option))
	}
	errs = append(errs, g.cleanOptional(ctx, &externaldnsv1alpha1.DNSEndpointList{}, remove, ours))
	// The agent's ServiceCIDRs stay while ordinary Services have addresses in them.
	errs = append(errs, g.cleanOptional(ctx, &networkingv1.ServiceCIDRList{}, func(o client.Object) error {
		if controllerutil.RemoveFinalizer(o, clusterset.FinalizerVIPs) {
			if err := g.Local.Update(ctx, o); err != nil {
				return client.IgnoreNotFound(err)
			}
		}
		if !kube.Owned(o) {
			return nil
		}
		return remove(o)
	}))
	return errors.Join(errs...)
}

// cleanOptional calls do with every object of a kind. Without this kind, or without the right to it, the agent has made
// none.
func (g *Gate) cleanOptional(
	ctx context.Context, list client.ObjectList, do func(client.Object) error, opts ...client.ListOption,
) error {
	listed := false
	err := kube.ForEach(ctx, g.Local, list, func(o client.Object) error { listed = true; return do(o) }, opts...)
	if !listed && (meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err)) {
		return nil
	}
	return err
}

// removeConditions removes the agent's conditions from a ServiceExport. If the import of the name is foreign, those
// that KEP-1645 defines belong to the program that made it (I10).
func (g *Gate) removeConditions(ctx context.Context, export *mcsv1beta1.ServiceExport, foreign bool) error {
	updated := export.DeepCopy()
	removed := meta.RemoveStatusCondition(&updated.Status.Conditions, hubv1alpha1.ConditionImported)
	for _, c := range []mcsv1beta1.ServiceExportConditionType{
		mcsv1beta1.ServiceExportConditionValid, mcsv1beta1.ServiceExportConditionReady,
		mcsv1beta1.ServiceExportConditionConflict,
	} {
		removed = !foreign && meta.RemoveStatusCondition(&updated.Status.Conditions, string(c)) || removed
	}
	if !removed {
		return nil
	}
	return client.IgnoreNotFound(g.Local.Status().Patch(ctx, updated, kube.StatusChanges(export)))
}
