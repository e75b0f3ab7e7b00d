package serviceexport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/pages"
)

// TestC9APortThatGetsAnotherNameIsNeverCut: a Service and its slices get new names one after the other, in either
// order. No group is published without the port in between, inline or in pages.
func TestC9APortThatGetsAnotherNameIsNeverCut(t *testing.T) {
	named := func(name string, number, target int32) (corev1.ServicePort, discoveryv1.EndpointPort) {
		return corev1.ServicePort{Name: name, Protocol: "TCP", Port: number},
			discoveryv1.EndpointPort{Name: &name, Protocol: new(corev1.ProtocolTCP), Port: &target}
	}
	http, httpSlice := named("http", 80, 8080)
	web, webSlice := named("web", 80, 8080)
	unnamed, unnamedSlice := named("", 80, 8080)
	metrics, metricsSlice := named("metrics", 9090, 9090)
	for what, c := range map[string]struct {
		before, after           []corev1.ServicePort
		slicesBefore, slicesNow []discoveryv1.EndpointPort
		want                    string
	}{
		"renamed": {
			[]corev1.ServicePort{http}, []corev1.ServicePort{web},
			[]discoveryv1.EndpointPort{httpSlice}, []discoveryv1.EndpointPort{webSlice}, "80:8080",
		},
		"a second one": {
			[]corev1.ServicePort{unnamed}, []corev1.ServicePort{http, metrics},
			[]discoveryv1.EndpointPort{unnamedSlice}, []discoveryv1.EndpointPort{httpSlice, metricsSlice},
			"80:8080 9090:9090",
		},
		"the second one goes": {
			[]corev1.ServicePort{http, metrics}, []corev1.ServicePort{unnamed},
			[]discoveryv1.EndpointPort{httpSlice, metricsSlice}, []discoveryv1.EndpointPort{unnamedSlice}, "80:8080",
		},
	} {
		for _, serviceFirst := range []bool{true, false} {
			for _, limits := range []pages.Limits{pages.OfHub, {Endpoints: 1, Groups: 1}} {
				at := fmt.Sprintf("%s, Service first %v, %d endpoints a group", what, serviceFirst, limits.Endpoints)
				s := slice("web-1", 1, 2)
				s.Ports = c.slicesBefore
				m := newMember(t, nil, export(), svc(func(s *corev1.Service) { s.Spec.Ports = c.before }), s)
				m.restart(limits)
				m.refuse = func(verb string, o client.Object) error {
					groups := []hubv1alpha1.EndpointGroup{}
					switch o := o.(type) {
					case *hubv1alpha1.EndpointPage:
						groups = append(groups, o.Spec.EndpointGroup)
					case *hubv1alpha1.ServiceExportRecord:
						groups = o.Spec.Endpoints
					}
					for _, g := range groups {
						if verb != "delete" && len(g.Endpoints) > 0 && !strings.Contains(portsText(&g), "80:8080") {
							t.Errorf("%s: %s %s has ports %s", at, verb, o.GetName(), portsText(&g))
						}
					}
					return nil
				}
				m.settle(3)
				service := func() { edit(m, svc(nil), func(s *corev1.Service) { s.Spec.Ports = c.after }) }
				slices := func() {
					edit(m, slice("web-1"), func(s *discoveryv1.EndpointSlice) { s.Ports = c.slicesNow })
				}
				steps := []func(){service, slices}
				if !serviceFirst {
					steps = []func(){slices, service}
				}
				for _, step := range steps {
					m.now = m.now.Add(time.Minute)
					step()
					m.settle(3)
				}
				shown := m.record().Spec.Endpoints
				if limits.Endpoints == 1 {
					for _, name := range []string{"0.web.shop.east", "1.web.shop.east"} {
						shown = append(
							shown,
							find[*hubv1alpha1.EndpointPage](m, m.hub, "prod", name).Spec.EndpointGroup,
						)
					}
				}
				for i := range shown {
					if got := portsText(&shown[i]); got != c.want {
						t.Errorf("%s: in the end the ports are %s, want %s", at, got, c.want)
					}
				}
			}
		}
	}
}

// portsText writes the ports of a group as number:target.
func portsText(g *hubv1alpha1.EndpointGroup) string {
	var out []string
	for _, p := range g.Ports {
		out = append(out, fmt.Sprintf("%d:%d", p.Port, *p.Target))
	}
	return strings.Join(out, " ")
}
