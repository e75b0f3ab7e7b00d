package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// patience is the timeout of a list page, and of each request with the agent's credentials.
const patience = 10 * time.Second

// Source names what to read.
type Source struct {
	Member    *cluster.Cluster // nil for a hub alone
	Hub       *cluster.Cluster // as its admin; nil to use the agent's credentials
	Namespace string           // of the ClusterSet on the hub, if nothing else says it
	Given     string           // --hub-namespace, if it was given
	Release   string
	// Name restricts what is read of a member to one name; Everything adds what only an archive needs.
	Name       *types.NamespacedName
	Everything bool
	// Earlier is a snapshot of the same clusters. What differs from the manifests is taken from it: that costs the most
	// to read, and changes the least.
	Earlier *Snapshot
}

// reader fills a Snapshot. Its readers run at once, and each writes fields of its own.
type reader struct {
	*Snapshot
	Source
	mu       sync.Mutex
	account  string           // namespace on the hub of the agent's token
	agents   *cluster.Cluster // the hub, with the agent's credentials
	unusable error            // why there are none
}

// Read reads a member and its hub. It returns an error if the member does not answer, or a hub without a member. Of a
// hub that is no member, it reads the hub alone.
func Read(ctx context.Context, s Source) (*Snapshot, error) {
	r := &reader{Source: s, Snapshot: &Snapshot{
		Release: s.Release, Namespace: s.Namespace, HubNamed: s.Hub != nil, Unread: map[Part]Lack{},
	}}
	if s.Member == nil {
		r.readHub(ctx, r.Source.Hub, true)
		if r.Snapshot.Hub == nil {
			return nil, errors.New(r.Unread[OfHub].Why)
		}
		return r.Snapshot, nil
	}
	server, err := s.Member.Ask(ctx)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	m := &Member{Version: server.Version, Now: server.Now}
	r.Snapshot.Member = m
	c := direct(s.Member)
	r.basics(ctx, c)
	if r.HasRead(Properties) && m.Set() == "" && m.Agent == nil {
		r.HubHere = cluster.HubOf(ctx, c)
		if len(r.HubHere) > 0 && (s.Hub == nil || s.Hub.Config.Host == s.Member.Config.Host) {
			r.Snapshot.Member, r.HubNamed = nil, true
			if s.Given == "" && !slices.Contains(r.HubHere, r.Snapshot.Namespace) {
				r.Snapshot.Namespace = r.HubHere[0]
			}
			hub := *s.Member
			hub.Name = "the hub"
			r.readHub(ctx, &hub, true)
			if r.Snapshot.Hub == nil {
				return nil, errors.New(r.Unread[OfHub].Why)
			}
			return r.Snapshot, nil
		}
	}
	r.Snapshot.Namespace = r.namespace(m)
	var all errgroup.Group
	all.Go(func() error {
		r.reachHub(ctx)
		if h := r.Snapshot.Hub; h != nil { // the clocks, as of the same moment
			h.Ahead += asked.Sub(m.Now)
		}
		return nil
	})
	all.Go(func() error { r.member(ctx, c); return nil })
	_ = all.Wait() // what failed is in Unread
	m.DNSRefusal = refusal(ctx, c, r.Snapshot)
	return r.Snapshot, nil
}

// unread notes why a part was not read.
func (r *reader) unread(p Part, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lack := Lack{Why: err.Error(),
		Credentials: p == OfHub && (apierrors.IsUnauthorized(err) || errors.Is(err, r.unusable))}
	if apierrors.IsForbidden(err) {
		lack.Right = string(p)
		var refused apierrors.APIStatus
		if errors.As(err, &refused) && refused.Status().Details != nil && refused.Status().Details.Kind != "" {
			of := refused.Status().Details // whose Kind is the resource
			verb := map[bool]string{true: " (list)", false: " (get)"}[of.Name == ""]
			lack.Right = schema.GroupResource{Group: of.Group, Resource: of.Kind}.String() + verb
		}
	}
	if _, there := r.Unread[p]; !there {
		r.Unread[p] = lack
	}
}

