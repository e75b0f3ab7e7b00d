package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

// dns is what the Corefile of this cluster's CoreDNS means for the answers for one import.
type dns struct {
	topology catalog.Topology
	prefer   []Property       // the options that put some endpoints first, or omit the others
	podNames bool             // endpoints without a host name are named after their pods
	denied   []report.Finding // why it answers NXDOMAIN despite the import
	unsure   []string         // why it may answer something else
	// notServed says that no server block is for the zone, or that its block lacks our plugin. What CoreDNS answers
	// then depends on the rest of the Corefile, and on whether it runs an earlier one.
	notServed bool
}

// dns reads the Corefile. What it cannot know is in unsure.
func (f *Facts) dns() (d dns) {
	if f.CorefileUnread != "" {
		d.unsure = append(d.unsure, "reading this cluster's Corefile failed: "+f.CorefileUnread)
		return d
	}
	c, err := corefile.Parse(f.Corefile)
	if err != nil {
		d.unsure = append(d.unsure, err.Error())
		return d
	}
	var stanza *corefile.Line
	b := c.For(Zone, "53")
	if b != nil {
		stanza = b.Stanza("multicluster", Zone)
	}
	switch {
	case stanza != nil:
		d.preferences(stanza)
		d.podNames = stanza.Option("endpoint_pod_names") != nil
		d.options(stanza, f)
	case b != nil && !inTree(b) && len(b.SentOn(Zone)) > 0:
		d.unsure = append(d.unsure, fmt.Sprintf("the Corefile forwards %s to %s, which was not checked", Zone,
			strings.Join(b.SentOn(Zone), " ")))
	case len(c.Unknown) > 0:
		d.unsure = append(d.unsure,
			fmt.Sprintf("the Corefile has no line multicluster for %s; it may be in the imported %s, which was not "+
				"checked", Zone, strings.Join(c.Unknown, ", ")))
	case b != nil && inTree(b):
		d.unsure = append(d.unsure, "the option multicluster of the plugin kubernetes answers "+
			Zone+" here: it serves ClusterSetIP names only in part")
	default:
		d.notServed = true
		d.denied = append(d.denied, report.Errorf(f.doctor()+"; "+report.DocsDNS,
			"the Corefile of this cluster's CoreDNS has no line multicluster in the server block that answers %s",
			Zone))
	}
	return d
}

// inTree reports whether CoreDNS's own plugin kubernetes answers for a clusterset, by its option multicluster.
func inTree(b *corefile.Block) bool {
	return slices.ContainsFunc(b.All("kubernetes"),
		func(l *corefile.Line) bool { return l.Option("multicluster") != nil })
}

// options adds findings about options of the plugin that hide names or addresses.
func (d *dns) options(stanza *corefile.Line, f *Facts) {
	edit := "kubectl -n kube-system edit configmap " + cmp.Or(f.Config, "coredns")
	headless := f.Import != nil && f.Import.Spec.Type == mcsv1beta1.Headless
	if stanza.Option("noendpoints") != nil && headless {
		d.denied = append(d.denied, report.Errorf("to remove noendpoints: "+edit,
			"the Corefile has the option noendpoints, which hides Headless names"))
	}
	if only := stanza.Values("namespaces"); len(only) > 0 && !slices.Contains(only, f.Name.Namespace) {
		d.denied = append(d.denied, report.Errorf("to add "+f.Name.Namespace+": "+edit,
			"the Corefile's option namespaces hides %s: it has %s", f.Name.Namespace, strings.Join(only, ", ")))
	}
	for _, name := range []string{"labels", "namespace_labels"} {
		if o := stanza.Option(name); o != nil {
			d.unsure = append(d.unsure, "the Corefile has "+strings.Join(o.Words, " ")+
				", which hides what does not match")
		}
	}
	if o := stanza.Option("max_endpoints"); o != nil && headless {
		d.unsure = append(d.unsure, "the Corefile has "+strings.Join(o.Words, " ")+
			", which limits the addresses of an answer")
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
		d.prefer = append(d.prefer, Property{Name: "prefer", Value: strings.Join(args, " "), From: "the Corefile here"})
	}
}
