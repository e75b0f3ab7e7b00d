package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

// dns is what the Corefile of this cluster's CoreDNS means for the answers for one import.
type dns struct {
	topology catalog.Topology
	prefer   []check.Property // the options that put some endpoints first, or omit the others
	podNames bool             // endpoints without a host name are named after their pods
	denied   bool             // it answers NXDOMAIN despite the import: a finding says why
	unsure   []string         // why it may answer something else
	// notServed says that no server block is for the zone, or that its block lacks our plugin. What CoreDNS answers
	// then depends on the rest of the Corefile, and on whether it runs an earlier one.
	notServed bool
}

// readDNS reads the Corefile. What it cannot know is in unsure.
func readDNS(w *check.World) (d dns) {
	doubt := func(format string, args ...any) { d.unsure = append(d.unsure, fmt.Sprintf(format, args...)) }
	if lack, unread := w.Unread[snapshot.Corefile]; unread {
		doubt("reading this cluster's Corefile failed: %s", lack.Why)
		return d
	}
	c, stanza := w.Member.Plugin()
	if c == nil {
		doubt("the Corefile does not parse")
		return d
	}
	b := c.For(Zone, "53")
	kubernetes := b != nil && slices.ContainsFunc(b.All("kubernetes"),
		func(l *corefile.Line) bool { return l.Option("multicluster") != nil })
	switch {
	case stanza != nil:
		d.preferences(stanza)
		d.podNames = stanza.Option("endpoint_pod_names") != nil
		d.options(stanza, w.Asked())
	case b != nil && !kubernetes && len(b.SentOn(Zone)) > 0:
		doubt("the Corefile forwards %s to %s, which was not checked", Zone, strings.Join(b.SentOn(Zone), " "))
	case len(c.Unknown) > 0:
		doubt("the Corefile has no line multicluster for %s; it may be in the imported %s, which was not checked", Zone,
			strings.Join(c.Unknown, ", "))
	case kubernetes:
		doubt(
			"the option multicluster of the plugin kubernetes answers %s here: it serves ClusterSetIP names only in "+
				"part",
			Zone,
		)
	default:
		d.notServed, d.denied = true, true
	}
	return d
}

// options notes options of the plugin that hide names or addresses.
func (d *dns) options(stanza *corefile.Line, n *check.Name) {
	only := stanza.Values("namespaces")
	d.denied = stanza.Option("noendpoints") != nil && n.Headless() && n.Import != nil ||
		len(only) > 0 && !slices.Contains(only, n.Namespace)
	note := func(option, effect string) {
		if o := stanza.Option(option); o != nil {
			d.unsure = append(d.unsure, "the Corefile has "+strings.Join(o.Words, " ")+", which "+effect)
		}
	}
	note("labels", "hides what does not match")
	note("namespace_labels", "hides what does not match")
	if n.Headless() {
		note("max_endpoints", "limits the addresses of an answer")
	}
}

// preferences reads the options prefer: which endpoints come first in answers for a Headless name, or alone.
func (d *dns) preferences(stanza *corefile.Line) {
	for _, option := range stanza.Options("prefer") {
		args := option.Args()
		if len(args) < 2 {
			continue
		}
		name, only := strings.ToLower(args[1]), len(args) > 2 && args[2] == "subset"
		switch args[0] {
		case "local":
			d.topology.Cluster, d.topology.ClusterOnly = name, only
		case "zone":
			d.topology.Zone, d.topology.ZoneOnly = name, only
		}
		d.prefer = append(d.prefer, check.Property{Name: "prefer", Value: strings.Join(args, " "),
			From: "the Corefile here"})
	}
}
