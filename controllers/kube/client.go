package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
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

// Put creates an object that was not read from an API server, and updates one that was.
func Put(ctx context.Context, to client.Writer, o client.Object) error {
	if o.GetResourceVersion() == "" {
		return to.Create(ctx, o)
	}
	return to.Update(ctx, o)
}

// pageSize limits how many objects of a large clusterset are in memory at once.
const pageSize = 500

// ForEach calls do with every object of a kind, and returns its first error. It goes on after what an API server
// answers, because that may be about one object. The list is empty, and stays so: it says which kind.
func ForEach(
	ctx context.Context, from client.Reader, list client.ObjectList, do func(client.Object) error,
	opts ...client.ListOption,
) (first error) {
	for next := ""; ; {
		page := list.DeepCopyObject().(client.ObjectList) // JSON decoded into used memory keeps what it does not name
		if err := from.List(ctx, page, append(opts, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return cmp.Or(first, err)
		}
		err := meta.EachListItem(page, func(o runtime.Object) error {
			err := do(o.(client.Object))
			first = cmp.Or(first, err)
			if status := apierrors.APIStatus(nil); errors.As(err, &status) {
				return nil
			}
			return err
		})
		if next = page.GetContinue(); err != nil || next == "" {
			return first
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
// locking. Use it for the status of our kinds, and for kinds that other projects define except Owned ServiceImports,
// whose spec is the agent's alone: an update would drop the fields that this program does not know. The CRDs of our
// kinds may be newer than a program.
func Changes(was client.Object) client.Patch {
	return client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})
}

// StatusChanges returns a patch from the status of was to that of the object that it is applied to, with optimistic
// locking. It writes conditions one by one: other programs have some in the same list, and not all of them pass through
// this program's type. Of an absent reason it would make "", which an API server refuses.
func StatusChanges(was client.Object) client.Patch {
	if conditionsOf(statusOf(was)) == nil {
		return Changes(was) // there may be no status that a path could name
	}
	return statusChanges{was}
}

type statusChanges struct{ was client.Object }

func (statusChanges) Type() types.PatchType { return types.JSONPatchType }

func (c statusChanges) Data(o client.Object) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	out := []operation{{"replace", "/metadata/resourceVersion", c.was.GetResourceVersion()}}
	was, is := statusOf(c.was), statusOf(o)
	before, after := conditionsOf(was), conditionsOf(is)
	for i := len(before) - 1; i >= 0; i-- {
		if !slices.ContainsFunc(after, func(c any) bool { return typeOf(c) == typeOf(before[i]) }) {
			out = append(out, operation{Op: "remove", Path: fmt.Sprintf("/status/conditions/%d", i)})
			before = slices.Delete(before, i, i+1)
		}
	}
	for i, condition := range after {
		if i >= len(before) {
			out = append(out, operation{"add", "/status/conditions/-", condition})
		} else if !reflect.DeepEqual(before[i], condition) {
			out = append(out, operation{"replace", fmt.Sprintf("/status/conditions/%d", i), condition})
		}
	}
	delete(was, "conditions")
	delete(is, "conditions")
	for field := range was {
		if _, stays := is[field]; !stays {
			out = append(out, operation{Op: "remove", Path: "/status/" + field})
		}
	}
	for field, value := range is {
		if !reflect.DeepEqual(was[field], value) {
			out = append(out, operation{"add", "/status/" + field, value})
		}
	}
	return json.Marshal(out)
}

// statusOf returns the status of an object as JSON has it.
func statusOf(o client.Object) map[string]any {
	all, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(o) // cannot fail for the types of an API
	status, _ := all["status"].(map[string]any)
	return status
}

func conditionsOf(status map[string]any) []any {
	out, _ := status["conditions"].([]any)
	return out
}

func typeOf(condition any) any { return condition.(map[string]any)["type"] }

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
	if err = to.Status().Patch(ctx, want, StatusChanges(was)); apierrors.IsConflict(err) {
		write.CancelAt(now)
	}
	return 0, err
}

// Refused reports whether an API server refused a write by its rules, as of a policy or quota, or because a webhook
// does not answer (U6). The end of a namespace is none.
func Refused(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsInternalError(err)) &&
		!apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
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
