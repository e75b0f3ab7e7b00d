package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options of a control plane. The zero value is a cluster like any other.
type Options struct {
	ServiceCIDR         string   // default 10.96.0.0/16
	APIServer           []string // further arguments, such as --feature-gates=...
	NoControllerManager bool     // no EndpointSlices, no namespace deletion, no garbage collection
	Audit               bool     // the API server writes every request and who made it to AuditLog
	AuditWrites         bool     // the same, of requests that change something
	AuditServices       bool     // with one of the two: Services as they were answered, too
	ControllerManager   []string // further arguments
	Scheduler           bool     // kube-scheduler, for clusters with a Node
	// In calls a function on a thread in the network namespace where all of it is to run, with Address for others to
	// reach it. Nil: this process's, on loopback.
	In      func(func() error) error
	Address string
}

// ControlPlane is one cluster's etcd, kube-apiserver and kube-controller-manager.
type ControlPlane struct {
	bin     *Binaries
	options Options
	token   string // admin's
	dir     string // logs, certificates, kubeconfigs
	data    string // of etcd, in memory where the machine has such a file system

	etcdPort, peerPort, apiPort, managerPort, schedulerPort *Port

	folders, etcd, api, manager, scheduler *process

	mu         sync.Mutex
	forwarders []*Forwarder // under mu
}

const (
	startLimit = 2 * time.Minute // how long a program that starts may write nothing: see until
	grace      = 10 * time.Second
)

// Start brings a control plane up: 3 to 5 seconds and 0.5 GiB.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	bin, err := Find(ctx)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{bin: bin, options: o, token: rand.Text()}
	if c.options.ServiceCIDR == "" {
		c.options.ServiceCIDR = "10.96.0.0/16"
	}
	if c.options.In == nil {
		c.options.In = func(f func() error) error { return f() }
		c.options.Address = "127.0.0.1"
	}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Run is Start for a test, which fails if it cannot be; the control plane ends with the test.
func Run(t testing.TB, o Options) *ControlPlane {
	t.Helper()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, p := range []*process{c.etcd, c.api, c.manager, c.scheduler} {
				if p != nil {
					t.Logf("the end of %s's log:\n%s", p.name, p.tail())
				}
			}
		}
		c.Stop()
	})
	return c
}

func (c *ControlPlane) start(ctx context.Context) error {
	var err error
	if c.dir, err = newFolder(os.TempDir(), "plane"); err != nil {
		return err
	}
	memory := "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		memory = os.TempDir()
	}
	if c.data, err = newFolder(memory, "etcd"); err != nil {
		return err
	}
	for _, p := range []**Port{&c.etcdPort, &c.peerPort, &c.apiPort, &c.managerPort, &c.schedulerPort} {
		if *p, err = ReservePort(); err != nil {
			return err
		}
	}
	if err := c.writeSecrets(); err != nil {
		return err
	}
	// It outlives every other program, and its watchdog deletes the folders of logs and kubeconfigs, and of etcd's
	// data.
	if c.folders, err = c.spawn(
		"folders",
		filepath.Join(c.dir, "folders.log"),
		[]string{c.dir, c.data},
		nil,
		"sleep",
		"infinity",
	); err != nil {
		return err
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	if c.options.Scheduler {
		if err := c.startScheduler(ctx); err != nil {
			return err
		}
	}
	if c.options.NoControllerManager {
		return nil
	}
	return c.startManager(ctx)
}

// spawn is the package's, where this control plane runs.
func (c *ControlPlane) spawn(name, log string, remove, env []string, program string, args ...string) (*process, error) {
	var p *process
	err := c.options.In(func() (err error) {
		p, err = spawn(c.bin, name, log, remove, env, program, args...)
		return err
	})
	return p, err
}

// startScheduler runs kube-scheduler, which nothing has to wait for.
func (c *ControlPlane) startScheduler(ctx context.Context) error {
	bin, err := FindNode(ctx)
	if err != nil {
		return err
	}
	c.scheduler, err = c.spawn("kube-scheduler", c.path("kube-scheduler.log"), nil, nil, bin.Scheduler,
		"--kubeconfig="+c.Kubeconfig(), "--leader-elect=false", "--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.schedulerPort.Number), "--cert-dir="+c.path("scheduler"))
	return err
}

// startEtcd runs it on c.data, which outlives it.
func (c *ControlPlane) startEtcd() (err error) {
	url, peer := "http://"+c.etcdPort.Addr(), "http://"+c.peerPort.Addr()
	c.etcd, err = c.spawn("etcd", filepath.Join(c.dir, "etcd.log"), nil, nil, c.bin.Etcd,
		"--name=lab", "--data-dir="+c.data, "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=lab="+peer)
	return err
}

func (c *ControlPlane) startManager(ctx context.Context) error {
	var err error
	args := append([]string{
		"--kubeconfig=" + c.Kubeconfig(),
		"--leader-elect=false",
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.managerPort.Number),
		"--service-account-private-key-file=" + c.path("sa.key"),
		"--root-ca-file=" + c.path("pki/apiserver.crt"),
		"--cert-dir=" + c.path("manager"),
		"--profiling=false",
	}, c.options.ControllerManager...)
	c.manager, err = c.spawn("kube-controller-manager", c.path("kube-controller-manager.log"), nil, nil,
		c.bin.ControllerManager, args...)
	if err != nil {
		return err
	}
	return c.manager.until(ctx, "at work (default ServiceAccount)", startLimit, func() bool {
		return c.get("/api/v1/namespaces/default/serviceaccounts/default") == http.StatusOK
	})
}

