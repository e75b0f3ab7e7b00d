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

// Gone is kube.Env's. A statement from before the record was missed says nothing of it: records may have come after it, and a hub that
// was emptied shows the old set then. Neither does the first sight of a Lease, whose owner may be dead, or away from a hub that was emptied and
// filled again.
func (h *Heartbeat) Gone(cluster, record string, created time.Time) bool {
	since := h.missed(record)
	if !h.Fresh() {
		return false
	}
	if h.departed(cluster, created) {
		return true
	}
	h.mu.Lock()
	s := h.seen[cluster]
	lives := s.changed && s.at.After(since) && h.Now().Sub(s.at) < h.duration
	was, known := h.verdicts[cluster]
	h.mu.Unlock()
	if !lives {
		return false
	}
	// One walk over a member's records does for all that were missed before its renewal.
	if known && was.renewed == s.renewed && h.Now().Sub(was.at) < settling {
		return was.complete
	}
	ctx := context.Background() // caches answer at once
	shown, withdrawn, err := h.shown(ctx, cluster)
	if err != nil {
		return false
	}
	held, err := h.held(ctx, cluster)
	if err != nil {
		return false
	}
	complete, err := liveness.Complete(s.states, shown, withdrawn, held)
	if err != nil {
		log.Log.WithName("heartbeat").Info("a peer's records are held", "peer", cluster, "why", err.Error())
	}
	h.mu.Lock()
	h.verdicts[cluster] = verdict{s.renewed, h.Now(), complete}
	h.mu.Unlock()
	return complete
}

// verdict is whether a member's Lease stated what the hub showed.
type verdict struct {
	renewed  liveness.Renewal
	at       time.Time
	complete bool
}

// missed tells since when a record has been missed without a minute's pause.
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

// own are the names of the records that this member means to have: by what is in its own cluster, never by what the hub shows.
func (h *Heartbeat) own(ctx context.Context) (names []string, err error) {
	var records hubv1alpha1.ServiceExportRecordList
	if err := h.Local.List(ctx, &records, client.InNamespace(kube.SystemNamespace), client.MatchingFields{kube.ByCluster: h.Cluster}); err != nil {
		return nil, err
	}
	for i := range records.Items {
		rec := &records.Items[i]
		if rec.Spec.Withdrawn {
			continue
		}
		names = append(names, rec.Name)
		var slices discoveryv1.EndpointSliceList
		if err := h.Local.List(ctx, &slices, client.InNamespace(rec.Spec.ServiceNamespace), client.MatchingFields{kube.ByService: kube.Key(kube.Exported(rec))}); err != nil {
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

// shown are the names of a member's records on the hub.
func (h *Heartbeat) shown(ctx context.Context, cluster string) (live, withdrawn []string, err error) {
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

// held are the names of a member's records that are in effect here.
func (h *Heartbeat) held(ctx context.Context, cluster string) (names []string, err error) {
	var exports hubv1alpha1.ServiceExportRecordList
	if err := h.Local.List(ctx, &exports, client.InNamespace(kube.SystemNamespace), client.MatchingFields{kube.ByCluster: cluster}); err != nil {
		return nil, err
	}
	for i := range exports.Items {
		if !exports.Items[i].Spec.Withdrawn {
			names = append(names, exports.Items[i].Name)
		}
	}
	var slices discoveryv1.EndpointSliceList
	if err := h.Local.List(ctx, &slices, client.MatchingFields{kube.ByCluster: cluster}); err != nil {
		return nil, err
	}
	for i := range slices.Items {
		names = append(names, slices.Items[i].Annotations[endpoints.AnnotationRecord])
	}
	return names, nil
}
