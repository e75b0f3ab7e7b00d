package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// statusCodecs read what the API server says when it refuses; all else we read ourselves.
var statusCodecs = func() runtime.NegotiatedSerializer {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(s).WithoutConversion()
}()

// resource is one kind of object that is watched.
type resource struct {
	kind      string   // as people call it
	path      []string // API versions, the preferred one first
	plural    string
	namespace string // "" for all
	selector  string // labels
	accept    string
	format    func(io.Reader) format
	reader    func() reader // a new one for each stream
	missing   string        // what to do if it is not served
	whole     bool          // asked for as a list and then watched, rather than streamed by a watch from its first object on
}

// source lists and watches one resource for a reflector.
type source struct {
	resource
	client rest.Interface
	health *health
	feed   *feed
}

func (s *source) listerWatcher() cache.ListerWatcher {
	return listerWatcher{&cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}, s.whole}
}

type listerWatcher struct {
	*cache.ListWatch
	whole bool
}

// IsWatchListSemanticsUnSupported is what the reflector asks.
func (l listerWatcher) IsWatchListSemanticsUnSupported() bool { return l.whole }

// open starts a request in the most preferred version that is served (L5). It asks each time, so a change of the served versions is
// followed when the watch ends, as it does when a CRD changes.
func (s *source) open(ctx context.Context, opts metav1.ListOptions) (io.ReadCloser, error) {
	opts.LabelSelector = s.selector
	for i, path := range s.path {
		body, err := s.client.Get().AbsPath(path).
			NamespaceIfScoped(s.namespace, s.namespace != "").
			Resource(s.plural).
			SpecificallyVersionedParams(&opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
			SetHeader("Accept", s.accept).
			Stream(ctx)
		if i < len(s.path)-1 && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			s.asked(ctx, kindOfRequest(opts), err)
		}
		return body, err
	}
	return nil, errors.New("a resource without a version")
}

// asked takes note of what a request came to, unless that is part of the protocol or the request was given up. A streamed list has come
// when it was read, not when its body began. Of any other only a failure is noted: the watch that follows it may be refused.
func (s *source) asked(ctx context.Context, what request, err error) {
	if !expected(err, what) && !errors.Is(ctx.Err(), context.Canceled) {
		s.health.asked(&s.resource, what, err)
	}
}

// request is a kind of request.
type request uint8

const (
	list         request = iota
	streamedList         // a watch that begins with one
	watching             // behind a list
)

func kindOfRequest(opts metav1.ListOptions) request {
	switch {
	case opts.SendInitialEvents != nil:
		return streamedList
	case opts.Watch:
		return watching
	}
	return list
}

// newest is the version that a list is asked for once there was one. Of several API servers the next one may be behind what was seen, and one
// that was restored from a backup may never come to it, or has made another of that number (decision 0015).
const newest = ""

// longest is how long a list may take: as long as API servers let a request last, unless they are told otherwise.
const longest = time.Minute

// list applies the objects as they arrive, as a streamed list's are: with the last octet it is done. All that the reflector gets is the
// listing that they belong to.
func (s *source) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, longest+graceful)
	defer cancel()
	if opts.ResourceVersion != "0" { // any: nothing is answered yet
		opts.ResourceVersion = newest
	}
	body, err := s.open(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	l := s.feed.page(opts.Continue != "")
	page, read := new(objectList), s.reader()
	err = s.format(body).list(&page.ListMeta, func(object []byte) error {
		o, err := read(object)
		if o != nil {
			l.apply(watch.Added, o)
		}
		return err
	})
	if err != nil {
		s.asked(ctx, list, err)
		return nil, fmt.Errorf("cannot read the list of %s: %w", s.kind, err)
	}
	page.Items = []runtime.Object{l}
	return page, nil
}

// graceful is how much longer than that a request may last. The server ends it in time; only a dead one does not. (A dead
// connection is found earlier: client-go pings HTTP/2 connections after 30 s of silence and gives them 15 s.)
const graceful = 30 * time.Second

func (s *source) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts.Watch = true
	if opts.SendInitialEvents != nil {
		opts.ResourceVersion = newest
	}
	var cancel context.CancelFunc
	if opts.TimeoutSeconds != nil {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*opts.TimeoutSeconds)*time.Second+graceful)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	body, err := s.open(ctx, opts)
	if err != nil {
		cancel()
		if opts.SendInitialEvents == nil && apierrors.IsTooManyRequests(err) {
			return nil, err // the reflector goes on later: the API server is there, and a list would be no less to it
		}
		return nil, final(err)
	}
	d := &decoder{format: s.format(body), read: s.reader(), body: body, cancel: cancel}
	if opts.SendInitialEvents != nil {
		d.listing, d.listed = s.feed.stream(), func(err error) { s.asked(ctx, streamedList, err) }
	} else {
		s.asked(ctx, watching, nil)
	}
	return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), d, reporter{}), nil
}

// final hides from the reflector that a request could be sent again as it is. A watch must not go on behind an API server that was away
// (decision 0015), and after a streamed list the reflector would wait without looking whether it is to stop. Instead it lists, fails again,
// and waits in the open. What makes it begin anew is not hidden.
func final(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return errors.New(err.Error())
	}
	return err
}

// newClient makes the client for all resources of a source.
func newClient(cfg *rest.Config) (*rest.RESTClient, *http.Client, error) {
	h, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a client for API server %s: %w", cfg.Host, err)
	}
	c, err := rest.UnversionedRESTClientForConfigAndClient(cfg, h)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a client for API server %s: %w", cfg.Host, err)
	}
	return c, h, nil
}
