package agent

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/credentials"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
)

// errRestart is the error of Start if something has changed that the agent reads only at its start: the process ends,
// the other replica leads, and the Pod starts a new process.
var errRestart = errors.New("starting again")

// newGate sets a.gate. Its client bypasses the manager's caches, because they have not started when the gate runs.
func (a *Agent) newGate() error {
	local, err := client.New(
		a.mgr.GetConfig(),
		client.Options{Scheme: a.mgr.GetScheme(), HTTPClient: a.mgr.GetHTTPClient(), Mapper: a.mgr.GetRESTMapper()},
	)
	if err != nil {
		return err
	}
	a.gate = &membership.Gate{
		Cluster:      a.Cluster,
		Given:        a.Given,
		HubNamespace: a.HubNamespace,
		Local:        local,
		Hub:          a.dial,
		Token:        a.token,
		Now:          a.Now,
	}
	return nil
}

// versionReader returns a function that asks the API server of cfg for its version.
func versionReader(cfg *rest.Config) (func(context.Context) (string, error), error) {
	server, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (string, error) {
		v, err := server.ServerVersion()
		if err != nil {
			return "", err
		}
		return v.GitVersion, nil
	}, nil
}

// dial returns an uncached client of the hub, for one attempt.
func (a *Agent) dial(ctx context.Context) (client.Client, error) {
	cfg, err := a.hub()
	if err != nil {
		return nil, err
	}
	return a.dialAt(ctx, cfg)
}

// dialAt is dial with this cfg. No request takes longer than an attempt, or than the time that ctx leaves.
func (a *Agent) dialAt(ctx context.Context, cfg *rest.Config) (client.Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = attemptTimeout // also of discovery
	if end, limited := ctx.Deadline(); limited {
		cfg.Timeout = max(min(cfg.Timeout, time.Until(end)), 1) // 0 would mean no limit
	}
	return client.New(cfg, client.Options{Scheme: a.mgr.GetScheme()})
}

// renewalHubs returns clients of the hub that authenticate with token: at the kubeconfig's address, and over the
// connection that the controllers use, which still works after a join with a wrong address.
func renewalHubs(a *Agent, token string) (hubs []client.Client, err error) {
	cfg, err := a.hub()
	if err != nil {
		return nil, err
	}
	configs := []*rest.Config{cfg}
	// Another CA may be another hub's, which must not see this one's token.
	if l := a.linked.Load(); l != nil && len(cfg.CAData) > 0 &&
		bytes.Equal(bytes.TrimSpace(l.config.CAData), bytes.TrimSpace(cfg.CAData)) &&
		!reflect.DeepEqual(accessOf(l.config), accessOf(cfg)) {
		configs = append(configs, l.config)
	}
	for _, cfg := range configs {
		cfg = rest.CopyConfig(cfg)
		cfg.BearerToken, cfg.BearerTokenFile = token, ""
		cfg.Dial = nil               // with such a function, a client shares no transport
		cfg.Timeout = attemptTimeout // also of discovery
		hub, err := client.New(cfg, client.Options{Scheme: a.mgr.GetScheme()})
		if err != nil {
			return nil, err
		}
		hubs = append(hubs, hub)
	}
	return hubs, nil
}

// token returns the current bearer token for the hub.
func (a *Agent) token() (string, error) {
	cfg, err := a.hub()
	if err != nil {
		return "", err
	}
	return cfg.BearerToken, nil
}

// enter waits until this cluster is a member. Meanwhile it reports the reason in the log, in the
// readiness check and in the Membership.
func (a *Agent) enter(ctx context.Context) error {
	asked, dial := false, a.gate.Hub
	a.gate.Hub = func(ctx context.Context) (client.Client, error) {
		asked = true
		return dial(ctx)
	}
	return kube.Await(
		ctx,
		a.log.WithValues("remedy", "kubectl clusterset doctor"),
		"membership",
		12*attemptTimeout, // an attempt may leave the ClusterSet, which deletes everything that this member published
		func(attempt context.Context) error {
			asked = false
			err := a.gate.Enter(attempt)
			a.seen.do(func(s *seen) {
				s.notMember = err
				switch {
				case errors.Is(err, membership.ErrLeft): // also without the hub
					s.answer, s.accepted = nil, false
				case asked:
					s.answer, s.accepted = err, err == nil
				}
			})
			if err == nil {
				return nil
			}
			if errors.Is(err, membership.ErrIdentity) {
				a.env.Restart(err.Error())
			}
			a.health.Kick()
			return err
		},
	)
}

// renew renews the token for the hub until ctx ends.
func (a *Agent) renew(ctx context.Context) {
	renewer := &credentials.Renewer{
		Cluster:      a.Cluster,
		HubNamespace: a.HubNamespace,
		Local:        a.gate.Local,
		Hubs:         func(token string) ([]client.Client, error) { return renewalHubs(a, token) },
		Token:        a.token,
		Now:          a.Now,
	}
	last := ""
	for {
		attempt, cancel := context.WithTimeout(ctx, 3*attemptTimeout) // two connections, and this cluster
		again, err := renewer.Renew(attempt)
		cancel()
		switch {
		case err == nil:
			last = ""
		case ctx.Err() == nil && err.Error() != last:
			last = err.Error()
			a.log.Info("renewing the token for the hub failed", "reason", last)
		}
		if errors.Is(err, credentials.ErrElsewhere) {
			err = nil // whoever made the credentials renews them
		}
		if ctx.Err() == nil {
			a.seen.do(func(s *seen) { s.renewal = err })
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(again, 5*time.Minute)): // a timer stands still while a machine sleeps; the token does not
		}
	}
}
