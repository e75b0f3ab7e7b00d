package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// The kinds that this API server serves.
const (
	Namespace           = "Namespace"
	Service             = "Service"
	EndpointSlice       = "EndpointSlice"
	Lease               = "Lease"
	ServiceExport       = "ServiceExport"
	ServiceImport       = "ServiceImport"
	ClusterSet          = "ClusterSet"
	ServiceExportRecord = "ServiceExportRecord"
	EndpointPage        = "EndpointPage"
	ClusterProperty     = "ClusterProperty"
	ClusterProfile      = "ClusterProfile"
	ServiceCIDR         = "ServiceCIDR"
	IPAddress           = "IPAddress"
)

// kind is how objects of one kind are kept.
type kind struct {
	group   string
	new     func() client.Object
	cluster bool // cluster-scoped
	custom  bool // by a CRD: an update must say which resourceVersion it is of, and generation counts from 1
	status  bool // the status is a subresource that somebody here writes
}

var kinds = map[string]kind{
	Namespace: {new: func() client.Object { return &corev1.Namespace{} }, cluster: true},
	Service:   {new: func() client.Object { return &corev1.Service{} }},
	EndpointSlice: {
		group: discoveryv1.GroupName,
		new:   func() client.Object { return &discoveryv1.EndpointSlice{} },
	},
	Lease: {
		group: coordinationv1.GroupName,
		new:   func() client.Object { return &coordinationv1.Lease{} },
	},
	ServiceExport: {
		group:  mcsv1beta1.GroupName,
		new:    func() client.Object { return &mcsv1beta1.ServiceExport{} },
		custom: true,
		status: true,
	},
	ServiceImport: {
		group:  mcsv1beta1.GroupName,
		new:    func() client.Object { return &mcsv1beta1.ServiceImport{} },
		custom: true,
		status: true,
	},
	ClusterSet: {
		group:  hubv1alpha1.GroupVersion.Group,
		new:    func() client.Object { return &hubv1alpha1.ClusterSet{} },
		custom: true,
	},
	ServiceExportRecord: {
		group:  hubv1alpha1.GroupVersion.Group,
		new:    func() client.Object { return &hubv1alpha1.ServiceExportRecord{} },
		custom: true,
		status: true,
	},
	EndpointPage: {
		group:  hubv1alpha1.GroupVersion.Group,
		new:    func() client.Object { return &hubv1alpha1.EndpointPage{} },
		custom: true,
	},
	ClusterProperty: {
		group:   aboutv1beta1.GroupVersion.Group,
		new:     func() client.Object { return &aboutv1beta1.ClusterProperty{} },
		cluster: true,
		custom:  true,
	},
	ServiceCIDR: {
		group:   networkingv1.GroupName,
		new:     func() client.Object { return &networkingv1.ServiceCIDR{} },
		cluster: true,
		status:  true,
	},
	IPAddress: {
		group:   networkingv1.GroupName,
		new:     func() client.Object { return &networkingv1.IPAddress{} },
		cluster: true,
	},
	ClusterProfile: {
		group:  inventoryv1alpha1.GroupVersion.Group,
		new:    func() client.Object { return &inventoryv1alpha1.ClusterProfile{} },
		custom: true,
		status: true,
	},
}

// KindOf names the kind of an object, or of the items of a list.
func KindOf(o runtime.Object) string {
	name := reflect.TypeOf(o).Elem().Name()
	if _, ok := kinds[name]; ok {
		return name
	}
	name = strings.TrimSuffix(name, "List")
	if _, ok := kinds[name]; !ok {
		panic(fmt.Sprintf("the simulated API server has no kind %T: add it to kinds.go", o))
	}
	return name
}

// Key names one object of one API server.
type Key struct {
	Kind string
	types.NamespacedName
}

// KeyOf is the key of an object.
func KeyOf(o client.Object) Key { return Key{KindOf(o), client.ObjectKeyFromObject(o)} }

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}

// resource is for the errors, which name it.
func (k Key) resource() schema.GroupResource {
	return schema.GroupResource{Group: kinds[k.Kind].group, Resource: strings.ToLower(k.Kind) + "s"}
}

// wire is what arrives of an object at the other end of a connection: times in whole seconds, nothing that is empty.
func wire(o client.Object) client.Object {
	data, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("%T: %v", o, err)) // typed objects can be marshalled
	}
	out := kinds[KindOf(o)].new()
	if err := json.Unmarshal(data, out); err != nil {
		panic(fmt.Sprintf("%T: %v", o, err))
	}
	return untyped(out)
}

// untyped clears apiVersion and kind, as typed clients do.
func untyped(o client.Object) client.Object {
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return o
}

// clone copies an object.
func clone(o client.Object) client.Object { return o.DeepCopyObject().(client.Object) }

// assign makes *to a copy of from.
func assign(to, from client.Object) {
	reflect.ValueOf(to).Elem().Set(reflect.ValueOf(clone(from)).Elem())
}

// statusOf is the field Status, which kinds with the subresource have.
func statusOf(o client.Object) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName("Status") }

// sameContent compares all but metadata and status: what generation counts.
func sameContent(a, b client.Object) bool {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		switch va.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
			continue
		}
		if !equality.Semantic.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			return false
		}
	}
	return true
}
