package external

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/authority"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/plugin/pkg/dnstest"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const zone = "global.example.org."

// slice makes an EndpointSlice of shop/web as an agent does: of one cluster and one address type. Each of change is an
// annotation as KEY=VALUE, "down", or "as SERVICE".
func slice(version int, cluster, addrs string, change ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", ResourceVersion: fmt.Sprint(version), Annotations: map[string]string{},
			Labels: map[string]string{
				endpointslice.Label: "web", endpointslice.LabelCluster: cluster,
				discoveryv1.LabelManagedBy: "clusterset-controller.clusterset-dns.io",
			},
		},
		AddressType: discoveryv1.AddressTypeFQDN,
	}
	ready := true
	for _, c := range change {
		key, value, annotation := strings.Cut(c, "=")
		switch service, renamed := strings.CutPrefix(c, "as "); {
		case annotation:
			s.Annotations["clusterset-dns.io/"+key] = value
		case renamed:
			s.Labels[endpointslice.Label] = service
		case c == "down":
			ready = false
		}
	}
	for _, text := range strings.Fields(addrs) {
		if addr, err := netip.ParseAddr(text); err == nil {
			s.AddressType = discoveryv1.AddressTypeIPv4
			if addr.Is6() {
				s.AddressType = discoveryv1.AddressTypeIPv6
			}
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{text}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	s.Name = s.Labels[endpointslice.Label] + "-" + cluster + "-" + strings.ToLower(string(s.AddressType))
	return s
}

// instantly runs a test in which updates take no time, so that no Service rests after one (L3).
func instantly(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

// listed is a watch after its first list.
func listed(t testing.TB, slices ...*discoveryv1.EndpointSlice) *watch {
	t.Helper()
	s := newWatch()
	replace(t, s, "100", slices...)
	return s
}

func replace(t testing.TB, s *watch, version string, slices ...*discoveryv1.EndpointSlice) {
	t.Helper()
	var all []any
	for _, slice := range slices {
		o := s.Strip(slice)
		if o == nil {
			t.Fatalf("%s is not wanted", slice.Name)
		}
		all = append(all, o)
	}
	if err := s.Feed().Replace(all, version); err != nil {
		t.Fatal(err)
	}
}

func (w *watch) update(s *discoveryv1.EndpointSlice) { w.Feed().Update(w.Strip(s)) }
func (w *watch) delete(s *discoveryv1.EndpointSlice) { w.Feed().Delete(w.Strip(s)) }

// serving answers from a watch, with the option edns-subnet.
func serving(s *watch) *External {
	ns := []netip.Addr{netip.MustParseAddr("192.0.2.53")}
	e := &External{Stanza: authority.NewStanza[*names.Service](pluginName, 30), subnet: true}
	e.Origins, e.Zones, e.Source = []string{zone}, []*reply.Zone{reply.NewZone(zone, 30, ns)}, s
	return e
}

// three has a cluster in each of Europe, North America and Asia, the latter two with host names too or only.
func three(t testing.TB) *watch {
	return listed(t,
		slice(11, "berlin", "198.51.100.1 198.51.100.2", "region=eu", "location=52.52,13.4", "continent=EU"),
		slice(12, "berlin", "2001:db8::1", "region=eu", "location=52.52,13.4", "continent=EU"),
		slice(13, "ny.us", "203.0.113.1", "region=us", "location=40.71,-74", "continent=NA"),
		slice(14, "ny.us", "lb.ny.example.", "region=us", "location=40.71,-74", "continent=NA"),
		slice(15, "tokyo", "b.elb.example. A.elb.example", "region=asia", "location=35.68,139.7", "continent=AS"),
	)
}

// where is what the geoip plugin says of a client.
type where struct{ latitude, longitude, continent string }

var (
	paris   = where{"48.86", "2.35", "EU"}
	boston  = where{"42.36", "-71.06", "NA"}
	osaka   = where{"34.69", "135.5", "AS"}
	nowhere = where{}
)

func (l where) context() context.Context {
	ctx := metadata.ContextWithMetadata(context.Background())
	for label, value := range map[string]string{
		"latitude": l.latitude, "longitude": l.longitude, "continent/code": l.continent,
	} {
		metadata.SetValueFunc(ctx, "geoip/"+label, func() string { return value })
	}
	return ctx
}

func asked(name string, qtype uint16, subnet string) *dns.Msg {
	r := new(dns.Msg).SetQuestion(name, qtype)
	if subnet != "" {
		p := netip.MustParsePrefix(subnet)
		o := &dns.EDNS0_SUBNET{
			Code:          dns.EDNS0SUBNET,
			Family:        1,
			SourceNetmask: uint8(p.Bits()),
			Address:       net.IP(p.Addr().AsSlice()).To16(),
		}
		if p.Addr().Is6() {
			o.Family = 2
		}
		r.SetEdns0(1232, false)
		r.IsEdns0().Option = append(r.IsEdns0().Option, o)
	}
	return r
}

const handedOn = 77

// ask returns the reply as the server sends it, and the rcode.
func ask(t testing.TB, e *External, ctx context.Context, r *dns.Msg) (*dns.Msg, int) {
	t.Helper()
	e.Next = test.NextHandler(handedOn, nil)
	w := dnstest.NewRecorder(&test.ResponseWriter{})
	rcode, err := e.ServeDNS(ctx, request.NewScrubWriter(r, w), r)
	if err != nil {
		t.Fatal(err)
	}
	if w.Msg != nil {
		if _, err := w.Msg.Pack(); err != nil {
			t.Fatalf("%v: %v", r.Question[0], err)
		}
	}
	return w.Msg, rcode
}

// answer is the answer section, as the data of sorted records, or the rcode and NODATA.
func answer(t testing.TB, e *External, from where, name string, qtype uint16) string {
	t.Helper()
	m, _ := ask(t, e, from.context(), asked(name, qtype, ""))
	if m == nil || len(m.Question) != 1 || m.Question[0].Name != name {
		t.Fatalf("%s: %v", name, m)
	}
	return data(m)
}

func data(m *dns.Msg) string {
	if len(m.Answer) == 0 {
		if m.Rcode == dns.RcodeSuccess {
			return "NODATA"
		}
		return dns.RcodeToString[m.Rcode]
	}
	var out []string
	for _, rr := range m.Answer {
		out = append(out, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.Join(sorted(out), " ")
}

// discarding is a writer that allocates nothing itself.
type discarding struct{ dns.ResponseWriter }

var remoteAddr net.Addr = &net.UDPAddr{IP: net.IPv4(198, 18, 0, 1), Port: 40212}

func (*discarding) RemoteAddr() net.Addr { return remoteAddr }

func (*discarding) WriteMsg(*dns.Msg) error { return nil }
