package kube

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
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
// empty line behind the request is such a byte. A client must not send one (RFC 9112 2.2); it does no harm behind a request that is the last of
// its connection, where nobody reads what follows. Where a proxy or a Transport of somebody's is in between, or no TLS, the client is like any
// other. Each request has its own connection, for as long as its context lasts.
func Outliving(cfg *rest.Config, options client.Options) (client.Client, error) {
	if cfg.Transport != nil {
		return client.New(cfg, options)
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	}
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

type outliving struct {
	cfg      *rest.Config
	sessions tls.ClientSessionCache
}

// RoundTrip is http.RoundTripper's.
func (o *outliving) RoundTrip(r *http.Request) (*http.Response, error) {
	var request bytes.Buffer
	r = r.Clone(r.Context())
	r.Close = true // or the empty line would be read as the next request
	if err := r.Write(&request); err != nil {
		return nil, err
	}
	conn, err := o.connect(r.Context(), r.URL)
	if err != nil {
		return nil, cause(r.Context(), err)
	}
	left := context.AfterFunc(r.Context(), func() { conn.under.Close() }) // and not conn, which would write
	end := func() error {
		left()
		return conn.Close()
	}
	err = conn.send(request.Bytes(), []byte("\r\n"))
	var answer *http.Response
	for from := bufio.NewReader(conn); err == nil && (answer == nil || answer.StatusCode < http.StatusOK); { // as those that announce another
		answer, err = http.ReadResponse(from, r)
	}
	if err != nil {
		end()
		return nil, cause(r.Context(), err)
	}
	answer.Body = &lastRead{answer.Body, r.Context(), end}
	return answer, nil
}

// cause is what ended the context, which is why err, or else err.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil {
		return why
	}
	return err
}

// connect reads the certificates anew each time: they may have been renewed. A session that is resumed would go on with the client's old one.
func (o *outliving) connect(ctx context.Context, to *url.URL) (*connection, error) {
	secure, err := rest.TLSConfigFor(o.cfg)
	if err != nil {
		return nil, err
	}
	if secure = secure.Clone(); secure == nil {
		secure = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	secure.NextProtos = []string{"http/1.1"} // a stream of HTTP/2 is told of its end
	if secure.GetClientCertificate == nil {
		secure.ClientSessionCache = o.sessions
	}
	if secure.ServerName == "" {
		secure.ServerName = to.Hostname()
	}
	dial := o.cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second}).DialContext // as client-go's
	}
	port := to.Port()
	if port == "" {
		port = "443"
	}
	under, err := dial(ctx, "tcp", net.JoinHostPort(to.Hostname(), port))
	if err != nil {
		return nil, err
	}
	held := &holding{Conn: under}
	c := &connection{tls.Client(held, secure), held}
	if err := c.HandshakeContext(ctx); err != nil {
		under.Close()
		return nil, err
	}
	return c, nil
}

type connection struct {
	*tls.Conn
	under *holding
}

// send sends the parts, none of which shares a record with another: an API server's TLS reads them one at a time. All go at once, so that none
// stays behind.
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
	ctx context.Context
	end func() error
}

// Read is io.Reader's.
func (l *lastRead) Read(into []byte) (int, error) {
	n, err := l.ReadCloser.Read(into)
	if err != nil && err != io.EOF {
		err = cause(l.ctx, err)
	}
	return n, err
}

// Close is io.Closer's.
func (l *lastRead) Close() error {
	err := l.end() // first: the body would wait for its rest
	l.ReadCloser.Close()
	return err
}
