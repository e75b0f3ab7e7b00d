package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// A clone of a cluster has the same UID and the same credentials: only the agent that renewed the Lease last publishes.
// docs/design.md says what a foreign holder may be, and why it is asked by a change of the Lease.

var (
	errForeign  = errors.New("another agent holds this member's Lease")
	errHere     = errors.New("renewing the Lease failed in this cluster") // so this says nothing about the hub
	storedLease = types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}
)

// foreign is the state of a Lease whose last renewal is not the one that this cluster stored. Its holder is another
// cluster's agent, or a process of this cluster that ended before it stored its last renewal.
type foreign struct {
	version  string
	since    time.Time // when that version was first observed
	versions int       // number of different versions
	asked    int       // how often this agent has changed the Lease
}

// observe notes the Lease, and returns whether its holder may still be running: after one version, until a renewal is
// due; after a second one, until the Lease expires. A holder that was asked gets one interval less than that: it may
// have to wait for its API server, but this agent must renew before the Lease expires.
func (f *foreign) observe(lease *coordinationv1.Lease, now time.Time, interval, duration time.Duration) bool {
	if version := kube.Version(lease); version != f.version {
		f.version, f.since = version, now
		f.versions++
	}
	switch {
	case f.versions > 1:
		return now.Sub(f.since) < duration
	case f.asked > 0:
		return now.Sub(f.since) < duration-interval
	}
	return now.Sub(f.since) < interval+interval/5
}

// maxAsked limits how often an agent asks a holder. One of an earlier version drops the annotation at each renewal, as
// if it had not been asked.
const maxAsked = 3

// MayPublish returns whether this agent may write its member's records: the hub has shown one of its renewals, no other
// agent holds the Lease, and this cluster's API server answers. If it does not, another replica may have been elected,
// and this one's view of this cluster is old.
func (h *Heartbeat) MayPublish() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	var answer apierrors.APIStatus
	return !h.seenAt.IsZero() && !h.contested && (h.notStored == nil || errors.As(h.notStored, &answer))
}

// Contested returns whether another process held the Lease when it was last read.
func (h *Heartbeat) Contested() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.contested
}

// Cloned returns whether that process has renewed it since, so that it still runs.
func (h *Heartbeat) Cloned() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.foreign.versions > 1
}

// HubMayHaveLost returns times on this member's clock. What was written before lost may be lost: the hub was restored,
// or did not have this member's last stored renewal when a process started. It is zero if nothing may be. An earlier
// process of this member has written nothing after written.
func (h *Heartbeat) HubMayHaveLost() (lost, written time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lostBefore, h.writtenBefore
}

// lastWrite returns a time by which a process has made all its writes to the hub, if renewed is the last renewal that
// it stored.
func lastWrite(renewed *metav1.MicroTime, interval time.Duration) time.Time {
	return renewed.Add(4 * interval)
}

// leaseToRenew returns the Lease on the hub, or a new one; errForeign while a foreign holder may be running. It fails
// if this cluster's API server does not answer, whoever holds the Lease.
func (h *Heartbeat) leaseToRenew(ctx context.Context, name types.NamespacedName) (*coordinationv1.Lease, error) {
	onHub, err := kube.Get[*coordinationv1.Lease](ctx, h.HubNow(), name)
	if err != nil {
		return nil, err
	}
	if onHub == nil {
		onHub = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	}
	mine := onHub.ResourceVersion == "" || ptr.Deref(onHub.Spec.HolderIdentity, "") == h.Holder
	h.mu.Lock()
	h.contested = !mine
	h.mu.Unlock()
	stored, err := kube.Get[*coordinationv1.Lease](ctx, h.LocalNow, storedLease)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errHere, err)
	}
	h.mu.Lock()
	if stored != nil {
		isLast := onHub.ResourceVersion != "" && stored.Annotations[clusterset.AnnotationRenewed] == kube.Version(onHub)
		// renewTime only increases, so an earlier one is from a backup of the hub.
		mine = mine || isLast || onHub.Spec.RenewTime.Before(stored.Spec.RenewTime)
		if h.lastRenewTime == nil || h.lastRenewTime.Before(stored.Spec.RenewTime) {
			h.lastRenewTime = stored.Spec.RenewTime
		}
		if h.last == nil && stored.Spec.RenewTime != nil {
			h.writtenBefore = lastWrite(stored.Spec.RenewTime, h.interval)
			h.foundLast = h.foundLast || isLast
			if h.lostBefore = h.writtenBefore; h.foundLast {
				h.lostBefore, _ = time.Parse(time.RFC3339Nano, stored.Annotations[clusterset.AnnotationLost])
			}
		}
	}
	wait := !mine && h.foreign.observe(onHub, h.Now(), h.interval, h.duration)
	// The holder is a process of this cluster, or of the one that this is a clone of.
	related := stored != nil && ptr.Equal(stored.Spec.HolderIdentity, onHub.Spec.HolderIdentity)
	// A holder that never stored a renewal here shows by a second version that it runs.
	ask := (related || h.foreign.versions > 1) && (h.foreign.asked == 0 ||
		h.foreign.asked < maxAsked && onHub.Annotations[clusterset.AnnotationAskedBy] == "")
	h.mu.Unlock()
	if !wait {
		return onHub, nil
	}
	if ask {
		h.askHolder(ctx, onHub)
	}
	return nil, errForeign
}

// askHolder changes the Lease. If that fails, the next try to renew asks.
func (h *Heartbeat) askHolder(ctx context.Context, lease *coordinationv1.Lease) {
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, clusterset.AnnotationAskedBy, h.Holder)
	if err := h.Hub().Update(ctx, lease); err != nil {
		log.FromContext(ctx).Info("asking the holder of the Lease failed", "reason", err.Error())
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &h.foreign
	f.version, f.since, f.versions = kube.Version(lease), h.Now(), 1
	f.asked++
}

// storeRenewal stores a renewal in this cluster. Without it, the next process takes the renewal for foreign and waits.
func (h *Heartbeat) storeRenewal(ctx context.Context, renewed *coordinationv1.Lease) {
	err := h.writeStoredRenewal(ctx, renewed)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil && h.notStored == nil {
		log.FromContext(ctx).
			Info("storing the last Lease renewal failed; an agent that starts now waits before it publishes",
				"reason", err.Error())
	}
	h.notStored = err
}

func (h *Heartbeat) writeStoredRenewal(ctx context.Context, renewed *coordinationv1.Lease) error {
	stored, err := kube.Get[*coordinationv1.Lease](ctx, h.LocalNow, storedLease)
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: storedLease.Namespace,
		Name:      storedLease.Name,
		Labels:    map[string]string{derived.LabelManagedBy: kube.Manager},
	}}
	if stored != nil {
		lease = stored.DeepCopy()
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, clusterset.AnnotationRenewed, kube.Version(renewed))
	if lost, _ := h.HubMayHaveLost(); !lost.IsZero() {
		text := lost.UTC().Format(time.RFC3339Nano)
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, clusterset.AnnotationLost, text)
	}
	lease.Spec.HolderIdentity = renewed.Spec.HolderIdentity
	lease.Spec.LeaseDurationSeconds = renewed.Spec.LeaseDurationSeconds
	lease.Spec.RenewTime = renewed.Spec.RenewTime
	return kube.Put(ctx, h.Local, lease)
}
