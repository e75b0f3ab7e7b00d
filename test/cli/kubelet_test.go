package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

func scheme() *runtime.Scheme {
	s := agent.Scheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	return s
}

// kubelet does for one control plane what its nodes would: it runs one replica of every Deployment in clusterset-system with the
// arguments that the Deployment has, with a token of its ServiceAccount, and with its Secrets as files.
type kubelet struct {
	env     *environment
	cp      *lab.ControlPlane
	api     client.Client
	dir     string
	cancel  context.CancelFunc
	done    chan struct{}
	mu      sync.Mutex
	running map[string]*pod // by the Deployment's UID and what it is to run
	log     strings.Builder
}

// pod is one replica.
type pod struct {
	name, dir string
	secrets   map[string]string // mount path → Secret
	cmd       *exec.Cmd
	leash     io.Closer // the watchdog ends the program when this closes
}

// nodes makes a kubelet for each of the clusters, until the test ends.
func (e *environment) nodes(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		e.node(t, name)
	}
}

func (e *environment) node(t *testing.T, name string) *kubelet {
	t.Helper()
	k := &kubelet{env: e, cp: e.planes[name], api: e.admin[name], dir: filepath.Join(e.dir, "node-"+name), done: make(chan struct{}), running: map[string]*pod{}}
	if err := os.MkdirAll(k.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	e.kubelets[name] = k
	go k.run(ctx)
	t.Cleanup(k.stop)
	return k
}

func (k *kubelet) run(ctx context.Context) {
	defer close(k.done)
	for {
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			k.say("%v", err)
		}
		select {
		case <-ctx.Done():
			for _, p := range k.running {
				p.end()
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (k *kubelet) say(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fmt.Fprintf(&k.log, format+"\n", args...)
}

func (k *kubelet) sync(ctx context.Context) error {
	var all appsv1.DeploymentList
	if err := k.api.List(ctx, &all, client.InNamespace("clusterset-system")); err != nil {
		return err
	}
	wanted := map[string]bool{}
	for i := range all.Items {
		d := &all.Items[i]
		if d.DeletionTimestamp != nil || d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			continue
		}
		key := string(d.UID) + strings.Join(d.Spec.Template.Spec.Containers[0].Args, " ")
		wanted[key] = true
		if k.running[key] == nil {
			p, err := k.begin(ctx, d)
			if err != nil {
				return err
			}
			k.running[key] = p
		}
		if err := k.mount(ctx, k.running[key]); err != nil {
			return err
		}
	}
	for key, p := range k.running {
		if !wanted[key] {
			p.end()
			delete(k.running, key)
		}
	}
	return nil
}

// begin starts the replica. Its paths become those of this machine.
func (k *kubelet) begin(ctx context.Context, d *appsv1.Deployment) (*pod, error) {
	spec := &d.Spec.Template.Spec
	p := &pod{name: d.Name, secrets: map[string]string{}}
	kubeconfig, err := k.cp.ServiceAccountKubeconfig(ctx, d.Namespace, spec.ServiceAccountName, nil)
	if err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp(k.dir, d.Name+"-"); err != nil {
		return nil, err
	}
	c := &spec.Containers[0]
	args := slices.Clone(c.Args)
	for _, m := range c.VolumeMounts {
		for _, v := range spec.Volumes {
			if v.Name == m.Name && v.Secret != nil {
				at := filepath.Join(p.dir, v.Name)
				p.secrets[at] = v.Secret.SecretName
				for i := range args {
					args[i] = strings.Replace(args[i], m.MountPath, at, 1)
				}
			}
		}
	}
	args = append(args, "--kubeconfig="+kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0")
	if err := k.mount(ctx, p); err != nil {
		return nil, err
	}
	bin, err := lab.Find(ctx)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(bin.Watchdog, append([]string{"", filepath.Join(k.env.root, "bin", "clusterset-controller")}, args...)...)
	log, err := os.OpenFile(filepath.Join(k.dir, d.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd.Stderr = log
	if p.leash, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

// mount writes the Secrets of a pod where they have changed. They may be missing (optional: true).
func (k *kubelet) mount(ctx context.Context, p *pod) error {
	for at, name := range p.secrets {
		var s corev1.Secret
		if err := k.api.Get(ctx, client.ObjectKey{Namespace: "clusterset-system", Name: name}, &s); client.IgnoreNotFound(err) != nil {
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

func (p *pod) end() {
	p.leash.Close()
	_ = p.cmd.Wait() // how it ended is in the log
}

func (k *kubelet) stop() {
	k.cancel()
	<-k.done
}

// said is the end of every log.
func (k *kubelet) said() string {
	k.mu.Lock()
	out := k.log.String()
	k.mu.Unlock()
	logs, _ := filepath.Glob(filepath.Join(k.dir, "*.log"))
	for _, l := range logs {
		b, err := os.ReadFile(l)
		if err != nil {
			b = []byte(err.Error())
		}
		out += filepath.Base(l) + ":\n" + string(b[max(0, len(b)-2500):])
	}
	return out
}
