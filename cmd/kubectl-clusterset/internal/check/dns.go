package check

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
)

const plugin = "multicluster"

// installDNS is the step that brings all that DNS needs.
var installDNS = report.Here(facts.InstallDNS)

// edit is the step that changes the Corefile of the cluster's CoreDNS.
func edit(w *World) report.Step {
	name := "coredns"
	if d := &w.Member.DNS; d.Config != nil {
		name = cmp.Or(d.Config.Name, name)
		if d.Custom != nil && d.Custom.ResourceVersion != "" { // kubectl edit takes both
			name += " " + d.Custom.Name
		}
	}
	return dns.Edit(name)
}

// joined reports whether DNS is wanted here.
func (w *World) joined() bool { return w.Member.Set() != "" && !w.Member.Leaving() }

const noDNS = "no Pod of the cluster's DNS is available"

// total returns noDNS, to be said before its cause; "" if a Pod answers, or if none should.
func (w *World) total() string {
	d := w.Member.DNS.Deployment
	elsewhere := w.Member.DNS.Config == nil || w.answers()
	if d == nil || d.Status.AvailableReplicas > 0 || elsewhere && ptr.Deref(d.Spec.Replicas, 1) == 0 {
		return ""
	}
	return noDNS + ": "
}

// sentOn reports whether this CoreDNS has no line of our plugin, and forwards the zone or imports what was not read.
func sentOn(c *corefile.Corefile) bool {
	if slices.ContainsFunc(c.Blocks, func(b corefile.Block) bool { return len(b.All(plugin)) > 0 }) {
		return false
	}
	b := c.For(dns.Zone, "53")
	return len(c.Unknown) > 0 || b != nil && len(b.SentOn(dns.Zone)) > 0
}

