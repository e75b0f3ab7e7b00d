package inventory

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// program is clusterset-controller hub of one clusterset, with its own ServiceAccount.
type program struct {
	*lab.Controller
	namespace string
}

// run starts it, and returns when it is at work.
func (e *environment) run(ctx context.Context, namespace string) (*program, error) {
	kubeconfig, err := e.cp.ServiceAccountKubeconfig(ctx, "clusterset-system", "clusterset-hub", nil)
	if err != nil {
		return nil, err
	}
	hub, err := lab.StartHub(ctx, filepath.Join(e.root, "bin/clusterset-controller"), kubeconfig, namespace)
	if err != nil {
		return nil, err
	}
	p := &program{hub, namespace}
	if err := p.works(ctx); err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// again starts it after Kill.
func (p *program) again(ctx context.Context) error {
	if err := p.Start(ctx); err != nil {
		return err
	}
	return p.works(ctx)
}

// works waits until its controllers run, for which it must lead.
func (p *program) works(ctx context.Context) error {
	if err := p.UntilReady(ctx); err != nil {
		return err
	}
	return until(ctx, func() error {
		if !strings.Contains(p.Metrics(), "clusterset_hub_members") {
			return fmt.Errorf("its controllers do not run:\n%s", p.Log())
		}
		return nil
	})
}

func (p *program) shows(t *testing.T, metric string) string {
	t.Helper()
	text := p.Metrics()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, metric) {
			return strings.TrimSpace(line[len(metric):])
		}
	}
	t.Fatalf("there is no metric %s in\n%s", metric, text)
	return ""
}
