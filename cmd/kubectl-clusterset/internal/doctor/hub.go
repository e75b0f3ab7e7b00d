package doctor

import (
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/clock"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/table"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

const renew = "kubectl clusterset join --renew"

var credentialChecks = []Check{
	{"credentials", []Topic{Secret}, func(f *Facts) []Finding {
		switch {
		case f.Credentials == nil:
			return wrong("kubectl clusterset join", "there is no Secret clusterset-system/%s: the agent has no credentials for the hub", clusterset.SecretHub)
		case f.Credentials.Problem != "":
			return wrong(renew, "Secret clusterset-system/%s: %s", clusterset.SecretHub, f.Credentials.Problem)
		}
		return nil
	}},
	{"token-account", []Topic{Secret, Membership}, func(f *Facts) []Finding {
		if c := f.Credentials; c != nil && c.Problem == "" && f.ID != "" && c.Account != clusterset.AccountPrefix+f.ID {
			return wrong(renew, "the token for the hub is of %s, and this cluster's account is %s%s", c.Account, clusterset.AccountPrefix, f.ID)
		}
		if c, asked := f.Credentials, f.HubFacts.Asked; c != nil && c.Problem == "" && asked != "" && asked != c.Namespace {
			return warn("leave --hub-namespace off, or: "+renew, "the token for the hub is of namespace %s, and --hub-namespace is %s", c.Namespace, asked)
		}
		return nil
	}},
	{"token-lifetime", []Topic{Secret}, tokenLifetime},
	{"hub-address", []Topic{Secret}, hubAddress},
	{"hub-reachable", []Topic{Secret}, hubReachable},
	{"hub-rights", []Topic{HubAuth}, func(f *Facts) []Finding {
		return lacks("this member on the hub", f.HubFacts.MemberLacks, "kubectl clusterset join with the hub admin's credentials, or deploy/hub/README.md, step 3")
	}},
}

// hubReachable: the agent's address of the hub need not lead there from the admin's machine; what the hub answers is the same for both.
func hubReachable(f *Facts) []Finding {
	if f.HubFacts.Refused == "" || f.HubFacts.Unreachable && f.fresh() {
		return nil
	}
	at, old, known := clock.Seen(f.Leases, f.Now)
	ago := table.Age(f.Now.Sub(at))
	switch {
	case f.HubFacts.Unreachable && old:
		return wrong("kubectl -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50; mend the way to the hub, or: "+renew+" --hub-server URL",
			"the hub is not reached at %s: the agent last renewed its Lease there %s ago, and from here: %s", f.Credentials.Server, ago, f.HubFacts.Refused)
	case f.HubFacts.Unreachable && known:
		return warn("if the hub has another address for this machine than for the pods: name the hub with --hub-context",
			"from here, the hub is not reached at the agent's address of it, %s, where the agent renewed its Lease %s ago: %s", f.Credentials.Server, ago, f.HubFacts.Refused)
	case f.HubFacts.Unreachable:
		return warn("if the hub has another address for this machine than for the pods: look at the agent's log, or name the hub with --hub-context; else mend the way there, or: "+renew+" --hub-server URL",
			"from here, the hub is not reached at the agent's address of it, %s: %s", f.Credentials.Server, f.HubFacts.Refused)
	}
	return wrong(renew+"; if the hub has another address: "+renew+" --hub-server URL", "with the agent's credentials the hub %s says, from here: %s", f.Credentials.Server, f.HubFacts.Refused)
}

func tokenLifetime(f *Facts) []Finding {
	c := f.Credentials
	if c == nil || c.Problem != "" {
		return nil
	}
	left := c.Expires.Sub(f.Now)
	switch {
	case left <= 0:
		return wrong(renew, "the token for the hub ran out %s ago: imports stand as they were then, and other members see this cluster as gone", table.Age(-left))
	case left > 24*time.Hour+time.Minute:
		return warn(renew, "the token for the hub lives for another %s; a day is the most that is safe: the hub's policy on tokens does not hold, or somebody else made it", table.Age(left))
	}
	return nil
}

func hubAddress(f *Facts) []Finding {
	c := f.Credentials
	if c == nil || c.Problem != "" {
		return nil
	}
	server, err := url.Parse(c.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return wrong(renew+" --hub-server URL", "the hub's address %q is no https URL", c.Server)
	}
	if Loopback(server.Hostname()) {
		return warn(renew+" --hub-server URL, with the address that this cluster's pods reach the hub at", "the hub's address %s is each machine's own: no pod reaches the hub there", c.Server)
	}
	if c.Insecure {
		return wrong(renew+" with a kubeconfig of the hub that has its certificate authority", "the hub's certificate is not verified: whoever is on the way can be the hub")
	}
	return nil
}

// Loopback tells whether a host is the machine itself.
func Loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

var hubChecks = []Check{
	{"hub-version", []Topic{Hub}, func(f *Facts) []Finding { return tooOld("the hub", f.HubFacts.Version) }},
	{"hub-clusterset", []Topic{Hub}, hubClusterSet},
	{"hub-kinds", []Topic{HubAdmin}, func(f *Facts) []Finding {
		return kinds(&f.HubFacts.Kinds, "the hub", "kubectl clusterset init --hub-context=HUB")
	}},
	{"hub-policies", []Topic{HubAdmin}, hubPolicies},
	{"hub-leader", []Topic{Hub, HubLeader}, hubLeader},
	{"hub-controller", []Topic{Hub}, hubController},
	{"hub-another", []Topic{Hub, Membership}, anotherHub},
	{"claim", []Topic{Hub, Membership}, claim},
	{"heartbeat", []Topic{Hub, Membership}, heartbeat},
	{"clock", []Topic{Hub}, clocks},
}

func hubClusterSet(f *Facts) []Finding {
	switch n := len(f.HubFacts.Sets); {
	case n == 0:
		return wrong("kubectl clusterset init --hub-context=HUB", "the clusterset's namespace on the hub holds no ClusterSet: agents wait for it")
	case n > 1:
		return wrong("delete all but one", "the clusterset's namespace on the hub holds %d ClusterSets: agents wait until there is one", n)
	case f.Set != "" && f.HubFacts.Sets[0].Name != f.Set:
		return wrong("kubectl clusterset leave, then kubectl clusterset join", "this cluster is a member of clusterset %s, and its hub's is %s", f.Set, f.HubFacts.Sets[0].Name)
	}
	return nil
}

// hubPolicies: without the label no policy holds in the namespace.
func hubPolicies(f *Facts) []Finding {
	out := policies(&f.HubFacts.Kinds, "the hub", "kubectl clusterset init --hub-context=HUB")
	if ns := f.HubFacts.Namespace; ns != nil && ns.Labels[clusterset.LabelSet] == "" {
		out = append(out, wrong("kubectl clusterset init --hub-context=HUB", "the hub's namespace %s lacks the label %s: no policy holds there, and every member can write every other's records", ns.Name, clusterset.LabelSet)...)
	}
	return out
}

// leaderless tells whether the hub's controller does not run, and for how long, as far as that was read.
func (f *Facts) leaderless() (time.Duration, bool) {
	if f.HubFacts.Leader == nil || len(f.HubFacts.Sets) != 1 {
		return 0, false
	}
	return clock.Leaderless(f.HubFacts.Leader, f.HubFacts.Sets[0].CreationTimestamp.Time, f.HubFacts.Now)
}

func hubLeader(f *Facts) []Finding {
	idle, stopped := f.leaderless()
	if !stopped {
		return nil
	}
	remedy := "on the hub: kubectl -n clusterset-system logs -l app.kubernetes.io/name=clusterset-hub --tail=50"
	if _, unread := f.Unread[HubAdmin]; !unread {
		switch d := f.HubFacts.Controller; {
		case d == nil:
			remedy = "kubectl clusterset init --hub-context=HUB"
		case d.Spec.Replicas != nil && *d.Spec.Replicas == 0:
			remedy = "on the hub: kubectl -n clusterset-system scale deployment " + d.Name + " --replicas=2"
		default:
			remedy = "on the hub: kubectl -n clusterset-system describe deployment " + d.Name + "; kubectl -n clusterset-system logs deployment/" + d.Name + " --all-pods --tail=50"
		}
	}
	return warn(remedy, "clusterset-controller hub does not run: nobody has renewed its leader's Lease for %s; who leaves or is evicted is not cleaned up, nobody gets a block, and conditions of ClusterProfiles stand still", table.Age(idle))
}

// hubController goes by what it does: the conditions of the ClusterProfiles.
func hubController(f *Facts) []Finding {
	quiet := len(f.HubFacts.Profiles) > 0
	for i := range f.HubFacts.Profiles {
		p := &f.HubFacts.Profiles[i]
		quiet = quiet && len(p.Status.Conditions) == 0 && f.HubFacts.Now.Sub(p.CreationTimestamp.Time) > time.Minute
	}
	if _, stopped := f.leaderless(); !quiet || stopped {
		return nil
	}
	what := "no ClusterProfile on the hub has a condition: clusterset-controller hub does not run, or waits, so that nothing cleans up after members that leave"
	if _, unread := f.Unread[HubAdmin]; !unread && f.HubFacts.Controller == nil {
		return warn("kubectl clusterset init --hub-context=HUB", "%s; its Deployment in clusterset-system is not there", what)
	}
	return warn("on the hub: kubectl -n clusterset-system logs -l app.kubernetes.io/name=clusterset-hub --tail=50", "%s", what)
}

func claim(f *Facts) []Finding {
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
			return wrong("wait until it is gone, then kubectl clusterset join", "ClusterProfile %s on the hub is being deleted: this cluster was evicted, or leaves", f.ID)
		case p.Annotations[clusterset.AnnotationLeft] != "":
			return wrong("wait until it is gone, then kubectl clusterset join", "ClusterProfile %s on the hub is of a cluster that has left", f.ID)
		case holder != "" && holder != f.UID:
			return wrong("kubectl clusterset leave --force, then join --cluster-id ID, with an id of its own", "cluster id %s is held by another cluster (kube-system UID %s, this one's is %s): its id or credentials were copied", f.ID, holder, f.UID)
		}
		return nil
	}
	if f.renewsElsewhere() {
		return nil
	}
	return wrong("kubectl clusterset join", "the hub has no ClusterProfile %s: this cluster has not joined, or was evicted", f.ID)
}

