package clustersetip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	// settle is how soon ranges that are being made are looked at again.
	settle = 200 * time.Millisecond
	// attentive is how soon a range is looked at again that is to go once it is empty, after something has left it; then less and less often.
	attentive = 2 * time.Second
	// patrol is how often everything is looked at though nothing has happened.
	patrol = time.Minute
)

// lay makes the ranges what they ought to be.
func (r *Room) lay(ctx context.Context) (reconcile.Result, error) {
	s, cidrs, seen, err := r.gather(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.remember(ctx, s.Mode); err != nil {
		return reconcile.Result{}, err
	}
	if why := r.served(); why != nil {
		if s.Mode != ipam.ModeShared {
			r.Event(kube.System(), kube.Warning, "VIPModeUnsupported", fmt.Sprintf("Mode %s needs ServiceCIDRs and IPAddresses (Kubernetes 1.33), which cannot be read here: %v. %s", s.Mode, why, without(s.Mode)))
		}
		r.laid.over()
		// The second of the two kinds may be served after the last event that asks for the ranges.
		return reconcile.Result{RequeueAfter: patrol}, r.refit(s)
	}
	plan := ipam.Lay(s)
	for _, one := range plan.Altered {
		r.Event(about("ServiceCIDR", one.Name), kube.Warning, "VIPRangeAltered", fmt.Sprintf(
			"By its name this is a range for VIPs of another prefix than %s, or of another label %s than %q: nothing is made in its place. Make it what its name tells, or delete it.", one.Prefix, ipam.LabelVIPs, one.Use))
	}
	if r.mode() != s.Mode { // requests wait for it, and fences take long
		err = r.refit(s)
	}
	err = errors.Join(
		err,
		r.tell(ctx, s, plan, cidrs, seen),
		r.build(ctx, s, plan),
		r.clear(ctx, s, plan),
		r.guard(ctx, s, cidrs, seen),
		r.refit(s))
	if err == nil {
		r.laid.over()
	}
	mended, failed := r.repair(ctx, cidrs, slices.Concat(plan.Make, plan.Fence))
	if err = errors.Join(err, failed); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case r.pending(s, plan):
		mended = settle
	default:
		mended = min(mended, r.attend(plan.Emptying))
	}
	return reconcile.Result{RequeueAfter: mended}, nil
}

// attend is how soon the ranges are looked at again since these are emptying.
func (r *Room) attend(emptying []netip.Prefix) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.emptying = emptying; len(emptying) == 0 {
		r.attention = 0
		return patrol
	}
	r.attention = min(max(attentive, 2*r.attention), patrol)
	return r.attention
}

// leaves tells whether an address is of a range that is emptying, which is to be looked at soon. Under the lock.
func (r *Room) leaves(a netip.Addr) bool {
	if !slices.ContainsFunc(r.emptying, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return false
	}
	r.attention = 0
	return true
}

// mode is what the allocator goes by.
func (r *Room) mode() ipam.Mode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.view.mode
}

// without says what becomes of imports where a mode cannot be had.
func without(mode ipam.Mode) string {
	if mode == ipam.ModeExclusive {
		return "New imports get no VIP; those that have one keep it."
	}
	return "New VIPs come from the cluster's own ranges."
}

