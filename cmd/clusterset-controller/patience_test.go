package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
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

// TestS2AStalledWatchEnds: a proxy answers for the API server that the connection lives, and shows no more of a watch, which the API server ended
// long ago, or has never begun to show it. What was made meanwhile is seen half a minute after the time that the watch asked for, and not
// before. It is asked for as behind any other watch that broke off: of an agent's own cluster by a list, of the hub in an agent by a watch.
func TestS2AStalledWatchEnds(t *testing.T) {
	for name, protocol := range map[string]func(*http.Protocols, bool){"HTTP/1": (*http.Protocols).SetHTTP1, "HTTP/2": (*http.Protocols).SetUnencryptedHTTP2} {
		var spoken http.Protocols
		protocol(&spoken, true)
		for _, c := range []struct {
			name  string
			lists *lists
			begun bool // the watch is answered
			list  bool // is asked for
		}{
			{"an agent's of its own cluster", &lists{}, true, true},
			{"not answered", &lists{}, false, true},
			{"the hub program's", &lists{always: true}, true, true},
			{"an agent's of the hub", nil, true, false},
			{"not answered", nil, false, false},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { outlivesAStall(t, &spoken, c.lists, c.begun, c.list) })
			})
		}
	}
}

func outlivesAStall(t *testing.T, spoken *http.Protocols, behind *lists, begun, list bool) {
	const empty = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`
	const missed = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"set","name":"missed","uid":"1","resourceVersion":"8"}}`
	const full = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"8"},"items":[` + missed + `]}`
	asked, stalled := make(chan string, 9), make(chan time.Duration, 1)
	shown := empty
	transport := serve(t, spoken, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		q := req.URL.Query()
		switch {
		case q.Get("sendInitialEvents") != "":
			http.Error(w, "it is an old one", http.StatusUnprocessableEntity)
			return
		case q.Get("watch") == "":
			asked <- "list"
			_, _ = io.WriteString(w, shown)
			return
		}
		asked <- "watch from " + q.Get("resourceVersion")
		if shown == empty {
			shown = full
			seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
			stalled <- time.Duration(seconds) * time.Second
		} else if q.Get("resourceVersion") == "7" {
			begun = true
			_, _ = io.WriteString(w, `{"type":"ADDED","object":`+missed+`}`)
		}
		if begun {
			w.(http.Flusher).Flush()
		}
		<-req.Context().Done()
	})
	cfg := &rest.Config{Host: "http://stalls", Transport: transport, QPS: -1}
	said := make(chan string, 9)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return patient{next, funcr.New(func(_, args string) { said <- args }, funcr.Options{}), &atomic.Bool{}, behind}
	})
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan struct{}, 9)
	informer := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "configmaps", "set", fields.Everything()), &corev1.ConfigMap{}, 0, nil)
	err = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // client-go's waits, by the clock outside
	if err != nil {
		t.Fatal(err)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { seen <- struct{}{} }}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { informer.RunWithContext(ctx); close(done) }()
	defer func() { stop(); <-done }()
	limit, began := <-stalled, time.Now()
	select {
	case <-seen:
	case <-time.After(limit + time.Hour):
		t.Fatal("what was made meanwhile is not seen in an hour")
	}
	if took := time.Since(began); took < limit+20*time.Second || took > limit+40*time.Second {
		t.Errorf("a watch that asked for %v stalled for %v", limit, took)
	}
	var asks []string
	for len(asked) > 0 {
		asks = append(asks, <-asked)
	}
	if slices.Contains(asks[1:], "list") != list {
		t.Errorf("it asked for %q", asks)
	}
	if len(said) == 0 {
		t.Error("it said nothing")
	}
}

// TestS2AStalledRequestEnds half a minute after the API server should have ended it: a list that follows a stalled watch may stall as well, and
// nothing is written any more behind a write that does.
func TestS2AStalledRequestEnds(t *testing.T) {
	stalls := func(t *testing.T, method string, begun bool) {
		var spoken http.Protocols
		spoken.SetUnencryptedHTTP2(true)
		transport := serve(t, &spoken, func(w http.ResponseWriter, req *http.Request) {
			if begun {
				_, _ = io.WriteString(w, "{")
				w.(http.Flusher).Flush()
			}
			<-req.Context().Done()
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		req, err := http.NewRequestWithContext(ctx, method, "http://stalls/sets", nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		resp, err := patient{transport, logr.Discard(), &atomic.Bool{}, nil}.RoundTrip(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took < time.Minute || took > 100*time.Second {
			t.Errorf("it ended after %v: %v", took, err)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPatch} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, begun %t", method, begun), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { stalls(t, method, begun) })
			})
		}
	}
}

// serve returns the way to a server within the process. As client-go's it asks by pings whether the connection lives, which it does.
func serve(t *testing.T, spoken *http.Protocols, handler http.HandlerFunc) *http.Transport {
	server, l := &http.Server{Protocols: spoken, Handler: handler}, pipes{make(chan net.Conn), make(chan struct{})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	dial := func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		l.dialled <- there
		return here, nil
	}
	return &http.Transport{DialContext: dial, Protocols: spoken, HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}}
}

// pipes is a listener within the process.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }
