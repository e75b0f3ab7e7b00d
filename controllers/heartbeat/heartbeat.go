// Package heartbeat renews this member's Lease on the hub, and watches everybody's (SPEC T1, DESIGN §7). The own one, seen again, proves
// that the hub is seen as it is; a peer's, seen to change, that the peer lives and what it states of its records.
//
// Time is only ever compared with time of the same clock: when this agent saw a change, never what another's clock wrote.
package heartbeat

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	seen     map[string]sight
}

// sight is the last change of a Lease that was seen.
type sight struct {
	renewed metav1.MicroTime
	at      time.Time // by this agent's clock
	states  string
}

// New returns a Heartbeat that has seen nothing. holder names this instance of the agent.
func New(env *kube.Env, holder string) *Heartbeat {
	return &Heartbeat{Env: env, holder: holder, duration: 40 * time.Second, seen: map[string]sight{}}
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
func (h *Heartbeat) Fresh() bool { return h.live(h.Cluster) }

func (h *Heartbeat) live(cluster string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.seen[cluster]
	return ok && h.Now().Sub(s.at) < h.duration
}

// Complete is kube.Env's.
func (h *Heartbeat) Complete(cluster string) bool {
	if !h.Fresh() || !h.live(cluster) {
		return false
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
	h.mu.Lock()
	states := h.seen[cluster].states
	h.mu.Unlock()
	complete, err := liveness.Complete(states, shown, withdrawn, held)
	if err != nil {
		log.Log.WithName("heartbeat").Info("a peer's records are held", "peer", cluster, "why", err.Error())
	}
	return complete
}

// Reconcile renews the own Lease where that is due, and takes note of every other.
func (h *Heartbeat) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := types.NamespacedName{Namespace: h.HubNamespace, Name: req.Name}
	lease, err := kube.Get[*coordinationv1.Lease](ctx, h.Hub(), name)
	if err != nil {
		return reconcile.Result{}, err
	}
	h.note(req.Name, lease)
	if req.Name != h.Cluster {
		return reconcile.Result{}, nil
	}
	spec, err := h.spec(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	every := time.Duration(spec.RenewSeconds) * time.Second
	h.mu.Lock()
	h.duration = time.Duration(spec.DurationSeconds) * time.Second
	due := every - h.Now().Sub(h.wrote.Time)
	h.mu.Unlock()
	if lease != nil && due > 0 {
		return reconcile.Result{RequeueAfter: due}, nil
	}
	if err := h.renew(ctx, name, lease, spec); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: every}, nil
}

// note keeps when a change was seen. The own Lease counts only as this instance last wrote it.
func (h *Heartbeat) note(cluster string, lease *coordinationv1.Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lease == nil || lease.Spec.RenewTime == nil {
		delete(h.seen, cluster)
		return
	}
	renewed := *lease.Spec.RenewTime
	was, ok := h.seen[cluster]
	if ok && was.renewed.Equal(&renewed) || cluster == h.Cluster && !renewed.Equal(&h.wrote) {
		return
	}
	h.seen[cluster] = sight{renewed: renewed, at: h.Now(), states: lease.Annotations[liveness.AnnotationRecords]}
}

func (h *Heartbeat) renew(ctx context.Context, name types.NamespacedName, was *coordinationv1.Lease, spec hubv1alpha1.LeaseSpec) error {
	names, err := h.own(ctx)
	if err != nil {
		return err
	}
	now := metav1.NewMicroTime(h.Now().Truncate(time.Microsecond))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	if was != nil {
		lease = was.DeepCopy()
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &h.holder, &spec.DurationSeconds, &now
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, liveness.AnnotationRecords, liveness.Statement(names))
	h.mu.Lock()
	h.wrote = now
	h.mu.Unlock()
	if was == nil {
		return h.Hub().Create(ctx, lease)
	}
	return h.Hub().Update(ctx, lease)
}

// spec is the ClusterSet's; there is one in the namespace.
func (h *Heartbeat) spec(ctx context.Context) (hubv1alpha1.LeaseSpec, error) {
	spec := hubv1alpha1.LeaseSpec{RenewSeconds: 10, DurationSeconds: 40}
	var sets hubv1alpha1.ClusterSetList
	if err := h.Hub().List(ctx, &sets, client.InNamespace(h.HubNamespace)); err != nil {
		return spec, err
	}
	if len(sets.Items) > 0 && sets.Items[0].Spec.Lease.RenewSeconds > 0 {
		spec = sets.Items[0].Spec.Lease
	}
	return spec, nil
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
