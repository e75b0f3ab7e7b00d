package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stanza is the Corefile that answers multicluster alone.
const stanza = `.:DNS_PORT {
    bind 127.0.0.1
    errors
    health HEALTH_ADDR
    ready READY_ADDR
    prometheus METRICS_ADDR
    multicluster clusterset.local {
        kubeconfig %s
    }
}
`

// DNS is a running CoreDNS.
type DNS struct {
	bin                                *Binaries
	binary, dir, corefile              string
	env                                []string
	port, ready, metric, health, pprof *Port
	proc                               *process
}

// StartDNS runs a CoreDNS binary with a Corefile, in which DNS_PORT, READY_ADDR, METRICS_ADDR, HEALTH_ADDR and
// PPROF_ADDR stand for free ones. It returns when the server answers, or the error that it ended with.
func StartDNS(ctx context.Context, bin *Binaries, binary, corefile string, env ...string) (*DNS, error) {
	d := &DNS{bin: bin, binary: binary, env: env}
	if err := d.start(ctx, corefile); err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

func (d *DNS) start(ctx context.Context, corefile string) error {
	var err error
	if d.dir, err = newFolder(os.TempDir(), "dns"); err != nil {
		return err
	}
	for _, p := range []**Port{&d.port, &d.ready, &d.metric, &d.health, &d.pprof} {
		if *p, err = ReservePort(); err != nil {
			return err
		}
	}
	d.corefile = filepath.Join(d.dir, "Corefile")
	if err := d.write(corefile); err != nil {
		return err
	}
	return d.Start(ctx)
}

// Use makes Start run another build of CoreDNS.
func (d *DNS) Use(binary string) { d.binary = binary }

// Start starts it again after Kill, where it was. It returns when the server listens.
func (d *DNS) Start(ctx context.Context) error {
	log := filepath.Join(d.dir, "coredns.log")
	before, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if d.proc, err = spawn(d.bin, "coredns", log, []string{d.dir}, d.env, d.binary, "-conf", d.corefile); err != nil {
		return err
	}
	// It names its version once every listener, UDP and TCP, is there.
	return d.proc.until(
		ctx,
		"listening",
		startLimit,
		func() bool { return strings.Contains(d.Log()[len(before):], "CoreDNS-") },
	)
}

func (d *DNS) write(corefile string) error {
	return os.WriteFile(d.corefile, []byte(d.Fill(corefile)), 0o644)
}

// Fill puts its ports and addresses where a Corefile has the words that stand for them.
func (d *DNS) Fill(corefile string) string {
	return strings.NewReplacer("DNS_PORT", fmt.Sprint(d.port.Number), "READY_ADDR", d.ready.Addr(), "METRICS_ADDR", d.metric.Addr(),
		"HEALTH_ADDR", d.health.Addr(), "PPROF_ADDR", d.pprof.Addr()).
		Replace(corefile)
}

// ServeDNS is bin/coredns for a cluster, with the rights of deploy/coredns. corefile makes its Corefile for a
// kubeconfig; nil: multicluster alone. It returns when CoreDNS is ready.
func ServeDNS(ctx context.Context, c *ControlPlane, corefile func(kubeconfig string) (string, error)) (*DNS, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return serveDNS(ctx, root, c, corefile)
}

// serveDNS is ServeDNS with the program and the rights of the checkout root.
func serveDNS(
	ctx context.Context, root string, c *ControlPlane, corefile func(kubeconfig string) (string, error),
) (*DNS, error) {
	if corefile == nil {
		corefile = func(kubeconfig string) (string, error) { return fmt.Sprintf(stanza, kubeconfig), nil }
	}
	bare, err := os.ReadFile(filepath.Join(root, "deploy/coredns/bare.yaml"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		c.Apply(ctx, string(bare)),
		c.ApplyFolder(ctx, filepath.Join(root, "deploy/coredns")),
	); err != nil {
		return nil, err
	}
	kubeconfig, err := c.ServiceAccountKubeconfig(ctx, "kube-system", "coredns", nil)
	if err != nil {
		return nil, err
	}
	text, err := corefile(kubeconfig)
	if err != nil {
		return nil, err
	}
	d, err := StartDNS(ctx, c.bin, Program(root, "coredns"), text)
	if err != nil {
		return nil, err
	}
	if err := d.proc.until(ctx, "ready", startLimit, d.Ready); err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

// Addr is where it answers, over UDP and TCP.
func (d *DNS) Addr() string { return d.port.Addr() }

// PID is its process.
func (d *DNS) PID() int { return d.proc.pid }

// Log is what it has said so far.
func (d *DNS) Log() string {
	b, err := os.ReadFile(d.proc.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Reload gives it another Corefile and waits for how it takes it: the error is the server's.
func (d *DNS) Reload(ctx context.Context, corefile string) error {
	if err := d.write(corefile); err != nil {
		return err
	}
	said := len(d.Log())
	if err := d.proc.signal(syscall.SIGUSR1); err != nil {
		return err
	}
	var refused error
	err := d.proc.until(ctx, "reloaded", startLimit, func() bool {
		since := d.Log()[said:]
		if _, why, ok := strings.Cut(since, "[ERROR] SIGUSR1: "); ok && strings.Contains(why, "\n") {
			refused = fmt.Errorf("reload: %s", why[:strings.Index(why, "\n")])
			return true
		}
		return strings.Contains(since, "Reloading complete")
	})
	return errors.Join(err, refused)
}

// Ready asks the ready plugin.
func (d *DNS) Ready() bool {
	code, _ := fetch("http://" + d.ready.Addr() + "/ready")
	return code == http.StatusOK
}

// Metrics is what the prometheus plugin shows.
func (d *DNS) Metrics() (string, error) {
	code, body := fetch("http://" + d.metric.Addr() + "/metrics")
	if code != http.StatusOK {
		return "", fmt.Errorf("metrics: %d %s", code, body)
	}
	return body, nil
}

// Profile is one of the pprof plugin's, as text.
func (d *DNS) Profile(name string) (string, error) { return profile(d.pprof, name) }

func fetch(url string) (int, string) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// Running tells whether it has not ended.
func (d *DNS) Running() bool { return d.proc.running() }

// Terminate asks it to end, as a kubelet does.
func (d *DNS) Terminate() { d.proc.stop(10 * time.Second) }

// Kill ends it at once, as a crash would. What it said can still be read.
func (d *DNS) Kill() { d.proc.kill() }

// Stop ends it, and deletes what was written.
func (d *DNS) Stop() {
	if d == nil {
		return
	}
	d.proc.kill()
	for _, p := range []*Port{d.port, d.ready, d.metric, d.health, d.pprof} {
		p.Release()
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}
