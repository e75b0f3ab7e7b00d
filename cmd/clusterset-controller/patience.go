package main

import (
	"io"
	"net/http"
	"strings"
	"sync"
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
	// tried are the paths whose next watch would go on from an earlier one. nil: watches may, and whoever reads their caches compares them with
	// the API server's state.
	tried *sync.Map
}

// RoundTrip is http.RoundTripper's. A watch has no body, so it can be sent as often as need be.
func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	for gap := false; ; gap = true {
		resp, err := p.RoundTripper.RoundTrip(req)
		if req.URL.Query().Get("watch") == "" || req.Context().Err() != nil {
			return resp, err
		}
		if err == nil {
			if p.away.Swap(false) {
				p.log.Info("the API server answers again", "host", req.URL.Host)
			}
			if p.resumes(req, gap) {
				resp.Body.Close()
				return expired(req), nil
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

// resumes tells of a watch whether it goes on, after a gap, where an earlier one ended and must not. An API server that was restored from a
// backup meanwhile gives out resourceVersions a second time: what it writes until it has passed that one would be missed for good, and what
// was lost never be seen to be gone. A watch that is refused follows a list, and is the first one then.
func (p patient) resumes(req *http.Request, gap bool) bool {
	if p.tried == nil {
		return false
	}
	_, again := p.tried.LoadOrStore(req.URL.Path, true)
	if req.URL.Query().Get("sendInitialEvents") == "true" { // it is a list itself
		return false
	}
	if gap || again {
		p.tried.Delete(req.URL.Path)
		return true
	}
	return false
}

// expired is how an API server answers a watch from where it cannot go on.
func expired(req *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"watches of this program go on from a list only"}`
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), ContentLength: int64(len(status)),
	}
}

// WrappedRoundTripper lets client-go cancel requests.
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.RoundTripper }
