package health

import (
	"context"
	"net"
	"time"
)

// version is the name by which clients see that clusterset.local is answered: SERVFAIL before the first lists (L1).
const version = "dns-version.clusterset.local."

// AskDNS asks the resolver of /etc/resolv.conf as any Pod of the cluster does; if server is set, it asks that one.
func AskDNS(server string) func(context.Context) error {
	resolver := &net.Resolver{PreferGo: true}
	if server != "" {
		resolver.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server)
		}
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := resolver.LookupTXT(ctx, version)
		return err
	}
}
