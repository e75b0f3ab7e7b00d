//go:build databases

package databases

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// namespace is that of the page.
const namespace = "db"

// kubelet runs the Pods of a cluster's namespace db as a node would. It knows what the page's manifests use: commands,
// variables, volumes of claims and probes by TCP.
type kubelet struct {
	c    *cluster
	end  context.CancelFunc
	done sync.WaitGroup
	mu   sync.Mutex
	pods map[types.UID]*pod // under mu
}

// addresses counts those that a cluster has given, so that no Pod gets one that another had.
var addresses = map[*cluster]int{}

func startKubelet(c *cluster) (*kubelet, error) {
	k := &kubelet{c: c, pods: map[types.UID]*pod{}}
	ctx, end := context.WithCancel(context.Background())
	k.end = end
	k.done.Go(func() { k.run(ctx) })
	return k, nil
}

// stop ends it and its Pods at once.
func (k *kubelet) stop() {
	if k != nil {
		k.end()
		k.done.Wait()
	}
}

func (k *kubelet) run(ctx context.Context) {
	for ; ctx.Err() == nil; wait(ctx, 100*time.Millisecond) {
		var list corev1.PodList
		if err := k.c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			continue // the API server is away
		}
		wanted := map[types.UID]bool{}
		for i := range list.Items {
			wanted[list.Items[i].UID] = true
		}
		for uid, p := range k.pods { // before others start: they may have the same volume
			if !wanted[uid] {
				k.set(uid, nil)
				p.terminate()
			}
		}
		for i := range list.Items {
			p := &list.Items[i]
			if k.pods[p.UID] == nil {
				started, err := k.start(ctx, p)
				if err != nil {
					fmt.Println("databases: kubelet of", k.c.ID+":", err)
					continue
				}
				k.set(p.UID, started)
			}
		}
	}
	for _, p := range k.pods {
		p.stop()
	}
}

// set says which one runs; nil: none.
func (k *kubelet) set(uid types.UID, p *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p == nil {
		delete(k.pods, uid)
		return
	}
	k.pods[uid] = p
}

// pod returns the one of a name, nil if it does not run.
func (k *kubelet) pod(name string) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.object.Name == name {
			return p
		}
	}
	return nil
}

// pod is one that runs, in a network namespace with one address.
type pod struct {
	c       *cluster
	object  *corev1.Pod
	network *lab.Namespace
	address string
	dir     string
	end     context.CancelFunc
	done    sync.WaitGroup

	terminating atomic.Bool
	mu          sync.Mutex
	programs    map[int]bool // the first processes of containers, under mu
}

func (k *kubelet) start(ctx context.Context, object *corev1.Pod) (p *pod, err error) {
	addresses[k.c]++
	n, c := addresses[k.c], k.c
	p = &pod{c: c, object: object, address: fmt.Sprintf("10.%d.0.%d", 200+c.number, n), programs: map[int]bool{}}
	if p.network, err = lab.NewNamespace(); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "databases-pod-"); err != nil {
		return nil, err
	}
	link := fmt.Sprintf("c%d-p%d", c.number, n)
	err = errors.Join(
		os.WriteFile(p.path("resolv.conf"), []byte(c.resolvConf()), 0o644),
		command("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", p.network.Path()),
		command("ip", "link", "set", link, "up"),
		command("ip", "route", "add", p.address, "dev", link),
		command("ip", "addr", "add", "169.254.1.1/32", "dev", link),
		p.network.IP("addr add "+p.address+"/32 dev eth0", "link set eth0 up",
			"route add 169.254.1.1 dev eth0", "route add default via 169.254.1.1"))
	if err != nil {
		return nil, err
	}
	ctx, p.end = context.WithCancel(ctx)
	p.done.Go(func() { p.run(ctx) })
	return p, nil
}

// terminate asks its programs to end, as for a Pod that is deleted, and ends them after ten seconds.
func (p *pod) terminate() {
	p.terminating.Store(true)
	p.mu.Lock()
	for pid := range p.programs {
		_ = syscall.Kill(pid, syscall.SIGTERM) // one that has ended needs none
	}
	p.mu.Unlock()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		p.mu.Lock()
		left := len(p.programs)
		p.mu.Unlock()
		if left == 0 {
			break
		}
	}
	p.stop()
}

// stop ends its programs at once.
func (p *pod) stop() {
	p.end()
	p.done.Wait()
	p.network.Close()
	os.RemoveAll(p.dir)
}

func (p *pod) path(name string) string { return filepath.Join(p.dir, name) }

// run goes through the Pod's life: an address, init containers, containers, readiness.
func (p *pod) run(ctx context.Context) {
	for !p.report(ctx, corev1.PodPending, false) && ctx.Err() == nil {
		wait(ctx, 100*time.Millisecond)
	}
	for i := range p.object.Spec.InitContainers {
		for p.contain(ctx, &p.object.Spec.InitContainers[i]) != nil && ctx.Err() == nil {
			wait(ctx, time.Second)
		}
	}
	for i := range p.object.Spec.Containers {
		p.done.Go(func() {
			for ; ctx.Err() == nil && !p.terminating.Load(); wait(ctx, time.Second) {
				_ = p.contain(ctx, &p.object.Spec.Containers[i]) // how it ended is in its log
			}
		})
	}
	reported := false
	for ready := false; ctx.Err() == nil; wait(ctx, 500*time.Millisecond) {
		if now := p.ready(); now != ready || !reported {
			ready, reported = now, p.report(ctx, corev1.PodRunning, now)
		}
	}
}

