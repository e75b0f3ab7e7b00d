package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/bundle"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/ui"
)

// source names what to read: this cluster, and the hub if a flag names it. With hubOnly, it is the hub alone, which is
// this cluster if no flag names another one.
func (r *root) source(cmd *cobra.Command, hubOnly bool) (s snapshot.Source, err error) {
	s.Namespace, s.Release = r.hubNamespace, r.version
	if f := cmd.Flags().Lookup("hub-namespace"); f != nil && f.Changed {
		s.Given = r.hubNamespace
	}
	if hubOnly {
		s.Hub, err = r.hubOrThis()
		return s, err
	}
	if s.Hub, err = r.namedHub(); err != nil {
		return s, err
	}
	s.Member, err = r.member()
	return s, err
}

// read reads a snapshot, with the flags by which its steps name the same clusters.
func (r *root) read(ctx context.Context, source snapshot.Source) (*check.World, error) {
	s, err := snapshot.Read(ctx, source)
	if err != nil {
		return nil, err
	}
	r.hubNamespace = s.Namespace
	r.hubIsThis = s.Member == nil && r.hubKubeconfig+r.hubContext == ""
	s.Flags = r.flags()
	return check.See(s, source.Name), nil
}

// archived adds the flag by which a command answers from an archive.
func archived(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "from", "", "answer from this archive of gather, and not from clusters")
}

// looks adds the flags by which a command answers from an archive, or shows a hub alone.
func looks(cmd *cobra.Command, file *string, hubOnly *bool) {
	archived(cmd, file)
	cmd.Flags().BoolVar(hubOnly, "hub-only", false, "show the hub only, without a member")
	cmd.MarkFlagsMutuallyExclusive("from", "hub-only")
}

// load reads an archive. Flags that name clusters have no effect then.
func (r *root) load(file string) (*snapshot.Snapshot, error) {
	if ptr.Deref(r.config.Context, "")+r.hubContext != "" {
		return nil, report.Fail("leave out either", "--context and --hub-context have no effect with --from")
	}
	return bundle.Load(file)
}

// look returns what was read and found, from an archive if one was given; with a name, of that name only.
func (r *root) look(cmd *cobra.Command, file string, hubOnly bool, name *types.NamespacedName) (*check.World,
	[]check.Result, error) {
	var w *check.World
	if file != "" {
		s, err := r.load(file)
		if err != nil {
			return nil, nil, err
		}
		w = check.See(s, name)
	} else {
		source, err := r.source(cmd, hubOnly)
		if err != nil {
			return nil, nil, err
		}
		source.Name = name
		if w, err = r.read(cmd.Context(), source); err != nil {
			return nil, nil, err
		}
	}
	return w, check.Run(w), nil
}

func (r *root) status() *cobra.Command {
	var f format
	var hubOnly, again bool
	var file string
	cmd := &cobra.Command{
		Use: "status", Short: "Show members, their exports, and findings", Args: noArgs,
		Long: `Show findings, members and what they export. The hub is read with the credentials of this cluster's
agent, or with those that --hub-kubeconfig and --hub-context name. With -o name, it lists the names alone;
with -o html, it is the page of kubectl clusterset ui as one file, for a ticket. The command writes nothing.

Exit status: 0 also with findings. For scripts: kubectl clusterset doctor --fail-on=warning.`,
		Example: `  kubectl clusterset status --context east --watch
  kubectl clusterset status --hub-context hub --hub-only -o wide
  kubectl clusterset status --context hub -o html > clusterset.html`,
	}
	show := func(w *check.World, results []check.Result) error {
		if lack, unread := w.Unread[snapshot.Properties]; unread && w.Member != nil && w.Hub == nil {
			return report.Fail("if you lack a right, run the command as a cluster admin", "this cluster: %s", lack.Why)
		}
		if f.name == "html" {
			page, err := ui.File(w)
			if err == nil {
				_, err = r.out.Write(page)
			}
			return err
		}
		all := status.Examine(w, results)
		return f.write(r.out, &all, func(wide bool) {
			if f.name != "name" {
				status.Print(r.out, &all, wide, w.Now())
				return
			}
			for _, n := range all.Names {
				fmt.Fprintln(r.out, n.Name+"."+n.Namespace)
			}
		})
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if again {
			return watch(r, cmd, file, hubOnly, show)
		}
		w, results, err := r.look(cmd, file, hubOnly, nil)
		if err != nil {
			return err
		}
		return show(w, results)
	}
	f.add(cmd, "wide", "name", "html")
	looks(cmd, &file, &hubOnly)
	cmd.Flags().BoolVarP(&again, "watch", "w", false, "show it again when something has changed, until Ctrl-C")
	return cmd
}

// watch shows what status does, and again when more than ages has changed, until the user ends it.
func watch(r *root, cmd *cobra.Command, file string, hubOnly bool, show func(*check.World, []check.Result) error,
) error {
	page, err := server(r, cmd, file, hubOnly)
	if err != nil {
		return err
	}
	shown := ""
	page.Watch(cmd.Context(), func(w *check.World, failed error) bool {
		if failed != nil { // it may pass
			if text := failed.Error(); text != shown && cmd.Context().Err() == nil {
				shown = text
				r.say("error: %v", failed)
			}
			return true
		}
		results := check.Run(w)
		if all := status.Examine(w, results); all.Timeless() != shown {
			if shown != "" {
				r.say("\n%s", w.Now().UTC().Format(time.RFC3339))
			}
			shown, err = all.Timeless(), show(w, results)
		}
		return err == nil
	})
	return err
}

