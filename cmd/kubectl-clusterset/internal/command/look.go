package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/bundle"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/ui"
)

func newGather(r *root) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Write a support archive, without credentials",
		Args:  noArgs,
		Long: `Write a support archive of this member: our objects, logs, the Corefile, Events, the reports of
status and doctor, and the page of ui. With --hub-kubeconfig or --hub-context, the hub's side is added.
Secrets are not in it, and what looks like a credential elsewhere is replaced. Look through the archive
before you give it to somebody: it has names and addresses of your clusters. status, doctor, explain and
ui answer from it with --from.`,
		Example: `  kubectl clusterset gather --context east --hub-context hub -f east.tar.gz
  kubectl clusterset doctor --from east.tar.gz`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := r.source(cmd, false)
			if err != nil {
				return err
			}
			out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
			if err != nil {
				return report.WithRemedy(fmt.Errorf("writing the archive failed: %w", err), "another name: --file FILE")
			}
			source.Everything = true
			w, err := r.read(cmd.Context(), source)
			if err != nil {
				return err
			}
			results := check.Run(w)
			var statusText, doctorText bytes.Buffer
			all, checks := status.Examine(w, results), doctor.Examine(w, results)
			status.Print(&statusText, &all, true, w.Now())
			doctor.Print(&doctorText, &checks, true)
			clusters := []bundle.Cluster{{Cluster: source.Member, Folder: "member"}}
			if source.Hub != nil {
				clusters = append(clusters, bundle.Cluster{Cluster: source.Hub, Folder: "hub"})
			}
			page, err := ui.File(w)
			if err != nil {
				return err
			}
			unread, err := bundle.Write(cmd.Context(), out, time.Now(), w.Snapshot, clusters, map[string][]byte{
				"status.txt": statusText.Bytes(), "doctor.txt": doctorText.Bytes(), "clusterset.html": page})
			if err = errors.Join(err, out.Close()); err != nil {
				return fmt.Errorf("writing the archive failed: %w", err)
			}
			r.say("wrote %s: look through it before you give it to somebody", file)
			if unread > 0 {
				r.say("%s could not be read: see errors.txt in it", report.Number(unread, "thing"))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "clusterset-support.tar.gz", "the archive, which must not exist")
	return cmd
}

// nameOf returns the name that an argument means. Without a namespace, it is in that of --namespace or the context.
func nameOf(config *genericclioptions.ConfigFlags, arg string) (types.NamespacedName, error) {
	namespace, _, err := config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		err = report.WithRemedy(fmt.Errorf("reading the kubeconfig failed: %w", err), nameMember)
		return types.NamespacedName{}, err
	}
	return explain.ParseName(arg, namespace)
}
