package multicluster

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/coredns/caddy"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// stanza is what the Corefile says.
type stanza struct {
	Multicluster
	config         kube.Config
	ttl            uint32
	nameservers    []netip.Addr
	startupTimeout time.Duration
}

const (
	defaultZone           = "clusterset.local."
	defaultTTL            = 5
	defaultStartupTimeout = 5 * time.Second
)

// parse reads the stanza. Its errors name the line of the Corefile (O2).
func parse(c *caddy.Controller) (*stanza, error) {
	c.Next() // the directive's name
	s := &stanza{ttl: defaultTTL, startupTimeout: defaultStartupTimeout}
	zones := c.RemainingArgs()
	if len(zones) == 0 {
		zones = []string{defaultZone}
	}
	var err error
	if s.origins, err = authority.ParseZones(c, zones); err != nil {
		return nil, err
	}
	for c.NextBlock() {
		name, args := c.Val(), c.RemainingArgs()
		option, ok := options[name]
		switch {
		case slices.Contains(kubernetesOptions, name):
			return nil, c.Errf("'%s' is an option of the kubernetes plugin, not of multicluster: remove it here", name)
		case !ok:
			return nil, c.Errf("unknown option '%s'", name)
		case len(args) < option.min || option.max >= 0 && len(args) > option.max:
			usage := strings.TrimSpace(name + " " + option.usage)
			return nil, c.Errf("wrong number of arguments for %s: usage is '%s'", name, usage)
		}
		if err := s.set(c, name, args); err != nil {
			return nil, err
		}
		if err := s.check(); err != nil {
			return nil, c.Err(err.Error())
		}
	}
	if s.config.TLSCert != "" && s.config.Endpoint == "" { // in any order
		return nil, c.Err("tls is used with endpoint only")
	}
	if c.Next() {
		return nil, c.Err("only one multicluster stanza is allowed in a server block: name all zones in it")
	}
	return s, nil
}

// check fails if the options so far contradict each other, or name what cannot be used.
func (s *stanza) check() error {
	switch {
	case len(s.config.Namespaces) > 0 && s.config.NamespaceLabels != "":
		return errors.New("namespaces and namespace_labels cannot both be set")
	case s.config.Kubeconfig != "" && s.config.Endpoint != "":
		return errors.New("kubeconfig and endpoint cannot both be set")
	case s.config.NoEndpoints && s.config.Topology != (catalog.Topology{}):
		return errors.New("noendpoints leaves nothing to prefer or to have zones: take it out, or prefer and zonal")
	}
	return s.config.Check()
}

// kubernetesOptions are those of the kubernetes plugin that multicluster does not have. Users copy
// that plugin's stanza.
var kubernetesOptions = []string{
	"pods", "ignore", "apiserver_qps", "apiserver_burst", "apiserver_max_inflight", "multicluster",
}

// option is one property of the stanza: how many arguments it takes (no max: any number).
type option struct {
	min, max int
	usage    string
}

// options of the stanza. Those that the kubernetes plugin has mean the same (O1).
var options = map[string]option{
	"kubeconfig":         {1, 2, "PATH [CONTEXT]"},
	"endpoint":           {1, 1, "URL"},
	"tls":                {3, 3, "CERT KEY CACERT"},
	"ttl":                {1, 1, "SECONDS"},
	"namespaces":         {1, -1, "NAMESPACE..."},
	"namespace_labels":   {1, -1, "EXPRESSION"},
	"labels":             {1, -1, "EXPRESSION"},
	"noendpoints":        {0, 0, ""},
	"endpoint_pod_names": {0, 0, ""},
	"max_endpoints":      {1, 2, "NUMBER [transfer]"},
	"prefer":             {2, 3, "local CLUSTERID|zone ZONE [order|subset]"},
	"zonal":              {0, 0, ""},
	"nameserver":         {1, -1, "IP..."},
	"startup_timeout":    {1, 1, "DURATION"},
	"fallthrough":        {0, -1, "[ZONES...]"},
}

// set sets an option. It fails if a value is wrong. parse has checked how many there are.
func (s *stanza) set(c *caddy.Controller, name string, args []string) (err error) {
	switch name {
	case "kubeconfig":
		s.config.Kubeconfig = args[0]
		if len(args) == 2 {
			s.config.Context = args[1]
		}
	case "endpoint":
		s.config.Endpoint = args[0]
	case "tls":
		s.config.TLSCert, s.config.TLSKey, s.config.TLSCA = args[0], args[1], args[2]
	case "ttl":
		s.ttl, err = authority.ParseTTL(c, args[0])
	case "namespaces":
		s.config.Namespaces = append(s.config.Namespaces, args...)
	case "namespace_labels":
		s.config.NamespaceLabels, err = selector(c, name, args)
	case "labels":
		s.config.Labels, err = selector(c, name, args)
	case "noendpoints":
		s.config.NoEndpoints = true
	case "endpoint_pod_names":
		s.config.EndpointPodNames = true
	case "max_endpoints":
		s.maxEndpoints, err = number(c, name, args[0])
		if s.limitTransfer = len(args) == 2; s.limitTransfer && args[1] != "transfer" {
			return c.Errf("max_endpoints %s may be followed by 'transfer' only: '%s'", args[0], args[1])
		}
	case "prefer":
		return s.prefer(c, args)
	case "zonal":
		s.config.Topology.Zonal = true
	case "nameserver":
		addrs, err := authority.ParseNameservers(c, args)
		s.nameservers = append(s.nameservers, addrs...)
		return err
	case "startup_timeout":
		s.startupTimeout, err = authority.ParseTimeout(c, args[0])
	case "fallthrough":
		s.Fall, err = authority.ParseFallthrough(c, s.origins, args)
	}
	return err
}

// number reads an argument of an option that is a number.
func number(c *caddy.Controller, option, arg string) (int, error) {
	n, err := strconv.Atoi(arg)
	if err != nil || n < 1 {
		return 0, c.Errf("%s must be a number of at least 1: '%s'", option, arg)
	}
	return n, nil
}

// selector reads a label selector, and returns it in the form of a request.
func selector(c *caddy.Controller, option string, args []string) (string, error) {
	s, err := labels.Parse(strings.Join(args, " "))
	if err != nil {
		return "", c.Errf("%s is not a label selector: %v", option, err)
	}
	return s.String(), nil
}

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
