package multicluster

import (
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/coredns/caddy"
	"k8s.io/apimachinery/pkg/util/validation"
)

// prefer reads whose endpoints of Headless Services stand first (T2): those of a cluster, those of
// a zone, or both, in two lines.
func (s *stanza) prefer(c *caddy.Controller, args []string) error {
	what, name := args[0], strings.ToLower(args[1])
	t := &s.config.Topology
	preferred, only := &t.Cluster, &t.ClusterOnly
	switch what {
	case "local":
		if !catalog.IsClusterID(name) {
			return c.Errf("prefer local: '%s' cannot be a cluster ID: use the one in the cluster's own "+
				"ClusterProperty cluster.clusterset.k8s.io", args[1])
		}
	case "zone":
		if wrong := validation.IsValidLabelValue(name); wrong != nil {
			return c.Errf("prefer zone: '%s' cannot be a zone: use the value of the Nodes' label "+
				"topology.kubernetes.io/zone: %s", args[1], wrong[0])
		}
		preferred, only = &t.Zone, &t.ZoneOnly
	default:
		return c.Errf("prefer is 'local CLUSTERID' or 'zone ZONE', not '%s'", what)
	}
	if *preferred != "" {
		return c.Errf("prefer %s is given twice, for '%s' and '%s': keep one", what, *preferred, name)
	}
	*preferred = name
	if len(args) == 3 {
		switch args[2] {
		case "order":
		case "subset":
			*only = true
		default:
			return c.Errf("prefer %s %s is 'order' or 'subset', not '%s'", what, name, args[2])
		}
	}
	return nil
}
