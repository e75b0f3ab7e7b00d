package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/grants"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

const (
	unfinished = 10 * time.Minute // how long a join may take
	leaderless = time.Minute      // another replica takes over within half a minute
	skew       = 10 * time.Second // clocks are compared in whole seconds, and a write takes time
)

var ofHub = parts{snapshot.OfHub}

// hubChecks come first: if the hub is the wrong one, nothing else of it counts.
var hubChecks = []Check{
	{
		ID: "hub-wrong", Scope: Set, Level: report.Error, Needs: append(slices.Clone(ofHub), snapshot.Properties),
		One: "the cluster that you named as the hub is not this cluster's hub",
		Look: func(w *World) []Hit {
			if !w.wrongHub() {
				return nil
			}
			detail := ""
			switch is, role := &w.Member.Membership.Status, &w.Hub.Role; {
			case len(w.HubHere) > 0 && role.MemberOf != "":
				detail = "--context and --hub-context look swapped: this cluster is the hub of " +
					strings.Join(w.HubHere, ", ")
			case is.Hub != "":
				detail = fmt.Sprintf("the agent uses namespace %s of the hub at %s", is.HubNamespace, is.Hub)
			case role.MemberOf != "":
				detail = "it " + role.String()
			}
			return one(true, "%s", detail)
		},
	},
	{
		ID: "set-none", Scope: Set, Level: report.Error, Needs: ofHub, After: []string{"hub-wrong"},
		One: "the ClusterSet's namespace on the hub does not have exactly one ClusterSet", Do: initHub,
		Look: func(w *World) []Hit {
			if n := len(w.Hub.Sets); n == 1 {
				return nil
			} else if n > 1 {
				return []Hit{{Detail: fmt.Sprintf("%s has %d", w.Namespace, n),
					Do: report.AtHub("kubectl -n " + w.Namespace + " get clustersets")}}
			}
			h := Hit{Detail: w.Namespace + " has none"}
			if of := w.Hub.Role.HubOf; len(of) > 0 && !slices.Contains(of, w.Namespace) {
				h.Detail += "; it is the hub of: " + strings.Join(of, ", ") + "; name another with --hub-namespace"
				h.Do = report.AtHub("kubectl get clustersets --all-namespaces")
			}
			return []Hit{h}
		},
	},
}

// ofSet makes checks of the hub, which are silent if it is the wrong one.
func ofSet(checks ...Check) []Check {
	for i := range checks {
		c := &checks[i]
		c.Scope, c.After = Set, append(c.After, "hub-wrong", "set-none")
		if c.Level == "" {
			c.Level = report.Warning
		}
		if len(c.Needs) == 0 {
			c.Needs = ofHub
		}
	}
	return checks
}

