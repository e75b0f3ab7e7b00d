package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/gather"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/support"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/versions"
)

func newVersion(r *root) *cobra.Command {
	var f format
	var clientOnly bool
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of this program, the agent, DNS and the hub", Args: noArgs,
		Hidden: true,
		Long: `Show the versions of this program, and of the agent and CoreDNS in this cluster by their images, and how
they differ. With --hub-kubeconfig or --hub-context, and in a hub, the hub's controller is shown as well.`,
		Example: "  kubectl clusterset version --context east --hub-context hub",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []versions.Component
			if !clientOnly {
				member, err := r.member()
				if err != nil {
					return err
				}
				hub, err := r.namedHub()
				if err != nil {
					return err
				}
				all = append(all, component(cmd.Context(), "agent", member, func(ctx context.Context) (string, error) {
					return image(ctx, member, manifest.AgentDeployment)
				}), component(cmd.Context(), "DNS", member, func(ctx context.Context) (string, error) {
					return dns.Running(ctx, member)
				}))
				namespace, here := r.hubNamespace, cluster.RoleOf(cmd.Context(), member)
				if hub == nil && len(here.HubOf) > 0 {
					hub, namespace = member, here.HubOf[0]
				} else if here.MemberOf != "" {
					namespace = here.MemberOf
				}
				if cmd.Flags().Changed("hub-namespace") {
					namespace = r.hubNamespace
				}
				if hub != nil {
					all = append(all, component(cmd.Context(), "hub", hub, func(ctx context.Context) (string, error) {
						return hubImage(ctx, hub, namespace)
					}))
				}
			}
			out := versions.New(r.version, all)
			return f.write(r.out, out, func(bool) { versions.Print(r.out, &out) })
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&clientOnly, "client", false, "show the version of this program only")
	return cmd
}

// component reads one program's image and its cluster's version. An error becomes its Problem.
func component(ctx context.Context, name string, c *cluster.Cluster, read func(context.Context) (string, error),
) versions.Component {
	out := versions.Component{Name: name}
	server, err := c.Ask(ctx)
	if err == nil {
		out.Kubernetes = server.Version
		out.Image, err = read(ctx)
	}
	if err != nil {
		out.Problem = err.Error()
	}
	return out
}

// hubImage returns the image of a ClusterSet's controller. Without one, there is an error if the cluster is no hub.
func hubImage(ctx context.Context, hub *cluster.Cluster, namespace string) (string, error) {
	of, err := image(ctx, hub, manifest.HubDeployment(namespace))
	if role := cluster.RoleOf(ctx, hub); err == nil && of == "" && !slices.Contains(role.HubOf, namespace) {
		err = errors.New(role.NoSet(namespace, "").What)
	}
	return of, err
}

// image returns that of a Deployment in clusterset-system, or "". While it is being rolled out, there is an error, too.
func image(ctx context.Context, c *cluster.Cluster, name string) (string, error) {
	d, err := c.Deployment(ctx, name)
	if err != nil || d == nil || len(d.Spec.Template.Spec.Containers) == 0 {
		return "", err
	}
	image := d.Spec.Template.Spec.Containers[0].Image
	if n := d.Status.AvailableReplicas; n > 0 {
		if done, why := facts.RolledOut(d, nil, n); !done {
			return image, fmt.Errorf("%s is being rolled out: %s", image, why)
		}
	}
	return image, nil
}

func newGather(r *root) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "gather", Short: "Write a support archive, without credentials", Args: noArgs,
		Long: `Write a support archive of this member: our objects, logs, Corefiles, Events, versions, and the reports
of status and doctor. With --hub-kubeconfig or --hub-context, the hub's side is added. Secrets are not
read, and what looks like a credential elsewhere is replaced. Look through the archive before you give
it to somebody: it has names and addresses of your clusters.`,
		Example: "  kubectl clusterset gather --context east --hub-context hub -f east.tar.gz",
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := r.source(cmd, false)
			if err != nil {
				return err
			}
			out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
			if err != nil {
				return report.WithRemedy(fmt.Errorf("writing the archive failed: %w", err), "another name: --file FILE")
			}
			texts, namespace := reports(cmd.Context(), r.version, source)
			all := []support.Cluster{{Cluster: source.Member, Folder: "member", Logs: logs(source.Member)}}
			if source.Hub != nil {
				all = append(all, support.Cluster{Cluster: source.Hub, Folder: "hub", Namespace: namespace,
					Logs: logs(source.Hub)})
			}
			unread, err := support.Write(cmd.Context(), out, time.Now(), all, texts)
			if closing := out.Close(); err == nil {
				err = closing
			}
			if err != nil {
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

// reports returns the reports of status and doctor, and the version, as files, and the ClusterSet's namespace on the
// hub.
func reports(ctx context.Context, version string, s gather.Source) (out map[string][]byte, namespace string) {
	out, namespace = map[string][]byte{"version.txt": []byte(version + "\n")}, s.HubNamespace
	put := func(name string, report any, err error) {
		text, failed := json.MarshalIndent(report, "", "  ")
		if err == nil {
			err = failed
		}
		if err != nil {
			text = support.Failure(err)
		}
		out[name] = text
	}
	if facts, err := gather.Status(ctx, s); err != nil {
		put("status.json", nil, err)
	} else {
		put("status.json", status.Examine(facts), nil)
		namespace = facts.Namespace
	}
	if facts, err := gather.Doctor(ctx, s); err != nil {
		put("doctor.json", nil, err)
	} else {
		put("doctor.json", doctor.Examine(facts), nil)
	}
	return out, namespace
}

// logs returns how to read logs from a cluster.
func logs(c *cluster.Cluster) support.Logs {
	return func(ctx context.Context, namespace, pod, container string, previous bool) ([]byte, error) {
		api, err := corev1client.NewForConfig(c.Config)
		if err != nil {
			return nil, err
		}
		return api.Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Container: container, Previous: previous,
			Timestamps: true, TailLines: ptr.To[int64](2000)}).DoRaw(ctx)
	}
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
