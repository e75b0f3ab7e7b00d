package kube

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// api is an API server as far as lists and watches go: with resourceVersions, selectors, bookmarks,
// streamed lists, expired versions, and both encodings.
type api struct {
	addr string

	mu         sync.Mutex
	changed    *sync.Cond
	server     *http.Server
	version    uint64
	compacted  uint64
	objects    map[string]object // by plural/namespace/name
	log        []change
	served     map[string]bool // API versions
	forbidden  map[string]bool // plurals
	noWatches  map[string]bool // plurals that may only be listed
	noStreams  bool            // no streamed lists, as before Kubernetes 1.32
	cut        map[string]bool // plurals whose lists end too early
	generation int             // watches of an older one end
	broken     int             // watches of this one and older break off
	requests   []string
	garbage    map[string]string // raw JSON of ServiceImports, by name
}

type object interface {
	runtime.Object
	metav1.Object
}

type change struct {
	plural   string
	version  uint64
	old, new object
}

// startAPI serves on a free port of loopback until the test ends.
func startAPI(t testing.TB) *api {
	t.Helper()
	a := &api{
		objects: make(map[string]object),
		served: map[string]bool{
			"/apis/multicluster.x-k8s.io/v1beta1": true,
			"/apis/discovery.k8s.io/v1":           true,
			"/api/v1":                             true,
		},
		forbidden: make(map[string]bool),
		noWatches: make(map[string]bool),
		cut:       make(map[string]bool),
		garbage:   make(map[string]string),
		version:   100,
		broken:    -1,
		addr:      "127.0.0.1:0",
	}
	a.changed = sync.NewCond(&a.mu)
	a.up(t)
	t.Cleanup(a.down)
	return a
}

func (a *api) config() Config { return Config{Endpoint: "http://" + a.addr} }

// up serves, on the same port as before.
func (a *api) up(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", a.addr)
	if err != nil {
		t.Fatal(err)
	}
	a.addr = l.Addr().String()
	server := &http.Server{Handler: a}
	a.mu.Lock()
	a.server = server
	a.mu.Unlock()
	go server.Serve(l)
}

// down breaks all connections and refuses new ones.
func (a *api) down() {
	a.mu.Lock()
	server := a.server
	a.mu.Unlock()
	server.Close()
	a.endWatches()
}

// endWatches ends all watches, as an API server does after their timeout.
func (a *api) endWatches() { a.edit(func() { a.generation++ }) }

// breakWatches breaks off all watches, as a network does.
func (a *api) breakWatches() {
	a.edit(func() {
		a.broken = a.generation
		a.generation++
	})
}

// backup is what restore goes back to.
func (a *api) backup() (restore func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	version, objects := a.version, maps.Clone(a.objects)
	return func() { a.edit(func() { a.version, a.compacted, a.objects, a.log = version, version, objects, nil }) }
}

// edit changes how the server behaves.
func (a *api) edit(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.changed.Broadcast()
}

// put creates or updates objects and is the last resourceVersion.
func (a *api) put(all ...object) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range all {
		o = o.DeepCopyObject().(object)
		plural := pluralOf(o)
		key := plural + "/" + o.GetNamespace() + "/" + o.GetName()
		a.version++
		o.SetResourceVersion(strconv.FormatUint(a.version, 10))
		a.log = append(a.log, change{plural, a.version, a.objects[key], o})
		a.objects[key] = o
	}
	a.changed.Broadcast()
	return a.version
}

func (a *api) delete(all ...object) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range all {
		plural := pluralOf(o)
		key := plural + "/" + o.GetNamespace() + "/" + o.GetName()
		a.version++
		a.log = append(a.log, change{plural, a.version, a.objects[key], nil})
		delete(a.objects, key)
	}
	a.changed.Broadcast()
	return a.version
}

// compact forgets the history, so that watches from older versions are answered with 410 Gone.
func (a *api) compact() { a.edit(func() { a.compacted, a.log = a.version, nil }) }

func (a *api) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func pluralOf(o object) string {
	switch o.(type) {
	case *mcsv1beta1.ServiceImport:
		return "serviceimports"
	case *discoveryv1.EndpointSlice:
		return "endpointslices"
	case *corev1.Namespace:
		return "namespaces"
	}
	panic(fmt.Sprintf("%T", o))
}