// StartAPIServer starts the API server, with the port, data and certificates that it had before.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	args := append([]string{
		"--etcd-servers=http://" + c.etcdPort.Addr(),
		"--cert-dir=" + c.path("pki"),
		"--advertise-address=" + c.options.Address,
		fmt.Sprintf("--secure-port=%d", c.apiPort.Number),
		"--service-cluster-ip-range=" + c.options.ServiceCIDR,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("sa.key"),
		"--service-account-signing-key-file=" + c.path("sa.key"),
		"--token-auth-file=" + c.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--profiling=false",
	}, c.options.APIServer...)
	if c.options.Address == "127.0.0.1" {
		args = append(args, "--bind-address=127.0.0.1", "--endpoint-reconciler-type=none") // loopback is no endpoint
	}
	if c.options.Audit || c.options.AuditWrites {
		policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"
		if !c.options.Audit {
			policy += "- {level: None, verbs: [get, list, watch]}\n"
		}
		if c.options.AuditServices {
			policy += "- {level: RequestResponse, verbs: [create, update, patch], resources: [{resources: [services]}]}\n"
		}
		policy += "- {level: Metadata}\n"
		if err := os.WriteFile(c.path("audit.yaml"), []byte(policy), 0o600); err != nil {
			return err
		}
		args = append(args, "--audit-policy-file="+c.path("audit.yaml"), "--audit-log-path="+c.AuditLog(),
			"--audit-log-maxsize=0") // one file: else the first 100 MiB are another's soon
	}
	// One that finds its storage too slow for its first checks ends, and whoever runs it starts it again: so does a
	// kubelet.
	for attempt := 1; ; attempt++ {
		var err error
		if c.api, err = c.spawn(
			"kube-apiserver",
			c.path("kube-apiserver.log"),
			nil,
			nil,
			c.bin.APIServer,
			args...); err != nil {
			return err
		}
		err = c.api.until(ctx, "ready", startLimit, func() bool { return c.get("/readyz") == http.StatusOK })
		if err == nil {
			break
		}
		if c.api.running() || attempt == 3 {
			return err
		}
	}
	return c.writeKubeconfig(c.Kubeconfig(), c.apiAddr(), c.token)
}

// apiAddr is where the API server listens.
func (c *ControlPlane) apiAddr() string {
	return fmt.Sprintf("%s:%d", c.options.Address, c.apiPort.Number)
}

// dial connects to it from where it runs.
func (c *ControlPlane) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	err = c.options.In(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return err
	})
	return conn, err
}

// get asks the API server as admin: an HTTP status, 0 if there is none.
func (c *ControlPlane) get(path string) int {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       c.dial,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the certificate is made by the server that is asked
	}}
	r, err := http.NewRequest(http.MethodGet, "https://"+c.apiAddr()+path, nil)
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// KillEtcd ends etcd at once, as a crash would. Its data stays.
func (c *ControlPlane) KillEtcd() { c.etcd.kill() }

// StartEtcd starts it again, on the data that it had.
func (c *ControlPlane) StartEtcd() error { return c.startEtcd() }

// KillAPIServer ends the API server at once, as a crash would.
func (c *ControlPlane) KillAPIServer() { c.api.kill() }

// PauseAPIServer stops the API server where it stands: its connections stay open and silent.
func (c *ControlPlane) PauseAPIServer() error { return c.api.signal(syscall.SIGSTOP) }

// ResumeAPIServer lets a paused API server go on.
func (c *ControlPlane) ResumeAPIServer() error { return c.api.signal(syscall.SIGCONT) }

// Stop ends everything and deletes what was written.
func (c *ControlPlane) Stop() {
	for _, f := range c.forwarders {
		f.Close()
	}
	c.manager.kill()
	c.scheduler.kill()
	c.api.kill()
	c.etcd.kill()
	c.folders.kill()
	for _, p := range []*Port{c.etcdPort, c.peerPort, c.apiPort, c.managerPort, c.schedulerPort} {
		p.Release()
	}
	for _, dir := range []string{c.data, c.dir} {
		if dir != "" {
			_ = os.RemoveAll(dir) // the watchdog did it already, if it ran
		}
	}
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// Dir is the folder of logs and kubeconfigs. It goes with the control plane.
func (c *ControlPlane) Dir() string { return c.dir }

// Etcd is the URL of its etcd. Tests write there what no API server takes from a client, such as a creation time.
func (c *ControlPlane) Etcd() string { return "http://" + c.etcdPort.Addr() }

// AuditLog is where the API server writes audit.k8s.io/v1 Events, one a line, if Options say so.
func (c *ControlPlane) AuditLog() string { return c.path("audit.log") }

// Kubeconfig is the admin's.
func (c *ControlPlane) Kubeconfig() string { return c.path("admin.kubeconfig") }

// RESTConfig is the admin's, for clients in Go.
func (c *ControlPlane) RESTConfig() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err == nil && c.options.Address != "127.0.0.1" {
		cfg.Dial = c.dial
	}
	return cfg, err
}

