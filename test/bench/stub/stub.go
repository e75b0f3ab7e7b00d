// Package stub is an API server that serves list and watch of a deterministic data set from memory, so that what is
// measured is the client and not the API server: every object is encoded once, and what every client reads first is
// kept as it goes over the wire. It speaks watch-list streaming and paged lists, JSON and protobuf. It knows no
// writes, authentication, field selectors, or namespaced requests.
package stub

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Resources of the server.
const (
	ServiceImports = "serviceimports"
	EndpointSlices = "endpointslices"
	Services       = "services"
	Namespaces     = "namespaces"
)

const mcsGroup = "multicluster.x-k8s.io"

// history is how many events a watch that begins in the past can be given; one that asks for older ones is expired.
const history = 1024

// Server is the API server.
type Server struct {
	URL string

	http   http.Server
	mu     sync.Mutex
	latest uint64 // resourceVersion
	tables map[string]*table
	routes map[string]route
}

// route is one path that lists and watches.
type route struct {
	table *table
	kind  kind
}

// table holds the objects of one resource.
type table struct {
	custom   bool
	items    []*item // sorted by key
	events   []event // the last ones
	forgot   uint64  // resourceVersion of the last event that is no longer in events
	watchers map[*watcher]bool
	gate     chan struct{}     // closed unless the end of the initial events is held back
	initial  map[string][]byte // what a watch sends first, by content type, kind and selector
}

type event struct {
	kind string // ADDED, MODIFIED
	item *item
}

// Start serves the shape's data set on a free loopback port.
func Start(shape Shape) (*Server, error) {
	s := &Server{latest: 1000, tables: make(map[string]*table)}
	for _, name := range []string{ServiceImports, EndpointSlices, Services, Namespaces} {
		open := make(chan struct{})
		close(open)
		s.tables[name] = &table{custom: name == ServiceImports, watchers: make(map[*watcher]bool), gate: open}
	}
	imports := s.tables[ServiceImports]
	s.routes = map[string]route{
		"/api/v1/services":   {s.tables[Services], kind{"v1", "Service"}},
		"/api/v1/namespaces": {s.tables[Namespaces], kind{"v1", "Namespace"}},
		"/apis/discovery.k8s.io/v1/endpointslices": {
			s.tables[EndpointSlices],
			kind{"discovery.k8s.io/v1", "EndpointSlice"},
		},
		"/apis/" + mcsGroup + "/v1beta1/serviceimports":  {imports, kind{mcsGroup + "/v1beta1", "ServiceImport"}},
		"/apis/" + mcsGroup + "/v1alpha1/serviceimports": {imports, kind{mcsGroup + "/v1alpha1", "ServiceImport"}},
	}
	if err := s.load(shape); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.URL = "http://" + l.Addr().String()
	s.http.Handler = s
	go func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(err) // the listener is ours alone: it fails only when we close it
		}
	}()
	return s, nil
}

// Close ends the server and all connections.
func (s *Server) Close() error { return s.http.Close() }

func (s *Server) load(shape Shape) error {
	for _, o := range shape.Namespaces() {
		if err := s.put(Namespaces, o); err != nil {
			return err
		}
	}
	for _, o := range shape.ServiceImports() {
		if err := s.put(ServiceImports, o); err != nil {
			return err
		}
	}
	for _, o := range shape.ClusterServices() {
		if err := s.put(Services, o); err != nil {
			return err
		}
	}
	for _, o := range shape.EndpointSlices() {
		if err := s.put(EndpointSlices, o); err != nil {
			return err
		}
	}
	for _, t := range s.tables {
		slices.SortFunc(t.items, func(a, b *item) int { return strings.Compare(a.key, b.key) })
	}
	return nil
}

// put adds o without telling watchers: there are none yet.
func (s *Server) put(resource string, o object) error {
	t := s.tables[resource]
	s.latest++
	it, err := encode(o, s.latest, t.custom)
	if err != nil {
		return err
	}
	t.items = append(t.items, it)
	t.forgot = s.latest
	return nil
}

// PutSlice adds or changes one EndpointSlice and tells everyone who watches.
func (s *Server) PutSlice(slice *discoveryv1.EndpointSlice) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tables[EndpointSlices]
	it, err := encode(slice, s.latest+1, t.custom)
	if err != nil {
		return err
	}
	s.latest++
	e := event{"MODIFIED", it}
	at, found := slices.BinarySearchFunc(
		t.items,
		it.key,
		func(i *item, key string) int { return strings.Compare(i.key, key) },
	)
	if found {
		t.items[at] = it
	} else {
		e.kind = "ADDED"
		t.items = slices.Insert(t.items, at, it)
	}
	if t.events = append(t.events, e); len(t.events) > history {
		t.forgot = t.events[0].item.version
		t.events = slices.Delete(t.events, 0, 1)
	}
	t.initial = nil
	for w := range t.watchers {
		w.send(e)
	}
	return nil
}

// Hold keeps the end of the initial events of a resource, or of its list, from the requests that begin from now on,
// until the returned function is called.
func (s *Server) Hold(resource string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.tables[resource].gate = gate
	return func() { close(gate) }
}

// Expire ends all watches as an API server does that has compacted its history, so that clients list again.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.events, t.forgot = nil, s.latest
		for w := range t.watchers {
			w.expire()
		}
		clear(t.watchers)
		s.latest++ // so that a watch cannot go on where the expired one was
	}
}

// Settled reports whether the resource has a watch that was given everything.
func (s *Server) Settled(resource string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.tables[resource].watchers {
		if w.settled.Load() && len(w.events) == 0 {
			return true
		}
	}
	return false
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	rt, ok := s.routes[path]
	switch {
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "the stub is read-only")
	case ok && r.URL.Query().Get("watch") != "":
		s.watch(w, r, rt)
	case ok:
		s.list(w, r, rt)
	case s.discover(w, path):
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the stub does not serve "+r.URL.Path)
	}
}

// view is how a client wants to be served.
type view struct {
	format
	selector labels.Selector
}

func (rt route) view(r *http.Request) (v view, err error) {
	v.format = jsonFormat{}
	if !rt.table.custom && strings.Contains(r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf") {
		v.format = protoFormat{}
	}
	v.selector, err = labels.Parse(r.URL.Query().Get("labelSelector"))
	return v, err
}

func (v view) wants(it *item) bool { return v.selector.Matches(labels.Set(it.labels)) }
