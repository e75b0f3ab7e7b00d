package main

import (
	"slices"

	"github.com/coredns/coredns/core/dnsserver"
)

// order puts our plugins right before kubernetes, so that multicluster and not the in-tree multicluster option answers
// a zone that both are given, and so that both stand after transfer, which must see AXFR first.
func order() {
	at := slices.Index(dnsserver.Directives, "kubernetes")
	dnsserver.Directives = slices.Insert(dnsserver.Directives, at, "multicluster_external", "multicluster")
}