// Client is the admin's, without a limit of its rate.
func (c *ControlPlane) Client(scheme *runtime.Scheme) (client.Client, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return client.New(config, client.Options{Scheme: scheme})
}

// Kubectl runs the real kubectl as admin, with input on standard input, and gives its output.
func (c *ControlPlane) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(
		ctx,
		c.bin.Kubectl,
		append([]string{"--kubeconfig=" + c.Kubeconfig(), "--cache-dir=" + c.path("kubectl-cache")}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := c.options.In(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// everyServiceAccount may do this from Kubernetes 1.37 on, by a role of the API server itself.
const everyServiceAccount = "clustertrustbundles.certificates.k8s.io [get list watch]"

// Rights are what a user may in a namespace, sorted, without what Kubernetes itself gives every ServiceAccount.
func (c *ControlPlane) Rights(ctx context.Context, namespace, user string) (out []string, err error) {
	text, err := c.Kubectl(ctx, "", "auth", "can-i", "--list", "--no-headers", "-n", namespace, "--as="+user)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if strings.HasPrefix(f[0], "[") || strings.HasPrefix(f[0], "self") {
			continue
		}
		line = strings.Replace(strings.Join(f, " "), " []", "", 1) // no non-resource URLs
		line = strings.Replace(line, " []", "", 1)                 // no names, where there are none
		if line != everyServiceAccount {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out, err
}

// Apply applies manifests as a user does, and waits until the kinds that they define can be used.
func (c *ControlPlane) Apply(ctx context.Context, manifests string) error {
	return c.apply(ctx, manifests, "-f", "-")
}

// ApplyFolder does the same with a folder of kustomize, such as deploy/crds.
func (c *ControlPlane) ApplyFolder(ctx context.Context, folder string) error {
	return c.apply(ctx, "", "-k", folder)
}

func (c *ControlPlane) apply(ctx context.Context, input string, what ...string) error {
	args := append([]string{"apply", "--server-side", "--force-conflicts", "-o", "name"}, what...)
	out, err := c.Kubectl(ctx, input, args...)
	if err != nil {
		return err
	}
	wait := []string{"wait", "--for=condition=Established", "--timeout=4m"}
	known := len(wait)
	for _, name := range strings.Fields(out) {
		if strings.HasPrefix(name, "customresourcedefinition.apiextensions.k8s.io/") {
			wait = append(wait, name)
		}
	}
	if len(wait) > known {
		_, err = c.Kubectl(ctx, "", wait...)
	}
	return err
}

// ServiceAccountKubeconfig makes a kubeconfig with a token of a ServiceAccount, which has the rights that RBAC gives
// it. via may be a Forwarder of this control plane.
func (c *ControlPlane) ServiceAccountKubeconfig(
	ctx context.Context,
	namespace, name string,
	via *Forwarder,
) (string, error) {
	token, err := c.Kubectl(ctx, "", "-n", namespace, "create", "token", name, "--duration=24h")
	if err != nil {
		return "", err
	}
	addr, file := c.apiAddr(), c.path(namespace+"-"+name+".kubeconfig")
	if via != nil {
		addr = via.Addr()
		file = c.path(fmt.Sprintf("%s-%s-via-%s.kubeconfig", namespace, name, strings.ReplaceAll(addr, ":", "-")))
	}
	return file, c.writeKubeconfig(file, addr, strings.TrimSpace(token))
}

// Forward makes a way to the API server that can be cut.
func (c *ControlPlane) Forward() (*Forwarder, error) {
	f, err := newForwarder(c.apiPort.Addr())
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.forwarders = append(c.forwarders, f)
	}
	return f, err
}

func (c *ControlPlane) writeKubeconfig(file, addr, token string) error {
	// The API server's own certificate is signed by itself, and so is its own authority.
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: lab, user: {token: %q}}]
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
current-context: lab
`, addr, c.path("pki/apiserver.crt"), token)
	// In one step: another program may be reading what an earlier call wrote.
	whole, err := os.CreateTemp(c.dir, "kubeconfig-")
	if err != nil {
		return err
	}
	_, err = whole.WriteString(text)
	if err := errors.Join(err, whole.Close()); err != nil {
		return err
	}
	return os.Rename(whole.Name(), file)
}

// writeSecrets makes the key that signs ServiceAccount tokens, and the file of the admin's token.
func (c *ControlPlane) writeSecrets() error {
	key, err := newKey()
	return errors.Join(err,
		os.WriteFile(c.path("sa.key"), key, 0o600),
		os.WriteFile(c.path("tokens.csv"), []byte(c.token+",admin,admin,system:masters\n"), 0o600))
}
