package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

// Steps of several checks.
var (
	join     = report.Here(facts.Join)
	initHub  = report.Here(facts.Init)
	agentLog = report.Here("kubectl -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50")
	hubLog   = report.AtHub("kubectl -n clusterset-system logs -l app.kubernetes.io/name=clusterset-hub --tail=50")
	doctor   = report.Here(facts.Doctor).In(report.Subject)
)

// one is the only hit of a check about this cluster, if there is one.
func one(is bool, detail string, args ...any) []Hit {
	if !is {
		return nil
	}
	return []Hit{{Detail: fmt.Sprintf(detail, args...)}}
}

var stopped = []string{"no-member", "agent-missing", "agent-down"}

var memberChecks = []Check{
	{
		ID: "no-member", Scope: Member, Level: report.Error, Needs: parts{snapshot.Properties, snapshot.Agent},
		After: []string{"hub-wrong"}, One: "this cluster is a member of no ClusterSet", Do: join,
		Look: func(w *World) []Hit {
			m := w.Member
			if m.Set() != "" || m.Agent != nil {
				return nil
			}
			h := Hit{Do: join}
			if m.ID() == "" { // the UID of kube-system would become one
				h.Do.Argv = append(slices.Clone(join.Argv), "--cluster-id=ID")
			}
			if n := len(m.Exports); n > 0 {
				h.Detail = report.Number(n, "ServiceExport") + " without effect"
			}
			return []Hit{h}
		},
	},
	{
		ID: "cluster-id", Scope: Member, Level: report.Error, Needs: parts{snapshot.Properties},
		One: "the ClusterProperty cluster.clusterset.k8s.io is no cluster ID",
		Do:  report.Here("kubectl clusterset leave"),
		Look: func(w *World) []Hit {
			err := clusterset.CheckID(w.Member.ID())
			return one(w.Member.Set() != "" && err != nil, "%v", err)
		},
	},
	{
		ID: "agent-missing", Scope: Member, Level: report.Error, Needs: parts{snapshot.Agent, snapshot.Properties},
		One: "the agent is not there: Deployment clusterset-system/clusterset-controller",
		Look: func(w *World) []Hit {
			switch m := w.Member; {
			case m.Agent != nil || m.Set() == "" || w.agentLive():
				return nil
			case m.Leaving(): // join refuses it
				return []Hit{{Detail: "this cluster is leaving its ClusterSet"}}
			}
			return []Hit{{Do: join}}
		},
	},
	{
		ID: "leaving", Scope: Member, Level: report.Error, Needs: parts{snapshot.Properties},
		After: []string{"agent-missing"}, One: "this cluster is leaving its ClusterSet", Do: report.Here(facts.Leave),
		Look: func(w *World) []Hit {
			why := strings.TrimPrefix(w.message("Leaving"), "leaving: ")
			return one(w.Member.Leaving(), "%s", cmp.Or(why, w.Member.Set()))
		},
	},
	{
		ID: "agent-down", Scope: Member, Level: report.Error, Needs: parts{snapshot.Agent},
		One: "the agent does not run",
		Look: func(w *World) []Hit {
			a := w.Member.Agent
			if a == nil || a.Status.AvailableReplicas > 0 || w.agentLive() && !w.AgentStopped() {
				return nil
			}
			return w.down(facts.Missing(a, w.Member.AgentPods))
		},
	},
	{
		ID: "agent-replica", Scope: Member, Level: report.Warning, Needs: parts{snapshot.Agent},
		One: "a replica of the agent does not run",
		Look: func(w *World) []Hit {
			// A leader that has not reached the hub since its start is not ready.
			if a := w.Member.Agent; a == nil || a.Status.AvailableReplicas == 0 || w.states(unreached...) {
				return nil
			}
			return w.down(facts.Missing(w.Member.Agent, w.Member.AgentPods))
		},
	},
	{
		ID: "agent-outdated", Scope: Member, Level: report.Error,
		Needs: parts{snapshot.Membership, snapshot.Leases, snapshot.Properties}, After: stopped,
		One: "the agent does not say how it is", Do: agentLog,
		Look: func(w *World) []Hit {
			out := one(w.Member.Agent != nil && w.outdated() != "", "%s", w.outdated())
			if len(out) > 0 && !w.AgentStopped() { // it works
				out[0].Level = report.Warning
			}
			return out
		},
	},
	{
		ID: "kubernetes-version", Scope: Member, Level: report.Error, One: "Kubernetes is too old in this cluster",
		Look: func(w *World) []Hit { return tooOld(w.Member.Version) },
	},
	{
		ID: "drift", Scope: Member, Level: report.Error, Needs: parts{snapshot.Drift, snapshot.Properties},
		After: []string{"no-member", "agent-missing"}, One: "this cluster differs from the manifests of this version",
		Do: join,
		Look: func(w *World) []Hit {
			out := differs(w.Member.Unserved, w.Member.Drift, w.Member.Set() != "" && !w.Member.Leaving())
			needed := slices.ContainsFunc(w.Member.Unserved, func(kind string) bool { return kind != "Membership" })
			for i := range out { // as for days during an upgrade
				out[i].Alone = !needed && !w.states("RightsMissingHere")
			}
			return out
		},
	},
	{
		ID: "hub-drift", Scope: Set, Level: report.Error, Needs: parts{snapshot.OfHub, snapshot.HubDrift},
		After: []string{"hub-wrong", "set-none"}, One: "the hub differs from the manifests of this version",
		Do:   initHub,
		Look: func(w *World) []Hit { return differs(w.Hub.Unserved, w.Hub.Drift, true) },
	},
	{
		ID: "not-on-hub", Scope: Member, Level: report.Error,
		Needs: parts{snapshot.Properties, snapshot.OfHub, snapshot.Leases}, After: []string{"hub-wrong", "leaving"},
		One: "the hub does not know this cluster as a member", Do: join,
		Look: func(w *World) []Hit {
			set := w.Hub.Set()
			return one(set != nil && set.Name == w.Member.Set() && w.Hub.Profile(w.Member.ID()) == nil,
				"it has no ClusterProfile %s", w.Member.ID())
		},
	},
	{
		ID: "version-skew", Scope: Member, Level: report.Warning, Needs: parts{snapshot.Agent},
		One: "the agent's version and this program's are too far apart",
		Look: func(w *World) []Hit {
			agent := facts.Version(w.Member.Agent)
			return one(apart(w.Release, agent), "%s and %s", agent, w.Release)
		},
	},
}

