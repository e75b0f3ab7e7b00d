package command

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// complete registers completions: of contexts from the kubeconfig, and of names from the clusters.
func complete(r *root, root *cobra.Command) {
	contexts := func(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
		if cfg, err := r.config.ToRawKubeConfigLoader().RawConfig(); err == nil {
			for name := range cfg.Contexts {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	_ = root.RegisterFlagCompletionFunc("context", contexts) // the flag exists
	for _, cmd := range root.Commands() {
		for _, flag := range []string{"hub-context", "with"} {
			_ = cmd.RegisterFlagCompletionFunc(flag, contexts) // an error means that the command has no such flag
		}
		qualified := func(o client.Object) string { return o.GetName() + "." + o.GetNamespace() }
		switch cmd.Name() {
		case "explain", "verify":
			cmd.ValidArgsFunction = r.names(r.member, &mcsv1beta1.ServiceImportList{}, qualified)
		case "plan":
			cmd.ValidArgsFunction = r.names(r.member, &mcsv1beta1.ServiceExportList{}, qualified)
		case "evict":
			cmd.ValidArgsFunction = r.names(r.hubOrThis, &inventoryv1alpha1.ClusterProfileList{}, client.Object.GetName)
		}
	}
}

// names completes one argument with the names of objects that name gives: for explain, plan and verify those of all
// namespaces, for evict those of the ClusterSet's, else those of --namespace.
func (r *root) names(in func() (*cluster.Cluster, error), list client.ObjectList, name func(client.Object) string,
) completer {
	return func(cmd *cobra.Command, args []string, typed string) (out []string, d cobra.ShellCompDirective) {
		d = cobra.ShellCompDirectiveNoFileComp
		c, err := in()
		if len(args) > 0 || err != nil {
			return nil, d
		}
		namespace, _, _ := r.config.ToRawKubeConfigLoader().Namespace()
		switch cmd.Name() {
		case "explain", "plan", "verify":
			namespace = ""
		case "evict":
			namespace = r.hubNamespace
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), 2*time.Second)
		defer cancel()
		if c.List(ctx, list, client.InNamespace(namespace), client.Limit(500)) != nil {
			return nil, d
		}
		objects, _ := meta.ExtractList(list)
		for _, o := range objects {
			if n := name(o.(client.Object)); n != "" && strings.HasPrefix(n, typed) {
				out = append(out, n)
			}
		}
		return out, d
	}
}
