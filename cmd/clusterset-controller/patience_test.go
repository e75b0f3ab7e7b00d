package main

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
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
	p := patient{http.DefaultTransport, funcr.New(func(_, args string) { said <- args }, funcr.Options{}), &atomic.Bool{}}
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
