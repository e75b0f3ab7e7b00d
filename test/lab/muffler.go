package lab

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"sync"
)

// Muffler stands before an API server, with its own certificate, and can make the watches that there are go silent. All
// else passes, new watches too.
type Muffler struct {
	server *http.Server
	addr   string
	mu     sync.Mutex
	silent chan struct{} // closed when the streams of now are to be silent
	kinds  map[string]bool
}

// Muffle starts one; a Forwarder can be diverted to its Addr.
func (c *ControlPlane) Muffle() (*Muffler, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Muffler{addr: listener.Addr().String(), silent: make(chan struct{}), kinds: map[string]bool{}}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.Transport = &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true,
	} // to the laboratory's own server
	proxy.ModifyResponse = func(r *http.Response) error {
		if r.Request.URL.Query().Get("watch") != "" {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.kinds[path.Base(r.Request.URL.Path)] = true
			r.Body = &muffled{r.Body, m.silent, r.Request.Context()}
		}
		return nil
	}
	m.server = &http.Server{Handler: proxy}
	pki := filepath.Join(c.Dir(), "pki")
	go func() {
		_ = m.server.ServeTLS(
			listener,
			filepath.Join(pki, "apiserver.crt"),
			filepath.Join(pki, "apiserver.key"),
		) // ends with Close
	}()
	return m, nil
}

// Addr is where it listens.
func (m *Muffler) Addr() string { return m.addr }

// Watches returns whether there has been a watch of each of these kinds, which are named as in a path of the API.
func (m *Muffler) Watches(kinds ...string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(kinds, func(k string) bool { return !m.kinds[k] })
}

// Hush makes the watches of now silent, for good.
func (m *Muffler) Hush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.silent)
	m.silent = make(chan struct{})
}

// Close ends it, and every connection by it.
func (m *Muffler) Close() { m.server.Close() }

// muffled is a watch's answer.
type muffled struct {
	io.ReadCloser
	silent chan struct{}
	ctx    context.Context
}

func (s *muffled) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	select {
	case <-s.silent:
		<-s.ctx.Done() // whoever asked has given up
		return 0, io.EOF
	default:
		return n, err
	}
}
