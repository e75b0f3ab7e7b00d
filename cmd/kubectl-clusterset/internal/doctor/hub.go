package doctor

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

const (
	renew    = join + " --renew"
	otherURL = renew + " --hub-server URL"
	otherHub = "if its address or certificate authority has changed: " + otherURL
	nameHub  = "if the hub has another address for this machine than for pods, name it with --hub-context"
)

var credentialChecks = []Check{
	{"credentials", []Topic{Secret}, func(f *Facts) []report.Finding {
		switch {
		case f.Credentials == nil:
			return wrong(renew, "the agent has no credentials for the hub: there is no Secret clusterset-system/%s",
				clusterset.SecretHub)
		case f.Credentials.Problem != "":
			return wrong(renew, "Secret clusterset-system/%s: %s", clusterset.SecretHub, f.Credentials.Problem)
		}
		return nil
	}},
	{"token-account", []Topic{Secret, Membership}, tokenAccount},
	{"token-lifetime", []Topic{Secret}, tokenLifetime},
	{"hub-address", []Topic{Secret}, hubAddress},
	{"hub-server", []Topic{Secret, Agent}, hubServer},
	{"hub-reachable", []Topic{Secret}, hubReachable},
	{"hub-rights", []Topic{HubAuth}, func(f *Facts) []report.Finding {
		remedy := join
		if f.Leaving { // then it must not join, and needs its rights
			remedy = renew
		}
		return lacks("this member on the hub", f.HubFacts.MemberLacks, "as an admin of the hub: "+remedy)
	}},
}

// renewable reports whether join --renew works: it needs a member whose claim the hub has.
func (f *Facts) renewable() bool {
	_, unread := f.Unread[Membership]
	_, unreadHub := f.Unread[Hub]
	return (unread || f.Set != "") && (unreadHub || f.Leaving || f.renewsElsewhere() || slices.ContainsFunc(
		f.HubFacts.Profiles, func(p inventoryv1alpha1.ClusterProfile) bool { return p.Name == f.ID }))
}

// usable returns the credentials if they can be read.
func (f *Facts) usable() *Credentials {
	if f.Credentials == nil || f.Credentials.Problem != "" {
		return nil
	}
	return f.Credentials
}

// refused reports whether the hub refuses the agent's token, or what the agent asks with it.
func (f *Facts) refused() bool {
	h := &f.HubFacts
	return h.AgentError != "" && !h.Unreachable || len(h.MemberLacks) > 0
}

func tokenAccount(f *Facts) []report.Finding {
	c, asked := f.usable(), f.HubFacts.GivenNamespace
	switch {
	case c == nil:
	case f.ID != "" && c.Account != clusterset.AccountPrefix+f.ID:
		return wrong(renew, "the token for the hub is of %s, and this cluster's account is %s%s", c.Account,
			clusterset.AccountPrefix, f.ID)
	case asked != "" && asked != c.Namespace:
		return warn("omit --hub-namespace, or "+renew,
			"the token for the hub is for namespace %s, and --hub-namespace is %s", c.Namespace, asked)
	}
	return nil
}

// hubReachable: the agent's address of the hub need not be reachable from the admin's machine. But if the hub answered,
// the agent gets the same answer.
func hubReachable(f *Facts) []report.Finding {
	h := &f.HubFacts
	if h.AgentError == "" || h.Unreachable && (f.live() || len(hubServer(f)) > 0) {
		return nil
	}
	at, expired, known := facts.HubSeen(f.Leases, f.Now)
	ago := report.Age(f.Now.Sub(at))
	switch {
	case h.Unreachable && expired:
		return wrong(facts.AgentLog+"; restore the connection, or "+otherHub,
			"the agent does not reach the hub at %s: it last renewed its Lease there %s ago. Connecting from here "+
				"failed: %s",
			f.Credentials.Server, ago, h.AgentError)
	case h.Unreachable && known:
		return warn(nameHub, "connecting from here to the hub at %s failed; the agent renewed its Lease there %s "+
			"ago: %s", f.Credentials.Server, ago, h.AgentError)
	case h.Unreachable:
		return warn(nameHub+"; otherwise restore the connection, or "+otherHub,
			"connecting from here to the hub at %s failed: %s", f.Credentials.Server, h.AgentError)
	}
	_, unread := f.Unread[Hub]
	left := f.Credentials.Expires.Sub(f.Now)
	switch {
	case left <= 0: // tokenLifetime finds it
		return nil
	case !unread && f.renewable(): // the hub has its claim
		return wrong(renew+"; if the hub has another address: "+otherURL,
			"the hub at %s refuses the agent's credentials: %s", f.Credentials.Server, h.AgentError)
	}
	// A token is accepted until it expires, or its account is deleted.
	return wrong(join, "the hub at %s refuses the agent's token, which is valid for another %s: this cluster was "+
		"evicted, its account was deleted, or the hub was restored to a time before it joined: %s",
		f.Credentials.Server, report.Age(left), h.AgentError)
}