var setChecks = ofSet(
	Check{
		ID: "hub-version", Level: report.Error, One: "Kubernetes is too old on the hub",
		Look: func(w *World) []Hit { return tooOld(w.Hub.Version) },
	},
	Check{
		ID: "hub-controller", Needs: append(slices.Clone(ofHub), snapshot.Leader),
		One:  "the hub's controller does not run as it should",
		Look: hubController,
	},
	Check{
		ID: "cluster-expired", Level: report.Error, Needs: parts{snapshot.Leases, snapshot.Properties},
		After: []string{"leaving"}, One: "cluster %s has expired",
		Many: "%d clusters have expired", Do: doctor,
		Look: func(w *World) (out []Hit) {
			if facts.Expired(facts.Named(w.Member.Leases, facts.AgentLease), w.Member.Now) {
				return nil // what an agent saw before it stopped hides nothing
			}
			for i := range w.Member.Leases {
				l := &w.Member.Leases[i]
				id := l.Labels[liveness.LabelSource]
				if why := expired(l); id != "" && why != "" && id != w.Member.ID() {
					out = append(out, Hit{On: id, Detail: why})
				}
			}
			return out
		},
	},
	Check{
		ID: "cluster-silent", Level: report.Error, After: []string{"cluster-expired"},
		One:  "cluster %s does not renew its Lease on the hub",
		Many: "%d clusters do not renew their Leases on the hub", Do: doctor,
		Look: func(w *World) (out []Hit) {
			for i := range w.Hub.Profiles {
				p := &w.Hub.Profiles[i]
				own := w.Member != nil && p.Name == w.Member.ID()
				// This cluster's own agent says more in its Membership.
				if w.Hub.Live(p.Name) || !claimed(p) || own && len(w.stated()) > 0 {
					continue
				}
				h := Hit{On: p.Name, Detail: "it never has"}
				if at, _, ok := facts.Renewed(w.Hub.Lease(p.Name)); ok {
					h.Detail = "it last did at " + stamp(at)
				}
				if own {
					h.After = noAgent
				}
				out = append(out, h)
			}
			return out
		},
	},
	Check{
		ID: "member-unfinished", One: "cluster %s has not finished joining",
		Many: "%d clusters have not finished joining", Do: doctor,
		Look: profiles(func(w *World, p *inventoryv1alpha1.ClusterProfile) (bool, string) {
			began := p.CreationTimestamp.Time
			return !claimed(p) && !left(p) && w.Hub.Now.Sub(began) > unfinished, "it began at " + stamp(began)
		}),
	},
	Check{
		ID: "member-left", After: []string{"hub-controller"},
		One:  "cluster %s has left, and its records are still on the hub",
		Many: "%d clusters that left still have records",
		Do:   hubLog,
		Look: profiles(func(w *World, p *inventoryv1alpha1.ClusterProfile) (bool, string) {
			return left(p) &&
				(p.DeletionTimestamp == nil || w.Hub.Now.Sub(p.DeletionTimestamp.Time) >= time.Minute), ""
		}),
	},
	Check{
		ID: "cluster-unreachable", After: []string{"cluster-silent", "cluster-expired"},
		One: "cluster %s is unreachable from others", Many: "%d clusters are unreachable from others",
		Look: func(w *World) (out []Hit) {
			reports := w.Hub.Reports()
			for _, id := range slices.Sorted(maps.Keys(reports)) {
				since := reports[id].Unreachable
				if len(since) == 0 {
					continue
				}
				first := slices.MinFunc(slices.Collect(maps.Values(since)), time.Time.Compare)
				h := Hit{On: id, Detail: fmt.Sprintf("from %s since %s", report.Few(slices.Sorted(maps.Keys(since))),
					stamp(first))}
				if reports[id].Cut() {
					h.Level = report.Error
				}
				out = append(out, h)
			}
			return out
		},
	},
	Check{
		ID:    "member-not-ready",
		After: []string{"cluster-expired", "cluster-silent", "cluster-unreachable", "member-left"},
		One:   "cluster %s is not ready", Many: "%d clusters are not ready", Do: doctor,
		Look: profiles(func(w *World, p *inventoryv1alpha1.ClusterProfile) (bool, string) {
			own := w.Member != nil && p.Name == w.Member.ID()
			if l := w.Hub.Lease(p.Name); l != nil {
				if _, err := reach.ReadUnreachable(l); err != nil {
					return true, "its Lease on the hub is invalid: " + err.Error()
				}
			}
			c := meta.FindStatusCondition(p.Status.Conditions, inventoryv1alpha1.ConditionMemberReady)
			if c == nil || c.Status != metav1.ConditionFalse || own || !w.Hub.Live(p.Name) {
				return false, ""
			}
			return true, said(c)
		}),
	},
	Check{
		ID: "clock", One: "the clock of cluster %s differs from the hub's",
		Many: "the clocks of %d clusters differ from the hub's",
		Look: func(w *World) (out []Hit) {
			for i := range w.Hub.Leases {
				l := &w.Hub.Leases[i]
				if _, ahead, ok := facts.Renewed(l); ok && ahead.Abs() > skew && !facts.Expired(l, w.Hub.Now) {
					out = append(out, Hit{On: l.Name, Detail: apartBy(ahead)})
				}
			}
			if m := w.Member; len(out) == 0 && m != nil && w.Hub.Ahead.Abs() > skew && m.ID() != "" {
				out = append(out, Hit{On: m.ID(), Detail: "its API server: " + apartBy(-w.Hub.Ahead)})
			}
			return out
		},
	},
	Check{
		ID: "pools", One: "the pools of VIPs are not as they should be (%s)",
		Many: "the pools of VIPs are not as they should be (%d findings)",
		Look: pools,
	},
)

// profiles looks at each ClusterProfile: is returns whether it is found, with the detail.
func profiles(is func(w *World, p *inventoryv1alpha1.ClusterProfile) (bool, string)) func(*World) []Hit {
	return func(w *World) (out []Hit) {
		for i := range w.Hub.Profiles {
			if found, detail := is(w, &w.Hub.Profiles[i]); found {
				out = append(out, Hit{On: w.Hub.Profiles[i].Name, Detail: detail})
			}
		}
		slices.SortFunc(out, func(a, b Hit) int { return strings.Compare(a.On, b.On) })
		return out
	}
}

