package ui

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
)

// idle times as long as a reading took, nothing is read: a large hub gets some rest.
const idle = 4

// Server serves the page to one browser: the one that opens the address that Serve prints. Each open page reads the
// clusters by itself, so that nothing is read while no page is open.
type Server struct {
	// Read returns what the page shows. One call runs at a time.
	Read func(ctx context.Context) (*check.World, error)
	// Every is the time between two calls of Read; 0 if nothing changes.
	Every time.Duration

	host, token, session string
	used                 atomic.Bool // the token
	mu                   sync.Mutex  // of Read and world
	world                *check.World
}

// Serve listens on loopback, prints the address, and serves until ctx is done.
func (s *Server) Serve(ctx context.Context, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening on loopback failed: %w", err)
	}
	s.prepare(listener.Addr().String())
	fmt.Fprintf(out, "http://%s/?token=%s\n", s.host, s.token)
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serving the page failed: %w", err)
	}
	return nil
}

func (s *Server) prepare(host string) { s.host, s.token, s.session = host, rand.Text(), rand.Text() }

// cookie returns the name of the session's cookie. Cookies are of a host, and not of one port of it.
func (s *Server) cookie() string {
	_, port, _ := net.SplitHostPort(s.host) // a listener's
	return "clusterset-ui-" + port
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP answers requests of the page alone. Another page may make the browser send requests here, by its own host
// name (DNS rebinding) or with this session's cookie from another port: Host, Origin and Sec-Fetch-Site show it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
	} {
		w.Header().Set(name, value)
	}
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	switch {
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "this page only reads", http.StatusMethodNotAllowed)
		return
	case r.Host != s.host || origin != "" && origin != "http://"+s.host || site == "cross-site" || site == "same-site":
		refuse(w)
		return
	case r.URL.Path == "/" && r.URL.Query().Has("token"):
		s.enter(w, r)
		return
	}
	if c, err := r.Cookie(s.cookie()); err != nil || !equal(c.Value, s.session) {
		refuse(w)
		return
	}
	text := func(name, kind string) {
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		_, _ = io.WriteString(w, file(name))
	}
	switch r.URL.Path {
	case "/":
		text("index.html", "text/html")
	case "/style.css":
		text("style.css", "text/css")
	case "/app.js":
		text("app.js", "text/javascript")
	case "/events":
		s.events(w, r)
	case "/explain":
		s.explain(w, r)
	default:
		http.NotFound(w, r)
	}
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

func refuse(w http.ResponseWriter) {
	http.Error(w, "Open the address that kubectl clusterset ui has printed. It works once: for another browser, run "+
		"the command again.", http.StatusForbidden)
}

// enter exchanges the token, once, for a cookie, so that it is in no address that a browser keeps open.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	if !equal(r.URL.Query().Get("token"), s.token) || !s.used.CompareAndSwap(false, true) {
		refuse(w)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: s.cookie(), Value: s.session, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// read returns what Read does, and keeps it for explain.
func (s *Server) read(ctx context.Context) (*check.World, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.Read(ctx)
	if err == nil {
		s.world = w
	}
	return w, err
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	world := s.world
	s.mu.Unlock()
	var err error
	if world == nil { // a page that was open before
		world, err = s.read(r.Context())
	}
	var out any
	if err == nil {
		out, err = Explain(world, r.URL.Query().Get("name"))
	}
	switch {
	case err != nil:
		http.Error(w, redacted(err.Error()), http.StatusInternalServerError)
	case out == nil:
		http.Error(w, "no such name", http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	}
}

// pulse says that the page is up to date as of a time, or why it is not.
type pulse struct {
	At    time.Time `json:"at,omitzero"` // by the hub's clock
	Error string    `json:"error,omitempty"`
}

// events sends a view when there is another one, and a pulse after each reading, until the page is closed.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(event string, data []byte) bool {
		_, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data) // JSON has no line break
		return err == nil && http.NewResponseController(w).Flush() == nil
	}
	var shown []byte
	s.Watch(r.Context(), func(world *check.World, err error) bool {
		p := pulse{}
		if err == nil {
			var view []byte
			if view, err = json.Marshal(Look(world, check.Run(world))); err == nil && !bytes.Equal(view, shown) {
				if !send("view", view) {
					return false
				}
				shown = view
			}
			p.At = world.Now()
		}
		if err != nil {
			p.Error = redacted(err.Error())
		}
		text, _ := json.Marshal(p) // a time and a text
		return send("pulse", text)
	})
}

// Watch calls show with what Read returns, and again when there may be something else, until show returns false or ctx
// is done.
func (s *Server) Watch(ctx context.Context, show func(*check.World, error) bool) {
	for {
		began := time.Now()
		world, err := s.read(ctx)
		if !show(world, err) || !s.wait(ctx, idle*time.Since(began)) {
			return
		}
	}
}

// wait returns after Every, at least after rest, or false when ctx is done.
func (s *Server) wait(ctx context.Context, rest time.Duration) bool {
	var again <-chan time.Time
	if s.Every > 0 {
		again = time.After(max(s.Every, rest))
	}
	select {
	case <-ctx.Done():
		return false
	case <-again:
		return true
	}
}
