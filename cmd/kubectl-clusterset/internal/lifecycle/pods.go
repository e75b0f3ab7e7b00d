package lifecycle

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// available returns how many replicas of a Deployment of clusterset-system are available.
func available(ctx context.Context, c *cluster.Cluster, name string) (int32, error) {
	d, err := c.Deployment(ctx, name)
	if err != nil || d == nil {
		return 0, err
	}
	return d.Status.AvailableReplicas, nil
}

// awaitRollout waits until all replicas of a Deployment are new, if some were available before. Without it, the old
// replicas would hide that the new ones do not start.
func (o *Options) awaitRollout(ctx context.Context, c *cluster.Cluster, name string, before int32) error {
	if before == 0 {
		return nil
	}
	at := types.NamespacedName{Namespace: kube.SystemNamespace, Name: name}
	if err := c.AwaitRollout(ctx, at, before, o.Timeout, o.Say); err != nil {
		return report.WithRemedy(c.Failed(err, "rolling out Deployment %s", name), "the previous version continues to "+
			"run; for another image, run the same command with --image")
	}
	return nil
}

// stopAgent scales the agent's Deployment to 0, and waits until its Pods have ended.
func (l *leave) stopAgent(ctx context.Context) error {
	d, err := l.scaleAgent(ctx, 0)
	if err != nil || d == nil {
		return err
	}
	err = cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		pods, err := l.Member.PodsOf(ctx, d)
		for i := range pods {
			if !facts.Ended(&pods[i]) {
				return false, "Pod " + pods[i].Name + " still runs", nil
			}
		}
		return err == nil, "", err
	})
	return l.Member.Failed(err, "stopping the agent")
}

// scaleAgent scales the agent's Deployment, unless it is at 0, or above 0, already. It returns nil if there is none.
func (l *leave) scaleAgent(ctx context.Context, replicas int32) (*appsv1.Deployment, error) {
	d, err := l.Member.Deployment(ctx, manifest.AgentDeployment)
	if err != nil || d == nil || (ptr.Deref(d.Spec.Replicas, 1) > 0) == (replicas > 0) {
		return d, err
	}
	scaled := d.DeepCopy()
	scaled.Spec.Replicas = &replicas
	err = l.Member.Patch(ctx, scaled, client.MergeFrom(d), client.FieldOwner(manifest.FieldManager))
	return d, l.Member.Failed(err, "scaling the agent's Deployment")
}

// hubPodsWait is podsWait for the hub's controller.
func hubPodsWait(ctx context.Context, o *Options) string {
	return podsWait(ctx, o.Hub, client.MatchingLabels{
		"app.kubernetes.io/name": "clusterset-hub", "app.kubernetes.io/instance": o.HubNamespace})
}

// podsWait returns why Pods with these labels do not run, or else how many have started; "" if the user may not read
// them.
func podsWait(ctx context.Context, c *cluster.Cluster, labels client.MatchingLabels) string {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(kube.SystemNamespace), labels); apierrors.IsForbidden(err) {
		return ""
	} else if err != nil {
		return err.Error()
	}
	started := 0
	for i := range pods.Items {
		if why := facts.Waiting(&pods.Items[i]); why != "" {
			return why
		}
		if !facts.Ended(&pods.Items[i]) {
			started++
		}
	}
	if started == 0 {
		return "it has no Pod yet; its Deployment may be scaled to 0: " +
			c.Command("kubectl -n "+kube.SystemNamespace+" get deployments")
	}
	return report.Number(started, "Pod") + " started"
}
