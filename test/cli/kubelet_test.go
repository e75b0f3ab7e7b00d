package cli

import (
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// nodes has the clusters run what is deployed in them, until the test ends.
func (e *environment) nodes(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		e.node(t, name)
	}
}

func (e *environment) node(t *testing.T, name string) *lab.Kubelet {
	t.Helper()
	k, err := lab.StartKubelet(e.planes[name])
	if err != nil {
		t.Fatal(err)
	}
	e.kubelets[name] = k
	t.Cleanup(k.Stop)
	return k
}
