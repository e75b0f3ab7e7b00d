package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// HubNamespace is the clusterset's namespace on the hub, as deploy/hub has it.
const HubNamespace = "clusterset"

// stanza is the Corefile of a member's CoreDNS.
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

// ClusterSetOptions say what is started.
type ClusterSetOptions struct {
	Members []string // cluster ids
	DNS     bool     // bin/coredns in each member, too
	// Corefile makes CoreDNS's for a kubeconfig; the words of StartDNS stand for ports. Nil: multicluster alone.
	Corefile func(kubeconfig string) (string, error)
	// Plane gives each control plane's options by name: a cluster id, or "hub". Nil: the defaults.
	Plane func(name string) Options
	// Step is told what happens, for a person; nil: nobody.
	Step func(format string, args ...any)
}

// ClusterSet is a hub and its members, each a control plane of its own, set up with the manifests of deploy/ as an admin would, each
// program with its own ServiceAccount.
type ClusterSet struct {
	Hub     *ControlPlane
	Members []*Member
	root    string
	step    func(format string, args ...any)
}

// Member is one cluster of a ClusterSet.
type Member struct {
	ID      string
	Cluster *ControlPlane
	Agent   *Agent
	DNS     *DNS       // nil unless asked for
	ToHub   *Forwarder // the agent's way to the hub, which can be cut
}

// StartClusterSet starts hub and members, and returns when every agent is ready. On an error nothing is left running.
func StartClusterSet(ctx context.Context, o ClusterSetOptions) (*ClusterSet, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	c := &ClusterSet{root: root, step: o.Step}
	if c.step == nil {
		c.step = func(string, ...any) {}
	}
	if err := c.start(ctx, o); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *ClusterSet) start(ctx context.Context, o ClusterSetOptions) error {
	plane := o.Plane
	if plane == nil {
		plane = func(string) Options { return Options{} }
	}
	if _, err := Find(ctx); err != nil { // built once, before several ask for it
		return err
	}
	planes := make([]*ControlPlane, 1+len(o.Members))
	errs := make([]error, len(planes))
	var all sync.WaitGroup
	for i, name := range append([]string{"hub"}, o.Members...) {
		all.Go(func() { planes[i], errs[i] = Start(ctx, plane(name)) })
	}
	all.Wait()
	c.Hub = planes[0]
	for i, id := range o.Members {
		c.Members = append(c.Members, &Member{ID: id, Cluster: planes[i+1]})
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, folder := range []string{"deploy/hub", "deploy/hub/clusterset"} {
		c.step("kubectl --context hub apply --server-side -k %s", folder)
		if err := c.Hub.ApplyFolder(ctx, filepath.Join(c.root, folder)); err != nil {
			return fmt.Errorf("hub: %w", err)
		}
	}
	for _, m := range c.Members {
		c.step("kubectl --context hub apply --server-side -k deploy/hub/member   # with %s for CLUSTER-ID", m.ID)
		c.step("kubectl --context %s apply --server-side -k deploy/member", m.ID)
		if o.DNS {
			c.step("kubectl --context %s apply --server-side -k deploy/coredns", m.ID)
		}
	}
	for i, m := range c.Members {
		all.Go(func() { errs[i+1] = c.join(ctx, m, o) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// join makes a control plane a member.
func (c *ClusterSet) join(ctx context.Context, m *Member, o ClusterSetOptions) error {
	if err := c.Hub.Apply(ctx, HubMember(c.root, m.ID)); err != nil {
		return fmt.Errorf("hub, for %s: %w", m.ID, err)
	}
	if err := m.Cluster.ApplyFolder(ctx, filepath.Join(c.root, "deploy/member")); err != nil {
		return fmt.Errorf("%s: %w", m.ID, err)
	}
	var err error
	if m.ToHub, err = c.Hub.Forward(); err != nil {
		return err
	}
	hub, err := c.Hub.ServiceAccountKubeconfig(ctx, HubNamespace, "mcs-"+m.ID, m.ToHub)
	if err != nil {
		return err
	}
	local, err := m.Cluster.ServiceAccountKubeconfig(ctx, "clusterset-system", "clusterset-controller", nil)
	if err != nil {
		return err
	}
	m.Agent, err = StartAgent(ctx, filepath.Join(c.root, "bin", "clusterset-controller"), AgentOptions{
		Kubeconfig: local, HubKubeconfig: hub, HubNamespace: HubNamespace, ClusterID: m.ID,
	})
	if err != nil {
		return err
	}
	if o.DNS {
		if err := c.serve(ctx, m, o.Corefile); err != nil {
			return err
		}
	}
	return m.Agent.UntilReady(ctx)
}

// serve starts a member's CoreDNS.
func (c *ClusterSet) serve(ctx context.Context, m *Member, corefile func(string) (string, error)) error {
	if corefile == nil {
		corefile = func(kubeconfig string) (string, error) { return fmt.Sprintf(stanza, kubeconfig), nil }
	}
	bare, err := os.ReadFile(filepath.Join(c.root, "deploy/coredns/bare.yaml"))
	if err != nil {
		return err
	}
	if err := errors.Join(m.Cluster.Apply(ctx, string(bare)), m.Cluster.ApplyFolder(ctx, filepath.Join(c.root, "deploy/coredns"))); err != nil {
		return err
	}
	kubeconfig, err := m.Cluster.ServiceAccountKubeconfig(ctx, "kube-system", "coredns", nil)
	if err != nil {
		return err
	}
	text, err := corefile(kubeconfig)
	if err != nil {
		return err
	}
	bin, err := Find(ctx)
	if err != nil {
		return err
	}
	if m.DNS, err = StartDNS(ctx, bin, filepath.Join(c.root, "bin", "coredns"), text); err != nil {
		return err
	}
	deadline := time.Now().Add(startLimit)
	for !m.DNS.Ready() {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: CoreDNS is not ready:\n%s", m.ID, m.DNS.Log())
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// HubMember is deploy/hub/member for one cluster id, as its README says to make it.
func HubMember(root, id string) string {
	text, err := os.ReadFile(filepath.Join(root, "deploy/hub/member/member.yaml"))
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), "CLUSTER-ID", id)
}

// Stop ends everything.
func (c *ClusterSet) Stop() {
	for _, m := range c.Members {
		m.Agent.Stop()
		if m.DNS != nil {
			m.DNS.Stop()
		}
		if m.Cluster != nil {
			m.Cluster.Stop()
		}
	}
	if c.Hub != nil {
		c.Hub.Stop()
	}
}
