package heartbeat

import (
	"context"
	"errors"
	"fmt"
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

// A clone of this cluster has its UID and its credentials. Whoever renewed the Lease last speaks for the member: an
// agent renews it in place of its own cluster's last renewal, and writes to the hub only while that succeeds. The
// resourceVersion of that renewal is kept in the cluster (clusterset.LeaseRenewed), so that a restart and another
// replica continue at once. An agent that finds another resourceVersion waits, and stops if the foreign holder renews
// again.

var (
	errForeign = errors.New("another agent holds this member's Lease")
	keptName   = types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}
)

// foreign is a Lease that this cluster has not renewed last, as far as it knows. Its holder may be a process of this
// cluster that ended before it could keep its last renewal.
type foreign struct {
	version   string
	since     time.Time // when that version was first seen
	sightings int       // of different versions
	reported  bool
}

// sees notes the Lease, and returns whether its holder may still be at work: one that was seen once may renew within an
// interval, and one that was seen twice has until the Lease expires.
func (f *foreign) sees(lease *coordinationv1.Lease, now time.Time, every, duration time.Duration) bool {
	if version := kube.Version(lease); version != f.version {
		f.version, f.since = version, now
		f.sightings++
	}
	if f.sightings > 1 {
		return now.Sub(f.since) < duration
	}
	return now.Sub(f.since) < every+every/5
}

// MayPublish returns whether this agent speaks for its member: the hub has shown a renewal of it, and no other agent
// holds the Lease.
func (h *Heartbeat) MayPublish() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.shown && !h.contested
}

// Contested returns whether another agent holds this member's Lease.
func (h *Heartbeat) Contested() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.contested
}

// Cloned returns whether this agent has stopped because a foreign holder renews this member's Lease.
func (h *Heartbeat) Cloned() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.foreign.sightings > 1
}

// Lapsed returns whether the hub was not as this member's last renewal left it when this agent began, or was restored
// since. What the hub has lost was written before then, by this member's clock.
func (h *Heartbeat) Lapsed() (then time.Time, lapsed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said != nil {
		then = h.said.Add(4 * h.every) // the next renewal was due by then, and would have been kept
	}
	return then, h.lapsed
}

// current returns the Lease on the hub, or a new one, to be renewed. It returns errForeign while a foreign holder may
// be at work.
func (h *Heartbeat) current(ctx context.Context, name types.NamespacedName) (*coordinationv1.Lease, error) {
	there, err := kube.Get[*coordinationv1.Lease](ctx, h.HubNow(), name)
	if err != nil {
		return nil, err
	}
	if there == nil {
		there = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	}
	mine := there.ResourceVersion == "" || ptr.Deref(there.Spec.HolderIdentity, "") == h.Holder
	h.mu.Lock()
	h.contested = !mine
	h.mu.Unlock()
	kept, err := kube.Get[*coordinationv1.Lease](ctx, h.LocalNow, keptName)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if kept != nil {
		succeeds := there.ResourceVersion != "" && kept.Annotations[clusterset.AnnotationRenewed] == kube.Version(there)
		if succeeds && h.last == nil {
			h.lapsed = false
		}
		// Every renewal is later than the one before it: an earlier one is from a backup of the hub.
		mine = mine || succeeds || there.Spec.RenewTime.Before(kept.Spec.RenewTime)
		if h.said == nil || h.said.Before(kept.Spec.RenewTime) {
			h.said = kept.Spec.RenewTime
		}
	}
	if !mine && h.foreign.sees(there, h.Now(), h.every, h.duration) {
		return nil, errForeign
	}
	return there, nil
}

// reportForeign reports a foreign holder once it was seen twice.
func (h *Heartbeat) reportForeign(ctx context.Context) {
	h.mu.Lock()
	due := h.foreign.sightings > 1 && !h.foreign.reported
	h.foreign.reported = h.foreign.reported || due
	h.mu.Unlock()
	if !due {
		return
	}
	message := fmt.Sprintf(
		"Another agent renews the Lease of cluster %s on the hub, and it is not of this cluster's leader election: "+
			"is one of the two a clone? This agent publishes nothing until the other one has stopped. "+
			"What is imported here stays. "+
			"Give the clone an ID of its own: docs/operate.md, to clone a cluster.",
		h.Cluster,
	)
	log.FromContext(ctx).Info("publishing stops", "reason", message)
	h.Events.Event(kube.System(), kube.Warning, "ClonedAgent", message)
}

// keep stores which version of the Lease the last renewal made. If that fails, the next start waits as after a foreign
// renewal.
func (h *Heartbeat) keep(ctx context.Context, renewed *coordinationv1.Lease) {
	err := h.store(ctx, renewed)
	if err != nil && h.kept {
		log.FromContext(ctx).
			Info("the last renewal cannot be kept in this cluster: an agent that starts now publishes nothing at first",
				"reason", err.Error())
	}
	h.kept = err == nil
}

func (h *Heartbeat) store(ctx context.Context, renewed *coordinationv1.Lease) error {
	kept, err := kube.Get[*coordinationv1.Lease](ctx, h.LocalNow, keptName)
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: keptName.Namespace,
		Name:      keptName.Name,
		Labels:    map[string]string{derived.LabelManagedBy: kube.Manager},
	}}
	if kept != nil {
		lease = kept.DeepCopy()
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, clusterset.AnnotationRenewed, kube.Version(renewed))
	lease.Spec.HolderIdentity = renewed.Spec.HolderIdentity
	lease.Spec.LeaseDurationSeconds = renewed.Spec.LeaseDurationSeconds
	lease.Spec.RenewTime = renewed.Spec.RenewTime
	if kept == nil {
		return h.Local.Create(ctx, lease)
	}
	return h.Local.Update(ctx, lease)
}
