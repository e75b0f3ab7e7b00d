// Package command is the command line: flags into options, reports into text.
package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/lifecycle"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/deploy"
)

// root holds what all commands share.
type root struct {
	version       string
	config        *genericclioptions.ConfigFlags
	hubKubeconfig string
	hubContext    string
	hubNamespace  string
	hubIsThis     bool // the hub is the cluster that kubectl's own flags name
	out, errOut   io.Writer
}

const long = `Create and operate a ClusterSet.

A ClusterSet has a hub, an API server that stores what its members export. --kubeconfig and --context
name "this cluster", --hub-kubeconfig and --hub-context the hub. Flags come after the plugin's name:
  kubectl clusterset status --context east`

// groups are the headings of the help, with their commands.
var groups = []struct{ title, commands string }{
	{"Set up:", "init join leave evict dns"},
	{"Look:", "status explain doctor verify ui"},
	{"Use:", "export plan"},
}

func New(version string, out, errOut io.Writer) *cobra.Command {
	r := &root{version: version, config: genericclioptions.NewConfigFlags(true), out: out, errOut: errOut}
	cmd := &cobra.Command{
		Use: "kubectl-clusterset", Short: "Create and operate a ClusterSet", Long: long, Version: version,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl clusterset"},
		SilenceUsage: true, SilenceErrors: true,
	}
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	cmd.SetVersionTemplate("kubectl-clusterset {{.Version}}\n")
	cmd.SetUsageTemplate(usage(cmd.UsageTemplate()))
	cmd.SetFlagErrorFunc(wrongFlag)
	r.config.AddFlags(cmd.PersistentFlags())
	for _, g := range groups {
		cmd.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
	}
	cobra.EnableCommandSorting = false
	for _, sub := range []*cobra.Command{r.init(), r.join(), r.leave(), newEvict(r), r.dns(), r.status(), r.explain(),
		r.doctor(), newVerify(r), newUI(r), newExport(r), newPlan(r), newGather(r)} {
		for _, g := range groups {
			if slices.Contains(strings.Fields(g.commands), sub.Name()) {
				sub.GroupID = g.title
			}
		}
		if !slices.Contains([]string{"export", "verify", "dns"}, sub.Name()) {
			flags := sub.Flags()
			flags.StringVar(&r.hubKubeconfig, "hub-kubeconfig", "",
				"kubeconfig of the hub (default: this cluster's, with --hub-context)")
			flags.StringVar(&r.hubContext, "hub-context", "", "context of the hub in its kubeconfig")
			flags.StringVar(&r.hubNamespace, "hub-namespace", lifecycle.DefaultHubNamespace,
				"namespace of the ClusterSet on the hub; in a member, default to its ClusterSet's")
		}
		cmd.AddCommand(sub)
	}
	complete(r, cmd)
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(&cobra.Command{
		Use: "options", Short: "List the global flags", Args: noArgs, Hidden: true,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(out, "The following options can be passed to any command:\n\n%s",
				cmd.InheritedFlags().FlagUsages())
		},
	})
	return cmd
}

var noArgs = atMost(0)

// atMost is cobra.MaximumNArgs with a remedy. Of none, cobra's calls each argument an unknown command.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) <= n {
			return nil
		}
		most := []string{"no argument", "at most one argument"}[n]
		return report.Fail(cmd.CommandPath()+" --help", "%s takes %s, and got %q", cmd.Name(), most,
			strings.Join(args, " "))
	}
}

// flags are those by which the user named this cluster and the hub.
func (r *root) flags() report.Flags {
	namespace := r.hubNamespace
	if namespace == lifecycle.DefaultHubNamespace {
		namespace = ""
	}
	f := report.Flags{
		Kubeconfig: ptr.Deref(r.config.KubeConfig, ""), Context: ptr.Deref(r.config.Context, ""),
		HubKubeconfig: r.hubKubeconfig, HubContext: r.hubContext, HubNamespace: namespace, Others: others(r.config),
	}
	if r.hubIsThis {
		f.HubKubeconfig, f.HubContext, f.HubOthers = f.Kubeconfig, f.Context, f.Others
	}
	return f
}

