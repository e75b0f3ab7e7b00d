package kube

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// hosts are the host names of a Headless Service made of one slice.
func hosts(t *testing.T, s *discoveryv1.EndpointSlice, podNames bool) string {
	t.Helper()
	s.ResourceVersion = "7"
	o := Config{EndpointPodNames: podNames}.stripSlice(s)
	if o == nil || o.content.slice == nil {
		t.Fatalf("skipped: %+v", o)
	}
	svc := catalog.Build(
		&catalog.Import{Namespace: "test", Name: "db", Type: catalog.Headless},
		[]*catalog.Slice{o.content.slice},
	)
	if svc == nil {
		return ""
	}
	var all []string
	for label, cluster := range svc.Hosts() {
		all = append(all, label+"."+cluster)
	}
	return strings.Join(all, " ")
}

// TestN17SlicesOfKubernetesAreIgnored: they have the labels of their Service.
func TestN17SlicesOfKubernetesAreIgnored(t *testing.T) {
	s := slice("web-1", "web", "eu", "10.1.0.1")
	s.ResourceVersion, s.Labels[discoveryv1.LabelManagedBy] = "7", "endpointslice-controller.k8s.io"
	if o := (Config{}).stripSlice(s); o != nil {
		t.Errorf("it is read: %+v", o)
	}
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
		"ready": {
			"",
			discoveryv1.Endpoint{
				Addresses:  []string{"10.1.0.1"},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Terminating: ptr.To(true)},
			},
			false, "10-1-0-1.eu",
		},
		"not ready": {
			"",
			discoveryv1.Endpoint{
				Addresses:  []string{"10.1.0.1"},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true)},
			},
			false, "",
		},
		"host name": {
			"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, Hostname: ptr.To("db-0"), TargetRef: pod},
			true, "db-0.eu",
		},
		"pod name (N15)": {
			"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, TargetRef: pod}, true, "pod-7.eu",
		},
		"pod name not asked": {
			"", discoveryv1.Endpoint{Addresses: []string{"10.1.0.1"}, TargetRef: pod}, false, "10-1-0-1.eu",
		},
		"no pod": {
			"",
			discoveryv1.Endpoint{
				Addresses: []string{"10.1.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "n"},
			},
			true, "10-1-0-1.eu",
		},
		"pod name is no label": {
			"",
			discoveryv1.Endpoint{
				Addresses: []string{"10.1.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "a.b"},
			},
			true, "10-1-0-1.eu",
		},
		"IPv6": {
			discoveryv1.AddressTypeIPv6, discoveryv1.Endpoint{Addresses: []string{"2001:db8::1"}}, false,
			"2001-db8--1.eu",
		},
		"IPv4 among IPv6": {
			discoveryv1.AddressTypeIPv6,
			discoveryv1.Endpoint{Addresses: []string{"10.1.0.1", "::ffff:10.1.0.1", "fe80::1%eth0"}}, false, "",
		},
		"IPv6 among IPv4": {
			"", discoveryv1.Endpoint{Addresses: []string{"2001:db8::1", "10.1.0.1", "nonsense", "010.1.0.2"}},
			false, "10-1-0-1.eu",
		},
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

func TestWatchesAreCutIntoEvents(t *testing.T) {
	bookmark := `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`
	all := `{"type":"ADDED","object":{}}` + "\n" + `{"type":"MODIFIED","object":` + string(
		importJSON(1),
	) + `} ` + bookmark
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(all), "in octets": iotest.OneByteReader(strings.NewReader(all)),
	} {
		d := &importDecoder{json.NewDecoder(r), nil}
		kind, o, err := d.Decode() // an object without a name is passed over
		if kind != watch.Modified || err != nil || o.(*importObject).key != "service-00001.team-001" {
			t.Errorf("%s: %s %+v %v", name, kind, o, err)
		}
		if kind, o, err = d.Decode(); kind != watch.Bookmark || err != nil || o == nil {
			t.Errorf("%s: %s %+v %v", name, kind, o, err)
		}
		if _, _, err := d.Decode(); err != io.EOF {
			t.Errorf("%s: at the end %v", name, err)
		}
	}
}

func TestListsThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "{", "[]", `{"items"`, `{"items":[`, `{"items":[{}`, `{"items":[}`, `{"metadata":5`, "<html>", "5",
		`{}`, `{"error":"no upstream"}`, `{"items":[]}`,
	} {
		if _, err := decodeImports(strings.NewReader(text)); err == nil {
			t.Errorf("%q is a list", text)
		}
	}
	whole := `{"kind":"L","items":[` + string(importJSON(1)) + `,{},5],"metadata":{"resourceVersion":"7"}}`
	list, err := decodeImports(strings.NewReader(whole))
	if err != nil || len(list.Items) != 1 || list.ResourceVersion != "7" {
		t.Errorf("%+v: %v", list, err)
	}
	const empty = `{"items":null,"metadata":{"resourceVersion":"7"}}`
	if list, err := decodeImports(strings.NewReader(empty)); err != nil || len(list.Items) != 0 {
		t.Errorf("%+v: %v", list, err)
	}
}

// FuzzImports: no list and no stream fails otherwise than by an error.
func FuzzImports(f *testing.F) {
	f.Add([]byte(`{"kind":"L","metadata":{"resourceVersion":"1"},"items":[` + string(importJSON(1)) + `,{}]}`))
	f.Add([]byte(`{"type":"ADDED","object":` + string(importJSON(1)) + `}{"type":"ERROR","object":{"code":410}}`))
	f.Add(
		[]byte(
			`{"items":[{"spec":{"type":"ClusterSetIP","ips":["10.0.0.1",{},[]],` +
				`"ports":[{"port":8e1},{"port":65536,"name":"x"}]}}]}`,
		),
	)
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = decodeImports(strings.NewReader(string(raw)))
		d := &importDecoder{json.NewDecoder(strings.NewReader(string(raw))), nil}
		for events := 0; ; events++ {
			if _, _, err := d.Decode(); err != nil {
				return
			}
			if events > len(raw) {
				t.Fatalf("%q has no end", raw)
			}
		}
	})
}
