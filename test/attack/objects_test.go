package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// object is one as JSON has it: attacks need what no Go type can say.
type object map[string]any

// at returns the map at a path, which it makes if it is missing.
func (o object) at(path ...string) object {
	for _, p := range path {
		next, ok := o[p].(object)
		if !ok {
			next = object{}
			o[p] = next
		}
		o = next
	}
	return o
}

// set sets a field and returns the object.
func (o object) set(path []string, value any) object {
	o.at(path[:len(path)-1]...)[path[len(path)-1]] = value
	return o
}

func (o object) with(field string, value any) object { return o.set([]string{field}, value) }
func (o object) spec(field string, value any) object { return o.set([]string{"spec", field}, value) }
func (o object) meta(field string, value any) object {
	return o.set([]string{"metadata", field}, value)
}

func (o object) name() string {
	name, _ := o.at("metadata")["name"].(string)
	return name
}

const hubGroup = "hub.clusterset-dns.io/v1alpha1"

func named(apiVersion, kind, name string) object {
	return object{"apiVersion": apiVersion, "kind": kind,
		"metadata": object{"name": name, "namespace": lab.HubNamespace}}
}

// exportOf is a valid ServiceExportRecord of a cluster for a Service.
func exportOf(cluster, namespace, service string) object {
	o := named(hubGroup, "ServiceExportRecord", clusterset.RecordName(service, namespace, cluster))
	o["spec"] = object{
		"clusterID": cluster, "serviceNamespace": namespace, "serviceName": service, "revision": 1,
		"exportedAt": time.Now().UTC().Format(time.RFC3339), "type": "ClusterSetIP", "ipFamilies": []string{"IPv4"},
		"ports": []object{{"name": "http", "protocol": "TCP", "port": 80}}, "pages": 0,
	}
	return o
}

// pageOf is a valid EndpointPage of a cluster for a Service.
func pageOf(cluster, namespace, service string, number int32, addresses ...string) object {
	o := named(hubGroup, "EndpointPage", clusterset.PageName(number, service, namespace, cluster))
	spec := groupOf(addresses...)
	spec["clusterID"], spec["serviceNamespace"], spec["serviceName"] = cluster, namespace, service
	spec["revision"], spec["number"] = 1, number
	o["spec"] = spec
	return o
}

// groupOf is a valid group of endpoints.
func groupOf(addresses ...string) object {
	return object{
		"addressType": "IPv4", "ports": []object{{"protocol": "TCP", "port": 80, "target": 8080}},
		"endpoints": endpoints(addresses...),
	}
}

func endpoints(addresses ...string) (out []object) {
	for _, a := range addresses {
		out = append(out, object{"address": a})
	}
	return out
}

// leaseOf is a Lease with this renewal.
func leaseOf(name string, renewed time.Time) object {
	o := named("coordination.k8s.io/v1", "Lease", name)
	o["spec"] = object{
		"holderIdentity":       "thief",
		"leaseDurationSeconds": 40,
		"renewTime":            renewed.UTC().Format(time.RFC3339Nano)[:26] + "Z",
	}
	return o
}

func ownLease(renewed time.Time) object { return leaseOf(thief, renewed) }

func profileOf(name string) object {
	o := named("multicluster.x-k8s.io/v1alpha1", "ClusterProfile", name)
	o["spec"] = object{"clusterManager": object{"name": clusterset.ClusterManager}}
	return o
}

// paths are those of the kinds on the hub.
var paths = map[string]string{
	"serviceexportrecords": "/apis/" + hubGroup,
	"endpointpages":        "/apis/" + hubGroup,
	"clustersets":          "/apis/" + hubGroup,
	"leases":               "/apis/coordination.k8s.io/v1",
	"clusterprofiles":      "/apis/multicluster.x-k8s.io/v1alpha1",
	"secrets":              "/api/v1",
	"pods":                 "/api/v1",
	"serviceaccounts":      "/api/v1",
	"configmaps":           "/api/v1",
	"roles":                "/apis/rbac.authorization.k8s.io/v1",
	"rolebindings":         "/apis/rbac.authorization.k8s.io/v1",
}

