package endpoints

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/ptr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
)

// selectors are those by which proxies watch slices, read in their source: kube-proxy 1.35.6 and 1.36.3
// (cmd/kube-proxy/app/server.go), and Cilium 1.20.2 (GetEndpointSliceListOptionsModifier of pkg/k8s/utils/utils.go, as
// pkg/loadbalancer/reflectors/k8s.go calls it) without --k8s-service-proxy-name. With its Gateway API or Ingress on,
// Cilium watches slices of Headless Services, too (daemon/k8s/resources.go).
func selectors(t *testing.T) map[string]k8slabels.Selector {
	t.Helper()
	requirement := func(label string, is selection.Operator, values ...string) k8slabels.Requirement {
		r, err := k8slabels.NewRequirement(label, is, values)
		if err != nil {
			t.Fatal(err)
		}
		return *r
	}
	notHeadless := requirement("service.kubernetes.io/headless", selection.DoesNotExist)
	noProxyName := requirement("service.kubernetes.io/service-proxy-name", selection.DoesNotExist)
	notOfItsMesh := requirement(
		"endpointslice.kubernetes.io/managed-by", selection.NotEquals, "endpointslice-mesh-controller.cilium.io",
	)
	return map[string]k8slabels.Selector{
		"kube-proxy 1.35":             k8slabels.NewSelector().Add(noProxyName, notHeadless),
		"kube-proxy 1.36":             k8slabels.NewSelector().Add(notHeadless),
		"Cilium":                      k8slabels.NewSelector().Add(noProxyName, notHeadless, notOfItsMesh),
		"Cilium with its Gateway API": k8slabels.NewSelector().Add(noProxyName, notOfItsMesh),
	}
}

// written returns what the agent writes of a source: the imported slice, then its projections.
func written(src *Source, imp *Import, gateways bool) []*discoveryv1.EndpointSlice {
	s := Desired(src, imp)
	return append([]*discoveryv1.EndpointSlice{s}, Projections([]*discoveryv1.EndpointSlice{s}, imp, gateways)...)
}

// TestProxiesSelectTrafficSlices, and nothing of a source that is on standby (T2) or of a Headless import.
func TestProxiesSelectTrafficSlices(t *testing.T) {
	standby := source("a")
	standby.NoTraffic = true
	headless := merged(nil)
	headless.Type = mcsv1beta1.Headless
	for _, tt := range []struct {
		name  string
		all   []*discoveryv1.EndpointSlice
		count int
	}{
		{"ordinary", written(source("a"), imported(merged(nil)), true), 1},
		{"on standby", written(standby, imported(merged(nil)), true), 0},
		{"headless", written(source("a"), imported(headless), true), 0},
	} {
		for proxy, selector := range selectors(t) {
			var got []string
			for _, s := range tt.all {
				if selector.Matches(k8slabels.Set(s.Labels)) {
					got = append(got, s.Name)
				}
			}
			if len(got) != tt.count {
				t.Errorf("%s: %s selects %v, want %d", tt.name, proxy, got, tt.count)
			}
		}
	}
}

