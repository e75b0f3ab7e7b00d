// Package facts holds what commands that write and the checks both know: remedies, what a cluster is in ClusterSets,
// and what Leases and Deployments show. It reads no cluster itself.
package facts

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Remedies of commands that write.
const (
	NameHub     = "name the hub of this cluster with --hub-context"
	Join        = "kubectl clusterset join --hub-context=HUB"
	Init        = "kubectl clusterset init --hub-context=HUB"
	StartAgent  = "kubectl -n clusterset-system scale deployment clusterset-controller --replicas=2"
	GoOnLeaving = "to continue: kubectl clusterset leave --hub-context=HUB; without access to the hub, unless it has " +
		"evicted this cluster: kubectl clusterset leave"
	Readmit = "to be a member again with its cluster ID and VIPs: " + Join + "; to remove what is left here: kubectl " +
		"clusterset leave --hub-context=HUB"
	// InstallDNS is the remedy for all that dns install brings.
	InstallDNS = "kubectl clusterset dns install --image=REGISTRY/coredns:VERSION"
	// RefusedAt is how a remedy says what CoreDNS refuses: first comes the namespace, then a Pod or a Deployment.
	RefusedAt = "kubectl -n %s logs %s | grep -iE 'reload|error' | tail -n 5; if CoreDNS refuses the Corefile, " +
		"it says why there"
)

// Oldest is the oldest Kubernetes version that members and hubs may have.
const Oldest = "1.32"

// TooOld reports whether a Kubernetes version is below Oldest; false if it cannot be parsed.
func TooOld(v string) bool {
	parsed, err := version.ParseGeneric(v)
	return err == nil && parsed.LessThan(version.MustParseGeneric(Oldest))
}

// Version returns the tag of the image of a Deployment's first container: "" without a Deployment, "unknown" without a
// tag.
func Version(d *appsv1.Deployment) string {
	if d == nil || len(d.Spec.Template.Spec.Containers) == 0 {
		return ""
	}
	return Tag(d.Spec.Template.Spec.Containers[0].Image)
}

// Tag returns the tag of an image: "" for none, "unknown" for one without.
func Tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[colon+1:]
	}
	if image == "" {
		return ""
	}
	return "unknown"
}

// Role is what a cluster is in ClusterSets. What could not be read is missing.
type Role struct {
	HubOf    []string // ClusterSets
	MemberOf string   // a ClusterSet, or ""
	Server   string   // the URL of that ClusterSet's hub, or ""
}

// NoSet finds that a cluster that was named as the hub has no ClusterSet in a namespace. The remedy is for a cluster
// that could become the hub.
func (r *Role) NoSet(namespace, remedy string) report.Finding {
	switch {
	case len(r.HubOf) > 0:
		return report.Errorf("name another with --hub-namespace", "namespace %s of the hub holds no ClusterSet; it is "+
			"the hub of: %s", namespace, strings.Join(r.HubOf, ", "))
	case r.MemberOf != "":
		return report.Errorf("name that hub with --hub-context", "the cluster that you named as the hub %s; its "+
			"namespace %s holds no ClusterSet", r, namespace)
	}
	return report.Errorf(remedy, "namespace %s of the hub holds no ClusterSet", namespace)
}

// OnlyHub is the error of a command for a member in a hub that is none.
func (r *Role) OnlyHub() error {
	if r.MemberOf != "" || len(r.HubOf) == 0 {
		return nil
	}
	return report.WithRemedy(fmt.Errorf("this cluster is no member: it is the hub of ClusterSet %s",
		strings.Join(r.HubOf, ", ")), "name a member with --context")
}

// String says what a member is.
func (r *Role) String() string {
	s := "is a member of ClusterSet " + r.MemberOf
	if r.Server != "" {
		s += ", whose hub is " + r.Server
	}
	return s
}

// StartHub is the remedy if the hub's controller, a Deployment in clusterset-system, does not run.
func StartHub(deployment string) string {
	return fmt.Sprintf("on the hub: kubectl -n %[1]s get deployment %[2]s; if it is scaled to 0: kubectl -n %[1]s "+
		"scale deployment %[2]s --replicas=2; else: kubectl -n %[1]s logs deployment/%[2]s --all-pods --tail=50; if "+
		"there is none: %[3]s", kube.SystemNamespace, deployment, Init)
}

// KeepOne is the remedy for several ClusterSets in a namespace.
func KeepOne(namespace string) string {
	return "keep one, on the hub: kubectl -n " + namespace + " delete clusterset NAME"
}
