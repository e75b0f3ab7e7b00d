package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

const (
	zone     = "clusterset.local"
	plugin   = "multicluster"
	useImage = "; for an image with the plugin: " + InstallDNS

	// InstallDNS is the remedy for all that dns install brings.
	InstallDNS = "kubectl clusterset dns install --image=REGISTRY/coredns:VERSION"
	// Earlier says that DNS Pods answer the zone although their Corefile does not.
	Earlier = "the DNS Pods answer " + zone + " by an earlier Corefile: CoreDNS has refused this one, or reads it " +
		"within two minutes. A Pod that starts with it does not answer " + zone + ", or does not start"
	// RefusedAt is how a remedy says what CoreDNS refuses: first comes the namespace, then a Pod or a Deployment.
	RefusedAt = "kubectl -n %s logs %s | grep -iE 'reload|error' | tail -n 5; if CoreDNS refuses the Corefile, " +
		"it says why there"
)

var dnsChecks = []Check{
	{"coredns-image", []Topic{DNS}, corednsImage},
	{"corefile", []Topic{DNS}, corefileParses},
	{"corefile-stanza", []Topic{DNS}, onCorefile(stanza)},
	{"corefile-unknown", []Topic{DNS}, onCorefile(unknownOptions)},
	{"corefile-zone", []Topic{DNS}, onCorefile(otherPlugins)},
	{"corefile-options", []Topic{DNS, Imports}, onCorefile(options)},
	{"corefile-cache", []Topic{DNS}, onCorefile(func(f *Facts, c *corefile.Corefile) []report.Finding {
		if !answeredElsewhere(f) || len(c.Unknown) > 0 { // multicluster keeps its own answers out of cache
			return nil
		}
		return stale(f, c)
	})},
	{"corefile-reload", []Topic{DNS}, onCorefile(reload)},
	{"coredns-rights", []Topic{DNSAuth, DNS}, func(f *Facts) []report.Finding {
		if unserved(f) || answeredElsewhere(f) {
			return nil
		}
		return lacks("CoreDNS", f.DNSFacts.Lacks, InstallDNS)
	}},
	{"coredns-beside", []Topic{Beside}, func(f *Facts) []report.Finding {
		if down := facts.Missing(f.DNSFacts.Beside, f.DNSFacts.BesidePods); down != nil {
			return []report.Finding{*down}
		}
		return nil
	}},
	{"dns-answers", []Topic{DNSAnswers}, unanswered},
	{"node-cache", []Topic{NodeLocal}, nodeCache},
}

// edit is the command that changes the Corefile of the cluster's CoreDNS.
func (f *Facts) edit() string {
	return "kubectl -n kube-system edit configmap " + cmp.Or(f.DNSFacts.Config, "coredns")
}

// onCorefile makes a check of CoreDNS's Corefile. It skips one that does not parse, which corefileParses finds.
func onCorefile(look func(*Facts, *corefile.Corefile) []report.Finding) func(*Facts) []report.Finding {
	return func(f *Facts) []report.Finding {
		c, err := corefile.Parse(f.DNSFacts.Corefile)
		if err != nil {
			return nil
		}
		return look(f, c)
	}
}

func corefileParses(f *Facts) []report.Finding {
	c, err := corefile.Parse(f.DNSFacts.Corefile)
	switch {
	case err != nil:
		return wrong(f.edit(),
			"parsing the Corefile failed: %v; CoreDNS keeps its previous one, and does not start with this one", err)
	case c.Twice() != "":
		return wrong("to remove one of them: "+f.edit(),
			"two server blocks of the Corefile are for %s: CoreDNS does not apply it, and does not start with it",
			c.Twice())
	case c.For(zone, "53") == nil && len(c.Unknown) == 0:
		return wrong(InstallDNS, "no server block of the Corefile is for %s", zone)
	case len(c.Unknown) > 0:
		return warn("check the imported files by hand", "the Corefile imports %s, which was not checked",
			strings.Join(c.Unknown, ", "))
	}
	return nil
}

// without matches images of CoreDNS that others publish, and that lack our plugin. The name proves nothing: it is a
// hint.
var without = regexp.MustCompile(`^(docker\.io/)?coredns/coredns[:@]|` +
	`^(registry\.k8s\.io|k8s\.gcr\.io)/(coredns/)?coredns[:@]|` +
	`/eks/coredns[:@]|^mcr\.microsoft\.com/oss/(v2/)?kubernetes/coredns[:@]|` +
	`rancher/(mirrored-coredns-coredns|hardened-coredns)[:@]`)

