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
		option, ok := options[c.Val()]
		switch {
		case slices.Contains(kubernetesOptions, c.Val()):
			return nil, c.Errf(
				"'%s' is an option of the kubernetes plugin, not of multicluster: remove it here",
				c.Val(),
			)
		case !ok:
			return nil, c.Errf("unknown option '%s'", c.Val())
		}
		s.lines[c.Val()] = c.Line()
		name, args := c.Val(), c.RemainingArgs()
		if len(args) < option.min || option.max >= 0 && len(args) > option.max {
			usage := strings.TrimSpace(name + " " + option.usage)
			return nil, c.Errf("wrong number of arguments for %s: usage is '%s'", name, usage)
		}
		if err := option.set(s, c, args); err != nil {
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
		return "apiserver_burst limits nothing without apiserver_qps: set both, or take it out", []string{
			"apiserver_burst",
		}
	case s.config.NoEndpoints && s.config.Topology != (catalog.Topology{}):
		return "noendpoints leaves nothing to prefer or to have zones: take it out, or prefer and zonal", []string{
			"noendpoints",
		}
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

// option is one property of the stanza: how many arguments it takes (no max: any number), and what they mean.
type option struct {
	min, max int
	usage    string
	set      func(s *stanza, c *caddy.Controller, args []string) error
}

// options of the stanza. Those that the kubernetes plugin has mean the same (O1).
var options = map[string]option{
	"kubeconfig": {1, 2, "PATH [CONTEXT]", func(s *stanza, _ *caddy.Controller, args []string) error {
		s.config.Kubeconfig = args[0]
		if len(args) == 2 {
			s.config.Context = args[1]
		}
		return nil
	}},
	"endpoint": {1, 1, "URL", func(s *stanza, _ *caddy.Controller, args []string) error {
		s.config.Endpoint = args[0]
		return nil
	}},
	"tls": {3, 3, "CERT KEY CACERT", func(s *stanza, _ *caddy.Controller, args []string) error {
		s.config.TLSCert, s.config.TLSKey, s.config.TLSCA = args[0], args[1], args[2]
		return nil
	}},
	"ttl": {1, 1, "SECONDS", func(s *stanza, c *caddy.Controller, args []string) (err error) {
		s.ttl, err = authority.ParseTTL(c, args[0])
		return err
	}},
	"namespaces": {1, -1, "NAMESPACE...", func(s *stanza, _ *caddy.Controller, args []string) error {
		s.config.Namespaces = append(s.config.Namespaces, args...)
		return nil
	}},
	"namespace_labels": {1, -1, "EXPRESSION", func(s *stanza, _ *caddy.Controller, args []string) error {
		s.config.NamespaceLabels = strings.Join(args, " ")
		return nil
	}},
	"labels": {1, -1, "EXPRESSION", func(s *stanza, _ *caddy.Controller, args []string) error {
		s.config.Labels = strings.Join(args, " ")
		return nil
	}},
	"noendpoints": {0, 0, "", func(s *stanza, _ *caddy.Controller, _ []string) error {
		s.config.NoEndpoints = true
		return nil
	}},
	"endpoint_pod_names": {0, 0, "", func(s *stanza, _ *caddy.Controller, _ []string) error {
		s.config.EndpointPodNames = true
		return nil
	}},
	"max_endpoints": {1, 2, "NUMBER [transfer]", func(s *stanza, c *caddy.Controller, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 1 {
			return c.Errf("max_endpoints must be a number of at least 1: '%s'", args[0])
		}
		if s.limitTransfer = len(args) == 2; s.limitTransfer && args[1] != "transfer" {
			return c.Errf("max_endpoints %d may be followed by 'transfer' only: '%s'", n, args[1])
		}
		s.maxEndpoints = n
		return nil
	}},
	"shed": {1, 1, "NUMBER", func(s *stanza, c *caddy.Controller, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 1 {
			return c.Errf("shed must be a number of at least 1: '%s'", args[0])
		}
		s.streams = &streams{limit: int64(n)}
		return nil
	}},
	"prefer": {2, 3, "local CLUSTERID|zone ZONE [order|subset]", (*stanza).prefer},
	"zonal": {0, 0, "", func(s *stanza, _ *caddy.Controller, _ []string) error {
		s.config.Topology.Zonal = true
		return nil
	}},
	"nameserver": {1, -1, "IP...", func(s *stanza, c *caddy.Controller, args []string) error {
		addrs, err := authority.ParseNameservers(c, args)
		s.nameservers = append(s.nameservers, addrs...)
		return err
	}},
	"startup_timeout": {1, 1, "DURATION", func(s *stanza, c *caddy.Controller, args []string) (err error) {
		s.startupTimeout, err = authority.ParseTimeout(c, args[0])
		return err
	}},
	"fallthrough": {0, -1, "[ZONES...]", func(s *stanza, c *caddy.Controller, args []string) (err error) {
		s.Fall, err = authority.ParseFallthrough(c, s.origins, args)
		return err
	}},
	"apiserver_qps": {1, 1, "NUMBER", func(s *stanza, c *caddy.Controller, args []string) error {
		qps, err := strconv.ParseFloat(args[0], 32)
		if err != nil || !(qps >= 0) || math.IsInf(qps, 0) { // NaN is neither
			return c.Errf("apiserver_qps must be a number of at least 0: '%s'", args[0])
		}
		s.config.QPS = float32(qps)
		return nil
	}},
	"apiserver_burst": {1, 1, "NUMBER", func(s *stanza, c *caddy.Controller, args []string) error {
		burst, err := strconv.Atoi(args[0])
		if err != nil || burst < 0 {
			return c.Errf("apiserver_burst must be a number of at least 0: '%s'", args[0])
		}
		s.config.Burst = burst
		return nil
	}},
}
