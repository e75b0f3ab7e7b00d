package command

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/lifecycle"
)

func (r *root) init() *cobra.Command {
	var o lifecycle.InitOptions
	var dryRun bool
	cmd := &cobra.Command{
		Use: "init", Short: "Make a cluster the hub of a clusterset", Args: cobra.NoArgs,
		Long: `Make a cluster the hub of a clusterset: kinds, policies, the clusterset's namespace, and the controller that keeps its inventory. Before
the clusterset is called ready, forged writes are tried, and must be refused. What is there already is brought up to date; a hub may have
several clustersets, by --hub-namespace.

By default VIPs come from each cluster's own Service ranges. With --vip-mode and --vip-pools they come from blocks of each member's own, which the
hub cuts out of pools that no cluster uses. In a clusterset that is there, only what these flags say is changed.

The hub is the cluster that --hub-kubeconfig and --hub-context name, or else --kubeconfig and --context.`,
		Example: `  kubectl clusterset init --context hub --image registry.example/clusterset-controller:v1.0.0
  kubectl clusterset init --context hub --vip-mode preferred --vip-pools 10.200.0.0/13,fd00:c5::/48`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			r.options(&o.Options, dryRun)
			if o.Hub, err = r.hub(true); err != nil {
				return err
			}
			return lifecycle.Init(cmd.Context(), &o)
		},
	}
	changing(cmd, &o.Options, &dryRun)
	flags := cmd.Flags()
	flags.BoolVar(&o.Wait, "wait", true, "wait until the hub's controller runs")
	flags.StringVar(&o.Image, "image", "", "image of clusterset-controller, which the hub's nodes can pull")
	flags.StringVar(&o.VIPs.Mode, "vip-mode", "", "where VIPs come from: shared or preferred; default: keep the current mode, shared for a new ClusterSet")
	flags.StringSliceVar(&o.VIPs.Pools, "vip-pools", nil, "CIDRs that members' blocks are cut from, in this order")
	flags.StringToIntVar(&o.VIPs.Bits, "vip-block-bits", nil, "how long the prefix of a block is: ipv4=22,ipv6=112")
	return cmd
}

func (r *root) join() *cobra.Command {
	var o lifecycle.JoinOptions
	var dryRun bool
	cmd := &cobra.Command{
		Use: "join", Short: "Make this cluster a member", Args: cobra.NoArgs,
		Long: `Make this cluster a member: claim its id on the hub, apply the agent here, give it credentials for the hub, and wait until it says that it
is a member. The same command again goes on where it was interrupted; leave undoes it.

The id is one DNS label, or two joined by a dot; by default the ClusterProperty cluster.clusterset.k8s.io, or the UID of the namespace
kube-system. With --renew only the credentials are made anew, which the agent otherwise does by itself 24 times in their lifetime: after
it was away for longer than that, and also while it is leaving, which takes the hub.`,
		Example: `  kubectl clusterset join --context east --hub-context hub --cluster-id east --image registry.example/clusterset-controller:v1.0.0
  kubectl clusterset join --context east --hub-context hub --renew`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			r.options(&o.Options, dryRun)
			if cmd.Flags().Changed("token-lifetime") && (o.TokenLifetime < 10*time.Minute || o.TokenLifetime > 24*time.Hour) {
				return errors.New("--token-lifetime must be within 10m and 24h")
			}
			if o.Hub, err = r.hub(false); err != nil {
				return err
			}
			if o.Member, err = r.member(); err != nil {
				return err
			}
			return lifecycle.Join(cmd.Context(), &o)
		},
	}
	changing(cmd, &o.Options, &dryRun)
	flags := cmd.Flags()
	flags.BoolVar(&o.Wait, "wait", true, "wait until the agent says that it is a member")
	flags.StringVar(&o.Image, "image", "", "image of clusterset-controller, which this cluster's nodes can pull")
	flags.StringVar(&o.ClusterID, "cluster-id", "", "this cluster's id")
	flags.StringVar(&o.HubServer, "hub-server", "", "URL of the hub as this cluster's pods reach it; default: as it is, as it is reached from here at first")
	flags.DurationVar(&o.TokenLifetime, "token-lifetime", 0, "lifetime of the credentials, and of those that the agent renews them by; default: as it is, 24h at first")
	flags.BoolVar(&o.Renew, "renew", false, "make the credentials of a member anew, and nothing else")
	return cmd
}

func (r *root) leave() *cobra.Command {
	var o lifecycle.LeaveOptions
	var dryRun, evict bool
	cmd := &cobra.Command{
		Use: "leave [CLUSTER --evict]", Short: "Take this cluster out, or evict a member", Args: cobra.MaximumNArgs(1),
		Long: `Take this cluster out of its clusterset: the agent withdraws its exports and deletes its imports, the hub takes its credentials away, and
what join applied is deleted. ServiceExports stay. A join that was not finished is undone.

With --evict a member is taken out from the hub's side, when it will not come back: it loses its credentials at once, and the others
its exports.`,
		Example: `  kubectl clusterset leave --context east --hub-context hub
  kubectl clusterset leave east --evict --hub-context hub`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.options(&o.Options, dryRun)
			if evict != (len(args) == 1) {
				return errors.New("leave takes this cluster out; leave CLUSTER --evict another one")
			}
			if evict {
				if o.Hub, err = r.hub(true); err != nil {
					return err
				}
				return lifecycle.Evict(cmd.Context(), &o.Options, args[0])
			}
			if o.Hub, err = r.namedHub(); err != nil {
				return err
			}
			if o.Member, err = r.member(); err != nil {
				return err
			}
			return lifecycle.Leave(cmd.Context(), &o)
		},
	}
	changing(cmd, &o.Options, &dryRun)
	cmd.Flags().BoolVar(&evict, "evict", false, "evict the named member from the hub")
	cmd.Flags().BoolVar(&o.Force, "force", false, "do not ask the hub, which is gone for good")
	return cmd
}
