package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
)

// Oldest is the oldest Kubernetes version that members and hubs may have.
const Oldest = "1.32"

const join = facts.Join

var memberChecks = []Check{
	{"kubernetes-version", nil, func(f *Facts) []report.Finding { return tooOld("this cluster", f.Version) }},
	{"kinds", []Topic{CRDs}, func(f *Facts) []report.Finding { return kinds(&f.Kinds, "this cluster", join) }},
	{"policies", []Topic{Policies}, func(f *Facts) []report.Finding {
		return policies(&f.Kinds, "this cluster", join)
	}},
	{"cluster-id", []Topic{Membership}, clusterID},
	{"membership", []Topic{Membership}, membership},
	{"agent-deployment", []Topic{Agent}, agentDeployment},
	{"credentials", []Topic{Secret}, credentials},
	{"agent-knows", []Topic{AgentKnows}, agentKnows},
	{"agent-rights", []Topic{AgentAuth}, func(f *Facts) []report.Finding {
		return lacks("the agent", f.AgentLacks, join)
	}},
	{"heartbeat", []Topic{Agent, Membership}, heartbeat},
}

// TooOld reports whether a Kubernetes version is below Oldest; false if it cannot be parsed.
func TooOld(v string) bool {
	parsed, err := version.ParseGeneric(v)
	return err == nil && parsed.LessThan(version.MustParseGeneric(Oldest))
}

func tooOld(where, v string) []report.Finding {
	if !TooOld(v) {
		return nil
	}
	return wrong("upgrade it", "%s runs Kubernetes %s; the oldest supported version is %s", where, v, Oldest)
}

