package heartbeat

import (
	"context"
	"maps"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// comparisonTTL is how long a comparison of a member's records is reused.
const comparisonTTL = 2 * time.Second

// absence holds when Gone was first and last called for a record.
type absence struct{ since, last time.Time }

// comparison is the result of compare for one renewal of a member's Lease.
type comparison struct {
	renewed  liveness.Renewal
	at       time.Time
	complete bool
}

// Gone returns whether a record that the hub does not show was removed by its owner. It returns
// true in two cases:
//   - Since the first call for the record, the owner has renewed its Lease, the Lease lists exactly
//     the records that the hub shows, and these are not suddenly few (DESIGN §2).
//   - The member departed after created, which is the record's creation time on the hub's clock.
//
// It returns false while the view of the hub is stale. A caller must call again within a minute, or
// else the wait starts over. A renewal before the first call proves nothing, and neither does the
// first observation of a Lease: a hub that lost its data may show an old Lease of a member that has
// expired.
func (h *Heartbeat) Gone(cluster, record string, created time.Time) bool {
	since := h.missingSince(record)
	if !h.Fresh() {
		return false
	}
	ctx := context.Background() // it reads caches only
	if h.departed(ctx, cluster, created) {
		return true
	}
	h.mu.Lock()
	s := h.seen[cluster]
	live := s.changed && s.at.After(since) && h.Now().Sub(s.at) < h.duration
	was, known := h.comparisons[cluster]
	h.mu.Unlock()
	if !live {
		return false
	}
	if known && was.renewed == s.renewed && h.Now().Sub(was.at) < comparisonTTL {
		return was.complete
	}
	complete, err := h.compare(ctx, cluster, s.states)
	if err != nil {
		return false
	}
	h.mu.Lock()
	h.comparisons[cluster] = comparison{s.renewed, h.Now(), complete}
	h.mu.Unlock()
	return complete
}

// departed returns whether the ClusterSet lists a member as departed or evicted after created. A
// missing ClusterProfile proves nothing, because a hub that lost its data has none either (DESIGN
// §2).
func (h *Heartbeat) departed(ctx context.Context, cluster string, created time.Time) bool {
	var sets hubv1alpha1.ClusterSetList
	if err := h.Hub().List(ctx, &sets, client.InNamespace(h.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	for i := range sets.Items {
		for _, d := range sets.Items[i].Status.Departed {
			if d.ClusterID == cluster {
				return created.Before(d.At.Time)
			}
		}
	}
	return false
}

// missingSince notes that a record is missing, and returns the time of the first call that no pause of over a minute
// separates from this one.
func (h *Heartbeat) missingSince(record string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	if now.Sub(h.lastCleanup) > time.Minute { // not in each call: there may be thousands of records
		h.lastCleanup = now
		maps.DeleteFunc(h.missing, func(_ string, m absence) bool { return now.Sub(m.last) > time.Minute })
	}
	m, ok := h.missing[record]
	if !ok || now.Sub(m.last) > time.Minute {
		m.since = now
	}
	m.last = now
	h.missing[record] = m
	return m.since
}

// compare returns whether a member's Lease lists exactly the records that the hub shows, and not
// suddenly few of those in effect in this cluster.
func (h *Heartbeat) compare(ctx context.Context, cluster, states string) (bool, error) {
	shown, withdrawn, err := h.recordsOnHub(ctx, cluster)
	if err != nil {
		return false, err
	}
	held, err := h.recordsInEffect(ctx, cluster)
	if err != nil {
		return false, err
	}
	complete, err := liveness.Complete(states, shown, withdrawn, held)
	if err != nil {
		log.Log.WithName("heartbeat").
			Info("the records of a member stay in effect", "member", cluster, "reason", err.Error())
	}
	return complete, nil
}

// ownRecords returns the names of the records that this member must have on the hub, from the state
// of its own cluster.
func (h *Heartbeat) ownRecords(ctx context.Context) (names []string, err error) {
	var records hubv1alpha1.ServiceExportRecordList
	err = h.Local.List(
		ctx,
		&records,
		client.InNamespace(kube.SystemNamespace),
		client.MatchingFields{kube.ByCluster: h.Cluster},
	)
	if err != nil {
		return nil, err
	}
	for i := range records.Items {
		rec := &records.Items[i]
		if rec.Spec.Withdrawn {
			continue
		}
		names = append(names, rec.Name)
		var slices discoveryv1.EndpointSliceList
		err := h.Local.List(ctx, &slices, client.InNamespace(rec.Spec.ServiceNamespace),
			client.MatchingFields{kube.ByService: kube.Key(kube.Exported(rec))})
		if err != nil {
			return nil, err
		}
		for j := range slices.Items {
			if _, ok := clusterset.EndpointsOf(h.Cluster, rec.Spec.ServiceName, &slices.Items[j]); ok {
				names = append(names, clusterset.EndpointRecordName(string(slices.Items[j].UID), h.Cluster))
			}
		}
	}
	return names, nil
}

// recordsOnHub returns the names of a member's records on the hub.
func (h *Heartbeat) recordsOnHub(ctx context.Context, cluster string) (live, withdrawn []string, err error) {
	options := []client.ListOption{client.InNamespace(h.HubNamespace), client.MatchingFields{kube.ByCluster: cluster}}
	var exports hubv1alpha1.ServiceExportRecordList
	if err := h.Hub().List(ctx, &exports, options...); err != nil {
		return nil, nil, err
	}
	var slices hubv1alpha1.EndpointRecordList
	if err := h.Hub().List(ctx, &slices, options...); err != nil {
		return nil, nil, err
	}
	add := func(name string, isWithdrawn bool) {
		if isWithdrawn {
			withdrawn = append(withdrawn, name)
		} else {
			live = append(live, name)
		}
	}
	for i := range exports.Items {
		add(exports.Items[i].Name, exports.Items[i].Spec.Withdrawn)
	}
	for i := range slices.Items {
		add(slices.Items[i].Name, slices.Items[i].Spec.Withdrawn)
	}
	return live, withdrawn, nil
}

// recordsInEffect returns the names of a member's records that are in effect in this cluster.
func (h *Heartbeat) recordsInEffect(ctx context.Context, cluster string) (names []string, err error) {
	ofCluster := client.MatchingFields{kube.ByCluster: cluster}
	var exports hubv1alpha1.ServiceExportRecordList
	if err := h.Local.List(ctx, &exports, client.InNamespace(kube.SystemNamespace), ofCluster); err != nil {
		return nil, err
	}
	for i := range exports.Items {
		if !exports.Items[i].Spec.Withdrawn {
			names = append(names, exports.Items[i].Name)
		}
	}
	var slices discoveryv1.EndpointSliceList
	if err := h.Local.List(ctx, &slices, ofCluster); err != nil {
		return nil, err
	}
	for i := range slices.Items {
		names = append(names, slices.Items[i].Annotations[endpoints.AnnotationRecord])
	}
	return names, nil
}
