package agent

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
)

// follow has the controllers follow the hub by the link that comes, and then by the next: beside the one that works where the hub's address,
// authority or credential is given anew (moved), and in its place where what it shows is wrong.
func (a *Agent) follow(ctx context.Context, next *linking) error {
	var link *linking // the one that works
	end := func(l *linking) {
		if l != nil {
			l.end()
		}
	}
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for first := true; ; {
		var came chan struct{}
		var relist chan string
		if next != nil {
			came = next.done
		}
		if link != nil {
			relist = a.relist
		}
		select {
		case <-ctx.Done():
			return nil
		case <-came:
			if next.err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return next.err
			}
			a.use(next)
			if err := a.attach(next.cache, first); err != nil {
				return err
			}
			a.log.Info("the hub's side runs")
			end(link)
			link, next, first = next, nil, false
			select {
			case <-a.relist: // said of what was read before
			default:
			}
		case why := <-relist:
			a.relists.Add(1)
			a.log.Info("reading the hub again", "reason", why)
			a.unlink(link)
			end(next)
			link, next = nil, a.begin(ctx, false)
		case <-look.C:
			if a.moved() {
				a.log.Info("the hub's kubeconfig has another address, authority or credential: going by it")
				end(next)
				next = a.begin(ctx, link != nil)
			}
		}
	}
}

// lookAgain is how often the hub's kubeconfig is looked at. A kubelet takes a minute to bring a Secret.
const lookAgain = 10 * time.Second

// way is how the hub is reached, and as whom. What stands in files of their own client-go reads anew: the agent's own token does.
type way struct {
	host, serverName string
	caFile, ca       string // its name, or the authority itself
	insecure         bool
	token, cert, key string // that the kubeconfig itself holds
}

func wayOf(cfg *rest.Config) *way {
	w := &way{host: cfg.Host, serverName: cfg.ServerName, caFile: cfg.CAFile, ca: string(cfg.CAData), insecure: cfg.Insecure,
		cert: string(cfg.CertData), key: string(cfg.KeyData)}
	if cfg.BearerTokenFile == "" {
		w.token = cfg.BearerToken
	}
	return w
}

// moved tells whether the hub's kubeconfig names another way than the latest that was tried: join has written one, since the hub has another
// address or another certificate authority, or who keeps the credentials elsewhere has renewed them. A kubeconfig that cannot be read tells
// nothing.
func (a *Agent) moved() bool {
	tried := a.way.Load()
	if tried == nil {
		return false
	}
	cfg, err := a.hub()
	return err == nil && *wayOf(cfg) != *tried
}
