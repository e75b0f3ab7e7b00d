package grants

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: shop, Name: name} }

func service(name string, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name},
		Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Name: "tcp", Port: port, Protocol: corev1.ProtocolTCP}},
		},
	}
}

func export(name string) *mcsv1beta1.ServiceExport {
	return &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}}
}

func slice(svc *corev1.Service, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop,
			Name:      svc.Name + "-1",
			Labels:    map[string]string{discoveryv1.LabelServiceName: svc.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &svc.Spec.Ports[0].Name, Port: &svc.Spec.Ports[0].Port}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func (m *member) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := m.Create(t.Context(), o); err != nil {
			t.Fatalf("%s: %T %s: %v", m.ID, o, o.GetName(), err)
		}
	}
}

func (m *member) remove(t *testing.T, o client.Object) {
	t.Helper()
	if err := m.Delete(t.Context(), o); err != nil {
		t.Fatalf("%s: %T %s: %v", m.ID, o, o.GetName(), err)
	}
}

// exported makes a Service with one slice and exports it.
func (m *member) exported(t *testing.T, svc *corev1.Service, address string) {
	t.Helper()
	m.create(t, svc, slice(svc, address), export(svc.Name))
}

// change reads an object and writes what f makes of it, until nobody has written in between.
func change[T client.Object](t *testing.T, m *member, o T, f func(T)) {
	t.Helper()
	until(t, fmt.Sprintf("%s: write of %T %s", m.ID, o, o.GetName()), func() error {
		if err := m.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		f(o)
		return m.Update(t.Context(), o)
	})
}

// imports waits until the import has these exporters.
func (m *member) imports(t *testing.T, name string, clusters ...string) *mcsv1beta1.ServiceImport {
	t.Helper()
	imp := &mcsv1beta1.ServiceImport{}
	until(t, m.ID+": ServiceImport "+name, func() error {
		if err := m.Get(t.Context(), key(name), imp); err != nil {
			return err
		}
		var got []string
		for _, c := range imp.Status.Clusters {
			got = append(got, c.Cluster)
		}
		if !slices.Equal(got, clusters) {
			return fmt.Errorf("exporters %v, want %v", got, clusters)
		}
		return nil
	})
	return imp
}

// slices are those imported for web.
func (m *member) slices(t *testing.T) []discoveryv1.EndpointSlice {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	must(
		t,
		m.List(
			t.Context(),
			&list,
			client.InNamespace(shop),
			client.MatchingLabels{mcsv1beta1.LabelServiceName: "web"},
		),
	)
	return list.Items
}

// endpoints waits until those of web are these, each as cluster/address.
func (m *member) endpoints(t *testing.T, want ...string) {
	t.Helper()
	until(t, m.ID+": endpoints of web", func() error {
		var got []string
		for _, s := range m.slices(t) {
			for _, e := range s.Endpoints {
				got = append(got, s.Labels[mcsv1beta1.LabelSourceCluster]+"/"+e.Addresses[0])
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %s", got, strings.Join(want, " "))
		}
		return nil
	})
}
