package main

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// patient is a transport whose watches wait for an API server that is away and go on when it answers. A reflector of client-go's that sees
// each attempt fail asks ever less often, once a minute in the end, and is that much late when the server is back.
type patient struct {
	http.RoundTripper
	log  logr.Logger
	away *atomic.Bool // of the watches of one API server: only the first says it
}

// RoundTrip is http.RoundTripper's. A watch has no body, so it can be sent as often as need be.
func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		resp, err := p.RoundTripper.RoundTrip(req)
		if req.URL.Query().Get("watch") == "" || req.Context().Err() != nil {
			return resp, err
		}
		if err == nil {
			if p.away.Swap(false) {
				p.log.Info("the API server answers again", "host", req.URL.Host)
			}
			return resp, nil
		}
		if !p.away.Swap(true) {
			p.log.Info("the API server does not answer; watches go on when it does", "host", req.URL.Host, "reason", err.Error())
		}
		select {
		case <-req.Context().Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// WrappedRoundTripper lets client-go cancel requests.
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.RoundTripper }
