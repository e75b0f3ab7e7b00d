package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestID3AnUnfinishedJoinIsUndoneThoughItsAgentRuns: its agent is stopped first. If it has become a member before
// that, it runs again and leaves as one, before anything is deleted.
func TestID3AnUnfinishedJoinIsUndoneThoughItsAgentRuns(t *testing.T) {
	for _, becomesMember := range []bool{false, true} {
		t.Run(fmt.Sprint("becomes a member: ", becomesMember), func(t *testing.T) {
			labels := map[string]string{"app.kubernetes.io/name": "clusterset-controller"}
			agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
				Name: "clusterset-controller"}}
			agent.Spec.Replicas, agent.Spec.Selector = ptr.To[int32](2), &metav1.LabelSelector{MatchLabels: labels}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "agent",
				Labels: labels}}
			evicted := pod.DeepCopy()
			evicted.Name, evicted.Status.Phase = "evicted", corev1.PodFailed
			set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet},
				Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}
			id := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertyID},
				Spec: aboutv1beta1.ClusterPropertySpec{Value: "east"}}
			hub := inMemory(interceptor.Funcs{}, profile("east", clusterset.AnnotationJoiningUID, "uid"))
			var steps []string
			member := inMemory(interceptor.Funcs{
				Patch: func(ctx context.Context, api client.WithWatch, o client.Object, p client.Patch,
					opts ...client.PatchOption) error {
					if err := api.Patch(ctx, o, p, opts...); err != nil {
						return err
					}
					d, scaled := o.(*appsv1.Deployment)
					switch {
					case scaled && *d.Spec.Replicas > 0:
						steps = append(steps, "started")
					case scaled && becomesMember:
						if err := api.Create(ctx, set.DeepCopy()); err != nil {
							return err
						}
						fallthrough
					case scaled:
						steps = append(steps, "stopped")
						return api.Delete(ctx, pod.DeepCopy())
					case o.GetAnnotations()[clusterset.AnnotationLeaving] != "": // the agent leaves
						steps = append(steps, "leaves")
						if err := hub.Client.Delete(ctx, profile("east", "", "")); err != nil {
							return err
						}
						return api.Delete(ctx, set.DeepCopy())
					}
					return nil
				},
				Delete: func(ctx context.Context, api client.WithWatch, o client.Object,
					opts ...client.DeleteOption) error {
					if len(steps) == 0 || steps[len(steps)-1] != "deleted" {
						steps = append(steps, "deleted")
					}
					return api.Delete(ctx, o, opts...)
				},
			}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "uid"}}, id, agent, pod,
				evicted)
			o, said := options(hub)
			l := &leave{LeaveOptions: &LeaveOptions{Options: *o, Member: member}}
			var err error
			if l.state, err = read(t.Context(), member); err != nil {
				t.Fatal(err)
			}
			for _, step := range []func(context.Context) error{l.plan, l.claimed, l.run} {
				if err := step(t.Context()); err != nil {
					t.Fatalf("%v\n%s", err, said)
				}
			}
			want := "stopped deleted"
			if becomesMember {
				want = "stopped started leaves deleted"
			}
			if got := strings.Join(steps, " "); got != want {
				t.Errorf("it was %s, want %s\n%s", got, want, said)
			}
			p := profile("east", "", "")
			if err := hub.Get(t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
				t.Errorf("the claim on the hub: %v\n%s", err, said)
			}
		})
	}
}