// others returns kubectl's other flags that name the cluster or the user, without credentials.
func others(c *genericclioptions.ConfigFlags) string {
	out := ""
	for _, f := range []struct {
		name  string
		value *string
	}{{"cluster", c.ClusterName}, {"user", c.AuthInfoName}, {"server", c.APIServer}, {"as", c.Impersonate},
		{"as-uid", c.ImpersonateUID}} {
		out += report.Flag(f.name, ptr.Deref(f.value, ""))
	}
	for _, group := range ptr.Deref(c.ImpersonateGroup, nil) {
		out += report.Flag("as-group", group)
	}
	for _, extra := range ptr.Deref(c.ImpersonateUserExtra, nil) {
		out += report.Flag("as-user-extra", extra)
	}
	return out
}

// usage leaves kubectl's global flags to the command options, as kubectl does.
func usage(template string) string {
	const hint = `Use "kubectl clusterset options" for the global flags.`
	template = strings.Replace(template, "{{if .HasAvailableLocalFlags}}",
		"{{if and .HasParent .HasAvailableLocalFlags}}", 1)
	return strings.Replace(template, "Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", hint, 1)
}

// exit is an error with its exit status. errFindings means that the report has been printed, and says all.
type exit struct {
	error
	code int
}

func (e exit) Unwrap() error { return e.error }

// Ended returns what to print at the end of a command, and its exit status. The error of an interrupted command may
// say what was not undone.
func Ended(cmd *cobra.Command, err error) (text string, code int) {
	if err == nil {
		return "", 0
	}
	e := exit{err, 1}
	errors.As(err, &e)
	text = fmt.Sprintln("error:", err)
	switch {
	case e.error == errFindings:
		return "", e.code
	case cmd.Context().Err() == nil:
		return text, e.code
	case e.error == context.Canceled:
		text = ""
	}
	if slices.Contains([]string{"init", "join", "leave"}, cmd.Name()) {
		return "interrupted; run the same command again to continue\n" + text, 130
	}
	return "interrupted\n" + text, 130
}

// wrongFlag says where the flags of a command are listed.
func wrongFlag(cmd *cobra.Command, err error) error {
	return report.WithRemedy(err, cmd.CommandPath()+" --help")
}

var errFindings = errors.New("there are findings")

// examines makes a command one whose exit status is that of its findings, or 2 if it fails.
func examines(cmd *cobra.Command, run func(*cobra.Command, []string) (report.Tally, error)) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return exit{wrongFlag(cmd, err), 2} })
	right := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := right(cmd, args); err != nil {
			return exit{err, 2}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tally, err := run(cmd, args)
		switch {
		case err != nil:
			return exit{err, 2}
		case tally.ExitCode() != 0:
			return exit{errFindings, tally.ExitCode()}
		}
		return nil
	}
}

// say prints a line of progress.
func (r *root) say(format string, args ...any) { fmt.Fprintf(r.errOut, format+"\n", args...) }

// unnamed is where clients look for an API server if nothing names one.
const unnamed = "http://localhost:8080"

// nameMember is the remedy where the kubeconfig does not name this cluster.
const nameMember = "--kubeconfig FILE, --context CONTEXT; kubectl config get-contexts lists contexts"

// nameHub is the remedy where no flag names the hub.
const nameHub = "--hub-context CONTEXT, or --hub-kubeconfig FILE, with the credentials of its admin"

// member returns this cluster.
func (r *root) member() (*cluster.Cluster, error) {
	return in(r.config, "this cluster", nameMember, r.flags())
}

// namedHub returns the hub, or nil if no flag names it.
func (r *root) namedHub() (*cluster.Cluster, error) {
	if r.hubKubeconfig == "" && r.hubContext == "" {
		return nil, nil
	}
	return in(other(r, r.hubKubeconfig, r.hubContext), report.Hub, "kubectl config get-contexts", r.flags())
}

// other returns kubectl's flags for another cluster, of this cluster's kubeconfig if that is "".
func other(r *root, kubeconfig, context string) *genericclioptions.ConfigFlags {
	out := genericclioptions.NewConfigFlags(true)
	out.KubeConfig, out.Context = ptr.To(cmp.Or(kubeconfig, ptr.Deref(r.config.KubeConfig, ""))), &context
	return out
}

// hubOrThis returns the hub that flags name, or else this cluster: for commands that are about a hub only.
func (r *root) hubOrThis() (*cluster.Cluster, error) {
	if h, err := r.namedHub(); err != nil || h != nil {
		return h, err
	}
	r.hubIsThis = true
	return in(r.config, report.Hub, nameHub, r.flags())
}

