// Package health writes what this cluster's agent knows of its membership: the Membership here, and its condition
// Ready to this member's ClusterProfile on the hub. It decides nothing: decide/health does. It runs also while this
// cluster is no member, because the reason is what users look for.
package health

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// interval is how often the agent looks for what no watch shows: the DNS, its rights, and the hub's answers.
const interval = 10 * time.Second

// reportEvery is after what time an unchanged status is written: who sees an older one knows that no agent works. The
// kubelet's default for the status of a Node is the same.
const reportEvery = 5 * time.Minute

// lately is for how long a hub that takes renewals need not show any: behind a proxy that holds watches back, it shows
// them when it is listed, about once a minute.
const lately = 2 * time.Minute

// silentLimit is for how long another member's agent may be silent, as while it starts.
const silentLimit = 30 * time.Second

type Config struct {
	Cluster      string // this member's cluster ID
	HubNamespace string
	LocalNow     client.Client        // reads past the caches
	Hub          func() client.Client // nil until the hub's caches have synced
	// Seen returns the facts that the agent has from the hub and from starting.
	Seen func() health.Facts
	// Rights returns which rights the agent lacks in this cluster and on the hub. With an error, there may be more.
	Rights func(context.Context) (here, onHub []string, err error)
	// DNS asks the resolver of this Pod; nil outside a cluster.
	DNS func(context.Context) error
	Now func() time.Time
}

// Reporter writes the Membership.
type Reporter struct {
	Config
	mu         sync.Mutex // one Report at a time
	budget     *rate.Limiter
	dns        health.DNS
	dnsAt      time.Time
	set        string   // that this cluster is a member of, as last read
	here, hub  []string // missing rights
	rights     error    // why there may be more
	shown      bool     // the hub showed this agent's own renewals when Ready was decided
	shownAt    time.Time
	rightsNext time.Time
	silent     map[string]time.Time // since when the agents of other members do not answer, by ID
	decided    atomic.Pointer[[]metav1.Condition]
}

// New returns a Reporter.
func New(c Config) *Reporter {
	// A part of the budget for one object (K4322: one update per 30 s, burst 10): the inventory on the hub has half,
	// membership a quarter.
	return &Reporter{Config: c, budget: rate.NewLimiter(rate.Every(2*time.Minute), 2)}
}

// Controller returns the controller that reports while this cluster is a member. Its only request is the Membership.
func (r *Reporter) Controller() kube.Controller {
	self := types.NamespacedName{Name: hubv1alpha1.MembershipName}
	all := kube.Named(func(client.Object) types.NamespacedName { return self })
	return kube.Controller{
		Name: "health",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &aboutv1beta1.ClusterProperty{}, Requests: all, Alike: kube.SameProperty},
			{Side: kube.Local, Object: &coordinationv1.Lease{}, Requests: all, Alike: func(was, is client.Object) bool {
				return is.GetName() != clusterset.LeaseRenewed && kube.SameState(was, is)
			}},
		},
		Reconciler: r,
	}
}

// Reconcile reports, and looks again after a while.
func (r *Reporter) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	ready, err := r.Report(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	wait, err := r.mirror(ctx, ready)
	if wait <= 0 || wait > interval {
		wait = interval
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// Conditions returns those that were decided last, without their times; nil before that.
func (r *Reporter) Conditions() []metav1.Condition { return ptr.Deref(r.decided.Load(), nil) }

// Report writes what differs into the Membership, and returns condition Ready. A cluster whose CRDs are older than the
// agent has no Memberships: that is no error.
func (r *Reporter) Report(ctx context.Context) (ready metav1.Condition, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	facts, err := r.gather(ctx)
	if err != nil {
		return ready, err
	}
	r.shown = facts.Fresh && !facts.Cloned
	decided := health.Decide(&facts)
	r.decided.Store(&decided)
	ready = decided[len(decided)-1]
	m, err := kube.Get[*hubv1alpha1.Membership](ctx, r.LocalNow, types.NamespacedName{Name: hubv1alpha1.MembershipName})
	if err == nil && m == nil {
		m = &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName}}
		err = r.LocalNow.Create(ctx, m)
	}
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		log.FromContext(ctx).V(1).Info("this cluster takes no Membership", "reason", err.Error())
		return ready, nil
	}
	if err != nil {
		return ready, err
	}
	want := m.DeepCopy()
	want.Status.ClusterSet, want.Status.ClusterID = facts.Set, facts.Cluster
	want.Status.Hub, want.Status.HubNamespace = facts.Hub, facts.HubNamespace
	now := metav1.NewTime(r.Now())
	want.Status.Conditions, _ = conditions.Set(m.Status.Conditions, decided, m.Generation, now)
	recent := now.Sub(m.Status.ReportedAt.Time).Abs() < reportEvery
	if recent && equality.Semantic.DeepEqual(want.Status, m.Status) {
		return ready, nil
	}
	want.Status.ReportedAt = now
	return ready, r.LocalNow.Status().Patch(ctx, want, kube.Changes(m))
}

