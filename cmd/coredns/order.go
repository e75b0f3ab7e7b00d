package main

import (
	"slices"

	"github.com/coredns/coredns/core/dnsserver"
)

// order puts our plugins right before kubernetes. There, they come after transfer, which must see AXFR first. If a zone
// is given both to multicluster and to kubernetes with its option multicluster, our plugin answers it.
func order() {
	at := slices.Index(dnsserver.Directives, "kubernetes")
	dnsserver.Directives = slices.Insert(dnsserver.Directives, at, "multicluster_external", "multicluster")
}
