package lifecycle

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// The agent's account, and the kind that gives it its rights in the whole cluster: without them it can become no member.
const (
	agentAccount = "clusterset-controller"
	kindBinding  = "ClusterRoleBinding"
)

// heard is within how long an API server hears that rights are gone.
const heard = 10 * time.Second

// disarm takes its rights from the agent of a join that was not finished: it may run, and become a member while that join is undone, whose
// records would then stay on the hub. One that was quicker is a member, and leaves as such.
func (l *leave) disarm(ctx context.Context) error {
	binding := only(l.objects, kindBinding)
	if l.was != nil || binding == nil {
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
	case may: // as where everybody may do everything
		l.Say("%s: its agent may write ClusterProperties by rights that others gave it; should it have become a member on the hub meanwhile: kubectl clusterset leave CLUSTER --evict --hub-context …", l.Member.Name)
	case err != nil:
		return fmt.Errorf("%s: its agent could become a member while its join is undone: %w", l.Member.Name, err)
	}
	if l.state, err = read(ctx, l.Member); err != nil {
		return err
	}
	if l.was != nil {
		l.Say("%s: has become a member of clusterset %s meanwhile", l.Member.Name, l.was.Spec.Value)
	}
	return l.claimed(ctx)
}

// rearm gives the agent of a member back what disarm took from it, in this run or in one that was interrupted: it is to leave.
func (l *leave) rearm(ctx context.Context) error {
	objects, err := manifest.Render(manifest.Member, manifest.Values{Namespace: l.HubNamespace})
	if err != nil {
		return err
	}
	binding := only(objects, kindBinding)
	err = l.Member.Get(ctx, client.ObjectKeyFromObject(binding), binding.DeepCopy())
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", l.Member.Name, err)
	}
	return l.Member.Apply(ctx, []*unstructured.Unstructured{binding}, l.Say)
}