// corednsImage checks that CoreDNS runs: it does not start with a directive that it does not know.
func corednsImage(f *Facts) []report.Finding {
	d := f.DNSFacts.Deployment
	if d == nil {
		return nil
	}
	hint, added := "", ""
	for _, c := range d.Spec.Template.Spec.Containers {
		if without.MatchString(c.Image+":") && !unserved(f) && !answeredElsewhere(f) {
			hint = fmt.Sprintf("by its name, the image %s lacks the plugin %s", c.Image, plugin)
			added = "; " + hint
		}
	}
	none := d.Status.AvailableReplicas == 0 && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0)
	for i := range f.DNSFacts.Pods {
		p := &f.DNSFacts.Pods[i]
		// Another pod that cannot be scheduled is not a problem of DNS.
		if why := facts.Waiting(p); why != "" && (none || len(p.Status.ContainerStatuses) > 0) {
			remedy := facts.LookAt(p, why)
			if _, err := corefile.Parse(f.DNSFacts.Corefile); err == nil {
				remedy += useImage
			}
			return wrong(remedy, "CoreDNS does not run: %s%s", why, added)
		}
	}
	switch {
	case ptr.Deref(d.Spec.Replicas, 1) == 0:
		down := facts.Missing(d, nil)
		return wrong(down.Remedy, "no name is answered here: %s", down.What)
	case none:
		return wrong("kubectl -n kube-system describe deployment "+d.Name+useImage,
			"no replica of CoreDNS is available%s", added)
	case hint != "":
		return warn("look for \"Unknown directive 'multicluster'\" in CoreDNS's log"+useImage, "%s", hint)
	}
	if down := facts.Missing(d, f.DNSFacts.Pods); down != nil { // what is not ready was not asked
		return warn(down.Remedy, "%s", down.What)
	}
	return nil
}

// serves reports whether one of the zones of a plugin's line covers ours.
func serves(zones []string) bool {
	return slices.ContainsFunc(zones, func(z string) bool { return corefile.Covers(corefile.Normal(z), zone) })
}

// stanza finds that our plugin does not answer the zone. If a part of the Corefile was not read, that is no error.
func stanza(f *Facts, c *corefile.Corefile) []report.Finding {
	out := noStanza(f, c)
	if len(out) == 0 || out[0].Severity != report.Error || len(c.Unknown) == 0 {
		return out
	}
	return warn("look for the line multicluster, or a server block "+zone+":53, in the imported files",
		"%s, unless it is in %s, which was not checked", out[0].What, strings.Join(c.Unknown, ", "))
}

// noStanza finds what is wrong with our plugin's line in the server block that is asked.
func noStanza(f *Facts, c *corefile.Corefile) []report.Finding {
	b := c.For(zone, "53")
	if b == nil && len(c.Unknown) > 0 {
		return wrong(f.edit(), "no server block of the Corefile is for %s", zone)
	}
	if b == nil || b.Stanza(plugin, zone) != nil { // corefileParses finds the former
		return nil
	}
	for i := range c.Blocks {
		if other := &c.Blocks[i]; other != b && len(other.All(plugin)) > 0 {
			return wrong(f.edit(), "%s is in a server block that gets no question for %s: the block %s answers them",
				plugin, zone, keys(b))
		}
	}
	for _, l := range b.All("kubernetes") {
		if l.Option(plugin) != nil {
			return wrong(InstallDNS+"; then, to remove the option: "+f.edit(),
				"the option multicluster of the plugin kubernetes answers %s, ClusterSetIP names only in part", zone)
		}
	}
	if len(b.All(plugin)) > 0 {
		return wrong(f.edit(), "the plugin %s is there, and not for %s", plugin, zone)
	}
	if len(b.SentOn(zone)) > 0 { // unanswered asks
		return nil
	}
	for _, l := range b.Plugins {
		if name := l.Name(); strings.HasPrefix(name, "mul") && name != "multisocket" {
			return wrong("to write "+plugin+": "+f.edit(), "the server block %s of the Corefile has a line %s, which "+
				"is no plugin: CoreDNS keeps its previous Corefile, and does not start with this one", keys(b), name)
		}
	}
	return wrong(InstallDNS, "nothing in the server block %s of the Corefile answers %s", keys(b), zone)
}

