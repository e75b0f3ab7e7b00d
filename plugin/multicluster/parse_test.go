package multicluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	"github.com/coredns/caddy"
)

func parseText(text string, keys ...string) (*Multicluster, error) {
	c := caddy.NewTestController("dns", text)
	c.ServerBlockKeys = keys
	return parse(c)
}

func TestO1Defaults(t *testing.T) {
	s, err := parseText("multicluster")
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Origins) != 1 || s.Origins[0] != "clusterset.local." || s.TTL != 5 || s.StartupTimeout != 5*time.Second ||
		s.maxEndpoints != 0 ||
		s.Nameservers != nil {
		t.Errorf("defaults: %+v", s)
	}
}

func TestO1NoEndpoints(t *testing.T) {
	if s, err := parseText("multicluster {\n noendpoints\n}"); err != nil || !s.Config.NoEndpoints {
		t.Errorf("noendpoints: %+v, %v", s, err)
	}
}

func TestO1EveryOption(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte(validKubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := parseText(`multicluster a.example b.Example {
		kubeconfig `+kubeconfig+` other
		ttl 30
		namespaces x y
		labels app in (b,  a), x = y
		endpoint_pod_names
		max_endpoints 20
		prefer zone EU-west-1a
		prefer local eu.Example subset
		zonal
		nameserver 10.0.0.1 2001:db8::1
		startup_timeout 1m
		fallthrough a.example
	}`, ".:53")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(s.Origins, " ") != "a.example. b.example." || s.Config.Context != "other" || s.TTL != 30 ||
		len(s.Config.Namespaces) != 2 ||
		s.Config.Labels != "app in (a,b),x=y" || !s.Config.EndpointPodNames || s.maxEndpoints != 20 ||
		len(s.Nameservers) != 2 || s.StartupTimeout != time.Minute ||
		s.Config.Topology != (catalog.Topology{
			Cluster: "eu.example", ClusterOnly: true, Zone: "eu-west-1a", Zonal: true,
		}) ||
		!s.Fall.Through("x.a.example.") ||
		s.Fall.Through("x.b.example.") {
		t.Errorf("options: %+v", s)
	}
}

const validKubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: other, context: {cluster: c, user: u}}]
current-context: other
`

// O2, and I of the bad input: what is wrong is an error that names the line and says what would be right.
func TestO2ErrorsNameTheLine(t *testing.T) {
	lines := map[string]int{ // of what is not wrong in the second
		"reverse zone":                  1,
		"zone outside the server block": 1,
		"namespaces twice over":         3,
		"kubeconfig and endpoint":       3,
		"prefer twice":                  3,
		"prefer without endpoints":      3,
		"zones without endpoints":       3,
		"tls alone":                     3,
	}
	for _, tc := range []struct{ name, text, want string }{
		{"unknown option", "multicluster {\n bogus\n}", "unknown option 'bogus'"},
		{"pods", "multicluster {\n pods insecure\n}", "'pods' is an option of the kubernetes plugin"},
		{"ignore", "multicluster {\n ignore empty_service\n}", "'ignore' is an option of the kubernetes plugin"},
		{"apiserver_qps", "multicluster {\n apiserver_qps 5\n}", "option of the kubernetes plugin"},
		{"apiserver_burst", "multicluster {\n apiserver_burst 5\n}", "option of the kubernetes plugin"},
		{"apiserver_max_inflight", "multicluster {\n apiserver_max_inflight 5\n}", "option of the kubernetes plugin"},
		{"multicluster", "multicluster {\n multicluster clusterset.local\n}",
			"'multicluster' is an option of the kubernetes plugin"},
		{"max_endpoints for what", "multicluster {\n max_endpoints 5 xfr\n}", "followed by 'transfer' only: 'xfr'"},
		{"ttl not a number", "multicluster {\n ttl x\n}", "ttl must be a number of seconds in [0, 3600]: 'x'"},
		{"ttl too large", "multicluster {\n ttl 3601\n}", "in [0, 3600]"},
		{"ttl negative", "multicluster {\n ttl -1\n}", "in [0, 3600]"},
		{"ttl missing", "multicluster {\n ttl\n}", "usage is 'ttl SECONDS'"},
		{"noendpoints with argument", "multicluster {\n noendpoints x\n}", "usage is 'noendpoints'"},
		{"max_endpoints", "multicluster {\n max_endpoints 0\n}", "in [1, 65535]: '0'"},
		{"max_endpoints too large", "multicluster {\n max_endpoints 4611686018427387904\n}",
			"in [1, 65535]: '4611686018427387904'"},
		{"nameserver", "multicluster {\n nameserver ns.example.org\n}", "must be an IP address"},
		{"startup_timeout", "multicluster {\n startup_timeout 5\n}", "duration such as 5s"},
		{"fallthrough zone", "multicluster {\n fallthrough example.org\n}",
			"not authoritative for fallthrough zone example.org."},
		{"reverse zone", "multicluster clusterset.local in-addr.arpa {\n}", "PTR is not served"},
		{"zone outside the server block", "multicluster example.org {\n}", "not authoritative for zone example.org."},
		{"second stanza", "multicluster\nmulticluster", "only one multicluster stanza"},
		{"namespaces twice over", "multicluster {\n namespaces a\n namespace_labels b=c\n}", "cannot both be set"},
		{"kubeconfig and endpoint", "multicluster {\n endpoint https://a\n kubeconfig b\n}",
			"kubeconfig and endpoint cannot both be set"},
		{"tls alone", "multicluster {\n tls a b c\n}", "tls is used with endpoint only"},
		{"kubeconfig missing", "multicluster {\n kubeconfig /nowhere/config\n}", "/nowhere/config"},
		{"labels", "multicluster {\n labels a=(\n}", "labels is not a label selector: "},
		{"namespace_labels", "multicluster {\n namespace_labels a in\n}", "namespace_labels is not a label selector: "},
		{"prefer nothing", "multicluster {\n prefer local\n}",
			"usage is 'prefer local CLUSTERID|zone ZONE [order|subset]'"},
		{"prefer something else", "multicluster {\n prefer region eu\n}",
			"prefer is 'local CLUSTERID' or 'zone ZONE', not 'region'"},
		{"prefer no cluster id", "multicluster {\n prefer local a.b.c\n}", "'a.b.c' cannot be a cluster ID"},
		{"prefer no zone", "multicluster {\n prefer zone -a\n}", "'-a' cannot be a zone"},
		{"prefer otherwise", "multicluster {\n prefer zone a only\n}",
			"prefer zone a is 'order' or 'subset', not 'only'"},
		{"prefer twice", "multicluster {\n prefer local a\n prefer local b\n}",
			"prefer local is given twice, for 'a' and 'b'"},
		{"zonal with argument", "multicluster {\n zonal a\n}", "usage is 'zonal'"},
		{"prefer without endpoints", "multicluster {\n noendpoints\n prefer local a\n}",
			"noendpoints leaves nothing to prefer"},
		{"zones without endpoints", "multicluster {\n noendpoints\n zonal\n}", "noendpoints leaves nothing"},
	} {
		t.Run(strings.ReplaceAll(tc.name, " ", "_"), func(t *testing.T) {
			line := 2
			if n, ok := lines[tc.name]; ok {
				line = n
			}
			at := fmt.Sprintf("Testfile:%d - ", line)
			_, err := parseText(tc.text, "clusterset.local:53")
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), at) {
				t.Errorf("error %v, want one at %s with %q", err, at, tc.want)
			}
		})
	}
}

// FuzzParse: no Corefile makes parse panic.
func FuzzParse(f *testing.F) {
	f.Add("multicluster a b {\n ttl 5\n}")
	f.Add("multicluster {\n kubeconfig x y\n labels a=b\n}")
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = parseText("multicluster "+text, ".")
	})
}
