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

// settling is for how long one comparison of a member's records serves all that were missed before it.
const settling = 2 * time.Second

// absence is since when a record has been missed, and when it last was.
type absence struct{ since, last time.Time }

// statement is whether a member's Lease stated what the hub showed.
type statement struct {
	renewed  liveness.Renewal
	at       time.Time
	complete bool
}

// Gone returns whether a record that the hub does not show is gone by its owner's word: the owner's Lease has, since
// the record was first missed, stated exactly the set that the hub shows, and not suddenly few (DESIGN §2). It returns
// false while the hub is not seen as it is. Whoever misses a record must ask again within a minute. created is when it
// was, by the hub's clock: what is older than its member's departure is gone with it.
//
// A statement from before the record was missed proves nothing, nor does the first sight of a Lease: a hub that was
// emptied may show an old set, and the owner may have expired.
func (h *Heartbeat) Gone(cluster, record string, created time.Time) bool {
	since := h.missed(record)
	if !h.Fresh() {
		return false
	}
	ctx := context.Background() // caches answer at once
	if h.departed(ctx, cluster, created) {
		return true
	}
	h.mu.Lock()
	s := h.seen[cluster]
	live := s.changed && s.at.After(since) && h.Now().Sub(s.at) < h.duration
	was, known := h.complete[cluster]
	h.mu.Unlock()
	if !live {
		return false
	}
	if known && was.renewed == s.renewed && h.Now().Sub(was.at) < settling {
		return was.complete
	}
	complete, err := h.compare(ctx, cluster, s.states)
	if err != nil {
		return false
	}
	h.mu.Lock()
	h.complete[cluster] = statement{s.renewed, h.Now(), complete}
	h.mu.Unlock()
	return complete
}

// departed returns whether the hub says that a member left or was evicted after it had created a record. The absence of
// its ClusterProfile proves nothing: an emptied hub has none either (DESIGN §2).
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

// missed returns since when a record has been missed without a minute's pause.
func (h *Heartbeat) missed(record string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	if now.Sub(h.swept) > time.Minute { // not each time: there may be thousands
		h.swept = now
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

// compare returns whether a member states exactly what the hub shows of it, and not suddenly few of what is in effect
// here.
func (h *Heartbeat) compare(ctx context.Context, cluster, states string) (bool, error) {
	shown, withdrawn, err := h.onHub(ctx, cluster)
	if err != nil {
		return false, err
	}
	held, err := h.inEffect(ctx, cluster)
	if err != nil {
		return false, err
	}
	complete, err := liveness.Complete(states, shown, withdrawn, held)
	if err != nil {
		log.Log.WithName("heartbeat").Info("the records of a member are held", "member", cluster, "reason", err.Error())
	}
	return complete, nil
}

// own returns the names of the records that this member means to have, by its own cluster and never by the hub.
func (h *Heartbeat) own(ctx context.Context) (names []string, err error) {
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

// onHub returns the names of a member's records on the hub.
func (h *Heartbeat) onHub(ctx context.Context, cluster string) (live, withdrawn []string, err error) {
	of := []client.ListOption{client.InNamespace(h.HubNamespace), client.MatchingFields{kube.ByCluster: cluster}}
	var exports hubv1alpha1.ServiceExportRecordList
	if err := h.Hub().List(ctx, &exports, of...); err != nil {
		return nil, nil, err
	}
	var slices hubv1alpha1.EndpointRecordList
	if err := h.Hub().List(ctx, &slices, of...); err != nil {
		return nil, nil, err
	}
	add := func(name string, gone bool) {
		if gone {
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

// inEffect returns the names of a member's records that are in effect in this cluster.
func (h *Heartbeat) inEffect(ctx context.Context, cluster string) (names []string, err error) {
	of := client.MatchingFields{kube.ByCluster: cluster}
	var exports hubv1alpha1.ServiceExportRecordList
	if err := h.Local.List(ctx, &exports, client.InNamespace(kube.SystemNamespace), of); err != nil {
		return nil, err
	}
	for i := range exports.Items {
		if !exports.Items[i].Spec.Withdrawn {
			names = append(names, exports.Items[i].Name)
		}
	}
	var slices discoveryv1.EndpointSliceList
	if err := h.Local.List(ctx, &slices, of); err != nil {
		return nil, err
	}
	for i := range slices.Items {
		names = append(names, slices.Items[i].Annotations[endpoints.AnnotationRecord])
	}
	return names, nil
}
