package kube

import (
	"strconv"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stripped is a Kubernetes object, stripped to what answers need. All but version is immutable.
type stripped[T any] struct {
	key     string // "<name>.<namespace>", as in the catalog; of a Namespace its name
	version uint64
	content T
}

type (
	importObject    = stripped[importContent]
	sliceObject     = stripped[sliceContent]
	namespaceObject = stripped[struct{}]
)

// importContent is that of a ServiceImport. A Headless Service is built together with its slices.
type importContent struct {
	kind    catalog.Type
	service *catalog.Service // of a ClusterSetIP
}

// sliceContent is that of an EndpointSlice.
type sliceContent struct {
	service string         // "<svc>.<ns>"
	slice   *catalog.Slice // nil if skipped
	trigger int64          // when the change that led to it was made, in Unix nanoseconds; 0 if not known
	skipped reason
}

// of is the Service that the slice is part of, "" for none.
func (c sliceContent) of() string {
	if c.slice == nil {
		return ""
	}
	return c.service
}

// same reports whether two slices have the same content, but for what triggered it.
func (c sliceContent) same(o sliceContent) bool {
	return c.service == o.service && c.skipped == o.skipped && c.slice.Equal(o.slice)
}

// newStripped strips the metadata of an object; nil if the object has no name or no version that is a number.
func newStripped[T any](namespace, name, version string, content T) *stripped[T] {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil || v == 0 || name == "" {
		return nil
	}
	return &stripped[T]{key: keyOf(namespace, name), version: v, content: content}
}

// keyOf returns the key of stripped.
func keyOf(namespace, name string) string {
	if namespace != "" {
		name += "." + namespace
	}
	return name
}

// orNil returns o, or nil without a type.
func orNil[T any](o *stripped[T]) any {
	if o == nil {
		return nil
	}
	return o
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o *stripped[T]) GetObjectMeta() metav1.Object {
	name, namespace := splitKey(o.key)
	return &metav1.ObjectMeta{
		Namespace: namespace, Name: name, ResourceVersion: strconv.FormatUint(o.version, 10),
	}
}

// GetObjectKind implements runtime.Object.
func (o *stripped[T]) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (o *stripped[T]) DeepCopyObject() runtime.Object { c := *o; return &c }

// splitKey splits a key of stripped. Namespaces have no dot.
func splitKey(key string) (name, namespace string) {
	if dot := strings.LastIndexByte(key, '.'); dot >= 0 {
		return key[:dot], key[dot+1:]
	}
	return key, ""
}

// reason is why a slice is skipped (N17), as a label value.
type reason string

const (
	notSkipped          reason = ""
	noSourceCluster     reason = "no_source_cluster"
	impossibleClusterID reason = "impossible_cluster_id"
	wrongAddressType    reason = "address_type"
)
