package kube

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
)

// AnnotationAdopt on an object with the value "true" gives it to the agent, which removes the annotation.
const AnnotationAdopt = derived.AnnotationAdopt

// Owned reports whether an object belongs to this project (I10). Its managed-by label alone says so. Who removes or
// changes the label takes the object over: the agent then neither changes nor deletes it.
func Owned(o client.Object) bool {
	label := derived.LabelManagedBy
	if _, slice := o.(*discoveryv1.EndpointSlice); slice {
		label = discoveryv1.LabelManagedBy
	}
	return o.GetLabels()[label] == Manager
}

// NotOwned reports whether a copy says that another program owns an object that the import needs (I10).
func NotOwned(copied *hubv1alpha1.ServiceExportRecord) bool {
	c := meta.FindStatusCondition(copied.Status.Conditions, hubv1alpha1.ConditionImported)
	return c != nil && c.Reason == hubv1alpha1.ReasonNotOwned
}

// Writable reports whether the agent may write an object: it is Owned, or it has AnnotationAdopt.
func Writable(o client.Object) bool { return Owned(o) || o.GetAnnotations()[AnnotationAdopt] == "true" }

// Filled reports whether the agent has filled an import that another program declared (I11).
func Filled(imp client.Object) bool {
	_, filled := imp.GetAnnotations()[imports.AnnotationFilled]
	return filled && !Owned(imp)
}

// Emptied reports whether the agent has removed what it wrote in a Filled import: what is there now is the other
// program's.
func Emptied(imp client.Object) bool {
	return Filled(imp) && imp.GetAnnotations()[imports.AnnotationFilled] == imports.Emptied
}

// Manages reports whether the VIPs and the status of an import are the agent's: it is Owned, or Filled and not Emptied.
func Manages(imp client.Object) bool { return Owned(imp) || Filled(imp) && !Emptied(imp) }

// Empty removes from a Filled import what the agent wrote, and returns it as Emptied. That is written last, so that a
// failure is repeated and the status is cleared once.
func Empty(
	ctx context.Context, from client.Client, imp *mcsv1beta1.ServiceImport,
) (*mcsv1beta1.ServiceImport, error) {
	emptied := imp.DeepCopy()
	if imports.ClearStatus(&emptied.Status); !equality.Semantic.DeepEqual(emptied.Status, imp.Status) {
		if err := from.Status().Patch(ctx, emptied, StatusChanges(imp)); err != nil {
			return nil, err
		}
	}
	was := emptied.DeepCopy()
	imports.Clear(emptied)
	return emptied, from.Patch(ctx, emptied, Changes(was))
}

// TakeBack removes from a Filled import what the agent wrote, if it is not yet Emptied, and the annotation last.
func TakeBack(ctx context.Context, from client.Client, imp *mcsv1beta1.ServiceImport) (err error) {
	if !Emptied(imp) {
		if imp, err = Empty(ctx, from, imp); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	unmarked := imp.DeepCopy()
	delete(unmarked.Annotations, imports.AnnotationFilled)
	return client.IgnoreNotFound(from.Patch(ctx, unmarked, Changes(imp)))
}

// Delete deletes the object that was read, and no other one of the same name. A missing object is no error.
func Delete(ctx context.Context, from client.Writer, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	if options.ApplyOptions(opts); options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	uid := o.GetUID()
	options.Preconditions.UID = &uid
	return client.IgnoreNotFound(from.Delete(ctx, o, &options))
}

// DeleteUnchanged deletes an object as it was read. Otherwise the error is a conflict.
func DeleteUnchanged(ctx context.Context, from client.Writer, o client.Object) error {
	version := o.GetResourceVersion()
	return Delete(ctx, from, o, client.Preconditions{ResourceVersion: &version})
}

// DeleteNamed reads an object by its namespace and name, and deletes it.
func DeleteNamed(ctx context.Context, read client.Reader, from client.Writer, o client.Object) error {
	if err := read.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return client.IgnoreNotFound(err)
	}
	return Delete(ctx, from, o)
}
