package gather

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Doctor reads the facts that the checks need. For a topic that cannot be read, Unread has the reason. Doctor returns
// an error only if the member does not answer.
func Doctor(ctx context.Context, s Source) (*doctor.Facts, error) {
	server, err := s.Member.Ask(ctx)
	if err != nil {
		return nil, err
	}
	s.Member = cluster.NamingRights(s.Member)
	if s.Hub != nil {
		s.Hub = cluster.NamingRights(s.Hub)
	}
	f := &doctor.Facts{Unread: map[doctor.Topic]string{}, Forbidden: map[doctor.Topic]string{}, Version: server.Version,
		Now: server.Now}
	if f.Kinds, err = manifestKinds(manifest.Member); err != nil {
		return nil, err
	}
	g := &gatherer{Facts: f, Source: s}
	for topic, read := range map[doctor.Topic]func(context.Context) error{
		doctor.CRDs:       func(ctx context.Context) error { return served(ctx, s.Member, &f.Kinds) },
		doctor.Policies:   func(ctx context.Context) error { return enforced(ctx, s.Member, &f.Kinds) },
		doctor.Membership: g.membership, doctor.Agent: g.agent, doctor.AgentKnows: g.agentKnows,
		doctor.AgentAuth: g.agentRights,
		doctor.Ranges:    g.ranges, doctor.Imports: g.imports,
		doctor.Exports: g.exports,
	} {
		if err := read(ctx); err != nil {
			g.unread(topic, err)
		}
	}
	for topic, err := range g.dns(ctx) {
		if err != nil {
			g.unread(topic, err)
		}
	}
	g.hubHere(ctx)
	g.hub(ctx)
	if f.HubFacts.Role.MemberOf != "" && f.Set == "" { // swapped?
		f.HubFacts.Here = cluster.RoleOf(ctx, s.Member).HubOf
	}
	return f, nil
}

// hubHere reads the ClusterSets of a cluster that is no member and has no agent. If it has any, it is the hub, unless
// the user named another one.
func (g *gatherer) hubHere(ctx context.Context) {
	_, unread := g.Unread[doctor.Membership]
	if unread || g.Set != "" || g.Deployment != nil ||
		g.Hub != nil && g.Hub.Config.Host != g.Member.Config.Host {
		return
	}
	here := cluster.RoleOf(ctx, g.Member).HubOf
	if g.HubFacts.Here = here; len(here) == 0 || g.Hub != nil {
		return
	}
	hub := g.asHub(here)
	g.Hub, g.HubNamespace = hub.Hub, hub.HubNamespace
}

// unread notes why topics were not read.
func (g *gatherer) unread(topic doctor.Topic, err error) {
	g.Unread[topic] = err.Error()
	if apierrors.IsForbidden(err) {
		var lacks cluster.Forbidden
		g.Forbidden[topic] = ""
		if errors.As(err, &lacks) {
			g.Forbidden[topic] = lacks.Lacks()
		}
	}
}

// gatherer reads the facts of one topic per method.
type gatherer struct {
	*doctor.Facts
	Source
}

func (g *gatherer) membership(ctx context.Context) (err error) {
	g.Membership, _, err = membership(ctx, g.Member)
	return err
}

func (g *gatherer) agent(ctx context.Context) (err error) {
	if g.Deployment, err = g.Member.Deployment(ctx, manifest.AgentDeployment); err != nil {
		return err
	}
	var pods corev1.PodList
	var leases coordinationv1.LeaseList
	err = list(ctx, g.Member, kube.SystemNamespace, &leases)
	if err == nil {
		err = pages(ctx, g.Member, kube.SystemNamespace, &pods,
			client.MatchingLabels{"app.kubernetes.io/name": manifest.AgentDeployment})
	}
	g.Pods, g.Leases = pods.Items, leases.Items
	return err
}

func (g *gatherer) agentKnows(ctx context.Context) error {
	known, err := cluster.MembershipOf(ctx, g.Member)
	if err != nil {
		return err
	}
	g.AgentServer = known.Status.Hub
	var leases coordinationv1.LeaseList
	err = list(ctx, g.Member, kube.SystemNamespace, &leases)
	g.Known, g.Outdated = facts.Known(&known, leases.Items, g.Now), facts.Outdated(&known, leases.Items, g.Now)
	return err
}

