package doctor

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/clock"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Oldest is the first Kubernetes version that members and hubs may have (DESIGN §11).
const Oldest = "1.32"

var memberChecks = []Check{
	{"kubernetes-version", nil, func(f *Facts) []Finding { return tooOld("this cluster", f.Version) }},
	{"kinds", []Topic{CRDs}, func(f *Facts) []Finding { return kinds(&f.Kinds, "this cluster", "kubectl clusterset join") }},
	{"policies", []Topic{Policies}, func(f *Facts) []Finding { return policies(&f.Kinds, "this cluster", "kubectl clusterset join") }},
	{"cluster-id", []Topic{Membership}, clusterID},
	{"membership", []Topic{Membership}, membership},
	{"agent-deployment", []Topic{Agent}, agentDeployment},
	{"agent-arguments", []Topic{Agent, Membership}, agentArguments},
	{"agent-rights", []Topic{AgentAuth}, func(f *Facts) []Finding {
		return lacks("the agent (ServiceAccount clusterset-system/clusterset-controller)", f.AgentLacks, "kubectl clusterset join, or apply your kustomization of deploy/member")
	}},
	{"agent-word", []Topic{AgentWord, Membership}, func(f *Facts) []Finding {
		if f.Says == "" || f.Set != "" && !f.Leaving {
			return nil
		}
		return wrong("as it says", "the agent says: %s", f.Says)
	}},
}

// TooOld tells whether a Kubernetes version is older than what is supported.
func TooOld(v string) bool {
	parsed, err := version.ParseGeneric(v)
	return err == nil && parsed.LessThan(version.MustParseGeneric(Oldest))
}

func tooOld(where, v string) []Finding {
	if !TooOld(v) {
		return nil
	}
	return wrong("upgrade it", "%s runs Kubernetes %s; the oldest that is supported is %s", where, v, Oldest)
}

func kinds(k *Kinds, where, remedy string) (out []Finding) {
	var missing []string
	for name, versions := range k.Want {
		served, there := k.Have[name]
		if !there {
			missing = append(missing, name)
			continue
		}
		for _, v := range versions {
			if !slices.Contains(served, v) {
				out = append(out, wrong(remedy, "%s serves %s not as %s but as %s: another, older project brought that CRD", where, name, v, strings.Join(served, ", "))...)
			}
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		out = append(out, wrong(remedy, "%s has no kind %s", where, strings.Join(missing, ", "))...)
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.What, b.What) })
	return out
}

func policies(k *Kinds, where, remedy string) []Finding {
	var missing []string
	for _, p := range k.Policies {
		if !slices.Contains(k.Enforced, p) {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return wrong(remedy, "%s does not enforce the ValidatingAdmissionPolicies %s: they are gone, or are not bound with action Deny", where, strings.Join(missing, ", "))
}

func clusterID(f *Facts) []Finding {
	if f.ID == "" {
		return wrong("kubectl clusterset join --cluster-id ID", "there is no ClusterProperty %s: this cluster has no id", clusterset.PropertyID)
	}
	if err := clusterset.CheckID(f.ID); err != nil {
		return wrong("kubectl clusterset leave, delete the ClusterProperty, then kubectl clusterset join --cluster-id ID", "ClusterProperty %s: %v", clusterset.PropertyID, err)
	}
	return nil
}

func membership(f *Facts) []Finding {
	switch {
	case f.Set == "":
		return wrong("kubectl clusterset join; if it was begun already, the checks below say what it waits for", "there is no ClusterProperty %s: this cluster is a member of no clusterset", clusterset.PropertySet)
	case f.Leaving:
		return warn("kubectl clusterset leave goes on with it", "this cluster is leaving clusterset %s", f.Set)
	}
	return nil
}

// fresh tells whether the hub shows that the agent works, wherever it runs.
func (f *Facts) fresh() bool {
	l := f.lease()
	return l != nil && !clock.Expired(l, f.HubFacts.Now)
}

// lease is this cluster's on the hub; nil for none.
func (f *Facts) lease() *coordinationv1.Lease {
	for i := range f.HubFacts.Leases {
		if l := &f.HubFacts.Leases[i]; l.Name == f.ID {
			return l
		}
	}
	return nil
}

func agentDeployment(f *Facts) []Finding {
	if f.fresh() {
		return nil
	}
	if f.Deployment == nil {
		return wrong("kubectl clusterset join", "there is no Deployment clusterset-system/clusterset-controller")
	}
	if f.Deployment.Spec.Replicas != nil && *f.Deployment.Spec.Replicas == 0 {
		return wrong("kubectl -n clusterset-system scale deployment clusterset-controller --replicas=2", "the agent's Deployment is scaled to 0")
	}
	if f.Deployment.Status.AvailableReplicas > 0 {
		return nil
	}
	for i := range f.Pods {
		if why := Waiting(&f.Pods[i]); why != "" {
			remedy := "kubectl -n clusterset-system describe pod " + f.Pods[i].Name
			if strings.Contains(why, "ImagePull") || strings.Contains(why, "InvalidImageName") {
				remedy = "kubectl clusterset join --image REGISTRY/clusterset-controller:VERSION, with an image that the nodes can pull"
			}
			return wrong(remedy, "the agent does not run: %s", why)
		}
	}
	return wrong("kubectl -n clusterset-system describe deployment clusterset-controller", "no replica of the agent is available")
}

// Waiting is why a pod does not run, "" if it does.
func Waiting(p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
			return fmt.Sprintf("pod %s: %s: %s", p.Name, w.Reason, w.Message)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("pod %s is not scheduled: %s", p.Name, c.Message)
		}
	}
	return ""
}

// argument is the value of --name=value among the arguments of the agent's container: of several the last, as the agent has it.
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

func agentArguments(f *Facts) (out []Finding) {
	if id := f.argument("cluster-id"); id != "" && f.ID != "" && id != f.ID {
		out = append(out, wrong("kubectl clusterset join", "the agent runs with --cluster-id=%s, and ClusterProperty %s is %s: it does not start", id, clusterset.PropertyID, f.ID)...)
	}
	if ns := f.argument("hub-namespace"); f.Credentials != nil && f.Credentials.Namespace != "" && ns != "" && ns != f.Credentials.Namespace {
		out = append(out, wrong("kubectl clusterset join", "the agent runs with --hub-namespace=%s, and its token is of namespace %s on the hub", ns, f.Credentials.Namespace)...)
	}
	return out
}

func lacks(who string, rights []string, remedy string) []Finding {
	if len(rights) == 0 {
		return nil
	}
	if n := len(rights); n > 5 {
		rights = append(slices.Clone(rights[:5]), fmt.Sprintf("and %d more", n-5))
	}
	return wrong(remedy, "%s may not %s", who, strings.Join(rights, ", "))
}
