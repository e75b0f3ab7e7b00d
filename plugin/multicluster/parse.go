package multicluster

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/coredns/caddy"
	"k8s.io/apimachinery/pkg/util/validation"
)

// stanza is what the Corefile says.
type stanza struct {
	Multicluster
	config         kube.Config
	ttl            uint32
	nameservers    []netip.Addr
	startupTimeout time.Duration
	lines          map[string]int // of the Corefile, that options stand in
}

const (
	defaultZone           = "clusterset.local."
	defaultTTL            = 5
	defaultStartupTimeout = 5 * time.Second
)

// parse reads the stanza. Its errors name the line of the Corefile (O2).
func parse(c *caddy.Controller) (*stanza, error) {
	c.Next() // the directive's name
	s := &stanza{ttl: defaultTTL, startupTimeout: defaultStartupTimeout, lines: make(map[string]int)}
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
		s.lines[name] = c.Line()
		if err := s.set(c, name, args); err != nil {
			return nil, err
		}
	}
	if c.Next() {
		return nil, c.Errf("only one multicluster stanza is allowed in a server block: name all zones in it")
	}
	if wrong, options := s.contradiction(); wrong != "" {
		return nil, s.errf(c, wrong, options...)
	}
	if option, err := s.config.Check(); err != nil {
		return nil, s.errf(c, err.Error(), option)
	}
	return s, nil
}

// contradiction is what options say against each other, or without each other.
func (s *stanza) contradiction() (wrong string, options []string) {
	switch {
	case len(s.config.Namespaces) > 0 && s.config.NamespaceLabels != "":
		return "namespaces and namespace_labels cannot both be set", []string{"namespaces", "namespace_labels"}
	case s.config.Kubeconfig != "" && s.config.Endpoint != "":
		return "kubeconfig and endpoint cannot both be set", []string{"kubeconfig", "endpoint"}
	case s.config.TLSCert != "" && s.config.Endpoint == "":
		return "tls is used with endpoint only", []string{"tls"}
	case s.config.Burst > 0 && s.config.QPS == 0:
		return "apiserver_burst limits nothing without apiserver_qps: set both, or take it out",
			[]string{"apiserver_burst"}
	case s.config.NoEndpoints && s.config.Topology != (catalog.Topology{}):
		return "noendpoints leaves nothing to prefer or to have zones: take it out, or prefer and zonal",
			[]string{"noendpoints"}
	}
	return "", nil
}

// errf is an error at the last of the lines that options stand in.
func (s *stanza) errf(c *caddy.Controller, wrong string, options ...string) error {
	line := 0
	for _, option := range options {
		line = max(line, s.lines[option])
	}
	return fmt.Errorf("%s:%d - Error during parsing: %s", c.File(), line, wrong)
}

// kubernetesOptions are those of the kubernetes plugin that multicluster does not have. Users copy
// that plugin's stanza.
var kubernetesOptions = []string{"pods", "ignore", "apiserver_max_inflight", "multicluster"}

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
	"shed":               {1, 1, "NUMBER"},
	"prefer":             {2, 3, "local CLUSTERID|zone ZONE [order|subset]"},
	"zonal":              {0, 0, ""},
	"nameserver":         {1, -1, "IP..."},
	"startup_timeout":    {1, 1, "DURATION"},
	"fallthrough":        {0, -1, "[ZONES...]"},
	"apiserver_qps":      {1, 1, "NUMBER"},
	"apiserver_burst":    {1, 1, "NUMBER"},
}

// set sets an option. It fails if a value is wrong; the number of arguments is not.
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
		s.config.NamespaceLabels = strings.Join(args, " ")
	case "labels":
		s.config.Labels = strings.Join(args, " ")
	case "noendpoints":
		s.config.NoEndpoints = true
	case "endpoint_pod_names":
		s.config.EndpointPodNames = true
	case "max_endpoints":
		s.maxEndpoints, err = number(c, name, args[0], 1)
		if s.limitTransfer = len(args) == 2; s.limitTransfer && args[1] != "transfer" {
			return c.Errf("max_endpoints %s may be followed by 'transfer' only: '%s'", args[0], args[1])
		}
	case "shed":
		limit, err := number(c, name, args[0], 1)
		s.streams = make(chan struct{}, limit)
		return err
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
	case "apiserver_qps":
		qps, err := strconv.ParseFloat(args[0], 32)
		if err != nil || !(qps >= 0) || math.IsInf(qps, 0) { // NaN is neither
			return c.Errf("apiserver_qps must be a number of at least 0: '%s'", args[0])
		}
		s.config.QPS = float32(qps)
	case "apiserver_burst":
		s.config.Burst, err = number(c, name, args[0], 0)
	}
	return err
}

// number reads an argument of an option that is a number.
func number(c *caddy.Controller, option, arg string, least int) (int, error) {
	n, err := strconv.Atoi(arg)
	if err != nil || n < least {
		return 0, c.Errf("%s must be a number of at least %d: '%s'", option, least, arg)
	}
	return n, nil
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