// gather reads what the layout depends on; seen tells whether the hub has been.
func (r *Room) gather(ctx context.Context) (s ipam.Standing, cidrs []*networkingv1.ServiceCIDR, seen bool, err error) {
	families, err := r.Families(ctx)
	if err != nil {
		return s, nil, false, err
	}
	if cidrs, err = r.cidrs(ctx); err != nil {
		return s, nil, false, err
	}
	all, err := r.claimants(ctx)
	if err != nil {
		return s, nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(ctx); err != nil {
		return s, nil, false, err
	}
	hub, err := r.hubView(ctx)
	if err != nil {
		return s, nil, false, err
	}
	vips := r.keep(all)
	s = r.standing(hub.mode, rangesOf(cidrs))
	s.Held = append(s.Held, vips...)
	s.Families, s.Blocks, s.Ours = families, hub.blocks, map[string]bool{}
	for _, c := range cidrs {
		s.Ours[c.Name] = ours(c)
	}
	for _, f := range families {
		r.view.looked[f] = ipam.Low(ipam.Room(s, f))
	}
	return s, cidrs, hub.seen, nil
}

func ours(o metav1.Object) bool { return o.GetLabels()[derived.LabelManagedBy] == kube.Manager }

// hubView is what the hub says, or said last; before it was seen, the mode that was in effect, under the lock.
func (r *Room) hubView(ctx context.Context) (hubView, error) {
	if hub := r.Hub(); hub != nil {
		var sets hubv1alpha1.ClusterSetList
		if err := hub.List(ctx, &sets, client.InNamespace(r.HubNamespace)); err != nil {
			return hubView{}, err
		}
		if len(sets.Items) == 1 { // absence is no change, and of two nobody knows which is meant
			r.last = viewOf(&sets.Items[0], r.Cluster)
		}
	}
	if r.last.seen {
		return r.last, nil
	}
	set, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, r.Local, types.NamespacedName{Name: clusterset.PropertySet})
	if err != nil || set == nil {
		return hubView{mode: ipam.ModeShared}, err
	}
	return hubView{mode: modeOf(set.Annotations[clusterset.AnnotationVIPMode])}, nil
}

func viewOf(set *hubv1alpha1.ClusterSet, cluster string) hubView {
	v := hubView{seen: true, mode: modeOf(string(set.Spec.VIPs.Mode)), pools: map[corev1.IPFamily]bool{}}
	for _, text := range set.Spec.VIPs.Pools {
		if p, err := netip.ParsePrefix(text); err == nil {
			v.pools[familyOf(p.Addr())] = true
		}
	}
	for _, b := range set.Status.Blocks {
		if b.ClusterID != cluster { // of thousands, at every request
			continue
		}
		if p, err := netip.ParsePrefix(b.CIDR); err == nil {
			v.blocks = append(v.blocks, p.Masked())
		}
	}
	return v
}

// modeOf treats every mode that is not known, such as exclusive of earlier versions, as shared.
func modeOf(text string) ipam.Mode {
	if ipam.Mode(text) == ipam.ModePreferred {
		return ipam.ModePreferred
	}
	return ipam.ModeShared
}

// remember keeps the mode for a start at which the hub is not to be seen.
func (r *Room) remember(ctx context.Context, mode ipam.Mode) error {
	set, err := kube.Get[*aboutv1beta1.ClusterProperty](ctx, r.Local, types.NamespacedName{Name: clusterset.PropertySet})
	if err != nil || set == nil || modeOf(set.Annotations[clusterset.AnnotationVIPMode]) == mode {
		return err
	}
	set = set.DeepCopy()
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, clusterset.AnnotationVIPMode, string(mode))
	log.FromContext(ctx).Info("the mode of VIPs", "mode", mode)
	return r.Local.Update(ctx, set)
}

// build makes what is missing. A range that this cluster would refuse is not fenced in vain: a dry run asks first.
func (r *Room) build(ctx context.Context, s ipam.Standing, plan ipam.Layout) error {
	r.mu.Lock()
	r.growing = map[corev1.IPFamily]bool{}
	for _, one := range plan.Make {
		f := familyOf(one.Prefix.Addr())
		r.growing[f] = r.refused[f] == nil
	}
	r.view.fenced = newFences(slices.Concat(plan.Make, plan.Fence))
	r.mu.Unlock()
	var errs []error
	for _, f := range plan.Fence {
		errs = append(errs, r.fence(ctx, f))
	}
	refused, why := map[corev1.IPFamily]error{}, ""
	for _, one := range plan.Make {
		err := r.make(ctx, one)
		if forbids(err) {
			refused[familyOf(one.Prefix.Addr())] = err
			why += fmt.Sprintf(" ServiceCIDR %s cannot be made: %v.", one.Name, err)
			err = nil
		}
		errs = append(errs, err)
	}
	if why != "" {
		r.Event(kube.System(), kube.Warning, "VIPRangeRefused", without(s.Mode)+why) // an Event's note is cut at its end
	}
	r.mu.Lock()
	r.refused = refused
	for f := range refused {
		delete(r.growing, f)
	}
	r.mu.Unlock()
	return errors.Join(errs...)
}