// stateChecks are of what the agent says: one check for each reason of a condition of its Membership that is False.
func stateChecks() (out []Check) {
	causes := map[string][]string{
		hubv1alpha1.ConditionCredentialsValid: {"not-on-hub", "set-none"},
		hubv1alpha1.ConditionAdmitted:         {"not-on-hub", "no-member", "leaving", "set-none"},
		hubv1alpha1.ConditionPermitted:        {"drift", "hub-drift", "not-on-hub", "Forbidden"},
		hubv1alpha1.ConditionPeersReachable:   {"cluster-expired", "cluster-silent"},
		hubv1alpha1.ConditionDNSAnswers: {"dns-corefile", "dns-none", "dns-down", "dns-refused", "dns-node-cache",
			"dns-beside", "dns-drift"},
	}
	for _, of := range health.Order {
		for _, name := range health.Names() {
			r := health.Reasons[name]
			if r.Condition != of || r.Remedy == "" || r.Unknown {
				continue
			}
			c := Check{ID: name, Scope: Member, Level: report.Error, Needs: parts{snapshot.Membership},
				After: append(slices.Clone(stopped), causes[of]...), One: "", Do: report.Here(r.Command),
				Look: func(w *World) []Hit { return one(w.message(name) != "", "%s", w.message(name)) }}
			switch of {
			case hubv1alpha1.ConditionPeersReachable:
				c.Level = report.Warning
			case hubv1alpha1.ConditionDNSAnswers:
				c.Scope = DNS
			}
			out = append(out, c)
		}
	}
	return out
}

