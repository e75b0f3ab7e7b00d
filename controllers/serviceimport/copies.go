package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/withdrawal"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// action is what to do with the copy of another member's record.
type action int

const (
	keep   action = iota // nothing
	follow               // update it from the hub
	hold                 // keep it, although the hub says otherwise, and report that
	drop                 // delete it
)

// decideCopy returns what to do with a copy. shown is the record on the hub; either may be nil. departed says that the
// owner departed after it published the copied record. With hold, reason and message are those of the condition Held,
// or of the Event if there is no copy.
func decideCopy(shown, copied *hubv1alpha1.ServiceExportRecord, departed bool) (a action, reason, message string) {
	switch {
	case shown == nil && copied == nil:
		return keep, "", ""
	case shown == nil && (copied.Spec.Withdrawn || departed):
		return drop, "", ""
	case shown == nil:
		return hold, "Absent", "The hub does not show this record, but its owner has not withdrawn it. It stays."
	case copied == nil && shown.Spec.Withdrawn:
		return keep, "", ""
	case clusterset.IsOlder(shown, copied):
		return hold, "OlderRevision", fmt.Sprintf(
			"The hub shows revision %d, which is older than %d, as after a restore. "+
				"Revision %[2]d stays in effect until its owner publishes again.", shown.Spec.Revision,
			copied.Spec.Revision)
	}
	if !shown.Spec.Withdrawn {
		if _, err := clusterset.ParseExport(shown); err != nil {
			return hold, "Refused", fmt.Sprintf("The record on the hub is not imported: %v.", err)
		}
	}
	return follow, "", ""
}

// copyRecords brings the copies of other members' records up to date, in this cluster and in s. Absence is not deletion
// (DESIGN §2): a copy changes only for a newer, valid revision, and is deleted only if its owner withdrew it or
// departed. A cluster whose copy cannot be written is in s.unwritten.
func (r Config) copyRecords(ctx context.Context, s *snapshot) error {
	if !s.hub {
		return nil
	}
	copied := map[string]*hubv1alpha1.ServiceExportRecord{}
	for i := range s.copies {
		copied[s.copies[i].Spec.ClusterID] = s.copies[i]
	}
	clusters := sets.KeySet(copied).Union(sets.KeySet(s.published.Records))
	clusters.Delete(r.Cluster) // serviceexport has written that
	s.copies = slices.DeleteFunc(s.copies, func(rec *hubv1alpha1.ServiceExportRecord) bool {
		return rec.Spec.ClusterID != r.Cluster
	})
	var errs []error
	for _, cluster := range sets.List(clusters) {
		is, err := r.copyRecord(ctx, s, s.published.Records[cluster], copied[cluster])
		switch {
		case err == nil:
		case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
			return err // the next pass sees what is there
		default:
			errs = append(errs, err)
			s.unwritten[cluster] = true
		}
		if is != nil {
			s.copies = append(s.copies, is)
		}
	}
	return errors.Join(errs...)
}

// copyRecord brings one copy up to date, and returns it; nil if there is none.
func (r Config) copyRecord(
	ctx context.Context, s *snapshot, shown, copied *hubv1alpha1.ServiceExportRecord,
) (*hubv1alpha1.ServiceExportRecord, error) {
	logger := log.FromContext(ctx)
	if s.excluded || s.assumed && copied == nil {
		if copied != nil {
			logger.Info("an export ended: its namespace must not be used", "record", copied.Name)
			return nil, kube.Delete(ctx, r.Local, copied)
		}
		if !shown.Spec.Withdrawn {
			r.refuseRecord(
				shown,
				fmt.Sprintf("the ClusterSet's spec.namespaces excludes namespace %s.", s.name.Namespace),
			)
		}
		return nil, nil
	}
	departed := copied != nil && shown == nil && clusterset.Created(copied).Before(s.departed[copied.Spec.ClusterID])
	a, reason, message := decideCopy(shown, copied, departed)
	switch {
	case a == follow:
		return r.followRecord(ctx, shown, copied, s.departed[shown.Spec.ClusterID])
	case a == drop && !departed && s.hasFrom(copied.Spec.ClusterID):
		return copied, nil // it says that what is still imported must go; the pass after that drops it
	case a == drop:
		logger.Info("an export ended", "record", copied.Name, "withdrawn", copied.Spec.Withdrawn)
		return nil, kube.Delete(ctx, r.Local, copied)
	case a == hold && copied == nil:
		r.refuseRecord(shown, message)
		return nil, nil
	case a == hold:
		return r.setHeld(ctx, copied, metav1.ConditionTrue, reason, message)
	}
	return copied, nil
}

// refuseRecord raises an Event where the copy would be.
func (r Config) refuseRecord(shown *hubv1alpha1.ServiceExportRecord, message string) {
	about := shown.DeepCopy()
	about.Namespace = kube.SystemNamespace
	r.Events.Event(about, kube.Warning, "RecordRefused", message)
}

// hasFrom returns whether an import has something from a cluster.
func (s *snapshot) hasFrom(cluster string) bool {
	return s.imp != nil && kube.Manages(s.imp) && slices.ContainsFunc(s.imp.Status.Clusters,
		func(c mcsv1beta1.ClusterStatus) bool {
			return c.Cluster == cluster
		}) ||
		slices.ContainsFunc(slices.Concat(s.imported, byName(s.projected)), func(e *discoveryv1.EndpointSlice) bool {
			return sourceCluster(e) == cluster
		})
}

