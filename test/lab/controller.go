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

// Controller is a running clusterset-controller: an agent, or a hub.
type Controller struct {
	bin           *Binaries
	name, binary  string
	args, env     []string
	dir           string
	probe, metric *Port
	proc          *process
}

// StartAgent runs the agent of a member. It returns when the process lives; Ready tells when its controllers run.
func StartAgent(ctx context.Context, binary string, o AgentOptions) (*Controller, error) {
	args := append([]string{"agent", "--kubeconfig", o.Kubeconfig, "--hub-kubeconfig", o.HubKubeconfig, "--hub-namespace", o.HubNamespace,
		"--cluster-id", o.ClusterID}, o.Args...)
	return startController(ctx, &Controller{name: "agent " + o.ClusterID, binary: binary, args: args, env: o.Env})
}

// StartHub runs the hub's program for the clusterset in a namespace. It returns when the process lives; Ready tells when its controllers
// run.
func StartHub(ctx context.Context, binary, kubeconfig, namespace string) (*Controller, error) {
	args := []string{"hub", "--kubeconfig", kubeconfig, "--hub-namespace", namespace}
	return startController(ctx, &Controller{name: "hub of " + namespace, binary: binary, args: args})
}

func startController(ctx context.Context, c *Controller) (*Controller, error) {
	var err error
	if c.bin, err = Find(ctx); err != nil {
		return nil, err
	}
	if c.dir, err = os.MkdirTemp("", "clusterset-lab-controller-"); err != nil {
		return nil, err
	}
	for _, p := range []**Port{&c.probe, &c.metric} {
		if *p, err = ReservePort(); err != nil {
			c.Stop()
			return nil, err
		}
	}
	if err := c.Start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Start starts it again after Kill or Terminate.
func (c *Controller) Start(ctx context.Context) error {
	args := append(c.args[:len(c.args):len(c.args)], "--health-probe-bind-address", c.probe.Addr(), "--metrics-bind-address", c.metric.Addr())
	var err error
	c.proc, err = spawn(c.bin, c.name, filepath.Join(c.dir, "log"), []string{c.dir}, c.env, c.binary, args...)
	return err
}

// Ready asks /readyz.
func (c *Controller) Ready() bool {
	code, _ := fetch("http://" + c.probe.Addr() + "/readyz")
	return code == http.StatusOK
}

// Alive asks /healthz.
func (c *Controller) Alive() bool {
	code, _ := fetch("http://" + c.probe.Addr() + "/healthz")
	return code == http.StatusOK
}

// UntilReady waits until it is, or has ended.
func (c *Controller) UntilReady(ctx context.Context) error {
	return c.proc.until(ctx, "ready", startLimit, c.Ready)
}

// Metrics is what it shows.
func (c *Controller) Metrics() string {
	_, body := fetch("http://" + c.metric.Addr() + "/metrics")
	return body
}

// PID is its process.
func (c *Controller) PID() int { return c.proc.pid }

// Log is what it has said so far, over all starts.
func (c *Controller) Log() string {
	b, err := os.ReadFile(filepath.Join(c.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Running tells whether it has not ended.
func (c *Controller) Running() bool { return c.proc.running() }

// Kill ends it at once, as a crash would.
func (c *Controller) Kill() { c.proc.kill() }

// Terminate asks it to end, as a kubelet does.
func (c *Controller) Terminate() { c.proc.stop(10 * time.Second) }

// Stop ends it, and deletes what it wrote.
func (c *Controller) Stop() {
	if c == nil {
		return
	}
	c.proc.kill()
	c.probe.Release()
	c.metric.Release()
	_ = os.RemoveAll(c.dir)
}