// mirror writes the condition Ready as MemberReady to this member's ClusterProfile. It returns how long it must wait.
func (r *Reporter) mirror(ctx context.Context, ready metav1.Condition) (time.Duration, error) {
	r.mu.Lock()
	shown := r.shown
	r.mu.Unlock()
	hub := r.Hub()
	if hub == nil || !shown {
		return 0, nil
	}
	name := types.NamespacedName{Namespace: r.HubNamespace, Name: r.Cluster}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, hub, name)
	if err != nil || profile == nil {
		return 0, err
	}
	ready.Type = inventoryv1alpha1.ConditionMemberReady
	all, changed := conditions.Set(
		profile.Status.Conditions, []metav1.Condition{ready}, profile.Generation, metav1.NewTime(r.Now()))
	if !changed {
		return 0, nil
	}
	want := profile.DeepCopy()
	want.Status.Conditions = all
	wait, err := kube.PatchStatus(ctx, hub, r.budget, r.Now(), want, profile)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return 0, nil // the hub's policy is older than this agent
	}
	return wait, err
}

func (r *Reporter) gather(ctx context.Context) (health.Facts, error) {
	f := r.Seen()
	f.Cluster, f.HubNamespace = r.Cluster, r.HubNamespace
	now := r.Now()
	if f.Fresh {
		r.shownAt = now
	}
	f.Lately = now.Sub(r.shownAt) < lately
	set, err := kube.Property(ctx, r.LocalNow, clusterset.PropertySet)
	switch {
	case apierrors.IsForbidden(err): // it lacks rights, and says so
		r.rightsNext, err = now, nil
	case err != nil:
		return f, err
	case set != nil:
		r.set = set.Spec.Value
	default:
		r.set = ""
	}
	f.Set = r.set
	if apierrors.IsForbidden(f.Answer) {
		r.rightsNext = now
	}
	if !now.Before(r.rightsNext) {
		r.here, r.hub, r.rights = r.Rights(ctx)
		r.rightsNext = now.Add(2 * time.Minute)
		if r.rights != nil || len(r.here)+len(r.hub) > 0 {
			r.rightsNext = now.Add(interval)
		}
	}
	f.MissingHere, f.MissingOnHub, f.Rights = r.here, r.hub, r.rights
	if r.DNS != nil && now.Sub(r.dnsAt) >= interval {
		r.dns, r.dnsAt = health.DNS{Asked: true, Err: r.DNS(ctx)}, now
	}
	f.DNS = r.dns
	if hub := r.Hub(); hub != nil {
		err = r.others(ctx, hub, &f)
	}
	return f, err
}

// others reads what the hub shows: whether it has its ClusterSet, and what is known of the other members.
func (r *Reporter) others(ctx context.Context, hub client.Client, f *health.Facts) error {
	_, found, err := kube.SetOf(ctx, hub, r.HubNamespace)
	if err != nil {
		return err
	}
	if !found && f.Answer == nil {
		f.Answer = &health.NotAdmitted{Reason: "NoClusterSet", Err: fmt.Errorf("namespace %s of the hub does not have "+
			"exactly one ClusterSet any more: what is imported stays, the defaults hold, and an agent that starts "+
			"now waits", r.HubNamespace)}
	}
	var profiles inventoryv1alpha1.ClusterProfileList
	if err := hub.List(ctx, &profiles, client.InNamespace(r.HubNamespace)); err != nil {
		return err
	}
	f.Ranges = map[string]health.Ranges{}
	for i := range profiles.Items {
		p := &profiles.Items[i]
		reported := grants.Read(p.Status.Properties)
		f.Ranges[p.Name] = health.Ranges{Pods: reported.Pods, Services: reported.Services,
			Unreadable: reported.Unreadable}
	}
	members, err := kube.Members(ctx, hub, r.HubNamespace)
	if err != nil {
		return err
	}
	sources, err := kube.Sources(ctx, r.LocalNow)
	if err != nil {
		return err
	}
	now, silent := r.Now(), map[string]time.Time{}
	for i := range sources {
		source := &sources[i]
		id := source.Labels[liveness.LabelSource]
		if _, member := members[id]; id == r.Cluster || !member {
			continue
		}
		state, reached := liveness.StateOf(source), reach.Read(source)
		since := reached.Since // of its state
		if reached.State == reach.Unknown {
			since = source.CreationTimestamp.Time
		}
		since = now.Add(min(0, since.Sub(now))) // another clock may be ahead
		if earlier, was := r.silent[id]; was {
			since = earlier
		}
		isSilent := reached.State != reach.Answers && len(reach.ReadAddresses(source, nil)) > 0
		if isSilent {
			silent[id] = since
		}
		f.Peers = append(f.Peers, health.Peer{
			ID:       id,
			Expired:  state.Expired,
			OnExpiry: state.OnExpiry,
			Silent:   isSilent && now.Sub(since) > silentLimit,
		})
	}
	r.silent = silent
	return nil
}
