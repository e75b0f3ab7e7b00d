// Package command is the command line: flags into options, reports into text.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/lifecycle"
)

// ErrFound is the error of a doctor that has found, and told, errors.
var ErrFound = errors.New("errors were found")

// root holds what every command shares.
type root struct {
	config        *genericclioptions.ConfigFlags
	hubKubeconfig string
	hubContext    string
	hubNamespace  string
	out, errOut   io.Writer
}

const long = `Make a clusterset out of clusters, and look after it.

A clusterset has a hub, an API server that keeps what its members export. The cluster at hand is the one that kubectl's own flags name
(--kubeconfig, --context); the hub is named by --hub-kubeconfig and --hub-context.

For kubectl to complete these words, put an executable kubectl_complete-clusterset into the PATH:
  #!/bin/sh
  exec kubectl-clusterset __complete "$@"`

// New is the command.
func New(version string, out, errOut io.Writer) *cobra.Command {
	r := &root{config: genericclioptions.NewConfigFlags(true), out: out, errOut: errOut}
	cmd := &cobra.Command{
		Use: "kubectl-clusterset", Short: "Make a clusterset out of clusters, and look after it", Long: long, Version: version,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl clusterset"},
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	cmd.SetVersionTemplate("kubectl-clusterset {{.Version}}\n")
	flags := cmd.PersistentFlags()
	r.config.AddFlags(flags)
	flags.StringVar(&r.hubKubeconfig, "hub-kubeconfig", "", "kubeconfig of the hub; default: the cluster's, with --hub-context")
	flags.StringVar(&r.hubContext, "hub-context", "", "context of the hub in its kubeconfig")
	flags.StringVar(&r.hubNamespace, "hub-namespace", "clusterset", "namespace of the clusterset on the hub, and its name; status and doctor: default as this cluster's credentials say")
	cmd.AddCommand(r.init(), r.join(), r.leave(), r.status(), r.explain(), r.doctor())
	return cmd
}

// say writes progress, one line each.
func (r *root) say(format string, args ...any) { fmt.Fprintf(r.errOut, format+"\n", args...) }

// member is the cluster at hand.
func (r *root) member() (*cluster.Cluster, error) {
	cfg, err := r.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("this cluster: %w; name one with --kubeconfig and --context", err)
	}
	return cluster.New("this cluster", cfg)
}

// namedHub is nil where no flag names a hub.
func (r *root) namedHub() (*cluster.Cluster, error) {
	if r.hubKubeconfig == "" && r.hubContext == "" {
		return nil, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if rules.ExplicitPath = r.hubKubeconfig; r.hubKubeconfig == "" && r.config.KubeConfig != nil {
		rules.ExplicitPath = *r.config.KubeConfig
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: r.hubContext}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the hub: %w", err)
	}
	return cluster.New("the hub", cfg)
}

// hub must be named, but for commands that are about a hub only: those take the cluster at hand.
func (r *root) hub(atHand bool) (*cluster.Cluster, error) {
	h, err := r.namedHub()
	if err != nil || h != nil {
		return h, err
	}
	if !atHand {
		return nil, errors.New("name the hub, with its admin's credentials: --hub-context CONTEXT, or --hub-kubeconfig FILE; if this cluster is the hub itself, its own context")
	}
	cfg, err := r.config.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("the hub: %w; name it with --hub-kubeconfig and --hub-context", err)
	}
	return cluster.New("the hub", cfg)
}

// changing adds the flags of commands that write.
func changing(cmd *cobra.Command, o *lifecycle.Options, dryRun *bool) {
	flags := cmd.Flags()
	flags.BoolVar(dryRun, "dry-run", false, "print what would be written, and write nothing")
	flags.DurationVar(&o.Timeout, "timeout", 5*time.Minute, "how long to wait for others")
}

// options fills in what all of them share.
func (r *root) options(o *lifecycle.Options, dryRun bool) {
	o.HubNamespace, o.Say = r.hubNamespace, r.say
	if dryRun {
		o.DryRun = r.out
	}
}

// format is -o.
type format string

func (f *format) add(cmd *cobra.Command) {
	cmd.Flags().VarP(f, "output", "o", "json, yaml or wide")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml", "wide"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// Set is pflag.Value's.
func (f *format) Set(s string) error {
	switch s {
	case "", "json", "yaml", "wide":
		*f = format(s)
		return nil
	}
	return errors.New("json, yaml or wide")
}

// String is pflag.Value's.
func (f *format) String() string { return string(*f) }

// Type is pflag.Value's.
func (f *format) Type() string { return "format" }

// write prints a report: for programs, or by text for people.
func (f format) write(out io.Writer, report any, text func(wide bool)) error {
	switch f {
	case "json":
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(report)
	case "yaml":
		b, err := yaml.Marshal(report)
		if err != nil {
			return err
		}
		_, err = out.Write(b)
		return err
	}
	text(f == "wide")
	return nil
}
