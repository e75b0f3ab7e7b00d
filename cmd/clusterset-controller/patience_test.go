package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestAWatchWaitsForAnAPIServerThatIsAway, and says so once; all else fails at once, and nothing outlives its context.
func TestAWatchWaitsForAnAPIServerThatIsAway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	said := make(chan string, 100)
	p := patient{http.DefaultTransport, funcr.New(func(_, args string) { said <- args }, funcr.Options{}), &atomic.Bool{}, nil}
	send := func(ctx context.Context, query string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := p.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if send(t.Context(), "?limit=1") == nil {
		t.Fatal("nobody listens there")
	}
	ended, end := context.WithCancel(t.Context())
	results := make(chan error, 3)
	go func() { results <- send(ended, "?watch=true") }()
	<-said
	end()
	if <-results == nil {
		t.Error("a watch outlived its context")
	}
	for range 2 {
		go func() { results <- send(t.Context(), "?watch=true") }()
	}
	select {
	case err := <-results:
		t.Fatalf("a watch did not wait: %v", err)
	case <-time.After(100 * time.Millisecond): // an attempt takes less
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	<-said // that it answers again
	if n := len(said); n > 0 {
		t.Errorf("%d lines more than one when it went and one when it came", n)
	}
}

// TestV2L1WatchesOutliveNoRestore: a watch ends, the API server is restored, and answers again. What the backup does not know is gone from
// the cache, though nobody was told, and what it has otherwise is there. Of an agent's own cluster so where the watch broke off.
func TestV2L1WatchesOutliveNoRestore(t *testing.T) {
	t.Run("the hub program's", func(t *testing.T) { outlivesNoRestore(t, &lists{always: true}, func() {}) })
	t.Run("an agent's of its own cluster", func(t *testing.T) { outlivesNoRestore(t, &lists{}, func() { panic(http.ErrAbortHandler) }) })
}

func outlivesNoRestore(t *testing.T, behind *lists, end func()) {
	const before = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"95"},"items":[{"metadata":{"namespace":"set","name":"kept","uid":"1","resourceVersion":"90"}}]}`
	const lost = `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"set","name":"lost","uid":"2","resourceVersion":"100"}}}`
	const after = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"60"},"items":[{"metadata":{"namespace":"set","name":"kept","uid":"1","resourceVersion":"50"}}]}`
	var state atomic.Value
	state.Store(before)
	watching, restore := make(chan bool), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch q := req.URL.Query(); {
		case q.Get("sendInitialEvents") != "":
			http.Error(w, "it is an old one", http.StatusUnprocessableEntity)
		case q.Get("watch") == "":
			if v := q.Get("resourceVersion"); v != "" && v != "0" {
				t.Errorf("a list is to be no older than %s, to which the API server may be long in coming", v)
			}
			_, _ = io.WriteString(w, state.Load().(string))
		case state.Load() == before:
			_, _ = io.WriteString(w, lost)
			w.(http.Flusher).Flush()
			watching <- true
			<-restore
			state.Store(after)
			end()
		default: // it has nothing to tell below 100
			w.(http.Flusher).Flush()
			<-req.Context().Done()
		}
	}))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return patient{next, logr.Discard(), &atomic.Bool{}, behind}
	})
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "configmaps", "set", fields.Everything()),
		ObjectType:    &corev1.ConfigMap{}, Handler: cache.ResourceEventHandlerFuncs{},
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop() // before the server closes
	go informer.RunWithContext(ctx)
	<-watching
	restore <- true
	shows := func() string {
		var versions []string
		for _, o := range store.List() {
			versions = append(versions, o.(*corev1.ConfigMap).Name+" "+o.(*corev1.ConfigMap).ResourceVersion)
		}
		return strings.Join(versions, ", ")
	}
	for until := time.Now().Add(20 * time.Second); shows() != "kept 50"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the cache shows %s", shows())
		}
	}
}

// answers is a transport that first answers with these statuses, away for none, then with another and with bodies that end so.
type answers struct {
	first  []int
	status int
	end    error
}

const away = 0

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	if len(a.first) > 0 {
		status := a.first[0]
		a.first = a.first[1:]
		if status == away {
			return nil, io.ErrUnexpectedEOF
		}
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	}
	return &http.Response{StatusCode: a.status, Body: io.NopCloser(iotest.ErrReader(a.end))}, nil
}

// TestV2L1AWatchFollowsAList: the hub program's is refused where it goes on from an earlier one, or from a list of before an outage; that of
// an agent's own cluster behind a gap, once, and not behind an end in order nor where its reader gave it up. Of the hub's in an agent none is:
// its verifier looks.
func TestV2L1AWatchFollowsAList(t *testing.T) {
	const watch, other, list = "/sets?watch=true&resourceVersion=7", "/others?watch=true&resourceVersion=7", "/sets?watch=true&sendInitialEvents=true"
	ordered, broken := answers{nil, 200, io.EOF}, answers{nil, 200, io.ErrUnexpectedEOF}
	for _, c := range []struct {
		name    string
		lists   *lists
		answers answers
		sends   []string
		want    []int
	}{
		{"the hub program's, first", &lists{always: true}, ordered, []string{watch}, []int{200}},
		{"again, and after a list", &lists{always: true}, ordered, []string{watch, watch, watch, watch}, []int{200, 410, 200, 410}},
		{"of several kinds", &lists{always: true}, ordered, []string{watch, other}, []int{200, 200}},
		{"after an outage", &lists{always: true}, answers{[]int{away}, 200, io.EOF}, []string{watch, watch}, []int{410, 200}},
		{"that is a list", &lists{always: true}, answers{[]int{away}, 200, io.EOF}, []string{list, list, watch, list}, []int{200, 200, 410, 200}},
		{"an agent's own cluster's, in order", &lists{}, ordered, []string{watch, watch, watch}, []int{200, 200, 200}},
		{"after an outage", &lists{}, answers{[]int{away}, 200, io.EOF}, []string{watch, watch, watch}, []int{410, 200, 200}},
		{"that broke off", &lists{}, broken, []string{watch, other, watch, watch, watch, other}, []int{200, 200, 410, 200, 410, 410}},
		{"that is a list, and broke off", &lists{}, broken, []string{list, watch, list}, []int{200, 410, 200}},
		{"put off", &lists{}, answers{[]int{429}, 200, io.EOF}, []string{watch, watch}, []int{200, 200}},
		{"that failed", &lists{}, answers{[]int{503}, 200, io.EOF}, []string{watch, watch}, []int{410, 200}},
		{"that is refused", &lists{}, answers{nil, 403, io.EOF}, []string{watch}, []int{403}},
		{"of an API server that starts", nil, answers{[]int{away, 403, 429, 500, 401}, 200, io.EOF}, []string{watch}, []int{200}},
		{"that is refused ever since an outage", nil, answers{[]int{away}, 403, io.EOF}, []string{watch}, []int{403}},
		{"the hub's", nil, answers{[]int{away}, 200, io.ErrUnexpectedEOF}, []string{watch, watch}, []int{200, 200}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait for a second each time
			p := patient{&c.answers, logr.Discard(), &atomic.Bool{}, c.lists}
			for i, to := range c.sends {
				resp, err := p.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, to, nil))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != c.want[i] {
					t.Errorf("watch %d was answered %d, not %d", i, resp.StatusCode, c.want[i])
				}
			}
		})
	}
	given := patient{&broken, logr.Discard(), &atomic.Bool{}, &lists{}}
	for range 2 {
		resp, err := given.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, watch, nil))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("a watch that its reader gave up is refused: %v, %v", resp, err)
		}
		resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
	}
}
