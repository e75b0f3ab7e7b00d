package command

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/verify"
)

func newVerify(r *root) *cobra.Command {
	var f format
	var with []string
	o := verify.Options{Say: r.say}
	cmd := &cobra.Command{
		Use: "verify [NAME]", Short: "Prove the ClusterSet, or one name, with test Pods", Args: atMost(1),
		Long: `Prove the ClusterSet with test Pods in its members. In each cluster the command creates a namespace with
a Pod and two exported Services. From each Pod it then connects to all Pods by address, by their names
in clusterset.local, and by the VIP, for each IP family. It deletes the namespaces when it is done, and
when it is interrupted. The Pods run the image of the agent.

Before anybody has joined, it tries routes between Pods only, with --image of clusterset-controller.

With NAME, the Pod of this cluster alone asks for that exported Service by its name, and opens TCP connections to its
endpoints and its VIP, without sending anything. The report says which of these steps failed.

Exit status: 0 without findings, 1 with warnings only, 2 with errors or if the command fails.`,
		Example: `  kubectl clusterset verify --context east --with west
  kubectl clusterset verify web.shop --context east
  kubectl clusterset verify --context east --with west --image registry.example/clusterset-controller:v1.0.0`,
	}
	examines(cmd, func(cmd *cobra.Command, args []string) (t report.Tally, err error) {
		if len(args) > 0 && len(with) > 0 {
			return t, report.Fail("leave out --with, or the name",
				"a name is tried from this cluster alone, so --with has no effect")
		}
		if o.Namespace = ptr.Deref(r.config.Namespace, ""); o.Namespace == "" || len(args) > 0 {
			o.Namespace = fmt.Sprintf("verify-%05d", rand.N(100_000))
		}
		this, err := r.member()
		if err != nil {
			return t, err
		}
		o.Clusters = []*cluster.Cluster{this}
		for _, context := range with {
			other, err := in(other(r, "", context), "context "+context, "kubectl config get-contexts", report.Flags{
				Kubeconfig: ptr.Deref(r.config.KubeConfig, ""), Context: context})
			if err != nil {
				return t, err
			}
			o.Clusters = append(o.Clusters, other)
		}
		var all verify.Report
		if len(args) == 0 {
			all, err = verify.Run(cmd.Context(), o)
		} else if name, wrong := nameOf(r.config, args[0]); wrong != nil {
			return t, wrong
		} else {
			all, err = verify.Name(cmd.Context(), o, name)
		}
		if err != nil {
			return t, err
		}
		return report.Count(all.Findings), f.write(r.out, &all, func(bool) { verify.Print(r.out, &all) })
	})
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&with, "with", nil, "contexts of the other members in the kubeconfig; may be repeated")
	flags.StringVar(&o.Image, "image", "", "image of the Pods (default: that of this cluster's agent)")
	flags.DurationVar(&o.Timeout, "timeout", 2*time.Minute, "maximum time to wait for the Pods, and for the imports")
	flags.BoolVar(&o.Keep, "keep", false, "do not delete the namespaces")
	return cmd
}
