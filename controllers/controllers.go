// Package controllers is the one list of everything that runs in an agent. README.md says of each what it reads,
// decides, writes and owns.
package controllers

import (
	"cmp"
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clustersetips"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/dnsendpoint"
	"github.com/clusterset-dns/clusterset-dns/controllers/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/heartbeat"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/membership"
	"github.com/clusterset-dns/clusterset-dns/controllers/servicecidrs"
	"github.com/clusterset-dns/clusterset-dns/controllers/serviceexport"
	"github.com/clusterset-dns/clusterset-dns/controllers/serviceimport"
	"github.com/clusterset-dns/clusterset-dns/controllers/sources"
)

// Agent returns the controllers of one agent, which share env; holder names this process. It sets env.Fresh,
// env.Cloned, env.Contested and env.Held.
func Agent(env *kube.Env, holder string) []kube.Controller {
	restart := func(why string) { env.Restart(why) } // set when the agent starts
	beat := heartbeat.New(heartbeat.Config{
		Member: env.Member, Holder: holder, HubNow: env.HubNow,
		Complete: func(ctx context.Context, lease *coordinationv1.Lease) error {
			unreachable, err := sources.Unreachable(ctx, env.Local)
			if err != nil {
				return err
			}
			reach.WriteUnreachable(lease, unreachable)
			reach.WriteAddresses(lease, env.AnswersAt)
			return serviceimport.Acknowledge(ctx, env.Local, env.Hub(), env.HubNamespace, env.Cluster, lease)
		},
		Answered: env.Answered, ListAgain: env.ListAgain,
	})
	env.Fresh, env.Cloned, env.Contested = beat.Fresh, beat.Cloned, beat.Contested
	live := sources.New(sources.Config{Member: env.Member, HubSeen: beat.HubSeen, Dial: env.Dial, Home: env.Home})
	env.Held = live.Held
	addresses := clustersetips.New(env.Member)
	imports := serviceimport.New(serviceimport.Config{Member: env.Member, Addresses: addresses, Gateways: env.Gateways})
	imports.Metrics = addresses.Metrics()
	list := []kube.Controller{
		serviceexport.New(serviceexport.Config{Member: env.Member, Lease: beat, Pages: cmp.Or(env.Pages, pages.OfHub)}),
		imports,
		servicecidrs.New(env.Member),
		beat.Controller(),
		live.Controller(),
		external.New(env.Member),
		membership.New(membership.Config{
			Member: env.Member, Version: env.Version, Restart: restart, Contested: env.Contested,
		}),
	}
	if env.DNSEndpointZone != "" {
		list = append(list, dnsendpoint.New(dnsendpoint.Config{Member: env.Member, Zone: env.DNSEndpointZone}))
	}
	return list
}
