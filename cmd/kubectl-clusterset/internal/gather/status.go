package gather

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Status reads the hub and, where one is named, a member. A hub that cannot be read is a fact, unless it is all
// that was named; a member that cannot is an error.
func Status(ctx context.Context, s Source) (*status.Facts, error) {
	f := &status.Facts{Asked: s.asked()}
	hub, namespace := s.Hub, s.HubNamespace
	if s.Member != nil {
		m, err := member(ctx, s.Member)
		if err != nil {
			return nil, err
		}
		f.Member = m
		creds, file, err := credentials(ctx, s.Member)
		switch {
		case err != nil:
			f.HubError = err.Error()
		case creds == nil:
			f.HubError = "this cluster has no credentials for it"
		case creds.Problem != "":
			f.HubError = creds.Problem
		}
		namespace = s.namespace(creds)
		if creds != nil && creds.Problem == "" {
			m.TokenExpires, m.HubNamespace = &creds.Expires, creds.Namespace
			if hub == nil {
				namespace = creds.Namespace
				if hub, err = asAgent(file); err != nil {
					f.HubError = err.Error()
				}
			}
		}
	}
	if hub == nil {
		return f, nil
	}
	read, err := readHub(ctx, hub, namespace)
	if err == nil {
		err = exported(ctx, hub, read)
	}
	switch {
	case err != nil && s.Member == nil:
		return nil, err
	case err != nil:
		f.HubError = err.Error()
	default:
		f.Hub, f.HubError = read, ""
	}
	return f, nil
}

func readHub(ctx context.Context, c *cluster.Cluster, namespace string) (*status.Hub, error) {
	server, err := c.Ask(ctx)
	if err != nil {
		return nil, err
	}
	h := &status.Hub{Now: server.Now, Namespace: namespace}
	if err := members(ctx, c, h); err != nil {
		return nil, err
	}
	h.Leader, err = leader(ctx, c, namespace)
	return h, err
}

// members reads who is in the clusterset. ClusterProfiles of another cluster manager (P2) are none of ours.
func members(ctx context.Context, c *cluster.Cluster, h *status.Hub) error {
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

// exported reads what the members export.
func exported(ctx context.Context, c *cluster.Cluster, h *status.Hub) error {
	var (
		records   hubv1alpha1.ServiceExportRecordList
		endpoints hubv1alpha1.EndpointRecordList
	)
	err := list(ctx, c, h.Namespace, &records, &endpoints)
	h.Records, h.Endpoints = records.Items, endpoints.Items
	return err
}

// leader is the Lease by which clusterset-controller hub elects its leader, empty where there is none; nil for a member, which may not
// read it.
func leader(ctx context.Context, c *cluster.Cluster, namespace string) (*coordinationv1.Lease, error) {
	l, err := kube.Get[*coordinationv1.Lease](ctx, c, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseHubPrefix + namespace})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	case l == nil:
		l = &coordinationv1.Lease{}
	}
	return l, nil
}

// list reads kinds of one namespace, "" for all. A kind that is not there has no objects.
func list(ctx context.Context, c *cluster.Cluster, namespace string, into ...client.ObjectList) error {
	for _, l := range into {
		if err := pages(ctx, c, namespace, nil, l); err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return nil
}

// pages reads a list page by page, each within patience: a large clusterset over a slow line takes longer than that in all.
func pages(ctx context.Context, c client.Reader, namespace string, of fields.Selector, into client.ObjectList) error {
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		some := into.DeepCopyObject().(client.ObjectList)
		return some, c.List(ctx, some, &client.ListOptions{Namespace: namespace, FieldSelector: of, Limit: o.Limit, Continue: o.Continue, Raw: &o})
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
	id, set, err := properties(ctx, c)
	if err != nil {
		return nil, err
	}
	if id != nil {
		m.Cluster = id.Spec.Value
	}
	if set != nil {
		m.Set, m.Leaving, m.VIPMode = set.Spec.Value, set.Annotations[clusterset.AnnotationLeaving] != "", ipam.Mode(set.Annotations[clusterset.AnnotationVIPMode])
	}
	if m.Agent, err = kube.Get[*appsv1.Deployment](ctx, c, types.NamespacedName{Namespace: kube.SystemNamespace, Name: "clusterset-controller"}); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
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
	m.Events, m.EventsUnread = warnings(ctx, c)
	ranges, err := serviceRanges(ctx, c)
	if err != nil {
		return nil, err
	}
	used, err := taken(ctx, c)
	m.Ranges = ipam.Usages(slices.DeleteFunc(ranges, func(r ipam.Range) bool { return r.Use == ipam.Ordinary }), used)
	return m, err
}

// warnings are the Events of type Warning of a cluster's agent, in all namespaces: an object without one has them in default. Without them there is
// still a status: they are the kind that is most likely to be kept from a user, or to take an API server too long.
func warnings(ctx context.Context, c *cluster.Cluster) ([]eventsv1.Event, error) {
	var events eventsv1.EventList
	of := fields.AndSelectors(fields.OneTermEqualSelector("reportingController", kube.Manager), fields.OneTermEqualSelector("type", kube.Warning))
	if err := pages(ctx, c, "", of, &events); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return events.Items, nil
}

// properties are this cluster's id and membership, nil where nothing was said.
func properties(ctx context.Context, c *cluster.Cluster) (id, set *aboutv1beta1.ClusterProperty, err error) {
	for name, into := range map[string]**aboutv1beta1.ClusterProperty{clusterset.PropertyID: &id, clusterset.PropertySet: &set} {
		p, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, c, types.NamespacedName{Name: name})
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		*into = p
	}
	return id, set, nil
}

// Now is the clock that a status report's ages are counted by.
func Now(f *status.Facts) time.Time {
	switch {
	case f.Hub != nil:
		return f.Hub.Now
	case f.Member != nil:
		return f.Member.Now
	}
	return time.Now()
}
