package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestV4ARequestOutlivesItsClient: an API server sees the end of a usual client that leaves while it is at work, and never that of one that left
// before, whether it had read the request or not.
func TestV4ARequestOutlivesItsClient(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.3": tls.VersionTLS13, "TLS 1.2": tls.VersionTLS12} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, read late: %t", name, late), func(t *testing.T) {
				began, seen, read, release, ask := make(chan bool), make(chan bool), make(chan error), make(chan bool), make(chan bool)
				done := make(chan error, 1)
				cfg, options := answers(t, &tls.Config{MaxVersion: version}, func(w http.ResponseWriter, r *http.Request) {
					if strings.Contains(r.URL.Path, "/usual/") {
						io.Copy(io.Discard, r.Body)
						began <- true
						<-r.Context().Done()
						seen <- true
						return
					}
					if late {
						began <- true
						<-release
					}
					_, err := io.Copy(io.Discard, r.Body)
					if !late {
						began <- true
						<-release
					}
					read <- err
					<-ask
					done <- r.Context().Err()
				})
				lasting, err := Outliving(cfg, options)
				if err != nil {
					t.Fatal(err)
				}
				usual, err := client.New(cfg, options)
				if err != nil {
					t.Fatal(err)
				}
				leave := func(c client.Client, namespace string) {
					ctx, end := context.WithCancel(t.Context())
					left := make(chan error)
					go func() { left <- c.Create(ctx, service(namespace, 20_000)) }()
					select {
					case <-began:
					case err := <-left:
						t.Fatalf("%s: %v", namespace, err)
					}
					end()
					if err := <-left; !errors.Is(err, context.Canceled) {
						t.Errorf("%s: %v", namespace, err)
					}
				}
				sees := func() {
					leave(usual, "usual")
					select {
					case <-seen:
					case <-time.After(time.Minute):
						t.Fatal("the API server does not see that its client left: this test shows nothing")
					}
				}
				leave(lasting, "lasting")
				sees()
				close(release)
				if err := <-read; err != nil {
					t.Errorf("the request is not whole: %v", err)
				}
				sees()
				close(ask)
				if err := <-done; err != nil {
					t.Errorf("what was to be carried out to its end: %v", err)
				}
			})
		}
	}
}

