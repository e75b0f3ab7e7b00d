package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// managed is what server-side apply adds to an object, about half of what is sent.
func managed(o object) {
	o.SetManagedFields([]metav1.ManagedFieldsEntry{
		{
			Manager:    "clusterset-controller",
			Operation:  "Apply",
			FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(
				`{"f:metadata":{"f:annotations":{"f:multicluster.kubernetes.io/derived-service":{}}},` +
					`"f:spec":{"f:ips":{},"f:ports":{},"f:type":{}}}`,
			),
		},
	})
	o.SetUID("8a1f8f9e-1e5d-4b0e-9d4f-6f0c1f3a7c11")
}

func importJSON(i int) []byte {
	o := in(
		clusterSetIP(fmt.Sprintf("service-%05d", i), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)),
		fmt.Sprintf("team-%03d", i%500),
	)
	o.ResourceVersion = fmt.Sprint(1000 + i)
	managed(o)
	o.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "eu-west"}, {Cluster: "us-east"}}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return b
}

// largeSlice has n endpoints with host names, as of a StatefulSet.
func largeSlice(i, n int) *discoveryv1.EndpointSlice {
	s := slice(
		fmt.Sprintf("imported-db-%03d-%05d", i/10, i),
		fmt.Sprintf("db-%03d", i/10),
		fmt.Sprintf("cluster-%d", i%10),
	)
	s.ResourceVersion = fmt.Sprint(1000 + i)
	managed(s)
	yes, no := true, false
	zones := []string{"eu-west-1a", "eu-west-1b", "eu-west-1c"}
	for e := range n {
		host := fmt.Sprintf("db-%d-%d", i, e)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, e)}, Hostname: &host, Zone: &zones[e%3],
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	}
	return s
}

func marshal(s *discoveryv1.EndpointSlice) []byte {
	b, err := s.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

// readImport reads the JSON of one ServiceImport, as a watch does.
func readImport(raw []byte) *importObject {
	var o serviceImport
	if err := json.Unmarshal(raw, &o); err != nil {
		panic(err)
	}
	return stripImport(&o)
}

// readSlice reads the protobuf of one EndpointSlice, as a watch does.
func readSlice(c Config, raw []byte) *sliceObject {
	var o discoveryv1.EndpointSlice
	if err := o.Unmarshal(raw); err != nil {
		panic(err)
	}
	return c.stripSlice(&o)
}

func BenchmarkImportDecode(b *testing.B) {
	raw := importJSON(7)
	b.Run("small struct", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			readImport(raw)
		}
	})
	b.Run("typed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var o mcsv1beta1.ServiceImport
			if err := json.Unmarshal(raw, &o); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSliceDecode100(b *testing.B) {
	raw := marshal(largeSlice(1, 100))
	b.ReportAllocs()
	for b.Loop() {
		readSlice(Config{}, raw)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const manyImports = 50_000

// fillImports lists imports into a store that has an empty list of slices.
func fillImports(s *store, raw [][]byte) {
	imports, slices := s.importFeed(), s.sliceFeed()
	replace(slices, nil, "1")
	body := append([]byte(`{"metadata":{"resourceVersion":"60000"},"items":[`), bytes.Join(raw, []byte{','})...)
	list, err := decodeImports(bytes.NewReader(append(body, "]}"...)))
	if err != nil {
		panic(err)
	}
	objects := make([]any, len(list.Items))
	for i, o := range list.Items {
		objects[i] = o
	}
	replace(imports, objects, "60000")
}

func manyImportsJSON() (raw [][]byte) {
	for i := range manyImports {
		raw = append(raw, importJSON(i))
	}
	return raw
}

func BenchmarkImportHeap50k(b *testing.B) {
	raw := manyImportsJSON()
	for b.Loop() {
		before := heap()
		s := newStore(false)
		fillImports(s, raw)
		b.ReportMetric(float64(heap()-before)/manyImports, "B/import")
		runtime.KeepAlive(s)
	}
	runtime.KeepAlive(raw)
}

func BenchmarkEndpointHeap100k(b *testing.B) {
	var raw [][]byte
	for i := range 1000 {
		raw = append(raw, marshal(largeSlice(i, 100)))
	}
	for b.Loop() {
		before := heap()
		s := fillEndpoints(b, raw, catalog.Topology{})
		b.ReportMetric(float64(heap()-before)/100_000, "B/endpoint")
		runtime.KeepAlive(s)
	}
	runtime.KeepAlive(raw)
}

// fillEndpoints is a store with these slices, ten to a Headless Service.
func fillEndpoints(t testing.TB, raw [][]byte, topology catalog.Topology) *store {
	s := newStore(false)
	s.topology = topology
	imports, slices := s.importFeed(), s.sliceFeed()
	var services, held []any
	for i := range len(raw) / 10 {
		services = append(services, headlessObject(fmt.Sprintf("db-%03d", i)))
	}
	replace(imports, services, "7")
	for _, m := range raw {
		held = append(held, readSlice(Config{Topology: topology}, m))
	}
	replace(slices, held, "60000")
	return s
}

func headlessObject(name string) *importObject {
	return newStripped("test", name, "7", importContent{kind: catalog.Headless})
}

// BenchmarkChange10k is one change of a slice of a Service with 10,000 endpoints.
func BenchmarkChange10k(b *testing.B) {
	s := newStore(false)
	imports, slices := s.importFeed(), s.sliceFeed()
	replace(imports, []any{headlessObject("db-000")}, "1")
	var held []any
	for i := range 100 {
		o := largeSlice(i, 100)
		o.Labels[labelServiceName] = "db-000"
		held = append(held, readSlice(Config{}, marshal(o)))
	}
	replace(slices, held, "1")
	one, two := largeSlice(0, 100), largeSlice(0, 99)
	one.ResourceVersion, two.ResourceVersion = "20001", "20002"
	x, y := readSlice(Config{}, marshal(one)), readSlice(Config{}, marshal(two))
	for i := 0; b.Loop(); i++ {
		slices.Update([]any{x, y}[i&1])
	}
}

// BenchmarkUpdate1k is one update of a Service of 1,000 endpoints in ten slices, from what the API
// server sends to the changed answer.
func BenchmarkUpdate1k(b *testing.B) {
	var raw [2][10][]byte
	for i := range 10 {
		o := largeSlice(i, 100)
		raw[0][i] = marshal(o)
		o.ResourceVersion = "20001"
		o.Endpoints[7].Conditions.Ready = new(bool)
		raw[1][i] = marshal(o)
	}
	s := fillEndpoints(b, raw[0][:], catalog.Topology{})
	f := s.sliceFeed()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f.Update(readSlice(Config{}, raw[(i/10+1)%2][i%10]))
	}
}
