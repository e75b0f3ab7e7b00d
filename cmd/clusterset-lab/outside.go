package main

import (
	"context"
	"fmt"
)

// outsideBlock is the server block for clients outside the clusters that the demo adds to corefile.example.
const outsideBlock = `# Answers clients outside the clusters.
global.example:DNS_PORT {
    bind 127.0.0.1
    errors
    multicluster_external {
       kubeconfig %s
       nameserver 192.0.2.53
    }
}
`

const (
	shop   = "web.shop.global.example."
	forAll = "clusterset-dns.io/external=true"
)

// balancers has the load balancer that the demo, in place of a cloud, gives to web in each member, by cluster ID.
var balancers = map[string]string{"east": "192.0.2.10", "west": "198.51.100.10"}

// outside: both clusters publish their load balancers, and a client outside them is led to one that serves.
func outside(ctx context.Context, s *stage) error {
	title("Publish the load balancers of web: a name for clients outside the clusters")
	for _, m := range s.members() {
		status := fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, balancers[m.id])
		for _, args := range [][]string{
			{"patch", "service", "web", "-p", `{"spec":{"type":"LoadBalancer"}}`},
			{"patch", "service", "web", "--subresource=status", "-p", status},
			{"annotate", "serviceexport", "web", forAll},
		} {
			if _, err := s.kubectl(ctx, m, args...); err != nil {
				return err
			}
		}
	}
	if err := s.askAll(ctx, s.west, []question{
		{"the load balancer of east, by its cluster ID", "east." + shop, "A", []string{balancers["east"]}, ok},
		{"the load balancer of west", "west." + shop, "A", []string{balancers["west"]}, ok},
	}); err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, s.east, "patch", "endpointslice", "web-1", "--type=json", "-p",
		`[{"op":"replace","path":"/endpoints/0/conditions/ready","value":false}]`); err != nil {
		return err
	}
	return s.ask(ctx, s.west, question{"no pod is ready in east: clients get west", shop, "A",
		[]string{balancers["west"]}, ok})
}
