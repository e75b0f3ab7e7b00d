package kube

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Outliving is a client whose writes an API server carries out to their end, though the client ends before. An API server that sees its client
// leave breaks off what it is at: of a Service that is being made it takes the addresses back, and may have stored the Service all the same
// (Kubernetes 1.36). It sees that by reading on while it works, and stops reading at the first byte that it gets (net/http, since Go 1.11): an
// empty line behind the request is such a byte, and no request (RFC 9112 2.2). Where a proxy is in between, or no TLS, the client is like any
// other. Each request has its own connection.
func Outliving(cfg *rest.Config, options client.Options) (client.Client, error) {
	usual, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	own, err := rest.HTTPWrappersForConfig(cfg, &outliving{cfg: cfg, sessions: tls.NewLRUClientSessionCache(1)})
	if err != nil {
		return nil, err
	}
	proxy := cfg.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	options.HTTPClient = &http.Client{Timeout: cfg.Timeout, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if by, err := proxy(r); err != nil || by != nil || r.URL.Scheme != "https" {
			return usual.RoundTrip(r)
		}
		return own.RoundTrip(r)
	})}
	return client.New(cfg, options)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// unheard is how long an answer is waited for: longer than the minute after which an API server ends a request by itself. What stands behind a
// network that lost it would else keep its worker for a quarter of an hour.
const unheard = 75 * time.Second

type outliving struct {
	cfg      *rest.Config
	sessions tls.ClientSessionCache
}

// RoundTrip is http.RoundTripper's.
func (o *outliving) RoundTrip(r *http.Request) (*http.Response, error) {
	var request bytes.Buffer
	r = r.Clone(r.Context())
	r.Close = true
	if err := r.Write(&request); err != nil {
		return nil, err
	}
	conn, err := o.connect(r.Context(), r.URL)
	if err != nil {
		return nil, err
	}
	left := context.AfterFunc(r.Context(), func() { conn.Close() })
	end := func() error {
		left()
		return conn.Close()
	}
	err = conn.send(request.Bytes(), []byte("\r\n"))
	var answer *http.Response
	if err == nil {
		answer, err = http.ReadResponse(bufio.NewReader(conn), r)
	}
	if err != nil {
		end()
		if why := context.Cause(r.Context()); why != nil {
			err = why
		}
		return nil, err
	}
	answer.Body = &lastRead{answer.Body, end}
	return answer, nil
}

// connect reads the certificates anew each time: they may have been renewed.
func (o *outliving) connect(ctx context.Context, to *url.URL) (*connection, error) {
	secure, err := rest.TLSConfigFor(o.cfg)
	if err != nil {
		return nil, err
	}
	if secure = secure.Clone(); secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secure.NextProtos, secure.ClientSessionCache = []string{"http/1.1"}, o.sessions // a stream of HTTP/2 is told of its end
	if secure.ServerName == "" {
		secure.ServerName = to.Hostname()
	}
	dial := o.cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	port := to.Port()
	if port == "" {
		port = "443"
	}
	ctx, end := context.WithTimeout(ctx, unheard)
	defer end()
	under, err := dial(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return nil, err
	}
	held := &holding{Conn: under}
	c := &connection{tls.Client(held, secure), held}
	if err := errors.Join(c.HandshakeContext(ctx), under.SetDeadline(time.Now().Add(unheard))); err != nil {
		under.Close()
		return nil, err
	}
	return c, nil
}

type connection struct {
	*tls.Conn
	under *holding
}

// send sends each part as a record of its own, which an API server reads one at a time, and all at once, so that none stays behind.
func (c *connection) send(parts ...[]byte) error {
	c.under.held = &bytes.Buffer{}
	for _, p := range parts {
		if _, err := c.Write(p); err != nil {
			return err
		}
	}
	all := c.under.held.Bytes()
	c.under.held = nil
	_, err := c.under.Write(all)
	return err
}

// holding holds back what is written while held is there.
type holding struct {
	net.Conn
	held *bytes.Buffer
}

// Write is net.Conn's.
func (h *holding) Write(b []byte) (int, error) {
	if h.held != nil {
		return h.held.Write(b)
	}
	return h.Conn.Write(b)
}

// lastRead ends the connection with the answer.
type lastRead struct {
	io.ReadCloser
	end func() error
}

// Close is io.Closer's.
func (l *lastRead) Close() error {
	l.ReadCloser.Close()
	return l.end()
}
