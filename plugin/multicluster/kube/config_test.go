package kube

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	certutil "k8s.io/client-go/util/cert"
)

const kubeconfigText = `apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u}}
- {name: two, context: {cluster: d, user: u}}
- {name: broken, context: {cluster: nowhere, user: u}}
clusters:
- {name: c, cluster: {server: "https://127.0.0.1:6443"}}
- {name: d, cluster: {server: "https://127.0.0.1:6444"}}
users:
- {name: u, user: {token: secret}}
`

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckSaysWhatToDo(t *testing.T) {
	good := file(t, "kubeconfig", kubeconfigText)
	empty := file(t, "empty", "apiVersion: v1\nkind: Config\n")
	noYAML := file(t, "text", "{[")
	for want, c := range map[string]Config{
		"":  {},
		" ": {Kubeconfig: good},
		"  ": {
			Kubeconfig: good, Context: "two", Labels: "a=b,c in (d, e)", Namespaces: []string{"test"},
		},
		"cannot load kubeconfig":    {Kubeconfig: "/nowhere/kubeconfig"},
		"cannot load":               {Kubeconfig: noYAML},
		"no current-context: name":  {Kubeconfig: empty},
		"use context 'three'":       {Kubeconfig: good, Context: "three"},
		"use context 'broken'":      {Kubeconfig: good, Context: "broken"},
		"cannot be a namespace":     {Namespaces: []string{"no_name"}},
		"is not a URL such as":      {Endpoint: "10.0.0.1:6443"},
		"cannot use client certifi": {Endpoint: "https://127.0.0.1:1", TLSCert: good, TLSKey: good},
		"cannot use the TLS":        {Endpoint: "https://127.0.0.1:1", TLSCA: "/nowhere/ca.crt"},
	} {
		err := c.Check()
		if strings.TrimSpace(want) == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want it to say %q", c, err, want)
		}
	}
}

// TestACertificateMayBeAFileAndItsKeyInline, as kubeconfigs may have them.
func TestACertificateMayBeAFileAndItsKeyInline(t *testing.T) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("client", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []bool{false, true} {
		inline := key
		if wrong {
			inline = cert
		}
		user := fmt.Sprintf("client-certificate: %s, client-key-data: %s", file(t, "cert", string(cert)),
			base64.StdEncoding.EncodeToString(inline))
		text := strings.Replace(kubeconfigText, "token: secret", user, 1)
		if err := (Config{Kubeconfig: file(t, "kubeconfig", text)}).Check(); (err != nil) != wrong {
			t.Error(err)
		}
	}
}

func TestOutsideOfAClusterIsAnError(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := Open(Config{}); err == nil || !strings.Contains(err.Error(), "set kubeconfig, or run in a pod") {
		t.Error(err)
	}
	if len(watches.All()) != 0 {
		t.Error("a Watch that could not start is open")
	}
}

// TestSourcesAreToldApartByContent is L4: stores are shared by the content of credentials, context and selectors.
func TestSourcesAreToldApartByContent(t *testing.T) {
	ca, sameCA, otherCA := file(t, "ca", "certificate"), file(t, "copy", "certificate"), file(t, "other", "another")
	named := strings.Replace(kubeconfigText, `6443"`, `6443", certificate-authority: ca`, 1)
	dir := t.TempDir()
	relative := filepath.Join(dir, "config")
	write(t, relative, named)
	write(t, filepath.Join(dir, "ca"), "certificate")
	first := Config{Kubeconfig: file(t, "a", kubeconfigText), Namespaces: []string{"a", "b"}, Labels: "x=y"}
	same := Config{
		Kubeconfig: file(t, "b", kubeconfigText),
		Namespaces: []string{"b", "a", "b"},
		Labels:     "x=y",
		Context:    "one",
	}
	if print(t, first) != print(t, same) {
		t.Error("the same content in another file, and the same selection in another order, is another source")
	}
	seen := map[string]string{}
	for name, c := range map[string]Config{
		"first": first,
		"context": {
			Kubeconfig: first.Kubeconfig, Context: "two", Namespaces: first.Namespaces, Labels: first.Labels,
		},
		"token": {
			Kubeconfig: file(t, "c", strings.Replace(kubeconfigText, "secret", "other", 1)),
			Namespaces: first.Namespaces, Labels: first.Labels,
		},
		"selector":     {Kubeconfig: first.Kubeconfig, Namespaces: first.Namespaces},
		"namespaces":   {Kubeconfig: first.Kubeconfig, Labels: first.Labels},
		"noendpoints":  {Kubeconfig: first.Kubeconfig, NoEndpoints: true},
		"local":        {Kubeconfig: first.Kubeconfig, Topology: catalog.Topology{Cluster: "eu"}},
		"local subset": {Kubeconfig: first.Kubeconfig, Topology: catalog.Topology{Cluster: "eu", ClusterOnly: true}},
		"zone":         {Kubeconfig: first.Kubeconfig, Topology: catalog.Topology{Zone: "eu"}},
		"zonal":        {Kubeconfig: first.Kubeconfig, Topology: catalog.Topology{Zonal: true}},
		"pod names":    {Kubeconfig: first.Kubeconfig, EndpointPodNames: true},
		"named CA":     {Kubeconfig: relative},
		"endpoint":     {Endpoint: "https://127.0.0.1:1", TLSCA: ca},
		"endpoint key": {Endpoint: "https://127.0.0.1:1", TLSKey: ca},
		"other CA":     {Endpoint: "https://127.0.0.1:1", TLSCA: otherCA},
	} {
		p := print(t, c)
		if other, there := seen[p]; there {
			t.Errorf("%s and %s are one source", name, other)
		}
		seen[p] = name
	}
	if print(
		t,
		Config{Endpoint: "https://127.0.0.1:1", TLSCA: sameCA},
	) != print(
		t,
		Config{Endpoint: "https://127.0.0.1:1", TLSCA: ca},
	) {
		t.Error("the same CA in another file is another source")
	}
	before := print(t, Config{Kubeconfig: relative})
	write(t, filepath.Join(dir, "ca"), "another")
	if print(t, Config{Kubeconfig: relative}) == before {
		t.Error("another CA behind the same kubeconfig is the same source")
	}
	if _, err := (Config{Kubeconfig: "/nowhere"}).Fingerprint(); err == nil {
		t.Error("a kubeconfig that cannot be read is a source")
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func print(t *testing.T, c Config) string {
	t.Helper()
	p, err := c.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
