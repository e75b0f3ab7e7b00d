package facts

import (
	"fmt"
	"math"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// RolledOut reports whether all replicas are new and at least available of them are available. If not, why quotes the
// first Pod that waits.
func RolledOut(d *appsv1.Deployment, pods []corev1.Pod, available int32) (done bool, why string) {
	want, st := ptr.Deref(d.Spec.Replicas, 1), &d.Status
	available = min(available, want)
	if st.ObservedGeneration >= d.Generation && st.UpdatedReplicas >= want && st.AvailableReplicas >= available &&
		st.Replicas <= st.UpdatedReplicas {
		return true, ""
	}
	old := st.Replicas - st.UpdatedReplicas // the Deployment keeps those that are available
	why = fmt.Sprintf("%d of %d new replicas are available", max(0, st.AvailableReplicas-old), want)
	for i := range pods {
		if w := Waiting(&pods[i]); w != "" {
			return false, why + "; " + w
		}
	}
	return false, why
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
	for i := range pods {
		if w := Waiting(&pods[i]); w != "" {
			look = LookAt(&pods[i], w)
			break
		}
	}
	return &Down{fmt.Sprintf("Deployment %s: %s", d.Name, why), look}
}

// LookAt is the command that shows more about a Pod that waits.
func LookAt(p *corev1.Pod, why string) string {
	kubectl := "kubectl -n " + p.Namespace
	if NoImage(why) || len(p.Status.ContainerStatuses) == 0 {
		return kubectl + " describe pod " + p.Name
	}
	return kubectl + " logs " + p.Name + " --tail=5"
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

// NoImage reports whether a reason of Waiting is that no image can be pulled.
func NoImage(why string) bool {
	return strings.Contains(why, "ImagePull") || strings.Contains(why, "InvalidImageName")
}
