package gather

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Status reads the hub and, unless it is nil, a member. A member that cannot be read is an error, and so is a hub
// without a member. Of a hub that is no member, it reads the hub alone.
func Status(ctx context.Context, s Source) (*status.Facts, error) {
	f := &status.Facts{GivenNamespace: s.givenNamespace()}
	hub, namespace := s.Hub, s.HubNamespace
	if s.Member != nil {
		m, err := member(ctx, s.Member)
		if err != nil {
			return nil, err
		}
		if s.Hub == nil && m.Set == "" && m.Agent == nil && len(m.HubOf) > 0 { // it is the hub, and nothing else
			return Status(ctx, s.asHub(m.HubOf))
		}
		f.Member = m
		creds, file, err := credentials(ctx, s.Member)
		switch {
		case err != nil:
			f.HubError = err.Error()
		case creds == nil && m.Set == "": // it has no hub
		case creds == nil:
			f.HubError = "there is no Secret " + kube.SystemNamespace + "/" + clusterset.SecretHub + " here"
		case creds.Problem != "":
			f.HubError = creds.Problem
		}
		namespace = s.namespace(creds, m.Set)
		if creds != nil && creds.Problem == "" {
			m.HubNamespace = creds.Namespace
			if hub == nil {
				namespace = creds.Namespace
				if hub, err = asAgent(file); err != nil {
					f.HubError = err.Error()
				}
			}
		}
	}
	f.Namespace = namespace
	if hub == nil {
		return f, nil
	}
	read := &status.Hub{}
	err := readHub(ctx, hub, namespace, s.Hub != nil, &read.Hub)
	if err == nil {
		err = exported(ctx, hub, read)
	}
	switch {
	case err != nil && s.Member == nil:
		return nil, err
	case err != nil:
		f.HubError, f.HubDenied = err.Error(), s.Hub != nil && refused(err)
	default:
		f.Hub, f.HubError = read, ""
	}
	return f, nil
}

// readHub reads the hub. Only if the user named it, it may be another cluster.
func readHub(ctx context.Context, c *cluster.Cluster, namespace string, named bool, h *facts.Hub) error {
	server, err := c.Ask(ctx)
	if err != nil {
		return err
	}
	h.Version, h.Now, h.Namespace = server.Version, server.Now, namespace
	if err := members(ctx, c, h); err != nil {
		return err
	}
	if named && len(h.Sets) == 0 {
		h.Role = cluster.RoleOf(ctx, c)
	}
	h.Leader, err = leader(ctx, c, namespace)
	return err
}

// members reads the ClusterSet and its members, without ClusterProfiles of other cluster managers.
func members(ctx context.Context, c *cluster.Cluster, h *facts.Hub) error {
	var (
		sets     hubv1alpha1.ClusterSetList
		profiles inventoryv1alpha1.ClusterProfileList
		leases   coordinationv1.LeaseList
	)
	err := list(ctx, c, h.Namespace, &sets, &profiles, &leases)
	h.Sets, h.Leases = sets.Items, leases.Items
	h.Profiles = slices.DeleteFunc(profiles.Items, func(p inventoryv1alpha1.ClusterProfile) bool {
		return p.Spec.ClusterManager.Name != clusterset.ClusterManager
	})
	return err
}

// exported reads what members export.
func exported(ctx context.Context, c *cluster.Cluster, h *status.Hub) error {
	var (
		records hubv1alpha1.ServiceExportRecordList
		pages   hubv1alpha1.EndpointPageList
	)
	err := list(ctx, c, h.Namespace, &records, &pages)
	h.Records, h.Pages = records.Items, pages.Items
	return err
}

// leader returns the Lease by which clusterset-controller hub elects its leader: an empty one if it does not exist,
// nil for members, which may not read it.
func leader(ctx context.Context, c *cluster.Cluster, namespace string) (*coordinationv1.Lease, error) {
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseHubPrefix + namespace}
	l, err := kube.Get[*coordinationv1.Lease](ctx, c, name)
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err == nil && l == nil:
		return &coordinationv1.Lease{}, nil
	}
	return l, c.Failed(err, "reading Lease %s", name)
}

// list reads kinds of one namespace, "" for all. A kind that does not exist has no objects.
func list(ctx context.Context, c *cluster.Cluster, namespace string, into ...client.ObjectList) error {
	for _, l := range into {
		if err := pages(ctx, c, namespace, l); err != nil && !meta.IsNoMatchError(err) {
			return c.Failed(err, "listing %s", resource(c, l))
		}
	}
	return nil
}

// resource returns what a list is of, as kubectl names it.
func resource(c *cluster.Cluster, l client.ObjectList) string {
	gvk, _ := c.GroupVersionKindFor(l) // the scheme has it
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.Resource
}

