package serviceimport

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// state is what one pass goes by. Everything in it is a cache's and must not be changed.
type state struct {
	name      types.NamespacedName
	namespace bool // there, and not going
	exports   []clusterset.Export
	expiry    map[string]string             // by dead cluster: the reason of its condition Live
	withheld  map[string]endpoints.Withheld // by cluster that too few members reach
	imp       *mcsv1beta1.ServiceImport
	svc       *corev1.Service               // the derived Service
	slices    []*discoveryv1.EndpointSlice  // the imported ones
	native    []*discoveryv1.EndpointSlice  // those of this cluster's own Service of the name
	records   []*hubv1alpha1.EndpointRecord // of its peers, on the hub; nil where no hub has been seen
	hubSeen   bool
}

func (s *state) derivedName() string { return derived.Name(s.name.Namespace, s.name.Name) }

func (r *reconciler) gather(ctx context.Context, name types.NamespacedName) (s state, err error) {
	s.name = name
	ns, err := kube.Get[*corev1.Namespace](ctx, r.Local, types.NamespacedName{Name: name.Namespace})
	if err != nil || ns == nil || ns.DeletionTimestamp != nil {
		return s, err
	}
	s.namespace = true
	if err := r.gatherExports(ctx, &s); err != nil {
		return s, err
	}
	if s.imp, err = kube.Get[*mcsv1beta1.ServiceImport](ctx, r.Local, name); err != nil {
		return s, err
	}
	if s.svc, err = kube.Get[*corev1.Service](ctx, r.Local, types.NamespacedName{Namespace: name.Namespace, Name: s.derivedName()}); err != nil {
		return s, err
	}
	if s.slices, err = r.list(ctx, name, kube.ByImport); err != nil {
		return s, err
	}
	if s.native, err = r.list(ctx, name, kube.ByService); err != nil {
		return s, err
	}
	hub := r.Hub()
	if hub == nil {
		return s, nil
	}
	s.hubSeen = true
	var records hubv1alpha1.EndpointRecordList
	if err := hub.List(ctx, &records, client.InNamespace(r.HubNamespace), client.MatchingFields{kube.ByService: kube.Key(name)}); err != nil {
		return s, err
	}
	for i := range records.Items {
		if records.Items[i].Spec.ClusterID != r.Cluster {
			s.records = append(s.records, &records.Items[i])
		}
	}
	return s, nil
}

// gatherExports reads this cluster's copies. One that does not parse was edited here, or is of another version of the agent: the others
// go on without it.
func (r *reconciler) gatherExports(ctx context.Context, s *state) error {
	var records hubv1alpha1.ServiceExportRecordList
	if err := r.Local.List(ctx, &records, client.InNamespace(kube.SystemNamespace), client.MatchingFields{kube.ByService: kube.Key(s.name)}); err != nil {
		return err
	}
	for i := range records.Items {
		rec := &records.Items[i]
		if rec.Spec.Withdrawn {
			continue
		}
		e, err := clusterset.ParseExport(rec)
		if err != nil {
			log.FromContext(ctx).Error(err, "a record in this cluster is not used; delete it, and it is made again", "record", rec.Name)
			continue
		}
		s.exports = append(s.exports, e)
		if c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionLive); c != nil && c.Status == metav1.ConditionFalse {
			if s.expiry == nil {
				s.expiry = map[string]string{}
			}
			s.expiry[rec.Spec.ClusterID] = c.Reason
		}
		if c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionReached); c != nil && c.Status == metav1.ConditionFalse {
			if s.withheld == nil {
				s.withheld = map[string]endpoints.Withheld{}
			}
			s.withheld[rec.Spec.ClusterID] = endpoints.Withheld{Addresses: rec.Status.Withheld, Reason: c.Reason}
		}
	}
	return nil
}

func (r *reconciler) list(ctx context.Context, name types.NamespacedName, index string) ([]*discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := r.Local.List(ctx, &list, client.InNamespace(name.Namespace), client.MatchingFields{index: kube.Key(name)}); err != nil {
		return nil, err
	}
	out := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}
