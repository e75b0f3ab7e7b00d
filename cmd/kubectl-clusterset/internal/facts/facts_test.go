package facts

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestARolloutIsDoneWhenAllReplicasAreNew(t *testing.T) {
	pod := func(s corev1.ContainerStatus) corev1.Pod {
		return corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{s}}}
	}
	waiting := func(reason string) corev1.Pod {
		return pod(corev1.ContainerStatus{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason}}})
	}
	evicted := pod(corev1.ContainerStatus{RestartCount: 1, LastTerminationState: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2}}})
	evicted.Status.Phase = corev1.PodFailed
	two := int32(2)
	for name, c := range map[string]struct {
		status appsv1.DeploymentStatus
		pods   []corev1.Pod
		enough int32
		why    string // "" if it is done
	}{
		"done": {appsv1.DeploymentStatus{UpdatedReplicas: 2, AvailableReplicas: 2, Replicas: 2}, nil, 2, ""},
		"one waits, as before": {appsv1.DeploymentStatus{UpdatedReplicas: 2, AvailableReplicas: 1, Replicas: 2},
			nil, 1, ""},
		"old ones go on": {appsv1.DeploymentStatus{UpdatedReplicas: 1, AvailableReplicas: 2, Replicas: 3},
			[]corev1.Pod{waiting("ImagePullBackOff")}, 2, "0 of 2 new replicas are available; pod : ImagePullBackOff"},
		"the first that waits": {appsv1.DeploymentStatus{UpdatedReplicas: 1, AvailableReplicas: 2, Replicas: 3},
			[]corev1.Pod{evicted, waiting("PodInitializing"), waiting("ImagePullBackOff")}, 2,
			"0 of 2 new replicas are available; pod : ImagePullBackOff"},
		"no image, between attempts": {appsv1.DeploymentStatus{UpdatedReplicas: 1, Replicas: 1},
			[]corev1.Pod{pod(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: `Back-off pulling image "a": ErrImagePull: not found`}}})}, 2,
			"0 of 2 new replicas are available; pod : ErrImagePull: not found"},
		"no Pod can be created": {appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Message: "Deployment does not have"},
			{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "failed quota: team"}}},
			nil, 2, "0 of 2 new replicas are available; failed quota: team"},
		"new ones end": {appsv1.DeploymentStatus{UpdatedReplicas: 2, AvailableReplicas: 1, Replicas: 3},
			[]corev1.Pod{pod(corev1.ContainerStatus{RestartCount: 3, LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2}}})}, 2,
			"0 of 2 new replicas are available; pod : ended 3 times, at last with Error, exit status 2"},
	} {
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: c.status}
		done, why := RolledOut(d, c.pods, c.enough)
		if done != (c.why == "") || !strings.HasPrefix(why, c.why) {
			t.Errorf("%s: %v, %q", name, done, why)
		}
	}
}

// TestPodsThatAreNotReadyAreNamed, also if they need not be. The kubelet of a lost node reports nothing of containers.
func TestPodsThatAreNotReadyAreNamed(t *testing.T) {
	pod := func(name string, ready corev1.ConditionStatus) (p corev1.Pod) {
		p.Name = name
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Ready: true}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		return p
	}
	pods := []corev1.Pod{pod("d-1", corev1.ConditionTrue), pod("d-2", corev1.ConditionFalse),
		pod("d-3", corev1.ConditionFalse), pod("d-4", corev1.ConditionFalse)}
	pods[2].DeletionTimestamp, pods[3].Status.Phase = &metav1.Time{}, corev1.PodFailed
	two := int32(2)
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &two},
		Status: appsv1.DeploymentStatus{UpdatedReplicas: 2, AvailableReplicas: 1, Replicas: 2}}
	for available, enough := range map[int32]bool{1: true, 2: false} {
		if done, why := RolledOut(d, pods, available); done != enough ||
			why != "1 of 2 new replicas are available; not ready: d-2" {
			t.Errorf("%v, %q", done, why)
		}
	}
}

func TestWhatOfADeploymentIsMissing(t *testing.T) {
	replicas := func(all, updated, available int32) appsv1.DeploymentStatus {
		return appsv1.DeploymentStatus{Replicas: all, UpdatedReplicas: updated, AvailableReplicas: available}
	}
	for name, c := range map[string]struct {
		replicas int32
		status   appsv1.DeploymentStatus
		want     string // "" if nothing is missing
	}{
		"all new and available": {2, replicas(2, 2, 2), ""},
		"an ordinary rollout":   {2, replicas(3, 1, 2), "Deployment d: 0 of 2 new replicas are available"},
		"one Pod is missing":    {2, replicas(2, 2, 1), "Deployment d: 1 of 2 new replicas are available"},
		"none is available":     {2, replicas(2, 2, 0), "Deployment d: 0 of 2 new replicas are available"},
		"scaled to 0":           {0, replicas(0, 0, 0), "Deployment d is scaled to 0"},
	} {
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &c.replicas}, Status: c.status}
		d.Name = "d"
		got := ""
		if down := Missing(d, nil); down != nil {
			got = down.Why
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestThePodThatShowsWhyIsNamed: a Deployment knows only that a rollout hangs.
func TestThePodThatShowsWhyIsNamed(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod := func(name string, status corev1.ContainerStatus) corev1.Pod {
		p := corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}}}
		p.Name = name
		return p
	}
	old := pod("old", corev1.ContainerStatus{Ready: true, State: running})
	for want, next := range map[string]corev1.Pod{
		"logs not-ready --tail=5": pod("not-ready", corev1.ContainerStatus{State: running}),
		"describe deployment d": pod("starts", corev1.ContainerStatus{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}),
	} {
		d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}}
		d.Name, d.Namespace = "d", "n"
		if down := Missing(d, []corev1.Pod{old, next}); down == nil || down.Look != "kubectl -n n "+want {
			t.Errorf("%s: %+v, want %s", next.Name, down, want)
		}
	}
}

// TestHowFarAClockIsAhead is what a Lease shows: its holder's clock against that of its API server.
func TestHowFarAClockIsAhead(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		at, renewed := metav1.NewTime(now), metav1.NewMicroTime(now.Add(ahead))
		lease := coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &renewed},
		}
		if seen, got, ok := Renewed(&lease); !ok || got != ahead || !seen.Equal(now) {
			t.Errorf("%v, %v, %v", seen, got, ok)
		}
	}
}
