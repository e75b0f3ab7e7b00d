package command

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/lifecycle"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

func (r *root) init() *cobra.Command {
	var o lifecycle.Options
	var dryRun cluster.DryRun
	cmd := &cobra.Command{
		Use: "init", Short: "Make a cluster the hub of a ClusterSet", Args: noArgs,
		Long: `Make a cluster the hub of a ClusterSet: install kinds, policies, the ClusterSet's namespace and its
controller. The command updates an existing hub. With --hub-namespace, a hub has several ClusterSets.

An existing ClusterSet stays as it is. Its fields say where VIPs come from and when members expire; for
what they mean, run kubectl explain clusterset.spec on the hub.

The hub is the cluster that --hub-kubeconfig and --hub-context name, or this cluster without them.`,
		Example: "  kubectl clusterset init --context hub --image registry.example/clusterset-controller:v1.0.0",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Hub, err = r.hubOrThis(); err != nil {
				return err
			}
			r.options(&o, dryRun)
			return lifecycle.Init(cmd.Context(), &o)
		},
	}
	writes(cmd, &o, &dryRun)
	flags := cmd.Flags()
	flags.BoolVar(&o.Wait, "wait", true, "wait until the hub's controller runs")
	flags.StringVar(&o.Image, "image", "", "image of clusterset-controller, which the hub's nodes must be able to pull")
	return cmd
}

func (r *root) join() *cobra.Command {
	var o lifecycle.JoinOptions
	var dryRun cluster.DryRun
	cmd := &cobra.Command{
		Use: "join", Short: "Make this cluster a member", Args: noArgs,
		Long: `Make this cluster a member: claim its cluster ID on the hub, install the agent here, give it
credentials for the hub, and wait until it is a member. Run the same command again to continue an
interrupted join; kubectl clusterset leave undoes it.

The cluster ID is one DNS label, or two joined by a dot. The default is the ClusterProperty
cluster.clusterset.k8s.io, or else the ID of an installed agent, or else the UID of kube-system.

The agent renews its token 24 times in its lifetime. If it has expired, use --renew, also before leave.`,
		Example: `  kubectl clusterset join --context east --hub-context hub --cluster-id east --image IMAGE
  kubectl clusterset join --context east --hub-context hub --renew`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Hub, err = r.namedHub(); o.Hub == nil {
				return cmp.Or(err, report.Fail(nameHub, "no flag names the hub"))
			}
			if o.Member, err = r.ofMember(cmd, &o.Options, dryRun); err != nil {
				return err
			}
			return lifecycle.Join(cmd.Context(), &o)
		},
	}
	writes(cmd, &o.Options, &dryRun)
	flags := cmd.Flags()
	flags.BoolVar(&o.Wait, "wait", true, "wait until the agent is a member")
	flags.StringVar(&o.Image, "image", "",
		"image of clusterset-controller, which this cluster's nodes must be able to pull")
	flags.StringVar(&o.ClusterID, "cluster-id", "", "this cluster's ID")
	flags.StringVar(&o.HubServer, "hub-server", "",
		"URL at which this cluster's pods reach the hub (default: keep current; on first join, the URL in your "+
			"kubeconfig)")
	flags.DurationVar(&o.TokenLifetime, "token-lifetime", 0,
		"lifetime of the token and of its renewals, 10m to 24h (default: keep current; 24h on first join)")
	flags.BoolVar(&o.Renew, "renew", false, "only replace the credentials of a member, or of one that was evicted")
	return cmd
}

// ofMember sets the options of a command for a member, and returns the member.
func (r *root) ofMember(cmd *cobra.Command, o *lifecycle.Options, dryRun cluster.DryRun) (*cluster.Cluster, error) {
	r.options(o, dryRun)
	if !cmd.Flags().Changed("hub-namespace") {
		o.HubNamespace = "" // the membership names it
	}
	return r.member()
}

func (r *root) leave() *cobra.Command {
	var o lifecycle.LeaveOptions
	var dryRun cluster.DryRun
	cmd := &cobra.Command{
		Use: "leave", Short: "Remove this cluster from its ClusterSet", Args: atMost(1),
		Long: `Remove this cluster from its ClusterSet: the agent withdraws its exports and deletes its imports,
the hub revokes its credentials, and what join installed is deleted. ServiceExports and CRDs stay. The
command asks first. It also undoes an unfinished join.`,
		Example: "  kubectl clusterset leave --context east --hub-context hub",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				evict := r.flags().Here("kubectl clusterset evict " + args[0] + " --hub-context=HUB")
				return report.Fail("to remove another: "+evict, "leave removes this cluster and takes no argument")
			}
			if o.Hub, err = r.namedHub(); err != nil {
				return err
			}
			if o.Member, err = r.ofMember(cmd, &o.Options, dryRun); err != nil {
				return err
			}
			return lifecycle.Leave(cmd.Context(), &o)
		},
	}
	writes(cmd, &o.Options, &dryRun)
	r.asks(cmd, &o.Options)
	cmd.Flags().BoolVar(&o.Force, "force", false,
		"the agent leaves without the hub; only if that is permanently lost, or this cluster is a clone")
	return cmd
}

func newEvict(r *root) *cobra.Command {
	var o lifecycle.Options
	var dryRun cluster.DryRun
	cmd := &cobra.Command{
		Use: "evict CLUSTER", Short: "Remove another member, such as one that is lost", Args: atMost(1),
		Long: `Remove a member from the hub by its cluster ID, for example one that is permanently lost. It loses its
credentials at once, and the other members lose its exports. The command asks first.

The hub is the cluster that --hub-kubeconfig and --hub-context name, or this cluster without them.`,
		Example: "  kubectl clusterset evict east --hub-context hub",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				return report.Fail(r.flags().Here("kubectl clusterset status --hub-only --hub-context=HUB"),
					"evict takes the cluster ID of a member")
			}
			if o.Hub, err = r.hubOrThis(); err != nil {
				return err
			}
			r.options(&o, dryRun)
			return lifecycle.Evict(cmd.Context(), &o, args[0])
		},
	}
	writes(cmd, &o, &dryRun)
	r.asks(cmd, &o)
	return cmd
}
