// Package facts holds what commands that write and the checks both know: remedies, what a cluster is in ClusterSets,
// and what Leases and Deployments show. It reads no cluster itself.
package facts

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Commands of steps.
const (
	Join       = "kubectl clusterset join --hub-context=HUB"
	Init       = "kubectl clusterset init --hub-context=HUB"
	Leave      = "kubectl clusterset leave --hub-context=HUB"
	Doctor     = "kubectl clusterset doctor"
	ScaleAgent = "kubectl -n clusterset-system scale deployment clusterset-controller --replicas="
	// InstallDNS is the one for all that dns install brings.
	InstallDNS = "kubectl clusterset dns install --image=REGISTRY/coredns:VERSION"
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

// NoSet is the error if a cluster that was named as the hub has no ClusterSet in a namespace. The remedy is for a
// cluster that could become the hub.
func (r *Role) NoSet(namespace, remedy string) error {
	switch {
	case len(r.HubOf) > 0:
		return report.WithRemedy(fmt.Errorf("namespace %s of the hub holds no ClusterSet; it is the hub of: %s",
			namespace, strings.Join(r.HubOf, ", ")), "name another with --hub-namespace")
	case r.MemberOf != "":
		return report.WithRemedy(fmt.Errorf("the cluster that you named as the hub %s; its namespace %s holds no "+
			"ClusterSet", r, namespace), "name that hub with --hub-context")
	}
	return report.WithRemedy(fmt.Errorf("namespace %s of the hub holds no ClusterSet", namespace), remedy)
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
