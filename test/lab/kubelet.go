package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// system is where our Deployments are.
const system = "clusterset-system"

// Kubelet does for a control plane what its nodes would: it runs one replica of each Deployment in clusterset-system as
// a process of this machine, which is bin/clusterset-controller with the Deployment's arguments, a token of its
// ServiceAccount, and its Secrets as files that follow their changes.
type Kubelet struct {
	plane   *ControlPlane
	api     client.Client
	dir     string
	cancel  context.CancelFunc
	done    chan struct{}
	running map[string]*pod // by the Deployment's UID and what it is to run
	mu      sync.Mutex
	log     strings.Builder // under mu
	last    string          // line of log
	starts  map[string]int  // by Deployment, under mu
}

// pod is one replica.
type pod struct {
	proc    *process
	began   time.Time
	secrets map[string]string // mount path → Secret
}

// StartKubelet starts one, which may be done again after Stop, as with a machine that comes back.
func StartKubelet(c *ControlPlane) (*Kubelet, error) {
	cfg, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Timeout = -1, 10*time.Second
	k := &Kubelet{
		plane:   c,
		dir:     c.path("node"),
		done:    make(chan struct{}),
		running: map[string]*pod{},
		starts:  map[string]int{},
	}
	if k.api, err = client.New(cfg, client.Options{Scheme: clientgoscheme.Scheme}); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	go k.run(ctx)
	return k, nil
}

// Stop ends it and all that it runs at once, as the loss of the machine would.
func (k *Kubelet) Stop() {
	if k != nil {
		k.cancel()
		<-k.done
	}
}

// Starts is how often a Deployment's program was started.
func (k *Kubelet) Starts(deployment string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.starts[deployment]
}

// Log is what it has said, and the end of what its programs have.
func (k *Kubelet) Log() string {
	k.mu.Lock()
	out := k.log.String()
	k.mu.Unlock()
	logs, err := filepath.Glob(filepath.Join(k.dir, "*.log"))
	if err != nil {
		out += err.Error()
	}
	for _, l := range logs {
		p := process{log: l}
		out += filepath.Base(l) + ":\n" + p.tail()
	}
	return out
}

func (k *Kubelet) run(ctx context.Context) {
	defer close(k.done)
	for {
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			k.say(err.Error())
		}
		select {
		case <-ctx.Done():
			for _, p := range k.running {
				p.proc.kill()
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (k *Kubelet) say(line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if line != k.last {
		k.last = line
		k.log.WriteString(line + "\n")
	}
}

// sync has what is to run run, and no more. A program that ended is started again, once a second at most.
func (k *Kubelet) sync(ctx context.Context) error {
	var all appsv1.DeploymentList
	if err := k.api.List(ctx, &all, client.InNamespace(system)); err != nil {
		return err
	}
	wanted := map[string]*appsv1.Deployment{}
	for i := range all.Items {
		d := &all.Items[i]
		if d.DeletionTimestamp == nil && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0) {
			wanted[string(d.UID)+strings.Join(d.Spec.Template.Spec.Containers[0].Args, " ")] = d
		}
	}
	for key, p := range k.running {
		if !p.proc.running() {
			p.proc.mustNotCrash()
		}
		if wanted[key] == nil || !p.proc.running() && time.Since(p.began) > time.Second {
			p.proc.stop(grace)
			delete(k.running, key)
		}
	}
	var errs []error
	for key, d := range wanted {
		if p := k.running[key]; p != nil {
			errs = append(errs, k.mount(ctx, p))
			continue
		}
		p, err := k.begin(ctx, d)
		if err != nil {
			errs = append(errs, fmt.Errorf("the Deployment %s: %w", d.Name, err))
			continue
		}
		k.running[key] = p
	}
	return errors.Join(errs...)
}

// begin starts a replica. Its paths become those of this machine.
func (k *Kubelet) begin(ctx context.Context, d *appsv1.Deployment) (*pod, error) {
	spec := &d.Spec.Template.Spec
	kubeconfig, err := k.plane.ServiceAccountKubeconfig(ctx, d.Namespace, spec.ServiceAccountName, nil)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(k.dir, d.Name+"-")
	if err != nil {
		return nil, err
	}
	p := &pod{began: time.Now(), secrets: map[string]string{}}
	c := &spec.Containers[0]
	args := slices.Clone(c.Args)
	for _, m := range c.VolumeMounts {
		for _, v := range spec.Volumes {
			if v.Name == m.Name && v.Secret != nil {
				at := filepath.Join(dir, v.Name)
				p.secrets[at] = v.Secret.SecretName
				for i := range args {
					args[i] = strings.Replace(args[i], m.MountPath, at, 1)
				}
			}
		}
	}
	if err := k.mount(ctx, p); err != nil {
		return nil, err
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	args = append(args, "--kubeconfig="+kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	k.mu.Lock()
	k.starts[d.Name]++
	k.mu.Unlock()
	p.proc, err = spawn(
		k.plane.bin,
		d.Name,
		filepath.Join(k.dir, d.Name+".log"),
		[]string{dir},
		nil,
		Program(root, "clusterset-controller"),
		args...)
	return p, err
}

// mount writes the Secrets of a pod where they have changed. They may be missing (optional: true).
func (k *Kubelet) mount(ctx context.Context, p *pod) error {
	for at, name := range p.secrets {
		var s corev1.Secret
		if err := k.api.Get(
			ctx,
			client.ObjectKey{Namespace: system, Name: name},
			&s,
		); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		for key, data := range s.Data {
			file := filepath.Join(at, key)
			if old, err := os.ReadFile(file); err == nil && string(old) == string(data) {
				continue
			}
			if err := os.WriteFile(file+".new", data, 0o600); err != nil {
				return err
			}
			if err := os.Rename(file+".new", file); err != nil {
				return err
			}
		}
	}
	return nil
}
