package kube

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"k8s.io/apimachinery/pkg/util/validation"
	_ "k8s.io/client-go/plugin/pkg/client/auth/oidc" // kubeconfigs may name it, as with the kubernetes plugin
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config selects an API server, and what to watch there. Two Configs that are equal, down to the content of the files
// that they name, share one Watch (L4).
type Config struct {
	Kubeconfig, Context           string // no Kubeconfig and no Endpoint: in-cluster
	Endpoint                      string // URL of the API server
	TLSCert, TLSKey, TLSCA        string // files, with Endpoint
	Namespaces                    []string
	NamespaceLabels               string // label selector, as labels.Selector.String returns it
	Labels                        string // the same, of ServiceImports; imported slices do not inherit labels
	NoEndpoints, EndpointPodNames bool
	Topology                      catalog.Topology
}

// selection returns c without what only decides how objects are answered.
func (c Config) selection() Config {
	c.NoEndpoints, c.EndpointPodNames, c.Topology = false, false, catalog.Topology{}
	return c
}

// Check validates c, but for its label selectors, without a request to the API server.
func (c Config) Check() error {
	for _, ns := range c.Namespaces {
		if wrong := validation.IsDNS1123Label(ns); wrong != nil {
			return fmt.Errorf("namespaces: '%s' cannot be a namespace: %s", ns, wrong[0])
		}
	}
	if c.Kubeconfig == "" && c.Endpoint == "" {
		return nil // in-cluster: the Pod's credentials are checked at start
	}
	cfg, err := c.rest()
	if err != nil {
		return err
	}
	return checkTLS(cfg)
}

func checkTLS(cfg *rest.Config) error {
	cert, key := cfg.CertFile, cfg.KeyFile
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return fmt.Errorf("cannot use the TLS settings for API server %s: %w", cfg.Host, err)
	}
	if len(cfg.CertData)+len(cfg.KeyData) > 0 {
		if _, err := tls.X509KeyPair(cfg.CertData, cfg.KeyData); err != nil {
			return fmt.Errorf("cannot use client certificate '%s' with key '%s': %w", cert, key, err)
		}
	}
	if _, err := rest.TLSConfigFor(cfg); err != nil {
		return fmt.Errorf("cannot use the TLS settings for API server %s: %w", cfg.Host, err)
	}
	return nil
}

// rest makes the client's configuration.
func (c Config) rest() (*rest.Config, error) {
	cfg, err := c.credentials()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // a few watches, whose retries are paced
	// Compression saves little: watches are not compressed, and lists come at start, when CPU is scarce.
	cfg.DisableCompression = true
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.NegotiatedSerializer = codecs
	return cfg, nil
}

func (c Config) credentials() (*rest.Config, error) {
	switch {
	case c.Kubeconfig != "":
		raw, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}).Load()
		if err != nil {
			return nil, fmt.Errorf("cannot load kubeconfig %s: %w", c.Kubeconfig, err)
		}
		if c.Context != "" {
			raw.CurrentContext = c.Context
		}
		if raw.CurrentContext == "" {
			return nil, fmt.Errorf("kubeconfig %s has no current-context: name a context", c.Kubeconfig)
		}
		cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, raw.CurrentContext, nil, nil).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("cannot use context '%s' of kubeconfig %s: %w",
				raw.CurrentContext, c.Kubeconfig, err)
		}
		return cfg, nil
	case c.Endpoint != "":
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" {
			return nil, fmt.Errorf("endpoint '%s' is not a URL such as https://10.0.0.1:6443", c.Endpoint)
		}
		files := rest.TLSClientConfig{CertFile: c.TLSCert, KeyFile: c.TLSKey, CAFile: c.TLSCA}
		return &rest.Config{Host: c.Endpoint, TLSClientConfig: files}, nil
	}
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("not in a cluster: set kubeconfig, or run in a pod")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot use the pod's ServiceAccount; "+
			"is its token mounted (automountServiceAccountToken)? %w", err)
	}
	return cfg, nil
}

// Fingerprint returns a hash of c in which credentials replace the files that they come from. A token file counts by
// its path, because its content is replaced every hour.
func (c Config) Fingerprint() (string, error) {
	cfg, err := c.credentials()
	if err != nil {
		return "", err
	}
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return "", fmt.Errorf("cannot read the TLS settings for API server %s: %w", cfg.Host, err)
	}
	token := cfg.BearerToken
	if cfg.BearerTokenFile != "" {
		token = cfg.BearerTokenFile
	}
	proxy := ""
	if cfg.Proxy != nil { // that of a kubeconfig does not depend on the request
		if u, err := cfg.Proxy(&http.Request{URL: &url.URL{Scheme: "https"}}); err == nil && u != nil {
			proxy = u.String()
		}
	}
	c.Kubeconfig, c.Context, c.TLSCert, c.TLSKey, c.TLSCA = "", "", "", "", ""
	c.Namespaces = slices.Compact(slices.Sorted(slices.Values(c.Namespaces)))
	all, err := json.Marshal([]any{
		c, cfg.Host, cfg.Username, cfg.Password, token, proxy, cfg.Impersonate, cfg.ExecProvider, cfg.AuthProvider,
		cfg.Insecure, cfg.ServerName, cfg.CAData, cfg.CertData, cfg.KeyData,
	})
	if err != nil {
		return "", fmt.Errorf("cannot compare this configuration with others: %w", err)
	}
	sum := sha256.Sum256(all)
	return string(sum[:]), nil
}