// answeredElsewhere reports whether this CoreDNS has no line of our plugin, and forwards the zone or imports what was
// not checked. Then it needs neither an image with the plugin nor rights.
func answeredElsewhere(f *Facts) bool {
	c, err := corefile.Parse(f.DNSFacts.Corefile)
	if err != nil || slices.ContainsFunc(c.Blocks, func(b corefile.Block) bool { return len(b.All(plugin)) > 0 }) {
		return false
	}
	b := c.For(zone, "53")
	return len(c.Unknown) > 0 || b != nil && len(b.SentOn(zone)) > 0
}

// unserved reports whether the Corefile has no line of our plugin, and nothing else answers the zone. Then dns install
// is the remedy for the image, the rights and the cache, too, and one finding says so.
func unserved(f *Facts) bool {
	c, err := corefile.Parse(f.DNSFacts.Corefile)
	return f.DNSFacts.Corefile != "" && err == nil && !answeredElsewhere(f) &&
		!slices.ContainsFunc(c.Blocks, func(b corefile.Block) bool { return len(b.All(plugin)) > 0 })
}

// unanswered finds DNS Pods that do not answer the zone, whatever the Corefile says, or that answer it although the
// Corefile does not.
func unanswered(f *Facts) []report.Finding {
	n := len(f.DNSFacts.Unanswered)
	switch {
	case unserved(f) && n == 0 && f.DNSFacts.AskedPods > 0 && len(f.DNSFacts.Pods) > 0:
		return wrong(fmt.Sprintf(RefusedAt, "kube-system", f.DNSFacts.Pods[0].Name), Earlier)
	case unserved(f) || n == 0:
		return nil
	}
	first := f.DNSFacts.Unanswered[0]
	others := ""
	if n > 1 {
		others = fmt.Sprintf("; %d of the %d DNS Pods do not answer", n, f.DNSFacts.AskedPods)
	}
	return wrong(first.Remedy, "Pod %s %s%s", first.Pod, first.Why, others)
}

func keys(b *corefile.Block) string {
	var out []string
	for _, k := range b.Keys {
		out = append(out, k.String())
	}
	return strings.Join(out, ", ")
}

// ahead are the plugins that come before ours (plugin.cfg) and can answer for a zone.
var ahead = []string{"rewrite", "template", "hosts", "route53", "azure", "clouddns", "k8s_external"}

// otherPlugins finds plugins that may answer the zone instead of ours.
func otherPlugins(f *Facts, c *corefile.Corefile) (out []report.Finding) {
	b := c.For(zone, "53")
	if b == nil {
		return nil
	}
	remove := f.edit() + ", and remove " + zone + " from the line kubernetes"
	for _, l := range b.All("kubernetes") {
		option := l.Option(plugin) != nil
		if !option && slices.ContainsFunc(l.Args(), func(z string) bool { return corefile.Normal(z) == zone }) {
			if b.Stanza(plugin, zone) != nil {
				out = append(out, report.Warningf(remove,
					"the plugin kubernetes also has the zone %s; it is not asked while %s comes first", zone, plugin))
			} else {
				out = append(out, report.Errorf(remove,
					"the plugin kubernetes has the zone %s, and answers it with this cluster's own Services", zone))
			}
		}
		if option && len(b.All(plugin)) > 0 {
			out = append(out, report.Warningf("to remove the option: "+f.edit(),
				"the plugin kubernetes has the option multicluster as well, which only costs watches: ours comes "+
					"first"))
		}
	}
	for _, name := range ahead {
		for _, l := range b.All(name) {
			// A template is CLASS TYPE [ZONE...]; without a zone it is for all of the block.
			args := l.Args()
			if mentions(l) || name == "template" && (len(args) <= 2 || serves(args[2:])) {
				out = append(out, report.Warningf("to check that it leaves the zone alone: "+f.edit(),
					"%q comes before %s and may answer %s", strings.Join(l.Words, " "), plugin, zone))
			}
		}
	}
	return out
}

// mentions reports whether a line, or its body, has a name in our zone.
func mentions(l *corefile.Line) bool {
	for i := range l.Body {
		if mentions(&l.Body[i]) {
			return true
		}
	}
	return slices.ContainsFunc(l.Words, func(w string) bool { return corefile.Covers(zone, corefile.Normal(w)) })
}

// withoutReady finds a block with our plugin that ready does not ask.
func withoutReady(f *Facts, b *corefile.Block) []report.Finding {
	if len(b.All(plugin)) == 0 || len(b.All("ready")) > 0 {
		return nil
	}
	return warn("to add the line ready to it: "+f.edit(),
		"the server block %s has no ready: Pods are ready before they can answer %s", keys(b), zone)
}

