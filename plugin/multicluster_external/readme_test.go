package external

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/prometheus/client_golang/prometheus"
)

func readme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The man page lists every option with its usage, and no other.
func TestReadmeListsOptions(t *testing.T) {
	_, block, _ := strings.Cut(readme(t), "multicluster_external [ZONES...] {\n")
	block, _, _ = strings.Cut(block, "\n}")
	var listed, known []string
	for line := range strings.SplitSeq(block, "\n") {
		listed = append(listed, strings.TrimSpace(line))
	}
	e := serving(nil)
	options := e.options()
	maps.Copy(options, e.Shared())
	for name, o := range options {
		known = append(known, strings.TrimSpace(name+" "+o.Usage))
		if !strings.Contains(readme(t), "* `"+name+"`") {
			t.Errorf("README.md does not explain %s", name)
		}
	}
	if !slices.Equal(sorted(listed), sorted(known)) {
		t.Errorf("README.md lists\n%s\nand the code has\n%s", strings.Join(listed, "\n"), strings.Join(known, "\n"))
	}
}

// The man page lists every metric with its labels, and no other (O3).
func TestReadmeListsMetrics(t *testing.T) {
	var listed, known []string
	metric := regexp.MustCompile("(?m)^\\* `(coredns_\\w+\\{\\w*\\})`")
	for _, m := range metric.FindAllStringSubmatch(readme(t), -1) {
		listed = append(listed, m[1])
	}
	descs := make(chan *prometheus.Desc, 100)
	gauges.Describe(descs)
	close(descs)
	for d := range descs {
		m := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(\w*)\}`).FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		known = append(known, m[1]+"{"+m[2]+"}")
	}
	if !slices.Equal(sorted(listed), sorted(known)) {
		t.Errorf("README.md lists\n%s\nand the code has\n%s", strings.Join(listed, "\n"), strings.Join(known, "\n"))
	}
}

// The stanzas of the man page's Corefiles are taken.
func TestReadmeCorefilesAreTaken(t *testing.T) {
	blocks := regexp.MustCompile("(?s)~~~ corefile\n(.*?)~~~").FindAllStringSubmatch(readme(t), -1)
	if len(blocks) == 0 {
		t.Fatal("no Corefile was found")
	}
	for _, m := range blocks {
		servers, err := caddyfile.Parse("README.md", strings.NewReader(m[1]), dnsserver.Directives)
		if err != nil {
			t.Fatal(err)
		}
		for _, server := range servers {
			c := caddy.NewTestController("dns", "")
			c.Dispenser = caddyfile.NewDispenserTokens("README.md", server.Tokens[pluginName])
			c.ServerBlockKeys = server.Keys
			s, err := parseStanza(c)
			if err != nil || !slices.Equal(s.Origins, []string{zone}) {
				t.Errorf("%v, %v", s, err)
			}
		}
	}
}

// O2: outside a cluster, the error names options that this plugin has.
func TestOutsideOfAClusterIsAnError(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := openWatch(kube.Config{}); err == nil || strings.Contains(err.Error(), "endpoint") {
		t.Error(err)
	}
}

// O2: what is wrong is an error that names the line.
func TestStanzas(t *testing.T) {
	for _, c := range []struct {
		key, stanza string
		zones       string // or, if it begins with "!", a part of the error
	}{
		{"global.example.org:53", "multicluster_external", "global.example.org."},
		{"dns://Global.Example.org", "multicluster_external", "global.example.org."},
		{"g. tls://g.", "multicluster_external", "g."}, // one NOTIFY
		{".:53", "multicluster_external g.example.org h.example.org", "g.example.org. h.example.org."},
		{".:53", "multicluster_external", "!there is no default zone: name the zone"},
		{".:53", "multicluster_external .", "!there is no default zone: name the zone"},
		{"example.org", "multicluster_external g.example.com", "!not authoritative for zone g.example.com."},
		{"10.in-addr.arpa", "multicluster_external", "!PTR is not served"},
		{"g.", "multicluster_external {\nttl 3601\n}", "!:2 - Error during parsing: ttl must be"},
		{"g.", "multicluster_external {\nttl\n}", "!usage is 'ttl SECONDS'"},
		{"g.", "multicluster_external {\nkubeconfig /no/such/file\n}", "!cannot load kubeconfig /no/such/file"},
		{"g.", "multicluster_external {\nnamespaces a b_\n}", "!'b_' cannot be a namespace"},
		{"g.", "multicluster_external {\nnameserver ns1\n}", "!nameserver must be an IP address: 'ns1'"},
		{"g.", "multicluster_external {\nstartup_timeout -1s\n}", "!startup_timeout must be a duration"},
		{"g.", "multicluster_external {\nfallthrough h.\n}", "!not authoritative for fallthrough zone h."},
		{"g.", "multicluster_external {\nedns-subnet yes\n}", "!usage is 'edns-subnet'"},
		{"g.", "multicluster_external {\nzonal\n}", "!unknown option 'zonal'"},
		{"g.", "multicluster_external\nmulticluster_external", "!only one multicluster_external stanza"},
	} {
		controller := caddy.NewTestController("dns", c.stanza)
		controller.ServerBlockKeys = strings.Fields(c.key)
		s, err := parseStanza(controller)
		want, fails := strings.CutPrefix(c.zones, "!")
		switch {
		case fails && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s %s: %v, want an error with %q", c.key, c.stanza, err, want)
		case !fails && (err != nil || strings.Join(s.Origins, " ") != want):
			t.Errorf("%s %s: %v, %v, want %s", c.key, c.stanza, s, err, want)
		}
	}
	c := caddy.NewTestController("dns", "multicluster_external g. {\nnamespaces a\nttl 7\nedns-subnet\nfallthrough\n"+
		"nameserver 192.0.2.1 2001:db8::1\nstartup_timeout 2m\n}")
	c.ServerBlockKeys = []string{"."}
	s, err := parseStanza(c)
	if err != nil || s.TTL != 7 || !s.subnet || len(s.Nameservers) != 2 || s.StartupTimeout.Minutes() != 2 ||
		!s.Fall.Through("x.g.") || len(s.Config.Namespaces) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}
