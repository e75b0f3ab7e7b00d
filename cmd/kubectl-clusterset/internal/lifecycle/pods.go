package lifecycle

import (
	"context"

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

// available returns how many replicas of a Deployment of clusterset-system run.
func available(ctx context.Context, c *cluster.Cluster, name string) (int32, error) {
	d, err := c.Deployment(ctx, name)
	if err != nil || d == nil {
		return 0, c.Failed(err, "reading Deployment %s", name)
	}
	return d.Status.AvailableReplicas, nil
}

// rolledOut waits until all replicas of a Deployment are new, if some ran before: the old ones go on meanwhile, and
// would hide that the new ones do not start.
func (o *Options) rolledOut(ctx context.Context, c *cluster.Cluster, name string, ran int32) error {
	if ran == 0 {
		return nil
	}
	at := types.NamespacedName{Namespace: kube.SystemNamespace, Name: name}
	if err := c.RolledOut(ctx, at, ran, o.Timeout, o.Say); err != nil {
		return report.WithRemedy(c.Failed(err, "rolling out Deployment %s", name), "the previous version goes on; for "+
			"another image, run the same command with --image")
	}
	return nil
}

// scaleAgent starts the agent if its Deployment is scaled to 0; or scales it to 0 and waits until its Pods are gone.
func (l *leave) scaleAgent(ctx context.Context, run bool) error {
	d, err := l.Member.Deployment(ctx, "clusterset-controller")
	if err != nil || d == nil {
		return l.Member.Failed(err, "reading the agent's Deployment")
	}
	if runs := ptr.Deref(d.Spec.Replicas, 1) > 0; runs != run {
		scaled := d.DeepCopy()
		scaled.Spec.Replicas = ptr.To[int32](0)
		if run {
			scaled.Spec.Replicas = ptr.To[int32](1)
		}
		err := l.Member.Patch(ctx, scaled, client.MergeFrom(d), client.FieldOwner(manifest.FieldManager))
		if err != nil {
			return l.Member.Failed(err, "scaling the agent's Deployment")
		}
	}
	if run {
		return nil
	}
	err = cluster.Until(ctx, l.Timeout, func(ctx context.Context) (bool, string, error) {
		pods, err := l.Member.PodsOf(ctx, d)
		if err != nil || len(pods) == 0 {
			return err == nil, "", err
		}
		return false, "Pod " + pods[0].Name + " still exists", nil
	})
	return l.Member.Failed(err, "stopping the agent")
}

// hubPodsWait returns why the pods of the hub's controller do not run; "" if the user may not read them.
func hubPodsWait(ctx context.Context, o *Options) string {
	return podsWait(ctx, o.Hub, client.MatchingLabels{
		"app.kubernetes.io/name": "clusterset-hub", "app.kubernetes.io/instance": o.HubNamespace})
}

// podsWait returns why pods with these labels do not run; "" if the user may not read them.
func podsWait(ctx context.Context, c *cluster.Cluster, labels client.MatchingLabels) string {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(kube.SystemNamespace), labels); apierrors.IsForbidden(err) {
		return ""
	} else if err != nil {
		return err.Error()
	}
	for i := range pods.Items {
		if why := facts.Waiting(&pods.Items[i]); why != "" {
			return why
		}
	}
	if len(pods.Items) == 0 {
		return "it has no Pod yet; if its Deployment is scaled to 0: kubectl -n " + kube.SystemNamespace +
			" get deployments"
	}
	return report.Number(len(pods.Items), "pod") + " started"
}
