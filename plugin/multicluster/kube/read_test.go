package kube

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"unsafe"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	kjson "sigs.k8s.io/json"
)

func ptr[T any](v T) *T { return &v }

// hosts are the host names of a Headless Service made of one slice.
func hosts(t *testing.T, s *discoveryv1.EndpointSlice, podNames bool) string {
	t.Helper()
	s.ResourceVersion = "7"
	o, err := (&sliceReader{store: newStore(false), podNames: podNames}).read(marshal(s))
	if err != nil || o.slice == nil {
		t.Fatalf("%v: skipped %s", err, o.skipped)
	}
	svc := catalog.Build(&catalog.Import{Namespace: "test", Name: "db", Type: catalog.Headless}, []*catalog.Slice{o.slice})
	if svc == nil {
		return ""
	}
	var all []string
	for label, cluster := range svc.Hosts() {
		all = append(all, label+"."+cluster)
	}
	return strings.Join(all, " ")
}

func TestReadsEndpoints(t *testing.T) {
	pod := &corev1.ObjectReference{Kind: "Pod", Name: "Pod-7"}
	for name, c := range map[string]struct {
		kind     discoveryv1.AddressType
		ep       discoveryv1.Endpoint
		podNames bool
		want     string
	}{
		"ready is absent (N16)": {"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}}, false, "10-1-0-1.eu"},
		"ready":                 {"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true), Terminating: ptr(true)}}, false, "10-1-0-1.eu"},
		"not ready":             {"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(true)}}, false, ""},
		"host name":             {"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, Hostname: ptr("db-0"), TargetRef: pod}, true, "db-0.eu"},
		"pod name (N15)":        {"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, TargetRef: pod}, true, "pod-7.eu"},
		"pod name not asked":    {"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, TargetRef: pod}, false, "10-1-0-1.eu"},
		"no pod":                {"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "n"}}, true, "10-1-0-1.eu"},
		"pod name is no label":  {"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "a.b"}}, true, "10-1-0-1.eu"},
		"IPv6":                  {discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"2001:db8::1"}}, false, "2001-db8--1.eu"},
		"IPv4 among IPv6":       {discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"10.1.0.1", "::ffff:10.1.0.1", "fe80::1%eth0"}}, false, ""},
		"IPv6 among IPv4":       {"", discoveryv1.Endpoint{Addresses: []string{"2001:db8::1", "10.1.0.1", "nonsense", "010.1.0.2"}}, false, "10-1-0-1.eu"},
	} {
		s := slice("s", "db", "EU")
		if c.kind != "" {
			s.AddressType = c.kind
		}
		s.Endpoints = []discoveryv1.Endpoint{c.ep}
		if got := hosts(t, s, c.podNames); got != c.want {
			t.Errorf("%s: host names %q, want %q", name, got, c.want)
		}
	}
}

func TestAddress4IsWhatNetipReads(t *testing.T) {
	for _, text := range []string{"10.1.0.1", "0.0.0.0", "255.255.255.255", "256.1.1.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1..2.3", "", ".", "1.2.3.4.", "1.2.3.1111", "1.2.3.x", "1.2.3.-1"} {
		want, err := netip.ParseAddr(text)
		if got, ok := address4([]byte(text)); ok != (err == nil) || got != want {
			t.Errorf("%q is %v %v, want %v", text, got, ok, err == nil)
		}
	}
}

// TestRecordsDoNotPinTheirSource: what is read from is used again for the next object.
func TestRecordsDoNotPinTheirSource(t *testing.T) {
	s := newStore(false)
	raw := importJSON(3)
	imp := (&importReader{store: s}).read(raw)
	m := marshal(largeSlice(1, 3))
	sl, err := (&sliceReader{store: s}).read(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{raw, m} {
		for i := range b {
			b[i] = 'X'
		}
	}
	if imp.key != "service-00003.team-003" || unsafe.StringData(imp.service.Key()) != unsafe.StringData(imp.key) {
		t.Errorf("the import became %q, or has its key twice", imp.key)
	}
	for port := range imp.service.NamedPorts() {
		if port != "https" {
			t.Errorf("the port became %q", port)
		}
	}
	if sl.key != "test/imported-db-000-00001" || sl.service != "db-000.test" || sl.slice.Cluster() != "cluster-1" {
		t.Errorf("the slice became %+v", sl)
	}
}

func TestWatchesAreCutIntoEvents(t *testing.T) {
	events := []string{`{"type":"ADDED","object":{"a":"}\"{\\"}}`, `{"type":"MODIFIED", "object" : {"b":[1,{"c":"]"}]} }`, `{"object":{},"type":"DELETED"}`}
	all := strings.Join([]string{events[0], "\n", events[1], events[2], "  \n"}, "")
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(all), "in octets": iotest.OneByteReader(strings.NewReader(all))} {
		f := jsonFormat{newJSONSource(r)}
		want := []string{"ADDED" + `{"a":"}\"{\\"}`, "MODIFIED" + `{"b":[1,{"c":"]"}]}`, "DELETED{}"}
		for _, w := range want {
			kind, object, err := f.event()
			if got := string(kind) + string(object); got != w || err != nil {
				t.Errorf("%s: %s %v, want %s", name, got, err, w)
			}
		}
		if _, _, err := f.event(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end %v", name, err)
		}
	}
	if _, _, err := (jsonFormat{newJSONSource(strings.NewReader(events[0][:20]))}).event(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that ends within an event: %v", err)
	}
	o := encodeProto(slice("s", "db", "eu", "10.1.0.1"))
	b := frame("ADDED", o, false)
	f := protoFormat{newProtoSource(bytes.NewReader(append(b, b[:len(b)-1]...)))}
	if kind, _, err := f.event(); kind != "ADDED" || err != nil {
		t.Errorf("%s %v", kind, err)
	}
	if _, _, err := f.event(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a stream that ends within a frame: %v", err)
	}
}

func TestObjectsWithoutNameArePassedOver(t *testing.T) {
	all := `{"type":"ADDED","object":{}}{"type":"ADDED","object":` + string(importJSON(1)) + `}{"type":"ODD","object":{}}`
	r := Config{}.imports(newStore(false), "", "", nil)
	d := &decoder{format: r.format(strings.NewReader(all)), read: r.reader()}
	if _, o, err := d.Decode(); o == nil || err != nil || o.(*importObject).key != "service-00001.team-001" {
		t.Errorf("%+v %v", o, err)
	}
	if kind, o, err := d.Decode(); kind != watch.Error || err != nil || !apierrors.IsResourceExpired(apierrors.FromObject(o)) {
		t.Errorf("an event of an unknown kind: %s %v %v", kind, o, err)
	}
}

// TestLargeObjectsPass: objects longer than the first buffer, up to the limit of an API server's.
func TestLargeObjectsPass(t *testing.T) {
	large := `{"type":"ADDED","object":{"x":"` + strings.Repeat("y", 3<<20) + `"}}`
	s := newJSONSource(strings.NewReader(large + large + `{}`))
	for range 2 {
		if v, err := s.value(); len(v) != len(large) || err != nil {
			t.Fatalf("%d octets: %v", len(v), err)
		}
	}
	if v, err := s.value(); string(v) != "{}" || err != nil {
		t.Errorf("%s %v", v, err)
	}
	endless := io.MultiReader(strings.NewReader(`{"x":"`), bufio.NewReader(zeros{}))
	if _, err := newJSONSource(endless).value(); !errors.Is(err, errFrame) {
		t.Errorf("an endless value: %v", err)
	}
	head := binary.BigEndian.AppendUint32(nil, maxFrame+1)
	if _, err := newProtoSource(bytes.NewReader(head)).frame(); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame beyond the limit: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestListsThatAreNone(t *testing.T) {
	none := func([]byte) error { return nil }
	for _, text := range []string{"", "{", "[]", `{"items"`, `{"items":[`, `{"items":[{}`, `{"items":[}`, `{"metadata":5`, "<html>"} {
		if err := (jsonFormat{newJSONSource(strings.NewReader(text))}).list(new(metav1.ListMeta), none); err == nil {
			t.Errorf("%q is a list", text)
		}
	}
	whole := encodeProto(&discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []discoveryv1.EndpointSlice{*slice("s", "db", "eu")}})
	const trailer = 4 // two empty fields of the envelope, which say nothing of the list
	for n := range len(whole) - trailer {
		if err := newProtoSource(bytes.NewReader(whole[:n])).list(none, none); err == nil {
			t.Errorf("the first %d of %d octets are a list", n, len(whole))
		}
	}
	meta, items := new(metav1.ListMeta), 0
	err := newProtoSource(bytes.NewReader(whole)).list(meta.Unmarshal, func([]byte) error { items++; return nil })
	if err != nil || items != 1 || meta.ResourceVersion != "7" {
		t.Errorf("%d items of version %s: %v", items, meta.ResourceVersion, err)
	}
}

// slim is what importReader reads, for a decoder that is known to be right.
type slim struct {
	Metadata struct {
		Name            string `json:"name"`
		Namespace       string `json:"namespace"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Type  string   `json:"type"`
		IPs   []string `json:"ips"`
		Ports []struct {
			Name     string `json:"name"`
			Protocol string `json:"protocol"`
			Port     uint16 `json:"port"`
		} `json:"ports"`
	} `json:"spec"`
}

// record is the import that the slim struct makes.
func (s *slim) record() *catalog.Service {
	imp := catalog.Import{Namespace: s.Metadata.Namespace, Name: s.Metadata.Name, Type: kindOf([]byte(s.Spec.Type))}
	for _, text := range s.Spec.IPs {
		if ip, ok := address([]byte(text)); ok {
			imp.IPs = append(imp.IPs, ip)
		}
	}
	for _, p := range s.Spec.Ports {
		imp.Ports = append(imp.Ports, catalog.Port{Name: p.Name, Proto: p.Protocol, Number: p.Port})
	}
	if imp.Type != catalog.ClusterSetIP {
		return nil
	}
	return catalog.Build(&imp, nil)
}

// FuzzImport: of valid JSON the reader makes what a full decoder makes, and nothing makes it fail.
func FuzzImport(f *testing.F) {
	f.Add(importJSON(1))
	f.Add([]byte(`{"metadata":{"name":"a\u0062","namespace":"t","resourceVersion":"1"},"spec":{"type":"Headless","ips":null,"ports":[{}]}}`))
	f.Add([]byte(`{"spec":{"type":"ClusterSetIP","ips":["10.0.0.1",{},[]],"ports":[{"port":8e1},{"port":65536,"name":"x"}]},"metadata":{"name":"a","namespace":"t","resourceVersion":"18"}}`))
	f.Add([]byte("{\"metadata\":{\"name\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := newStore(false)
		r := importReader{store: s}
		r.read(raw)
		var any any
		if kjson.UnmarshalCaseSensitivePreserveInts(raw, &any) != nil {
			return
		}
		once, err := json.Marshal(any) // without repeated names, whose meaning is undefined (RFC 8259 §4)
		if err != nil {
			return
		}
		var want slim
		// A value of another type is left out, and the rest is read.
		_ = kjson.UnmarshalCaseSensitivePreserveInts(once, &want)
		got := r.read(once)
		md := want.Metadata
		if md.Name == "" || md.Namespace == "" || parseUint([]byte(md.ResourceVersion), 64) == 0 {
			if got != nil {
				t.Fatalf("%s has no name, and is read as %+v", once, got)
			}
			return
		}
		if got == nil || got.kind != kindOf([]byte(want.Spec.Type)) || got.key != md.Name+"."+md.Namespace {
			t.Fatalf("%s is read as %+v", once, got)
		}
		if service := want.record(); !service.Same(got.service) {
			t.Fatalf("%s: read %+v, want %+v", once, got.service, service)
		}
	})
}

// FuzzSlice: what the generated decoder takes, ours takes, and makes the same of it.
func FuzzSlice(f *testing.F) {
	f.Add(marshal(largeSlice(1, 2)))
	s := slice("s", "db", "eu", "10.1.0.1", "2001:db8::1")
	s.ResourceVersion = "9"
	s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "p"}
	s.Endpoints[0].Zone, s.Endpoints[1].Conditions.Ready = ptr("Z"), ptr(false)
	f.Add(marshal(s))
	f.Add(append(marshal(s), 9<<3|wireStart, 1<<3 /* of wireVarint */, 1, 9<<3|wireEnd)) // an unknown group
	f.Add(append(marshal(s), 9<<3|wire64, 1, 2, 3, 4, 5, 6, 7, 8, 9<<3|wire32, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var want discoveryv1.EndpointSlice
		r := sliceReader{store: newStore(false), podNames: true}
		r.store.topology.Zonal = true
		got, err := r.read(raw)
		if want.Unmarshal(raw) != nil {
			return
		}
		if err != nil {
			t.Fatalf("%x: %v", raw, err)
		}
		version := parseUint([]byte(want.ResourceVersion), 64)
		if want.Name == "" || want.Namespace == "" || version == 0 {
			if got != nil {
				t.Fatalf("%x has no name, and is read as %+v", raw, got)
			}
			return
		}
		sameSlice(t, got, &want, version)
	})
}

// sameSlice compares with what the typed object means.
func sameSlice(t *testing.T, got *sliceObject, want *discoveryv1.EndpointSlice, version uint64) {
	t.Helper()
	if got == nil || got.version != version || got.service != want.Labels[labelServiceName]+"."+want.Namespace || got.key != want.Namespace+"/"+want.Name {
		t.Fatalf("read %+v, want %+v", got, want)
	}
	cluster := strings.ToLower(want.Labels[labelSourceCluster])
	typed := want.AddressType == discoveryv1.AddressTypeIPv4 || want.AddressType == discoveryv1.AddressTypeIPv6
	if got.slice == nil {
		if typed && catalog.IsClusterID(cluster) {
			t.Fatalf("skipped for %s: %+v", got.skipped, want)
		}
		return
	}
	var ports []catalog.Port
	for _, p := range want.Ports {
		number := ptr(int32(0))
		if p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 {
			number = p.Port
		}
		name, proto := p.Name, (*string)(p.Protocol)
		if name == nil {
			name = ptr("")
		}
		if proto == nil {
			proto = ptr("")
		}
		ports = append(ports, catalog.Port{Name: *name, Proto: *proto, Number: uint16(*number)})
	}
	slice := catalog.NewSlice(want.Name, cluster, ports, typedEndpoints(want))
	imp := &catalog.Import{Namespace: "n", Name: "s", Type: catalog.Headless}
	zonal := catalog.Topology{Zonal: true}
	if a, b := catalog.Rebuild(nil, imp, []*catalog.Slice{slice}, zonal), catalog.Rebuild(nil, imp, []*catalog.Slice{got.slice}, zonal); !a.Same(b) {
		t.Fatalf("read %+v, want %+v of %+v", b, a, want)
	}
}

func typedEndpoints(s *discoveryv1.EndpointSlice) (all []catalog.Endpoint) {
	for _, e := range s.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		host, zone := "", ""
		if e.Zone != nil {
			zone = strings.ToLower(*e.Zone)
		}
		switch ref := e.TargetRef; {
		case e.Hostname != nil && *e.Hostname != "":
			host = *e.Hostname
		case ref != nil && ref.Kind == "Pod" && catalog.IsLabel(strings.ToLower(ref.Name)):
			host = ref.Name
		}
		for _, text := range e.Addresses {
			addr, err := netip.ParseAddr(text)
			if err == nil && addr.Zone() == "" && !addr.Is4In6() && addr.Is4() == (s.AddressType == discoveryv1.AddressTypeIPv4) {
				all = append(all, catalog.Endpoint{Addr: addr, Host: host, Zone: zone})
			}
		}
	}
	return all
}

// FuzzStream: no stream makes the cutters fail otherwise than by an error.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{}} {"kind":"L","metadata":{"resourceVersion":"1"},"items":[{},{}]}`))
	f.Add(frame("ADDED", encodeProto(slice("s", "db", "eu")), false))
	f.Add(encodeProto(&discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{*slice("s", "db", "eu")}}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, open := range []func(io.Reader) format{
			func(r io.Reader) format { return jsonFormat{newJSONSource(r)} },
			func(r io.Reader) format { return protoFormat{newProtoSource(r)} },
		} {
			meta := new(metav1.ListMeta)
			_ = open(bytes.NewReader(raw)).list(meta, func([]byte) error { return nil })
			stream := open(bytes.NewReader(raw))
			for events := 0; ; events++ {
				_, object, err := stream.event()
				if err != nil {
					break
				}
				if events > len(raw) {
					t.Fatalf("%q has no end", raw)
				}
				_, _ = stream.bookmark(object)
				_, _ = stream.status(object)
			}
		}
	})
}
