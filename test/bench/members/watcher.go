package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/controllers/relist"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// marker is the record that is changed first after an outage.
const marker = "peer0." + ns + ".peer0"

// watcher reads the hub as an agent does: the same five kinds, over a connection of its own.
type watcher struct {
	octets atomic.Int64 // of its lists

	mu     sync.Mutex
	listed map[string]listed    // by resource: the last list
	seen   map[string]time.Time // when a version of the marker came by a watch
}

// listed is when a list began and ended, and the state that it has at least.
type listed struct {
	from, to time.Time
	version  string
}

// config reads a kubeconfig, for a connection of its own and without a limit.
func config(kubeconfig string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	// A function of its own makes a transport, and connections, of its own.
	cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	return cfg, nil
}

// watchHub starts the informers of a member, until ctx ends.
func watchHub(ctx context.Context, cfg *rest.Config) (*watcher, error) {
	w := &watcher{listed: map[string]listed{}, seen: map[string]time.Time{}}
	typed := rest.CopyConfig(cfg)
	typed.ContentType = runtime.ContentTypeProtobuf
	set, err := kubernetes.NewForConfig(typed)
	if err != nil {
		return nil, err
	}
	leases := set.CoordinationV1().Leases(lab.HubNamespace)
	go new(relist.Lists).NewInformer(w.noting("leases", &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return leases.List(ctx, o)
		},
		WatchFuncWithContext: leases.Watch,
	}), &coordinationv1.Lease{}, 0, nil).RunWithContext(ctx)
	whole := rest.CopyConfig(cfg)
	whole.DisableCompression = true // by the transport: what an agent gets is compressed, and is not unpacked here
	client, err := rest.HTTPClientFor(whole)
	if err != nil {
		return nil, err
	}
	for resource, group := range map[string]string{
		"clustersets":          "hub.clusterset-dns.io/v1alpha1",
		"serviceexportrecords": "hub.clusterset-dns.io/v1alpha1",
		"endpointpages":        "hub.clusterset-dns.io/v1alpha1",
		"clusterprofiles":      "multicluster.x-k8s.io/v1alpha1",
	} {
		c := &collection{
			client: client, octets: &w.octets,
			url: cfg.Host + "/apis/" + group + "/namespaces/" + lab.HubNamespace + "/" + resource,
		}
		informer := new(relist.Lists).NewInformer(
			w.noting(resource, &cache.ListWatch{ListWithContextFunc: c.list, WatchFuncWithContext: c.watch}),
			&metav1.PartialObjectMetadata{}, 0, nil,
		)
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    w.note,
			UpdateFunc: func(_, o any) { w.note(o) },
		}); err != nil {
			return nil, err
		}
		go informer.RunWithContext(ctx)
	}
	return w, nil
}

// note keeps when the marker came.
func (w *watcher) note(o any) {
	if o, ok := o.(*metav1.PartialObjectMetadata); ok && o.Name == marker {
		w.mu.Lock()
		w.seen[o.ResourceVersion] = time.Now()
		w.mu.Unlock()
	}
}

// noting keeps when a resource was listed.
func (w *watcher) noting(resource string, lw *cache.ListWatch) *cache.ListWatch {
	list := lw.ListWithContextFunc
	lw.ListWithContextFunc = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		from := time.Now()
		l, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		of, err := meta.ListAccessor(l)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		w.listed[resource] = listed{from, time.Now(), of.GetResourceVersion()}
		w.mu.Unlock()
		return l, nil
	}
	return lw
}

// kinds is how many a watcher reads.
const kinds = 5

// listedSince returns whether all kinds were listed after a moment.
func (w *watcher) listedSince(moment time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.listed {
		if l.from.Before(moment) {
			return false
		}
	}
	return len(w.listed) == kinds
}

// synced returns how long after the hub's return this member was in sync, if it is.
func (w *watcher) synced(u *outage) (after time.Duration, ok bool) {
	if !w.listedSince(u.killed) {
		return 0, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.listed {
		after = max(after, l.to.Sub(u.back))
	}
	order, err := resourceversion.CompareResourceVersion(w.listed["serviceexportrecords"].version, u.version)
	if err == nil && order >= 0 {
		return after, true
	}
	seen, ok := w.seen[u.version]
	return max(after, seen.Sub(u.back)), ok
}

// until waits for a condition.
func (w *watcher) until(ctx context.Context, ok func() bool) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Minute, true,
		func(context.Context) (bool, error) { return ok(), nil })
}

// collection is a resource of the hub, as JSON.
type collection struct {
	client *http.Client
	url    string
	octets *atomic.Int64
}

// list reads all objects and returns none of them, with a version at which all were there.
func (c *collection) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	body, err := c.get(ctx, url.Values{"limit": {"1"}}, "")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	list := &metav1.PartialObjectMetadataList{}
	if err := json.NewDecoder(body).Decode(list); err != nil {
		return nil, err
	}
	whole, err := c.get(ctx, url.Values{"resourceVersion": {o.ResourceVersion}}, "gzip")
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	n, err := io.Copy(io.Discard, whole)
	c.octets.Add(n)
	return &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: list.ResourceVersion}}, err
}

// watch returns what changes, without what is in it.
func (c *collection) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	body, err := c.get(ctx, url.Values{
		"watch":               {"1"},
		"allowWatchBookmarks": {"1"},
		"resourceVersion":     {o.ResourceVersion},
		"timeoutSeconds":      {strconv.FormatInt(ptr.Deref(o.TimeoutSeconds, 300), 10)},
	}, "")
	if err != nil {
		return nil, err
	}
	return watch.NewStreamWatcher(&events{body, json.NewDecoder(body)}, reporter{}), nil
}

// get returns the body of an answer, or an API error.
func (c *collection) get(ctx context.Context, query url.Values, encoding string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if encoding != "" {
		req.Header.Set("Accept-Encoding", encoding)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // for people
		return nil, apierrors.NewGenericServerResponse(
			resp.StatusCode, "get", schema.GroupResource{Resource: "records"}, "", string(text), 0, true)
	}
	return resp.Body, nil
}

// events are those of a watch. Names and versions are read.
type events struct {
	body io.Closer
	in   *json.Decoder
}

// Decode implements watch.Decoder.
func (e *events) Decode() (watch.EventType, runtime.Object, error) {
	var event struct {
		Type   watch.EventType
		Object metav1.PartialObjectMetadata
	}
	if err := e.in.Decode(&event); err != nil {
		return "", nil, err
	}
	if event.Type == watch.Error {
		return watch.Error, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone,
			Reason: metav1.StatusReasonExpired}, nil
	}
	event.Object.ManagedFields = nil
	return event.Type, &event.Object, nil
}

// Close implements watch.Decoder.
func (e *events) Close() { e.body.Close() }

// reporter implements watch.Reporter.
type reporter struct{}

// AsObject implements watch.Reporter.
func (reporter) AsObject(err error) runtime.Object {
	return &metav1.Status{Status: metav1.StatusFailure, Message: fmt.Sprint(err), Code: http.StatusInternalServerError}
}
