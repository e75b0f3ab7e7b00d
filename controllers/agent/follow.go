package agent

import (
	"context"
	"reflect"
	"time"

	"k8s.io/client-go/rest"
)

// followHub has the controllers use the first link, and then each next one. If the hub's kubeconfig changes, the next
// link is opened beside the one that works. If the hub was restored or its watches are dead, the next one takes its
// place.
func (a *Agent) followHub(ctx context.Context, next *link) error {
	var current *link // nil while what the caches show is no longer kept up to date
	look := time.NewTicker(kubeconfigInterval)
	defer look.Stop()
	for first := true; ; {
		var ready chan struct{}
		var relist chan string
		if next != nil {
			ready = next.done
		}
		if current != nil {
			relist = a.relist
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
			if ctx.Err() != nil {
				return nil
			}
			if next.err != nil {
				return next.err
			}
			if err := a.use(next, first); err != nil {
				return err
			}
			if current != nil {
				current.cancel()
			}
			current, next, first = next, nil, false
		case reason := <-relist:
			a.log.Info("listing the hub again", "reason", reason)
			a.relists.Add(1)
			current.cancel()
			if next != nil {
				next.cancel()
			}
			current, next = nil, a.openLink(ctx, true)
		case <-look.C:
			if a.accessChanged() {
				a.log.Info("the hub's kubeconfig has another address, authority or credential: connecting with it")
				if next != nil {
					next.cancel()
				}
				next = a.openLink(ctx, current == nil)
			}
		}
	}
}

// use has the controllers use a link.
func (a *Agent) use(l *link, first bool) error {
	l.primary.Store(true)
	a.linked.Store(l)
	if err := a.attach(l.cache, first); err != nil {
		return err
	}
	select {
	case <-a.relist: // the reason was in an earlier link
	default:
	}
	a.log.Info("the controllers follow the hub")
	return nil
}

// kubeconfigInterval is how often the hub's kubeconfig is read. A kubelet takes a minute to bring a Secret.
const kubeconfigInterval = 10 * time.Second

// accessOf returns how the hub is reached, and as whom, without functions, which cannot be compared. client-go itself
// reads again what stands in other files, such as the agent's token.
func accessOf(cfg *rest.Config) *rest.Config {
	access := rest.CopyConfig(cfg)
	access.Dial, access.Proxy, access.WrapTransport = nil, nil, nil
	if access.BearerTokenFile != "" {
		access.BearerToken = ""
	}
	return access
}

// accessChanged returns whether the hub's kubeconfig differs from the latest that was tried. One that cannot be read
// does not.
func (a *Agent) accessChanged() bool {
	tried := a.access.Load()
	if tried == nil {
		return false
	}
	cfg, err := a.hub()
	return err == nil && !reflect.DeepEqual(accessOf(cfg), tried)
}
