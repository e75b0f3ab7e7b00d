package report

import (
	"cmp"
	"regexp"
	"strings"
)

// Flags are the flags by which the user named this cluster and the hub; each may be "". HubNamespace is also set if it
// was read and is not the default.
type Flags struct {
	Kubeconfig, Context, HubKubeconfig, HubContext, HubNamespace string
	// Others are all others of this cluster, such as --as, each as Flag returns it; HubOthers those of the hub.
	Others, HubOthers string
}

var (
	command = regexp.MustCompile(`kubectl (clusterset )?([a-z-]+)`)
	hubFlag = regexp.MustCompile(`--hub-context[= ]HUB\b`)
	// elsewhere begins what is to be done in another cluster, or by somebody else, whose flags nobody knows.
	elsewhere = regexp.MustCompile(`in cluster |in that cluster|in the cluster of|on the hub: |ask a cluster admin`)
	unsafe    = regexp.MustCompile(`[^\w@%+=:,./-]`)
)

// Remedy returns a remedy whose commands are for the clusters that the flags name, and not for the current context.
func (f Flags) Remedy(remedy string) string {
	here, there := remedy, ""
	if i := elsewhere.FindStringIndex(remedy); i != nil {
		here, there = remedy[:i[0]], remedy[i[0]:]
	}
	here = named(here, Flag("kubeconfig", f.Kubeconfig)+Flag("context", f.Context)+f.Others)
	if strings.HasPrefix(there, "on the hub: ") && f.HubKubeconfig+f.HubContext+f.HubOthers != "" {
		there = named(there, Flag("kubeconfig", cmp.Or(f.HubKubeconfig, f.Kubeconfig))+Flag("context", f.HubContext)+
			f.HubOthers)
	}
	hub := strings.TrimPrefix(Flag("hub-kubeconfig", f.HubKubeconfig)+Flag("hub-context", f.HubContext), " ")
	return hubFlag.ReplaceAllStringFunc(here+there, func(unnamed string) string {
		return cmp.Or(hub, unnamed) + Flag("hub-namespace", f.HubNamespace)
	})
}

// Repeat has the commands in findings name the same clusters.
func (f Flags) Repeat(findings []Finding) {
	for i := range findings {
		findings[i].What, findings[i].Remedy = f.Remedy(findings[i].What), f.Remedy(findings[i].Remedy)
	}
}

// named puts flags into each command but those about the kubeconfig itself.
func named(remedy, flags string) string {
	return command.ReplaceAllStringFunc(remedy, func(s string) string {
		m := command.FindStringSubmatch(s)
		switch m[2] {
		case "clusterset", "config", "failed", "not": // the last two are words of errors
			return s
		}
		return "kubectl" + strings.TrimSuffix(" "+m[1], " ") + flags + " " + m[2]
	})
}

// Flag returns " --name=value" for a shell, or "" without a value.
func Flag(name, value string) string {
	if value == "" {
		return ""
	}
	return " --" + name + "=" + quote(value)
}

// quote returns a word for a shell.
func quote(word string) string {
	if unsafe.MatchString(word) {
		word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// again is an error whose commands name the same clusters.
type again struct {
	error
	flags Flags
}

func (e again) Unwrap() error { return e.error }

func (e again) Error() string {
	lines := strings.Split(e.error.Error(), "\n")
	for i, line := range lines {
		lines[i] = e.flags.Remedy(line)
	}
	return strings.Join(lines, "\n")
}

// Error returns err with remedies that name the same clusters.
func (f Flags) Error(err error) error {
	if err == nil {
		return nil
	}
	return again{err, f}
}
