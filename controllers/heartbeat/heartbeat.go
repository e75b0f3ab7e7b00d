// Package heartbeat renews this member's Lease on the hub, and watches everybody's (SPEC T1, DESIGN §7). The own one, seen again, proves
// that the hub is seen as it is; a peer's, seen to change, that the peer lives and what it states of its records.
//
// Time is only ever compared with time of the same clock: when this agent saw a change, never what another's clock wrote.
package heartbeat

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Heartbeat is what this agent has seen of the Leases.
type Heartbeat struct {
	*kube.Env
	holder string

	mu       sync.Mutex
	duration time.Duration
	wrote    metav1.MicroTime // the own renewal that is to be seen again
	wroteAt  time.Time        // when, by a clock that nobody sets
	first    time.Time        // when the first one was
	acquired metav1.MicroTime // what that one said
	unseen   time.Time        // since when the hub takes renewals and shows none
	// predecessor held the Lease before.
	predecessor string
	seen        map[string]sight
	missing     map[string]absence // by record
	rival       rival
	verdicts    map[string]verdict

	// Of verify alone.
	verified int64           // the hub's connections when its caches were last found right
	look     time.Time       // when they are compared again
	interval time.Duration   // from the last comparison to then
	wrong    map[string]bool // what was wrong at the last look: kind, name and resourceVersion on the hub
}

// absence is since when a record has been missed, and when it last was.
type absence struct{ since, last time.Time }

// sight is the last change of a Lease that was seen.
type sight struct {
	renewed metav1.MicroTime
	at      time.Time // by this agent's clock
	changed bool      // it was seen to change: somebody renews it
	states  string
}

// New returns a Heartbeat that has seen nothing. holder names this instance of the agent.
func New(env *kube.Env, holder string) *Heartbeat {
	return &Heartbeat{Env: env, holder: holder, duration: 40 * time.Second, seen: map[string]sight{}, missing: map[string]absence{}, verdicts: map[string]verdict{}}
}

// Controller is this room's entry in the list of controllers. Requests are the names of Leases; the ClusterSet asks for the own one.
func (h *Heartbeat) Controller() kube.Controller {
	return kube.Controller{
		Name:     "heartbeat",
		NeedsHub: true,
		Watches: []kube.Watch{
			{Side: kube.Hub, Object: &hubv1alpha1.ClusterSet{}, Requests: kube.Named(func(client.Object) types.NamespacedName {
				return types.NamespacedName{Name: h.Cluster}
			})},
			{Side: kube.Hub, Object: &coordinationv1.Lease{}, Requests: kube.Named(func(o client.Object) types.NamespacedName {
				return types.NamespacedName{Name: o.GetName()}
			})},
		},
		Reconciler: h,
	}
}

// Fresh tells whether the hub has shown the own renewal within the Lease's duration.
func (h *Heartbeat) Fresh() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.seen[h.Cluster]
	return ok && h.Now().Sub(s.at) < h.duration
}

// HubSeen is when that was last; zero before the first time.
func (h *Heartbeat) HubSeen() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[h.Cluster].at
}

// Gone is kube.Env's. A statement from before the record was missed says nothing of it: records may have come after it, and a hub that
// was emptied shows the old set then. Neither does the first sight of a Lease, whose owner may be dead.
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
	if known && was.renewed.Equal(&s.renewed) && h.Now().Sub(was.at) < settling {
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
	renewed  metav1.MicroTime
	at       time.Time
	complete bool
}

// missed tells since when a record has been missed without a minute's pause.
func (h *Heartbeat) missed(record string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.Now()
	for r, m := range h.missing {
		if now.Sub(m.last) > time.Minute {
			delete(h.missing, r)
		}
	}
	m, ok := h.missing[record]
	if !ok {
		m.since = now
	}
	m.last = now
	h.missing[record] = m
	return m.since
}

// Reconcile renews the own Lease where that is due, and takes note of every other.
func (h *Heartbeat) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: h.HubNamespace, Name: req.Name}
	shown, err := kube.Get[*coordinationv1.Lease](ctx, h.Hub(), name)
	if err != nil {
		return reconcile.Result{}, err
	}
	h.note(req.Name, shown)
	if req.Name != h.Cluster {
		return reconcile.Result{}, nil
	}
	if shown != nil {
		h.watchRival(shown)
	}
	if h.Rival() {
		return reconcile.Result{RequeueAfter: h.duration / 4}, nil
	}
	spec, _, err := kube.LeaseSpec(ctx, h.Env)
	if err != nil {
		return reconcile.Result{}, err
	}
	every := time.Duration(spec.RenewSeconds) * time.Second
	h.mu.Lock()
	h.duration = time.Duration(spec.DurationSeconds) * time.Second
	due := time.Duration(0)
	if !h.wroteAt.IsZero() {
		due = every - h.Now().Sub(h.wroteAt)
	}
	h.mu.Unlock()
	if due > 0 {
		return reconcile.Result{RequeueAfter: due}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(every/2, time.Second)) // the next one is to be in time
	defer cancel()
	if err := h.renew(ctx, name, spec); err != nil {
		return reconcile.Result{}, err
	}
	h.suspect()
	return reconcile.Result{RequeueAfter: every}, nil
}

