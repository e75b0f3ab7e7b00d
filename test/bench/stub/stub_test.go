package stub_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcs "sigs.k8s.io/mcs-api/pkg/client/clientset/versioned/typed/apis/v1alpha1"
)

var db = stub.Headless{Name: "db", Endpoints: 1000}

func start(t *testing.T) *stub.Server {
	t.Helper()
	s, err := stub.Start(stub.Shape{Imports: 250, Headless: []stub.Headless{db}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// A headless Service is spread over all clusters, in slices of at most 100, and no two endpoints share an address
// or a name.
func TestHeadlessData(t *testing.T) {
	for _, h := range []stub.Headless{{Name: "a", Endpoints: 10}, db, {Name: "c", Endpoints: 100, DualStack: true}} {
		addresses, names, clusters := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, s := range h.Slices() {
			c := s.Labels[mcsv1alpha1.LabelSourceCluster]
			clusters[c] = true
			if len(s.Endpoints) > 100 {
				t.Errorf("slice %s has %d endpoints", s.Name, len(s.Endpoints))
			}
			for _, e := range s.Endpoints {
				addresses[e.Addresses[0]] = true
				names[*e.Hostname+"."+c] = true
			}
		}
		families := 1
		if h.DualStack {
			families = 2
		}
		if len(addresses) != families*h.Endpoints || len(names) != h.Endpoints || len(clusters) != stub.Clusters {
			t.Errorf("%s: %d addresses, %d names, %d clusters", h.Name, len(addresses), len(names), len(clusters))
		}
	}
}

// client-go's own informer sees the same through watch-list streaming and through paged lists, in JSON and in
// protobuf, follows changes, and lists again when its watch expires.
func TestInformersFollow(t *testing.T) {
	for _, contentType := range []string{"application/json", runtime.ContentTypeProtobuf} {
		for name, wrap := range map[string]func(lw *cache.ListWatch, client any) cache.ListerWatcher{
			"streaming": cache.ToListWatcherWithWatchListSemantics,
			"lists":     func(lw *cache.ListWatch, _ any) cache.ListerWatcher { return plain{lw} },
		} {
			t.Run(contentType+" "+name, func(t *testing.T) { follow(t, start(t), contentType, wrap) })
		}
	}
}

// plain is a ListerWatcher that pages and does not stream.
type plain struct{ *cache.ListWatch }

func (plain) IsWatchListSemanticsUnSupported() bool { return true }

func follow(
	t *testing.T,
	s *stub.Server,
	contentType string,
	wrap func(*cache.ListWatch, any) cache.ListerWatcher,
) {
	config := &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: contentType}}
	client := kubernetes.NewForConfigOrDie(config)
	mcsClient := mcs.NewForConfigOrDie(config)
	imports := inform(t, wrap(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return mcsClient.ServiceImports("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return mcsClient.ServiceImports("").Watch(ctx, o)
		},
	}, client), &mcsv1alpha1.ServiceImport{})
	slices := inform(t, wrap(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.Limit = 3
			o.LabelSelector = mcsv1alpha1.LabelServiceName
			return client.DiscoveryV1().EndpointSlices("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = mcsv1alpha1.LabelServiceName
			return client.DiscoveryV1().EndpointSlices("").Watch(ctx, o)
		},
	}, client), &discoveryv1.EndpointSlice{})
	await(t, "the initial imports", func() bool { return len(imports.List()) == 251 })
	await(t, "the initial slices", func() bool { return len(slices.List()) == 10 })

	change := func() bool {
		slice := db.Slices()[3]
		slice.Endpoints = slice.Endpoints[:7]
		if err := s.PutSlice(slice); err != nil {
			t.Fatal(err)
		}
		o, exists, err := slices.GetByKey(slice.Namespace + "/" + slice.Name)
		return err == nil && exists && len(o.(*discoveryv1.EndpointSlice).Endpoints) == 7
	}
	await(t, "a change", change)
	s.Expire()
	await(
		t,
		"the slices after expiry",
		func() bool { return s.Settled(stub.EndpointSlices) && len(slices.List()) == 10 },
	)
	await(
		t,
		"the imports after expiry",
		func() bool { return s.Settled(stub.ServiceImports) && len(imports.List()) == 251 },
	)
	slice := db.Slices()[0]
	slice.Name = "added-later"
	if err := s.PutSlice(slice); err != nil {
		t.Fatal(err)
	}
	await(t, "an addition", func() bool { return len(slices.List()) == 11 })
}

func inform(t *testing.T, lw cache.ListerWatcher, o runtime.Object) cache.Store {
	store, controller := cache.NewInformerWithOptions(
		cache.InformerOptions{ListerWatcher: lw, ObjectType: o, Handler: cache.ResourceEventHandlerFuncs{}},
	)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { controller.RunWithContext(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return store
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}

// The end of the initial events is held back until it is released, and a watch is settled only then.
func TestHold(t *testing.T) {
	s := start(t)
	release := s.Hold(stub.ServiceImports)
	mcsClient := mcs.NewForConfigOrDie(&rest.Config{Host: s.URL})
	w, err := mcsClient.ServiceImports("").Watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for range 251 {
		if e := <-w.ResultChan(); e.Type != watch.Added {
			t.Fatalf("got %s", e.Type)
		}
	}
	if s.Settled(stub.ServiceImports) {
		t.Error("settled although held")
	}
	select {
	case e := <-w.ResultChan():
		t.Fatalf("got %s although held", e.Type)
	default:
	}
	release()
	e := <-w.ResultChan()
	if e.Type != watch.Bookmark ||
		e.Object.(*mcsv1alpha1.ServiceImport).Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("got %s %v", e.Type, e.Object)
	}
}

// Of a list nothing but the end is held back.
func TestHoldList(t *testing.T) {
	s := start(t)
	release := s.Hold(stub.ServiceImports)
	r, err := http.Get(s.URL + "/apis/multicluster.x-k8s.io/v1beta1/serviceimports?resourceVersion=0&limit=100")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	got, part := []byte(nil), make([]byte, 1<<16)
	for strings.Count(string(got), `"kind":"ServiceImport"`) < 250 {
		n, err := r.Body.Read(part)
		if got = append(got, part[:n]...); err != nil {
			t.Fatalf("%v after %d octets, although held", err, len(got))
		}
	}
	release()
	rest, err := io.ReadAll(r.Body)
	var list mcsv1alpha1.ServiceImportList
	if err := errors.Join(err, json.Unmarshal(append(got, rest...), &list)); err != nil || len(list.Items) != 251 {
		t.Fatalf("%v, %d items", err, len(list.Items))
	}
}

func TestUnknownPathsAreNotFound(t *testing.T) {
	s := start(t)
	for path, want := range map[string]int{
		"/apis/multicluster.x-k8s.io/v1beta1": 200, "/apis": 200, "/api/v1/pods": 404,
		"/apis/discovery.k8s.io/v1/endpointslices?labelSelector=!": 400} {
		r, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if r.Body.Close(); r.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, r.StatusCode, want)
		}
	}
}
