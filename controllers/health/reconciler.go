// Package health writes what this cluster's agent knows of its membership: the Membership here, and its condition
// Ready to this member's ClusterProfile on the hub. It decides nothing: decide/health does. It runs also while this
// cluster is no member, because the reason is what users look for.
package health

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

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

// reportTimeout is longer than an API server's default request timeout of one minute.
const reportTimeout = 90 * time.Second

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
	Kinds        []client.ObjectList  // that this cluster must serve
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
	kick       chan struct{}
	budget     *rate.Limiter
	dns        health.DNS
	dnsAt      time.Time
	set        string   // that this cluster is a member of, as last read
	here, hub  []string // missing rights
	rights     error    // why there may be more
	shownAt    time.Time
	rightsNext time.Time
	silent     map[string]time.Time // since when the agents of other members do not answer, by ID
	decided    atomic.Pointer[[]metav1.Condition]
}

// New returns a Reporter.
func New(c Config) *Reporter {
	// A part of the budget for one object (K4322: one update per 30 s, burst 10): the inventory on the hub has half,
	// membership a quarter.
	return &Reporter{Config: c, kick: make(chan struct{}, 1), budget: rate.NewLimiter(rate.Every(2*time.Minute), 2)}
}

// Run reports every interval, and after each Kick, until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	for look := time.NewTicker(interval); ; {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		case <-r.kick:
		}
		attempt, cancel := context.WithTimeout(ctx, reportTimeout)
		if err := r.Report(attempt); err != nil {
			log.FromContext(ctx).Info("writing the Membership failed", "reason", err.Error())
		}
		cancel()
	}
}

// Kick has Run report now.
func (r *Reporter) Kick() {
	select {
	case r.kick <- struct{}{}:
	default: // it is about to
	}
}

// Conditions returns those that were decided last, without their times; nil before that.
func (r *Reporter) Conditions() []metav1.Condition { return ptr.Deref(r.decided.Load(), nil) }

// Report writes what differs into the Membership, and condition Ready to this member's ClusterProfile if the hub showed
// this agent's own renewals when that was decided.
func (r *Reporter) Report(ctx context.Context) error {
	facts, err := r.gather(ctx)
	if err != nil {
		return err
	}
	decided := health.Decide(&facts)
	r.decided.Store(&decided)
	if err := r.write(ctx, &facts, decided); err != nil {
		return err
	}
	if hub := r.Hub(); hub != nil && facts.Fresh && !facts.Cloned {
		return r.mirror(ctx, hub, decided[len(decided)-1])
	}
	return nil
}

// write writes the Membership. A cluster whose CRDs are older than the agent has none: that is no error.
func (r *Reporter) write(ctx context.Context, facts *health.Facts, decided []metav1.Condition) error {
	m, err := kube.Get[*hubv1alpha1.Membership](ctx, r.LocalNow, types.NamespacedName{Name: hubv1alpha1.MembershipName})
	if err == nil && m == nil {
		m = &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName}}
		err = r.LocalNow.Create(ctx, m)
	}
	if isAbsent(err) {
		log.FromContext(ctx).V(1).Info("this cluster takes no Membership", "reason", err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	want := m.DeepCopy()
	want.Status.ClusterSet, want.Status.ClusterID = facts.Set, facts.Cluster
	want.Status.Hub, want.Status.HubNamespace = facts.Hub, facts.HubNamespace
	now := metav1.NewTime(r.Now())
	want.Status.Conditions, _ = conditions.Set(m.Status.Conditions, decided, m.Generation, now)
	recent := now.Sub(m.Status.ReportedAt.Time).Abs() < reportEvery
	if recent && equality.Semantic.DeepEqual(want.Status, m.Status) {
		return nil
	}
	want.Status.ReportedAt = now
	return r.LocalNow.Status().Patch(ctx, want, kube.Changes(m))
}

// mirror writes the condition Ready as MemberReady to this member's ClusterProfile. Without budget, a later pass does.
func (r *Reporter) mirror(ctx context.Context, hub client.Client, ready metav1.Condition) error {
	name := types.NamespacedName{Namespace: r.HubNamespace, Name: r.Cluster}
	profile, err := kube.Get[*inventoryv1alpha1.ClusterProfile](ctx, hub, name)
	if err != nil || profile == nil {
		return err
	}
	ready.Type = inventoryv1alpha1.ConditionMemberReady
	all, changed := conditions.Set(
		profile.Status.Conditions, []metav1.Condition{ready}, profile.Generation, metav1.NewTime(r.Now()))
	if !changed {
		return nil
	}
	want := profile.DeepCopy()
	want.Status.Conditions = all
	_, err = kube.PatchStatus(ctx, hub, r.budget, r.Now(), want, profile)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return nil // the hub's policy is older than this agent
	}
	return err
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
	case isAbsent(err): // it lacks rights or the kind, and says so
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
	for _, kind := range r.Kinds {
		err := r.LocalNow.List(ctx, kind, client.InNamespace(kube.SystemNamespace), client.Limit(1))
		if isAbsent(err) && !apierrors.IsForbidden(err) {
			f.NotServed = append(f.NotServed, strings.TrimSuffix(reflect.TypeOf(kind).Elem().Name(), "List"))
		}
	}
	if r.DNS != nil && now.Sub(r.dnsAt) >= interval {
		r.dns, r.dnsAt = health.DNS{Asked: true, Err: r.DNS(ctx)}, now
	}
	f.DNS = r.dns
	if err = r.peers(ctx, &f); err != nil {
		return f, err
	}
	hub := r.Hub()
	if f.Linked = hub != nil; f.Linked {
		err = r.onHub(ctx, hub, &f)
	}
	return f, err
}

// isAbsent returns whether an error means that a kind is not served, or that the agent may not read it.
func isAbsent(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}

// onHub reads whether the hub has its ClusterSet, and the ranges of its members.
func (r *Reporter) onHub(ctx context.Context, hub client.Client, f *health.Facts) error {
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
	return nil
}

// peers reads what is stored here of the other members, which their endpoints follow whatever the hub shows.
func (r *Reporter) peers(ctx context.Context, f *health.Facts) error {
	sources, err := kube.Sources(ctx, r.LocalNow)
	if apierrors.IsForbidden(err) { // Permitted says so
		return nil
	}
	if err != nil {
		return err
	}
	now, silent := r.Now(), map[string]time.Time{}
	for i := range sources {
		source := &sources[i]
		id := source.Labels[liveness.LabelSource]
		if id == r.Cluster {
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
