package clusterset

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

type exportSpec = hubv1alpha1.ServiceExportRecordSpec

func exportRecord() *hubv1alpha1.ServiceExportRecord {
	r := &hubv1alpha1.ServiceExportRecord{}
	r.Name = "web.shop.a"
	r.Spec.ClusterID, r.Spec.ServiceNamespace, r.Spec.ServiceName, r.Spec.Revision = "a", "shop", "web", 1
	r.Spec.ExportedAt = new(metav1.Unix(1_700_000_000, 0))
	r.Spec.Type = "ClusterSetIP"
	r.Spec.IPFamilies = []corev1.IPFamily{"IPv4"}
	r.Spec.Ports = []hubv1alpha1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}
	return r
}

func TestAnExportIsNormal(t *testing.T) {
	e, err := ParseExport(exportRecord())
	if err != nil {
		t.Fatal(err)
	}
	if e.SessionAffinity != corev1.ServiceAffinityNone ||
		e.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster ||
		e.SessionAffinityConfig != nil {
		t.Errorf("defaults: %+v", e)
	}
}

// TestAPeerIsNotTrusted: what the hub's schema would refuse, too, is refused here: the hub may be older, or
// another's.
func TestAPeerIsNotTrusted(t *testing.T) {
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		change func(*hubv1alpha1.ServiceExportRecordSpec)
		says   string
	}{
		"a foreign cluster's name":   {func(s *exportSpec) { s.ClusterID = "b" }, "asks for"},
		"an id that is no id":        {func(s *exportSpec) { s.ClusterID = "a.b.c" }, "cluster ID"},
		"an id with capitals":        {func(s *exportSpec) { s.ClusterID = "A" }, "cluster ID"},
		"a namespace with a slash":   {func(s *exportSpec) { s.ServiceNamespace = "../x" }, "serviceNamespace"},
		"a name too long":            {func(s *exportSpec) { s.ServiceName = long }, "serviceName"},
		"no time":                    {func(s *exportSpec) { s.ExportedAt = nil }, "exportedAt"},
		"a time that is none":        {func(s *exportSpec) { s.ExportedAt = &metav1.Time{} }, "exportedAt"},
		"an unknown type":            {func(s *exportSpec) { s.Type = "ExternalName" }, "type"},
		"port 0":                     {func(s *exportSpec) { s.Ports[0].Port = 0 }, "1..65535"},
		"port 70000":                 {func(s *exportSpec) { s.Ports[0].Port = 70000 }, "1..65535"},
		"a port's name that is none": {func(s *exportSpec) { s.Ports[0].Name = "a b" }, "port"},
		"a port twice":               {func(s *exportSpec) { s.Ports = append(s.Ports, s.Ports[0]) }, "twice"},
		"an unnamed port of two": {func(s *exportSpec) {
			s.Ports = append(s.Ports, hubv1alpha1.ServicePort{Protocol: "TCP", Port: 81})
		}, "needs a name"},
		"no family": {func(s *exportSpec) { s.IPFamilies = nil }, "ipFamilies"},
		"a family twice": {func(s *exportSpec) {
			s.IPFamilies = []corev1.IPFamily{"IPv4", "IPv4"}
		}, "ipFamilies"},
		"a label that is none": {func(s *exportSpec) {
			s.ExportedLabels = map[string]string{"k": long}
		}, "exportedLabels"},
		"an annotation too big": {func(s *exportSpec) {
			s.ExportedAnnotations = map[string]string{"k": strings.Repeat("x", 300<<10)}
		}, "exportedAnnotations"},
		"annotations too large for an import": {func(s *exportSpec) {
			s.ExportedAnnotations = map[string]string{"k": strings.Repeat("x", 128<<10)}
		}, "the limit is 131072"},
		"keys that an import bears twice": {func(s *exportSpec) {
			s.ExportedLabels, s.ExportedAnnotations = map[string]string{}, map[string]string{}
			for i := range 256 {
				k := fmt.Sprintf("%s%03d", strings.Repeat("x", 60), i)
				s.ExportedLabels[k], s.ExportedAnnotations[k] = "", strings.Repeat("x", 400)
			}
		}, "the limit is 131072"},
		"more ports than a record holds": {func(s *exportSpec) {
			s.Ports = nil
			for i := range int32(257) {
				s.Ports = append(s.Ports, hubv1alpha1.ServicePort{Name: fmt.Sprint("p", i), Protocol: "UDP",
					Port: 1000 + i})
			}
		}, "ports: 257 are too many"},
		"more labels than a record holds": {func(s *exportSpec) {
			s.ExportedLabels = map[string]string{}
			for i := range 257 {
				s.ExportedLabels[fmt.Sprint("l", i)] = ""
			}
		}, "exportedLabels: 257 are too many"},
		"an unknown tier":               {func(s *exportSpec) { s.Preference = "near" }, "preference: \"near\""},
		"too many ready":                {func(s *exportSpec) { s.MinReady = "101%" }, "minReady"},
		"an export to whoever is alike": {func(s *exportSpec) { s.ExportTo = "same:region" }, "exportTo"},
		"a property's name that is none": {func(s *exportSpec) {
			s.Properties = map[string]string{"Region": "eu"}
		}, "ClusterProperty"},
		"a long property": {func(s *exportSpec) {
			s.Properties = map[string]string{"region": strings.Repeat("x", 129)}
		}, "129 octets"},
		"many properties": {func(s *exportSpec) {
			s.Properties = map[string]string{}
			for i := range 17 {
				s.Properties[fmt.Sprint("p", i)] = ""
			}
		}, "properties: 17 are too many"},
	} {
		t.Run(name, func(t *testing.T) {
			r := exportRecord()
			c.change(&r.Spec)
			if _, err := ParseExport(r); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

// TestS4AddressesThatNoPeerMayClaim: each is left out by itself, and named.
func TestS4AddressesThatNoPeerMayClaim(t *testing.T) {
	reserved := []netip.Prefix{netip.MustParsePrefix("172.20.0.0/16")}
	for family, addresses := range map[string][]string{
		"IPv4": {"127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "172.20.3.4",
			"fd00::1", "nonsense", "0.1.2.3",
			"100.100.100.200", "168.63.129.16", "192.0.0.192"},
		"IPv6": {"::1", "fe80::1", "::", "ff02::1", "::ffff:10.0.0.1", "::127.0.0.1", "10.0.0.1", "fd00::1%eth0",
			"fd00:ec2::254",
			"fd00:ec2::23",
			"fd20:ce::254",
			"fd00:c1::a9fe:a9fe",
			"fd00:42::42",
			"64:ff9b::169.254.169.254", "64:ff9b::255.255.255.255", "64:ff9b::172.20.3.4", "64:ff9b:1::a9fe:a9fe",
			"2002:a9fe:a9fe::1", "2002:6464:64c8::1"},
	} {
		group, good := &hubv1alpha1.EndpointGroup{AddressType: "IPv4"}, "10.0.0.1"
		if family == "IPv6" {
			group.AddressType, good = "IPv6", "fd00::1"
		}
		for _, a := range append(addresses, good) {
			group.Endpoints = append(group.Endpoints, hubv1alpha1.Endpoint{Address: a})
		}
		got, refused, err := ParseGroup(group, reserved)
		if err != nil || len(got.Endpoints) != 1 || got.Endpoints[0].Address != good ||
			len(refused) != len(addresses) {
			t.Errorf("%s: %v, refused %q, %v; want %s alone", family, got.Endpoints, refused, err, good)
		}
		if len(group.Endpoints) != len(addresses)+1 {
			t.Error("the group was changed")
		}
	}
}

// TestS4ARefusedAddressSaysWhy, also if it contains another one.
func TestS4ARefusedAddressSaysWhy(t *testing.T) {
	group := &hubv1alpha1.EndpointGroup{AddressType: "IPv6"}
	group.Endpoints = []hubv1alpha1.Endpoint{{Address: "64:ff9b::169.254.169.254"}}
	_, refused, _ := ParseGroup(group, nil)
	want := "address 64:ff9b::a9fe:a9fe contains an IPv4 address: address 169.254.169.254 is a link-local address"
	if !slices.Equal(refused, []string{want}) {
		t.Errorf("%q, want %q", refused, want)
	}
}

// TestS4NonsenseInAGroup: then nothing of the group is imported, and the error names the port.
func TestS4NonsenseInAGroup(t *testing.T) {
	target, beyond := int32(8080), int32(70000)
	http := hubv1alpha1.EndpointPort{Protocol: "TCP", Port: 80, Target: &target}
	changed := func(change func(*hubv1alpha1.EndpointPort)) []hubv1alpha1.EndpointPort {
		p := http
		change(&p)
		return []hubv1alpha1.EndpointPort{p}
	}
	for what, group := range map[string]hubv1alpha1.EndpointGroup{
		"no family":  {},
		"names":      {AddressType: "FQDN"},
		"port 70000": {AddressType: "IPv4", Ports: changed(func(p *hubv1alpha1.EndpointPort) { p.Port = 70000 })},
		"no port":    {AddressType: "IPv4", Ports: changed(func(p *hubv1alpha1.EndpointPort) { p.Port = 0 })},
		"target 70000": {AddressType: "IPv4",
			Ports: changed(func(p *hubv1alpha1.EndpointPort) { p.Target = &beyond })},
		"one port twice": {AddressType: "IPv4", Ports: []hubv1alpha1.EndpointPort{http, http}},
		"bad appProtocol": {AddressType: "IPv4",
			Ports: changed(func(p *hubv1alpha1.EndpointPort) { p.AppProtocol = new("a b") })},
	} {
		_, _, err := ParseGroup(&group, nil)
		if err == nil {
			t.Errorf("%s: it is taken", what)
		} else if len(group.Ports) > 0 {
			if port := fmt.Sprintf("port %d/TCP", group.Ports[0].Port); !strings.Contains(err.Error(), port) {
				t.Errorf("%s: %v does not name %s", what, err, port)
			}
		}
	}
	good := hubv1alpha1.EndpointGroup{
		AddressType: "IPv4",
		Ports:       []hubv1alpha1.EndpointPort{http, {Protocol: "QUIC", Port: 80}},
	}
	if got, _, err := ParseGroup(&good, nil); err != nil || len(got.Ports) != 1 || len(good.Ports) != 2 {
		t.Errorf("a protocol of a later Kubernetes: %+v, %v", got, err)
	}
}

// TestS2APageIsOfWhomItSays: the hub's policy looks at its name.
func TestS2APageIsOfWhomItSays(t *testing.T) {
	page := &hubv1alpha1.EndpointPage{}
	page.Spec.ClusterID, page.Spec.ServiceNamespace, page.Spec.ServiceName, page.Spec.Number = "a", "shop", "web", 12
	for name, ok := range map[string]bool{
		"12.web.shop.a": true, "1.web.shop.a": false, "12.web.shop.b": false, "12.api.shop.a": false,
		"web.shop.a": false,
	} {
		if page.Name = name; (CheckPage(page) == nil) != ok {
			t.Errorf("%s: %v", name, CheckPage(page))
		}
	}
	page.Spec.ClusterID = "a.b.c"
	if page.Name = "12.web.shop.a.b.c"; CheckPage(page) == nil {
		t.Error("a cluster with three labels is taken")
	}
}

func TestClusterIDs(t *testing.T) {
	for id, ok := range map[string]bool{"a": true, "a.b": true, "a-b": true, "a.b.c": false, "": false, "A": false,
		"-a": false, "a.": false,
		strings.Repeat("x", 63): true, strings.Repeat("x", 40) + "." + strings.Repeat("y", 23): false} {
		if err := CheckID(id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestNamesAreUnambiguous: a-b/c and a/b-c are two Services.
func TestNamesAreUnambiguous(t *testing.T) {
	if RecordName("a-b", "c", "x") == RecordName("a", "b-c", "x") {
		t.Error("two Services have one record")
	}
}

// FuzzParse: no record, whatever it holds, panics, and what is accepted is accepted again from its own JSON.
func FuzzParse(f *testing.F) {
	seed, _ := json.Marshal(exportRecord())
	f.Add(seed)
	f.Add([]byte(`{"metadata":{"name":"0.c.b.a"},"spec":{"clusterID":"a","serviceNamespace":"b","serviceName":"c",` +
		`"addressType":"IPv4","endpoints":[{"address":"10.0.0.1"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var export hubv1alpha1.ServiceExportRecord
		if json.Unmarshal(data, &export) == nil {
			if e, err := ParseExport(&export); err == nil &&
				(CheckID(e.Cluster) != nil || len(e.Families) == 0 || e.Created.IsZero()) {
				t.Errorf("accepted: %+v", e)
			}
		}
		var page hubv1alpha1.EndpointPage
		if json.Unmarshal(data, &page) == nil {
			_ = CheckPage(&page)
			group, _, err := ParseGroup(&page.Spec.EndpointGroup, nil)
			for _, e := range group.Endpoints {
				a, bad := netip.ParseAddr(e.Address)
				if err == nil &&
					(bad != nil || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()) {
					t.Errorf("accepted: %s", e.Address)
				}
			}
		}
	})
}

// TestARecordAlwaysHasTheSameError: importers write it to a condition, and look again after each write.
func TestARecordAlwaysHasTheSameError(t *testing.T) {
	for what, change := range map[string]func(*exportSpec, map[string]string){
		"properties":          func(s *exportSpec, bad map[string]string) { s.Properties = bad },
		"exportedLabels":      func(s *exportSpec, bad map[string]string) { s.ExportedLabels = bad },
		"exportedAnnotations": func(s *exportSpec, bad map[string]string) { s.ExportedAnnotations = bad },
	} {
		bad, said := map[string]string{}, map[string]bool{}
		for i := range 16 {
			bad[fmt.Sprintf("BAD KEY %d", i)] = ""
		}
		r := exportRecord()
		change(&r.Spec, bad)
		for range 20 {
			_, err := ParseExport(r)
			said[fmt.Sprint(err)] = true
		}
		if len(said) != 1 {
			t.Errorf("%s: %d different errors", what, len(said))
		}
	}
}