// followRecord updates the copy from the hub and returns it. It ends Held. departed is when the owner did last.
func (r Config) followRecord(
	ctx context.Context, shown, copied *hubv1alpha1.ServiceExportRecord, departed time.Time,
) (*hubv1alpha1.ServiceExportRecord, error) {
	rec := &hubv1alpha1.ServiceExportRecord{}
	if copied != nil {
		rec = copied.DeepCopy() // a client decodes the answer into the same memory
	}
	clusterset.SetPublished(rec, shown, departed)
	// A recreated record may have a lower revision: beside its creation, that of the copy would make it look older.
	recreated := copied != nil && shown.CreationTimestamp.After(clusterset.Created(copied))
	if copied == nil || recreated || !clusterset.SameFacts(&shown.Spec, &copied.Spec) {
		rec.Namespace, rec.Name, rec.Spec = kube.SystemNamespace, shown.Name, clusterset.Facts(shown.DeepCopy().Spec)
	}
	if copied != nil && equality.Semantic.DeepEqual(rec.Spec, copied.Spec) &&
		maps.Equal(rec.Annotations, copied.Annotations) {
		return r.setHeld(ctx, copied, metav1.ConditionFalse, "Current", "The copy is up to date.")
	}
	log.FromContext(ctx).
		Info("copying a record", "record", rec.Name, "revision", rec.Spec.Revision, "withdrawn", rec.Spec.Withdrawn)
	if err := kube.Put(ctx, r.Local, rec); err != nil {
		return r.refusedHere(ctx, shown, copied, err)
	}
	return r.setHeld(ctx, rec, metav1.ConditionFalse, "Current", "The copy is up to date.")
}

// refusedHere returns the copy that stays if this cluster's API server takes no newer one, and reports a refusal: its
// CRDs may be older than the hub's (SPEC U6).
func (r Config) refusedHere(
	ctx context.Context, shown, copied *hubv1alpha1.ServiceExportRecord, cause error,
) (*hubv1alpha1.ServiceExportRecord, error) {
	if !apierrors.IsInvalid(cause) {
		return copied, cause
	}
	message := fmt.Sprintf("Copying the record failed. Apply the CRDs of the hub's version here: %v", cause)
	if copied == nil {
		r.refuseRecord(shown, message)
		return nil, cause
	}
	held, err := r.setHeld(ctx, copied, metav1.ConditionTrue, "Refused", message)
	return held, errors.Join(cause, err)
}

// setHeld sets the condition Held and returns the copy. It does not add Held False to a copy that was never held.
func (r Config) setHeld(
	ctx context.Context, copied *hubv1alpha1.ServiceExportRecord, status metav1.ConditionStatus, reason, message string,
) (*hubv1alpha1.ServiceExportRecord, error) {
	if status == metav1.ConditionFalse &&
		!meta.IsStatusConditionTrue(copied.Status.Conditions, hubv1alpha1.ConditionHeld) {
		return copied, nil
	}
	rec, changed, err := r.setCondition(ctx, copied, metav1.Condition{
		Type: hubv1alpha1.ConditionHeld, Status: status, Reason: reason, Message: message,
	})
	if changed && status == metav1.ConditionTrue {
		r.Events.Event(rec, kube.Warning, "RecordHeld", message)
	}
	return rec, err
}

// Acknowledge sets withdrawal.AnnotationAcknowledged on a member's Lease: the newest withdrawn record on the hub for
// which no copy here is still to follow it or an older one, and nothing without a copy is still imported. It reads
// caches only.
func Acknowledge(
	ctx context.Context, local, hub client.Reader, hubNamespace, cluster string, lease *coordinationv1.Lease,
) error {
	var list hubv1alpha1.ServiceExportRecordList
	if err := hub.List(ctx, &list, client.InNamespace(hubNamespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{kube.ByTombstone: kube.AllTombstones}); err != nil {
		return err
	}
	var tombstones []*hubv1alpha1.ServiceExportRecord
	for i := range list.Items {
		if list.Items[i].Spec.ClusterID != cluster {
			tombstones = append(tombstones, &list.Items[i])
		}
	}
	var failed error
	newest := withdrawal.Newest(tombstones, func(rec *hubv1alpha1.ServiceExportRecord) bool {
		name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: rec.Name}
		copied, err := kube.Get[*hubv1alpha1.ServiceExportRecord](ctx, local, name)
		if err == nil && copied == nil {
			var imported bool
			imported, err = importsFrom(ctx, local, rec)
			failed = errors.Join(failed, err)
			return err == nil && !imported
		}
		if err != nil {
			failed = errors.Join(failed, err)
			return false
		}
		a, _, _ := decideCopy(rec, copied, false)
		return copied.Spec.Withdrawn || a != follow
	})
	acknowledged := ""
	if newest != nil {
		acknowledged = kube.Version(newest)
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, withdrawal.AnnotationAcknowledged, acknowledged)
	return failed
}

// importsFrom returns whether the import of a record's name has something from its cluster.
func importsFrom(ctx context.Context, local client.Reader, rec *hubv1alpha1.ServiceExportRecord) (_ bool, err error) {
	name := kube.Exported(rec)
	s := snapshot{}
	if s.imp, err = kube.Get[*mcsv1beta1.ServiceImport](ctx, local, name); err != nil {
		return false, err
	}
	var imported discoveryv1.EndpointSliceList
	err = local.List(ctx, &imported, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{kube.ByImport: kube.Key(name)})
	s.imported = kube.ByName(imported.Items)
	return s.hasFrom(rec.Spec.ClusterID), err
}
