package heartbeat

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// A restart is no clone, and need not wait for an elder one to show itself. Each renewal leaves in this cluster which version of the Lease
// it made on the hub. Who finds that very version there when it begins knows that nobody has renewed since this cluster did; and the hub
// takes its first renewal only in place of that version. A clone holds what its backup held, and the cluster that it is of has renewed since,
// or does within one interval of the backup, from when on the clone keeps still; of two that begin with the same backup at once, the hub
// takes one. A renewal that is unproven is left once it is proven, and not before.

// begin takes note, before the first renewal, of whom this agent comes after.
func (h *Heartbeat) begin(ctx context.Context, there *coordinationv1.Lease) error {
	if h.begun {
		return nil
	}
	kept, err := kube.Get[*coordinationv1.Lease](ctx, h.LocalNow, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	// The hub's Lease is as this cluster's last renewal made it; one that is to be made nobody renews.
	h.succeeded = kept != nil && there.ResourceVersion != "" && kept.Annotations[clusterset.AnnotationRenewed] == kube.Version(there)
	if kept != nil && h.said == nil {
		h.said = kept.Spec.RenewTime
	}
	if h.acquired.IsZero() {
		h.predecessor = ptr.Deref(there.Spec.HolderIdentity, "")
	}
	return nil
}

// Lapsed is kube.Env's.
func (h *Heartbeat) Lapsed() (then time.Time, lapsed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said != nil {
		then = h.said.Add(4 * h.every) // the next renewal was due by then, and would have been kept
	}
	return then, !h.succeeded || h.restored
}

// keep leaves which version of the Lease the last renewal made. One that is not left costs the next start its time, and nothing else.
func (h *Heartbeat) keep(ctx context.Context, there *coordinationv1.Lease) {
	if h.unproven() {
		h.unkept = there
		return
	}
	err := h.leave(ctx, there)
	if err != nil && h.unkept == nil {
		log.FromContext(ctx).Info("which renewal was the last one cannot be kept in this cluster: an agent that starts now publishes nothing for two renewals", "reason", err.Error())
	}
	if h.unkept = nil; err != nil {
		h.unkept = there
	}
}

// again is when there is more to do: at the next renewal; sooner while the last one is not kept, since an agent that starts meanwhile finds
// the hub otherwise than this cluster remembers it, and says everything anew.
func (h *Heartbeat) again(ctx context.Context, due time.Duration) time.Duration {
	if h.unkept == nil {
		return due
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // not to be late for the renewal
	defer cancel()
	if h.keep(ctx, h.unkept); h.unkept == nil {
		return due
	}
	return min(due, time.Second)
}

func (h *Heartbeat) leave(ctx context.Context, there *coordinationv1.Lease) error {
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}
	kept, err := kube.Get[*coordinationv1.Lease](ctx, h.Local, name)
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{derived.LabelManagedBy: kube.Manager}}}
	if kept != nil {
		lease = kept.DeepCopy()
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, clusterset.AnnotationRenewed, kube.Version(there))
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = there.Spec.HolderIdentity, there.Spec.LeaseDurationSeconds, there.Spec.RenewTime
	if kept == nil {
		return h.Local.Create(ctx, lease)
	}
	return h.Local.Update(ctx, lease)
}