// in returns the cluster that kubectl's own flags name.
func in(flags *genericclioptions.ConfigFlags, name, remedy string, by report.Flags) (*cluster.Cluster, error) {
	cfg, err := flags.ToRESTConfig()
	if err != nil {
		return nil, report.Fail(remedy, "%s: reading the kubeconfig failed: %w", name, err)
	}
	if cfg.Host == unnamed && ptr.Deref(flags.APIServer, "") == "" {
		return nil, report.Fail(remedy, "%s: the kubeconfig has no current context", name)
	}
	c, err := cluster.New(name, cfg)
	if err == nil {
		c.Flags = by
	}
	return c, err
}

// namespaceOf returns the namespace of --namespace or of the context.
func namespaceOf(flags *genericclioptions.ConfigFlags) (string, error) {
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		err = report.Fail(nameMember, "reading the kubeconfig failed: %w", err)
	}
	return namespace, err
}

// writes adds the flags of commands that write.
func writes(cmd *cobra.Command, o *lifecycle.Options, dryRun *cluster.DryRun) {
	addDryRun(cmd, dryRun)
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 5*time.Minute, "maximum time to wait for completion")
}

// options fills in what all commands that write share. The hub is known then.
func (r *root) options(o *lifecycle.Options, dryRun cluster.DryRun) {
	o.HubNamespace, o.Say, o.Release = r.hubNamespace, r.say, deploy.Image(deploy.Controller, r.version)
	o.Flags = r.flags()
	if dryRun != cluster.DryRunNone {
		o.DryRun = r.out
	}
}

// choice is a flag whose value is one of some strings.
type choice[T ~string] struct {
	to *T
	of []T
}

func (c choice[T]) Set(s string) error {
	if !slices.Contains(c.of, T(s)) {
		return errors.New("must be one of " + c.Type())
	}
	*c.to = T(s)
	return nil
}

func (c choice[T]) String() string { return string(ptr.Deref(c.to, "")) }

func (c choice[T]) Type() string {
	var out []string
	for _, s := range c.of {
		out = append(out, string(s))
	}
	return strings.Join(out, "|")
}

// asks adds the flag --yes to a command that asks.
func (r *root) asks(cmd *cobra.Command, o *lifecycle.Options) {
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	cmd.PreRun = func(*cobra.Command, []string) {
		if o.Out = r.out; !*yes {
			o.Confirm = cmd.InOrStdin()
		}
	}
}

// addDryRun adds the flag --dry-run. Without a value, it means client.
func addDryRun(cmd *cobra.Command, d *cluster.DryRun) {
	*d = cluster.DryRunNone
	of := []cluster.DryRun{cluster.DryRunNone, cluster.DryRunClient}
	cmd.Flags().Var(choice[cluster.DryRun]{d, of}, "dry-run", "client: print what would be written")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = string(cluster.DryRunClient)
}

// format is the value of --output: one of the command's own, or one of cli-runtime's.
type format struct {
	name    string
	own     []string
	printer printers.ResourcePrinter
}

func (f *format) add(cmd *cobra.Command, own ...string) {
	f.own = own
	cmd.Flags().VarP(f, "output", "o", "format of the output")
	complete := cobra.FixedCompletions(strings.Split(f.Type(), "|"), cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("output", complete) // the flag exists
}

func (f *format) Set(s string) (err error) {
	if f.name = s; slices.Contains(f.own, s) {
		return nil
	}
	flags := genericclioptions.NewPrintFlags("").WithDefaultOutput(s)
	flags.NamePrintFlags = nil // a report has no name
	if f.printer, err = flags.ToPrinter(); genericclioptions.IsNoCompatiblePrinterError(err) {
		return errors.New("must be one of " + f.Type())
	}
	return err
}

func (f *format) String() string { return f.name }

func (f *format) Type() string {
	return strings.Join(append([]string{"json", "yaml", "jsonpath="}, f.own...), "|")
}

// kind is a report.
type kind interface{ GetObjectKind() schema.ObjectKind }

// object is a report as cli-runtime prints it.
type object struct{ kind }

// DeepCopyObject is runtime.Object's. Nobody writes to the copy.
func (o object) DeepCopyObject() runtime.Object { return o }

func (o object) MarshalJSON() ([]byte, error) { return json.Marshal(o.kind) }

// write prints a report for programs, or calls text to print it for people.
func (f *format) write(out io.Writer, report kind, text func(wide bool)) error {
	if f.printer != nil {
		return f.printer.PrintObj(object{report}, out)
	}
	text(f.name == "wide")
	return nil
}
