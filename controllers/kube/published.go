package kube

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Published is what the hub shows of one name. The objects belong to the cache and must not be changed.
type Published struct {
	Records map[string]*hubv1alpha1.ServiceExportRecord // by cluster ID
	Pages   map[string]*hubv1alpha1.EndpointPage        // by name
}

// PublishedOf returns what the hub shows of a name.
func PublishedOf(
	ctx context.Context,
	hub client.Reader,
	namespace string,
	name types.NamespacedName,
) (Published, error) {
	var out Published
	of := []client.ListOption{
		client.InNamespace(namespace), client.MatchingFields{ByService: Key(name)}, client.UnsafeDisableDeepCopy,
	}
	var records hubv1alpha1.ServiceExportRecordList
	if err := hub.List(ctx, &records, of...); err != nil {
		return out, err
	}
	out.Records = make(map[string]*hubv1alpha1.ServiceExportRecord, len(records.Items))
	for i := range records.Items {
		out.Records[records.Items[i].Spec.ClusterID] = &records.Items[i]
	}
	var pages hubv1alpha1.EndpointPageList
	if err := hub.List(ctx, &pages, of...); err != nil {
		return out, err
	}
	out.Pages = make(map[string]*hubv1alpha1.EndpointPage, len(pages.Items))
	for i := range pages.Items {
		out.Pages[pages.Items[i].Name] = &pages.Items[i]
	}
	return out, nil
}

// Copies returns this cluster's copies of all records of a name, by object name. They belong to the cache and must not
// be changed.
func Copies(
	ctx context.Context, local client.Reader, name types.NamespacedName,
) ([]*hubv1alpha1.ServiceExportRecord, error) {
	var list hubv1alpha1.ServiceExportRecordList
	err := local.List(ctx, &list, client.InNamespace(SystemNamespace), client.MatchingFields{ByService: Key(name)},
		client.UnsafeDisableDeepCopy)
	return ByName(list.Items), err
}

// Ended returns whether another cluster, whose record has no copy here, has ended its export. created is when the hub
// created the record that was copied last, and departed when the cluster last departed. Absence is not deletion
// (DESIGN §2): a user may have deleted the copy, or this cluster was restored.
func (p Published) Ended(cluster string, created, departed time.Time) bool {
	shown := p.Records[cluster]
	return shown != nil && shown.Spec.Withdrawn || shown == nil && created.Before(departed)
}

// EndsExport returns whether this cluster's own ServiceExport, nil if there is none, exports nothing. A missing copy of
// its record proves nothing, because serviceexport writes it again.
func EndsExport(export *mcsv1beta1.ServiceExport) bool {
	return export == nil || export.DeletionTimestamp != nil || meta.IsStatusConditionFalse(
		export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
}

// Page returns a page of a cluster's export, nil if the hub does not show it.
func (p Published) Page(of *hubv1alpha1.ServiceExportRecord, number int32) *hubv1alpha1.EndpointPage {
	o := &of.Spec.Origin
	return p.Pages[clusterset.PageName(number, o.ServiceName, o.ServiceNamespace, o.ClusterID)]
}

// PagesOf returns the valid pages that a record states, by number. all is false if one is missing.
func (p Published) PagesOf(rec *hubv1alpha1.ServiceExportRecord) (pages []*hubv1alpha1.EndpointPage, all bool) {
	for i := range rec.Spec.Pages {
		if page := p.Page(rec, i); page != nil && clusterset.CheckPage(page) == nil {
			pages = append(pages, page)
		}
	}
	return pages, len(pages) == int(rec.Spec.Pages)
}

// Groups returns the endpoints that a cluster's record states. all is false if a part of them is missing.
func (p Published) Groups(cluster string) (groups []hubv1alpha1.EndpointGroup, all bool) {
	rec := p.Records[cluster]
	if rec == nil {
		return nil, false
	}
	if rec.Spec.Pages == 0 {
		return rec.Spec.Endpoints, true
	}
	pages, all := p.PagesOf(rec)
	for _, page := range pages {
		groups = append(groups, page.Spec.EndpointGroup)
	}
	return groups, all
}