// suspect asks for a new start where the hub takes renewals and does not show them: its watches are silently dead (DESIGN §7).
func (h *Heartbeat) suspect() {
	h.mu.Lock()
	if h.unseen.IsZero() {
		h.unseen = h.Now()
	}
	silent := h.Now().Sub(h.unseen)
	h.mu.Unlock()
	if silent > h.duration {
		h.Relist("HubSilent", fmt.Sprintf("The hub takes this member's Lease renewals, and its watch has shown none for %v.", silent.Round(time.Second)))
	}
}

// note keeps when a change was seen. The own Lease counts only as this instance last wrote it.
func (h *Heartbeat) note(cluster string, lease *coordinationv1.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lease == nil || lease.Spec.RenewTime == nil {
		return // what was seen grows old
	}
	renewed := *lease.Spec.RenewTime
	was, ok := h.seen[cluster]
	// One that is older than what was seen came back from a backup, and says nothing of now.
	if ok && !was.renewed.Before(&renewed) || cluster == h.Cluster && !renewed.Equal(&h.wrote) {
		return
	}
	if cluster == h.Cluster {
		h.unseen = time.Time{}
	}
	h.seen[cluster] = sight{renewed: renewed, at: h.Now(), changed: ok, states: lease.Annotations[liveness.AnnotationRecords]}
}

// renew writes the own Lease. It goes by the hub and not by the cache, which may be what is wrong; and a resourceVersion below one that
// was seen tells that the hub came back from a backup: its watches then wait for versions that will be used a second time.
func (h *Heartbeat) renew(ctx context.Context, name types.NamespacedName, spec hubv1alpha1.LeaseSpec) error {
	names, err := h.own(ctx)
	if err != nil {
		return err
	}
	lease, err := kube.Get[*coordinationv1.Lease](ctx, h.HubNow(), name)
	if err != nil {
		return err
	}
	write := h.Hub().Update
	if lease == nil {
		lease, write = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}, h.create
	}
	highest, err := h.highest(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	now := renewal(h.Now(), lease.Spec.RenewTime)
	h.wrote, h.wroteAt = now, h.Now() // before it is written, since it may be seen before this returns
	if h.first.IsZero() {
		h.first, h.predecessor = h.Now(), ptr.Deref(lease.Spec.HolderIdentity, "")
		h.acquired = metav1.NewMicroTime(now.Time)
	}
	since := h.acquired
	h.mu.Unlock()
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &h.holder, &spec.DurationSeconds, &now
	lease.Spec.AcquireTime = &since
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, liveness.AnnotationRecords, liveness.Statement(names))
	h.say(lease)
	if err := write(ctx, lease); err != nil {
		h.mu.Lock()
		h.wroteAt = time.Time{} // due again
		h.mu.Unlock()
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, highest); err == nil && order <= 0 {
		h.Relist("HubRestored", fmt.Sprintf("The hub wrote resourceVersion %s after %s was seen: it was restored from a backup. What is in effect stays; what owners publish again is followed.",
			lease.ResourceVersion, highest))
	}
	return nil
}

// renewal is what the next one says: the time, and always later than the last, whatever the clock does.
func renewal(now time.Time, last *metav1.MicroTime) metav1.MicroTime {
	next := metav1.NewMicroTime(now.Truncate(time.Microsecond))
	if last != nil && !last.Before(&next) {
		next = metav1.NewMicroTime(last.Add(time.Microsecond))
	}
	return next
}

// highest is the highest resourceVersion that the hub's caches have seen; what is written later must be above.
func (h *Heartbeat) highest(ctx context.Context) (string, error) {
	highest := "1"
	for _, list := range []client.ObjectList{&hubv1alpha1.ServiceExportRecordList{}, &hubv1alpha1.EndpointRecordList{}, &coordinationv1.LeaseList{}} {
		if err := h.Hub().List(ctx, list, client.InNamespace(h.HubNamespace), client.UnsafeDisableDeepCopy); err != nil {
			return "", err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			version := o.(client.Object).GetResourceVersion()
			if order, err := resourceversion.CompareResourceVersion(version, highest); err == nil && order > 0 {
				highest = version
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return highest, nil
}

func (h *Heartbeat) create(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return h.Hub().Create(ctx, o)
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
