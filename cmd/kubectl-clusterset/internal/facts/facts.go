// Package facts has what the checks share with commands that write: remedies, the role of a cluster in ClusterSets, and
// what Leases and Deployments show. It reads no cluster itself.
package facts

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Commands of steps.
const (
	Join       = "kubectl clusterset join --hub-context=HUB"
	Init       = "kubectl clusterset init --hub-context=HUB"
	Leave      = "kubectl clusterset leave --hub-context=HUB"
	Doctor     = "kubectl clusterset doctor"
	ScaleAgent = "kubectl -n clusterset-system scale deployment clusterset-controller --replicas="
	InstallDNS = "kubectl clusterset dns install"
)

// NoRelease returns the error that no image is known.
func NoRelease() error {
	return report.Fail("name one that the nodes can pull with --image; "+report.DocsImages,
		"this build of kubectl-clusterset has no released image")
}

// Oldest is the oldest Kubernetes version that members and hubs may have.
const Oldest = "1.32"

// TooOld reports whether a Kubernetes version is below Oldest; false if it cannot be parsed.
func TooOld(v string) bool {
	parsed, err := version.ParseGeneric(v)
	return err == nil && parsed.LessThan(version.MustParseGeneric(Oldest))
}

// Version returns Tag of a Deployment's first container.
func Version(d *appsv1.Deployment) string {
	c := Container(d)
	if c == nil {
		return ""
	}
	return Tag(c.Image)
}

// Tag returns the tag of an image: "" if image is "", "unknown" if it has no tag.
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

func Container(d *appsv1.Deployment) *corev1.Container {
	if d == nil || len(d.Spec.Template.Spec.Containers) == 0 {
		return nil
	}
	return &d.Spec.Template.Spec.Containers[0]
}

// mounted is where deploy/member mounts the kubeconfig of the agent's Secret.
const mounted = "/etc/clusterset/hub/kubeconfig"

// OwnCredentials returns the file with the agent's credentials for the hub, "" if they come from its Secret.
func OwnCredentials(agent *appsv1.Deployment) string {
	if file := Flag(agent, "hub-kubeconfig"); file != mounted {
		return file
	}
	return ""
}

// Flag returns the last value of a flag of the first container, or "".
func Flag(d *appsv1.Deployment, flag string) (out string) {
	eachFlag(d, func(name, value string, _ []string) {
		if name == flag {
			out = value
		}
	})
	return out
}

// OtherFlags returns the flags of the first container, with their values, except these.
func OtherFlags(d *appsv1.Deployment, except ...string) (out []string) {
	eachFlag(d, func(name, _ string, args []string) {
		if !slices.Contains(except, name) {
			out = append(out, args...)
		}
	})
	return out
}

// eachFlag calls do with the one or two arguments of each flag of the first container.
func eachFlag(d *appsv1.Deployment, do func(name, value string, args []string)) {
	c := Container(d)
	if c == nil {
		return
	}
	for i := 0; i < len(c.Args); i++ {
		first := i
		name, value, whole := strings.Cut(strings.TrimLeft(c.Args[i], "-"), "=")
		if !strings.HasPrefix(c.Args[i], "-") {
			continue // the command
		}
		if !whole && i+1 < len(c.Args) && !strings.HasPrefix(c.Args[i+1], "-") {
			i++
			value = c.Args[i]
		}
		do(name, value, c.Args[first:i+1])
	}
}

// Release returns how to change and to remove the Helm release that installed an object, or "" if none did. Flux
// would restore a release that helm changes or removes.
func Release(o metav1.Object) (change, remove string) {
	a, by := o.GetAnnotations(), o.GetLabels()
	if name := by["helm.toolkit.fluxcd.io/name"]; name != "" {
		name = "HelmRelease " + by["helm.toolkit.fluxcd.io/namespace"] + "/" + name
		return "edit " + name, "delete " + name
	}
	if name, in := a["meta.helm.sh/release-name"], a["meta.helm.sh/release-namespace"]; name != "" {
		return "upgrade Helm release " + in + "/" + name, "helm uninstall " + name + " -n " + in
	}
	return "", ""
}

// Role is what a cluster is in ClusterSets. What could not be read is missing.
type Role struct {
	HubOf    []string // ClusterSets
	MemberOf string   // a ClusterSet, or ""
	Server   string   // the URL of that ClusterSet's hub, or ""
}

