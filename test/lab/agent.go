package lab

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// AgentOptions are an agent's flags; the kubeconfigs are paths.
type AgentOptions struct {
	Kubeconfig, HubKubeconfig, HubNamespace, ClusterID string
	Args                                               []string // further flags
	Env                                                []string // KEY=VALUE, beside this process's own
}

// Agent is a running clusterset-controller agent.
type Agent struct {
	bin           *Binaries
	binary        string
	options       AgentOptions
	dir           string
	probe, metric *Port
	proc          *process
}

// StartAgent runs the agent of a member. It returns when the process lives; Ready tells when its controllers run.
func StartAgent(ctx context.Context, binary string, o AgentOptions) (*Agent, error) {
	bin, err := Find(ctx)
	if err != nil {
		return nil, err
	}
	a := &Agent{bin: bin, binary: binary, options: o}
	if a.dir, err = os.MkdirTemp("", "clusterset-lab-agent-"); err != nil {
		return nil, err
	}
	for _, p := range []**Port{&a.probe, &a.metric} {
		if *p, err = ReservePort(); err != nil {
			a.Stop()
			return nil, err
		}
	}
	if err := a.Start(ctx); err != nil {
		a.Stop()
		return nil, err
	}
	return a, nil
}

// Start starts it again after Kill or Terminate.
func (a *Agent) Start(ctx context.Context) error {
	o := a.options
	args := append([]string{"agent", "--kubeconfig", o.Kubeconfig, "--hub-kubeconfig", o.HubKubeconfig, "--hub-namespace", o.HubNamespace,
		"--cluster-id", o.ClusterID, "--health-probe-bind-address", a.probe.Addr(), "--metrics-bind-address", a.metric.Addr()}, o.Args...)
	var err error
	a.proc, err = spawn(a.bin, "agent "+o.ClusterID, filepath.Join(a.dir, "agent.log"), []string{a.dir}, o.Env, a.binary, args...)
	return err
}

// Ready asks /readyz.
func (a *Agent) Ready() bool {
	code, _ := fetch("http://" + a.probe.Addr() + "/readyz")
	return code == http.StatusOK
}

// Alive asks /healthz.
func (a *Agent) Alive() bool {
	code, _ := fetch("http://" + a.probe.Addr() + "/healthz")
	return code == http.StatusOK
}

// UntilReady waits until it is, or has ended.
func (a *Agent) UntilReady(ctx context.Context) error {
	return a.proc.until(ctx, "ready", startLimit, a.Ready)
}

// Metrics is what it shows.
func (a *Agent) Metrics() string {
	_, body := fetch("http://" + a.metric.Addr() + "/metrics")
	return body
}

// PID is its process.
func (a *Agent) PID() int { return a.proc.pid }

// Log is what it has said so far, over all starts.
func (a *Agent) Log() string {
	b, err := os.ReadFile(filepath.Join(a.dir, "agent.log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Running tells whether it has not ended.
func (a *Agent) Running() bool { return a.proc.running() }

// Kill ends it at once, as a crash would.
func (a *Agent) Kill() { a.proc.kill() }

// Terminate asks it to end, as a kubelet does.
func (a *Agent) Terminate() { a.proc.stop(10 * time.Second) }

// Stop ends it, and deletes what it wrote.
func (a *Agent) Stop() {
	if a == nil {
		return
	}
	a.proc.kill()
	a.probe.Release()
	a.metric.Release()
	_ = os.RemoveAll(a.dir)
}
