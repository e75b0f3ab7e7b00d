package explain

import (
	"fmt"
	"slices"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

const editCorefile = "kubectl -n kube-system edit configmap coredns (docs/corefile.md)"

// dns is what this cluster's CoreDNS makes of an import, by its Corefile.
type dns struct {
	topology catalog.Topology
	podNames bool      // endpoints without a host name bear their pod's
	denied   []Problem // why it says NXDOMAIN although the import is there
	unsure   []string  // why it may answer otherwise
}

func (f *Facts) dns() (d dns) {
	if f.CorefileUnread != "" {
		d.unsure = append(d.unsure, "this cluster's Corefile was not read: "+f.CorefileUnread)
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
		d.topology = topology(stanza)
		d.podNames = stanza.Option("endpoint_pod_names") != nil
		d.options(stanza, f)
	case b != nil && !inTree(b) && len(b.SentOn(Zone)) > 0:
		d.unsure = append(d.unsure, fmt.Sprintf("the Corefile sends %s to %s: what answers there was not looked at", Zone, strings.Join(b.SentOn(Zone), " ")))
	case len(c.Unknown) > 0:
		d.unsure = append(d.unsure, fmt.Sprintf("the Corefile has no line multicluster for %s; it may stand in what it imports, %s, which was not looked at", Zone, strings.Join(c.Unknown, ", ")))
	case b != nil && inTree(b):
		d.unsure = append(d.unsure, "the kubernetes plugin's option multicluster answers "+Zone+" here, ClusterSetIP names only in part")
	default:
		d.denied = append(d.denied, Problem{"the Corefile of this cluster's CoreDNS has no line multicluster in the server block that answers " + Zone, editCorefile + "; kubectl clusterset doctor"})
	}
	return d
}

// inTree tells whether the kubernetes plugin would answer the zone by its own option.
func inTree(b *corefile.Block) bool {
	return slices.ContainsFunc(b.All("kubernetes"), func(l *corefile.Line) bool { return l.Option("multicluster") != nil })
}

// options that hide names.
func (d *dns) options(stanza *corefile.Line, f *Facts) {
	headless := f.Import != nil && f.Import.Spec.Type == mcsv1beta1.Headless
	if stanza.Option("noendpoints") != nil && headless {
		d.denied = append(d.denied, Problem{"the Corefile has the option noendpoints, with which no Headless name exists", editCorefile + ": take noendpoints off"})
	}
	if only := stanza.Values("namespaces"); len(only) > 0 && !slices.Contains(only, f.Name.Namespace) {
		d.denied = append(d.denied, Problem{fmt.Sprintf("the Corefile's option namespaces leaves %s out: it has %s", f.Name.Namespace, strings.Join(only, ", ")), editCorefile + ": add " + f.Name.Namespace + " to it"})
	}
	for _, name := range []string{"labels", "namespace_labels"} {
		if o := stanza.Option(name); o != nil {
			d.unsure = append(d.unsure, "the Corefile has "+strings.Join(o.Words, " ")+", and what does not match it does not exist")
		}
	}
	if o := stanza.Option("max_endpoints"); o != nil && headless {
		d.unsure = append(d.unsure, "the Corefile has "+strings.Join(o.Words, " ")+": each answer holds so many of the addresses at most")
	}
}

// topology is whose endpoints stand first in a Headless name's answers, by the option prefer (T2).
func topology(stanza *corefile.Line) (t catalog.Topology) {
	for _, option := range stanza.Options("prefer") {
		args := option.Args()
		if len(args) < 2 {
			continue
		}
		name, only := strings.ToLower(args[1]), len(args) > 2 && args[2] == "subset"
		switch args[0] {
		case "local":
			t.Cluster, t.ClusterOnly = name, only
		case "zone":
			t.Zone, t.ZoneOnly = name, only
		}
	}
	return t
}
