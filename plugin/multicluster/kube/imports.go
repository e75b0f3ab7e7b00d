package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// imports are ServiceImports: custom resources, which have no protobuf. A list of them costs the API server two
// thirds of what a stream does.
func (c Config) imports() *resource {
	r := &resource{
		kind:       "ServiceImports",
		paths:      []string{"/apis/multicluster.x-k8s.io/v1beta1", "/apis/multicluster.x-k8s.io/v1alpha1"}, // L5
		plural:     "serviceimports",
		namespace:  c.namespace(),
		selector:   c.Labels,
		accept:     runtime.ContentTypeJSON,
		missing:    "apply deploy/crds",
		listsWhole: true,
		feed:       func(s *store) cache.ReflectorStore { return s.importFeed() },
	}
	r.strip = func(object any) any {
		if _, namespace := splitKey(object.(*importObject).key); !c.wants(namespace) {
			return nil
		}
		return object
	}
	r.list = func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		body, err := r.open(ctx, opts)
		if err != nil {
			return nil, err
		}
		defer body.Close()
		return decodeImports(body)
	}
	r.watch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		body, err := r.open(ctx, opts)
		if err != nil {
			return nil, err
		}
		const reason = "ClientWatchDecoding"
		reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, reason)
		d := &importDecoder{json.NewDecoder(body), body}
		return watch.NewStreamWatcherWithLogger(klog.FromContext(ctx), d, reporter), nil
	}
	return r
}

// serviceImport is a ServiceImport as far as answers depend on it.
type serviceImport struct {
	Metadata struct {
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		Type  string   `json:"type"`
		IPs   []string `json:"ips"`
		Ports []struct {
			Name     string `json:"name"`
			Protocol string `json:"protocol"`
			Port     int32  `json:"port"`
		} `json:"ports"`
	} `json:"spec"`
}

// stripImport returns nil if the object has no name or no numeric resourceVersion.
func stripImport(o *serviceImport) *importObject {
	imp := catalog.Import{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
	for _, text := range o.Spec.IPs {
		if ip, ok := address(text); ok {
			imp.IPs = append(imp.IPs, ip)
		}
	}
	for _, p := range o.Spec.Ports {
		imp.Ports = append(imp.Ports, catalog.Port{Name: p.Name, Proto: p.Protocol, Number: portNumber(p.Port)})
	}
	switch o.Spec.Type {
	case catalog.ClusterSetIP.String():
		imp.Type = catalog.ClusterSetIP
	case catalog.Headless.String():
		imp.Type = catalog.Headless
	}
	stripped := newStripped(imp.Namespace, imp.Name, o.Metadata.ResourceVersion, importContent{kind: imp.Type})
	if stripped == nil || imp.Namespace == "" {
		return nil
	}
	if imp.Type == catalog.ClusterSetIP {
		if service := catalog.Build(&imp, nil); service != nil {
			stripped.content.service, stripped.key = service, service.Key() // one copy of the key
		}
	}
	return stripped
}

// portNumber is 0, which is no port, if a number is out of range.
func portNumber(n int32) uint16 {
	if n < 0 || n > 0xffff {
		return 0
	}
	return uint16(n)
}

// address reads an address of an object. Zones mean nothing to another host, and Kubernetes refuses IPv4-mapped IPv6
// addresses too.
func address(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	return addr, err == nil && addr.Zone() == "" && !addr.Is4In6()
}

var errNoList = errors.New("the API server sent no list")

// decodeImports reads a list, item by item, so that it is never in memory as a whole.
func decodeImports(body io.Reader) (*internalversion.List, error) {
	list := new(internalversion.List)
	d := json.NewDecoder(body)
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errNoList, err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		switch key {
		case "metadata":
			err = d.Decode(&list.ListMeta)
		case "items":
			list.Items, err = decodeItems(d)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("the list of ServiceImports broke off: %w", err)
	}
	if list.ResourceVersion == "" {
		return nil, errNoList // of a gateway, perhaps; as an empty list, it would take all names away
	}
	return list, nil
}

func decodeItems(d *json.Decoder) (items []runtime.Object, err error) {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, err // null is no item
	}
	for d.More() {
		var o serviceImport
		if err := tolerant(d.Decode(&o)); err != nil {
			return nil, err
		}
		if stripped := stripImport(&o); stripped != nil {
			items = append(items, stripped)
		}
	}
	_, err = d.Token()
	return items, err
}

// tolerant ignores that a field is of another type than the CRD says. Decode fills in the others.
func tolerant(err error) error {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return nil
	}
	return err
}

// importDecoder implements watch.Decoder.
type importDecoder struct {
	json *json.Decoder
	body io.Closer
}

// Decode blocks until the next event of an object that has a name.
func (d *importDecoder) Decode() (watch.EventType, runtime.Object, error) {
	for {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := d.json.Decode(&event); err != nil {
			return "", nil, err
		}
		switch event.Type {
		case watch.Error:
			status := new(metav1.Status)
			return event.Type, status, json.Unmarshal(event.Object, status)
		case watch.Bookmark:
			bookmark := new(metav1.PartialObjectMetadata)
			return event.Type, bookmark, json.Unmarshal(event.Object, bookmark)
		}
		var o serviceImport
		if err := tolerant(json.Unmarshal(event.Object, &o)); err != nil {
			return "", nil, err
		}
		if stripped := stripImport(&o); stripped != nil {
			return event.Type, stripped, nil
		}
	}
}

// Close ends the stream.
func (d *importDecoder) Close() { d.body.Close() }
