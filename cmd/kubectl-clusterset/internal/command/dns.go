package command

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/deploy"
)

func (r *root) dns() *cobra.Command {
	cmd := &cobra.Command{
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Use:   "dns",
		Short: "Bring our CoreDNS into this cluster, or take it out",
		Long:  `Bring our CoreDNS into this cluster, or take it out again. status shows whether it answers.`,
	}
	cmd.AddCommand(r.dnsInstall(), r.dnsUninstall())
	return cmd
}

// runner returns what carries out a plan.
func runner(r *root, cmd *cobra.Command, f *changes) (*dns.Runner, error) {
	member, err := r.member()
	if err != nil {
		return nil, err
	}
	out := &dns.Runner{Cluster: member, Ask: dns.Forwarded(member.Config), Out: r.out, Say: r.say, Wait: f.wait,
		DryRun: f.dryRun, Timeout: f.timeout}
	if !f.yes {
		out.Confirm = cmd.InOrStdin()
	}
	return out, nil
}

func (r *root) dnsInstall() *cobra.Command {
	var w dns.Wanted
	var f changes
	var replace, beside bool
	cmd := &cobra.Command{
		Use: "install", Short: "Have this cluster's DNS answer clusterset.local", Args: noArgs,
		Long: `Have this cluster's DNS answer clusterset.local. The command finds out who runs the cluster's DNS, shows
what it would change, asks, changes it, waits, and asks the DNS Pods through a port-forward. If they do
not answer, it restores what was. Run it again to update the image or to repair the configuration.

With --replace, the cluster's own CoreDNS gets our image and one more server block. With --beside, our
CoreDNS runs in namespace clusterset-dns, and the cluster's DNS forwards the zone to it. The default is
what is installed; at first, --replace for a CoreDNS that kubeadm set up, and --beside elsewhere.`,
		Example: `  kubectl clusterset dns install --context east --image registry.example/coredns:v1.0.0
  kubectl clusterset dns install --context east --beside --image IMAGE --dry-run`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if replace {
				w.Mode = dns.Replace
			} else if beside {
				w.Mode = dns.Beside
			}
			w.NoWait = !f.wait && f.dryRun == cluster.DryRunNone
			w.Release = deploy.Image(deploy.CoreDNS, r.version)
			run, err := runner(r, cmd, &f)
			if err != nil {
				return err
			}
			agent, _ := run.Deployment(cmd.Context(), manifest.AgentDeployment) // without it --image may be required
			if c := facts.Container(agent); c != nil {
				w.Agent = c.Image
			}
			return run.Install(cmd.Context(), w)
		},
	}
	f.add(cmd, "wait for completion, verify with a query, and roll back without an answer")
	cmd.Flags().BoolVar(&replace, "replace", false, "use our image in the cluster's own CoreDNS")
	cmd.Flags().BoolVar(&beside, "beside", false,
		"run our CoreDNS beside the cluster's DNS, which forwards the zone to it")
	cmd.Flags().StringVar(&w.Image, "image", "",
		"image of our CoreDNS, which the nodes must be able to pull (default: that of this version's release; without "+
			"one, what is installed, or the one beside the agent's)")
	cmd.MarkFlagsMutuallyExclusive("replace", "beside")
	return cmd
}

func (r *root) dnsUninstall() *cobra.Command {
	var f changes
	cmd := &cobra.Command{
		Use: "uninstall", Short: "Restore this cluster's DNS as it was before dns install", Args: noArgs,
		Long: `Restore this cluster's DNS as it was before dns install: its configuration first, then its image, and at
last what dns install applied. CRDs stay.`,
		Example: "  kubectl clusterset dns uninstall --context east",
		RunE: func(cmd *cobra.Command, _ []string) error {
			run, err := runner(r, cmd, &f)
			if err != nil {
				return err
			}
			return run.Uninstall(cmd.Context())
		},
	}
	f.add(cmd, "wait for completion, and verify with a query")
	return cmd
}

// changes are the flags of commands that change the cluster's DNS.
type changes struct {
	yes, wait bool
	dryRun    cluster.DryRun
	timeout   time.Duration
}

func (f *changes) add(cmd *cobra.Command, wait string) {
	flags := cmd.Flags()
	addDryRun(cmd, &f.dryRun)
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
	flags.BoolVar(&f.wait, "wait", true, wait)
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "maximum time to wait for each step")
}
