package lab

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// AgentOptions are an agent's flags; the kubeconfigs are paths.
type AgentOptions struct {
	Kubeconfig, HubKubeconfig, HubNamespace, ClusterID string
	Args                                               []string // further flags
	Env                                                []string // KEY=VALUE, beside this process's own
}

// Agent is a running clusterset-controller: an agent, or the hub's.
type Agent struct {
	bin                  *Binaries
	binary, name         string
	args, env            []string
	dir                  string
	probe, metric, pprof *Port
	proc                 *process
}

// StartAgent runs the agent of a member. It returns when the process lives; Ready tells when its controllers run.
func StartAgent(ctx context.Context, binary string, o AgentOptions) (*Agent, error) {
	args := append([]string{"agent", "--kubeconfig", o.Kubeconfig, "--hub-kubeconfig", o.HubKubeconfig, "--hub-namespace", o.HubNamespace,
		"--cluster-id", o.ClusterID}, o.Args...)
	return startController(ctx, &Agent{binary: binary, name: "agent " + o.ClusterID, args: args, env: o.Env})
}

// StartHubController runs what keeps a clusterset on its hub. It returns when the process lives.
func StartHubController(ctx context.Context, binary, kubeconfig, namespace string) (*Agent, error) {
	return startController(ctx, &Agent{binary: binary, name: "hub " + namespace, args: []string{"hub", "--kubeconfig", kubeconfig, "--hub-namespace", namespace}})
}

func startController(ctx context.Context, a *Agent) (_ *Agent, err error) {
	if a.bin, err = Find(ctx); err != nil {
		return nil, err
	}
	if a.dir, err = os.MkdirTemp("", "clusterset-lab-agent-"); err != nil {
		return nil, err
	}
	for _, p := range []**Port{&a.probe, &a.metric, &a.pprof} {
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
func (a *Agent) Start(context.Context) error { return a.StartAs(a.binary) }

// StartAs is Start with another program, which has the same flags.
func (a *Agent) StartAs(binary string, env ...string) (err error) {
	args := append(slices.Clone(a.args), "--health-probe-bind-address", a.probe.Addr(), "--metrics-bind-address", a.metric.Addr(),
		"--pprof-bind-address", a.pprof.Addr())
	a.proc, err = spawn(a.bin, a.name, filepath.Join(a.dir, "agent.log"), []string{a.dir}, append(slices.Clone(a.env), env...), binary, args...)
	return err
}

// Ready asks /readyz.
func (a *Agent) Ready() bool {
	code, _ := fetch("http://" + a.probe.Addr() + "/readyz")
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

// Profile is one of /debug/pprof, as text.
func (a *Agent) Profile(name string) (string, error) { return profile(a.pprof, name) }

func profile(port *Port, name string) (string, error) {
	code, body := fetch("http://" + port.Addr() + "/debug/pprof/" + name)
	if code != http.StatusOK {
		return "", fmt.Errorf("profile %s: %d %s", name, code, body)
	}
	return body, nil
}

// Pause stops it where it stands: its connections stay open and silent.
func (a *Agent) Pause() error { return a.proc.signal(syscall.SIGSTOP) }

// Resume lets it go on.
func (a *Agent) Resume() error { return a.proc.signal(syscall.SIGCONT) }

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
	a.pprof.Release()
	_ = os.RemoveAll(a.dir)
}
