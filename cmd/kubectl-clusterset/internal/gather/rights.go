package gather

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// rightsOf takes a role's rules apart.
func rightsOf(role *unstructured.Unstructured, namespace string) (out []cluster.Right, err error) {
	var typed rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, &typed); err != nil {
		return nil, fmt.Errorf("%s: %w", cluster.Title(role), err)
	}
	for _, rule := range typed.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						out = append(out, cluster.Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name})
					}
				}
			}
		}
	}
	return out, nil
}

// deployment is the one that runs CoreDNS.
func (g *gatherer) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	var found appsv1.DeploymentList
	if err := g.Member.List(ctx, &found, client.InNamespace("kube-system"), client.MatchingLabels{"k8s-app": "kube-dns"}); err != nil {
		return nil, err
	}
	if len(found.Items) == 0 {
		return nil, nil
	}
	return &found.Items[0], nil
}

// dns reads CoreDNS's Deployment and Corefile.
func (g *gatherer) dns(ctx context.Context) (err error) {
	if g.DNSFacts.Deployment, err = g.deployment(ctx); err != nil {
		return err
	}
	if d := g.DNSFacts.Deployment; d != nil {
		var pods corev1.PodList
		selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
		if err == nil {
			err = g.Member.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector})
		}
		if err != nil {
			return err
		}
		g.DNSFacts.Pods = pods.Items
	}
	return g.coreCorefile(ctx, g.DNSFacts.Deployment)
}

// coreCorefile reads CoreDNS's: by kubeadm's names, unless its Deployment says others.
func (g *gatherer) coreCorefile(ctx context.Context, d *appsv1.Deployment) error {
	name, key := "coredns", "Corefile"
	if d != nil {
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.ConfigMap == nil {
				continue
			}
			for _, item := range v.ConfigMap.Items {
				if item.Path == "Corefile" {
					name, key = v.ConfigMap.Name, item.Key
				}
			}
		}
	}
	text, err := g.corefile(ctx, name, key)
	if err == nil && text == "" {
		return fmt.Errorf("there is no ConfigMap kube-system/%s with a Corefile: if DNS runs elsewhere, look at its Corefile by hand (corefile.example)", name)
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

func (g *gatherer) nodeLocal(ctx context.Context) (err error) {
	g.DNSFacts.NodeLocal, err = g.corefile(ctx, "node-local-dns", "Corefile")
	return err
}

// dnsRights asks for what deploy/coredns grants, for the ServiceAccount that CoreDNS runs with.
func (g *gatherer) dnsRights(ctx context.Context) error {
	d, err := g.deployment(ctx)
	if err != nil {
		return err
	}
	account := "coredns"
	if d != nil && d.Spec.Template.Spec.ServiceAccountName != "" {
		account = d.Spec.Template.Spec.ServiceAccountName
	}
	there, err := kube.Get[*corev1.ServiceAccount](ctx, g.Member, types.NamespacedName{Namespace: "kube-system", Name: account})
	if err != nil {
		return err
	}
	if there == nil {
		return fmt.Errorf("there is no ServiceAccount kube-system/%s: DNS runs elsewhere, or by another name", account)
	}
	rights, err := granted(manifest.CoreDNS, "kube-system", "coredns")
	if err != nil {
		return err
	}
	lacking, err := g.Member.LackingOf(ctx, "kube-system", account, rights)
	g.DNSFacts.Lacks = cluster.Texts(lacking)
	return err
}

// hub reads the hub, by the admin's view of it if there is one; and tries the agent's credentials.
func (g *gatherer) hub(ctx context.Context) {
	creds, file, err := credentials(ctx, g.Member)
	if err != nil {
		g.Unread[doctor.Secret] = err.Error()
	}
	g.Credentials = creds
	hub, namespace := g.Hub, g.namespace(creds)
	g.HubFacts.Asked = g.asked()
	g.Unread[doctor.HubLeader] = "it takes the hub admin's credentials: --hub-kubeconfig, --hub-context"
	if g.Hub == nil {
		g.Unread[doctor.HubAdmin] = "it was not named: --hub-kubeconfig, --hub-context"
	}
	g.Unread[doctor.HubAuth] = "there are no credentials that could be tried"
	if file != nil {
		agent, err := asAgent(file)
		if err == nil {
			_, err = agent.Ask(ctx)
		}
		if err == nil {
			err = g.memberRights(ctx, agent, creds)
		}
		if err != nil {
			g.HubFacts.Refused, g.HubFacts.Unreachable = err.Error(), unreachable(err)
			g.Unread[doctor.HubAuth] = err.Error()
		} else {
			delete(g.Unread, doctor.HubAuth)
		}
		if err == nil && hub == nil {
			hub, namespace = agent, creds.Namespace
		}
	}
	if hub == nil {
		g.Unread[doctor.Hub] = "neither was it named (--hub-kubeconfig, --hub-context), nor did the agent's credentials serve"
		return
	}
	if err := g.readHub(ctx, hub, namespace); err != nil {
		g.Unread[doctor.Hub] = err.Error()
		if g.Hub != nil {
			g.Unread[doctor.HubAdmin] = err.Error() // that comes last
		}
	}
}

// memberRights asks for what deploy/hub grants a member, with the member's own credentials.
func (g *gatherer) memberRights(ctx context.Context, hub *cluster.Cluster, creds *doctor.Credentials) error {
	set, err := manifest.Render(manifest.ClusterSet, manifest.Values{Namespace: creds.Namespace})
	if err != nil {
		return err
	}
	var rights []cluster.Right
	for _, o := range set {
		if o.GetKind() == "Role" && o.GetName() == "clusterset-member" {
			if rights, err = rightsOf(o, creds.Namespace); err != nil {
				return err
			}
		}
	}
	rights = append(rights, cluster.Right{Verb: "create", Resource: "serviceaccounts/token", Namespace: creds.Namespace, Name: creds.Account})
	lacking, err := hub.Lacking(ctx, rights)
	g.HubFacts.MemberLacks = cluster.Texts(lacking)
	return err
}

func (g *gatherer) readHub(ctx context.Context, hub *cluster.Cluster, namespace string) error {
	here, err := g.Member.Ask(ctx) // the two clocks are compared as seen at the same moment
	if err != nil {
		return err
	}
	server, err := hub.Ask(ctx)
	if err != nil {
		return err
	}
	g.Now = here.Now
	read, err := readHub(ctx, hub, namespace)
	if err != nil {
		return err
	}
	h := &g.HubFacts
	h.Version, h.Now, h.Sets, h.Profiles, h.Leases, h.Leader = server.Version, server.Now, read.Sets, read.Profiles, read.Leases, read.Leader
	if h.Leader != nil {
		delete(g.Unread, doctor.HubLeader)
	}
	if g.Hub == nil {
		return nil
	}
	admin := func() (err error) {
		if h.Kinds, err = kinds(ctx, hub, manifest.Hub); err != nil {
			return err
		}
		if h.Namespace, err = kube.Get[*corev1.Namespace](ctx, hub, types.NamespacedName{Name: namespace}); err != nil {
			return err
		}
		var found appsv1.DeploymentList
		err = hub.List(ctx, &found, client.InNamespace(kube.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": "clusterset-hub", "app.kubernetes.io/instance": namespace})
		if len(found.Items) > 0 {
			h.Controller = &found.Items[0]
		}
		return err
	}
	if err := admin(); err != nil {
		g.Unread[doctor.HubAdmin] = err.Error()
	}
	return nil
}
