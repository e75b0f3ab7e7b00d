package verify

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

const perCluster = 3 // endpoints of one exporter and family that are tried

// Step is one thing that was tried for a name.
type Step struct {
	Step    string `json:"step"` // Import, DNS, Endpoint or VIP
	What    string `json:"what"`
	Outcome string `json:"outcome"`
}

// Name tries a Service of the user from a Pod in one cluster: its import, its name, its endpoints, and its VIP. An
// error means that it could not look.
func Name(ctx context.Context, o Options, name types.NamespacedName) (all Report, err error) {
	p := &place{Cluster: o.Clusters[0]}
	id, set, err := p.Properties(ctx)
	switch {
	case err != nil:
		return all, err
	case id == nil || set == nil:
		return all, report.Fail(p.Command(facts.Join), "%s is a member of no ClusterSet", p.Name)
	}
	p.id = id.Spec.Value
	all = newReport(set.Spec.Value, o.Namespace, []*place{p})
	all.Name = name.Name + "." + name.Namespace
	imp, err := p.imported(ctx, name.Namespace, name.Name)
	if err != nil {
		return all, p.Failed(err, "reading ServiceImport %s", name)
	}
	if imp == nil {
		all.step("Import", all.Name, "there is no ServiceImport here",
			p.Command("kubectl clusterset explain "+all.Name))
		return all, nil
	}
	o.routes = true // without Services
	defer func() {
		if !o.Keep {
			err = all.cleanedUp(&o, err, remove(ctx, &o, []*place{p}))
		}
	}()
	if err := o.start(ctx, []*place{p}); err != nil {
		return all, err
	}
	o.Say("asking from %s", p.id)
	_, err = settled(ctx, func() ([]Step, bool, error) {
		all.Steps, all.Findings = nil, []report.Finding{}
		err := p.try(ctx, &all, imp)
		return all.Steps, len(all.Findings) == 0, err
	})
	return all, err
}

// try fills a report with what the Pod of a cluster gets of an import and its endpoints, which a restart changes.
func (p *place) try(ctx context.Context, all *Report, imp *mcsv1beta1.ServiceImport) error {
	var found discoveryv1.EndpointSliceList
	if err := p.List(ctx, &found, client.InNamespace(imp.Namespace),
		client.MatchingLabels{mcsv1beta1.LabelServiceName: imp.Name}); err != nil {
		return p.Failed(err, "listing EndpointSlices")
	}
	from := found.Items
	all.step("Import", all.Name, OK, "")
	explain := p.Command("kubectl clusterset explain " + all.Name)
	var vips []netip.Addr
	var answers map[netip.Addr]int
	err := p.repeat(ctx, "/resolve", imp.Name+"."+imp.Namespace+".svc.clusterset.local.", tries, &answers)
	outcome := OK
	for _, text := range imp.Spec.IPs {
		vip, _ := netip.ParseAddr(text)
		if vips = append(vips, vip); answers[vip] < tries {
			outcome = "the VIP " + missing(vip, answers)
		}
	}
	switch {
	case imp.Spec.Type == mcsv1beta1.Headless && !slices.ContainsFunc(from, anyReady):
		outcome = None // without ready endpoints it does not exist
	case err != nil:
		outcome = said(err)
	}
	all.step("DNS", all.Name, outcome, p.Command(facts.Doctor))
	type key struct {
		cluster string
		family  discoveryv1.AddressType
	}
	ready, reached := map[key]int{}, true
	for i := range from {
		of, in := from[i].Labels[mcsv1beta1.LabelSourceCluster], from[i].AddressType
		for _, e := range from[i].Endpoints {
			if len(e.Addresses) == 0 || !check.Ready(&e) || ready[key{of, in}] == perCluster {
				continue
			}
			ready[key{of, in}]++
			address, _ := netip.ParseAddr(e.Addresses[0])
			for _, port := range from[i].Ports {
				to := netip.AddrPortFrom(address, uint16(ptr.Deref(port.Port, 0)))
				outcome := p.dial(ctx, to, ptr.Deref(port.Protocol, corev1.ProtocolTCP), 1)
				reached = reached && !failed(outcome)
				all.step("Endpoint", to.String()+" in "+of, outcome, endpointRemedy(outcome, imp.Name, of))
			}
		}
	}
	if len(ready) == 0 {
		all.step("Endpoint", all.Name, "no endpoint is ready", explain)
		reached = false
	}
	causes := len(all.Findings)
	for _, vip := range vips {
		for _, port := range imp.Spec.Ports {
			to := netip.AddrPortFrom(vip, uint16(port.Port))
			all.step("VIP", to.String(), p.dial(ctx, to, port.Protocol, tries),
				"the log of kube-proxy in "+p.id+"; "+explain)
		}
	}
	if !reached { // that is why
		all.Findings = all.Findings[:causes]
	}
	return p.gone(ctx)
}

// endpointRemedy returns what to do about a Pod of a Service that does not answer. What refuses is mostly reached.
func endpointRemedy(outcome, service, in string) string {
	if strings.Contains(outcome, "connection refused") {
		return "the targetPort of Service " + service + " in " + in + ", or its Pod: nothing listens on that port, " +
			"unless a firewall rejects the connection"
	}
	return "routes between the Pods, or NetworkPolicies; " + report.DocsNetwork
}

func anyReady(s discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return check.Ready(&e) })
}

// step adds what was tried, with a finding if it failed.
func (r *Report) step(step, what, outcome, remedy string) {
	r.Steps = append(r.Steps, Step{step, what, outcome})
	if failed(outcome) {
		r.Findings = append(r.Findings, report.Errorf(remedy, "%s %s: %s", step, what, outcome))
	}
}

// dial returns the outcome of TCP connections from the Pod. Nothing is known of UDP, or of a family that it lacks.
func (p *place) dial(ctx context.Context, to netip.AddrPort, protocol corev1.Protocol, times int) string {
	if _, has := p.addresses()[ipam.Family(to.Addr())]; !has || !to.IsValid() || protocol != corev1.ProtocolTCP {
		return None
	}
	var broken map[string]int
	if err := p.repeat(ctx, "/connect", to.String(), times, &broken); err != nil {
		return said(err)
	}
	if len(broken) == 0 {
		return OK
	}
	return fmt.Sprintf("%d of %d connections failed: %s", total(broken), times,
		strings.Join(slices.Sorted(maps.Keys(broken)), "; "))
}
