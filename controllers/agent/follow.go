package agent

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
)

// follow has the controllers follow the hub by the link that comes, and then by the next: beside the one that works where the hub's address or
// authority is given anew (moved), and in its place where what it shows is wrong.
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
				a.log.Info("the hub has another address, or authority: going there")
				end(next)
				next = a.begin(ctx, link != nil)
			}
		}
	}
}

// lookAgain is how often the hub's kubeconfig is looked at. A kubelet takes a minute to bring a Secret.
const lookAgain = 10 * time.Second

// way is how the hub is reached. Of the credentials, the token is read anew by client-go.
type way struct {
	host, serverName string
	caFile, ca       string // its name, or the authority itself
	insecure         bool
}

func wayOf(cfg *rest.Config) *way {
	return &way{host: cfg.Host, serverName: cfg.ServerName, caFile: cfg.CAFile, ca: string(cfg.CAData), insecure: cfg.Insecure}
}

// moved tells whether the hub's kubeconfig names another way than the latest that was tried: join has written one, since the hub has another
// address or another certificate authority. A kubeconfig that cannot be read tells nothing.
func (a *Agent) moved() bool {
	tried := a.way.Load()
	if tried == nil {
		return false
	}
	cfg, err := a.hub()
	return err == nil && *wayOf(cfg) != *tried
}
