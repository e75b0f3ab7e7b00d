package agent

import (
	"time"

	"k8s.io/client-go/rest"
)

// lookAgain is how often the hub's kubeconfig is looked at. A kubelet takes a minute to bring a Secret.
const lookAgain = 10 * time.Second

// way is how the hub is reached. Of the credentials, the token is read anew by client-go.
type way struct {
	host, serverName, caFile string
	ca                       string
	insecure                 bool
}

func wayOf(cfg *rest.Config) *way {
	return &way{cfg.Host, cfg.ServerName, cfg.CAFile, string(cfg.CAData), cfg.Insecure}
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