// report writes the Pod's status, and returns whether the API server took it.
func (p *pod) report(ctx context.Context, phase corev1.PodPhase, ready bool) bool {
	now := &corev1.Pod{}
	if p.c.Get(ctx, client.ObjectKeyFromObject(p.object), now) != nil || now.UID != p.object.UID {
		return false
	}
	state := corev1.ConditionFalse
	if ready {
		state = corev1.ConditionTrue
	}
	now.Status = corev1.PodStatus{
		Phase: phase, PodIP: p.address, PodIPs: []corev1.PodIP{{IP: p.address}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: state}},
	}
	return p.c.Status().Update(ctx, now) == nil
}

// ready returns whether every container with a probe accepts connections.
func (p *pod) ready() bool {
	for _, c := range p.object.Spec.Containers {
		if c.ReadinessProbe != nil {
			at := net.JoinHostPort(p.address, c.ReadinessProbe.TCPSocket.Port.String())
			conn, err := net.DialTimeout("tcp", at, time.Second)
			if err != nil {
				return false
			}
			conn.Close()
		}
	}
	return true
}

// begin makes a container of a process: a host name, a resolv.conf, the Pod's volumes, a /tmp of its own and a user.
const begin = `set -e
hostname "$1"
mount --bind "$2" /etc/resolv.conf
user=$3
shift 3
while [ "$1" != -- ]; do mkdir -p "$1" "$2"; chown "$user" "$1"; mount --bind "$1" "$2"; shift 2; done
shift
mount -t tmpfs tmpfs /tmp
exec setpriv --reuid="$user" --regid="$user" --clear-groups "$@"`

// contain runs a container until it ends.
func (p *pod) contain(ctx context.Context, c *corev1.Container) error {
	env, err := p.environment(ctx, c)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.log(c.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := p.command(ctx, log, c, env, append(expand(c.Command, env), expand(c.Args, env)...)...)
	if err := p.network.Do(cmd.Start); err != nil {
		return err
	}
	first, err := child(ctx, cmd.Process.Pid)
	if err == nil {
		p.mu.Lock()
		p.programs[first] = true
		p.mu.Unlock()
	}
	err = cmd.Wait()
	p.mu.Lock()
	delete(p.programs, first)
	p.mu.Unlock()
	return err
}

// log is the file that a container writes, over all its starts, also of earlier Pods of this name.
func (p *pod) log(container string) string {
	return filepath.Join(logs, p.object.Name+"."+p.c.ID+"."+container+".log")
}

// child returns the first process that another one starts: 1 in its PID namespace.
func child(ctx context.Context, of int) (pid int, err error) {
	for ; ctx.Err() == nil; wait(ctx, time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", of))
		if err != nil {
			return 0, err
		}
		if _, err := fmt.Sscan(string(text), &pid); err == nil {
			return pid, nil
		}
	}
	return 0, ctx.Err()
}

// command is a program in a container; it ends with the context at the latest.
func (p *pod) command(
	ctx context.Context, out *os.File, c *corev1.Container, env map[string]string, program ...string,
) *exec.Cmd {
	args := []string{
		"--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", begin, "sh",
		p.object.Name, p.path("resolv.conf"), "0",
	}
	if s := p.object.Spec.SecurityContext; s != nil && s.RunAsUser != nil {
		args[len(args)-1] = fmt.Sprint(*s.RunAsUser) // the page has groups of the same number
	}
	for _, m := range c.VolumeMounts {
		for _, v := range p.object.Spec.Volumes {
			if v.Name == m.Name && v.PersistentVolumeClaim != nil {
				args = append(
					args,
					filepath.Join("/var/lib/volumes", p.c.ID, v.PersistentVolumeClaim.ClaimName),
					m.MountPath,
				)
			}
		}
	}
	cmd := exec.CommandContext(ctx, "unshare", append(append(args, "--"), program...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	cmd.Env = []string{"PATH=" + path, "HOME=/tmp"}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// environment resolves the variables of a container.
func (p *pod) environment(ctx context.Context, c *corev1.Container) (map[string]string, error) {
	env := map[string]string{}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			env[e.Name] = expand([]string{e.Value}, env)[0]
		case from.FieldRef != nil:
			env[e.Name] = p.object.Name // the page uses no other field
		case from.ConfigMapKeyRef != nil:
			m := &corev1.ConfigMap{}
			key := client.ObjectKey{Namespace: namespace, Name: from.ConfigMapKeyRef.Name}
			if err := p.c.Get(ctx, key, m); err != nil {
				return nil, err
			}
			env[e.Name] = m.Data[from.ConfigMapKeyRef.Key]
		case from.SecretKeyRef != nil:
			s := &corev1.Secret{}
			if err := p.c.Get(
				ctx,
				client.ObjectKey{Namespace: namespace, Name: from.SecretKeyRef.Name},
				s,
			); err != nil {
				return nil, err
			}
			env[e.Name] = string(s.Data[from.SecretKeyRef.Key])
		}
	}
	return env, nil
}

var variable = regexp.MustCompile(`\$\(\w+\)`)

// expand replaces $(NAME) as Kubernetes does.
func expand(words []string, env map[string]string) (out []string) {
	for _, word := range words {
		out = append(out, variable.ReplaceAllStringFunc(word, func(v string) string {
			if value, ok := env[v[2:len(v)-1]]; ok {
				return value
			}
			return v
		}))
	}
	return out
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
