// Package gather reads the facts of status, explain and doctor from a member and its hub. It decides nothing, and
// writes nothing except access reviews. It asks DNS Pods through a port-forward.
package gather

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// patience is the timeout of a list page, and of each request with the agent's credentials.
const patience = 10 * time.Second

// Source names the clusters to read.
type Source struct {
	Member         *cluster.Cluster // nil with --hub-only
	Hub            *cluster.Cluster // as its admin; nil to use the agent's credentials
	HubNamespace   string
	NamespaceGiven bool // --hub-namespace was given; otherwise that of the membership counts
}

// namespace returns that of the clusterset on the hub. Without usable credentials, it is the ClusterSet's name.
func (s *Source) namespace(creds *doctor.Credentials, set string) string {
	switch {
	case s.NamespaceGiven:
		return s.HubNamespace
	case creds != nil && creds.Namespace != "":
		return creds.Namespace
	}
	return cmp.Or(set, s.HubNamespace)
}

// asHub returns the source of the hub alone, which the member is, of these ClusterSets.
func (s *Source) asHub(of []string) Source {
	hub := *s.Member
	hub.Name = "the hub"
	out := Source{Hub: &hub, HubNamespace: s.HubNamespace, NamespaceGiven: s.NamespaceGiven}
	if !s.NamespaceGiven && !slices.Contains(of, s.HubNamespace) {
		out.HubNamespace = of[0]
	}
	return out
}

// givenNamespace returns --hub-namespace if the user gave it, or else "".
func (s *Source) givenNamespace() string {
	if !s.NamespaceGiven {
		return ""
	}
	return s.HubNamespace
}

// credentials reads the agent's Secret: c is nil without one, and file is nil unless the credentials can be used.
func credentials(ctx context.Context, member *cluster.Cluster) (c *doctor.Credentials, file *clientcmdapi.Config,
	err error) {
	secret, err := kube.Get[*corev1.Secret](ctx, member, types.NamespacedName{Namespace: kube.SystemNamespace,
		Name: clusterset.SecretHub})
	if err != nil || secret == nil {
		return nil, nil, err
	}
	c = &doctor.Credentials{}
	token := strings.TrimSpace(string(secret.Data["token"]))
	parsed, err := clusterset.ParseToken(token)
	if err != nil {
		c.Problem = "its key token: " + err.Error()
		return c, nil, nil
	}
	c.Namespace, _ = parsed.Account()

	file, err = clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil || file.Contexts[file.CurrentContext] == nil {
		c.Problem = "its key kubeconfig is no kubeconfig with a current context"
		return c, nil, nil
	}
	in := file.Contexts[file.CurrentContext]
	server, user := file.Clusters[in.Cluster], file.AuthInfos[in.AuthInfo]
	if server == nil || user == nil {
		c.Problem = "its kubeconfig's current context names a cluster or a user that it does not hold"
		return c, nil, nil
	}
	if user.TokenFile != "token" {
		c.Problem = fmt.Sprintf("its kubeconfig names the tokenFile %q and not the file token beside it",
			user.TokenFile)
	}
	user.TokenFile, user.Token = "", token
	return c, file, nil
}

// refused reports whether err is the hub's answer to the credentials, which the agent gets as well. All else may come
// from what is between here and the hub.
func refused(err error) bool { return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) }

// asAgent returns the hub with the agent's credentials.
func asAgent(file *clientcmdapi.Config) (*cluster.Cluster, error) {
	cfg, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	cfg.Timeout = patience
	return cluster.New("the hub", cfg)
}

// hub reads the hub: as the user, if the user named it, or else as the agent. Topics are in Unread until they have been
// read.
func (g *gatherer) hub(ctx context.Context) {
	creds, file, err := credentials(ctx, g.Member)
	if g.Credentials = creds; err != nil {
		g.unread(doctor.Secret, err)
	}
	hub, namespace := g.Hub, g.namespace(creds, g.Set)
	g.Unread[doctor.HubLeader] = doctor.NotAsked
	if hub == nil {
		g.Unread[doctor.HubAdmin] = doctor.NotAsked
		if file != nil {
			if hub, err = asAgent(file); err == nil {
				namespace = creds.Namespace
			}
		}
	}
	g.HubFacts.Namespace = namespace // remedies name it, read or not
	if hub == nil {
		g.Unread[doctor.Hub] = "the agent's credentials cannot be used, and no hub was named (--hub-kubeconfig, " +
			"--hub-context)"
		if err != nil {
			g.unread(doctor.Hub, err)
		}
		return
	}
	if err := g.readHub(ctx, hub, namespace); err != nil {
		g.Unread[doctor.Hub] = err.Error()
		if g.Hub != nil {
			g.unread(doctor.Hub, err) // the user's rights, not the agent's
			g.unread(doctor.HubAdmin, err)
		}
	}
}

// readHub reads the hub and, if the user named it, what only an admin can read.
func (g *gatherer) readHub(ctx context.Context, hub *cluster.Cluster, namespace string) error {
	here, err := g.Member.Ask(ctx) // at about the same moment as the hub, to compare the clocks
	if err != nil {
		return err
	}
	g.Now = here.Now
	h := &g.HubFacts
	if err := readHub(ctx, hub, namespace, g.Hub != nil, &h.Hub); err != nil {
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
		if h.Controller, err = hub.Deployment(ctx, manifest.HubDeployment(namespace)); h.Controller != nil {
			h.Pods, err = hub.PodsOf(ctx, h.Controller)
		}
		return err
	}
	if err := admin(); err != nil {
		g.unread(doctor.HubAdmin, err)
	}
	return nil
}
