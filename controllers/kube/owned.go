package kube

import (
	"context"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
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

// Writable reports whether the agent may write an object: it is Owned, or it has AnnotationAdopt.
func Writable(o client.Object) bool { return Owned(o) || o.GetAnnotations()[AnnotationAdopt] == "true" }

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