// ServeHTTP answers lists and watches.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := conversation{api: a, w: w, json: !strings.Contains(r.Header.Get("Accept"), "protobuf")}
	path := r.URL.Path
	plural := path[strings.LastIndexByte(path, '/')+1:]
	if at := strings.Index(path, "/namespaces/"); at >= 0 {
		c.namespace = strings.Split(path, "/")[len(strings.Split(path, "/"))-2]
		path = path[:at] + "/" + plural
	}
	prefix := strings.TrimSuffix(path, "/"+plural)
	q := r.URL.Query()
	a.mu.Lock()
	a.requests = append(a.requests, r.URL.Path+"?"+r.URL.RawQuery)
	served, forbidden, noStreams, compacted, newest := a.served[prefix], a.forbidden[plural] ||
		a.noWatches[plural] && q.Get("watch") == "true", a.noStreams, a.compacted, a.version
	a.mu.Unlock()
	resource := schema.GroupResource{Resource: plural}
	version, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	streamed := q.Get("sendInitialEvents") == "true"
	switch {
	case !served:
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	case forbidden:
		c.fail(apierrors.NewForbidden(resource, "", nil))
		return
	case streamed && noStreams:
		c.fail(apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
		return
	case q.Get("watch") == "true" && !streamed && version < compacted:
		c.fail(apierrors.NewResourceExpired("too old resource version"))
		return
	case version > newest && (streamed || q.Get("watch") == ""): // a watch is taken, and waits
		err := apierrors.NewTimeoutError("Too large resource version", 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
		c.fail(err)
		return
	}
	c.plural, c.selector = plural, labels.Everything()
	if s := q.Get("labelSelector"); s != "" {
		c.selector, _ = labels.Parse(s)
	}
	if q.Get("watch") == "true" {
		c.watch(r, version, streamed)
	} else {
		c.list()
	}
}

// conversation is one request.
type conversation struct {
	*api
	w         http.ResponseWriter
	json      bool
	plural    string
	namespace string
	selector  labels.Selector
}

func (c *conversation) selects(o object) bool {
	return o != nil && (c.namespace == "" || o.GetNamespace() == c.namespace) &&
		c.selector.Matches(labels.Set(o.GetLabels()))
}

func (c *conversation) encode(o runtime.Object) []byte {
	if c.json {
		if named, ok := o.(object); ok && c.garbage[named.GetName()] != "" {
			return []byte(c.garbage[named.GetName()])
		}
		b, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		return b
	}
	return encodeProto(o)
}

func encodeProto(o runtime.Object) []byte {
	var b strings.Builder
	if err := protobuf.NewSerializer(nil, nil).Encode(o, &b); err != nil {
		panic(err)
	}
	return []byte(b.String())
}

func (c *conversation) fail(err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	c.header()
	c.w.WriteHeader(int(status.Code))
	c.w.Write(c.encode(&status))
}

func (c *conversation) header() {
	kind := runtime.ContentTypeJSON
	if !c.json {
		kind = runtime.ContentTypeProtobuf
	}
	c.w.Header().Set("Content-Type", kind)
}

func (c *conversation) current() []object {
	var all []object
	for key, o := range c.objects {
		if strings.HasPrefix(key, c.plural+"/") && c.selects(o) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all
}

func (c *conversation) list() {
	c.mu.Lock()
	meta, all, cut := metav1.ListMeta{
		ResourceVersion: strconv.FormatUint(c.version, 10),
	}, c.current(), c.cut[c.plural]
	c.mu.Unlock()
	c.header()
	if cut {
		c.w.Write([]byte(`{"items":[`))
		return
	}
	if c.json {
		items := []json.RawMessage{}
		for _, o := range all {
			items = append(items, c.encode(o))
		}
		json.NewEncoder(c.w).
			Encode(map[string]any{"kind": "ServiceImportList", "apiVersion": "v1", "metadata": meta, "items": items})
		return
	}
	var list runtime.Object = &discoveryv1.EndpointSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, ListMeta: meta,
	}
	for _, o := range all {
		switch l := list.(type) {
		case *discoveryv1.EndpointSliceList:
			l.Items = append(l.Items, *o.(*discoveryv1.EndpointSlice))
		}
	}
	if c.plural == "namespaces" {
		namespaces := &corev1.NamespaceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"},
			ListMeta: meta,
		}
		for _, o := range all {
			namespaces.Items = append(namespaces.Items, *o.(*corev1.Namespace))
		}
		list = namespaces
	}
	c.w.Write(encodeProto(list))
}

// watch sends what changes after version, and before that, with streamed, all there is.
func (c *conversation) watch(r *http.Request, version uint64, streamed bool) {
	c.header()
	c.w.WriteHeader(http.StatusOK)
	flush := c.w.(http.Flusher).Flush
	flush()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // a watch that is over wakes up
		select {
		case <-r.Context().Done():
		case <-stop:
		}
		c.edit(func() {})
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	generation := c.generation
	if streamed {
		version = c.version
		for _, o := range c.current() {
			c.event("ADDED", o)
		}
		if c.cut[c.plural] {
			return
		}
		c.bookmark(version, true)
		flush()
	}
	for r.Context().Err() == nil && c.generation == generation {
		sent := false
		for _, ch := range c.log {
			if ch.version > version {
				version = ch.version
				sent = c.send(ch) || sent
			}
		}
		if !sent {
			c.bookmark(version, false)
		}
		flush()
		c.changed.Wait()
	}
	if generation <= c.broken {
		panic(http.ErrAbortHandler)
	}
}

func (c *conversation) send(ch change) bool {
	if ch.plural != c.plural {
		return false
	}
	switch before, after := c.selects(ch.old), c.selects(ch.new); {
	case before && after:
		c.event("MODIFIED", ch.new)
	case after:
		c.event("ADDED", ch.new)
	case before:
		gone := ch.old.DeepCopyObject().(object)
		gone.SetResourceVersion(strconv.FormatUint(ch.version, 10))
		c.event("DELETED", gone)
	default:
		return false
	}
	return true
}

func (c *conversation) bookmark(version uint64, initial bool) {
	var o object = &mcsv1beta1.ServiceImport{}
	if !c.json {
		o = &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		}
	}
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	if initial {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	c.event("BOOKMARK", o)
}

func (c *conversation) event(kind string, o runtime.Object) {
	c.w.Write(frame(kind, c.encode(o), c.json))
}

// frame is one event of a watch.
func frame(kind string, o []byte, asJSON bool) []byte {
	if asJSON {
		return []byte(`{"type":"` + kind + `","object":` + string(o) + "}\n")
	}
	e := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: o}}
	b, err := e.Marshal()
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}
