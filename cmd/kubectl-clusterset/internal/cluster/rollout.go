package cluster

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
)

// PodsOf returns the Pods of a Deployment.
func (c *Cluster) PodsOf(ctx context.Context, d *appsv1.Deployment) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	err = c.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector})
	return pods.Items, err
}

// RolledOut waits until all replicas of a Deployment are new, and so many of them available, or all if it has fewer.
func (c *Cluster) RolledOut(ctx context.Context, name types.NamespacedName, available int32, limit time.Duration,
	say Say) error {
	waiting := say.Waiting("the new replicas of Deployment "+name.Name, limit)
	return Until(ctx, limit, func(ctx context.Context) (bool, string, error) {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, name, d); err != nil {
			return false, "", err
		}
		pods, err := c.PodsOf(ctx, d)
		if err != nil {
			return false, "", err
		}
		done, why := facts.RolledOut(d, pods, available)
		waiting(why)
		return done, why, nil
	})
}
