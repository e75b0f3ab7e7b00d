package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/export"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

func newExport(r *root) *cobra.Command {
	var o export.Options
	cmd := &cobra.Command{
		Use: "export NAME...", Short: "Export Services to the ClusterSet, or withdraw them with --delete",
		Long: `Export Services to the ClusterSet: for each, a ServiceExport of its name is created, or deleted with
--delete. NAME is that of a Service in the namespace of --namespace, or SERVICE.NAMESPACE. With -l or
--all, the Services are those of the namespace. --delete --all also deletes ServiceExports whose Service
is gone.`,
		Example: `  kubectl clusterset export web.shop --context east
  kubectl clusterset export -n shop -l app=web --context east
  kubectl clusterset export web.shop --delete --context east`,
		RunE: func(cmd *cobra.Command, args []string) error { return runExport(r, cmd, &o, args) },
	}
	addDryRun(cmd, &o.DryRun)
	cmd.Flags().StringVarP(&o.Selector, "selector", "l", "", "Services with these labels")
	cmd.Flags().BoolVar(&o.All, "all", false, "all Services of the namespace")
	cmd.Flags().BoolVar(&o.Delete, "delete", false, "delete the ServiceExports")
	cmd.MarkFlagsMutuallyExclusive("selector", "all")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if o.Delete {
			return r.names(r.member, &mcsv1beta1.ServiceExportList{}, client.Object.GetName)(cmd, args, typed)
		}
		return r.names(r.member, &corev1.ServiceList{}, func(o client.Object) string {
			if derived.Named(o.GetName()) { // an import's
				return ""
			}
			return o.GetName()
		})(cmd, args, typed)
	}
	return cmd
}

func runExport(r *root, cmd *cobra.Command, o *export.Options, args []string) (err error) {
	if (len(args) > 0) == (o.Selector != "" || o.All) {
		return report.Fail(cmd.CommandPath()+" --help", "export takes either names, -l or --all")
	}
	if o.Namespace, err = namespaceOf(r.config); err != nil {
		return err
	}
	for _, arg := range args {
		name, err := nameOf(r.config, arg)
		if err != nil {
			return err
		}
		o.Names = append(o.Names, name)
	}
	member, err := r.member()
	if err != nil {
		return err
	}
	lines, err := export.Run(cmd.Context(), member, o)
	for _, line := range lines {
		if o.DryRun != cluster.DryRunNone {
			line += " (dry run)"
		}
		fmt.Fprintln(r.out, line)
	}
	if err == nil && len(o.Names) == 1 && strings.HasSuffix(lines[0], " created") && o.DryRun == cluster.DryRunNone {
		r.say("what becomes of it: %s",
			member.Command("kubectl clusterset explain "+o.Names[0].Name+"."+o.Names[0].Namespace))
	}
	return err
}
