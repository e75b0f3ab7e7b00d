package command

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/gather"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
)

const exitCodes = `

Exit status: 0 without findings, 1 with warnings only, 2 with errors or if the command fails.`

// source names what to read: this cluster, and the hub if a flag names it. With hubOnly, it is the hub alone, which is
// this cluster if no flag names another one.
func (r *root) source(cmd *cobra.Command, hubOnly bool) (s gather.Source, err error) {
	s.HubNamespace, s.NamespaceGiven = r.hubNamespace, cmd.Flags().Changed("hub-namespace")
	if hubOnly {
		s.Hub, err = r.hub(true)
		return s, err
	}
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
		Use: "status", Short: "Show members, their exports, and findings", Args: noArgs,
		Long: `Show findings, members and what they export. The hub is read with the credentials of this cluster's
agent, or with those that --hub-kubeconfig and --hub-context name. The command writes nothing.` + exitCodes,
		Example: `  kubectl clusterset status --context east
  kubectl clusterset status --hub-context hub --hub-only -o wide`,
	}
	examines(cmd, func(cmd *cobra.Command) (t report.Tally, err error) {
		s, err := r.source(cmd, hubOnly)
		if err != nil {
			return t, err
		}
		facts, err := gather.Status(cmd.Context(), s)
		if err != nil {
			return t, err
		}
		all := status.Examine(facts)
		r.hubNamespace = facts.Namespace // for remedies
		r.hubIsThis = facts.Member == nil && r.hubKubeconfig+r.hubContext == ""
		r.flags().Repeat(all.Findings)
		return report.Count(all.Findings), f.write(r.out, all, func(wide bool) {
			status.Print(r.out, &all, wide, gather.Now(facts))
		})
	})
	f.add(cmd)
	cmd.Flags().BoolVar(&hubOnly, "hub-only", false, "show the hub only, without a member")
	return cmd
}

func (r *root) explain() *cobra.Command {
	var f format
	var from string
	cmd := &cobra.Command{
		Use: "explain NAME", Short: "Explain what a name answers in this cluster",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return report.WithRemedy(errors.New("explain takes one name"), "kubectl clusterset explain web.shop")
			}
			return nil
		},
		Long: `Explain what NAME.clusterset.local answers in this cluster, and why: which clusters export it, whose
properties are in effect, which endpoints are ready, and what is withheld. For a name that clients
outside the clusters ask, it shows which clusters answer them. The command writes nothing.

Exit status: 0 if the name could be explained, also with findings.`,
		Example: `  kubectl clusterset explain web.shop
  kubectl clusterset explain web.shop.svc.clusterset.local
  kubectl clusterset explain web -n shop
  kubectl clusterset explain web.shop --from 203.0.113.7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := nameOf(r.config, args[0])
			if err != nil {
				return err
			}
			var client netip.Addr
			if from != "" {
				if client, err = netip.ParseAddr(from); err != nil {
					return fmt.Errorf("--from: %w", err)
				}
			}
			member, err := r.member()
			if err != nil {
				return err
			}
			facts, err := gather.Explain(cmd.Context(), member, name)
			if err != nil {
				return err
			}
			facts.From = client
			all := explain.Explain(facts)
			r.flags().Repeat(all.Findings)
			return f.write(r.out, all, func(wide bool) { explain.Print(r.out, &all, wide, facts.Now) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&from, "from", "",
		"show which cluster a client at this address, outside the clusters, gets if its place is not known")
	return cmd
}

func (r *root) doctor() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this member, its hub and its DNS", Args: noArgs,
		Long: `Check this member, its hub and its DNS: versions, kinds, policies, rights, credentials, the cluster
ID, clocks, the Corefile and address ranges. Each finding has a remedy. With --hub-kubeconfig or
--hub-context, the hub's own side is checked as well; in a hub that is no member, it alone. The command
writes nothing.` + exitCodes,
		Example: "  kubectl clusterset doctor --context east --hub-context hub",
	}
	examines(cmd, func(cmd *cobra.Command) (t report.Tally, err error) {
		s, err := r.source(cmd, false)
		if err != nil {
			return t, err
		}
		facts, err := gather.Doctor(cmd.Context(), s)
		if err != nil {
			return t, err
		}
		all := doctor.Examine(facts)
		r.hubNamespace = facts.HubFacts.Namespace // for remedies
		r.hubIsThis = len(all.HubOf) > 0 && s.Hub == nil
		for i := range all.Outcomes {
			o := &all.Outcomes[i]
			r.flags().Repeat(o.Findings)
			o.Skipped = r.flags().Remedy(o.Skipped)
		}
		return report.Count(all.Findings()), f.write(r.out, all, func(wide bool) { doctor.Print(r.out, &all, wide) })
	})
	f.add(cmd)
	return cmd
}