func kinds(k *Kinds, where, remedy string) (out []report.Finding) {
	var missing []string
	for name, versions := range k.Want {
		served, ok := k.Have[name]
		if !ok {
			missing = append(missing, name)
			continue
		}
		for _, v := range versions {
			if !slices.Contains(served, v) {
				out = append(out, report.Errorf(remedy,
					"%s serves %s as %s and not as %s: an older project brought that CRD", where, name,
					strings.Join(served, ", "), v))
			}
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		out = append(out, report.Errorf(remedy, "%s has no kind %s", where, strings.Join(missing, ", ")))
	}
	slices.SortFunc(out, func(a, b report.Finding) int { return strings.Compare(a.What, b.What) })
	return out
}

func policies(k *Kinds, where, remedy string) []report.Finding {
	missing := slices.DeleteFunc(slices.Clone(k.Policies), func(p string) bool {
		return slices.Contains(k.Enforced, p)
	})
	if len(missing) == 0 {
		return nil
	}
	return wrong(remedy, "%s does not enforce the ValidatingAdmissionPolicies %s: they are missing, or not bound "+
		"with action Deny", where, strings.Join(missing, ", "))
}

func clusterID(f *Facts) []report.Finding {
	if f.ID == "" {
		return wrong(join+" --cluster-id ID", "this cluster has no cluster ID: there is no ClusterProperty %s",
			clusterset.PropertyID)
	}
	if err := clusterset.CheckID(f.ID); err != nil {
		return wrong(fmt.Sprintf("kubectl clusterset leave; kubectl delete clusterproperty %s; %s --cluster-id ID",
			clusterset.PropertyID, join), "ClusterProperty %s: %v", clusterset.PropertyID, err)
	}
	return nil
}

func membership(f *Facts) []report.Finding {
	switch {
	case f.Set == "":
		remedy := f.Join()
		if f.Deployment != nil {
			remedy = f.Finish()
		}
		return wrong(remedy,
			"this cluster is a member of no ClusterSet: there is no ClusterProperty %s", clusterset.PropertySet)
	case f.Leaving:
		return warn(facts.GoOnLeaving, "this cluster is leaving ClusterSet %s", f.Set)
	}
	return nil
}

// live reports whether its Lease shows that the agent works, wherever it runs.
func (f *Facts) live() bool { return f.HubFacts.Live(f.ID) || f.renewsElsewhere() }

func agentDeployment(f *Facts) []report.Finding {
	if d := f.Deployment; d != nil && ptr.Deref(d.Spec.Replicas, 1) == 0 {
		return wrong(facts.StartAgent, "the agent's Deployment is scaled to 0")
	}
	if f.Deployment == nil {
		if f.live() {
			return nil
		}
		return wrong(join, "there is no Deployment clusterset-system/clusterset-controller")
	}
	runs := f.Deployment.Status.AvailableReplicas > 0
	for i := range f.Pods {
		why := facts.Waiting(&f.Pods[i])
		if why == "" || f.live() && !runs { // else the agent runs elsewhere
			continue
		}
		remedy := facts.LookAt(&f.Pods[i], why)
		if facts.NoImage(why) {
			remedy = join + " --image REGISTRY/clusterset-controller:VERSION, an image that the nodes can pull; " +
				report.DocsImages
		}
		if runs {
			return warn(remedy, "a replica of the agent does not run, such as one of a new version: %s", why)
		}
		return wrong(remedy, "the agent does not run: %s", why)
	}
	starts := func(p corev1.Pod) bool { return !facts.Ended(&p) }
	if runs || f.live() || f.outside() && slices.ContainsFunc(f.Pods, starts) {
		return nil // it is not ready before it is a member, and the cause has a finding of its own
	}
	return wrong("kubectl -n clusterset-system describe deployment clusterset-controller",
		"no replica of the agent is available")
}

// known reports whether the agent has stated one of these reasons or conditions.
func (f *Facts) known(reasons ...string) bool {
	return slices.ContainsFunc(f.Known, func(x report.Finding) bool {
		return slices.Contains(reasons, x.Check) || slices.Contains(reasons, health.Reasons[x.Check].Condition)
	})
}

// outside reports whether the agent has stated why it is no member, or does not work as one.
func (f *Facts) outside() bool {
	return f.known(hubv1alpha1.ConditionHubReachable, hubv1alpha1.ConditionCredentialsValid,
		hubv1alpha1.ConditionAdmitted)
}

func agentKnows(f *Facts) []report.Finding {
	if f.Outdated != "" && len(agentDeployment(f)) == 0 { // else no agent runs
		return warn(facts.AgentLog, "the agent's Membership does not show what is now: %s", f.Outdated)
	}
	return slices.Clone(f.Known)
}

// heartbeat finds an agent that does not renew its Lease on the hub, by the Lease here that follows it.
func heartbeat(f *Facts) []report.Finding {
	at, expired, ever := facts.HubSeen(f.Leases, f.Now)
	switch {
	case f.Set == "" || ever && !expired || f.live() || f.outside() || len(agentDeployment(f)) > 0:
		return nil
	case !ever:
		return wrong(facts.AgentLog, "the agent has never renewed its Lease on the hub")
	}
	return wrong(facts.AgentLog, "the agent last renewed its Lease on the hub %s ago: other members see no change of "+
		"this cluster's exports, and drop its endpoints where these do not answer", report.Age(f.Now.Sub(at)))
}

// credentials finds a Secret that the agent will miss when it starts again: until then it uses what it has read.
func credentials(f *Facts) []report.Finding {
	switch {
	case f.known("NoCredentials", "NotRenewed", "Refused"):
		return nil
	case f.Credentials == nil:
		return wrong(renew, "the agent has no credentials for the hub: there is no Secret clusterset-system/%s",
			clusterset.SecretHub)
	case f.Credentials.Problem != "":
		return wrong(renew, "Secret clusterset-system/%s: %s", clusterset.SecretHub, f.Credentials.Problem)
	}
	return nil
}

func lacks(who string, rights []string, remedy string) []report.Finding {
	if len(rights) == 0 {
		return nil
	}
	if n := len(rights); n > 5 {
		rights = append(slices.Clone(rights[:5]), fmt.Sprintf("and %d more", n-5))
	}
	return wrong(remedy, "%s may not %s", who, strings.Join(rights, ", "))
}
