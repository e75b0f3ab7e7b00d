package multicluster

import "github.com/coredns/caddy"

// growStacks takes the place of the real one, for the ablation.
func growStacks(*caddy.Controller) {}