// NoSet returns the error that a cluster, which was named as the hub, has no ClusterSet in namespace. remedy is for a
// cluster that has no role yet.
func (r *Role) NoSet(namespace, remedy string) error {
	switch {
	case len(r.HubOf) > 0:
		return report.Fail("name another with --hub-namespace",
			"namespace %s of the hub holds no ClusterSet; it is the hub of: %s", namespace, strings.Join(r.HubOf, ", "))
	case r.MemberOf != "":
		return report.Fail("name that hub with --hub-context",
			"the cluster that you named as the hub %s; its namespace %s holds no ClusterSet", r, namespace)
	}
	return report.Fail(remedy, "namespace %s of the hub holds no ClusterSet", namespace)
}

// OnlyHub returns an error if the cluster is a hub and no member, for commands that need a member.
func (r *Role) OnlyHub() error {
	if r.MemberOf != "" || len(r.HubOf) == 0 {
		return nil
	}
	return report.Fail("name a member with --context", "this cluster is no member: it is the hub of ClusterSet %s",
		strings.Join(r.HubOf, ", "))
}

// String is for a member, and goes on after "the cluster".
func (r *Role) String() string {
	s := "is a member of ClusterSet " + r.MemberOf
	if r.Server != "" {
		s += ", whose hub is " + r.Server
	}
	return s
}

// Renewed returns when a Lease was last written, by its API server's clock, and how far its holder's clock is ahead
// of the API server's, to the second. ok is false if the Lease is nil or lacks one of the times.
func Renewed(lease *coordinationv1.Lease) (at time.Time, ahead time.Duration, ok bool) {
	if lease == nil || lease.Spec.RenewTime == nil {
		return at, 0, false
	}
	for _, f := range lease.ManagedFields {
		if f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	if at.IsZero() {
		return at, 0, false
	}
	return at, lease.Spec.RenewTime.Truncate(time.Second).Sub(at), true
}

// Expired reports whether a Lease has expired at now of its API server's clock, or lacks the times that show it.
func Expired(lease *coordinationv1.Lease, now time.Time) bool {
	at, _, ok := Renewed(lease)
	return !ok || lease.Spec.LeaseDurationSeconds == nil ||
		now.After(at.Add(time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second))
}

// HubSeen returns when a member's agent last renewed its Lease on the hub, by the member's leases, and whether that one
// has expired at now of the member's API server. ok is false if that is not known.
func HubSeen(leases []coordinationv1.Lease, now time.Time) (at time.Time, expired, ok bool) {
	lease := Named(leases, clusterset.LeaseRenewed)
	at, _, ok = Renewed(lease)
	return at, ok && Expired(lease, now), ok
}

// AgentLease is the Lease in clusterset-system that the leading agent of a member renews.
const AgentLease = "clusterset-controller"

func Find[T any](all []T, is func(*T) bool) *T {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

func Named(leases []coordinationv1.Lease, name string) *coordinationv1.Lease {
	return Find(leases, func(l *coordinationv1.Lease) bool { return l.Name == name })
}

// RenewsElsewhere reports whether a member's agent renews its Lease on another hub: the leases in the member show at
// now that the agent renews, but lease, which is the one on this hub or nil, has expired at hubNow.
func RenewsElsewhere(leases []coordinationv1.Lease, now time.Time, lease *coordinationv1.Lease, hubNow time.Time) bool {
	_, expired, ok := HubSeen(leases, now)
	return ok && !expired && Expired(lease, hubNow)
}

// revoked is how long after its departure a member may still seem to renew its Lease: clocks differ by up to a minute,
// and API servers accept a token for some seconds after its account is gone.
const revoked = 2 * time.Minute

// Departed reports whether a ClusterSet lists a member as departed, and the leases in the member do not show that its
// agent has renewed since. A hub lists a departure forever, also of a cluster that has joined another hub since.
func Departed(set *hubv1alpha1.ClusterSet, id string, leases []coordinationv1.Lease) bool {
	d := Find(set.Status.Departed, func(d *hubv1alpha1.Departure) bool { return d.ClusterID == id })
	renewed, _, ok := HubSeen(leases, time.Time{})
	return d != nil && (!ok || renewed.Before(d.At.Add(revoked)))
}

// RolledOut reports whether all replicas are new and at least available of them are available. Unless all are, why
// quotes the first Pod that waits, or else why Pods cannot be created, and names those that are not ready.
func RolledOut(d *appsv1.Deployment, pods []corev1.Pod, available int32) (done bool, why string) {
	want, st := ptr.Deref(d.Spec.Replicas, 1), &d.Status
	done = st.ObservedGeneration >= d.Generation && st.UpdatedReplicas >= want && st.Replicas <= st.UpdatedReplicas &&
		st.AvailableReplicas >= min(available, want)
	if done && st.AvailableReplicas >= want {
		return true, ""
	}
	old := st.Replicas - st.UpdatedReplicas // a rollout deletes first those that are not available
	why = fmt.Sprintf("%d of %d new replicas are available", max(0, st.AvailableReplicas-old), want)
	var unready []string
	for i := range pods {
		p := &pods[i]
		if w := Waiting(p); w != "" {
			return done, why + "; " + w
		}
		if p.DeletionTimestamp == nil && !Ended(p) && !Ready(p) {
			unready = append(unready, p.Name)
		}
	}
	for _, c := range st.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			why += "; " + c.Message // of a quota or an admission: describe does not show it
		}
	}
	if len(unready) > 0 {
		why += "; not ready: " + strings.Join(unready, ", ")
	}
	return done, why
}

