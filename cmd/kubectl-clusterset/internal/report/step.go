package report

import (
	"cmp"
	"regexp"
	"strings"
)

// Step is one command, and where it is run.
type Step struct {
	At   string   // "" for this cluster, Hub, or a cluster's ID
	Argv []string // empty if there is no command: then the page of checks says what to do
}

// Hub is where steps for the hub are run. Subject is replaced by what a finding is about: a cluster ID or a name.
const (
	Hub     = "the hub"
	Subject = "{}"
)

// Here returns a step in this cluster. {} is what the finding is about; {name} and {namespace} are the parts of a name.
func Here(command string) Step { return Step{Argv: strings.Fields(command)} }

// AtHub returns a step on the hub.
func AtHub(command string) Step { return Step{At: Hub, Argv: strings.Fields(command)} }

// In returns the step in a cluster.
func (s Step) In(cluster string) Step { return Step{cluster, s.Argv} }

// On returns the step for what a finding is about.
func (s Step) On(subject string) Step {
	name, namespace, _ := strings.Cut(subject, ".")
	fill := strings.NewReplacer("{}", subject, "{name}", name, "{namespace}", namespace)
	out := Step{At: fill.Replace(s.At)}
	for _, arg := range s.Argv {
		out.Argv = append(out.Argv, fill.Replace(arg))
	}
	return out
}

// Flags are the flags by which the user named this cluster and the hub; each may be "". HubNamespace is also set if it
// was read and is not the default.
type Flags struct {
	Kubeconfig, Context, HubKubeconfig, HubContext, HubNamespace string
	// Others are all others of this cluster, such as --as, each as Flag returns it; HubOthers those of the hub.
	Others, HubOthers string
}

// Here returns a command in this cluster.
func (f Flags) Here(command string) string { return f.Step(Here(command)) }

// AtHub returns a command on the hub.
func (f Flags) AtHub(command string) string { return f.Step(AtHub(command)) }

// OfHub returns the flags of the hub alone, for commands that name another member themselves. HubOthers is left out:
// none of them has a form for the hub, such as --hub-as.
func (f Flags) OfHub() Flags {
	return Flags{HubKubeconfig: f.HubKubeconfig, HubContext: f.HubContext, HubNamespace: f.HubNamespace}
}

// Step returns a step as a command for a shell, with the user's flags, or with words before it that say where to run
// it. It returns "" if the step has no command.
func (f Flags) Step(s Step) string {
	if len(s.Argv) == 0 {
		return ""
	}
	first, rest, where := s.Argv[:1], s.Argv[1:], ""
	if len(rest) > 0 && rest[0] == "clusterset" {
		first, rest = s.Argv[:2], s.Argv[2:]
	}
	flags := ""
	switch {
	case first[0] != "kubectl":
	case s.At == "":
		flags = Flag("kubeconfig", f.Kubeconfig) + Flag("context", f.Context) + f.Others
	case s.At == Hub && f.HubKubeconfig+f.HubContext+f.HubOthers != "":
		flags = Flag("kubeconfig", cmp.Or(f.HubKubeconfig, f.Kubeconfig)) + Flag("context", f.HubContext) + f.HubOthers
	case s.At == Hub:
		where = "on the hub: "
	default:
		where = "in cluster " + s.At + ": "
	}
	hub := strings.TrimPrefix(Flag("hub-kubeconfig", f.HubKubeconfig)+Flag("hub-context", f.HubContext), " ")
	out := where + strings.Join(first, " ") + flags
	for _, arg := range rest {
		if arg == "--hub-context=HUB" {
			out += " " + cmp.Or(hub, arg) + Flag("hub-namespace", f.HubNamespace)
			continue
		}
		out += " " + quote(arg)
	}
	return out
}

// Flag returns " --name=value" for a shell, or "" without a value.
func Flag(name, value string) string {
	if value == "" {
		return ""
	}
	return " --" + name + "=" + quote(value)
}

var unsafe = regexp.MustCompile(`[^\w@%+=:,./-]`)

// quote returns a word, with quotes if a shell needs them.
func quote(word string) string {
	if unsafe.MatchString(word) {
		word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
