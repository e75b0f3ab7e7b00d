package lab

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// AgentOptions are an agent's flags; the kubeconfigs are paths.
type AgentOptions struct {
	Kubeconfig, HubKubeconfig, HubNamespace, ClusterID string
	Args                                               []string // further flags
	Env                                                []string // KEY=VALUE, beside this process's own
}

// Controller is a running clusterset-controller: an agent, or the hub's.
type Controller struct {
	bin                  *Binaries
	binary, name         string
	args, env            []string
	host                 string // the name of its machine, or pod; empty: this one's
	dir                  string
	probe, metric, pprof *Port

	mu      sync.Mutex
	proc    *process
	stopped bool // by Kill, Terminate or Stop: it is not restarted
}

// StartAgent runs the agent of a member. It returns when the process lives; Ready tells when its controllers run.
func StartAgent(ctx context.Context, binary string, o AgentOptions) (*Controller, error) {
	args := append(
		[]string{
			"agent",
			"--kubeconfig",
			o.Kubeconfig,
			"--hub-kubeconfig",
			o.HubKubeconfig,
			"--hub-namespace",
			o.HubNamespace,
			"--cluster-id",
			o.ClusterID,
		},
		o.Args...)
	return startController(ctx, &Controller{binary: binary, name: "agent " + o.ClusterID, args: args, env: o.Env})
}

// Twin starts another replica of the same Deployment, in a pod of that name: a UTS namespace, by root's right or by a
// user namespace.
func (c *Controller) Twin(ctx context.Context, pod string) (*Controller, error) {
	if err := Require("unshare", "hostname"); err != nil {
		return nil, err
	}
	return startController(
		ctx,
		&Controller{binary: c.binary, name: c.name + ", " + pod, args: c.args, env: c.env, host: pod},
	)
}

// StartHub runs what keeps a clusterset on its hub. It returns when the process lives.
func StartHub(ctx context.Context, binary, kubeconfig, namespace string) (*Controller, error) {
	return startController(
		ctx,
		&Controller{
			binary: binary,
			name:   "hub " + namespace,
			args:   []string{"hub", "--kubeconfig", kubeconfig, "--hub-namespace", namespace},
		},
	)
}

func startController(ctx context.Context, c *Controller) (_ *Controller, err error) {
	if c.bin, err = Find(ctx); err != nil {
		return nil, err
	}
	if c.dir, err = newFolder(os.TempDir(), "controller"); err != nil {
		return nil, err
	}
	for _, p := range []**Port{&c.probe, &c.metric, &c.pprof} {
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

// Use makes Start run another build, with the same flags.
func (c *Controller) Use(binary string) { c.binary = binary }

// Start starts it again after Kill or Terminate.
func (c *Controller) Start(context.Context) error { return c.StartAs(c.binary) }

// StartAs is Start with another program that has the same flags. A program that ends by itself is restarted after a
// second, as by a kubelet.
func (c *Controller) StartAs(binary string, env ...string) error {
	args := append(
		slices.Clone(c.args),
		"--health-probe-bind-address",
		c.probe.Addr(),
		"--metrics-bind-address",
		c.metric.Addr(),
		"--pprof-bind-address",
		c.pprof.Addr(),
	)
	if c.host != "" {
		as := []string{"--uts"}
		if os.Getuid() != 0 {
			as = append(as, "--map-root-user")
		}
		args = append(append(as, "sh", "-c", `hostname "$0" && exec "$@"`, c.host, binary), args...)
		binary = "unshare"
	}
	spawnOne := func() (*process, error) {
		return spawn(
			c.bin,
			c.name,
			filepath.Join(c.dir, "agent.log"),
			[]string{c.dir},
			append(slices.Clone(c.env), env...),
			binary,
			args...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := spawnOne()
	if err != nil {
		return err
	}
	c.proc, c.stopped = p, false
	go c.supervise(p, spawnOne)
	return nil
}

// supervise restarts a program that has not crashed, until another one is started, or it is to end.
func (c *Controller) supervise(p *process, spawnOne func() (*process, error)) {
	for {
		<-p.exited
		p.mustNotCrash()
		time.Sleep(time.Second)
		c.mu.Lock()
		if c.stopped || c.proc != p {
			c.mu.Unlock()
			return
		}
		next, err := spawnOne()
		if err != nil {
			panic(err) // else a test waits for what is not there
		}
		c.proc, p = next, next
		c.mu.Unlock()
	}
}

// process returns the one that runs, or ran last.
func (c *Controller) process() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc
}

// end returns the process, which is not restarted any more.
func (c *Controller) end() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	return c.proc
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

// UntilReady waits until it is.
func (c *Controller) UntilReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*startLimit)
	defer cancel()
	for !c.Ready() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s was not ready: %w\n%s", c.name, ctx.Err(), c.process().tail())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// Metrics is what it shows.
func (c *Controller) Metrics() string {
	_, body := fetch("http://" + c.metric.Addr() + "/metrics")
	return body
}

// Profile is one of /debug/pprof, as text.
func (c *Controller) Profile(name string) (string, error) { return profile(c.pprof, name) }

func profile(port *Port, name string) (string, error) {
	code, body := fetch("http://" + port.Addr() + "/debug/pprof/" + name)
	if code != http.StatusOK {
		return "", fmt.Errorf("profile %s: %d %s", name, code, body)
	}
	return body, nil
}

// Pause stops it where it stands: its connections stay open and silent.
func (c *Controller) Pause() error { return c.process().signal(syscall.SIGSTOP) }

// Resume lets it go on.
func (c *Controller) Resume() error { return c.process().signal(syscall.SIGCONT) }

// PID is its process.
func (c *Controller) PID() int { return c.process().pid }

// Log is what it has said so far, over all starts.
func (c *Controller) Log() string {
	b, err := os.ReadFile(filepath.Join(c.dir, "agent.log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Running tells whether it has not ended.
func (c *Controller) Running() bool { return c.process().running() }

// Kill ends it at once, as a crash would.
func (c *Controller) Kill() { c.end().kill() }

// Terminate asks it to end, as a kubelet does.
func (c *Controller) Terminate() { c.end().stop(10 * time.Second) }

// Stop ends it, and deletes what it wrote.
func (c *Controller) Stop() {
	if c == nil {
		return
	}
	c.end().kill()
	c.probe.Release()
	c.metric.Release()
	c.pprof.Release()
	_ = os.RemoveAll(c.dir)
}
