package honest

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// seen is what both clusters show of one name.
type seen struct {
	service  *corev1.Service
	export   *mcsv1beta1.ServiceExport
	slices   []discoveryv1.EndpointSlice
	message  string // of Valid
	imp      *mcsv1beta1.ServiceImport
	imported []discoveryv1.EndpointSlice
	dnsA     string
	dnsB     string
}

// cut ends the message of a condition that was too long.
const cut = " …"

// named returns whether the exporter says that this is left out. A message that was cut may have named it.
func (s *seen) named(format string, args ...any) bool {
	return strings.Contains(s.message, fmt.Sprintf(format, args...)) || strings.HasSuffix(s.message, cut)
}

func (s *seen) headless() bool { return s.service.Spec.ClusterIP == corev1.ClusterIPNone }

// check returns what is neither imported nor named.
func (s *seen) check() error {
	valid := meta.FindStatusCondition(s.export.Status.Conditions, "Valid")
	ready := meta.FindStatusCondition(s.export.Status.Conditions, "Ready")
	if valid == nil || valid.Status != "True" || ready == nil || ready.Status != "True" ||
		ready.Message != "Other clusters can import this Service." {
		return fmt.Errorf("conditions %+v", s.export.Status.Conditions)
	}
	s.message = valid.Message
	if err := s.checkImport(); err != nil {
		return err
	}
	if err := s.checkEndpoints(); err != nil {
		return err
	}
	return s.checkAnswers()
}

func (s *seen) checkImport() error {
	want, got := &s.service.Spec, &s.imp.Spec
	distribution := ptr.Deref(want.TrafficDistribution, "")
	if distribution == "PreferSameZone" {
		distribution = "PreferClose"
	}
	if s.headless() != (got.Type == mcsv1beta1.Headless) || got.SessionAffinity != want.SessionAffinity ||
		ptr.Deref(got.InternalTrafficPolicy, "") != ptr.Deref(want.InternalTrafficPolicy, "Cluster") ||
		ptr.Deref(got.TrafficDistribution, "") != distribution || !slices.Equal(got.IPFamilies, want.IPFamilies) {
		return fmt.Errorf("the import has %+v, the Service %+v", got, want)
	}
	if !s.headless() && len(got.IPs) != len(want.IPFamilies) {
		return fmt.Errorf("VIPs %v; %+v", got.IPs, s.imp.Status)
	}
	for _, p := range want.Ports {
		if !slices.ContainsFunc(got.Ports, func(q mcsv1beta1.ServicePort) bool {
			return q.Name == p.Name && q.Port == p.Port && q.Protocol == p.Protocol &&
				ptr.Deref(q.AppProtocol, "") == ptr.Deref(p.AppProtocol, "")
		}) && !s.named("ports: %d are too many", len(want.Ports)) {
			return fmt.Errorf("the import lacks port %+v", p)
		}
	}
	if len(got.Ports) != min(len(want.Ports), 256) {
		return fmt.Errorf("the import has %d ports of %d", len(got.Ports), len(want.Ports))
	}
	return nil
}

// part is one endpoint as a cluster shows it, with the ports of its slice.
type part struct {
	family   discoveryv1.AddressType
	endpoint discoveryv1.Endpoint
	ports    []discoveryv1.EndpointPort
}

