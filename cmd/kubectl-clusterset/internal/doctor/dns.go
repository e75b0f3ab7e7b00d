package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
)

const (
	zone   = "clusterset.local"
	edit   = "kubectl -n kube-system edit configmap coredns (deploy/coredns/README.md)"
	plugin = "multicluster"
)

var dnsChecks = []Check{
	{"coredns-image", []Topic{DNS}, corednsImage},
	{"corefile", []Topic{DNS}, corefileReads},
	{"corefile-stanza", []Topic{DNS}, onCorefile(stanza)},
	{"corefile-zone", []Topic{DNS}, onCorefile(otherAnswers)},
	{"corefile-options", []Topic{DNS, Imports}, onCorefile(options)},
	{"corefile-cache", []Topic{DNS}, onCorefile(coreCache)},
	{"corefile-reload", []Topic{DNS}, onCorefile(reload)},
	{"coredns-rights", []Topic{DNSAuth}, func(f *Facts) []Finding {
		if answeredElsewhere(f) {
			return nil
		}
		return lacks("CoreDNS", f.DNSFacts.Lacks, "kubectl apply -k deploy/coredns; its ServiceAccount must be the one that the binding names")
	}},
	{"nodelocal-forward", []Topic{NodeLocal}, nodeLocalForward},
	{"nodelocal-cache", []Topic{NodeLocal}, func(f *Facts) []Finding {
		c, err := corefile.Parse(f.DNSFacts.NodeLocal)
		if f.DNSFacts.NodeLocal == "" || err != nil {
			return nil
		}
		return cached(c, "NodeLocal DNS", nodeLocalEdit, ofAForwarder)
	}},
}

// ofAForwarder is for how many seconds one may keep answers that it fetched: it saves a trip, and is not seen (docs/corefile.md).
var ofAForwarder = map[string]int{"success": 5, "denial": 1}

const nodeLocalEdit = "kubectl -n kube-system edit configmap node-local-dns"

// onCorefile makes a check of CoreDNS's Corefile; one that cannot be read is corefileReads' finding.
func onCorefile(look func(*Facts, *corefile.Corefile) []Finding) func(*Facts) []Finding {
	return func(f *Facts) []Finding {
		c, err := corefile.Parse(f.DNSFacts.Corefile)
		if err != nil {
			return nil
		}
		return look(f, c)
	}
}

func corefileReads(f *Facts) (out []Finding) {
	c, err := corefile.Parse(f.DNSFacts.Corefile)
	switch {
	case err != nil:
		return wrong(edit, "%v: CoreDNS keeps the Corefile that it had, and does not start with this one", err)
	case c.For(zone, "53") == nil && len(c.Unknown) == 0:
		return wrong(edit, "no server block of the Corefile is for %s", zone)
	case len(c.Unknown) > 0:
		return warn("look at what they hold", "the Corefile imports %s, which was not looked at", strings.Join(c.Unknown, ", "))
	}
	return nil
}

// without are the images of CoreDNS that others publish, none of which has our plugin. A name proves nothing: it is a hint.
var without = regexp.MustCompile(`^(docker\.io/)?coredns/coredns[:@]|^(registry\.k8s\.io|k8s\.gcr\.io)/(coredns/)?coredns[:@]|/eks/coredns[:@]|` +
	`^mcr\.microsoft\.com/oss/(v2/)?kubernetes/coredns[:@]|rancher/(mirrored-coredns-coredns|hardened-coredns)[:@]`)

const imageRemedy = "; an image with the plugin: deploy/coredns/README.md"

