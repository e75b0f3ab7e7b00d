package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/credentials"
	decide "github.com/clusterset-dns/clusterset-dns/controllers/decide/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/health"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/deploy"
)

// seen is what the agent has seen of its membership outside of its controllers.
type seen struct {
	mu        sync.Mutex
	answer    error // the hub's last answer; nil after a success, and before the first
	accepted  bool  // the hub's last answer was a success
	renewal   error // why the token was not renewed
	notMember error // why this cluster is no member
	unused    error // why the latest credentials do not work, while the connection of earlier ones does
}

func (s *seen) do(with func(*seen)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	with(s)
}

// newHealth returns the reporter of this cluster's Membership.
func newHealth(a *Agent) (*health.Reporter, error) {
	rules := func(path string, names ...string) []rbacv1.PolicyRule {
		out, err := health.Rules(deploy.Manifests, path, names...)
		if err != nil {
			panic(err) // they are embedded
		}
		return out
	}
	here := rules("member/rbac.yaml", "clusterset-dns:agent", "clusterset-dns:agent-membership",
		"clusterset-controller")
	onHub := append(rules("hub/clusterset/role.yaml", "clusterset-member"), rbacv1.PolicyRule{
		Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"},
		ResourceNames: []string{clusterset.AccountPrefix + a.Cluster},
	})
	var kinds []client.ObjectList
	for _, k := range localKinds() {
		kinds = append(kinds, k.list)
	}
	return health.New(health.Config{
		Cluster: a.Cluster, HubNamespace: a.HubNamespace, LocalNow: a.gate.Local, Hub: a.env.Hub,
		Kinds: kinds, Seen: func() decide.Facts { return factsOf(a) },
		Rights: func(ctx context.Context) (missing, missingOnHub []string, _ error) {
			missing, err := health.Missing(ctx, a.gate.Local, kube.SystemNamespace, here)
			l := a.linked.Load()
			if l == nil {
				return missing, nil, err
			}
			missingOnHub, failed := health.Missing(ctx, l.client, a.HubNamespace, onHub)
			if failed != nil {
				failed = fmt.Errorf("on the hub: %w", failed)
			}
			return missing, missingOnHub, errors.Join(err, failed)
		},
		DNS: a.DNS, Now: a.Now,
	}), nil
}

func factsOf(a *Agent) (f decide.Facts) {
	a.seen.do(func(s *seen) {
		f.Answer, f.Accepted, f.Renewal, f.NotMember = s.answer, s.accepted, s.renewal, s.notMember
	})
	f.TokenFault = errors.As(f.Renewal, new(credentials.Fault))
	cfg, err := a.hub()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		f.Credentials = err
	case err != nil:
		f.Credentials = errors.New("there is no Secret " + kube.SystemNamespace + "/hub-kubeconfig, or this Pod does " +
			"not have it yet")
	default:
		f.Hub = cfg.Host
	}
	if l := a.linked.Load(); l != nil {
		f.Hub, f.Fresh, f.Cloned = l.config.Host, a.env.Fresh(), a.env.Cloned()
		if cfg != nil && !reflect.DeepEqual(accessOf(l.config), accessOf(cfg)) {
			a.seen.do(func(s *seen) { f.Unused = s.unused })
		}
	}
	return f
}