// checkEndpoints compares the endpoints in a with those in b. How they are spread over slices does not matter.
func (s *seen) checkEndpoints() error {
	var there []part
	for _, slice := range s.imported {
		for _, e := range slice.Endpoints {
			there = append(there, part{slice.AddressType, e, slice.Ports})
		}
	}
	for i := range s.slices {
		own := &s.slices[i]
		if own.AddressType == discoveryv1.AddressTypeFQDN {
			if !s.named("EndpointSlice %s: addressType FQDN", own.Name) {
				return fmt.Errorf("slice %s of names goes without a word", own.Name)
			}
			continue
		}
		for _, e := range own.Endpoints {
			address := canonical(e.Addresses[0])
			if n := len(e.Addresses) - 1; n > 0 && !s.named("address %s: %d more", address, n) {
				return fmt.Errorf("%d more addresses of %s go without a word", n, address)
			}
			at := slices.IndexFunc(there, func(p part) bool { return s.same(part{own.AddressType, e, own.Ports}, p) })
			switch {
			case at >= 0:
				there = slices.Delete(there, at, at+1)
			case !s.refused(address):
				return fmt.Errorf("slice %s: %+v with ports %+v is neither imported nor named; left are %+v",
					own.Name, e, own.Ports, there)
			}
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("endpoints of no slice of a: %+v", there)
	}
	return nil
}

// refused returns whether the exporter says that it leaves an endpoint out, not only its zone or further addresses.
func (s *seen) refused(address string) bool {
	for what := range strings.SplitSeq(s.message, "address "+address) {
		if strings.HasPrefix(what, " ") {
			return true
		}
	}
	return strings.HasSuffix(s.message, cut)
}

// same returns whether an endpoint in b is that one in a.
func (s *seen) same(own, there part) bool {
	e, got := own.endpoint, there.endpoint
	address, zone := canonical(e.Addresses[0]), ptr.Deref(e.Zone, "")
	return own.family == there.family && len(got.Addresses) == 1 && got.Addresses[0] == address &&
		(ptr.Deref(got.Zone, "") == zone || got.Zone == nil && s.withoutZone(address, zone)) &&
		ptr.Deref(got.Hostname, "") == ptr.Deref(e.Hostname, "") &&
		meaning(got.Conditions) == meaning(e.Conditions) &&
		!slices.ContainsFunc(s.service.Spec.Ports, func(p corev1.ServicePort) bool {
			return !s.samePort(p, own, there)
		})
}

// withoutZone returns whether the exporter says that it leaves out a zone, which is no label value.
func (s *seen) withoutZone(address, zone string) bool {
	return len(validation.IsValidLabelValue(zone)) > 0 && s.named("address %s: its zone", address)
}

// meaning returns whether an endpoint is ready, serving and terminating, with the API's defaults for what is unset.
func meaning(c discoveryv1.EndpointConditions) [3]bool {
	ready := ptr.Deref(c.Ready, true)
	return [3]bool{ready, ptr.Deref(c.Serving, ready), ptr.Deref(c.Terminating, false)}
}

// samePort returns whether a port of the Service leads in b where it leads in a, or is not imported: see checkImport.
func (s *seen) samePort(p corev1.ServicePort, own, there part) bool {
	imported := func(q mcsv1beta1.ServicePort) bool { return q.Port == p.Port && q.Protocol == p.Protocol }
	if s.named("port %q: ", p.Name) || !slices.ContainsFunc(s.imp.Spec.Ports, imported) {
		return true
	}
	at := slices.IndexFunc(own.ports, func(q discoveryv1.EndpointPort) bool { return ptr.Deref(q.Name, "") == p.Name })
	if at >= 0 && ptr.Deref(own.ports[at].Protocol, "TCP") != p.Protocol {
		return true // kube-proxy finds none in a
	}
	found := slices.IndexFunc(there.ports, func(r discoveryv1.EndpointPort) bool {
		return ptr.Deref(r.Name, "") == p.Name && ptr.Deref(r.Protocol, "TCP") == p.Protocol
	})
	return (at < 0) == (found < 0) && (at < 0 || ptr.Equal(own.ports[at].Port, there.ports[found].Port))
}

// canonical returns an address as Kubernetes writes it today.
func canonical(address string) string {
	if ip := netutils.ParseIPSloppy(address); ip != nil {
		return ip.String()
	}
	return address
}

// checkAnswers compares the answers in both clusters with those of cluster.local in a.
func (s *seen) checkAnswers() error {
	base := s.service.Name + "." + namespace + ".svc."
	questions := map[string][]uint16{base: {dns.TypeA, dns.TypeAAAA, dns.TypeSRV}}
	for _, p := range s.service.Spec.Ports[:min(len(s.service.Spec.Ports), 4)] {
		if p.Name != "" && len(p.Name) < 63 {
			questions["_"+p.Name+"._"+strings.ToLower(string(p.Protocol))+"."+base] = []uint16{dns.TypeSRV}
		}
	}
	for question, types := range questions {
		for _, kind := range types {
			want, code, err := s.ask(s.dnsA, question+"cluster.local.", kind)
			if err != nil {
				return err
			}
			for _, server := range []string{s.dnsA, s.dnsB} {
				got, gotCode, err := s.ask(server, question+"clusterset.local.", kind)
				if err == nil {
					err = s.compare(kind, want, got, code, gotCode)
				}
				if err != nil {
					return fmt.Errorf("%s %s: %w", dns.TypeToString[kind], question, err)
				}
			}
		}
	}
	return nil
}

// compare returns how an answer differs from that of cluster.local. Addresses of VIPs differ, their number does not.
func (s *seen) compare(kind uint16, want, got []string, code, gotCode int) error {
	if kind == dns.TypeSRV && len(s.service.Spec.Ports) == 1 && s.service.Spec.Ports[0].Name == "" {
		want = nil // DNS N8: unnamed ports have none, also where the in-tree plugin answers some
	}
	differ := fmt.Errorf("%v %v, and cluster.local says %v %v; left out: %s", gotCode, got, code, want, s.message)
	if !s.headless() && kind != dns.TypeSRV {
		if len(got) != len(want) || code != gotCode {
			return differ
		}
		return nil
	}
	if kind == dns.TypeSRV && slices.ContainsFunc(s.slices, legacy) { // in-tree, such an endpoint is no target
		return nil
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			return differ
		}
	}
	for _, answer := range want {
		switch {
		case slices.Contains(got, answer):
		case kind == dns.TypeSRV && strings.Contains(s.message, "no effect"):
			// checkEndpoints has compared each by itself
		case kind != dns.TypeSRV && s.named("address %s ", answer):
		case kind != dns.TypeSRV && s.named("more addresses"):
		case strings.HasPrefix(answer, "CNAME ") && s.named(": addressType FQDN"):
		default:
			return differ
		}
	}
	// DNS N8: a port that no slice gives a number has no name, and in-tree one without records.
	if kind == dns.TypeSRV && len(want) == 0 && slices.ContainsFunc(s.slices, withoutNumber) {
		return nil
	}
	// Without what is left out of its slices, a name may be one without endpoints: DNS N6.
	if code != gotCode && len(want) == len(got) && !strings.Contains(s.message, "EndpointSlice ") {
		return differ
	}
	return nil
}

