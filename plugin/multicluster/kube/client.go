package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/clusterset-dns/clusterset-dns/controllers/relist"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// codecs read the types that the API server has built in.
var codecs = func() runtime.NegotiatedSerializer {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	return serializer.NewCodecFactory(s).WithoutConversion()
}()

// source lists and watches one kind of object for a Reflector. It strips the objects as they arrive.
type source struct {
	kind       string   // as people call it
	paths      []string // API versions, the preferred one first
	plural     string
	namespace  string // "" for all
	selector   string // labels
	accept     string
	missing    string // what to do if it is not served
	listsWhole bool   // asked for as a list and then watched, instead of streamed by a watch from its first object on

	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)

	feed   func(*store) *feed
	client rest.Interface
	health *health
}

// listerWatcher is what the Reflector uses. relist makes it safe for API servers that were restored from a backup.
func (s *source) listerWatcher() cache.ListerWatcher { return relist.New(s) }

// IsWatchListSemanticsUnSupported is what the Reflector asks before it streams a list.
func (s *source) IsWatchListSemanticsUnSupported() bool { return s.listsWhole }

// List implements cache.Lister.
func (s *source) List(opts metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), opts)
}

// Watch implements cache.Watcher.
func (s *source) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), opts)
}

// ListWithContext implements cache.ListerWithContext. Only a failure is noted: the watch that follows may be
// refused.
func (s *source) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	opts.LabelSelector = s.selector
	list, err := s.list(ctx, opts)
	if err != nil {
		s.asked(ctx, listing, err)
		return nil, fmt.Errorf("list of %s failed: %w", s.kind, err)
	}
	return list, nil
}

// WatchWithContext implements cache.WatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.LabelSelector, opts.Watch = s.selector, true
	what := watching
	if opts.SendInitialEvents != nil {
		what = streamedList
	}
	w, err := s.watch(ctx, opts)
	if err != nil || what == watching {
		s.asked(ctx, what, err)
		return w, err
	}
	return s.streamed(ctx, w), nil
}

// streamed notes what becomes of a streamed list: it is complete with the bookmark at its end, not when it opens.
// For a list that breaks off it adds an error, so that the Reflector waits before it tries again.
func (s *source) streamed(ctx context.Context, w watch.Interface) watch.Interface {
	complete := false
	return forward(w, func(e watch.Event) (watch.Event, bool) {
		switch e.Type {
		case watch.Error:
			if !complete {
				complete = true
				s.asked(ctx, streamedList, apierrors.FromObject(e.Object))
			}
		case watch.Bookmark:
			o, err := meta.Accessor(e.Object)
			if err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				complete = true
				s.asked(ctx, streamedList, nil)
			}
		case "":
			if complete || ctx.Err() != nil {
				return e, false
			}
			s.asked(ctx, streamedList, io.ErrUnexpectedEOF)
			return watch.Event{Type: watch.Error, Object: reporter{}.AsObject(io.ErrUnexpectedEOF)}, true
		}
		return e, true
	})
}

// typed makes a source read objects by their generated types, and strip them. strip returns nil for objects that do
// not count.
func (s *source) typed(empty runtime.Object, strip func(runtime.Object) runtime.Object) {
	s.list = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		list := empty.DeepCopyObject()
		if err := s.request(s.paths[0], opts).Do(ctx).Into(list); err != nil {
			return nil, err
		}
		stripped := new(internalversion.List)
		if from, err := meta.ListAccessor(list); err == nil {
			stripped.ResourceVersion, stripped.Continue = from.GetResourceVersion(), from.GetContinue()
		}
		return stripped, meta.EachListItem(list, func(o runtime.Object) error {
			if o = strip(o); o != nil {
				stripped.Items = append(stripped.Items, o)
			}
			return nil
		})
	}
	s.watch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		w, err := s.request(s.paths[0], opts).Watch(ctx)
		if err != nil {
			return nil, err
		}
		return forward(w, func(e watch.Event) (watch.Event, bool) {
			switch e.Type {
			case watch.Added, watch.Modified, watch.Deleted:
				e.Object = strip(e.Object)
				return e, e.Object != nil
			}
			return e, e.Type != ""
		}), nil
	}
}

func (s *source) request(path string, opts metav1.ListOptions) *rest.Request {
	return s.client.Get().AbsPath(path).
		NamespaceIfScoped(s.namespace, s.namespace != "").
		Resource(s.plural).
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		SetHeader("Accept", s.accept)
}

// open starts a request in the most preferred version that is served. It asks each time, so it follows a change of
// the served versions when the watch ends, as a watch does when its CRD changes.
func (s *source) open(ctx context.Context, opts metav1.ListOptions) (body io.ReadCloser, err error) {
	for _, path := range s.paths {
		if body, err = s.request(path, opts).Stream(ctx); !apierrors.IsNotFound(err) {
			return body, err
		}
	}
	return nil, err
}

// asked notes the result of a request, unless the error is part of the protocol or the Watch is being closed.
func (s *source) asked(ctx context.Context, what request, err error) {
	if !expected(err, what) && !errors.Is(ctx.Err(), context.Canceled) {
		s.health.asked(s, what, err)
	}
}

// request is a kind of request.
type request uint8

const (
	listing      request = iota
	streamedList         // a watch that begins with one
	watching             // a watch after a list
)

// newClient makes the client for all resources of a source.
func newClient(cfg *rest.Config) (*rest.RESTClient, *http.Client, error) {
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("client for API server %s: %w", cfg.Host, err)
	}
	c, err := rest.UnversionedRESTClientForConfigAndClient(cfg, h)
	if err != nil {
		return nil, nil, fmt.Errorf("client for API server %s: %w", cfg.Host, err)
	}
	return c, h, nil
}
