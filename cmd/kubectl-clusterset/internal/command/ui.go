package command

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/ui"
)

func newUI(r *root) *cobra.Command {
	var hubOnly bool
	var file string
	cmd := &cobra.Command{
		Use: "ui", Short: "Show the ClusterSet on a page in your browser", Args: noArgs,
		Long: `Serve a page that shows what is wrong, all clusters, who reaches whom, and every name, until Ctrl-C. It is
up to date within seconds. The page is on this machine's loopback alone: open the address that the command prints, which
works once. The credentials of the hub are enough; with a member's, the page shows what that member knows. Neither the
command nor the page writes anything.`,
		Example: `  kubectl clusterset ui --context hub
  kubectl clusterset ui --from east.tar.gz`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			page, err := server(r, cmd, file, hubOnly)
			if err != nil {
				return err
			}
			return page.Serve(cmd.Context(), r.out)
		},
	}
	looks(cmd, &file, &hubOnly)
	return cmd
}

// server returns that of the page. It reads the clusters once, so that a mistake is an error before a browser opens.
func server(r *root, cmd *cobra.Command, file string, hubOnly bool) (*ui.Server, error) {
	if file != "" {
		s, err := r.load(file)
		if err != nil {
			return nil, err
		}
		return &ui.Server{Read: func(context.Context) (*check.World, error) { return check.See(s, nil), nil }}, nil
	}
	source, err := r.source(cmd, hubOnly)
	if err != nil {
		return nil, err
	}
	first, err := r.read(cmd.Context(), source)
	if err != nil {
		return nil, err
	}
	if first.Member == nil {
		hub := *cmp.Or(source.Hub, source.Member)
		hub.Name = "the hub"
		source.Hub, source.Member, source.Namespace = &hub, nil, first.Namespace
	}
	out := &ui.Server{Every: 3 * time.Second}
	compared := time.Now()
	source.Earlier = first.Snapshot
	out.Read = func(ctx context.Context) (*check.World, error) {
		// Of a hub, that is 10 requests: the version, five lists, the leader's Lease, and the namespace, Deployment and
		// Pods of its controller. A comparison with the manifests, once a minute, is six more. A list of more than 500
		// objects is read in several requests.
		now := source
		if time.Since(compared) > time.Minute {
			now.Earlier = nil
		}
		s, err := snapshot.Read(ctx, now)
		if err != nil {
			return nil, err
		}
		if now.Earlier == nil {
			source.Earlier, compared = s, time.Now()
		}
		s.Flags = first.Flags
		return check.See(s, nil), nil
	}
	return out, nil
}
