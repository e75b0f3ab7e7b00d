package kube

import (
	"hash/maphash"
	"strconv"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What a watch delivers becomes one of three objects, stripped as it is decoded. The store holds the same objects, so a list
// that repeats them costs no memory. All fields but mark are immutable.

// sum tells apart what was read. The version alone does not: an API server that was restored from a backup gives the same ones out again.
type sum uint32

var seed = maphash.MakeSeed()

func sumOf(raw []byte) sum { return sum(maphash.Bytes(seed, raw)) }

// mark is what the store notes on an object; only it reads and writes it.
type mark struct {
	round uint32 // of the feed, when it was set last
	held  bool   // it is in the store
}

// importObject is a ServiceImport.
type importObject struct {
	key     string // "<svc>.<ns>", as in the catalogue
	version uint64
	service *catalog.Service // of a ClusterSetIP; a Headless one is built together with its slices
	kind    catalog.Type
	sum     sum
	mark
}

// sliceObject is an EndpointSlice.
type sliceObject struct {
	key     string // "<ns>/<name>"
	service string // "<svc>.<ns>"
	version uint64
	slice   *catalog.Slice // nil if skipped
	trigger int64          // when the change that led to it was made, in Unix nanoseconds; 0 if not known
	skipped reason
	sum     sum
	mark
}

// namespaceObject is a Namespace that the selector matches.
type namespaceObject struct {
	key     string
	version uint64
	mark
}

// reason says why a slice is skipped (N17). Its strings are label values.
type reason uint8

const (
	notSkipped reason = iota
	noSourceCluster
	impossibleClusterID
	wrongAddressType
)

var reasons = [...]string{"", "no_source_cluster", "impossible_cluster_id", "address_type"}

func (r reason) String() string { return reasons[r] }

// view is what the reflector wants to know of an object.
type view struct {
	*metav1.ObjectMeta // all that is not known is empty
	namespace, name    string
	version            uint64
}

var empty = &metav1.ObjectMeta{}

func (v *view) GetNamespace() string       { return v.namespace }
func (v *view) GetName() string            { return v.name }
func (v *view) GetResourceVersion() string { return strconv.FormatUint(v.version, 10) }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o *importObject) GetObjectMeta() metav1.Object {
	name, namespace := splitKey(o.key)
	return &view{empty, namespace, name, o.version}
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o *sliceObject) GetObjectMeta() metav1.Object {
	namespace, name, _ := strings.Cut(o.key, "/")
	return &view{empty, namespace, name, o.version}
}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (o *namespaceObject) GetObjectMeta() metav1.Object { return &view{empty, "", o.key, o.version} }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (l *listing) GetObjectMeta() metav1.Object { return &view{ObjectMeta: empty} }

// splitKey takes "<svc>.<ns>" apart. The namespace has no dot.
func splitKey(key string) (name, namespace string) {
	dot := strings.LastIndexByte(key, '.')
	return key[:dot], key[dot+1:]
}

// GetObjectKind implements runtime.Object.
func (o *importObject) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (o *importObject) DeepCopyObject() runtime.Object { c := *o; return &c }

// GetObjectKind implements runtime.Object.
func (o *sliceObject) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (o *sliceObject) DeepCopyObject() runtime.Object { c := *o; return &c }

// GetObjectKind implements runtime.Object.
func (o *namespaceObject) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (o *namespaceObject) DeepCopyObject() runtime.Object { c := *o; return &c }

// GetObjectKind implements runtime.Object.
func (l *listing) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (l *listing) DeepCopyObject() runtime.Object { c := *l; return &c }

// objectList is the answer to a list request.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []runtime.Object
}

// DeepCopyObject implements runtime.Object.
func (l *objectList) DeepCopyObject() runtime.Object {
	c := &objectList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for _, item := range l.Items {
		c.Items = append(c.Items, item.DeepCopyObject())
	}
	return c
}