// known are the options of our plugin (plugin/multicluster/README.md).
var known = strings.Fields("kubeconfig endpoint tls ttl namespaces namespace_labels labels noendpoints " +
	"endpoint_pod_names max_endpoints prefer zonal nameserver startup_timeout fallthrough")

// unknownOptions finds options that our plugin does not have.
func unknownOptions(f *Facts, c *corefile.Corefile) (out []report.Finding) {
	for i := range c.Blocks {
		for _, l := range c.Blocks[i].All(plugin) {
			for j := range l.Body {
				if name := l.Body[j].Name(); !slices.Contains(known, name) {
					out = append(out, report.Errorf(f.edit()+"; "+report.DocsCorefile, "the plugin %s has no option "+
						"%s: CoreDNS keeps its previous Corefile, and does not start with this one", plugin, name))
				}
			}
		}
	}
	return out
}

// options finds options that hide names, or that make answers old.
func options(f *Facts, c *corefile.Corefile) (out []report.Finding) {
	b := c.For(zone, "53")
	if b == nil {
		return nil
	}
	out = withoutReady(f, b)
	headless := slices.ContainsFunc(f.Imported,
		func(i mcsv1beta1.ServiceImport) bool { return i.Spec.Type == mcsv1beta1.Headless })
	for _, l := range b.All(plugin) {
		if l.Option("noendpoints") != nil && headless {
			out = append(out, report.Errorf("to remove noendpoints: "+f.edit(),
				"the option noendpoints hides the names of Headless imports"))
		}
		only := l.Values("namespaces")
		for i := range f.Imported {
			if ns := f.Imported[i].Namespace; len(only) > 0 && !slices.Contains(only, ns) {
				out = append(out, report.Warningf("to add "+ns+" to the option namespaces: "+f.edit(),
					"namespace %s has imports, and the option namespaces hides them", ns))
				break
			}
		}
		if ttl := l.Option("ttl"); ttl != nil && len(ttl.Args()) == 1 {
			if n, err := strconv.Atoi(ttl.Args()[0]); err == nil && n > 60 {
				out = append(out, report.Warningf("to set ttl 5: "+f.edit(),
					"clients keep answers for %d s, and notice changes that much later", n))
			}
		}
	}
	return out
}

// stale finds a cache that serves answers of our zone beyond their TTL. A cache that does not keeps them no longer than
// their TTL, whatever its own limit is.
func stale(f *Facts, c *corefile.Corefile) []report.Finding {
	b := c.For(zone, "53")
	if b == nil {
		return nil
	}
	for _, l := range b.All("cache") {
		zones := slices.DeleteFunc(slices.Clone(l.Args()), func(a string) bool {
			_, err := strconv.Atoi(a)
			return err == nil
		})
		if (len(zones) == 0 || serves(zones)) && l.Option("serve_stale") != nil && !disabled(l, "success") {
			return wrong("to add \"disable success "+zone+"\" to cache: "+f.edit(),
				"CoreDNS's cache serves stale answers of %s: addresses of removed endpoints for up to an hour", zone)
		}
	}
	return nil
}

// disabled reports whether a cache is disabled for answers of one kind in our zone; without a zone it is for all.
func disabled(l *corefile.Line, kind string) bool {
	return slices.ContainsFunc(l.Options("disable"), func(o *corefile.Line) bool {
		args := o.Args()
		return len(args) > 0 && args[0] == kind && (len(args) == 1 || serves(args[1:]))
	})
}

func reload(f *Facts, c *corefile.Corefile) []report.Finding {
	reloads := slices.ContainsFunc(c.Blocks, func(b corefile.Block) bool { return len(b.All("reload")) > 0 })
	if c.For(zone, "53") != nil && !reloads {
		return warn("to add the line reload: "+f.edit(),
			"the Corefile has no reload: changes apply when the pods restart")
	}
	return nil
}

// nodeCache finds a cache on the nodes that answers Pods, and that lacks the zone.
func nodeCache(f *Facts) []report.Finding {
	c := f.DNSFacts.NodeCache
	switch {
	case c == nil:
		return nil
	case c.Name == platform.LocalDNS: // its configuration is not in the API server
		return warn(c.Step+"; "+report.DocsNodeLocal, "%s answers Pods (%s): without a block for %s it serves "+
			"addresses of removed endpoints for up to an hour", c.Name, c.Evidence, zone)
	}
	return wrong(c.Step+"; "+report.DocsNodeLocal, "%s does not forward %s: Pods on its nodes cannot resolve it",
		c.Name, zone)
}
