package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// patient is a transport whose watches wait for an API server that is away or starts, and go on when it answers. A reflector of client-go's that
// sees each attempt refused asks ever less often, once in 45 s at last, and is that much late when the server is back. And no request
// lasts much longer than an API server lets it.
type patient struct {
	http.RoundTripper
	log  logr.Logger
	away *atomic.Bool // of the watches of one API server: only the first says it
	// lists are the watches of it that must not go on from where an earlier one ended. nil: all may, and whoever reads their caches compares
	// them with the API server's state.
	lists *lists
}

// lists tells which watches follow a list. An API server that was restored from a backup gives out resourceVersions a second time: what it
// writes until it has passed the one that a watch goes on from would be missed for good, and what was lost never be seen to be gone.
type lists struct {
	always bool     // also behind a watch that the API server ended in order, as it does every few minutes
	due    sync.Map // the paths whose next watch would go on where it must not
}

// RoundTrip is http.RoundTripper's. A watch has no body, so it can be sent as often as need be.
func (p patient) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.lists != nil {
		req = newest(req)
	}
	gap := false
	for tries := 0; ; tries++ {
		resp, err := p.bounded(req)
		if !isWatch(req) || req.Context().Err() != nil {
			return resp, err
		}
		if err == nil && starting(resp.StatusCode, tries) {
			_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // the connection can be used again
			resp.Body.Close()
			err = errors.New(resp.Status)
		}
		if err == nil {
			if p.away.Swap(false) {
				p.log.Info("the API server answers again", "host", req.URL.Host)
			}
			if p.lists == nil {
				return resp, nil
			}
			if p.lists.instead(req, gap) {
				resp.Body.Close()
				return expired(req), nil
			}
			return p.lists.follow(req, resp), nil
		}
		gap = gap || resp == nil || resp.StatusCode != http.StatusTooManyRequests // which puts it off in order
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

// graceful is how much longer than that a request may last. The API server ends it in time, unless it hangs, or a proxy that stalls it
// answers HTTP/2's pings in its place, by which client-go else finds a dead connection.
const graceful = 30 * time.Second

// lasts is how long API servers let a request last, unless they are told otherwise. Informers' watches ask for 5 to 10 minutes.
func lasts(req *http.Request) time.Duration {
	if !isWatch(req) {
		return time.Minute
	}
	if seconds, err := strconv.Atoi(req.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return time.Hour
}

// bounded sends a request that ends where the API server should have ended it long since. The time runs from when it is sent: a watch is
// answered at once, but some proxies hold that back until there is an event. client-go's StreamWatcher takes the timeout for the stream's end
// and sends no event of type Error, so its reflector sends the next watch without a wait. Where that one is refused, for a list (instead),
// the list comes within a second.
func (p patient) bounded(req *http.Request) (*http.Response, error) {
	ctx, end := context.WithTimeout(req.Context(), lasts(req)+graceful)
	resp, err := p.RoundTripper.RoundTrip(req.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	late := func() {
		if isWatch(req) { // of which nobody else would say it
			p.log.Info("a watch was not ended in time: does a proxy stall it?", "host", req.URL.Host, "path", req.URL.Path)
		}
	}
	resp.Body = &body{ReadCloser: resp.Body, end: end, late: late}
	return resp, nil
}

func isWatch(req *http.Request) bool { return req.URL.Query().Get("watch") != "" }

// body is a response's. late is called where its time is over.
type body struct {
	io.ReadCloser
	end  context.CancelFunc
	late func()
}

// Read is io.Reader's.
func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if errors.Is(err, context.DeadlineExceeded) {
		b.late()
	}
	return n, err
}

// Close is io.Closer's.
func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// starting tells whether a watch is answered as by an API server that has not quite started, or is on its way down: it fails (5xx), as a balancer
// does for it, is busy, or does not know its roles yet. Each such answer would cost a list, or, where it is busy, a wait of client-go's reflector
// that grows for two minutes. A refusal that outlasts a start is one.
func starting(status, tries int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return tries > 0 && tries < 10
	case http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}

// newest makes of a list that is to be no older than what was seen one of the newest. An API server that is behind that would refuse it, after
// 3 s each and up to ten times (decision 0015).
func newest(req *http.Request) *http.Request {
	q := req.URL.Query()
	if v := q.Get("resourceVersion"); req.Method != http.MethodGet || isWatch(req) || v == "" || v == "0" || q.Has("resourceVersionMatch") {
		return req
	}
	q.Del("resourceVersion")
	req = req.Clone(req.Context())
	req.URL.RawQuery = q.Encode()
	return req
}

// instead tells of a watch whether a list is needed instead: behind a gap, or behind what follow saw. A watch that is refused follows a list,
// and may go on then.
func (l *lists) instead(req *http.Request, gap bool) bool {
	_, due := l.due.LoadAndDelete(req.URL.Path)
	return (due || gap) && req.URL.Query().Get("sendInitialEvents") != "true" // which is a list itself
}

// follow takes note of how a watch ends.
func (l *lists) follow(req *http.Request, resp *http.Response) *http.Response {
	if l.always {
		l.due.Store(req.URL.Path, true)
		return resp
	}
	resp.Body = &stream{ReadCloser: resp.Body, broke: func() { l.due.Store(req.URL.Path, true) }}
	return resp
}

// stream is what a watch shows. broke is called where it breaks off: it neither came to its end nor was given up by its reader.
type stream struct {
	io.ReadCloser
	closed atomic.Bool
	broke  func()
}

// Read is io.Reader's.
func (s *stream) Read(into []byte) (int, error) {
	n, err := s.ReadCloser.Read(into)
	if err != nil && err != io.EOF && !s.closed.Load() {
		s.broke()
	}
	return n, err
}

// Close is io.Closer's.
func (s *stream) Close() error {
	s.closed.Store(true)
	return s.ReadCloser.Close()
}

// expired is how an API server answers a watch from where it cannot go on.
func expired(req *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"this watch goes on from a list only"}`
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), ContentLength: int64(len(status)),
	}
}

// WrappedRoundTripper lets client-go cancel requests.
func (p patient) WrappedRoundTripper() http.RoundTripper { return p.RoundTripper }
