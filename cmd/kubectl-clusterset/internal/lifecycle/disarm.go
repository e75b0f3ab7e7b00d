package lifecycle

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The agent's account, and the kind that gives it the right to become a member.
const (
	agentAccount = "clusterset-controller"
	kindBinding  = "ClusterRoleBinding"
)

// heard is how long an API server may take to notice that rights are gone.
const heard = 10 * time.Second

// disarm revokes the rights of the agent of an unfinished join. Otherwise, it could become a member while the join is
// undone, and its records would stay on the hub. If it became a member before, it leaves as one.
func (l *leave) disarm(ctx context.Context) error {
	binding := firstOf(l.objects, kindBinding)
	if l.setProperty != nil || binding == nil {
		return nil
	}
	if err := l.Member.Remove(ctx, []*unstructured.Unstructured{binding}); err != nil {
		return err
	}
	joins := []cluster.Right{{Verb: "create", Group: aboutv1beta1.GroupVersion.Group, Resource: "clusterproperties"}}
	may := false
	err := cluster.Until(ctx, heard, func(ctx context.Context) (bool, string, error) {
		lacking, err := l.Member.LackingOf(ctx, kube.SystemNamespace, agentAccount, joins)
		may = err == nil && len(lacking) == 0
		return len(lacking) > 0, "", err
	})
	switch {
	case may: // everybody may do everything here
		l.Say("%s: others gave the agent the right to write ClusterProperties; if it has become a member meanwhile: "+
			evict, l.Member.Name, "CLUSTER")
	case err != nil:
		return l.Member.Failed(err, "revoking the agent's rights")
	}
	if l.state, err = read(ctx, l.Member); err != nil {
		return err
	}
	if l.setProperty != nil {
		l.Say("%s: has become a member of ClusterSet %s meanwhile", l.Member.Name, l.setProperty.Spec.Value)
	}
	return l.claimed(ctx)
}

// rearm gives a member's agent the rights back that disarm has revoked, also in an interrupted run, so that it can
// leave.
func (l *leave) rearm(ctx context.Context) error {
	objects, err := manifest.Render(manifest.Member, manifest.Values{Namespace: l.HubNamespace})
	if err != nil {
		return err
	}
	binding := firstOf(objects, kindBinding)
	err = l.Member.Get(ctx, client.ObjectKeyFromObject(binding), binding.DeepCopy())
	if !apierrors.IsNotFound(err) {
		return l.Member.Failed(err, "reading %s", cluster.Title(binding))
	}
	return l.Member.Apply(ctx, []*unstructured.Unstructured{binding}, l.Say)
}