var dnsChecks = []Check{
	{
		ID: "dns-corefile", Scope: DNS, Level: report.Error, Needs: parts{snapshot.Corefile, snapshot.Properties},
		One: "CoreDNS cannot use its Corefile",
		Look: func(w *World) []Hit {
			c, err := w.Member.Corefile()
			h := Hit{Do: edit(w)}
			switch {
			case err != nil:
				h.Detail = err.Error()
			case c != nil && c.Twice() != "":
				h.Detail = "two server blocks are for " + c.Twice()
			default:
				return nil
			}
			h.Detail = w.total() + h.Detail
			return []Hit{h}
		},
	},
	{
		ID: "dns-refused", Scope: DNS, Level: report.Error, Needs: parts{snapshot.Corefile},
		After: []string{"dns-corefile"}, One: "CoreDNS refuses its Corefile",
		Look: func(w *World) []Hit {
			if w.Member.DNSRefusal == "" {
				return nil
			}
			h := Hit{Detail: w.total() + w.Member.DNSRefusal, Do: edit(w)}
			if strings.Contains(h.Detail, "Unknown directive '"+plugin+"'") {
				h.Do = installDNS
			}
			return []Hit{h}
		},
	},
	{
		ID: "dns-none", Scope: DNS, Level: report.Error, Needs: parts{snapshot.Corefile, snapshot.Properties},
		After: []string{"dns-corefile"}, One: "this cluster's DNS does not answer " + dns.Zone,
		Look: func(w *World) []Hit {
			c, err := w.Member.Corefile()
			if err != nil || c == nil || w.answers() || !w.joined() || sentOn(c) {
				return nil
			}
			if _, line := w.Member.Plugin(); line != nil {
				return nil
			}
			h := Hit{Do: installDNS, Detail: "nothing in its Corefile is for it"}
			b := c.For(dns.Zone, "53")
			for i := range c.Blocks {
				if other := &c.Blocks[i]; other != b && len(other.All(plugin)) > 0 {
					h.Detail, h.Do = "multicluster is in a server block that gets no question for it", edit(w)
				}
			}
			if b != nil && len(b.All(plugin)) > 0 {
				h.Detail, h.Do = "multicluster is there, and not for this zone", edit(w)
			}
			if b != nil && InTree(b) {
				h.Detail = "the option multicluster of the plugin kubernetes answers it, and only in part"
			}
			return []Hit{h}
		},
	},
	{
		ID: "dns-down", Scope: DNS, Level: report.Error, Needs: parts{snapshot.DNS, snapshot.Properties},
		After: []string{"dns-corefile", "dns-refused"}, One: noDNS,
		Look: func(w *World) []Hit {
			if w.total() == "" {
				return nil
			}
			return w.down(facts.Missing(w.Member.DNS.Deployment, w.Member.DNSPods))
		},
	},
	{
		ID: "dns-replica", Scope: DNS, Level: report.Warning, Needs: parts{snapshot.DNS},
		After: []string{"dns-refused", "dns-down"}, One: "a Pod of the cluster's DNS is not ready",
		Look: func(w *World) []Hit {
			if d := w.Member.DNS.Deployment; d == nil || d.Status.AvailableReplicas == 0 {
				return nil
			}
			return w.down(facts.Missing(w.Member.DNS.Deployment, w.Member.DNSPods))
		},
	},
	{
		ID: "dns-beside", Scope: DNS, Level: report.Error, Needs: parts{snapshot.DNS},
		One: "our CoreDNS beside the cluster's DNS does not run as it should",
		Look: func(w *World) []Hit {
			out := w.down(facts.Missing(w.Member.DNS.Beside, w.Member.BesidePods))
			if len(out) > 0 && w.Member.DNS.Beside.Status.AvailableReplicas > 0 {
				out[0].Level = report.Warning
			}
			lacks := w.Member.BesideDrift
			if len(out) == 0 || len(lacks) == 0 {
				return out
			}
			out[0].Detail += "; " + strings.Join(lacks, ", ")
			if change, _ := w.Member.DNS.Owner(); change != "" {
				out[0].Detail += "; to restore it: " + change
			} else {
				out[0].Do = installDNS
			}
			return out
		},
	},
	{
		ID: "dns-drift", Scope: DNS, Level: report.Error, Needs: parts{snapshot.Corefile, snapshot.Drift},
		After: []string{"dns-none"}, One: "CoreDNS lacks rights that its plugin needs",
		Look: func(w *World) []Hit {
			_, line := w.Member.Plugin()
			if line == nil || line.Option("kubeconfig") != nil || len(w.Member.DNSDrift) == 0 {
				return nil
			}
			return []Hit{{Detail: strings.Join(w.Member.DNSDrift, ", "), Do: installDNS}}
		},
	},
	{
		ID: "dns-node-cache", Scope: DNS, Level: report.Error, Needs: parts{snapshot.DNS, snapshot.Properties},
		After: []string{"dns-none"}, One: "a DNS cache on the nodes does not forward " + dns.Zone,
		Look: func(w *World) []Hit {
			c, do := w.Member.DNS.Cache()
			if c == nil || w.answers() && c.Name != platform.LocalDNS || !w.joined() {
				return nil
			}
			h := Hit{Detail: c.Name, Do: do}
			if len(do.Argv) == 0 {
				h.Detail += ": " + c.Step
			}
			if c.Name == platform.LocalDNS { // its configuration is not in the API server
				h.Level = report.Warning
			}
			return []Hit{h}
		},
	},
	{
		ID: "dns-hidden", Scope: DNS, Level: report.Error, Needs: parts{snapshot.Corefile, snapshot.Imports},
		One: "the Corefile hides names of %s", Many: "the Corefile hides names of %d namespaces",
		Look: func(w *World) (out []Hit) {
			_, line := w.Member.Plugin()
			if line == nil {
				return nil
			}
			only, none := line.Values("namespaces"), line.Option("noendpoints") != nil
			for _, n := range w.Names {
				switch {
				case n.Import == nil || slices.ContainsFunc(out, func(h Hit) bool { return h.On == n.Namespace }):
				case len(only) > 0 && !slices.Contains(only, n.Namespace):
					out = append(out, Hit{On: n.Namespace, Do: edit(w), Detail: "its option namespaces has " +
						strings.Join(only, ", ")})
				case none && n.Headless():
					out = append(out, Hit{On: n.Namespace, Do: edit(w), Detail: "its option noendpoints hides the " +
						"Headless name " + n.String()})
				}
			}
			return out
		},
	},
}

// InTree reports whether CoreDNS's own plugin kubernetes answers for a clusterset, by its option multicluster.
func InTree(b *corefile.Block) bool {
	return slices.ContainsFunc(b.All("kubernetes"), func(l *corefile.Line) bool { return l.Option(plugin) != nil })
}
