package integration

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/miekg/dns"
)

const (
	fixture = "../cases/fixture.yaml"
	casesAt = "../cases/dns.json"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// Every case of test/cases, and the model's answer to it, from the real binary on the real API server, by dig over UDP
// and TCP: with
// one zone, with two, and with a next plugin that names fall through to.
func TestCases(t *testing.T) {
	c := fixtureCluster(t)
	for _, v := range []struct {
		name, corefile string
		zones          []string
		through        bool
	}{
		{"one zone", `multicluster {
			kubeconfig KUBECONFIG
		}`, []string{"clusterset.local."}, false},
		{"two zones", `multicluster clusterset.local other.example {
			kubeconfig KUBECONFIG
		}`, []string{"clusterset.local.", "other.example."}, false},
		{"fallthrough", `multicluster {
			kubeconfig KUBECONFIG
			fallthrough
		}
		whoami`, []string{"clusterset.local."}, true},
	} {
		t.Run(strings.ReplaceAll(v.name, " ", "_"), func(t *testing.T) {
			s := c.serve(t, ".:0 {\n bind 127.0.0.1\n"+v.corefile+"\n}")
			s.waitFor(t, "big.test.svc.clusterset.local.", "A")
			for _, zone := range v.zones {
				config := model.Defaults(loopback)
				config.Zone = zone
				runCases(t, s.addr, config, v.through)
			}
		})
	}
}

// L5: the same with CRDs that serve only v1alpha1.
func TestL5CasesWithOnlyV1alpha1(t *testing.T) {
	c := newCluster(t, clusterOptions{v1alpha1Only: true})
	c.apply(t, strings.ReplaceAll(read(t, fixture), "multicluster.x-k8s.io/v1beta1", "multicluster.x-k8s.io/v1alpha1"))
	s := c.serve(t, stanza)
	s.waitFor(t, "big.test.svc.clusterset.local.", "A")
	runCases(t, s.addr, model.Defaults(loopback), false)
}

// O1: with options, the questions of the cases have the model's answers, from the real binary too.
func TestO1OptionsThatAlterAnswers(t *testing.T) {
	c := newCluster(t, clusterOptions{fixture: true})
	c.apply(t, headless("prod", "pods")+"---\n"+slice("prod", "pods", "cluster-a")+
		`- {addresses: ["10.8.0.1"], targetRef: {kind: Pod, namespace: prod, name: pod-0}, conditions: {ready: true}}`)
	for _, v := range []struct {
		option string
		set    func(*model.Config)
		host   string // of the endpoint of a pod
	}{
		{"ttl 0", func(c *model.Config) { c.TTL = 0 }, "10-8-0-1"},
		{"ttl 3600", func(c *model.Config) { c.TTL = 3600 }, "10-8-0-1"},
		{"endpoint_pod_names", func(c *model.Config) { c.EndpointPodNames = true }, "pod-0"},
		{"noendpoints", func(c *model.Config) { c.NoEndpoints = true }, ""},
	} {
		t.Run(strings.ReplaceAll(v.option, " ", "_"), func(t *testing.T) {
			s := c.serve(t, strings.Replace(stanza, "kubeconfig KUBECONFIG", "kubeconfig KUBECONFIG\n "+v.option, 1))
			s.waitFor(t, web, "A")
			config := model.Defaults(loopback)
			v.set(&config)
			for _, host := range []string{"10-8-0-1", "pod-0"} {
				m := dig(t, s.addr, question{name: host + ".cluster-a.pods.prod.svc.clusterset.local.", qtype: "A"})
				if exists := len(m.Answer) == 1; exists != (host == v.host) {
					t.Errorf("%s: %v", host, m)
				}
			}
			runCases(t, s.addr, config, false)
		})
	}
}

// runCases asks every case in the zone of a configuration. Where names fall through, the next plugin's answer stands
// for NXDOMAIN.
func runCases(t *testing.T, addr string, config model.Config, through bool) {
	objs, err := model.LoadFixture(fixture)
	if err != nil {
		t.Fatal(err)
	}
	zone, plain := config.Zone, reflect.DeepEqual(config, model.Defaults(loopback))
	want := model.New(config, objs)
	cases, err := model.LoadCases(casesAt)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(zone+c.Title(), func(t *testing.T) {
			t.Parallel()
			q := c.Question()
			mapped := model.Question{Name: inZone(q.Name, zone), Type: q.Type}
			expected := want.Answer(mapped.Name, mapped.Type)
			msg := dig(
				t,
				addr,
				question{name: mapped.Name, qtype: dns.TypeToString[q.Type], tcp: c.Proto == "tcp", edns: c.EDNS},
			)
			if expected.Outcome == model.NotOurs || through && expected.Outcome == model.NameError {
				if through && (msg.Rcode != dns.RcodeSuccess || len(msg.Ns) > 0 || len(msg.Extra) == 0) {
					t.Errorf("the answer is not that of whoami, which stands next:\n%v", msg)
				}
				// N19: where no plugin stands next, CoreDNS says that nobody answers, and we claim nothing.
				if !through &&
					(msg.Rcode != dns.RcodeServerFailure || msg.Authoritative || len(msg.Answer)+len(msg.Ns) > 0) {
					t.Errorf("it is not our zone, nor anybody's, and is answered:\n%v", msg)
				}
				return
			}
			if err := model.Check(expected, mapped, msg, c.Size()); err != nil {
				t.Error(err)
			}
			if plain {
				if err := model.CheckCase(c, msg, loopback); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// inZone moves a name from clusterset.local to another zone.
func inZone(name, zone string) string {
	if zone == model.DefaultZone {
		return name // in the case that it is asked in
	}
	if at := len(name) - len(model.DefaultZone); at >= 0 && strings.EqualFold(name[at:], model.DefaultZone) {
		return name[:at] + zone
	}
	return name
}