func (r *root) explain() *cobra.Command {
	var f format
	var file string
	cmd := &cobra.Command{
		Use: "explain NAME", Short: "Explain what a name answers in this cluster",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return report.Fail("kubectl clusterset explain web.shop", "explain takes one name")
			}
			return nil
		},
		Long: `Explain what NAME.clusterset.local answers in this cluster, and why: which clusters export it, whose
properties are in effect, which endpoints are ready, and what is withheld. For a name that clients
outside the clusters ask, it shows which clusters answer them. The command writes nothing.

Exit status: 0 if the name could be explained, also with findings.`,
		Example: `  kubectl clusterset explain web.shop
  kubectl clusterset explain web.shop.svc.clusterset.local
  kubectl clusterset explain web -n shop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := nameOf(r.config, args[0])
			if err != nil {
				return err
			}
			w, results, err := r.look(cmd, file, false, &name)
			if err != nil {
				return err
			}
			if w.Member == nil {
				return (&facts.Role{HubOf: w.HubHere}).OnlyHub()
			}
			all := explain.Explain(w, results)
			return f.write(r.out, &all, func(wide bool) { explain.Print(r.out, &all, wide, w.Member.Now) })
		},
	}
	f.add(cmd, "wide")
	archived(cmd, &file)
	return cmd
}

func (r *root) doctor() *cobra.Command {
	var f format
	var file string
	fail := report.Error
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this member, its hub and its DNS", Args: noArgs,
		Long: `Check this member, its hub and its DNS, and show every check. Each finding has a step and a link. With
--hub-kubeconfig or --hub-context, the hub's own side is checked as well; in a hub that is no member, it
alone. The command writes nothing.

Exit status: 2 with errors or if the command fails; 1 with warnings only, if --fail-on=warning; else 0.`,
		Example: "  kubectl clusterset doctor --context east --hub-context hub",
	}
	examines(cmd, func(cmd *cobra.Command, _ []string) (t report.Tally, err error) {
		w, results, err := r.look(cmd, file, false, nil)
		if err != nil {
			return t, err
		}
		all := doctor.Examine(w, results)
		if t = report.Count(check.Findings(results)); fail == report.Error {
			t.Warnings = 0
		}
		return t, f.write(r.out, &all, func(wide bool) { doctor.Print(r.out, &all, wide) })
	})
	f.add(cmd, "wide")
	archived(cmd, &file)
	cmd.Flags().Var(choice[report.Severity]{&fail, []report.Severity{report.Error, report.Warning}}, "fail-on",
		"exit status is not 0 if there is such a finding, or a worse one")
	return cmd
}

func newGather(r *root) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "gather",
		Short: "Write a support archive, without credentials",
		Args:  noArgs,
		Long: `Write a support archive of this member: our objects, logs, the Corefile, Events, the reports of
status and doctor, and the page of ui. With --hub-kubeconfig or --hub-context, the hub's side is added.
Secrets are not in it, and what looks like a credential elsewhere is replaced. Look through the archive
before you give it to somebody: it has names and addresses of your clusters. status, explain, doctor, ui
and plan answer from it with --from.`,
		Example: `  kubectl clusterset gather --context east --hub-context hub -f east.tar.gz
  kubectl clusterset doctor --from east.tar.gz`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			source, err := r.source(cmd, false)
			if err != nil {
				return err
			}
			source.Everything = true
			w, err := r.read(cmd.Context(), source)
			if err != nil {
				return err
			}
			w.Flags.Kubeconfig, w.Flags.HubKubeconfig = "", "" // paths name the user
			results := check.Run(w)
			var statusText, doctorText bytes.Buffer
			all, checks := status.Examine(w, results), doctor.Examine(w, results)
			status.Print(&statusText, &all, true, w.Now())
			doctor.Print(&doctorText, &checks, true)
			clusters := map[string]*cluster.Cluster{"member": source.Member}
			if source.Hub != nil {
				clusters["hub"] = source.Hub
			}
			page, err := ui.File(w)
			if err != nil {
				return err
			}
			out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
			if err != nil {
				return report.Fail("another name: --file FILE", "writing the archive failed: %w", err)
			}
			unread, err := bundle.Write(cmd.Context(), out, time.Now(), w.Snapshot, clusters, map[string][]byte{
				"status.txt": bundle.Redact(statusText.Bytes()), "doctor.txt": bundle.Redact(doctorText.Bytes()),
				"clusterset.html": page})
			if err = errors.Join(err, out.Close()); err != nil {
				return fmt.Errorf("writing the archive failed: %w", errors.Join(err, os.Remove(file)))
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
	namespace, err := namespaceOf(config)
	if err != nil {
		return types.NamespacedName{}, err
	}
	return explain.ParseName(arg, namespace)
}
