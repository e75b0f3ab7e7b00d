package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
)

// server is what the Corefile of this cluster's CoreDNS means for the answers for one import.
type server struct {
	topology catalog.Topology
	prefer   []check.Property // the options that put some endpoints first, or omit the others
	podNames bool             // endpoints without a host name are named after their pods
	hidden   bool             // it answers NXDOMAIN despite the import: a finding says why
	unsure   []string         // why it may answer something else
	// notServed says that no server block is for the zone, or that its block lacks our plugin. What CoreDNS answers
	// then depends on the rest of the Corefile, and on whether it runs an earlier one.
	notServed bool
}

// readDNS reads the Corefile. What it cannot know is in unsure.
func readDNS(w *check.World) (d server) {
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
	b := c.For(dns.Zone, "53")
	kubernetes := b != nil && check.InTree(b)
	switch {
	case stanza != nil:
		d.preferences(stanza)
		d.podNames = stanza.Option("endpoint_pod_names") != nil
		d.options(stanza, w.Asked())
	case b != nil && !kubernetes && len(b.SentOn(dns.Zone)) > 0:
		doubt("the Corefile forwards %s to %s, which was not checked", dns.Zone, strings.Join(b.SentOn(dns.Zone), " "))
	case len(c.Unknown) > 0:
		doubt("the Corefile has no line multicluster for %s; it may be in the imported %s, which was not checked",
			dns.Zone, strings.Join(c.Unknown, ", "))
	case kubernetes:
		doubt("the option multicluster of the plugin kubernetes answers %s here, and ClusterSetIP names only in part",
			dns.Zone)
	case w.Says(hubv1alpha1.ConditionDNSAnswers) == metav1.ConditionTrue: // as by Pods with an earlier Corefile
		doubt("nothing in the Corefile is for %s, which the cluster's DNS answered when the agent asked last", dns.Zone)
	default:
		d.notServed, d.hidden = true, true
	}
	return d
}

// options notes options of the plugin that hide names or addresses.
func (d *server) options(stanza *corefile.Line, n *check.Name) {
	only := stanza.Values("namespaces")
	d.hidden = stanza.Option("noendpoints") != nil && n.Headless() && n.Import != nil ||
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
func (d *server) preferences(stanza *corefile.Line) {
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

// answer asks the catalog that CoreDNS uses.
func (r *Report) answer(n *check.Name, d *server) {
	service := build(n, d)
	if service == nil {
		return // a Headless name without ready endpoints does not exist
	}
	outcomes := map[catalog.Outcome]Outcome{catalog.Success: Success, catalog.NoData: NoData,
		catalog.NameError: NameError}
	r.Outcome = outcomes[service.Self(catalog.V4, catalog.Window{}).Outcome]
	for _, q := range []struct {
		kind   string
		wanted catalog.Wanted
		width  int
	}{{"A", catalog.V4, 4}, {"AAAA", catalog.V6, 16}} {
		result := service.Self(q.wanted, catalog.Window{})
		if result.Outcome != catalog.Success {
			continue
		}
		r.Outcome = Success
		a := Answer{Question: r.Name, Type: q.kind}
		for packed := range slices.Chunk([]byte(result.Addrs), q.width) {
			addr, _ := netip.AddrFromSlice(packed)
			a.Data = append(a.Data, addr.String())
		}
		r.Answers = append(r.Answers, a)
	}
	for name, proto := range service.NamedPorts() {
		if service.Port(name, proto, catalog.SRV).Outcome == catalog.Success {
			r.Answers = append(r.Answers, r.srv(service, name, proto))
		}
	}
	for host, cluster := range service.Hosts() {
		r.Hosts = append(r.Hosts, host+"."+cluster+"."+r.Name)
	}
	slices.Sort(r.Hosts)
}

func (r *Report) srv(service *catalog.Service, name, proto string) Answer {
	a := Answer{Question: "_" + name + "._" + strings.ToLower(proto) + "." + r.Name, Type: "SRV"}
	walk := service.Targets(name, proto, catalog.Window{})
	for walk.Next() {
		target := r.Name
		if host, cluster := walk.Host(); host != "" {
			target = host + "." + cluster + "." + r.Name
		}
		a.Data = append(a.Data, strconv.Itoa(int(walk.Number()))+" "+target)
	}
	return a
}

// build converts the import as the plugin's watches do, and has them convert the slices.
func build(n *check.Name, d *server) *catalog.Service {
	imp := &catalog.Import{Namespace: n.Namespace, Name: n.NamespacedName.Name}
	switch n.Import.Spec.Type {
	case mcsv1beta1.ClusterSetIP:
		imp.Type = catalog.ClusterSetIP
	case mcsv1beta1.Headless:
		imp.Type = catalog.Headless
	}
	for _, ip := range n.Import.Spec.IPs {
		if addr, err := netip.ParseAddr(ip); err == nil {
			imp.IPs = append(imp.IPs, addr)
		}
	}
	for _, p := range n.Import.Spec.Ports {
		imp.Ports = append(imp.Ports, catalog.Port{Name: p.Name, Proto: string(p.Protocol), Number: uint16(p.Port)})
	}
	var from []*catalog.Slice
	watches := kube.Config{Topology: d.topology, EndpointPodNames: d.podNames}
	for _, s := range n.Slices {
		if slice, _ := watches.Slice(s); slice != nil {
			from = append(from, slice)
		}
	}
	return catalog.Rebuild(nil, imp, from, d.topology)
}
