package agent

import (
	"errors"
	"net/http"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"
)

// TestTheHubHasMoved by what its kubeconfig says of the way there; client-go reads a token's file
// anew, and what cannot be read is no reason.
func TestTheHubHasMoved(t *testing.T) {
	is := func() *rest.Config {
		return &rest.Config{
			Host:            "https://a",
			BearerToken:     "1",
			TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")},
		}
	}
	var now *rest.Config
	a := &Agent{hub: func() (*rest.Config, error) {
		if now == nil {
			return nil, errors.New("it is being written")
		}
		return now, nil
	}}
	if now = is(); a.newAccess() != nil {
		t.Error("before it was tried")
	}
	a.access.Store(accessOf(is()))
	for what, c := range map[string]struct {
		change func(*rest.Config)
		moved  bool
	}{
		"nothing":   {func(*rest.Config) {}, false},
		"token":     {func(c *rest.Config) { c.BearerToken = "2" }, true}, // as where an old one worked for a moment after the member had left
		"address":   {func(c *rest.Config) { c.Host = "https://b" }, true},
		"authority": {func(c *rest.Config) { c.CAData = []byte("y") }, true},
		"key":       {func(c *rest.Config) { c.KeyData = []byte("k") }, true},
		"cert":      {func(c *rest.Config) { c.CertData = []byte("c") }, true},
		"name":      {func(c *rest.Config) { c.ServerName = "hub" }, true},
		"proxy":     {func(c *rest.Config) { c.Proxy = http.ProxyURL(&url.URL{Host: "proxy"}) }, true},
	} {
		now = is()
		if c.change(now); (a.newAccess() != nil) != c.moved {
			t.Errorf("%s: moved is %v", what, !c.moved)
		}
	}
	now = is()
	now.BearerTokenFile = "token"
	a.access.Store(accessOf(now))
	if now.BearerToken = "2"; a.newAccess() != nil {
		t.Error("by a token that is read from its file")
	}
	if now = nil; a.newAccess() != nil {
		t.Error("unread")
	}
}
