package ui

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
)

// served starts a server on loopback, and returns the address that it printed.
func served(t *testing.T, s *Server) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	done := make(chan error)
	go func() { done <- s.Serve(ctx, in) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(line[:n]))
}

// get sends a request as a browser would, without following a redirect.
func get(t *testing.T, method, url string, change func(r *http.Request)) (*http.Response, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a stream of events has no end
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return resp, string(body)
}

func one(t *testing.T) *Server {
	w := check.See(shop(t), nil)
	return &Server{Read: func(context.Context) (*check.World, error) { return w, nil }}
}

// TestWhoIsNotTheUsersBrowserGetsNothing: no token, a used one, another page's requests, another host's name, a write.
func TestWhoIsNotTheUsersBrowserGetsNothing(t *testing.T) {
	address := served(t, one(t))
	base := address[:strings.Index(address, "/?")]
	as := func(*http.Request) {}
	refused := func(what, method, url string, change func(*http.Request), want int) {
		t.Helper()
		resp, body := get(t, method, url, change)
		if resp.StatusCode != want || strings.Contains(body, "shop") || strings.Contains(body, "<") ||
			len(resp.Cookies()) > 0 {
			t.Errorf("%s: %d %s", what, resp.StatusCode, body)
		}
	}
	paths := []string{"/", "/app.js", "/style.css", "/events", "/explain?name=web.shop", "/none", "/?token="}
	for _, path := range paths {
		refused("without a session, "+path, http.MethodGet, base+path, as, 403)
	}
	refused("a wrong token", http.MethodGet, address+"x", as, 403)
	refused("the token, by another page", http.MethodGet, address,
		func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403)
	resp, _ := get(t, http.MethodGet, address, as)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/" || len(resp.Cookies()) != 1 {
		t.Fatalf("the token: %d %v", resp.StatusCode, resp.Header)
	}
	cookie := resp.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || strings.Contains(address, cookie.Value) {
		t.Errorf("the cookie is %s", cookie.Raw)
	}
	refused("the token again", http.MethodGet, address, as, 403)
	session := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value}) }
	with := func(header, value string) func(*http.Request) {
		return func(r *http.Request) {
			session(r)
			r.Header.Set(header, value)
		}
	}
	for _, path := range paths[:5] {
		for _, origin := range []string{"null", "https://evil.example", "http://127.0.0.1:1", base + "0", "http://localhost"} {
			refused("from "+origin+", "+path, http.MethodGet, base+path, with("Origin", origin), 403)
		}
		for _, site := range []string{"cross-site", "same-site"} {
			refused(site+", "+path, http.MethodGet, base+path, with("Sec-Fetch-Site", site), 403)
		}
		for _, host := range []string{"evil.example", "localhost" + base[strings.LastIndex(base, ":"):], "127.0.0.1"} {
			refused("host "+host+", "+path, http.MethodGet, base+path, func(r *http.Request) {
				session(r)
				r.Host = host
			}, 403)
		}
	}
	refused("a session of another", http.MethodGet, base+"/", func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: cookie.Name, Value: "x" + cookie.Value[1:]})
	}, 403)
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		refused(method, method, base+"/explain?name=web.shop", session, 405)
	}
	resp, body := get(t, http.MethodGet, base+"/", with("Sec-Fetch-Site", "same-origin"))
	if resp.StatusCode != 200 || !strings.Contains(body, "<html") {
		t.Errorf("the page: %d %s", resp.StatusCode, body)
	}
	for header, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
			"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := resp.Header.Get(header); got != want {
			t.Errorf("%s is %q, want %q", header, got, want)
		}
	}
	if resp, body := get(t, http.MethodGet, base+"/explain?name=web.shop", session); resp.StatusCode != 200 ||
		!strings.Contains(body, `"web.shop.svc.clusterset.local"`) {
		t.Errorf("explain: %d %s", resp.StatusCode, body)
	}
}

// TestAViewIsSentWhenItChanges, and else only that it is up to date, or why it is not.
func TestAViewIsSentWhenItChanges(t *testing.T) {
	s := one(t)
	well := s.Read
	var empty, broken atomic.Bool
	s.Every = time.Millisecond
	s.Read = func(ctx context.Context) (*check.World, error) {
		if broken.Load() {
			return nil, errors.New("the hub: no answer, token: abcdefgh")
		}
		w, err := well(ctx)
		if empty.Load() {
			w = check.See(hub("east"), nil)
		}
		return w, err
	}
	address := served(t, s)
	resp, _ := get(t, http.MethodGet, address, func(*http.Request) {})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address[:strings.Index(address, "/?")]+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(resp.Cookies()[0])
	stream, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	buffer := ""
	next := func(want ...string) { // the next event has this; pulses that lack it are skipped
		t.Helper()
		for {
			for !strings.Contains(buffer, "\n\n") {
				some := make([]byte, 64<<10)
				n, err := stream.Body.Read(some)
				if err != nil {
					t.Fatalf("waiting for %q: %v", want, err)
				}
				buffer += string(some[:n])
			}
			var event string
			event, buffer, _ = strings.Cut(buffer, "\n\n")
			lacks := slices.IndexFunc(want, func(w string) bool { return !strings.Contains(event, w) })
			if lacks < 0 {
				return
			}
			if !strings.Contains(event, "event: pulse\n") {
				t.Fatalf("no %q in %.300s", want[lacks], event)
			}
		}
	}
	next("event: view\n", `"web.shop"`)
	next("event: pulse\n", `"at":"2026-01-02T03:04:05Z"`)
	next("event: pulse\n")
	broken.Store(true)
	next("event: pulse\n", `"error":"the hub: no answer, token: REDACTED"`)
	broken.Store(false)
	empty.Store(true)
	next("event: view\n", `"names":[]`)
}