// legacy returns whether a slice has an address as Kubernetes no longer writes it.
func legacy(s discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool {
		return s.AddressType == discoveryv1.AddressTypeIPv4 && canonical(e.Addresses[0]) != e.Addresses[0]
	})
}

func withoutNumber(s discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Port == nil })
}

// ask returns the data of an answer, sorted: addresses, or ports with the first label of their targets.
func (s *seen) ask(server, question string, kind uint16) (out []string, code int, err error) {
	m := new(dns.Msg)
	m.SetQuestion(question, kind)
	c := dns.Client{Net: "tcp", Timeout: 10 * time.Second}
	reply, _, err := c.Exchange(m, server)
	if err != nil {
		return nil, 0, err
	}
	for _, rr := range reply.Answer {
		text := ""
		switch rr := rr.(type) {
		case *dns.A:
			text = addr(rr.A)
		case *dns.AAAA:
			text = addr(rr.AAAA)
		case *dns.CNAME:
			text = "CNAME " + rr.Target
			// In-tree, also for AAAA, of an IPv4 address as Kubernetes no longer writes it.
			if legacy := netutils.ParseIPSloppy(strings.TrimSuffix(rr.Target, ".")); legacy != nil {
				if kind != dns.TypeA {
					continue
				}
				text = legacy.String()
			}
		case *dns.SRV:
			host, _, _ := strings.Cut(strings.TrimPrefix(rr.Target, "::ffff:"), ".") // in-tree, of a mapped address
			if strings.HasPrefix(host, "-") {                                        // DNS N15
				host = "0" + host
			}
			if strings.HasSuffix(host, "-") {
				host += "0"
			}
			text = fmt.Sprint(rr.Port, " ", host)
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	slices.SortFunc(out, cmp.Compare)
	return out, reply.Rcode, nil
}

func addr(ip net.IP) string {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap().String()
}

// TestAWrongPortIsFoundAmongTooMany: only ports that the import lacks may lead anywhere.
func TestAWrongPortIsFoundAmongTooMany(t *testing.T) {
	port := func(name string, number int32) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: &name, Port: &number}
	}
	s := &seen{message: "ports: 257 are too many; the limit is 256"}
	s.imp = &mcsv1beta1.ServiceImport{}
	s.imp.Spec.Ports = []mcsv1beta1.ServicePort{{Name: "in", Protocol: "TCP", Port: 80}}
	in, out := corev1.ServicePort{Name: "in", Protocol: "TCP", Port: 80}, corev1.ServicePort{Name: "out", Port: 81}
	own := part{ports: []discoveryv1.EndpointPort{port("in", 8080), port("out", 8081)}}
	there := part{ports: []discoveryv1.EndpointPort{port("in", 9090)}}
	if s.samePort(in, own, there) || !s.samePort(out, own, there) {
		t.Error("a port of the import leads elsewhere, or one that it lacks is missed")
	}
}