func left(p *inventoryv1alpha1.ClusterProfile) bool {
	return p.DeletionTimestamp != nil || p.Annotations[clusterset.AnnotationLeft] != ""
}

func claimed(p *inventoryv1alpha1.ClusterProfile) bool {
	return !left(p) && p.Annotations[clusterset.AnnotationClusterUID] != ""
}

// stamp returns a time as findings show it. They show no age, because a finding stays the same until its cause changes.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func apartBy(ahead time.Duration) string {
	if ahead < 0 {
		return ahead.Abs().Round(time.Second).String() + " behind"
	}
	return ahead.Round(time.Second).String() + " ahead"
}

// hubController finds that nobody has renewed the leader's Lease, or that replicas are missing. Without a renewal, that
// counts from the creation of the ClusterSet.
func hubController(w *World) []Hit {
	h := w.Hub
	if h.Set() == nil {
		return nil
	}
	began := h.Sets[0].CreationTimestamp.Time
	if at, _, ok := facts.Renewed(h.Leader); ok {
		began = at
	}
	hit, down := Hit{Do: hubLog}, facts.Missing(h.Deployed, h.Pods)
	switch {
	case h.Now.Sub(began) > leaderless:
		hit.Detail = fmt.Sprintf("nobody has renewed its Lease %s%s since %s", clusterset.LeaseHubPrefix, w.Namespace,
			stamp(began))
	case down == nil || h.Deployed.Status.AvailableReplicas == 0: // what renews the Lease works
		return nil
	default:
		hit.Detail = down.Why
	}
	if down != nil {
		hit.Do = report.AtHub(down.Look)
	} else if w.HasRead(snapshot.HubAdmin) && h.Deployed == nil {
		hit.Do = initHub
	}
	return []Hit{hit}
}

// pools come from the conditions that the hub's controller would set, and from this cluster's own ranges, which the hub
// may not know yet.
func pools(w *World) (out []Hit) {
	set := w.Hub.Set()
	if set == nil {
		return nil
	}
	add := func(level report.Severity, on, what string, args ...any) {
		out = append(out, Hit{On: on, Detail: fmt.Sprintf(what, args...), Level: level,
			Do: report.AtHub("kubectl -n " + set.Namespace + " edit clusterset " + set.Name)})
	}
	plan := grants.Decide(grants.Facts{Set: set, Profiles: w.Hub.Profiles})
	is := meta.FindStatusCondition(set.Status.Conditions, hubv1alpha1.ConditionBlocksGranted)
	if is != nil && is.Reason == "Waiting" { // the plan knows no reason to wait
		plan.Conditions = append(plan.Conditions, *is)
	}
	for _, c := range plan.Conditions {
		switch {
		case c.Status != metav1.ConditionFalse:
		case c.Reason == "Waiting" || c.Reason == "PropertyInvalid": // the ClusterSet is right
			out = append(out, Hit{On: c.Reason, Detail: said(&c), Level: report.Warning})
		case c.Type == hubv1alpha1.ConditionPoolsValid:
			add(report.Error, c.Reason, "%s", said(&c))
		default: // then VIPs come from labelled ServiceCIDRs, or from the cluster's own ranges
			add(report.Warning, c.Reason, "%s", said(&c))
		}
	}
	for _, id := range grants.Lost(set, w.Hub.Profiles) {
		add(report.Warning, id, "it owns blocks and has no ClusterProfile")
	}
	if m := w.Member; m != nil && len(plan.PoolOverlaps) == 0 {
		for _, r := range w.ownRanges() {
			for _, p := range plan.Pools {
				granted := slices.ContainsFunc(set.Status.Blocks, func(b hubv1alpha1.Block) bool {
					block, err := netip.ParsePrefix(b.CIDR)
					return err == nil && grants.Inside(ipam.Known{Member: m.ID(), Prefix: r},
						ipam.Grant{Member: b.ClusterID, Prefix: block})
				})
				if p.Prefix.Overlaps(r) && !granted {
					add(report.Warning, m.ID(), "pool %s overlaps its own range %s", p.Prefix, r)
				}
			}
		}
	}
	return out
}