// TestOutlivingIsAnyClientBesides: what client-go's transport does, but for one connection to a request.
func TestOutlivingIsAnyClientBesides(t *testing.T) {
	lasting := func(t *testing.T, cfg *rest.Config, options client.Options) client.Client {
		c, err := Outliving(cfg, options)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("requests one after another, each the last of its connection", func(t *testing.T) {
		was, closed := "", make(chan string, 10)
		api := server(t, &tls.Config{}, func(w http.ResponseWriter, r *http.Request) {
			was = fmt.Sprintln(r.Proto, r.Method, r.Close, r.Header.Get("Authorization"), r.UserAgent())
			w.WriteHeader(http.StatusEarlyHints)
			made(w, r)
		})
		api.Config.ConnState = func(c net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				closed <- c.RemoteAddr().String()
			}
		}
		cfg, options := to(api)
		dials := 0
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials++
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		c := lasting(t, cfg, options)
		for range 3 {
			svc := service("shop", 1)
			if err := c.Create(t.Context(), svc); err != nil || svc.UID != "made" {
				t.Errorf("%v: %s", err, svc.UID)
			}
			if want := fmt.Sprintln("HTTP/1.1", "POST", true, "Bearer secret", rest.DefaultKubernetesUserAgent()); was != want {
				t.Errorf("the API server saw %s, not %s", was, want)
			}
			<-closed
		}
		if dials != 3 || cfg.UserAgent != "" {
			t.Errorf("%d dials of the caller's, whose User-Agent is %q now", dials, cfg.UserAgent)
		}
	})
	t.Run("a server of another CA or name is refused", func(t *testing.T) {
		cfg, options := answers(t, &tls.Config{}, made)
		cfg.ServerName = "elsewhere.test"
		if err := lasting(t, cfg, options).Create(t.Context(), service("shop", 1)); !errors.As(err, new(x509.HostnameError)) {
			t.Errorf("%v", err)
		}
		cfg.ServerName, cfg.CAData = "", certificate(t, t.TempDir(), "another")
		if err := lasting(t, cfg, options).Create(t.Context(), service("shop", 1)); !errors.As(err, new(x509.UnknownAuthorityError)) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a renewed certificate is shown", func(t *testing.T) {
		shown := ""
		cfg, options := answers(t, &tls.Config{ClientAuth: tls.RequestClientCert}, func(w http.ResponseWriter, r *http.Request) {
			shown = r.TLS.PeerCertificates[0].Subject.CommonName
			made(w, r)
		})
		dir := t.TempDir()
		cfg.CertFile, cfg.KeyFile = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
		certificate(t, dir, "old")
		c := lasting(t, cfg, options)
		for _, name := range []string{"old", "new"} {
			certificate(t, dir, name)
			if err := c.Create(t.Context(), service("shop", 1)); err != nil || shown != name {
				t.Errorf("%s is shown, not %s: %v", shown, name, err)
			}
		}
	})
	t.Run("a session is gone on with", func(t *testing.T) {
		resumed := 0
		cfg, options := answers(t, &tls.Config{}, func(w http.ResponseWriter, r *http.Request) {
			if r.TLS.DidResume {
				resumed++
			}
			made(w, r)
		})
		c := lasting(t, cfg, options)
		for range 3 {
			if err := c.Create(t.Context(), service("shop", 1)); err != nil {
				t.Error(err)
			}
		}
		if resumed != 2 {
			t.Errorf("%d of 2", resumed)
		}
	})
	t.Run("a proxy, a Transport and plain HTTP are used", func(t *testing.T) {
		cfg, options := answers(t, &tls.Config{}, made)
		asked := ""
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.Host
			w.WriteHeader(http.StatusBadGateway)
		}))
		t.Cleanup(proxy.Close)
		through, behind := *cfg, *cfg
		by, err := url.Parse(proxy.URL)
		if err != nil {
			t.Fatal(err)
		}
		through.Proxy = http.ProxyURL(by)
		err = lasting(t, &through, options).Create(t.Context(), service("shop", 1))
		if want := "CONNECT " + strings.TrimPrefix(cfg.Host, "https://"); err == nil || asked != want {
			t.Errorf("%v; the proxy was asked to %s, not to %s", err, asked, want)
		}
		behind.TLSClientConfig = rest.TLSClientConfig{}
		behind.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("asked") })
		if err := lasting(t, &behind, options).Create(t.Context(), service("shop", 1)); err == nil || !strings.HasSuffix(err.Error(), "asked") {
			t.Errorf("%v", err)
		}
		to, err := url.Parse(cfg.Host)
		if err != nil {
			t.Fatal(err)
		}
		forward := httputil.NewSingleHostReverseProxy(to)
		if forward.Transport, err = rest.TransportFor(cfg); err != nil {
			t.Fatal(err)
		}
		plain := httptest.NewServer(forward)
		t.Cleanup(plain.Close)
		if err := lasting(t, &rest.Config{Host: plain.URL, ContentConfig: cfg.ContentConfig}, options).Create(t.Context(), service("shop", 1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("time that is over is said as such, wherever it ends", func(t *testing.T) {
		for _, where := range []string{"handshake", "answer", "body"} {
			over := make(chan bool)
			cfg, options := answers(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				if where == "handshake" {
					<-over
				}
				return nil, nil
			}}, func(w http.ResponseWriter, _ *http.Request) {
				if where == "body" {
					io.WriteString(w, "{")
					http.NewResponseController(w).Flush()
				}
				<-over
			})
			ctx, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
			if err := lasting(t, cfg, options).Create(ctx, service("shop", 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", where, err)
			}
			end()
			cfg.Timeout = 300 * time.Millisecond
			if err := lasting(t, cfg, options).Create(t.Context(), service("shop", 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", where, err)
			}
			close(over)
		}
	})
	t.Run("who leaves an answer does not wait for its rest", func(t *testing.T) {
		over := make(chan bool)
		cfg, _ := answers(t, &tls.Config{}, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "{")
			http.NewResponseController(w).Flush()
			<-over
		})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&outliving{cfg: cfg}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close() // for ever
		close(over)
	})
}

// server is an API server that answers so.
func server(t *testing.T, secure *tls.Config, handler http.HandlerFunc) *httptest.Server {
	api := httptest.NewUnstartedServer(handler)
	api.EnableHTTP2, api.TLS = true, secure
	t.Cleanup(api.Close)
	return api
}

// to is how an API server that is to start is asked for Services.
func to(api *httptest.Server) (*rest.Config, client.Options) {
	api.StartTLS()
	cfg := &rest.Config{Host: api.URL, BearerToken: "secret"}
	cfg.ContentType = "application/json"
	cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	return cfg, client.Options{Scheme: scheme.Scheme, Mapper: mapper}
}

func answers(t *testing.T, secure *tls.Config, handler http.HandlerFunc) (*rest.Config, client.Options) {
	return to(server(t, secure, handler))
}

// made answers with the Service of the request.
func made(w http.ResponseWriter, r *http.Request) {
	svc := &corev1.Service{}
	if err := json.NewDecoder(r.Body).Decode(svc); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	svc.UID = "made"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(svc)
}

// service is one that takes size octets and more.
func service(namespace string, size int) *corev1.Service {
	return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "web", Annotations: map[string]string{"text": strings.Repeat("a", size)},
	}}
}

// certificate writes a client's into crt and key of dir.
func certificate(t *testing.T, dir, name string) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	crt, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	shown := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: crt})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "crt"), shown, 0o600),
		os.WriteFile(filepath.Join(dir, "key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return shown
}
