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
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
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
	{"agent-arguments", []Topic{Agent, Membership}, agentArguments},
	{"agent-rights", []Topic{AgentAuth}, func(f *Facts) []report.Finding {
		return lacks("the agent (ServiceAccount clusterset-system/clusterset-controller)", f.AgentLacks, join)
	}},
	{"agent-knows", []Topic{AgentKnows}, func(f *Facts) []report.Finding { return slices.Clone(f.Known) }},
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
		switch {
		case f.HubFacts.Unreachable:
			remedy = "with the URL at which this cluster's pods reach the hub: " + remedy + " --hub-server URL"
		case f.Deployment != nil:
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
	if runs || f.live() || f.refused() || f.Set == "" && len(f.Known) > 0 && slices.ContainsFunc(f.Pods, starts) {
		return nil // it is not ready before it is a member, and the cause has a finding of its own
	}
	return wrong("kubectl -n clusterset-system describe deployment clusterset-controller",
		"no replica of the agent is available")
}

// argument returns the last --name=value of any container of the agent, or "".
func (f *Facts) argument(name string) (value string) {
	if f.Deployment == nil {
		return ""
	}
	for _, c := range f.Deployment.Spec.Template.Spec.Containers {
		for _, a := range c.Args {
			if v, ok := strings.CutPrefix(a, "--"+name+"="); ok {
				value = v
			}
		}
	}
	return value
}

func agentArguments(f *Facts) (out []report.Finding) {
	if id := f.argument("cluster-id"); id != "" && f.ID != "" && id != f.ID {
		out = append(out, report.Errorf(join,
			"the agent does not start: it has --cluster-id=%s, and ClusterProperty %s is %s", id,
			clusterset.PropertyID, f.ID))
	}
	c, ns := f.Credentials, f.argument("hub-namespace")
	if c != nil && c.Namespace != "" && ns != "" && ns != c.Namespace {
		out = append(out, report.Errorf(join,
			"the agent has --hub-namespace=%s, and its token is for namespace %s on the hub", ns, c.Namespace))
	}
	return out
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