// unreached are the causes for which an agent does not see the hub. With these two, it still does.
var unreached = slices.DeleteFunc(reasons(hubv1alpha1.ConditionHubReachable, hubv1alpha1.ConditionCredentialsValid,
	hubv1alpha1.ConditionAdmitted), func(reason string) bool { return reason == "NotUsed" || reason == "NotRenewed" })

// HubUnread returns why the hub was not read, or "" if a finding says it, or a right that is missing, or if nothing
// names the hub, because the cluster is no member.
func (w *World) HubUnread(results []Result) string {
	lack, m := w.Unread[snapshot.OfHub], w.Member
	said := slices.ContainsFunc(results, func(r Result) bool {
		return len(r.Finding) > 0 && (r.ID == "hub-unread" || slices.Contains(unreached, r.ID))
	})
	named := w.HubNamed || w.HasRead(snapshot.Secret) && (m.Set() != "" || m.Agent != nil)
	if said || !named || lack.Right != "" {
		return ""
	}
	return lack.Why
}

var lateChecks = []Check{
	{
		ID: "hub-unread", Scope: Set, Level: report.Error, After: unreached,
		One: "reading the hub failed, so members are not shown",
		Look: func(w *World) []Hit {
			lack, unread := w.Unread[snapshot.OfHub]
			// Who may not read the Secret is no admin, and it need not be the agent's.
			admin := w.HubNamed || w.HasRead(snapshot.Secret) && facts.OwnCredentials(w.Member.Agent) == ""
			out := one(unread && w.Member != nil && w.Member.Set() != "" && admin, "%s", lack.Why)
			if len(out) == 0 {
				return nil
			}
			if out[0].Alone = w.HubNamed; w.HubNamed {
				return out
			}
			out[0].After = []string{"RightsMissingOnHub"} // it was read as the agent
			if lack.Right == "" && w.Says(hubv1alpha1.ConditionHubReachable) == metav1.ConditionTrue {
				// Its address need not be for others than Pods.
				out[0].Level, out[0].Do = report.Warning, report.Here(facts.Doctor+" --hub-context=HUB")
			}
			if lack.Credentials { // which the agent may not have noticed yet
				out[0].Do = report.Here(health.Reasons["Refused"].Command)
			}
			return out
		},
	},
}

// tooOld finds a Kubernetes version below the oldest that works.
func tooOld(version string) []Hit {
	return one(facts.TooOld(version), "%s, and %s is the oldest that works", version, facts.Oldest)
}

// reasons returns the reasons with which conditions are False.
func reasons(conditions ...string) (out []string) {
	for _, name := range health.Names() {
		if r := health.Reasons[name]; r.Remedy != "" && !r.Unknown && slices.Contains(conditions, r.Condition) {
			out = append(out, name)
		}
	}
	return out
}

// differs finds kinds that are not served, and differences from manifests.
func differs(unserved, drift []string, expected bool) []Hit {
	var all []string
	for _, kind := range unserved {
		all = append(all, "kind "+kind+" is not served")
	}
	return one(expected && len(unserved)+len(drift) > 0, "%s", report.Few(append(all, drift...)))
}

// down returns the hit of a Deployment that does not run as it should.
func (w *World) down(of *facts.Down) []Hit {
	if of == nil {
		return nil
	}
	return []Hit{{Detail: of.Why, Do: report.Here(of.Look)}}
}

// agentLive reports whether Leases show that the agent works, wherever it runs.
func (w *World) agentLive() bool {
	m := w.Member
	if w.Hub != nil && w.Hub.Live(m.ID()) {
		return true
	}
	return !facts.Expired(facts.Named(m.Leases, facts.AgentLease), m.Now)
}

