package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestCachesAreFilledByLists, and not by a stream whose end may be late.
func TestCachesAreFilledByLists(t *testing.T) {
	first := make(chan string, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case first <- r.URL.RawQuery:
		default:
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}`))
	}))
	defer server.Close()
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(clients, 0)
	factory.Core().V1().Services().Informer()
	factory.StartWithContext(t.Context())
	query, err := url.ParseQuery(<-first)
	if err != nil || query.Get("watch") != "" || query.Get("sendInitialEvents") != "" {
		t.Errorf("the first request asks for %v (%v), and not for a list", query, err)
	}
}
