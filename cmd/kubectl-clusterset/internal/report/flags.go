package report

import (
	"cmp"
	"regexp"
	"strings"
)

// Flags are the flags by which the user named this cluster and the hub; each may be "". HubNamespace is also set if it
// was read and is not the default.
type Flags struct{ Kubeconfig, Context, HubKubeconfig, HubContext, HubNamespace string }

var (
	command = regexp.MustCompile(`kubectl (clusterset )?([a-z-]+)`)
	hubFlag = regexp.MustCompile(`--hub-context[= ]HUB\b`)
	// elsewhere begins what is to be done in another cluster, whose flags nobody knows.
	elsewhere = regexp.MustCompile(`in cluster |in that cluster|in the cluster of|on the hub: `)
	unsafe    = regexp.MustCompile(`[^\w@%+=:,./-]`)
)

// Remedy returns a remedy whose commands are for the clusters that the flags name, and not for the current context.
func (f Flags) Remedy(remedy string) string {
	here, there := remedy, ""
	if i := elsewhere.FindStringIndex(remedy); i != nil {
		here, there = remedy[:i[0]], remedy[i[0]:]
	}
	here = named(here, f.Kubeconfig, f.Context)
	if strings.HasPrefix(there, "on the hub: ") && f.HubKubeconfig+f.HubContext != "" {
		there = named(there, cmp.Or(f.HubKubeconfig, f.Kubeconfig), f.HubContext)
	}
	hub := strings.TrimPrefix(flag("hub-kubeconfig", f.HubKubeconfig)+flag("hub-context", f.HubContext), " ")
	return hubFlag.ReplaceAllStringFunc(here+there, func(unnamed string) string {
		return cmp.Or(hub, unnamed) + flag("hub-namespace", f.HubNamespace)
	})
}

// Repeat has the remedies of findings name the same clusters.
func (f Flags) Repeat(findings []Finding) {
	for i := range findings {
		findings[i].Remedy = f.Remedy(findings[i].Remedy)
	}
}

// named puts flags into each command but those about the kubeconfig itself.
func named(remedy, kubeconfig, context string) string {
	flags := flag("kubeconfig", kubeconfig) + flag("context", context)
	return command.ReplaceAllStringFunc(remedy, func(s string) string {
		m := command.FindStringSubmatch(s)
		if m[2] == "clusterset" || m[2] == "config" {
			return s
		}
		return "kubectl" + strings.TrimSuffix(" "+m[1], " ") + flags + " " + m[2]
	})
}

func flag(name, value string) string {
	if value == "" {
		return ""
	}
	if unsafe.MatchString(value) {
		value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return " --" + name + "=" + value
}

// again is an error whose remedies name the same clusters.
type again struct {
	error
	flags Flags
}

func (e again) Unwrap() error { return e.error }

func (e again) Error() string {
	lines := strings.Split(e.error.Error(), "\n")
	for i, line := range lines {
		if remedy, ok := strings.CutPrefix(line, arrow); ok {
			lines[i] = arrow + e.flags.Remedy(remedy)
		}
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