// pages reads a list page by page. The timeout is for each page, because a large list over a slow connection takes
// longer.
func pages(ctx context.Context, c client.Reader, namespace string, into client.ObjectList,
	only ...client.ListOption) error {
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		some := into.DeepCopyObject().(client.ObjectList)
		return some, c.List(ctx, some, append([]client.ListOption{&client.ListOptions{
			Namespace: namespace, Limit: o.Limit, Continue: o.Continue, Raw: &o,
		}}, only...)...)
	}
	all, _, err := pager.New(page).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(all)
	if err != nil {
		return err
	}
	return meta.SetList(into, items)
}

func member(ctx context.Context, c *cluster.Cluster) (*status.Member, error) {
	server, err := c.Ask(ctx)
	if err != nil {
		return nil, err
	}
	m := &status.Member{Now: server.Now}
	if m.Membership, m.VIPMode, err = membership(ctx, c); err != nil {
		return nil, err
	}
	if m.Agent, err = c.Deployment(ctx, manifest.AgentDeployment); err != nil {
		return nil, err
	}
	var (
		exports mcsv1beta1.ServiceExportList
		imports mcsv1beta1.ServiceImportList
		records hubv1alpha1.ServiceExportRecordList
		leases  coordinationv1.LeaseList
	)
	err = errors.Join(list(ctx, c, "", &exports, &imports), list(ctx, c, kube.SystemNamespace, &records, &leases))
	m.Exports, m.Imports, m.Records, m.Leases = exports.Items, imports.Items, records.Items, leases.Items
	if err != nil {
		return nil, err
	}
	for _, o := range []client.Object{&mcsv1beta1.ServiceExport{}, &mcsv1beta1.ServiceImport{},
		&hubv1alpha1.ServiceExportRecord{}} { // list ignores that a kind does not exist
		gvk, _ := c.GroupVersionKindFor(o) // the scheme has it
		if _, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
			m.Unserved = append(m.Unserved, gvk.Kind)
		}
	}
	if m.Known, err = known(ctx, c, m.Leases, m.Now); err != nil {
		return nil, err
	}
	if m.Set == "" {
		m.HubOf = cluster.RoleOf(ctx, c).HubOf
	}
	ranges, err := serviceRanges(ctx, c)
	if err != nil {
		return nil, err
	}
	used, err := allocated(ctx, c)
	m.Ranges = ipam.Usages(slices.DeleteFunc(ranges, func(r ipam.Range) bool { return !r.VIPs }), used)
	return m, err
}

// known returns what the agent of a member knows that it lacks; nothing if the user may not read that.
func known(
	ctx context.Context, c *cluster.Cluster, leases []coordinationv1.Lease, now time.Time,
) ([]report.Finding, error) {
	m, err := cluster.MembershipOf(ctx, c)
	return facts.Known(&m, leases, now), ignoreUnreadable(err)
}

func membership(ctx context.Context, c *cluster.Cluster) (m facts.Membership, mode ipam.Mode, err error) {
	id, set, err := c.Properties(ctx)
	if err == nil && id != nil {
		var own clusterset.Place
		own, err = kube.Place(ctx, c, id.Spec.Value)
		m.Properties, err = own.Properties, c.Failed(err, "listing ClusterProperties")
	}
	if id != nil {
		m.ID = id.Spec.Value
	}
	if set != nil {
		m.Set, m.Leaving = set.Spec.Value, set.Annotations[clusterset.AnnotationLeaving] != ""
		mode = ipam.Mode(set.Annotations[clusterset.AnnotationVIPMode])
	}
	return m, mode, err
}

// Now returns the time from which a status counts ages.
func Now(f *status.Facts) time.Time {
	switch {
	case f.Hub != nil:
		return f.Hub.Now
	case f.Member != nil:
		return f.Member.Now
	}
	return time.Now()
}

// serviceRanges returns those of a cluster's ServiceCIDRs, or none if the kind does not exist or may not be read.
func serviceRanges(ctx context.Context, c *cluster.Cluster) (out []ipam.Range, err error) {
	var cidrs networkingv1.ServiceCIDRList
	err = c.List(ctx, &cidrs)
	out, _ = ipam.AllRanges(cidrs.Items) // the agent reports invalid ones in Events
	return out, c.Failed(ignoreUnreadable(err), "reading ServiceCIDRs")
}

// allocated returns the Service addresses that are in use.
func allocated(ctx context.Context, c *cluster.Cluster) (out []netip.Addr, err error) {
	var addresses networkingv1.IPAddressList
	err = c.List(ctx, &addresses)
	for i := range addresses.Items {
		if a, err := netip.ParseAddr(addresses.Items[i].Name); err == nil {
			out = append(out, a)
		}
	}
	return out, c.Failed(ignoreUnreadable(err), "reading IPAddresses")
}

func ignoreUnreadable(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
