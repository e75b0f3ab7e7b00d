package clusterset

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// many returns 20 addresses or host names.
func many(format string) (out []string) {
	for i := range 20 {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

// TestF5S4WhatIsKeptOfALoadBalancer: what is valid, whatever stands beside it.
func TestF5S4WhatIsKeptOfALoadBalancer(t *testing.T) {
	reserved := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	for _, c := range []struct {
		name       string
		in         hubv1alpha1.ExternalAddresses
		properties map[string]string
		want       External
		leftOut    []string // what each error holds
	}{
		{"both families, sorted, once",
			hubv1alpha1.ExternalAddresses{IPs: []string{"2001:DB8::1", "192.0.2.2", "192.0.2.1", "192.0.2.2"}}, nil,
			External{ExternalAddresses: hubv1alpha1.ExternalAddresses{
				IPs: []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"},
			}}, nil},
		{"addresses that nobody may claim",
			hubv1alpha1.ExternalAddresses{IPs: []string{
				"127.0.0.1", "::1", "169.254.169.254", "::ffff:192.0.2.1", "203.0.113.7", "1.2.3", "192.0.2.1",
			}}, nil,
			External{ExternalAddresses: hubv1alpha1.ExternalAddresses{IPs: []string{"192.0.2.1"}}},
			[]string{"127.0.0.1", "::1", "169.254.169.254", "192.0.2.1", "203.0.113.7", "1.2.3"}},
		{"host names",
			hubv1alpha1.ExternalAddresses{Hostnames: []string{
				"LB.Example.COM.", "a.example", "localhost", "10.0.0.1", "a_b.example", "*.example.com",
				"b.example..", "",
			}}, nil,
			External{ExternalAddresses: hubv1alpha1.ExternalAddresses{
				Hostnames: []string{"a.example", "lb.example.com"},
			}},
			[]string{"localhost", "10.0.0.1", "a_b.example", "*.example.com", "b.example..", `""`}},
		{"too many",
			hubv1alpha1.ExternalAddresses{IPs: many("192.0.2.1%02d"), Hostnames: many("h%02d.example")}, nil,
			External{ExternalAddresses: hubv1alpha1.ExternalAddresses{
				IPs: many("192.0.2.1%02d")[:16], Hostnames: many("h%02d.example")[:16],
			}},
			[]string{"4 of 20 addresses", "4 of 20 addresses"}},
		{"weights", hubv1alpha1.ExternalAddresses{Weight: new(int32(0))}, nil,
			External{ExternalAddresses: hubv1alpha1.ExternalAddresses{Weight: new(int32(0))}}, nil},
		{"more than the largest weight", hubv1alpha1.ExternalAddresses{Weight: new(int32(2000))}, nil,
			External{}, nil},
		{"a place", hubv1alpha1.ExternalAddresses{},
			map[string]string{"region": "EU-1", "continent": "eu", "location": " 50.10, -8.7"},
			External{Region: "eu-1", Continent: "EU", Location: "50.1,-8.7"}, nil},
		{"no place", hubv1alpha1.ExternalAddresses{},
			map[string]string{"region": "eu.west", "continent": "XX", "location": "91,0"},
			External{}, nil},
		{"not a number", hubv1alpha1.ExternalAddresses{}, map[string]string{"location": "NaN,0"},
			External{}, nil},
		{"one number", hubv1alpha1.ExternalAddresses{}, map[string]string{"location": "1"},
			External{}, nil},
		{"three numbers", hubv1alpha1.ExternalAddresses{}, map[string]string{"location": "1,2,3"},
			External{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, leftOut := ParseExternal(
				&hubv1alpha1.ServiceExportRecordSpec{External: &c.in, Properties: c.properties}, reserved)
			if c.want.Weight == nil {
				c.want.Weight = new(int32(100))
			}
			if !slices.Equal(got.IPs, c.want.IPs) || !slices.Equal(got.Hostnames, c.want.Hostnames) ||
				*got.Weight != *c.want.Weight || got.Region != c.want.Region || got.Continent != c.want.Continent ||
				got.Location != c.want.Location {
				t.Errorf("%+v, weight %d, want %+v", got, *got.Weight, c.want)
			}
			if !slices.EqualFunc(leftOut, c.leftOut, func(err error, part string) bool {
				return strings.Contains(err.Error(), part)
			}) {
				t.Errorf("left out: %v, want %v", leftOut, c.leftOut)
			}
		})
	}
	if got, _ := ParseExternal(&hubv1alpha1.ServiceExportRecordSpec{}, nil); got != nil {
		t.Errorf("a record without a load balancer has %+v", got)
	}
}

// TestF5WhatALoadBalancerPublishes, and what the user reads of the rest.
func TestF5WhatALoadBalancerPublishes(t *testing.T) {
	ingress := []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {Hostname: "lb.example.com"}, {IP: "127.0.0.1"}}
	for _, c := range []struct {
		name             string
		external, weight string
		kind             corev1.ServiceType
		ingress          []corev1.LoadBalancerIngress
		want             string
		leftOut          string // all of its words
	}{
		{"not asked for", "", "5", corev1.ServiceTypeLoadBalancer, ingress, "", ""},
		{"declined", "false", "", corev1.ServiceTypeLoadBalancer, ingress, "", ""},
		{"misspelled", "yes", "", corev1.ServiceTypeLoadBalancer, ingress, "", `external: "yes"`},
		{"another type", "true", "", corev1.ServiceTypeNodePort, ingress, "", "NodePort LoadBalancer"},
		{"no address yet", "true", "", corev1.ServiceTypeLoadBalancer, nil, "", "no address yet"},
		{"no valid address", "true", "", corev1.ServiceTypeLoadBalancer, ingress[2:], "", "127.0.0.1 no address yet"},
		{"one that is left out", "true", "", corev1.ServiceTypeLoadBalancer, ingress,
			"[192.0.2.1] [lb.example.com] 100", "127.0.0.1"},
		{"a place that is none", "true", "", corev1.ServiceTypeLoadBalancer, ingress[:1], "[192.0.2.1] [] 100",
			"ClusterProperty location: north"},
		{"a weight", "true", "0", corev1.ServiceTypeLoadBalancer, ingress[:1], "[192.0.2.1] [] 0", ""},
		{"a wrong weight", "true", "1001", corev1.ServiceTypeLoadBalancer, ingress[:1], "[192.0.2.1] [] 100",
			`external-weight: "1001"`},
		{"no weight", "true", "much", corev1.ServiceTypeLoadBalancer, ingress[:1], "[192.0.2.1] [] 100",
			`external-weight: "much"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			export, svc := &mcsv1beta1.ServiceExport{}, &corev1.Service{}
			export.Annotations = map[string]string{AnnotationExternal: c.external, AnnotationExternalWeight: c.weight}
			svc.Spec.Type, svc.Status.LoadBalancer.Ingress = c.kind, c.ingress
			own := Place{Cluster: "a", Properties: map[string]string{"zone": "z"}}
			for i := range 20 {
				own.Properties[fmt.Sprintf("a%02d", i)] = "x"
			}
			own.Properties["region"] = "eu"
			if c.name == "a place that is none" {
				own.Properties["location"] = "north"
			}
			spec, leftOut := RecordOf(own, &hubv1alpha1.ServiceExportRecordSpec{}, export, svc)
			got := ""
			if spec.External != nil {
				got = fmt.Sprint(spec.External.IPs, spec.External.Hostnames, *spec.External.Weight)
			}
			if _, states := spec.Properties["region"]; got != c.want || states != (c.want != "") ||
				len(spec.Properties) != 16 {
				t.Errorf("publishes %q with %v, want %q", got, spec.Properties, c.want)
			}
			text := fmt.Sprint(errors.Join(leftOut...))
			for _, word := range strings.Fields(c.leftOut) {
				if !strings.Contains(text, word) {
					t.Errorf("left out: %s, want %s", text, c.leftOut)
				}
			}
			if c.leftOut == "" && len(leftOut) > 0 {
				t.Errorf("left out: %s", text)
			}
		})
	}
}
