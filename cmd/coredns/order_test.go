package main

import (
	"slices"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
)

// TestL6Order: multicluster stands behind all that may answer or alter before it, transfer among them, and right
// before kubernetes; the order of the others is the stock one.
func TestL6Order(t *testing.T) {
	stock := slices.Clone(dnsserver.Directives)
	t.Cleanup(func() { dnsserver.Directives = stock })
	order()
	at := slices.Index(dnsserver.Directives, "multicluster")
	if at < 0 || at+1 >= len(dnsserver.Directives) || dnsserver.Directives[at+1] != "kubernetes" {
		t.Fatalf("multicluster is not right before kubernetes: %v", dnsserver.Directives)
	}
	if dnsserver.Directives[at-1] != "multicluster_external" {
		t.Errorf("multicluster_external is not right before multicluster: %v", dnsserver.Directives)
	}
	for _, earlier := range []string{"metadata", "geoip", "cache", "rewrite", "loadbalance", "transfer"} {
		if i := slices.Index(dnsserver.Directives, earlier); i < 0 || i > at {
			t.Errorf("%s is at %d, multicluster at %d", earlier, i, at)
		}
	}
	if others := slices.Delete(slices.Clone(dnsserver.Directives), at-1, at+1); !slices.Equal(others, stock) {
		t.Errorf("the order of the others is\n%v, want\n%v", others, stock)
	}
}