func tokenLifetime(f *Facts) []report.Finding {
	c := f.usable()
	if c == nil {
		return nil
	}
	left, remedy := c.Expires.Sub(f.Now), renew
	if _, unread := f.Unread[Hub]; unread && f.renewable() {
		remedy += "; if the hub has no ClusterProfile of this cluster, as after an eviction: " + join
	}
	switch {
	case left <= 0:
		return wrong(remedy, "the token for the hub expired %s ago: imports are not updated, and other members see no "+
			"change of this cluster's exports", report.Age(-left))
	case left > 24*time.Hour+time.Minute:
		return warn(renew, "the token for the hub is valid for another %s, which is longer than a day: the hub's "+
			"policy on tokens is missing, or somebody else created it", report.Age(left))
	}
	return nil
}

func hubAddress(f *Facts) []report.Finding {
	c := f.usable()
	if c == nil || f.Leaving || f.refused() && c.Expires.After(f.Now) { // another check has the remedy
		return nil
	}
	server, err := url.Parse(c.Server)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "":
		return wrong(otherURL, "the hub's address %q is no https URL", c.Server)
	case Loopback(server.Hostname()):
		return warn("with the URL at which this cluster's pods reach the hub: "+otherURL,
			"the hub's address %s is a loopback address: no pod reaches the hub there", c.Server)
	case c.Insecure:
		return wrong("with a kubeconfig that has the hub's certificate authority: "+renew,
			"the hub's certificate is not verified")
	}
	return nil
}

// hubServer: the agent keeps a connection that works until the one of new credentials does.
func hubServer(f *Facts) []report.Finding {
	c, used := f.usable(), f.AgentServer
	if _, expired, known := facts.HubSeen(f.Leases, f.Now); c == nil || used == "" || used == c.Server ||
		expired || !known {
		return nil
	}
	return warn("wait two minutes if that is new; else "+facts.AgentLog+"; to go back: "+renew+" --hub-server "+used,
		"the agent still uses the hub at %s and not at %s, which its credentials name: if it does not reach the hub "+
			"there, its next start cuts this cluster off", used, c.Server)
}

// Loopback reports whether a host is the machine itself.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
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
	{"claim", []Topic{Hub, Membership}, claim},
	{"heartbeat", []Topic{Hub, Membership}, heartbeat},
	{"agent-port", []Topic{Hub, Membership}, agentPort},
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

// agentPort finds live members whose agents never answered here. Without their answers, a Lease shows that a cluster is
// dead.
func agentPort(f *Facts) []report.Finding {
	var blocked []string
	for i := range f.Leases {
		lease := &f.Leases[i]
		id := lease.Labels[liveness.LabelSource]
		fresh := f.Now.Sub(lease.CreationTimestamp.Time) < 10*time.Second
		if id == "" || fresh || !f.HubFacts.Live(id) || reach.Read(lease).State != reach.Unknown {
			continue
		}
		if addresses := reach.ReadAddresses(f.HubFacts.Lease(id), nil); len(addresses) > 0 {
			blocked = append(blocked, id+" ("+strings.Join(addresses, ", ")+")")
		}
	}
	if len(blocked) == 0 {
		return nil
	}
	slices.Sort(blocked)
	return warn("allow that port between the Pods of Deployment clusterset-controller, "+report.DocsReach,
		"the agents of these clusters never answered here: %s. If one of them dies, that is noticed after a minute "+
			"instead of five seconds", strings.Join(blocked, ", "))
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

func claim(f *Facts) []report.Finding {
	if f.ID == "" {
		return nil
	}
	for i := range f.HubFacts.Profiles {
		p := &f.HubFacts.Profiles[i]
		if p.Name != f.ID {
			continue
		}
		holder := p.Annotations[clusterset.AnnotationClusterUID]
		switch {
		case p.DeletionTimestamp != nil:
			return wrong("wait until it is gone, then "+join,
				"ClusterProfile %s on the hub is being deleted: this cluster was evicted, or leaves", f.ID)
		case p.Annotations[clusterset.AnnotationLeft] != "":
			return wrong("wait until it is gone, then "+join,
				"ClusterProfile %s on the hub is of a cluster that has left", f.ID)
		case holder != "" && holder != f.UID:
			return wrong("kubectl clusterset leave --force; "+join+" --cluster-id ANOTHER",
				"cluster ID %s is held by another cluster (UID of "+
					"kube-system %s, here %s): the cluster ID or the credentials were copied", f.ID, holder, f.UID)
		}
		return nil
	}
	return wrong(join, "the hub has no ClusterProfile %s: this cluster has not joined, or was evicted", f.ID)
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
	if f.Credentials != nil && f.Credentials.Server != "" {
		where = ", but on the one at " + f.Credentials.Server
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
	return !unread && f.Set != "" && !evicted && facts.RenewsElsewhere(f.Leases, f.Now, h.Lease(f.ID), h.Now)
}

func heartbeat(f *Facts) []report.Finding {
	stopped := f.Deployment != nil && f.Deployment.Status.AvailableReplicas == 0 // agentDeployment finds it
	if f.Set == "" || f.live() || stopped {
		return nil
	}
	if l := f.HubFacts.Lease(f.ID); l != nil {
		if at, _, ok := facts.Renewed(l); ok {
			return wrong(facts.AgentLog,
				"the agent last renewed its Lease on the hub %s ago: other members see no change of this cluster's "+
					"exports, and drop its endpoints where these do not answer", report.Age(f.HubFacts.Now.Sub(at)))
		}
	}
	return wrong(facts.AgentLog, "the agent has never renewed its Lease on the hub")
}