// corednsImage goes by whether CoreDNS runs: it does not start with a directive that it does not know.
func corednsImage(f *Facts) []Finding {
	d := f.DNSFacts.Deployment
	if d == nil {
		return nil
	}
	hint := ""
	for _, c := range d.Spec.Template.Spec.Containers {
		if without.MatchString(c.Image+":") && !answeredElsewhere(f) {
			hint = fmt.Sprintf("the image %s is, by its name, one without the plugin %s", c.Image, plugin)
		}
	}
	added := ""
	if hint != "" {
		added = "; " + hint
	}
	none := d.Status.AvailableReplicas == 0 && (d.Spec.Replicas == nil || *d.Spec.Replicas > 0)
	for i := range f.DNSFacts.Pods {
		p := &f.DNSFacts.Pods[i]
		if why := Waiting(p); why != "" && (none || len(p.Status.ContainerStatuses) > 0) { // for one more to be scheduled is no concern of ours
			return wrong("kubectl -n kube-system logs --previous "+p.Name+imageRemedy, "CoreDNS does not run: %s%s", why, added)
		}
	}
	switch {
	case none:
		return wrong("kubectl -n kube-system describe deployment "+d.Name+imageRemedy, "no replica of CoreDNS is available%s", added)
	case hint != "":
		return warn("CoreDNS's log: \"Unknown directive 'multicluster'\" says that it is so"+imageRemedy, "%s", hint)
	}
	return nil
}

// serves tells whether a plugin's line is for our zone; none means the block's own.
func serves(l *corefile.Line, zones []string) bool {
	return slices.ContainsFunc(zones, func(z string) bool { return corefile.Covers(corefile.Normal(z), zone) })
}

// stanza concludes nothing from what is missing where a part of the Corefile was not looked at.
func stanza(_ *Facts, c *corefile.Corefile) []Finding {
	out := served(c)
	if len(out) == 0 || out[0].Severity != Error || len(c.Unknown) == 0 {
		return out
	}
	return warn("look for the line multicluster, or a server block "+zone+":53, in what it imports", "%s; unless it stands in %s, which was not looked at", out[0].What, strings.Join(c.Unknown, ", "))
}

// served tells what is wrong with the line of our plugin in the block that is asked.
func served(c *corefile.Corefile) []Finding {
	b := c.For(zone, "53")
	if b == nil && len(c.Unknown) > 0 {
		return wrong(edit, "no server block of the Corefile is for %s", zone)
	}
	if b == nil { // corefileReads' finding
		return nil
	}
	if b.Stanza(plugin, zone) != nil {
		return nil
	}
	for i := range c.Blocks {
		if other := &c.Blocks[i]; other != b && len(other.All(plugin)) > 0 {
			return wrong(edit, "the server block %s answers %s, and %s stands in another, which no such question reaches", keys(b), zone, plugin)
		}
	}
	for _, l := range b.All("kubernetes") {
		if m := l.Option(plugin); m != nil {
			return wrong(edit+": add the line \"multicluster clusterset.local\" before kubernetes, and take its option away",
				"%s is answered by the kubernetes plugin's option multicluster, which knows ClusterSetIP names only in part, and not by the plugin %s", zone, plugin)
		}
	}
	if len(b.All(plugin)) > 0 {
		return wrong(edit, "the plugin %s is there, and not for %s", plugin, zone)
	}
	if to := b.SentOn(zone); len(to) > 0 {
		return warn("see in a pod that it answers: dig +short TXT dns-version."+zone, "the Corefile sends %s to %s: what answers there was not looked at", zone, strings.Join(to, " "))
	}
	return wrong(edit+": add the line \"multicluster clusterset.local\"", "nothing in the server block %s of the Corefile answers %s: names are sent on, or do not exist", keys(b), zone)
}

// answeredElsewhere tells whether the zone is another server's to answer, or may be, by what was not looked at: without a line of our plugin this one
// needs neither an image that has it nor its rights then.
func answeredElsewhere(f *Facts) bool {
	c, err := corefile.Parse(f.DNSFacts.Corefile)
	if err != nil {
		return false
	}
	if slices.ContainsFunc(c.Blocks, func(b corefile.Block) bool { return len(b.All(plugin)) > 0 }) {
		return false
	}
	b := c.For(zone, "53")
	return len(c.Unknown) > 0 || b != nil && len(b.SentOn(zone)) > 0
}

func keys(b *corefile.Block) string {
	var out []string
	for _, k := range b.Keys {
		out = append(out, k.Zone+".:"+k.Port)
	}
	return strings.Join(out, ", ")
}