// TestS6EachReaderHasASliceOfItsOwn: Istio skips what has the MCS API's label, and with it what kube-proxy reads;
// Envoy Gateway takes a slice for a ServiceImport only without kubernetes.io/service-name; CoreDNS answers PTR with
// each ready endpoint, by that label.
func TestS6EachReaderHasASliceOfItsOwn(t *testing.T) {
	m := merged(map[string]string{"http": "http"}, clusterset.Port{Name: "http", Protocol: "TCP", Number: 80})
	imp, src := imported(m), source("a", "http")
	imp.Derived = "derived-isrlchlhrq"
	src.Native = []discoveryv1.Endpoint{{
		Addresses:  []string{"10.1.0.1"},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		Hostname:   new("db-0"), NodeName: new("node"), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "db-0"},
	}}
	all := written(src, imp, true)
	if len(all) != 3 {
		t.Fatalf("%d slices, want 3", len(all))
	}
	s, traffic, gateway := all[0], all[1], all[2]

	if got, want := portNames(traffic), []string{"clusterset-tcp-80"}; !slices.Equal(got, want) {
		t.Errorf("ports of the traffic slice %v, want %v", got, want)
	}
	if e := traffic.Endpoints[0]; e.TargetRef != nil || ptr.Deref(e.NodeName, "") != "node" ||
		!ready(e.Conditions.Ready) {
		t.Errorf("endpoint of the traffic slice %+v", e)
	}
	for _, l := range []string{mcsv1beta1.LabelServiceName, mcsv1beta1.LabelSourceCluster} {
		if _, found := traffic.Labels[l]; found {
			t.Errorf("the traffic slice has label %s", l)
		}
	}
	if traffic.Labels[discoveryv1.LabelServiceName] != imp.Derived {
		t.Errorf("labels of the traffic slice %v", traffic.Labels)
	}

	if got, want := portNames(gateway), []string{"http"}; !slices.Equal(got, want) {
		t.Errorf("ports of the gateway slice %v, want %v", got, want)
	}
	if _, found := gateway.Labels[discoveryv1.LabelServiceName]; found ||
		gateway.Labels[mcsv1beta1.LabelServiceName] != imp.Name {
		t.Errorf("labels of the gateway slice %v", gateway.Labels)
	}
	if c := gateway.Endpoints[0].Conditions; ready(c.Ready) || !*c.Serving || *c.Terminating {
		t.Errorf("conditions in the gateway slice %v, want serving and not ready", c)
	}

	if e := s.Endpoints[0]; e.TargetRef != nil || e.Hostname == nil || !ready(e.Conditions.Ready) {
		t.Errorf("endpoint of the imported slice %+v", e)
	}
	for _, o := range all {
		if ServiceOf(o.Name) != imp.Derived || IsProjection(o.Name) != (o != s) {
			t.Errorf("name %s: Service %q, projection %v", o.Name, ServiceOf(o.Name), IsProjection(o.Name))
		}
	}
}

// TestC9GatewaysLoseNothingThatMoves: one of two groups gets an endpoint of the other one. No endpoint of a gateway
// slice is ready, so those that serve count.
func TestC9GatewaysLoseNothingThatMoves(t *testing.T) {
	imp := imported(merged(map[string]string{"http": "http"}))
	imp.Derived = derived.Name("shop", "web")
	projections := func(groups ...[]string) (out []*discoveryv1.EndpointSlice) {
		for i, addresses := range groups {
			src := source("a", "http")
			src.Name, src.Endpoints = SourceName(i, "a"), nil
			for _, address := range addresses {
				src.Endpoints = append(src.Endpoints, hubv1alpha1.Endpoint{Address: address})
			}
			out = append(out, written(src, imp, true)[1:]...)
		}
		return out
	}
	existing := projections([]string{"10.0.0.1", "10.0.0.2"}, []string{"10.0.0.3"})
	desired := projections([]string{"10.0.0.2"}, []string{"10.0.0.3", "10.0.0.1"})
	first := Plan(desired, existing).Update
	for _, u := range first {
		if !hasAddress(u, "10.0.0.1") {
			t.Errorf("%s lost the endpoint before the other group has it", u.Name)
		}
	}
	if then := Plan(desired, first).Update; len(first) != 4 || len(then) != 2 || hasAddress(then[0], "10.0.0.1") {
		t.Errorf("%+v, then %+v", first, then)
	}
}

// TestI9LabelsOfReadersArePutRight: a label too much gives a slice to the wrong reader.
func TestI9LabelsOfReadersArePutRight(t *testing.T) {
	for _, s := range written(source("a"), imported(merged(nil)), true) {
		for _, label := range readersLabels {
			if _, found := s.Labels[label]; found {
				continue
			}
			edited := s.DeepCopy()
			edited.Labels[label] = ""
			c := Plan([]*discoveryv1.EndpointSlice{s}, []*discoveryv1.EndpointSlice{edited})
			if len(c.Update) != 1 {
				t.Fatalf("%s with label %s: changes %+v", s.Name, label, c)
			}
			if _, found := c.Update[0].Labels[label]; found {
				t.Errorf("%s: label %s stays", s.Name, label)
			}
		}
	}
}
