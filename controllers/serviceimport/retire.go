package serviceimport

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// retire deletes the import and its slices when nobody exports the name any more (I2). The derived Service stays for
// the quarantine, so that an exporter that returns gets the same VIP (DESIGN §5). retire returns the rest of the
// quarantine.
func (r *reconciler) retire(ctx context.Context, s *snapshot) (again time.Duration, err error) {
	if s.imp != nil && s.imp.DeletionTimestamp == nil && kube.Writable(s.imp) {
		log.FromContext(ctx).Info("deleting the import: nobody exports it", "clusters", s.imp.Status.Clusters)
		if err := kube.DeleteUnchanged(ctx, r.Local, s.imp); err != nil {
			return 0, err
		}
	}
	for _, slice := range slices.Concat(s.imported, s.given) {
		if err := kube.DeleteUnchanged(ctx, r.Local, slice); err != nil {
			return 0, err
		}
	}
	if s.svc == nil || !kube.Writable(s.svc) || s.svc.DeletionTimestamp != nil {
		return 0, nil
	}
	left, dated := derived.QuarantineLeft(s.svc, r.Now())
	if !dated {
		svc := s.svc.DeepCopy()
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, derived.AnnotationUnusedSince, r.Now().UTC().Format(time.RFC3339))
		// A Service that a user gave to the agent may lack this label and annotation, and its import no longer exists.
		metav1.SetMetaDataLabel(&svc.ObjectMeta, derived.LabelManagedBy, kube.Manager)
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, derived.AnnotationImport, kube.Key(s.name))
		delete(svc.Annotations, kube.AnnotationAdopt)
		return left, r.Local.Update(ctx, svc)
	}
	if left > 0 {
		return left, nil
	}
	log.FromContext(ctx).
		Info("deleting the derived Service after its quarantine", "service", s.svc.Name, "ips", s.svc.Spec.ClusterIPs)
	err = kube.DeleteUnchanged(ctx, r.Local, s.svc)
	if apierrors.IsConflict(err) { // it may be in use again
		return time.Second, nil
	}
	return 0, err
}