// earlier reports whether there is an earlier snapshot, and notes whether that one lacks the part.
func (r *reader) earlier(p Part) bool {
	if r.Earlier == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if lack, unread := r.Earlier.Unread[p]; unread {
		r.Unread[p] = lack
	}
	return true
}

// at runs readers of parts at once.
func (r *reader) at(ctx context.Context, parts map[Part]func(context.Context) error) {
	var all errgroup.Group
	for part, read := range parts {
		all.Go(func() error {
			if err := read(ctx); err != nil {
				r.unread(part, err)
			}
			return nil
		})
	}
	_ = all.Wait() // there are no errors
}

// direct returns the same cluster with a client that knows where its kinds are and does not ask which the API server
// has: a kind that it lacks is not found.
func direct(c *cluster.Cluster) *cluster.Cluster {
	out := *c
	if c.Config != nil {
		options := client.Options{Scheme: c.Scheme(), Mapper: mapper(c.Scheme())}
		if made, err := client.New(c.Config, options); err == nil {
			out.Client = made
		}
	}
	return &out
}

// unscoped are the kinds that are in no namespace.
var unscoped = strings.Fields("Node Namespace ClusterProperty Membership ServiceCIDR ClusterRole " +
	"ClusterRoleBinding ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding DNS")

func mapper(scheme *runtime.Scheme) meta.RESTMapper {
	out := meta.NewDefaultRESTMapper(nil)
	add := func(gvk schema.GroupVersionKind) {
		var scope meta.RESTScope = meta.RESTScopeNamespace
		if slices.Contains(unscoped, gvk.Kind) {
			scope = meta.RESTScopeRoot
		}
		out.Add(gvk, scope)
	}
	for gvk := range scheme.AllKnownTypes() {
		if !strings.HasSuffix(gvk.Kind, "List") {
			add(gvk)
		}
	}
	add(schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "DNS"})
	return out
}

// fetch returns a reader of a list, page by page, that drops what nobody looks at. The timeout is for each page,
// because a large list over a slow connection takes longer. A kind that does not exist is added to unserved.
func fetch[T any](c *cluster.Cluster, unserved *[]string, kind client.ObjectList, out *[]T, only ...client.ListOption,
) func(context.Context) error {
	return func(ctx context.Context) error {
		page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			some := kind.DeepCopyObject().(client.ObjectList)
			return some, c.List(ctx, some, append([]client.ListOption{&client.ListOptions{
				Limit: o.Limit, Continue: o.Continue, Raw: &o}}, only...)...)
		}
		gvk, _ := c.GroupVersionKindFor(kind) // the scheme has it
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
		all, _, err := pager.New(page).List(ctx, metav1.ListOptions{})
		switch plural, _ := meta.UnsafeGuessKindToResource(gvk); {
		case err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err):
			return c.Failed(err, "listing %s", plural.Resource)
		case err != nil && unserved != nil:
			*unserved = append(*unserved, gvk.Kind)
		}
		if err != nil {
			return nil
		}
		return meta.EachListItem(all, func(item runtime.Object) error {
			o := item.(client.Object)
			if gvk.Kind != "Lease" { // whose managed fields say when it was renewed
				o.SetManagedFields(nil)
			}
			delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
			*out = append(*out, *item.(any).(*T))
			return nil
		})
	}
}

// in restricts a list to a namespace.
func in(namespace string) client.ListOption { return client.InNamespace(namespace) }