// anotherHub: what is told of a hub that is not this cluster's must not send anybody to join there.
func anotherHub(f *Facts) []Finding {
	if !f.renewsElsewhere() {
		return nil
	}
	where := ""
	if f.Credentials != nil && f.Credentials.Server != "" {
		where = ", but on the one at " + f.Credentials.Server
	}
	return wrong("name the hub of this cluster with --hub-context", "the agent does not renew its Lease on this hub%s: what is said here of the hub is another clusterset's", where)
}

// renewsElsewhere tells whether the agent renews its Lease on another hub. Who was evicted a moment ago does not.
func (f *Facts) renewsElsewhere() bool {
	evicted := slices.ContainsFunc(f.HubFacts.Sets, func(s hubv1alpha1.ClusterSet) bool { return clusterset.Departed(&s, f.ID) })
	return f.Set != "" && !evicted && clock.Elsewhere(f.Leases, f.Now, f.lease(), f.HubFacts.Now)
}

func heartbeat(f *Facts) []Finding {
	if f.Set == "" || f.fresh() || f.renewsElsewhere() {
		return nil
	}
	remedy := "kubectl -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50"
	if l := f.lease(); l != nil {
		if at, _, ok := clock.Renewed(l); ok {
			return wrong(remedy, "the agent renewed its Lease on the hub %s ago: for other members this cluster is gone", table.Age(f.HubFacts.Now.Sub(at)))
		}
	}
	return wrong(remedy, "the agent has never renewed its Lease on the hub")
}

// tolerance of clocks: what is compared is whole seconds, and a write takes its time.
const tolerance = 10 * time.Second

func clocks(f *Facts) (out []Finding) {
	const remedy = "set the clocks of that cluster's nodes (NTP): the age of exports decides conflicts, and certificates and tokens have dates"
	if ahead := f.Now.Sub(f.HubFacts.Now); ahead.Abs() > tolerance {
		out = append(out, warn(remedy, "this cluster's API server and the hub's are %v apart", ahead.Abs().Round(time.Second))...)
	}
	for i := range f.HubFacts.Leases {
		l := &f.HubFacts.Leases[i]
		if _, ahead, ok := clock.Renewed(l); ok && ahead.Abs() > tolerance && !clock.Expired(l, f.HubFacts.Now) {
			out = append(out, warn(remedy, "the clock of cluster %s is %v away from the hub's%s", l.Name, ahead.Abs(), clock.OrWas(l, ahead))...)
		}
	}
	return out
}
