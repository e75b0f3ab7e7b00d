package gather

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Explain reads what concerns one name in one cluster.
func Explain(ctx context.Context, c *cluster.Cluster, name types.NamespacedName) (*explain.Facts, error) {
	f := &explain.Facts{Name: name}
	id, set, err := properties(ctx, c)
	if err != nil {
		return nil, err
	}
	if id != nil {
		f.Cluster = id.Spec.Value
	}
	if set != nil {
		f.Set = set.Spec.Value
	}
	ns, err := kube.Get[*corev1.Namespace](ctx, c, types.NamespacedName{Name: name.Namespace})
	f.NamespaceThere = ns != nil && ns.DeletionTimestamp == nil
	errs := []error{err}
	f.Service, err = kube.Get[*corev1.Service](ctx, c, name)
	errs = append(errs, err)
	f.Export, err = kube.Get[*mcsv1beta1.ServiceExport](ctx, c, name)
	errs = append(errs, ignoreNoMatch(err))
	f.Import, err = kube.Get[*mcsv1beta1.ServiceImport](ctx, c, name)
	errs = append(errs, ignoreNoMatch(err))

	var slices discoveryv1.EndpointSliceList
	errs = append(errs, c.List(ctx, &slices, client.InNamespace(name.Namespace), client.MatchingLabels{mcsv1beta1.LabelServiceName: name.Name}))
	f.Slices = slices.Items

	if f.Import != nil && f.Import.Spec.Type == mcsv1beta1.Headless {
		g := &gatherer{&doctor.Facts{}, Source{Member: c}}
		if g.dns(ctx) == nil { // who may not read it is told nothing of preference
			f.Corefile = g.DNSFacts.Corefile
		}
	}
	var records hubv1alpha1.ServiceExportRecordList
	errs = append(errs, ignoreNoMatch(c.List(ctx, &records, client.InNamespace(kube.SystemNamespace))))
	for i := range records.Items {
		if s := &records.Items[i].Spec; s.ServiceNamespace == name.Namespace && s.ServiceName == name.Name {
			f.Records = append(f.Records, records.Items[i])
		}
	}
	var leases coordinationv1.LeaseList
	errs = append(errs, c.List(ctx, &leases, client.InNamespace(kube.SystemNamespace), client.HasLabels{liveness.LabelSource}))
	f.Sources = leases.Items
	if f.Import == nil {
		var imports mcsv1beta1.ServiceImportList
		errs = append(errs, ignoreNoMatch(c.List(ctx, &imports)))
		for i := range imports.Items {
			if other := client.ObjectKeyFromObject(&imports.Items[i]); explain.Alike(name, other) {
				f.Alike = append(f.Alike, other)
			}
		}
	}
	f.Ranges, err = serviceRanges(ctx, c)
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return f, nil
}

func ignoreNoMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}