// agentRights checks the right without which the agent cannot state that it lacks others.
func (g *gatherer) agentRights(ctx context.Context) error {
	lacking, err := g.Member.LackingOf(ctx, kube.SystemNamespace, manifest.AgentDeployment, []cluster.Right{{
		Verb: "patch", Group: hubv1alpha1.GroupVersion.Group, Resource: "memberships/status"}})
	g.AgentLacks = cluster.Texts(lacking)
	return err
}

func (g *gatherer) exports(ctx context.Context) error {
	var exports mcsv1beta1.ServiceExportList
	err := list(ctx, g.Member, "", &exports)
	g.Exported = exports.Items
	return err
}

func (g *gatherer) imports(ctx context.Context) error {
	var (
		imports         mcsv1beta1.ServiceImportList
		records         hubv1alpha1.ServiceExportRecordList
		inside, outside discoveryv1.EndpointSliceList
	)
	err := list(ctx, g.Member, "", &imports)
	if err == nil {
		err = list(ctx, g.Member, kube.SystemNamespace, &records)
	}
	if err == nil {
		err = pages(ctx, g.Member, "", &inside,
			client.HasLabels{mcsv1beta1.LabelServiceName, mcsv1beta1.LabelSourceCluster})
	}
	if err == nil {
		err = pages(ctx, g.Member, "", &outside, client.HasLabels{external.Label, mcsv1beta1.LabelSourceCluster})
	}
	g.Imported, g.Records, g.Slices, g.ExternalSlices = imports.Items, records.Items, inside.Items, outside.Items
	return err
}

// ranges reads the ServiceCIDRs, which exist since Kubernetes 1.33, and the nodes' pod ranges.
func (g *gatherer) ranges(ctx context.Context) error {
	var nodes corev1.NodeList
	var ranges networkingv1.ServiceCIDRList
	err := list(ctx, g.Member, "", &nodes, &ranges)
	for i := range nodes.Items {
		g.PodRanges = appendPrefixes(g.PodRanges, nodes.Items[i].Spec.PodCIDRs)
	}
	for i := range ranges.Items {
		g.ServiceRanges = appendPrefixes(g.ServiceRanges, ranges.Items[i].Spec.CIDRs)
	}
	return err
}

func appendPrefixes(to []netip.Prefix, texts []string) []netip.Prefix {
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			to = append(to, p)
		}
	}
	return to
}

// kinds reads the CRDs and policies of a folder of manifests, and those of a cluster, for a check to compare.
func kinds(ctx context.Context, c *cluster.Cluster, folder string) (doctor.Kinds, error) {
	k, err := manifestKinds(folder)
	if err == nil {
		err = errors.Join(served(ctx, c, &k), enforced(ctx, c, &k))
	}
	return k, err
}

// manifestKinds returns the CRDs and policies of a folder of manifests as those that are wanted.
func manifestKinds(folder string) (k doctor.Kinds, err error) {
	k.Want = map[string][]string{}
	objects, err := manifest.Render(folder, manifest.Values{Namespace: "any"})
	if err != nil {
		return k, err
	}
	for _, o := range objects {
		switch o.GetKind() {
		case "CustomResourceDefinition":
			k.Want[o.GetName()] = manifest.Served(o)
		case "ValidatingAdmissionPolicy":
			k.Policies = append(k.Policies, o.GetName())
		}
	}
	return k, nil
}

// served reads into k.Have the versions that the established CRDs of a cluster serve.
func served(ctx context.Context, c *cluster.Cluster, k *doctor.Kinds) error {
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &crds); err != nil {
		return c.Failed(err, "listing CustomResourceDefinitions")
	}
	k.Have = map[string][]string{}
	for i := range crds.Items {
		crd := &crds.Items[i]
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				k.Have[crd.Name] = append(k.Have[crd.Name], v.Name)
			}
		}
	}
	return nil
}

// enforced reads into k.Enforced the policies of a cluster that have a binding with the action Deny.
func enforced(ctx context.Context, c *cluster.Cluster, k *doctor.Kinds) error {
	var all admissionregistrationv1.ValidatingAdmissionPolicyList
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	for _, l := range []client.ObjectList{&all, &bindings} {
		if err := c.List(ctx, l); err != nil {
			return c.Failed(err, "listing %s", resource(c, l))
		}
	}
	for i := range all.Items {
		for j := range bindings.Items {
			b := &bindings.Items[j].Spec
			if b.PolicyName == all.Items[i].Name && slices.Contains(b.ValidationActions, admissionregistrationv1.Deny) {
				k.Enforced = append(k.Enforced, b.PolicyName)
				break
			}
		}
	}
	return nil
}
