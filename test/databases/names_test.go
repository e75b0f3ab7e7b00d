//go:build databases

package databases

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestCertificates makes the page's certificate, which must be good for the names of the page's table, signed by the
// authority, and for no other cluster.
func TestCertificates(t *testing.T) {
	w, dir := clusters(t), t.TempDir()
	cmd := exec.Command("bash", "-ec", readPage(t, "docs/databases.md").section(t, "TLS").blocks("sh"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+path, "KUBECONFIG="+w.clusters[0].Cluster.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	read := func(name string) *x509.Certificate {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	roots := x509.NewCertPool()
	roots.AddCert(read("ca.crt"))
	for name, good := range map[string]bool{
		"etcd-0.east.etcd.db.svc.clusterset.local":  true,
		"etcd-2.east.etcd.db.svc.clusterset.local":  true,
		"etcd.db.svc.clusterset.local":              true,
		"etcd-0.north.etcd.db.svc.clusterset.local": false,
	} {
		_, err := read("tls.crt").Verify(x509.VerifyOptions{
			Roots:     roots,
			DNSName:   name,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		})
		if (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// domainsOfClusters asks for a Pod by one domain per cluster, as the page's rewrite makes it, in every cluster.
func (p *played) domainsOfClusters() {
	p.Helper()
	for _, in := range p.w.clusters {
		for _, c := range p.w.clusters {
			name := p.name + "-0." + p.name + ".db.svc." + c.ID + ".clusters.internal"
			if got, err := in.lookup(p.ctx, name); err != nil || !slices.Equal(got, []string{p.address(c)}) {
				p.Errorf("%s in %s: %v, %v, want %s", name, in.ID, got, err, p.address(c))
			}
		}
	}
}
