package gather

import (
	"cmp"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// dnsState returns what is wrong with DNS where ClusterRole clusterset-dns:coredns shows that it was set up: whether
// the Corefile of the cluster's CoreDNS does not serve the zone, and which replicas are missing, of that CoreDNS or of
// ours beside it. What cannot be read proves nothing.
func dnsState(ctx context.Context, c *cluster.Cluster) (lost bool, down *report.Finding) {
	role, err := kube.Get[*rbacv1.ClusterRole](ctx, c, types.NamespacedName{Name: "clusterset-dns:coredns"})
	if err != nil || role == nil {
		return false, nil
	}
	g := &gatherer{&doctor.Facts{}, Source{Member: c}}
	if err := g.dns(ctx); err == nil {
		lost = doctor.Unserved(g.Facts)
	}
	if d := g.DNSFacts.Deployment; d != nil {
		down = facts.Missing(d, g.DNSFacts.Pods)
	}
	if down == nil || down.Severity == report.Warning {
		down = cmp.Or(besideDown(ctx, c), down)
	}
	return lost, down
}

// besideDown finds that replicas of our Deployment beside the cluster's DNS are missing.
func besideDown(ctx context.Context, c *cluster.Cluster) *report.Finding {
	d, err := dns.BesideDeployment(ctx, c)
	if err != nil || d == nil {
		return nil
	}
	pods, _ := c.PodsOf(ctx, d) // without them a reason is missing
	return facts.Missing(d, pods)
}

// dns reads CoreDNS's Deployment and Corefile.
func (g *gatherer) dns(ctx context.Context) (err error) {
	if g.DNSFacts.Deployment, err = dns.Deployment(ctx, g.Member); err != nil {
		return err
	}
	if d := g.DNSFacts.Deployment; d != nil {
		if g.DNSFacts.Pods, err = g.Member.PodsOf(ctx, d); err != nil {
			return err
		}
	}
	return g.coreCorefile(ctx, g.DNSFacts.Deployment)
}

// coreCorefile reads CoreDNS's Corefile from the ConfigMap that its Deployment mounts. Without such a mount it reads
// kubeadm's: ConfigMap coredns, key Corefile.
func (g *gatherer) coreCorefile(ctx context.Context, d *appsv1.Deployment) error {
	name, key := dns.CorefileOf(d)
	if name == "" {
		name, key = "coredns", "Corefile"
	}
	text, err := g.corefile(ctx, name, key)
	if err == nil && text == "" {
		return fmt.Errorf("there is no ConfigMap kube-system/%s with a Corefile: DNS may run elsewhere", name)
	}
	g.DNSFacts.Corefile = text
	return err
}

func (g *gatherer) corefile(ctx context.Context, name, key string) (string, error) {
	m, err := kube.Get[*corev1.ConfigMap](ctx, g.Member, types.NamespacedName{Namespace: "kube-system", Name: name})
	if err != nil || m == nil {
		return "", err
	}
	return m.Data[key], nil
}

// nodeLocal reads the Corefile of NodeLocal DNSCache.
func (g *gatherer) nodeLocal(ctx context.Context) (err error) {
	g.DNSFacts.NodeLocal, err = g.corefile(ctx, "node-local-dns", "Corefile")
	return err
}

// dnsAnswers asks the Pods of the cluster's DNS.
func (g *gatherer) dnsAnswers(ctx context.Context) error {
	r := dns.Runner{Cluster: g.Member, Ask: dns.Forwarded(g.Member.Config)}
	var err error
	g.DNSFacts.Unanswered, err = r.Unanswered(ctx)
	return err
}

// dnsRights checks the rights that deploy/coredns grants, for CoreDNS's ServiceAccount.
func (g *gatherer) dnsRights(ctx context.Context) error {
	d, err := dns.Deployment(ctx, g.Member)
	if err != nil {
		return err
	}
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
	rights, err := granted(manifest.CoreDNS, "kube-system", "coredns")
	if err != nil {
		return err
	}
	lacking, err := g.Member.LackingOf(ctx, "kube-system", account, rights)
	g.DNSFacts.Lacks = cluster.Texts(lacking)
	return err
}