// Ready reports whether a Pod should answer. A Pod that crashes, or whose node is lost, is in the phase Running, too.
func Ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Down is why a Deployment does not run as it should, and the command that shows more.
type Down struct{ Why, Look string }

// Missing returns why replicas of a Deployment are missing or old, as during each rollout; nil if all are new and
// available, or there is no Deployment.
func Missing(d *appsv1.Deployment, pods []corev1.Pod) *Down {
	if d == nil {
		return nil
	}
	kubectl := "kubectl -n " + d.Namespace
	if ptr.Deref(d.Spec.Replicas, 1) == 0 {
		return &Down{fmt.Sprintf("Deployment %s is scaled to 0", d.Name),
			kubectl + " scale deployment " + d.Name + " --replicas=2"}
	}
	done, why := RolledOut(d, pods, math.MaxInt32)
	if done {
		return nil
	}
	look := kubectl + " describe deployment " + d.Name
	p := Find(pods, func(p *corev1.Pod) bool { return Waiting(p) != "" })
	if p == nil {
		p = Find(pods, unready)
	}
	switch {
	case p == nil:
	case NoImage(why) || len(p.Status.ContainerStatuses) == 0:
		look = kubectl + " describe pod " + p.Name
	default:
		look = kubectl + " logs " + p.Name + " --tail=5"
	}
	return &Down{fmt.Sprintf("Deployment %s: %s", d.Name, why), look}
}

// unready reports whether a Pod runs, and is not ready: its log says what it waits for.
func unready(p *corev1.Pod) bool {
	return !Ended(p) && slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && !s.Ready
	})
}

const pullFailed = "ErrImagePull"

// Ended reports whether a Pod has ended, as after an eviction. Its Deployment has replaced it, and does not delete it.
func Ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// Waiting returns why a Pod does not run, or "". A Pod that has ended waits for nothing.
func Waiting(p *corev1.Pod) string {
	if Ended(p) {
		return ""
	}
	for _, s := range p.Status.ContainerStatuses {
		switch w := s.State.Waiting; {
		case w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing":
			reason, message := w.Reason, w.Message
			if _, cause, ok := strings.Cut(message, pullFailed+": "); ok && reason == "ImagePullBackOff" {
				reason, message = pullFailed, cause // the same failure between two attempts
			}
			return fmt.Sprintf("pod %s: %s: %s", p.Name, reason, message)
		case s.LastTerminationState.Terminated != nil && !s.Ready:
			t := s.LastTerminationState.Terminated
			return fmt.Sprintf("pod %s: ended %d times, at last with %s, exit status %d", p.Name, s.RestartCount,
				t.Reason, t.ExitCode)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("pod %s is not scheduled: %s", p.Name, c.Message)
		}
	}
	return ""
}

// NoImage reports whether no image can be pulled, by a reason of Waiting.
func NoImage(why string) bool {
	return strings.Contains(why, "ImagePull") || strings.Contains(why, "InvalidImageName")
}