// ahead are the plugins that stand before ours in the order of plugins and can answer a zone by themselves (plugin.cfg).
var ahead = []string{"rewrite", "template", "hosts", "route53", "azure", "clouddns", "k8s_external"}

// otherAnswers finds what takes the zone away from ours, or fights with it.
func otherAnswers(_ *Facts, c *corefile.Corefile) (out []Finding) {
	b := c.For(zone, "53")
	if b == nil {
		return nil
	}
	for _, l := range b.All("kubernetes") {
		if slices.ContainsFunc(l.Args(), func(z string) bool { return corefile.Normal(z) == zone }) && l.Option(plugin) == nil {
			makesUp := "the kubernetes plugin is given %s, for which it makes up names of this cluster's own Services"
			if b.Stanza(plugin, zone) != nil {
				out = append(out, warn(edit+": take "+zone+" off the line kubernetes", makesUp+"; it is not asked, as long as %s stands before it", zone, plugin)...)
			} else {
				out = append(out, wrong(edit+": take "+zone+" off the line kubernetes", makesUp, zone)...)
			}
		}
		if l.Option(plugin) != nil && len(b.All(plugin)) > 0 {
			out = append(out, warn(edit+": take the option off", "the kubernetes plugin has the option multicluster as well; ours stands before it, so it only costs watches")...)
		}
	}
	for _, name := range ahead {
		for _, l := range b.All(name) {
			if speaks(l) || name == "template" && covers(l) {
				out = append(out, warn(edit, "%q stands before %s and speaks of %s: see that it does not answer for it", strings.Join(l.Words, " "), plugin, zone)...)
			}
		}
	}
	return out
}

// covers tells whether a template, CLASS TYPE [ZONE...], is for our zone; none means the block's own.
func covers(l *corefile.Line) bool {
	args := l.Args()
	return len(args) <= 2 || serves(l, args[2:])
}

// speaks tells whether a line, or what stands in its braces, holds a name at or below our zone.
func speaks(l *corefile.Line) bool {
	for i := range l.Body {
		if speaks(&l.Body[i]) {
			return true
		}
	}
	return slices.ContainsFunc(l.Words, func(w string) bool { return corefile.Covers(zone, corefile.Normal(w)) })
}

// options that hide names.
func options(f *Facts, c *corefile.Corefile) (out []Finding) {
	b := c.For(zone, "53")
	if b == nil {
		return nil
	}
	for _, l := range b.All(plugin) {
		headless := slices.ContainsFunc(f.Imported, func(i mcsv1beta1.ServiceImport) bool { return i.Spec.Type == mcsv1beta1.Headless })
		if l.Option("noendpoints") != nil && headless {
			out = append(out, wrong(edit+": take noendpoints off", "the option noendpoints is set, and there are Headless imports, which have no names then")...)
		}
		if only := l.Values("namespaces"); len(only) > 0 {
			for i := range f.Imported {
				if ns := f.Imported[i].Namespace; !slices.Contains(only, ns) {
					out = append(out, warn(edit+": add it to the option namespaces, if it is to be seen", "namespace %s has imports, and the option namespaces leaves it out", ns)...)
					break
				}
			}
		}
		if ttl := l.Option("ttl"); ttl != nil && len(ttl.Args()) == 1 {
			if n, err := strconv.Atoi(ttl.Args()[0]); err == nil && n > 60 {
				out = append(out, warn(edit+": ttl 5", "answers live for %d s in every client: what changes is seen that much later", n)...)
			}
		}
	}
	return out
}

func coreCache(f *Facts, c *corefile.Corefile) []Finding {
	var may map[string]int
	if answeredElsewhere(f) {
		may = ofAForwarder
	}
	return cached(c, "CoreDNS", edit, may)
}