// outdated returns why the agent's Membership does not show what is now, or "". Who may not read Leases sees what it
// last said.
func (w *World) outdated() string {
	m := w.Member
	switch {
	case w.AgentStopped():
		return "no agent renews the Lease " + facts.AgentLease + " in clusterset-system"
	case len(m.Membership.Status.Conditions) == 0 && !slices.Contains(m.Unserved, "Membership"):
		return "it has no conditions"
	}
	return ""
}

// stated returns the conditions of the agent's Membership that are False.
func (w *World) stated() (out []metav1.Condition) {
	if w.outdated() != "" {
		return nil
	}
	for _, c := range w.Member.Membership.Status.Conditions {
		if c.Status == metav1.ConditionFalse && c.Type != hubv1alpha1.ConditionMembershipReady {
			out = append(out, c)
		}
	}
	return out
}

// states reports whether the agent states one of these reasons.
func (w *World) states(reasons ...string) bool {
	return slices.ContainsFunc(w.stated(), func(c metav1.Condition) bool { return slices.Contains(reasons, c.Reason) })
}

// message returns what the agent says to a reason that it states, or "".
func (w *World) message(reason string) string {
	for _, c := range w.stated() {
		if c.Reason == reason {
			return said(&c)
		}
	}
	return ""
}

// said returns the message of a condition without the URL.
func said(c *metav1.Condition) string {
	return strings.TrimSuffix(strings.TrimSpace(strings.TrimSuffix(c.Message, health.URL(c.Reason))), ".")
}

// answers reports whether the agent says that the cluster's DNS answers.
func (w *World) answers() bool {
	return w.Says(hubv1alpha1.ConditionDNSAnswers) == metav1.ConditionTrue
}

// Says returns the status of a condition that the agent states; Unknown if it does not state it now.
func (w *World) Says(condition string) metav1.ConditionStatus {
	c := meta.FindStatusCondition(w.Member.Membership.Status.Conditions, condition)
	if c == nil || w.outdated() != "" {
		return metav1.ConditionUnknown
	}
	return c.Status
}

// apart reports whether two versions do not work together; false if one is not known.
func apart(client, other string) bool {
	a, err := version.ParseSemantic(client)
	b, err2 := version.ParseSemantic(other)
	if err != nil || err2 != nil {
		return false
	}
	by := int(b.Minor()) - int(a.Minor())
	return a.Major() != b.Major() || by > 1 || by < -1
}

// elsewhere reports whether the agent renews its Lease elsewhere than in the namespace that was read. The agent of a
// member that was just evicted does not, nor one that says that it uses this namespace, which has just lost its data.
func (w *World) elsewhere() bool {
	m, h, is := w.Member, w.Hub, &w.Member.Membership.Status
	evicted := slices.ContainsFunc(h.Sets, func(s hubv1alpha1.ClusterSet) bool {
		return facts.Departed(&s, m.ID(), m.Leases)
	})
	return w.HubNamed && m.Set() != "" && clusterset.CheckID(m.ID()) == nil && !evicted &&
		(is.Hub != h.Server || is.HubNamespace != w.Namespace) &&
		facts.RenewsElsewhere(m.Leases, m.Now, h.Lease(m.ID()), h.Now)
}

// wrongHub reports whether the cluster that was named as the hub is not this cluster's, or none. One with a controller
// of the namespace is a hub, whatever it has lost.
func (w *World) wrongHub() bool {
	if w.Member == nil || w.Hub == nil {
		return false
	}
	role := &w.Hub.Role
	if len(w.Hub.Sets) == 0 && len(role.HubOf) > 0 { // perhaps only the namespace is the wrong one
		return false
	}
	return w.elsewhere() ||
		len(w.Hub.Sets) == 0 && w.Hub.Deployed == nil && len(role.HubOf) == 0 && role.MemberOf != ""
}
