package command

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/gather"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
)

// source is what is looked at: the cluster at hand, and the hub where it is named.
func (r *root) source(cmd *cobra.Command) (s gather.Source, err error) {
	s.HubNamespace, s.Asked = r.hubNamespace, cmd.Flags().Changed("hub-namespace")
	if s.Hub, err = r.namedHub(); err != nil {
		return s, err
	}
	s.Member, err = r.member()
	return s, err
}

func (r *root) status() *cobra.Command {
	var f format
	var hubOnly bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show members, what they export, and what is wrong", Args: cobra.NoArgs,
		Long: `Show members, what they export, and what is wrong, problems first. The hub is read with the credentials of this cluster's agent, or with
those that --hub-kubeconfig and --hub-context name. Nothing is written.`,
		Example: `  kubectl clusterset status --context east
  kubectl clusterset status --hub-context hub --hub-only -o wide`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := r.source(cmd)
			if hubOnly {
				s.Member = nil
				s.Hub, err = r.hub(true)
			}
			if err != nil {
				return err
			}
			facts, err := gather.Status(cmd.Context(), s)
			if err != nil {
				return err
			}
			report := status.Tell(facts)
			return f.write(r.out, report, func(wide bool) { status.Print(r.out, &report, wide, gather.Now(facts)) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&hubOnly, "hub-only", false, "look at the hub only, from no member")
	return cmd
}

func (r *root) explain() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "explain NAME", Short: "Tell what a name answers in this cluster, and why", Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("explain one name, such as kubectl clusterset explain web.shop")
			}
			return nil
		},
		Long: `Tell what NAME.clusterset.local answers in this cluster, and why: which clusters export it, which of them won which property, which
endpoints each has here, and what is withheld. Nothing is written.`,
		Example: `  kubectl clusterset explain web.shop
  kubectl clusterset explain web.shop.svc.clusterset.local
  kubectl clusterset explain web -n shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace := ""
			if r.config.Namespace != nil {
				namespace = *r.config.Namespace
			}
			name, err := explain.ParseName(args[0], namespace)
			if err != nil {
				return err
			}
			member, err := r.member()
			if err != nil {
				return err
			}
			facts, err := gather.Explain(cmd.Context(), member, name)
			if err != nil {
				return err
			}
			report := explain.Explain(facts)
			return f.write(r.out, report, func(wide bool) { explain.Print(r.out, &report, wide, time.Now()) })
		},
	}
	f.add(cmd)
	return cmd
}

func (r *root) doctor() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find what is wrong with this member, its hub and its DNS", Args: cobra.NoArgs,
		Long: `Find what is wrong with this member, its hub and its DNS, and say what to do: versions, kinds, policies, rights, credentials, the claim,
clocks, the Corefile, address ranges. With --hub-kubeconfig and --hub-context the hub's own side is looked at as well. Nothing is written.
The exit status is 1 where an error was found.`,
		Example: "  kubectl clusterset doctor --context east --hub-context hub",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := r.source(cmd)
			if err != nil {
				return err
			}
			facts, err := gather.Doctor(cmd.Context(), s)
			if err != nil {
				return err
			}
			report := doctor.Examine(facts)
			if err := f.write(r.out, report, func(wide bool) { doctor.Print(r.out, &report, wide) }); err != nil {
				return err
			}
			if report.Errors() > 0 {
				return ErrFound
			}
			return nil
		},
	}
	f.add(cmd)
	return cmd
}
