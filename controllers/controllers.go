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
// env.HubSeen, env.Cloned, env.Contested and env.Held. The simulation plants faults in env with adjust, before the
// controllers that use these are made.
func Agent(env *kube.Env, holder string, adjust ...func(*kube.Env)) []kube.Controller {
	beat := heartbeat.New(heartbeat.Config{
		Cluster: env.Cluster, HubNamespace: env.HubNamespace, Holder: holder,
		Local: env.Local, LocalNow: env.LocalNow, Hub: env.Hub, HubNow: env.HubNow,
		Complete: func(ctx context.Context, lease *coordinationv1.Lease) error {
			unreachable, err := sources.Unreachable(ctx, env.Local)
			if err != nil {
				return err
			}
			reach.WriteUnreachable(lease, unreachable)
			reach.WriteAddresses(lease, env.AnswersAt)
			return serviceimport.Acknowledge(ctx, env.Local, env.Hub(), env.HubNamespace, env.Cluster, lease)
		},
		Answered: env.Answered, Restart: func(why string) { env.Restart(why) }, // set when the agent starts
		Events: env.Events, Now: env.Now,
	})
	env.Fresh, env.HubSeen = beat.Fresh, beat.HubSeen
	env.Cloned, env.Contested = beat.Cloned, beat.Contested
	for _, change := range adjust {
		change(env)
	}
	live := sources.New(sources.Config{
		Cluster: env.Cluster, HubNamespace: env.HubNamespace, Local: env.Local, Hub: env.Hub, HubSeen: env.HubSeen,
		Families: env.Families, Reserved: env.Reserved, Dial: env.Dial, Home: env.Home,
		Now: env.Now, Events: env.Events,
	})
	env.Held = live.Held
	addresses := clustersetips.New(clustersetips.Config{
		Cluster: env.Cluster, HubNamespace: env.HubNamespace, Local: env.Local, LocalNow: env.LocalNow, Hub: env.Hub,
		Served: env.Served, Events: env.Events, Now: env.Now,
	})
	imports := serviceimport.New(serviceimport.Config{
		Cluster: env.Cluster, HubNamespace: env.HubNamespace, Local: env.Local, Hub: env.Hub,
		Families: env.Families, Addresses: addresses, Reserved: env.Reserved, Gateways: env.Gateways,
		Now: env.Now, Events: env.Events,
	})
	imports.Metrics = addresses.Metrics()
	list := []kube.Controller{
		serviceexport.New(serviceexport.Config{
			Cluster:      env.Cluster,
			HubNamespace: env.HubNamespace,
			Local:        env.Local,
			LocalNow:     env.LocalNow,
			Hub:          env.Hub,
			Lease:        beat,
			Pages:        cmp.Or(env.Pages, pages.OfHub),
			Now:          env.Now,
			Events:       env.Events,
		}),
		imports,
		servicecidrs.New(servicecidrs.Config{
			Cluster: env.Cluster, HubNamespace: env.HubNamespace, Local: env.Local, Hub: env.Hub,
			Families: env.Families, Served: env.Served, Events: env.Events,
		}),
		beat.Controller(),
		live.Controller(),
		external.New(external.Config{
			Cluster: env.Cluster, HubNamespace: env.HubNamespace, Local: env.Local, Hub: env.Hub, Fresh: env.Fresh,
			Reserved: env.Reserved, Events: env.Events,
		}),
		membership.New(membership.Config{
			Cluster: env.Cluster, HubNamespace: env.HubNamespace, Local: env.Local, Hub: env.Hub,
			Version: func(ctx context.Context) (string, error) { return env.Version(ctx) },
			Restart: func(why string) { env.Restart(why) }, // set when the agent starts
			Events:  env.Events, Now: env.Now, Contested: env.Contested,
		}),
	}
	if env.DNSEndpointZone != "" {
		list = append(list, dnsendpoint.New(dnsendpoint.Config{
			Zone: env.DNSEndpointZone, Local: env.Local, Served: env.Served, Events: env.Events,
		}))
	}
	return list
}