// basics reads what the other readers need: the membership, the agent, and its credentials.
func (r *reader) basics(ctx context.Context, c *cluster.Cluster) {
	m := r.Snapshot.Member
	r.at(ctx, map[Part]func(context.Context) error{
		Properties: fetch(c, nil, &aboutv1beta1.ClusterPropertyList{}, &m.Properties),
		Agent: func(ctx context.Context) (err error) {
			if m.Agent, err = c.Deployment(ctx, manifest.AgentDeployment); m.Agent == nil {
				return err
			}
			m.Agent.ManagedFields = nil
			m.AgentPods, _ = c.PodsOf(ctx, m.Agent) // without them a reason is missing
			return nil
		},
		Secret: func(ctx context.Context) error {
			secret, err := kube.Get[*corev1.Secret](ctx, c, types.NamespacedName{Namespace: kube.SystemNamespace,
				Name: clusterset.SecretHub})
			if r.unusable = err; err == nil {
				r.account, r.agents, r.unusable = credentials(secret)
			}
			return err
		},
	})
}

// credentials returns the namespace on the hub and the hub of the agent's Secret, and an error if it has none.
func credentials(secret *corev1.Secret) (namespace string, hub *cluster.Cluster, err error) {
	if secret == nil {
		return "", nil, fmt.Errorf("there is no Secret %s/%s, and no flag names the hub", kube.SystemNamespace,
			clusterset.SecretHub)
	}
	token := strings.TrimSpace(string(secret.Data[clusterset.SecretToken]))
	parsed, err := clusterset.ParseToken(token)
	if err != nil { // "token: …" would be redacted
		return "", nil, fmt.Errorf("the key token of Secret %s cannot be used (%w)", secret.Name, err)
	}
	namespace, _ = parsed.Account()
	file, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		return namespace, nil, fmt.Errorf("the key kubeconfig of Secret %s cannot be used", secret.Name)
	}
	for _, user := range file.AuthInfos { // whose tokenFile is beside the kubeconfig
		user.TokenFile, user.Token = "", token
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err == nil {
		cfg.Timeout = patience
		hub, err = cluster.New("the hub", cfg)
	}
	if err != nil {
		err = fmt.Errorf("the key kubeconfig of Secret %s cannot be used (%w)", secret.Name, err)
	}
	return namespace, hub, err
}

// member reads the rest of a member.
func (r *reader) member(ctx context.Context, c *cluster.Cluster) {
	m := r.Snapshot.Member
	var unserved [4][]string
	var memberships []hubv1alpha1.Membership
	parts := map[Part]func(context.Context) error{
		Membership: fetch(c, &unserved[3], &hubv1alpha1.MembershipList{}, &memberships),
		Leases:     fetch(c, nil, &coordinationv1.LeaseList{}, &m.Leases, in(kube.SystemNamespace)),
		Exports:    fetch(c, &unserved[0], &mcsv1beta1.ServiceExportList{}, &m.Exports, r.here()...),
		Imports: func(ctx context.Context) error {
			err := fetch(c, &unserved[1], &mcsv1beta1.ServiceImportList{}, &m.Imports)(ctx)
			if apierrors.IsForbidden(err) && r.Name != nil { // similar names in other namespaces are then not seen
				r.unread(Others, err)
				err = fetch(c, &unserved[1], &mcsv1beta1.ServiceImportList{}, &m.Imports, r.here()...)(ctx)
			}
			return err
		},
		Records: fetch(c, &unserved[2], &hubv1alpha1.ServiceExportRecordList{}, &m.Records, in(kube.SystemNamespace)),
		Slices:  func(ctx context.Context) error { return r.slices(ctx, c) },
		Ranges:  fetch(c, nil, &networkingv1.ServiceCIDRList{}, &m.CIDRs), // they exist since Kubernetes 1.33
		Nodes: func(ctx context.Context) error {
			var nodes []corev1.Node
			err := fetch(c, nil, &corev1.NodeList{}, &nodes)(ctx)
			for i := range nodes {
				for _, text := range nodes[i].Spec.PodCIDRs {
					if p, err := netip.ParsePrefix(text); err == nil {
						m.PodRanges = append(m.PodRanges, p)
					}
				}
			}
			return err
		},
		Services: func(ctx context.Context) error { return r.services(ctx, c) },
		DNS:      func(ctx context.Context) error { return r.dns(ctx, c) },
		Drift:    func(ctx context.Context) error { return r.drift(ctx, c) },
	}
	if r.Name != nil || r.Everything {
		parts[Namespaces] = func(ctx context.Context) error { return r.namespaces(ctx, c) }
	}
	if r.Everything {
		parts["events"] = func(ctx context.Context) (err error) {
			r.MemberEvents, err = events(ctx, c, kube.SystemNamespace, metav1.NamespaceSystem, "clusterset-dns")
			return err
		}
	}
	r.at(ctx, parts)
	m.Unserved = slices.Concat(unserved[:]...)
	if len(memberships) > 0 { // its name is always the same
		m.Membership = memberships[0]
	}
}

