package command

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/plan"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
)

func newPlan(r *root) *cobra.Command {
	var f format
	var file, archive string
	var p plan.Planner
	cmd := &cobra.Command{
		Use: "plan (-f FILE | NAME)", Short: "Show what a change of an export would change in every member",
		Long: `Show what changes in every member once the ServiceExports and Services of FILE are applied in this
cluster. What FILE lacks is taken from there. Of NAME, it is the export as it is now, or a new one. With
--delete, the exports are deleted. The command writes nothing.

Exit status: 0; 2 if something is taken away from a member: a name, a type, a port, a VIP, traffic from
an endpoint, or clients outside the clusters from an address; 1 if the command fails.`,
		Example: `  kubectl clusterset plan -f shop.yaml --context east
  kubectl clusterset plan web.shop --delete --context east
  kubectl clusterset plan -f shop.yaml --cluster-id east --context hub`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 1) == (file != "") {
				return report.Fail(cmd.CommandPath()+" --help", "plan takes either a name or -f FILE")
			}
			all, err := applied(r, file, args)
			if err != nil {
				return err
			}
			w, _, err := r.look(cmd, archive, false, nil)
			if err != nil {
				return err
			}
			p.Snapshot = w.Snapshot
			lack, unread := w.Unread[snapshot.Secret]
			switch {
			case w.Hub != nil:
			case archive == "" && !w.HubNamed && w.HasRead(snapshot.Properties) && w.Member.Set() == "":
				return report.Fail(r.flags().Here(facts.Join), "this cluster is a member of no ClusterSet")
			case archive == "" && !w.HubNamed && unread:
				return report.Fail("--hub-context CONTEXT, or --cluster-id ID with the hub's --context",
					"reading %s failed: %s", snapshot.Secret, lack.Why)
			default:
				return fmt.Errorf("reading the hub failed: %s", w.Unread[snapshot.OfHub].Why)
			}
			if w.Member != nil {
				p.Cluster = cmp.Or(p.Cluster, w.Member.ID())
			}
			if w.Hub.Profile(p.Cluster) == nil {
				return report.Fail("--cluster-id ID; kubectl clusterset status lists members",
					"the hub has no member %q", p.Cluster)
			}
			if w.Member != nil && archive == "" {
				if p.Live, err = r.member(); err != nil {
					return err
				}
			}
			out, err := p.Plan(cmd.Context(), all)
			if err != nil {
				return err
			}
			if err := f.write(r.out, &out, func(bool) { plan.Print(r.out, &out) }); err != nil || !out.TakesAway {
				return err
			}
			return exit{errFindings, 2}
		},
	}
	f.add(cmd)
	archived(cmd, &archive)
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file, folder or URL with what would be applied; - is stdin")
	cmd.Flags().StringVar(&p.Cluster, "cluster-id", "", "member in which it would be applied (default: this cluster)")
	cmd.Flags().BoolVar(&p.Delete, "delete", false, "the ServiceExports would be deleted")
	return cmd
}

// applied returns what a file or an argument names.
func applied(r *root, file string, args []string) (map[types.NamespacedName]plan.Applied, error) {
	out := map[types.NamespacedName]plan.Applied{}
	if file == "" {
		n, err := nameOf(r.config, args[0])
		out[n] = plan.Applied{}
		return out, err
	}
	namespace, err := namespaceOf(r.config)
	if err != nil {
		return nil, err
	}
	infos, err := resource.NewLocalBuilder().Unstructured().Flatten().
		FilenameParam(false, &resource.FilenameOptions{Filenames: []string{file}}).Do().Infos()
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		u := info.Object.(*unstructured.Unstructured)
		n := types.NamespacedName{Namespace: cmp.Or(u.GetNamespace(), namespace), Name: u.GetName()}
		a, convert := out[n], runtime.DefaultUnstructuredConverter.FromUnstructured
		switch u.GroupVersionKind().GroupKind().String() {
		case "ServiceExport." + mcsv1beta1.GroupName:
			a.Export = &mcsv1beta1.ServiceExport{}
			err = convert(u.Object, a.Export)
		case "Service":
			a.Service = &corev1.Service{}
			err = convert(u.Object, a.Service)
		default:
			continue
		}
		if out[n] = a; err != nil {
			return nil, fmt.Errorf("%s %s: %w", u.GetKind(), n, err)
		}
	}
	if len(out) == 0 {
		return nil, report.Fail("-f FILE with what would be applied", "%s has no ServiceExport and no Service", file)
	}
	return out, nil
}
