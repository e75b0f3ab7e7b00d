package cli

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// way stands between the program and the API servers, and can interfere.
type way struct {
	kubeconfig string
	mu         sync.Mutex
	writes     []string
	requests   map[string][]string // by cluster
	// after is asked after every write that an API server has answered, with their number, before the answer goes on.
	after func(n int)
	// change may change an answer.
	change func(cluster string, r *http.Response) error
}

// changing sets what changes answers from now on.
func (w *way) changing(change func(cluster string, r *http.Response) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change = change
}

// config is what the program reads.
func (e *environment) config(t *testing.T) *clientcmdapi.Config {
	t.Helper()
	config, err := (&clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(e.kubeconfig)}).Load()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// through makes a way to the clusters, until the test ends.
func (e *environment) through(t *testing.T, names ...string) *way {
	t.Helper()
	w := &way{kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), requests: map[string][]string{}}
	own := e.config(t)
	all := clientcmdapi.NewConfig()
	for _, name := range names {
		target, err := url.Parse(own.Clusters[name].Server)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(target)
		// The API server's certificate is its own authority; the test knows whom it speaks to.
		proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: true}
		proxy.ModifyResponse = func(r *http.Response) error {
			w.mu.Lock()
			change := w.change
			w.mu.Unlock()
			if change != nil {
				if err := change(name, r); err != nil {
					return err
				}
			}
			w.count(r.Request)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.requests[name] = append(w.requests[name], r.Request.Method+" "+r.Request.URL.Path)
			return nil
		}
		server := httptest.NewTLSServer(proxy)
		t.Cleanup(server.Close)
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		all.Clusters[name] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: authority}
		all.AuthInfos[name] = own.AuthInfos[name]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	if err := clientcmd.WriteToFile(*all, w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return w
}

// written returns what has changed something so far.
func (w *way) written() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.writes)
}

// count counts what changes something: no questions about rights, and no dry runs.
func (w *way) count(r *http.Request) {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/authorization.k8s.io/") ||
		r.URL.Query().Get("dryRun") != "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, r.Method+" "+r.URL.Path)
	if w.after != nil {
		w.after(len(w.writes))
	}
}
