package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/controllers/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/deploy"
)

// dns reads what the cluster has for DNS. It returns why topics were not read.
func (g *gatherer) dns(ctx context.Context) map[doctor.Topic]error {
	s, err := dns.Read(ctx, g.Member)
	if err != nil { // the user may not read all of it
		out := map[doctor.Topic]error{doctor.DNSAnswers: err, doctor.NodeLocal: err, doctor.Beside: err}
		if s, err = dns.ReadCorefile(ctx, g.Member); err != nil {
			out[doctor.DNS], out[doctor.DNSAuth] = err, err
			return out
		}
		out[doctor.DNS], out[doctor.DNSAuth] = g.coreDNS(ctx, s), g.dnsRights(ctx, s.Deployment)
		return out
	}
	if g.DNSFacts.Beside = s.Beside; s.Beside != nil {
		g.DNSFacts.BesidePods, _ = g.Member.PodsOf(ctx, s.Beside) // without them a reason is missing
	}
	g.DNSFacts.NodeCache = s.Cache()
	return map[doctor.Topic]error{doctor.DNS: g.coreDNS(ctx, s), doctor.DNSAuth: g.dnsRights(ctx, s.Deployment),
		doctor.DNSAnswers: g.dnsAnswers(ctx, s)}
}

// coreDNS takes over CoreDNS's Deployment and Corefile, and reads its Pods.
func (g *gatherer) coreDNS(ctx context.Context, s *dns.State) (err error) {
	if err := g.corefile(ctx, s); err != nil || s.Deployment == nil {
		return err
	}
	g.DNSFacts.Deployment = s.Deployment
	g.DNSFacts.Pods, err = g.Member.PodsOf(ctx, s.Deployment)
	return err
}

// corefile takes over the Corefile. Without a Deployment that is known as the cluster's DNS, it reads kubeadm's.
func (g *gatherer) corefile(ctx context.Context, s *dns.State) (err error) {
	if s.Deployment == nil {
		s = &dns.State{ConfigKey: "Corefile"}
		s.Config, err = kube.Get[*corev1.ConfigMap](ctx, g.Member, types.NamespacedName{Namespace: "kube-system",
			Name: "coredns"})
		if err != nil {
			return err
		}
	}
	if s.Corefile() == "" {
		return errors.New("there is no Deployment of CoreDNS in kube-system with a " +
			"Corefile: DNS may run elsewhere")
	}
	g.DNSFacts.Config, g.DNSFacts.Corefile = s.Config.Name, s.Imported()
	if s.Custom != nil && s.Custom.ResourceVersion != "" { // kubectl edit takes both
		g.DNSFacts.Config += " " + s.Custom.Name
	}
	return nil
}

// dnsAnswers asks the Pods of the cluster's DNS.
func (g *gatherer) dnsAnswers(ctx context.Context, s *dns.State) (err error) {
	r := dns.Runner{Cluster: g.Member, Ask: dns.Forwarded(g.Member.Config)}
	g.DNSFacts.AskedPods, g.DNSFacts.Unanswered, err = r.Unanswered(ctx, s)
	return err
}

// dnsRights checks the rights that deploy/coredns grants, for CoreDNS's ServiceAccount.
func (g *gatherer) dnsRights(ctx context.Context, d *appsv1.Deployment) error {
	account := "coredns"
	if d != nil {
		account = cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")
	}
	there, err := kube.Get[*corev1.ServiceAccount](ctx, g.Member, types.NamespacedName{Namespace: "kube-system",
		Name: account})
	if err != nil {
		return err
	}
	if there == nil {
		return fmt.Errorf("there is no ServiceAccount kube-system/%s: DNS runs elsewhere, or has another name", account)
	}
	rules, err := health.Rules(deploy.Manifests, "coredns/role/role.yaml", "clusterset-dns:coredns")
	if err != nil {
		return err
	}
	var rights []cluster.Right
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, cluster.Right{Verb: verb, Group: group, Resource: resource})
				}
			}
		}
	}
	lacking, err := g.Member.LackingOf(ctx, "kube-system", account, rights)
	g.DNSFacts.Lacks = cluster.Texts(lacking)
	return err
}
