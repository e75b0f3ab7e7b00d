package inventory

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// program is clusterset-controller hub of one clusterset, with its own ServiceAccount.
type program struct {
	namespace, kubeconfig string
	dir                   string
	probe, metrics        *lab.Port
	cmd                   *exec.Cmd
	leash                 io.Closer // the watchdog ends the program when this closes
}

func newProgram(kubeconfig, namespace string) (*program, error) {
	p := &program{namespace: namespace, kubeconfig: kubeconfig}
	var err error
	if p.dir, err = os.MkdirTemp("", "clusterset-lab-hub-"); err != nil {
		return nil, err
	}
	for _, port := range []**lab.Port{&p.probe, &p.metrics} {
		if *port, err = lab.ReservePort(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// start runs it, and returns when it is ready.
func (p *program) start(ctx context.Context) error {
	bin, err := lab.Find(ctx)
	if err != nil {
		return err
	}
	root, err := lab.Root()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	p.cmd = exec.Command(bin.Watchdog, "", filepath.Join(root, "bin/clusterset-controller"), "hub", "--kubeconfig", p.kubeconfig,
		"--hub-namespace", p.namespace, "--metrics-bind-address", p.metrics.Addr(), "--health-probe-bind-address", p.probe.Addr())
	p.cmd.Stderr = out
	if p.leash, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	err = until(ctx, func() error {
		if code, text := get("http://" + p.probe.Addr() + "/readyz"); code != http.StatusOK {
			return fmt.Errorf("it is not ready: %d %s", code, text)
		}
		if code, text := get("http://" + p.metrics.Addr() + "/metrics"); code != http.StatusOK || !strings.Contains(text, "clusterset_hub_members") {
			return fmt.Errorf("its controllers do not run: %d", code) // it waits to lead
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, p.said())
	}
	return nil
}

// kill ends it at once, as a crash would.
func (p *program) kill() {
	if p.cmd == nil || p.leash == nil {
		return
	}
	p.leash.Close()
	_ = p.cmd.Wait() // how it ended is in the log
	p.leash = nil
}

func (p *program) stop() {
	p.kill()
	p.probe.Release()
	p.metrics.Release()
	_ = os.RemoveAll(p.dir)
}

func (p *program) log() string { return filepath.Join(p.dir, "hub.log") }

func (p *program) said() string {
	b, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (p *program) shows(t *testing.T, metric string) string {
	t.Helper()
	_, text := get("http://" + p.metrics.Addr() + "/metrics")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, metric) {
			return strings.TrimSpace(line[len(metric):])
		}
	}
	t.Fatalf("there is no metric %s in\n%s", metric, text)
	return ""
}

func get(url string) (int, string) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}
