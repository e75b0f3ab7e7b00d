package multicluster

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/coredns/caddy"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	defaultZone = "clusterset.local."
	defaultTTL  = 5

	mostEndpoints = math.MaxUint16 // of max_endpoints: a message counts its records in 16 bits
)

// parse reads the stanza. Its errors name the line of the Corefile (O2).
func parse(c *caddy.Controller) (*Multicluster, error) {
	m := &Multicluster{Stanza: authority.NewStanza[*catalog.Service](pluginName, defaultTTL)}
	if err := m.Parse(c, []string{defaultZone}, m.options(), m.check); err != nil {
		return nil, err
	}
	if m.Config.TLSCert != "" && m.Config.Endpoint == "" { // in any order
		return nil, c.Err("tls is used with endpoint only")
	}
	return m, nil
}

// check fails if the options so far contradict each other, or name what cannot be used.
func (m *Multicluster) check() error {
	switch {
	case len(m.Config.Namespaces) > 0 && m.Config.NamespaceLabels != "":
		return errors.New("namespaces and namespace_labels cannot both be set")
	case m.Config.Kubeconfig != "" && m.Config.Endpoint != "":
		return errors.New("kubeconfig and endpoint cannot both be set")
	case m.Config.NoEndpoints && m.Config.Topology != (catalog.Topology{}):
		return errors.New("noendpoints leaves nothing to prefer or to have zones: take it out, or prefer and zonal")
	}
	return nil
}

// kubernetesOptions are those of the kubernetes plugin that multicluster does not have. Users copy
// that plugin's stanza.
var kubernetesOptions = []string{
	"pods", "ignore", "apiserver_qps", "apiserver_burst", "apiserver_max_inflight", "multicluster",
}

// options are those that multicluster_external does not have. Those of the kubernetes plugin mean the same (O1).
func (m *Multicluster) options() map[string]authority.Option {
	c := &m.Config
	options := map[string]authority.Option{
		"endpoint": authority.Takes(1, 1, "URL", func(args []string) error { c.Endpoint = args[0]; return nil }),
		"tls": authority.Takes(3, 3, "CERT KEY CACERT", func(args []string) error {
			c.TLSCert, c.TLSKey, c.TLSCA = args[0], args[1], args[2]
			return nil
		}),
		"namespace_labels": authority.Takes(1, -1, "EXPRESSION", func(args []string) (err error) {
			c.NamespaceLabels, err = selector("namespace_labels", args)
			return err
		}),
		"labels": authority.Takes(1, -1, "EXPRESSION", func(args []string) (err error) {
			c.Labels, err = selector("labels", args)
			return err
		}),
		"noendpoints":        authority.Takes(0, 0, "", func([]string) error { c.NoEndpoints = true; return nil }),
		"endpoint_pod_names": authority.Takes(0, 0, "", func([]string) error { c.EndpointPodNames = true; return nil }),
		"max_endpoints": authority.Takes(1, 2, "NUMBER [transfer]", func(args []string) (err error) {
			m.maxEndpoints, err = strconv.Atoi(args[0])
			m.limitTransfer = len(args) == 2
			switch {
			case err != nil || m.maxEndpoints < 1 || m.maxEndpoints > mostEndpoints:
				return fmt.Errorf("max_endpoints must be a number in [1, %d]: '%s'", mostEndpoints, args[0])
			case m.limitTransfer && args[1] != "transfer":
				return fmt.Errorf("max_endpoints %s may be followed by 'transfer' only: '%s'", args[0], args[1])
			}
			return nil
		}),
		"prefer": authority.Takes(2, 3, "local CLUSTERID|zone ZONE [order|subset]", m.prefer),
		"zonal":  authority.Takes(0, 0, "", func([]string) error { c.Topology.Zonal = true; return nil }),
	}
	for _, name := range kubernetesOptions {
		options[name] = authority.Option{Max: -1, Set: func([]string) error {
			return fmt.Errorf("'%s' is an option of the kubernetes plugin, not of multicluster: remove it here", name)
		}}
	}
	return options
}

// selector reads a label selector, and returns it in the form of a request.
func selector(option string, args []string) (string, error) {
	s, err := labels.Parse(strings.Join(args, " "))
	if err != nil {
		return "", fmt.Errorf("%s is not a label selector: %v", option, err)
	}
	return s.String(), nil
}

// prefer reads whose endpoints of Headless Services stand first (T2): those of a cluster, those of
// a zone, or both, in two lines.
func (m *Multicluster) prefer(args []string) error {
	what, name := args[0], strings.ToLower(args[1])
	t := &m.Config.Topology
	preferred, only := &t.Cluster, &t.ClusterOnly
	switch what {
	case "local":
		if !catalog.IsClusterID(name) {
			return fmt.Errorf("prefer local: '%s' cannot be a cluster ID: use the one in the cluster's own "+
				"ClusterProperty cluster.clusterset.k8s.io", args[1])
		}
	case "zone":
		if wrong := validation.IsValidLabelValue(name); wrong != nil {
			return fmt.Errorf("prefer zone: '%s' cannot be a zone: use the value of the Nodes' label "+
				"topology.kubernetes.io/zone: %s", args[1], wrong[0])
		}
		preferred, only = &t.Zone, &t.ZoneOnly
	default:
		return fmt.Errorf("prefer is 'local CLUSTERID' or 'zone ZONE', not '%s'", what)
	}
	if *preferred != "" {
		return fmt.Errorf("prefer %s is given twice, for '%s' and '%s': keep one", what, *preferred, name)
	}
	*preferred = name
	if len(args) == 3 {
		switch args[2] {
		case "order":
		case "subset":
			*only = true
		default:
			return fmt.Errorf("prefer %s %s is 'order' or 'subset', not '%s'", what, name, args[2])
		}
	}
	return nil
}
