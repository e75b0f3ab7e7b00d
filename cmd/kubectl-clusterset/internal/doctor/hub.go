package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

const renew = join + " --renew"

// renewable reports whether join --renew works: it needs a member whose claim the hub has.
func (f *Facts) renewable() bool {
	_, unread := f.Unread[Membership]
	_, unreadHub := f.Unread[Hub]
	return (unread || f.Set != "") && (unreadHub || f.Leaving || f.renewsElsewhere() || slices.ContainsFunc(
		f.HubFacts.Profiles, func(p inventoryv1alpha1.ClusterProfile) bool { return p.Name == f.ID }))
}

var hubChecks = []Check{
	{"hub-version", []Topic{Hub}, func(f *Facts) []report.Finding { return tooOld("the hub", f.HubFacts.Version) }},
	{"hub-clusterset", []Topic{Hub}, func(f *Facts) []report.Finding {
		if out := f.HubFacts.SetFindings(); out != nil || f.Set == "" || f.HubFacts.Sets[0].Name == f.Set {
			return out
		}
		return wrong("kubectl clusterset leave; "+join,
			"this cluster is a member of ClusterSet %s, and its hub has ClusterSet %s", f.Set, f.HubFacts.Sets[0].Name)
	}},
	{"hub-kinds", []Topic{HubAdmin}, func(f *Facts) []report.Finding {
		return kinds(&f.HubFacts.Kinds, "the hub", facts.Init)
	}},
	{"hub-policies", []Topic{HubAdmin}, hubPolicies},
	{"hub-leader", []Topic{Hub, HubLeader}, hubLeader},
	{"hub-controller", []Topic{Hub}, hubController},
	{"hub-another", []Topic{Hub}, anotherHub},
	{"hub-members", []Topic{Hub}, func(f *Facts) []report.Finding { return f.HubFacts.MemberFindings(f.ID) }},
	{"excluded-namespaces", []Topic{Hub, Exports}, excluded},
	{"clock", []Topic{Hub}, func(f *Facts) []report.Finding {
		out := f.HubFacts.ClockFindings()
		if ahead := f.Now.Sub(f.HubFacts.Now).Abs(); ahead > facts.Skew {
			out = append(out, report.Warningf(facts.ClockRemedy,
				"the clocks of this cluster's API server and the hub's are %v apart", ahead.Round(time.Second)))
		}
		return out
	}},
}

// excluded finds exports in namespaces that the ClusterSet excludes.
func excluded(f *Facts) []report.Finding {
	if len(f.HubFacts.Sets) != 1 {
		return nil
	}
	set := &f.HubFacts.Sets[0]
	var names []string
	for i := range f.Exported {
		if e := &f.Exported[i]; !clusterset.MayUse(set.Spec.Namespaces, e.Namespace) {
			names = append(names, e.Namespace+"/"+e.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if n := len(names); n > 5 {
		names = append(names[:5], fmt.Sprintf("and %d more", n-5))
	}
	return warn("delete them, or on the hub: kubectl -n "+set.Namespace+" edit clusterset "+set.Name+
		", and change spec.namespaces", "the ClusterSet excludes the namespaces of these ServiceExports, so nothing "+
		"is exported: %s", strings.Join(names, ", "))
}

func hubPolicies(f *Facts) []report.Finding {
	out := policies(&f.HubFacts.Kinds, "the hub", facts.Init)
	if ns := f.HubFacts.SetNamespace; ns != nil && ns.Labels[clusterset.LabelSet] == "" {
		out = append(out, report.Errorf(facts.Init,
			"namespace %s of the hub lacks the label %s: no policy applies there, and each member "+
				"can write the records of the others", ns.Name, clusterset.LabelSet))
	}
	return out
}

func hubLeader(f *Facts) []report.Finding {
	remedy := facts.HubLog
	if _, unread := f.Unread[HubAdmin]; !unread {
		switch d := f.HubFacts.Controller; {
		case d == nil:
			remedy = facts.Init
		case d.Spec.Replicas != nil && *d.Spec.Replicas == 0:
			remedy = "on the hub: kubectl -n clusterset-system scale deployment " + d.Name + " --replicas=2"
		default:
			remedy = "on the hub: kubectl -n clusterset-system describe deployment " + d.Name +
				"; kubectl -n clusterset-system logs deployment/" + d.Name + " --all-pods --tail=50"
		}
	}
	return f.HubFacts.LeaderFindings(remedy)
}

// hubController checks the hub's controller by what it writes.
func hubController(f *Facts) []report.Finding {
	_, unread := f.Unread[HubAdmin]
	if !f.HubFacts.Idle() {
		if d := f.HubFacts.Controller; !unread && d != nil && d.Status.AvailableReplicas > 0 { // else hubLeader
			if down := facts.Missing(d, f.HubFacts.Pods); down != nil {
				return warn("on the hub: "+down.Remedy, "the hub's controller: %s", down.What)
			}
		}
		return nil
	}
	const what = "no ClusterProfile on the hub has a condition: clusterset-controller hub does not run, or waits"
	if !unread && f.HubFacts.Controller == nil {
		return warn(facts.Init, "%s; it has no Deployment in clusterset-system", what)
	}
	return warn(facts.HubLog, "%s", what)
}

// anotherHub keeps users from joining a hub that is not this cluster's.
func anotherHub(f *Facts) []report.Finding {
	if !f.wrongHub() {
		return nil
	}
	if h := &f.HubFacts; len(h.Sets) == 0 {
		return []report.Finding{h.Role.NoSet(h.Namespace, facts.NameHub)}
	}
	where := ""
	if f.AgentServer != "" {
		where = ", but on the one at " + f.AgentServer
	}
	return wrong(facts.NameHub, "the agent does not renew its Lease on this hub%s", where)
}

// wrongHub reports whether the cluster that was named as the hub is not this cluster's, or none.
func (f *Facts) wrongHub() bool {
	_, unread := f.Unread[Hub]
	role := &f.HubFacts.Role
	return f.renewsElsewhere() || !unread && len(f.HubFacts.Sets) == 0 && len(role.HubOf) == 0 && role.MemberOf != ""
}

// renewsElsewhere reports whether the agent renews its Lease on another hub. That of a member that was just evicted
// does not.
func (f *Facts) renewsElsewhere() bool {
	h := &f.HubFacts
	evicted := slices.ContainsFunc(h.Sets, func(s hubv1alpha1.ClusterSet) bool { return clusterset.Departed(&s, f.ID) })
	_, unread := f.Unread[Hub]
	return !unread && f.Set != "" && clusterset.CheckID(f.ID) == nil && !evicted &&
		facts.RenewsElsewhere(f.Leases, f.Now, h.Lease(f.ID), h.Now)
}
