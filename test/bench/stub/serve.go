package stub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// backlog is how many events a watcher may be behind before its watch is closed.
const backlog = 4096

// watcher is one open watch.
type watcher struct {
	events  chan event
	expired chan struct{}
	once    sync.Once
	settled atomic.Bool // it was given everything up to now
}

func (w *watcher) send(e event) {
	select {
	case w.events <- e:
	default: // too slow
		w.expire()
	}
}

func (w *watcher) expire() { w.once.Do(func() { close(w.expired) }) }

func (s *Server) watch(w http.ResponseWriter, r *http.Request, rt route) {
	v, err := rt.view(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	query := r.URL.Query()
	streaming := query.Get("sendInitialEvents") == "true"
	from, err := strconv.ParseUint("0"+query.Get("resourceVersion"), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "resourceVersion is not a number")
		return
	}
	me, first, gate, version := s.join(rt, v, streaming, from)
	if me == nil {
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	}
	defer s.leave(rt, me)
	w.Header().Set("Content-Type", v.contentType(true))
	flusher := http.NewResponseController(w)
	if _, err := w.Write(first); err != nil {
		return
	}
	if flusher.Flush() != nil {
		return
	}
	if streaming {
		select {
		case <-gate:
		case <-r.Context().Done():
			return
		}
		end := v.meta(&metav1.ObjectMeta{
			ResourceVersion: strconv.FormatUint(version, 10),
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		})
		if _, err := w.Write(v.event(nil, "BOOKMARK", rt.kind, end)); err != nil || flusher.Flush() != nil {
			return
		}
	}
	me.settled.Store(true)
	me.follow(w, flusher, r, rt, v)
}

// join registers a watcher, and tells what it is to be sent first and up to which resourceVersion that is. It is
// nil if the client's version is too old.
func (s *Server) join(
	rt route,
	v view,
	streaming bool,
	from uint64,
) (me *watcher, first []byte, gate chan struct{}, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := rt.table
	switch {
	case streaming || from == 0:
		first = t.all(rt.kind, v)
	case from < t.forgot:
		return nil, nil, nil, 0
	default:
		for _, e := range t.events {
			if e.item.version > from && v.wants(e.item) {
				first = v.event(first, e.kind, rt.kind, e.item)
			}
		}
	}
	me = &watcher{events: make(chan event, backlog), expired: make(chan struct{})}
	t.watchers[me] = true
	return me, first, t.gate, s.latest
}

// all are the initial events, kept for the next watch of the same view.
func (t *table) all(k kind, v view) []byte {
	key := fmt.Sprint(v.contentType(true), k, v.selector)
	if b, ok := t.initial[key]; ok {
		return b
	}
	var b []byte
	for _, it := range t.items {
		if v.wants(it) {
			b = v.event(b, "ADDED", k, it)
		}
	}
	if t.initial == nil {
		t.initial = make(map[string][]byte)
	}
	t.initial[key] = b
	return b
}

func (s *Server) leave(rt route, me *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(rt.table.watchers, me)
}

// follow sends what happens until the client goes, its time is over or the watch expires.
func (me *watcher) follow(
	w http.ResponseWriter,
	flusher *http.ResponseController,
	r *http.Request,
	rt route,
	v view,
) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		seconds = 3600
	}
	timeout := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timeout.Stop()
	for {
		var out []byte
		last := false
		select {
		case <-r.Context().Done():
			return
		case <-timeout.C:
			return
		case <-me.expired:
			last = true
			out = v.status(nil, &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone,
				Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
		case e := <-me.events:
			if !v.wants(e.item) {
				continue
			}
			out = v.event(nil, e.kind, rt.kind, e.item)
		}
		if _, err := w.Write(out); err != nil || flusher.Flush() != nil || last {
			return
		}
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, rt route) {
	v, err := rt.view(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit")) // absent: everything
	if query.Get("resourceVersion") == "0" {
		limit = 0 // what an API server has in its cache it gives whole
	}
	skip, _ := strconv.Atoi(query.Get("continue")) // absent: from the first
	s.mu.Lock()
	var page []*item
	for _, it := range rt.table.items {
		if v.wants(it) {
			page = append(page, it)
		}
	}
	version, gate := s.latest, rt.table.gate
	s.mu.Unlock()
	next := ""
	page = page[min(skip, len(page)):]
	if limit > 0 && len(page) > limit {
		page, next = page[:limit], strconv.Itoa(skip+limit)
	}
	w.Header().Set("Content-Type", v.contentType(false))
	body := v.list(rt.kind, page, version, next)
	last := len(body) - len("]}\n")
	if _, err := w.Write(body[:last]); err != nil || http.NewResponseController(w).Flush() != nil {
		return // a client that went away asks again
	}
	select {
	case <-gate:
		_, _ = w.Write(body[last:])
	case <-r.Context().Done():
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	writeJSON(
		w,
		metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Code: int32(code), Reason: reason, Message: message},
	)
}

func writeJSON(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v) // a client that went away asks again
}

// discover answers what clients ask to learn which versions are served.
func (s *Server) discover(w http.ResponseWriter, path string) bool {
	groups := metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"},
		Groups:   []metav1.APIGroup{group("discovery.k8s.io", "v1"), group(mcsGroup, "v1beta1", "v1alpha1")},
	}
	if path == "/apis" {
		w.Header().Set("Content-Type", "application/json")
		writeJSON(w, groups)
		return true
	}
	for _, g := range groups.Groups {
		if path == "/apis/"+g.Name {
			g.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
			w.Header().Set("Content-Type", "application/json")
			writeJSON(w, g)
			return true
		}
		for _, v := range g.Versions {
			if path == "/apis/"+v.GroupVersion {
				w.Header().Set("Content-Type", "application/json")
				writeJSON(w, resources(g.Name, v.GroupVersion))
				return true
			}
		}
	}
	return false
}

func group(name string, versions ...string) metav1.APIGroup {
	g := metav1.APIGroup{Name: name}
	for _, v := range versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

func resources(group, groupVersion string) metav1.APIResourceList {
	r := metav1.APIResource{Name: EndpointSlices, SingularName: "endpointslice", Kind: "EndpointSlice"}
	if group == mcsGroup {
		r = metav1.APIResource{Name: ServiceImports, SingularName: "serviceimport", Kind: "ServiceImport"}
	}
	r.Namespaced, r.Verbs = true, metav1.Verbs{"get", "list", "watch"}
	return metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"},
		GroupVersion: groupVersion, APIResources: []metav1.APIResource{r},
	}
}
