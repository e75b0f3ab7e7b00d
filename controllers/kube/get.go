package kube

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get reads into object and returns it, or nil where there is none.
func Get[T interface {
	client.Object
	*E
}, E any](ctx context.Context, from client.Reader, name types.NamespacedName) (T, error) {
	object := T(new(E))
	if err := from.Get(ctx, name, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return object, nil
}

// Version tells two states of an object apart, also where a hub that was restored has given out one resourceVersion
// twice.
func Version(o client.Object) string { return o.GetResourceVersion() + " of " + string(o.GetUID()) }

// Changes is a patch of what differs from was, and only if the object is still as it was. Objects of a kind that others
// define are written by it: an update would take away the fields that this program does not know.
func Changes(was client.Object) client.Patch {
	return client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
}

// Gone is err, unless it says that what was to be deleted is not there.
func Gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
