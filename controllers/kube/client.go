package kube

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Get returns the named object, or nil if it does not exist.
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

// pageSize limits how many objects of a large clusterset are in memory at once.
const pageSize = 500

// ForEach calls do with every object of a kind, and ends with its first error. The list is empty, and stays so: it says
// which kind.
func ForEach(
	ctx context.Context, from client.Reader, list client.ObjectList, do func(client.Object) error,
	opts ...client.ListOption,
) error {
	for next := ""; ; {
		page := list.DeepCopyObject().(client.ObjectList) // JSON decoded into used memory keeps what it does not name
		if err := from.List(ctx, page, append(opts, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		err := meta.EachListItem(page, func(o runtime.Object) error { return do(o.(client.Object)) })
		if next = page.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}

// ProxyURL returns the proxy-url of the kubeconfig that cfg was read from, or "" if it has none.
func ProxyURL(cfg *rest.Config) string {
	if cfg.Proxy == nil {
		return ""
	}
	proxy, err := cfg.Proxy(&http.Request{URL: &url.URL{}})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.String()
}

// ByName returns objects of a cache, which must not change, in the order of their names.
func ByName[T any, O interface {
	*T
	client.Object
}](items []T) []O {
	out := make([]O, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	slices.SortFunc(out, func(a, b O) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// Version identifies a state of an object by resourceVersion and UID. A hub that was restored from
// a backup may use one resourceVersion twice.
func Version(o client.Object) string { return o.GetResourceVersion() + " of " + string(o.GetUID()) }

// Changes returns a merge patch from was to the object that it is applied to, with optimistic
// locking. Use it for every status, and for kinds that other projects define except ServiceImports, whose spec is the
// agent's alone: an update would drop the fields that this program does not know. The CRDs of our kinds may be newer
// than a program.
func Changes(was client.Object) client.Patch {
	return client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
}

// PatchStatus writes a status if budget allows a write, or else returns after what time it will. A conflict costs no
// budget: the API server has told nobody.
func PatchStatus(
	ctx context.Context, to client.Client, budget *rate.Limiter, now time.Time, want, was client.Object,
) (wait time.Duration, err error) {
	write := budget.ReserveN(now, 1)
	if wait = write.DelayFrom(now); wait > 0 {
		write.CancelAt(now)
		return wait, nil
	}
	if err = to.Status().Patch(ctx, want, Changes(was)); apierrors.IsConflict(err) {
		write.CancelAt(now)
	}
	return 0, err
}

// InvalidField reports whether an API server refused an object because of a field whose path begins with prefix.
func InvalidField(err error, prefix string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, c := range status.Status().Details.Causes {
		if strings.HasPrefix(c.Field, prefix) {
			return true
		}
	}
	return false
}