// make makes one range, after its fence.
func (r *Room) make(ctx context.Context, one ipam.Range) error {
	cidr := &networkingv1.ServiceCIDR{}
	cidr.Name = one.Name
	cidr.Labels = map[string]string{derived.LabelManagedBy: kube.Manager, ipam.LabelVIPs: string(one.Use)}
	cidr.Finalizers = []string{clusterset.FinalizerVIPs}
	cidr.Spec.CIDRs = []string{one.Prefix.String()}
	if one.Use == ipam.Exclusive {
		if err := r.Local.Create(ctx, cidr.DeepCopy(), client.DryRunAll); err != nil {
			return err
		}
		if err := r.fence(ctx, one); err != nil {
			return err
		}
	}
	if err := r.Local.Create(ctx, cidr); err != nil {
		return err
	}
	log.FromContext(ctx).Info("made a range for VIPs", "serviceCIDR", one.Name, "use", one.Use)
	return nil
}

// clear takes down what is no longer needed.
func (r *Room) clear(ctx context.Context, s ipam.Standing, plan ipam.Layout) error {
	keep := slices.Concat(plan.Make, plan.Fence)
	for _, one := range s.Ranges { // the fence of a range that goes is the last to go
		if one.Use == ipam.Exclusive && (one.State == ipam.Terminating || slices.Contains(plan.Remove, one.Name)) {
			keep = append(keep, one)
		}
	}
	errs := []error{r.lift(ctx, newFences(keep))}
	for _, name := range plan.Remove {
		log.FromContext(ctx).Info("removing a range for VIPs", "serviceCIDR", name)
		cidr := &networkingv1.ServiceCIDR{}
		cidr.Name = name
		errs = append(errs, kube.Gone(r.Local.Delete(ctx, cidr)))
	}
	return errors.Join(errs...)
}

// refit gives the allocator what is known now.
func (r *Room) refit(s ipam.Standing) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fit(s.Mode, s.Ranges)
	for name, w := range r.waits {
		if r.Now().Sub(w.since) > 10*patrol {
			delete(r.waits, name)
		}
	}
	for name, at := range r.barred {
		if r.Now().Sub(at) > time.Hour { // retries of an import that is there come more often
			delete(r.barred, name)
		}
	}
	for name := range r.over {
		if !r.rested(name) {
			delete(r.over, name)
		}
	}
	for a, gift := range r.gifts {
		if r.Now().Sub(gift.since) >= abandoned {
			r.change(a, func() { delete(r.gifts, a) })
		}
	}
	for a, rest := range r.rests {
		if !r.Now().Before(rest.until) {
			r.change(a, func() { delete(r.rests, a) })
		}
	}
	return nil
}

// pending tells whether something that is being made is not there yet.
func (r *Room) pending(s ipam.Standing, plan ipam.Layout) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range plan.Fence {
		if !r.stands(f.Prefix) {
			return true
		}
	}
	taken := func(one ipam.Range) bool { return r.refused[familyOf(one.Prefix.Addr())] == nil }
	// Those whose fence is whole again by now, too: they give out nothing before that is judged.
	return slices.ContainsFunc(plan.Make, taken) || slices.ContainsFunc(r.view.ranges, func(one ipam.Range) bool { return one.State == ipam.Unfenced && taken(one) })
}
