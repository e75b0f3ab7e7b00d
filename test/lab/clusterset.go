package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// HubNamespace is the clusterset's namespace on the hub, as deploy/hub has it.
const HubNamespace = "clusterset"

// ClusterSetOptions say what is started.
type ClusterSetOptions struct {
	Members []string // cluster ids
	DNS     bool     // bin/coredns in each member, too
	// Root is the checkout whose deploy/ and bin/ are used, as of another version. Empty: this one.
	Root string
	// Corefile makes CoreDNS's for a kubeconfig; the words of StartDNS stand for ports. Nil: multicluster alone.
	Corefile func(kubeconfig string) (string, error)
	// AgentArgs are further flags of an agent, by cluster id.
	AgentArgs map[string][]string
	// AgentEnv are further variables of an agent's environment, KEY=VALUE, by cluster id.
	AgentEnv map[string][]string
	// Plane gives each control plane's options by name: a cluster id, or "hub". Nil: the defaults.
	Plane func(name string) Options
	// Step is told what happens, for a person; nil: nobody.
	Step func(format string, args ...any)
}

// ClusterSet is a hub and its members, each a control plane of its own, set up with the manifests of deploy/ as an
// admin would, each program with its own ServiceAccount.
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
	Agent   *Controller
	DNS     *DNS       // nil unless asked for
	ToHub   *Forwarder // the agent's way to the hub, which can be cut
}

// StartClusterSet starts hub and members, and returns when every agent is ready. On an error nothing is left running.
func StartClusterSet(ctx context.Context, o ClusterSetOptions) (*ClusterSet, error) {
	var err error
	if o.Root == "" {
		if o.Root, err = Root(); err != nil {
			return nil, err
		}
	}
	c := &ClusterSet{root: o.Root, step: o.Step}
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
	planes, err := StartPlanes(ctx, plane, append([]string{"hub"}, o.Members...)...)
	if err != nil {
		return err
	}
	c.Hub = planes["hub"]
	for _, id := range o.Members {
		c.Members = append(c.Members, &Member{ID: id, Cluster: planes[id]})
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
	var all sync.WaitGroup
	errs := make([]error, len(c.Members))
	for i, m := range c.Members {
		all.Go(func() { errs[i] = c.join(ctx, m, o) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Join makes a control plane that runs already a member, as StartClusterSet does. It ends with the others.
func (c *ClusterSet) Join(ctx context.Context, id string, plane *ControlPlane) (*Member, error) {
	m := &Member{ID: id, Cluster: plane}
	c.Members = append(c.Members, m)
	return m, c.join(ctx, m, ClusterSetOptions{})
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
	m.Agent, err = StartAgent(ctx, c.agentProgram(m), AgentOptions{
		Kubeconfig: local, HubKubeconfig: hub, HubNamespace: HubNamespace, ClusterID: m.ID, Args: o.AgentArgs[m.ID],
		Env: o.AgentEnv[m.ID],
	})
	if err != nil {
		return err
	}
	if o.DNS {
		if m.DNS, err = serveDNS(ctx, c.root, m.Cluster, o.Corefile); err != nil {
			return fmt.Errorf("%s: %w", m.ID, err)
		}
	}
	return m.Agent.UntilReady(ctx)
}

// agentProgram is what a member runs: bin/clusterset-controller. LAB_OLDER may name another build of it, by a path from
// the checkout, which all members but the first run instead.
func (c *ClusterSet) agentProgram(m *Member) string {
	if older := os.Getenv("LAB_OLDER"); older != "" && m != c.Members[0] {
		return filepath.Join(c.root, older)
	}
	return filepath.Join(c.root, "bin", "clusterset-controller")
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
		m.DNS.Stop()
		if m.Cluster != nil {
			m.Cluster.Stop()
		}
	}
	if c.Hub != nil {
		c.Hub.Stop()
	}
}
