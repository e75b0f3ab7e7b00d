package gather

import (
	"context"
	"errors"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Explain reads what concerns one name in one cluster. Parts that the user may not read (deploy/member/users.yaml)
// are in Unread. The ServiceImport must be readable.
func Explain(ctx context.Context, c *cluster.Cluster, name types.NamespacedName) (*explain.Facts, error) {
	f := &explain.Facts{Name: name, Now: time.Now()}
	if server, err := c.Ask(ctx); err == nil {
		f.Now = server.Now
	}
	var err error
	var errs []error
	allow := func(part explain.Part, err error) {
		if apierrors.IsForbidden(err) {
			f.Unread = append(f.Unread, part)
			return
		}
		errs = append(errs, ignoreNoMatch(err))
	}
	f.Membership, _, err = membership(ctx, c)
	allow(explain.Membership, err)
	if err == nil && f.Set == "" {
		role := cluster.RoleOf(ctx, c)
		if err := role.OnlyHub(); err != nil {
			return nil, err
		}
	}
	ns, err := kube.Get[*corev1.Namespace](ctx, c, types.NamespacedName{Name: name.Namespace})
	f.NamespaceExists = ns != nil && ns.DeletionTimestamp == nil
	f.Refuses = ns != nil && ns.Annotations[clusterset.AnnotationNamespaceImport] == "false"
	allow(explain.Namespace, err)
	f.Service, err = kube.Get[*corev1.Service](ctx, c, name)
	allow(explain.Services, err)
	f.Export, err = kube.Get[*mcsv1beta1.ServiceExport](ctx, c, name)
	allow(explain.Exports, err)
	f.Import, err = kube.Get[*mcsv1beta1.ServiceImport](ctx, c, name)
	errs = append(errs, ignoreNoMatch(err))

	var imported discoveryv1.EndpointSliceList
	allow(explain.Endpoints, c.List(ctx, &imported, client.InNamespace(name.Namespace),
		client.MatchingLabels{mcsv1beta1.LabelServiceName: name.Name}))
	f.Slices = slices.DeleteFunc(imported.Items, func(s discoveryv1.EndpointSlice) bool {
		return endpoints.IsProjection(s.Name)
	})
	var outside discoveryv1.EndpointSliceList
	if err := c.List(ctx, &outside, client.InNamespace(name.Namespace), client.MatchingLabels{
		external.Label: name.Name, discoveryv1.LabelManagedBy: kube.Manager,
	}); !apierrors.IsForbidden(err) { // then the slices of the import are unread, too
		errs = append(errs, err)
	}
	f.Outside = outside.Items

	g := &gatherer{&doctor.Facts{}, Source{Member: c}}
	s, err := dns.ReadCorefile(ctx, c)
	if err == nil {
		err = g.corefile(ctx, s)
	}
	if err != nil {
		f.CorefileUnread = err.Error()
	}
	f.Corefile, f.Config = g.DNSFacts.Corefile, g.DNSFacts.Config
	var leases coordinationv1.LeaseList
	allow(explain.Leases, c.List(ctx, &leases, client.InNamespace(kube.SystemNamespace)))
	f.Leases = leases.Items
	allow(explain.Records, recordsOf(ctx, c, f))
	if f.Import == nil {
		allow(explain.Others, similar(ctx, c, f))
	}
	// Users may lack the right: then the age of the agent's Lease says it later.
	agent, err := c.Deployment(ctx, manifest.AgentDeployment)
	f.Agent = agent != nil
	f.AgentStopped = agent != nil && ptr.Deref(agent.Spec.Replicas, 1) == 0
	var unknown error
	f.Known, unknown = known(ctx, c, f.Leases, f.Now)
	errs = append(errs, unknown)
	if f.NoAdmin = apierrors.IsForbidden(err); !f.NoAdmin {
		errs = append(errs, err)
	}
	f.Ranges, err = serviceRanges(ctx, c)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, c.Failed(err, "reading what concerns %s", name)
	}
	return f, nil
}

// recordsOf reads what each cluster exports under the name.
func recordsOf(ctx context.Context, c *cluster.Cluster, f *explain.Facts) error {
	var records hubv1alpha1.ServiceExportRecordList
	err := c.List(ctx, &records, client.InNamespace(kube.SystemNamespace))
	for i := range records.Items {
		if s := &records.Items[i].Spec; s.ServiceNamespace == f.Name.Namespace && s.ServiceName == f.Name.Name {
			f.Records = append(f.Records, records.Items[i])
		}
	}
	return err
}

// similar reads names that the user may have meant.
func similar(ctx context.Context, c *cluster.Cluster, f *explain.Facts) error {
	var imports mcsv1beta1.ServiceImportList
	err := c.List(ctx, &imports)
	for i := range imports.Items {
		if other := client.ObjectKeyFromObject(&imports.Items[i]); explain.Similar(f.Name, other) {
			f.Similar = append(f.Similar, other)
		}
	}
	return err
}

func ignoreNoMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}
