package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// codecs decode the built-in types; ServiceImports have a decoder of their own.
var codecs = func() runtime.NegotiatedSerializer {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	return serializer.NewCodecFactory(s).WithoutConversion()
}()

// resource lists and watches one kind of object for a Reflector.
type resource struct {
	kind       string   // the plural of the kind, as logs name it
	paths      []string // API versions, the preferred one first
	plural     string   // as in URLs
	namespace  string   // "" for all
	selector   string   // labels
	accept     string   // media type that is asked for
	missing    string   // the remedy if it is not served
	listsWhole bool     // initial objects come from a list request, not from a streamed list (WatchList)

	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	strip func(object any) any // what the store holds of an object, nil for nothing; idempotent

	feed      func(*store) cache.ReflectorStore
	client    rest.Interface
	health    *health
	streaming bool         // a streamed list has begun and is not complete; only the Reflector's goroutine uses it
	heard     atomic.Int64 // when the API server last sent something or accepted a watch, in Unix nanoseconds
}

// IsWatchListSemanticsUnSupported is what the Reflector asks before it streams a list.
func (r *resource) IsWatchListSemanticsUnSupported() bool { return r.listsWhole }

// ListWithContext implements cache.ListerWithContext. It reports only failures to health: after a list, the resource is
// healthy once the watch that follows is accepted, too.
func (r *resource) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	r.streaming = false
	opts.LabelSelector = r.selector
	list, err := r.list(ctx, opts)
	if err != nil {
		r.observe(ctx, listing, err)
		return nil, fmt.Errorf("list of %s failed: %w", r.kind, err)
	}
	return list, nil
}

// WatchWithContext implements cache.WatcherWithContext. A streamed list is healthy at its end (intake.Replace), not
// when it opens. If the one before broke off, WatchWithContext fails once, so that the Reflector lists instead.
func (r *resource) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if r.streaming {
		r.streaming = false
		err := apierrors.NewBadRequest("the streamed list broke off")
		r.observe(ctx, streamedList, err)
		return nil, err
	}
	opts.LabelSelector, opts.Watch = r.selector, true
	what := watching
	if opts.SendInitialEvents != nil {
		what = streamedList
	}
	w, err := r.watch(ctx, opts)
	if r.streaming = err == nil && what == streamedList; !r.streaming {
		r.observe(ctx, what, err)
	}
	if err == nil && what == watching { // it may have nothing to send until the watch ends
		r.heard.Store(time.Now().UnixNano())
	}
	return w, err
}

// typed makes a resource of a built-in type list and watch it.
func (r *resource) typed(list runtime.Object) {
	r.accept = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	r.missing = "check that the endpoint is that of a Kubernetes API server"
	r.list = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		into := list.DeepCopyObject()
		return into, r.request(r.paths[0], opts).Do(ctx).Into(into)
	}
	r.watch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		return r.request(r.paths[0], opts).Watch(ctx)
	}
}

func (r *resource) request(path string, opts metav1.ListOptions) *rest.Request {
	return r.client.Get().AbsPath(path).
		NamespaceIfScoped(r.namespace, r.namespace != "").
		Resource(r.plural).
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		SetHeader("Accept", r.accept)
}

// open starts a request in the most preferred version that is served. It tries the versions at each request. A change
// of the CRD ends its watches, so the next request finds the versions that are served now.
func (r *resource) open(ctx context.Context, opts metav1.ListOptions) (body io.ReadCloser, err error) {
	for _, path := range r.paths {
		if body, err = r.request(path, opts).Stream(ctx); !apierrors.IsNotFound(err) {
			return body, err
		}
	}
	return nil, err
}

// observe notes the result of a request, unless the error is part of the protocol or the Watch is being closed.
func (r *resource) observe(ctx context.Context, what request, err error) {
	if !expected(err, what) && !errors.Is(ctx.Err(), context.Canceled) {
		r.health.observe(r, what, err)
	}
}

// request is a kind of request.
type request uint8

const (
	listing      request = iota
	streamedList         // a watch that begins with one
	watching             // a watch after a list
)