// path is that of an object, or of a collection if it has no name.
func path(resource, name string) string { return pathIn(lab.HubNamespace, resource, name) }

func pathIn(namespace, resource, name string) string {
	p := paths[resource] + "/namespaces/" + namespace + "/" + resource
	if name != "" {
		p += "/" + name
	}
	return p
}

const (
	jsonKind  = "application/json"
	mergeKind = "application/merge-patch+json"
	applyKind = "application/apply-patch+yaml"
)

func body(o any) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // a test's own literal
	}
	return b
}

func create(resource string, o object) request {
	return request{method: http.MethodPost, path: path(resource, ""), kind: jsonKind, body: body(o)}
}

func replace(resource string, o object) request {
	return request{method: http.MethodPut, path: path(resource, o.name()), kind: jsonKind, body: body(o)}
}

func remove(resource, name string) request {
	return request{method: http.MethodDelete, path: path(resource, name), kind: jsonKind}
}

func patch(resource, name string, o object) request {
	return request{method: http.MethodPatch, path: path(resource, name), kind: mergeKind, body: body(o)}
}

func apply(resource string, o object) request {
	return request{
		method: http.MethodPatch,
		path:   path(resource, o.name()) + "?fieldManager=thief&force=true",
		kind:   applyKind,
		body:   body(o),
	}
}

// honestAddress is the endpoint of the attacker's own name in its current revision.
func (w *world) honestAddress() string {
	return fmt.Sprintf("10.66.%d.%d", w.honest/250, w.honest%250+1)
}

// honestRecord is the attacker's own name, in its current revision.
func (w *world) honestRecord() object {
	return exportOf(thief, open, "honest").spec("revision", w.honest).spec("exportedAt", w.since).
		spec("endpoints", append([]object{groupOf(w.honestAddress())}, w.beside...))
}

// publishHonest makes the attacker's own name, or its next revision.
func (w *world) publishHonest(ctx context.Context) error {
	w.honest++
	record := w.honestRecord()
	if w.honest > 1 {
		return w.done(ctx, w.update(ctx, "serviceexportrecords", record))
	}
	return w.done(ctx, create("serviceexportrecords", record))
}

// update replaces an object as it is now. API servers want its version, which the attacker finds in a list.
func (w *world) update(ctx context.Context, resource string, o object) request {
	_, answer := w.ask(ctx, request{
		method: http.MethodGet, path: path(resource, "") + "?fieldSelector=metadata.name%3D" + o.name(),
	})
	var list struct {
		Items []struct {
			Metadata struct{ ResourceVersion string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &list); err == nil && len(list.Items) == 1 {
		o.meta("resourceVersion", list.Items[0].Metadata.ResourceVersion)
	}
	return replace(resource, o)
}

// put replaces an object. Its other writer, which renews the Lease, may come between the reading and the writing.
func (w *world) put(ctx context.Context, resource string, o object) error {
	for {
		r := w.update(ctx, resource, o)
		switch code, says := w.ask(ctx, r); {
		case code/100 == 2:
			return nil
		case code != http.StatusConflict || ctx.Err() != nil:
			return fmt.Errorf("%s %s: %d %s", r.method, r.path, code, says)
		}
	}
}

// done is an error unless the hub took the request.
func (w *world) done(ctx context.Context, r request) error {
	if code, says := w.ask(ctx, r); code/100 != 2 {
		return fmt.Errorf("%s %s: %d %s", r.method, r.path, code, says)
	}
	return nil
}

// hasHonest waits until a victim has the attacker's own name with this endpoint alone.
func (v *victim) hasHonest(ctx context.Context, address string) error {
	return until(ctx, v.ID+": the attacker's own name", func() error {
		got, err := v.addresses(ctx, open, "honest")
		if err == nil && !slices.Contains(got, address) {
			err = fmt.Errorf("endpoints %v, want %s", got, address)
		}
		return err
	})
}