// cached tells whether cache keeps answers of our zone, for more seconds than it may.
func cached(c *corefile.Corefile, who, remedy string, may map[string]int) []Finding {
	b := c.For(zone, "53")
	if b == nil {
		return nil
	}
	for _, l := range b.All("cache") {
		zones := slices.DeleteFunc(slices.Clone(l.Args()), func(a string) bool { _, err := strconv.Atoi(a); return err == nil })
		if len(zones) > 0 && !serves(l, zones) {
			continue
		}
		if stale := l.Option("serve_stale"); stale != nil && !disabled(l, "success") {
			return wrong(remedy+": disable success "+zone, "%s's cache serves stale answers of %s: addresses of backends that are gone for up to an hour", who, zone)
		}
		var kept []string
		for _, kind := range []string{"success", "denial"} {
			if !disabled(l, kind) && longest(l, kind) > may[kind] {
				kept = append(kept, kind)
			}
		}
		if len(kept) > 0 {
			return warn(remedy+": add "+zone+" to \"disable success\" and \"disable denial\" of cache", "%s's cache keeps %s of %s: answers are older than what the agent knows", who, strings.Join(kept, " and "), zone)
		}
	}
	return nil
}

// longest is for how many seconds a cache keeps answers of one kind: cache [TTL], in it "success CAPACITY [TTL]"; else its defaults.
func longest(l *corefile.Line, kind string) int {
	ttl := map[string]int{"success": 3600, "denial": 1800}[kind]
	if args := l.Args(); len(args) > 0 {
		if n, err := strconv.Atoi(args[0]); err == nil {
			ttl = n
		}
	}
	if o := l.Option(kind); o != nil && len(o.Args()) > 1 {
		if n, err := strconv.Atoi(o.Args()[1]); err == nil {
			ttl = n
		}
	}
	return ttl
}

// disabled tells whether a cache leaves answers of one kind alone for our zone; no zone means all.
func disabled(l *corefile.Line, kind string) bool {
	for i := range l.Body {
		if o := &l.Body[i]; o.Name() == "disable" && len(o.Args()) > 0 && o.Args()[0] == kind && (len(o.Args()) == 1 || serves(o, o.Args()[1:])) {
			return true
		}
	}
	return false
}

func reload(_ *Facts, c *corefile.Corefile) []Finding {
	if b := c.For(zone, "53"); b != nil && !slices.ContainsFunc(c.Blocks, func(b corefile.Block) bool { return len(b.All("reload")) > 0 }) {
		return warn(edit+": add the line reload", "the Corefile has no reload: changes of it are taken up when the pods start again")
	}
	return nil
}

// nodeLocalForward: the block that sees the zone must ask the same servers as the one for the cluster's own names.
func nodeLocalForward(f *Facts) []Finding {
	if f.DNSFacts.NodeLocal == "" {
		return nil
	}
	c, err := corefile.Parse(f.DNSFacts.NodeLocal)
	if err != nil {
		return wrong(nodeLocalEdit, "NodeLocal DNS: %v", err)
	}
	own, ours := forwards(c.For(domain(f), "53")), forwards(c.For(zone, "53"))
	if len(ours) > 0 && slices.Equal(own, ours) {
		return nil
	}
	return wrong(nodeLocalEdit+": a server block "+zone+":53 as the one for "+domain(f)+" is",
		"NodeLocal DNS sends %s to %s and not to the cluster's DNS (%s): no pod on these nodes can resolve it", zone, orNobody(ours), orNobody(own))
}

func orNobody(in []string) string {
	if len(in) == 0 {
		return "nobody"
	}
	return strings.Join(in, " ")
}

// forwards are the servers that a block sends everything to.
func forwards(b *corefile.Block) (out []string) {
	if b == nil {
		return nil
	}
	for _, l := range b.All("forward") {
		if len(l.Args()) > 1 {
			out = append(out, l.Args()[1:]...)
		}
	}
	return out
}

// domain is the cluster's own, by the kubernetes plugin's first zone.
func domain(f *Facts) string {
	if c, err := corefile.Parse(f.DNSFacts.Corefile); err == nil {
		for i := range c.Blocks {
			for _, l := range c.Blocks[i].All("kubernetes") {
				if len(l.Args()) > 0 {
					return corefile.Normal(l.Args()[0])
				}
			}
		}
	}
	return "cluster.local"
}