// here restricts a list to the namespace of the name.
func (r *reader) here() []client.ListOption {
	if r.Name == nil {
		return nil
	}
	return []client.ListOption{client.InNamespace(r.Name.Namespace)}
}

func (r *reader) slices(ctx context.Context, c *cluster.Cluster) error {
	m, kind := r.Snapshot.Member, &discoveryv1.EndpointSliceList{}
	of := func(label string) []client.ListOption {
		if r.Name != nil {
			return append(r.here(), client.MatchingLabels{label: r.Name.Name})
		}
		return []client.ListOption{client.HasLabels{label, mcsv1beta1.LabelSourceCluster}}
	}
	err := errors.Join(fetch(c, nil, kind, &m.Slices, of(mcsv1beta1.LabelServiceName)...)(ctx),
		fetch(c, nil, kind, &m.Outside, of(external.Label)...)(ctx))
	m.Slices = slices.DeleteFunc(m.Slices,
		func(s discoveryv1.EndpointSlice) bool { return endpoints.IsProjection(s.Name) })
	m.Outside = slices.DeleteFunc(m.Outside, func(s discoveryv1.EndpointSlice) bool {
		return s.Labels[discoveryv1.LabelManagedBy] != kube.Manager
	})
	return err
}

// others selects Services that are not the agent's, which are as many as imports.
var others, _ = labels.Parse(derived.LabelManagedBy + "!=" + kube.Manager) // it is a selector

func (r *reader) services(ctx context.Context, c *cluster.Cluster) error {
	var all []corev1.Service
	only := append(r.here(), client.MatchingLabelsSelector{Selector: others})
	err := fetch(c, nil, &corev1.ServiceList{}, &all, only...)(ctx)
	for i := range all {
		s := &all[i]
		r.Snapshot.Member.Services = append(r.Snapshot.Member.Services,
			Service{s.Namespace, s.Name, s.Spec.Type, s.Spec.Selector})
	}
	return err
}

func (r *reader) namespaces(ctx context.Context, c *cluster.Cluster) (err error) {
	var all []corev1.Namespace
	if r.Name == nil {
		err = fetch(c, nil, &corev1.NamespaceList{}, &all)(ctx)
	} else {
		var ns *corev1.Namespace
		if ns, err = kube.Get[*corev1.Namespace](ctx, c, types.NamespacedName{Name: r.Name.Namespace}); ns != nil {
			all = append(all, *ns)
		}
	}
	for i := range all {
		if ns := &all[i]; ns.DeletionTimestamp == nil {
			r.Snapshot.Member.Namespaces = append(r.Snapshot.Member.Namespaces, Namespace{ns.Name,
				ns.Annotations[clusterset.AnnotationNamespaceImport] == "false"})
		}
	}
	return err
}

// events reads those of namespaces.
func events(ctx context.Context, c *cluster.Cluster, namespaces ...string) (out []eventsv1.Event, err error) {
	for _, ns := range namespaces {
		err = errors.Join(err, fetch(c, nil, &eventsv1.EventList{}, &out, in(ns))(ctx))
	}
	return out, err
}

