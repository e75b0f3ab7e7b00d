package kube

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// managed is what server-side apply adds to an object, about half of what is sent.
func managed(o object) {
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{
		Manager: "clusterset-controller", Operation: "Apply", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:multicluster.kubernetes.io/derived-service":{}}},"f:spec":{"f:ips":{},"f:ports":{},"f:type":{}}}`),
	}})
	o.SetUID("8a1f8f9e-1e5d-4b0e-9d4f-6f0c1f3a7c11")
}

func importJSON(i int) []byte {
	o := in(clusterSetIP(fmt.Sprintf("service-%05d", i), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)), fmt.Sprintf("team-%03d", i%500))
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
	s := slice(fmt.Sprintf("imported-db-%03d-%05d", i/10, i), fmt.Sprintf("db-%03d", i/10), fmt.Sprintf("cluster-%d", i%10))
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

func BenchmarkImportDecode(b *testing.B) {
	raw := importJSON(7)
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		r := importReader{store: newStore(false)}
		for b.Loop() {
			if r.read(raw) == nil {
				b.Fatal("not read")
			}
		}
	})
	b.Run("held", func(b *testing.B) {
		b.ReportAllocs()
		s := newStore(false)
		r := importReader{store: s}
		s.setImport(r.read(raw), 0)
		for b.Loop() {
			r.read(raw)
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
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(raw)))
		b.ReportAllocs()
		r := sliceReader{store: newStore(false)}
		for b.Loop() {
			if o, err := r.read(raw); o == nil || err != nil {
				b.Fatal("not read", err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var o discoveryv1.EndpointSlice
			if err := o.Unmarshal(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

const manyImports = 50_000

// fillImports lists 50,000 imports into a store that has an empty list of slices.
func fillImports(s *store, raw [][]byte) (imports *feed, list *listing) {
	imports = s.importFeed()
	slices := s.sliceFeed()
	replace(slices, nil, "1")
	r := importReader{store: s}
	list = imports.stream()
	for _, b := range raw {
		list.apply(watch.Added, r.read(b))
	}
	return imports, list
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
		f, list := fillImports(s, raw)
		f.Replace([]any{list}, "60000")
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
	r := sliceReader{store: s}
	var services, held []any
	for i := range len(raw) / 10 {
		services = append(services, &importObject{key: fmt.Sprintf("db-%03d.test", i), version: 7, kind: catalog.Headless})
	}
	replace(imports, services, "7")
	for _, m := range raw {
		o, err := r.read(m)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, o)
	}
	replace(slices, held, "60000")
	return s
}

// BenchmarkFirstReplace50k is the time from the end of the list of imports to synced.
func BenchmarkFirstReplace50k(b *testing.B) {
	raw := manyImportsJSON()
	for b.Loop() {
		b.StopTimer()
		s := newStore(false)
		f, list := fillImports(s, raw)
		b.StartTimer()
		f.Replace([]any{list}, "60000")
		if !s.synced.Load() {
			b.Fatal("not synced")
		}
	}
}

// BenchmarkRelist50k streams a list whose objects are all held.
func BenchmarkRelist50k(b *testing.B) {
	raw := manyImportsJSON()
	s := newStore(false)
	f, list := fillImports(s, raw)
	f.Replace([]any{list}, "60000")
	r := importReader{store: s}
	b.ReportAllocs()
	for b.Loop() {
		list = f.stream()
		for _, m := range raw {
			list.apply(watch.Added, r.read(m))
		}
		f.Replace([]any{list}, "60000")
	}
}

// BenchmarkChange10k is one change of a slice of a Service with 10,000 endpoints.
func BenchmarkChange10k(b *testing.B) {
	s := newStore(false)
	imports, slices := s.importFeed(), s.sliceFeed()
	replace(imports, []any{&importObject{key: "db-000.test", version: 1, kind: catalog.Headless}}, "1")
	r := sliceReader{store: s}
	var held []any
	for i := range 100 {
		o := largeSlice(i, 100)
		o.Labels[labelServiceName] = "db-000"
		read, err := r.read(marshal(o))
		if err != nil {
			b.Fatal(err)
		}
		held = append(held, read)
	}
	replace(slices, held, "1")
	one, two := largeSlice(0, 100), largeSlice(0, 99)
	one.ResourceVersion, two.ResourceVersion = "20001", "20002"
	x, _ := r.read(marshal(one))
	y, _ := r.read(marshal(two))
	for i := 0; b.Loop(); i++ {
		slices.Update([]any{x, y}[i&1])
	}
}

// BenchmarkUpdate1k is one update of a Service of 1,000 endpoints in ten slices, from what the API server sends to the changed
// answer.
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
	r := sliceReader{store: s}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o, err := r.read(raw[(i/10+1)%2][i%10])
		if err != nil {
			b.Fatal(err)
		}
		f.Update(o)
	}
}
