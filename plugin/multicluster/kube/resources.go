package kube

import (
	"io"

	"k8s.io/apimachinery/pkg/runtime"
)

const (
	acceptJSON  = "application/json"
	acceptProto = "application/vnd.kubernetes.protobuf"
)

// imports are ServiceImports: custom resources, which have no protobuf, and which an API server lists for two thirds of what it
// costs it to stream them (docs/decisions/0014-lists.md).
func (c Config) imports(s *store, labels, single string, wanted func(string) bool) resource {
	return resource{
		kind:      "ServiceImports",
		path:      []string{"/apis/multicluster.x-k8s.io/v1beta1", "/apis/multicluster.x-k8s.io/v1alpha1"},
		plural:    "serviceimports",
		namespace: single,
		selector:  labels,
		accept:    acceptJSON,
		format:    func(r io.Reader) format { return jsonFormat{newJSONSource(r)} },
		missing:   "apply deploy/crds",
		whole:     true,
		reader: func() reader {
			r := &importReader{store: s}
			return func(b []byte) (runtime.Object, error) {
				o := r.read(b)
				if o == nil || wanted != nil && !wanted(string(r.namespace)) {
					return nil, nil
				}
				return o, nil
			}
		},
	}
}

func (c Config) slices(s *store, single string, wanted func(string) bool) resource {
	return resource{
		kind:      "EndpointSlices",
		path:      []string{"/apis/discovery.k8s.io/v1"},
		plural:    "endpointslices",
		namespace: single,
		selector:  labelServiceName,
		accept:    acceptProto,
		format:    func(r io.Reader) format { return protoFormat{newProtoSource(r)} },
		missing:   "check that the endpoint is that of a Kubernetes API server",
		reader: func() reader {
			r := &sliceReader{store: s, podNames: c.EndpointPodNames}
			return func(b []byte) (runtime.Object, error) {
				o, err := r.read(b)
				if o == nil || wanted != nil && !wanted(string(r.meta.namespace)) {
					return nil, err
				}
				return o, nil
			}
		},
	}
}

func (c Config) namespaces(selector string) resource {
	return resource{
		kind:     "Namespaces",
		path:     []string{"/api/v1"},
		plural:   "namespaces",
		selector: selector,
		accept:   acceptProto,
		format:   func(r io.Reader) format { return protoFormat{newProtoSource(r)} },
		missing:  "check that the endpoint is that of a Kubernetes API server",
		reader:   func() reader { return readNamespace },
	}
}

func readNamespace(b []byte) (runtime.Object, error) {
	var md metadata
	m := message{b: b}
	for m.next() {
		if m.is(1, wireBytes) {
			m.err = md.read(m.val)
		}
	}
	version := parseUint(md.version, 64)
	if m.err != nil || len(md.name) == 0 || version == 0 {
		return nil, m.err
	}
	return &namespaceObject{key: string(md.name), version: version}, nil
}
