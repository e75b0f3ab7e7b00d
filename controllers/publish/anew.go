package publish

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// anew deletes a record of this member's on the hub that no revision can follow: somebody else wrote it, with this member's token. Peers
// follow the one that is created in its place, since it is younger.
func (r *reconciler) anew(ctx context.Context, s *state, rec client.Object) (again time.Duration, err error) {
	uid := rec.GetUID()
	s.wrote = true
	log.FromContext(ctx).Info("deleting a record that no revision can follow, to create it anew", "record", rec.GetName(), "revision", kube.Origin(rec).Revision)
	if err := kube.Gone(r.Hub().Delete(ctx, rec, client.Preconditions{UID: &uid})); err != nil {
		return 0, err
	}
	r.forget(rec.GetName())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[rec.GetName()] = r.Now()
	return young, nil
}

// young is how long after its predecessor's end a record is created, so that it is younger by its creationTimestamp, which has whole seconds.
const young = time.Second

// tooSoon tells how long a record that was deleted to be created anew has to wait for that.
func (r *reconciler) tooSoon(record string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ended := r.ended[record]
	if left := young - r.Now().Sub(at); ended && left > 0 {
		return min(left, young) // the clock may have been put back
	}
	delete(r.ended, record)
	return 0
}

// takeOver removes the record of a slice that was another Service's, withdrawn or not: it bears the slice's UID, and whose endpoints they
// are cannot change in it. Peers take the new one, which says what it is of, for the word that those of the other Service are gone.
func (r *reconciler) takeOver(ctx context.Context, s *state, name string, is *hubv1alpha1.Origin) error {
	was, err := kube.Get[*hubv1alpha1.EndpointRecord](ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: name})
	if err != nil || was == nil || was.Spec.ServiceNamespace == is.ServiceNamespace && was.Spec.ServiceName == is.ServiceName {
		return err
	}
	r.took(name, was.Spec.Revision)
	log.FromContext(ctx).Info("a slice has become another Service's", "record", name, "was", was.Spec.ServiceName)
	s.wrote = true
	return kube.Gone(r.Hub().Delete(ctx, was, client.Preconditions{UID: &was.UID, ResourceVersion: &was.ResourceVersion}))
}
