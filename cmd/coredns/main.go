// Command coredns is stock CoreDNS with every stock plugin, plus multicluster and multicluster_external.
//
// It takes the stock flags (-conf, -plugins, -version, ...) and is meant to replace the stock image without any
// other change. The only additions to the plugin order are multicluster_external and multicluster, right before
// kubernetes (order.go).
package main

import (
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/coremain"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster"
	_ "github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external"
)

// version is ours; the build sets it with -ldflags "-X main.version=...".
var version = "dev"

func main() {
	order()
	multicluster.Version = version
	caddy.AppVersion = coremain.CoreVersion + "+clusterset-dns." + version
	coremain.Run()
}