// reachHub reads the hub: as the user, if the user named it, or else as the agent.
func (r *reader) reachHub(ctx context.Context) {
	switch hub := r.Source.Hub; {
	case hub != nil:
		r.readHub(ctx, hub, true)
	case r.agents != nil:
		r.readHub(ctx, r.agents, false)
	case facts.OwnCredentials(r.Snapshot.Member.Agent) != "":
		r.unread(OfHub, errors.New("the agent reads its credentials from a file of its own: name the hub with "+
			"--hub-context"))
	default:
		r.unread(OfHub, r.unusable)
	}
}

// readHub reads the hub and, if the user named it, what only an admin can read.
func (r *reader) readHub(ctx context.Context, hub *cluster.Cluster, named bool) {
	server, err := hub.Ask(ctx)
	if err != nil {
		r.unread(OfHub, err)
		return
	}
	h := &Hub{Server: hub.Config.Host, Version: server.Version, Now: server.Now, Ahead: time.Until(server.Now)}
	c, ns, unserved := direct(hub), in(r.Snapshot.Namespace), make([][]string, 5)
	readers := []func(context.Context) error{
		fetch(c, &unserved[0], &hubv1alpha1.ClusterSetList{}, &h.Sets, ns),
		fetch(c, &unserved[1], &inventoryv1alpha1.ClusterProfileList{}, &h.Profiles, ns),
		fetch(c, &unserved[2], &coordinationv1.LeaseList{}, &h.Leases, ns),
		fetch(c, &unserved[3], &hubv1alpha1.ServiceExportRecordList{}, &h.Records, ns),
		fetch(c, &unserved[4], &hubv1alpha1.EndpointPageList{}, &h.Pages, ns),
	}
	if r.Name != nil { // explain shows what is here
		readers = readers[:3]
	}
	var all errgroup.Group
	for _, read := range readers {
		all.Go(func() error { return read(ctx) })
	}
	if err := all.Wait(); err != nil {
		r.unread(OfHub, err)
		return
	}
	h.Unserved = slices.Concat(unserved...)
	h.Profiles = slices.DeleteFunc(h.Profiles, func(p inventoryv1alpha1.ClusterProfile) bool {
		return !clusterset.IsOurs(&p)
	})
	r.mu.Lock()
	r.Snapshot.Hub = h
	r.mu.Unlock()
	parts := map[Part]func(context.Context) error{Leader: func(ctx context.Context) error { return r.leader(ctx, c) }}
	if named {
		if len(h.Sets) == 0 {
			h.Role = cluster.RoleOf(ctx, c)
		}
		parts[HubAdmin] = func(ctx context.Context) error { return r.admin(ctx, c) }
		parts[HubDrift] = func(ctx context.Context) error { return r.hubDrift(ctx, c) }
	} else {
		r.unread(HubAdmin, errors.New(NotNamed))
		r.unread(HubDrift, errors.New(NotNamed))
	}
	if r.Everything && named {
		parts["events of the hub"] = func(ctx context.Context) (err error) {
			r.HubEvents, err = events(ctx, c, kube.SystemNamespace, r.Snapshot.Namespace)
			return err
		}
	}
	r.at(ctx, parts)
}

// leader reads the Lease by which clusterset-controller hub elects its leader, which members may not read.
func (r *reader) leader(ctx context.Context, c *cluster.Cluster) (err error) {
	r.Snapshot.Hub.Leader, err = kube.Get[*coordinationv1.Lease](ctx, c, types.NamespacedName{
		Namespace: kube.SystemNamespace, Name: clusterset.LeaseHubPrefix + r.Snapshot.Namespace})
	if apierrors.IsForbidden(err) && !r.HubNamed {
		return errors.New(NotNamed)
	}
	return err
}

func (r *reader) admin(ctx context.Context, c *cluster.Cluster) (err error) {
	h := r.Snapshot.Hub
	if h.Deployed, err = c.Deployment(ctx, manifest.HubDeployment(r.Snapshot.Namespace)); h.Deployed != nil {
		h.Deployed.ManagedFields = nil
		h.Pods, err = c.PodsOf(ctx, h.Deployed)
	}
	return err
}
