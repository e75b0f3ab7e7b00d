package gather

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// hub tries the agent's credentials for the hub, and reads the hub: as the user, if the user named it, or else as the
// agent. Topics are in Unread until they have been read.
func (g *gatherer) hub(ctx context.Context) {
	creds, file, err := credentials(ctx, g.Member)
	if err != nil {
		g.Unread[doctor.Secret] = err.Error()
	}
	g.Credentials = creds
	hub, namespace := g.Hub, g.namespace(creds, g.Set)
	g.HubFacts.Asked = g.givenNamespace()
	g.Unread[doctor.HubLeader] = doctor.NotAsked
	if g.Hub == nil {
		g.Unread[doctor.HubAdmin] = doctor.NotAsked
	}
	g.Unread[doctor.HubAuth] = "there are no credentials to try"
	if file != nil {
		agent, err := asAgent(file)
		if err == nil {
			_, err = agent.Ask(ctx)
		}
		if err == nil {
			err = g.memberRights(ctx, agent, creds)
		}
		if err != nil {
			g.HubFacts.Refused, g.HubFacts.Unreachable = err.Error(), !refused(err)
			g.Unread[doctor.HubAuth] = err.Error()
		} else {
			delete(g.Unread, doctor.HubAuth)
		}
		if err == nil && hub == nil {
			hub, namespace = agent, creds.Namespace
		}
	}
	g.HubFacts.Namespace = namespace // remedies name it, read or not
	if hub == nil {
		g.Unread[doctor.Hub] = "the agent's credentials cannot be used, and no hub was named (--hub-kubeconfig, " +
			"--hub-context)"
		return
	}
	if err := g.readHub(ctx, hub, namespace); err != nil {
		g.Unread[doctor.Hub] = err.Error()
		if g.Hub != nil {
			g.Unread[doctor.HubAdmin] = err.Error()
		}
	}
}

// memberRights checks the rights that deploy/hub grants a member, with the member's own credentials.
func (g *gatherer) memberRights(ctx context.Context, hub *cluster.Cluster, creds *doctor.Credentials) error {
	set, err := manifest.Render(manifest.ClusterSet, manifest.Values{Namespace: creds.Namespace})
	if err != nil {
		return err
	}
	var rights []cluster.Right
	for _, o := range set {
		if o.GetKind() == "Role" && o.GetName() == "clusterset-member" {
			if rights, err = rightsOf(o, creds.Namespace); err != nil {
				return err
			}
		}
	}
	rights = append(rights, cluster.Right{
		Verb: "create", Resource: "serviceaccounts/token", Namespace: creds.Namespace, Name: creds.Account,
	})
	lacking, err := hub.Lacking(ctx, rights)
	g.HubFacts.MemberLacks = cluster.Texts(lacking)
	return err
}

// readHub reads the hub and, if the user named it, what only an admin can read.
func (g *gatherer) readHub(ctx context.Context, hub *cluster.Cluster, namespace string) error {
	here, err := g.Member.Ask(ctx) // at about the same moment as the hub, to compare the clocks
	if err != nil {
		return err
	}
	g.Now = here.Now
	h := &g.HubFacts
	if err := readHub(ctx, hub, namespace, &h.Hub); err != nil {
		return err
	}
	if h.Leader != nil {
		delete(g.Unread, doctor.HubLeader)
	}
	if g.Hub == nil {
		return nil
	}
	admin := func() (err error) {
		if h.Kinds, err = kinds(ctx, hub, manifest.Hub); err != nil {
			return err
		}
		if h.SetNamespace, err = kube.Get[*corev1.Namespace](ctx, hub,
			types.NamespacedName{Name: namespace}); err != nil {
			return err
		}
		var found appsv1.DeploymentList
		err = hub.List(ctx, &found, client.InNamespace(kube.SystemNamespace),
			client.MatchingLabels{"app.kubernetes.io/name": "clusterset-hub", "app.kubernetes.io/instance": namespace})
		if len(found.Items) > 0 {
			h.Controller = &found.Items[0]
			h.Pods, err = hub.PodsOf(ctx, h.Controller)
		}
		return err
	}
	if err := admin(); err != nil {
		g.Unread[doctor.HubAdmin] = err.Error()
	}
	return nil
}
