package attack

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// Who refuses an attack.
const (
	rbac      = "RBAC"
	schema    = "CRD schema"
	apiserver = "API server"
	agents    = "agents"
	records   = "policy `clusterset-records`"
	spaces    = "policy `clusterset-namespaces`"
	leases    = "policy `clusterset-leases`"
	profiles  = "policy `clusterset-profiles`"
	tokens    = "policy `clusterset-tokens`"
)

// refusal is an attack that the hub's API server refuses.
type refusal struct {
	name string
	by   string
	says string // in the answer
	ask  func(context.Context, *world) request
}

// plain is a request that needs nothing of the world.
func plain(r request) func(context.Context, *world) request {
	return func(context.Context, *world) request { return r }
}

// updated is the replacement of an object as it is now.
func updated(resource string, o object) func(context.Context, *world) request {
	return func(ctx context.Context, w *world) request { return w.update(ctx, resource, o) }
}

// own is a new record of the attacker, changed.
func own(change func(object)) func(context.Context, *world) request {
	o := exportOf(thief, shop, "fake")
	change(o)
	return plain(create("serviceexportrecords", o))
}

// ownPage is a new EndpointPage of the attacker, changed.
func ownPage(change func(object)) func(context.Context, *world) request {
	o := pageOf(thief, shop, "fake", 0, "10.66.9.9")
	change(o)
	return plain(create("endpointpages", o))
}

// page is the name of a page of a.
var page = clusterset.PageName(0, "many", shop, "a")

const does = "does not write the records of cluster a"

// foreign are records of others.
var foreign = []refusal{
	{"forge an export of another member", records, does,
		plain(create("serviceexportrecords", exportOf("a", shop, "forged")))},
	{"forge endpoints of another member", records, does,
		plain(create("endpointpages", pageOf("a", shop, "web", 9, "10.66.9.9")))},
	{"withdraw another member's export", records, does, updated("serviceexportrecords",
		exportOf("a", shop, "web").spec("withdrawn", true).spec("revision", 1<<52))},
	{"replace another member's endpoints", records, does, updated("serviceexportrecords",
		exportOf("a", shop, "web").spec("endpoints", []object{groupOf("10.66.9.9")}).spec("revision", 1<<52))},
	{"replace a page of another member's endpoints", records, does, updated("endpointpages",
		pageOf("a", shop, "many", 0, "10.66.9.9").spec("revision", 1<<52))},
	{"delete another member's export", records, does, plain(remove("serviceexportrecords", "web.shop.a"))},
	{"delete another member's endpoints", records, does, plain(remove("endpointpages", page))},
	{"delete all exports at once", rbac, "cannot deletecollection", plain(remove("serviceexportrecords", ""))},
	{"delete all endpoints at once", rbac, "cannot deletecollection", plain(remove("endpointpages", ""))},
	{"patch another member's export", rbac, "cannot patch",
		plain(patch("serviceexportrecords", "web.shop.a", object{}.spec("withdrawn", true)))},
	{
		"apply another member's export",
		rbac,
		"cannot patch",
		plain(apply("serviceexportrecords", exportOf("a", shop, "web"))),
	},
	{
		"create an export by apply",
		rbac,
		"cannot patch",
		plain(apply("serviceexportrecords", exportOf("a", shop, "forged"))),
	},
	{"give its own export to another member", schema, "clusterID is immutable", updated("serviceexportrecords",
		exportOf(thief, open, "honest").spec("clusterID", "a"))},
	{"state an older date for its own export", records, "exportedAt never moves back", updated("serviceexportrecords",
		exportOf(thief, open, "honest").spec("exportedAt", "2001-01-01T00:00:00Z"))},
	{"use a name that ends like another member's", schema, "metadata.name must be",
		own(func(o object) { o.meta("name", "fake.shop.a") })},
	{"use a page's name that ends like another member's", schema, "metadata.name must be",
		ownPage(func(o object) { o.meta("name", "0.fake.shop.a") })},
	{"use an ambiguous name", schema, "metadata.name must be",
		plain(create("serviceexportrecords", exportOf("a", "shop", "web").meta("name", "web.shop.t.a")))},
	{"pass a dot in the namespace", schema, "serviceNamespace",
		own(func(o object) { o.spec("serviceNamespace", "shop.t").meta("name", "fake.shop.t.t.a") })},
	{"pass a dot in the Service's name", schema, "serviceName",
		own(func(o object) { o.spec("serviceName", "fake.web").meta("name", "fake.web.shop.t.a") })},
	{"keep its record with a finalizer", records, "may not change the finalizers",
		own(func(o object) { o.meta("finalizers", []string{"example.org/stay"}) })},
	{"let others' objects own its record", records, "may not change the ownerReferences", own(func(o object) {
		o.meta("ownerReferences", []object{
			{"apiVersion": hubGroup, "kind": "ServiceExportRecord", "name": "web.shop.a", "uid": "1"},
		})
	})},
	{"write the status of another member's export", rbac, "cannot update", plain(request{
		method: http.MethodPut, path: path("serviceexportrecords", "web.shop.a") + "/status", kind: jsonKind,
		body: body(exportOf("a", shop, "web").set([]string{"status", "withheld"}, []string{"*"})),
	})},
	{"write the status of its own export", rbac, "cannot patch", plain(request{
		method: http.MethodPatch, path: path("serviceexportrecords", "honest.open.t.a") + "/status", kind: mergeKind,
		body: body(object{}.set([]string{"status", "withheld"}, []string{"*"})),
	})},
}

// liveness are Leases.
var liveness = []refusal{
	{"renew another member's Lease", leases, "does not write Lease a", func(ctx context.Context, w *world) request {
		return w.update(ctx, "leases", leaseOf("a", time.Now()))
	}},
	{"create a Lease for a member that has none", leases, "does not write Lease c",
		plain(create("leases", leaseOf("c", time.Now())))},
	{"generate a Lease's name", leases, "does not write Lease a",
		plain(create("leases", leaseOf("", time.Now()).meta("generateName", "a")))},
	{"delete another member's Lease", rbac, "cannot delete", plain(remove("leases", "a"))},
	{"patch another member's Lease", rbac, "cannot patch",
		plain(patch("leases", "a", object{}.spec("leaseDurationSeconds", 1)))},
	{"say whom another member does not reach", leases, "does not write Lease b",
		func(ctx context.Context, w *world) request {
			return w.update(ctx, "leases", leaseOf("b", time.Now()).meta("annotations",
				object{"clusterset-dns.io/unreachable": `{"a":"2026-01-01T00:00:00Z"}`}))
		}},
	{"keep its Lease with a finalizer", leases, "may not change the finalizers", updated("leases",
		ownLease(time.Now()).meta("finalizers", []string{"example.org/stay"}))},
	{"take the hub controller's leadership", rbac, "cannot update", plain(request{
		method: http.MethodPut,
		kind:   jsonKind,
		path:   pathIn("clusterset-system", "leases", "clusterset-hub-clusterset"),
		body:   body(leaseOf("clusterset-hub-clusterset", time.Now()).meta("namespace", "clusterset-system")),
	})},
}

// membership are ClusterProfiles and the ClusterSet.
var membership = []refusal{
	{"evict another member", rbac, "cannot delete", plain(remove("clusterprofiles", "a"))},
	{"report that another member has left", profiles, "does not write ClusterProfile a",
		plain(patch("clusterprofiles", "a", object{}.meta("annotations", object{clusterset.AnnotationLeft: "true"})))},
	{
		"take another member's claim",
		profiles,
		"does not write ClusterProfile a",
		plain(
			patch(
				"clusterprofiles",
				"a",
				object{}.meta("annotations", object{clusterset.AnnotationClusterUID: "mine"}),
			),
		),
	},
	{"report another member's version", profiles, "does not write ClusterProfile a", plain(request{
		method: http.MethodPatch, kind: mergeKind, path: path("clusterprofiles", "a") + "/status",
		body: body(object{}.set([]string{"status", "version", "kubernetes"}, "v1.0.0")),
	})},
	{"admit another cluster", rbac, "cannot create", plain(create("clusterprofiles", profileOf("ghost")))},
	{"evict itself, to join again as another", rbac, "cannot delete", plain(remove("clusterprofiles", thief))},
	{"rename itself", profiles, "may not change the spec",
		plain(patch("clusterprofiles", thief, object{}.spec("displayName", "a")))},
	{"lose the finalizer that cleans up after it", profiles, "may not change labels, finalizers",
		plain(patch("clusterprofiles", thief, object{}.meta("finalizers", nil)))},
	{"annotate its profile", profiles, "may annotate a ClusterProfile with", plain(patch("clusterprofiles", thief,
		object{}.meta("annotations", object{"clusterset-dns.io/joining-uid": "other"})))},
	{"call itself healthy", profiles, "condition MemberReady only in the status", plain(request{
		method: http.MethodPatch, kind: mergeKind, path: path("clusterprofiles", thief) + "/status",
		body: body(object{}.set([]string{"status", "conditions"}, []object{{
			"type": "ControlPlaneHealthy", "status": "True", "reason": "Heartbeat", "message": "",
			"lastTransitionTime": "2026-01-01T00:00:00Z",
		}})),
	})},
	{"publish how to log in to it", profiles, "condition MemberReady only in the status", plain(request{
		method: http.MethodPatch, kind: mergeKind, path: path("clusterprofiles", thief) + "/status",
		body: body(object{}.set([]string{"status", "accessProviders"}, []object{{
			"name": "x", "cluster": object{"server": "https://evil.example"},
		}})),
	})},
	{"fill its profile with properties", profiles, "may have 128 properties", plain(request{
		method: http.MethodPatch, kind: mergeKind, path: path("clusterprofiles", thief) + "/status",
		body: body(object{}.set([]string{"status", "properties"}, many(129, func(i int) object {
			return object{"name": fmt.Sprint("p", i), "value": "x"}
		}))),
	})},
	{"fill its profile with owners of fields", profiles, "managedFields", func(context.Context, *world) request {
		fields := object{}
		for i := range 1000 {
			fields[fmt.Sprintf("f:%0200d", i)] = object{}
		}
		return patch("clusterprofiles", thief, object{}.meta("managedFields", []object{{
			"manager": "any", "operation": "Apply", "apiVersion": "multicluster.x-k8s.io/v1alpha1",
			"fieldsType": "FieldsV1", "fieldsV1": fields,
		}}))
	}},
	{"change the ClusterSet's rules", rbac, "cannot patch", plain(patch("clustersets", lab.HubNamespace,
		object{}.set([]string{"spec", "namespaces", "deny"}, []string{})))},
	{"add a second ClusterSet", rbac, "cannot create",
		plain(create("clustersets", named(hubGroup, "ClusterSet", "second")))},
	{"declare another member departed", rbac, "cannot patch", plain(request{
		method: http.MethodPatch,
		kind:   mergeKind,
		path:   path("clustersets", lab.HubNamespace) + "/status",
		body: body(
			object{}.set([]string{"status", "departed"}, []object{{"clusterID": "a", "at": "2100-01-01T00:00:00Z"}}),
		),
	})},
	{"give itself a block of addresses", rbac, "cannot patch", plain(request{
		method: http.MethodPatch, kind: mergeKind, path: path("clustersets", lab.HubNamespace) + "/status",
		body: body(object{}.set([]string{"status", "blocks"}, []object{{"clusterID": thief, "cidr": "10.96.0.0/12"}})),
	})},
}

func many(n int, one func(i int) object) (out []object) {
	for i := range n {
		out = append(out, one(i))
	}
	return out
}

// namespaces are those of the hub, and those that records name.
var namespaces = []refusal{
	{"export into kube-system", spaces, "denies namespace kube-system",
		plain(create("serviceexportrecords", exportOf(thief, "kube-system", "kube-dns")))},
	{"add endpoints to a name of kube-system", spaces, "denies namespace kube-system",
		plain(create("endpointpages", pageOf(thief, "kube-system", "kube-dns", 0, "10.66.9.9")))},
	{"export into clusterset-system", spaces, "denies namespace clusterset-system",
		plain(create("serviceexportrecords", exportOf(thief, "clusterset-system", "web")))},
	{"publish in another namespace of the hub", rbac, "cannot create", plain(request{
		method: http.MethodPost, kind: jsonKind, path: pathIn("default", "serviceexportrecords", ""),
		body: body(exportOf(thief, shop, "fake").meta("namespace", "default")),
	})},
	{"write the copies of a hub that is a member", rbac, "cannot create", plain(request{
		method: http.MethodPost, kind: jsonKind, path: pathIn("clusterset-system", "serviceexportrecords", ""),
		body: body(exportOf("a", shop, "fake").meta("namespace", "clusterset-system")),
	})},
	{"create a namespace on the hub", rbac, "cannot create", plain(request{
		method: http.MethodPost, kind: jsonKind, path: "/api/v1/namespaces",
		body: body(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "thief"}}),
	})},
	{"read the hub's Secrets", rbac, "cannot list", plain(request{method: http.MethodGet, path: path("secrets", "")})},
	{"read another clusterset's records", rbac, "cannot list",
		plain(request{method: http.MethodGet, path: pathIn("blue", "serviceexportrecords", "")})},
	{"run a Pod on the hub", rbac, "cannot create", plain(create("pods", named("v1", "Pod", "thief")))},
}

// credentials are tokens and rights.
var credentials = []refusal{
	{"ask for another member's token", rbac, "cannot create", plain(tokenOf("mcs-a", 3600))},
	{"ask for a token of the default account", rbac, "cannot create", plain(tokenOf("default", 3600))},
	{
		"ask for a token that lives for a year",
		tokens,
		"may live for 86400 seconds at most",
		plain(tokenOf("mcs-"+thief, 365*86400)),
	},
	{"bind a token to another's Secret", apiserver, "secrets", plain(request{
		method: http.MethodPost, kind: jsonKind, path: path("serviceaccounts", "mcs-"+thief) + "/token",
		body: body(object{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{
				"expirationSeconds": 3600,
				"boundObjectRef":    object{"kind": "Secret", "apiVersion": "v1", "name": "hub-kubeconfig"},
			},
		}),
	})},
	{"act as another member", rbac, "cannot impersonate", plain(withHeader(remove("serviceexportrecords", "web.shop.a"),
		"Impersonate-User", "system:serviceaccount:clusterset:mcs-a"))},
	{"act as an admin's group", rbac, "cannot impersonate", plain(withHeader(withHeader(
		remove(
			"serviceexportrecords",
			"web.shop.a",
		),
		"Impersonate-User",
		"me",
	), "Impersonate-Group", "system:masters"))},
	{"bind a role to itself", rbac, "cannot create", plain(create("rolebindings",
		named("rbac.authorization.k8s.io/v1", "RoleBinding", "thief").set([]string{"roleRef"}, object{
			"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
		})))},
	{"widen the members' role", rbac, "cannot patch", plain(patch("roles", "clusterset-member", object{"rules": nil}))},
	{"create an account that the policies do not know", rbac, "cannot create",
		plain(create("serviceaccounts", named("v1", "ServiceAccount", "thief")))},
	{"ask for a client certificate", rbac, "cannot create", plain(request{
		method: http.MethodPost, kind: jsonKind, path: "/apis/certificates.k8s.io/v1/certificatesigningrequests",
		body: body(object{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
			"metadata": object{"name": "thief"}}),
	})},
	{"switch off a policy", rbac, "cannot delete", plain(request{
		method: http.MethodDelete,
		kind:   jsonKind,
		path: "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/" +
			"clusterset-records.clusterset-dns.io",
	})},
	{"change the schema of records", rbac, "cannot patch", plain(request{
		method: http.MethodPatch, kind: mergeKind, body: []byte("{}"),
		path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/endpointpages.hub.clusterset-dns.io"})},
}

func tokenOf(account string, seconds int) request {
	return request{
		method: http.MethodPost, kind: jsonKind, path: path("serviceaccounts", account) + "/token",
		body: body(object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
			"spec": object{"expirationSeconds": seconds}}),
	}
}

func withHeader(r request, key, value string) request {
	header := map[string]string{key: value}
	for k, v := range r.header {
		header[k] = v
	}
	r.header = header
	return r
}

// shapes are objects that are giant, deep, half valid or of impossible values.
var shapes = []refusal{
	{
		"publish neither an export nor a withdrawal",
		schema,
		"required unless the record is withdrawn",
		own(func(o object) {
			delete(o.at("spec"), "type")
		}),
	},
	{"publish an export without a date", schema, "required unless the record is withdrawn", own(func(o object) {
		delete(o.at("spec"), "exportedAt")
	})},
	{"publish endpoints of no family", schema, "spec.addressType: Required value", ownPage(func(o object) {
		delete(o.at("spec"), "addressType")
	})},
	{
		"publish as an agent of before pages",
		records,
		"upgrade it",
		own(func(o object) { delete(o.at("spec"), "pages") }),
	},
	{"state a date that is none", schema, "exportedAt", own(func(o object) { o.spec("exportedAt", "yesterday") })},
	{"date a withdrawal so that no member can list records", records, "timestamp", own(func(o object) {
		o.spec("withdrawn", true).spec("withdrawnAt", "2026-01-01T00:00:00+99:99")
	})},
	{"date a property so that nobody can list ClusterProfiles", profiles, "timestamp", plain(request{
		method: http.MethodPatch, kind: mergeKind, path: path("clusterprofiles", thief) + "/status",
		body: body(object{}.set([]string{"status", "properties"}, []object{
			{"name": "p", "value": "1", "lastObservedTime": "2026-01-01T00:00:00x5Z"},
		})),
	})},
	{"state revision 0", schema, "spec.revision", own(func(o object) { o.spec("revision", 0) })},
	{"state the highest revision that JSON has", schema, "spec.revision", own(func(o object) {
		o.spec("revision", int64(1)<<62)
	})},
	{
		"export a Service of type ExternalName",
		schema,
		"spec.type",
		own(func(o object) { o.spec("type", "ExternalName") }),
	},
	{"export a port whose protocol has 64 characters", schema, "protocol", own(func(o object) {
		o.spec("ports", []object{{"protocol": strings.Repeat("x", 64), "port": 1}})
	})},
	{
		"export port 65536",
		schema,
		"port",
		own(func(o object) { o.spec("ports", []object{{"protocol": "TCP", "port": 65536}}) }),
	},
	{"export 257 ports", schema, "spec.ports", own(func(o object) {
		o.spec("ports", many(257, func(i int) object {
			return object{"name": fmt.Sprint("p", i), "protocol": "TCP", "port": i + 1}
		}))
	})},
	{"export IPv5", schema, "spec.ipFamilies", own(func(o object) { o.spec("ipFamilies", []string{"IPv5"}) })},
	{"publish 101 endpoints in a page", schema, "spec.endpoints", ownPage(func(o object) {
		o.spec("endpoints", many(101, func(int) object { return object{"address": "10.66.9.9"} }))
	})},
	{"publish nine groups of endpoints in a record", schema, "spec.endpoints", own(func(o object) {
		o.spec("endpoints", many(9, func(int) object { return groupOf("10.66.9.9") }))
	})},
	{"publish page 10,000", schema, "spec.number", ownPage(func(o object) {
		o.spec("number", 10000).meta("name", clusterset.PageName(10000, "fake", shop, thief))
	})},
	{"publish an address of 46 characters", schema, "address", ownPage(func(o object) {
		o.spec("endpoints", endpoints(strings.Repeat("1", 46)))
	})},
	{"publish FQDN endpoints", schema, "addressType", ownPage(func(o object) { o.spec("addressType", "FQDN") })},
	{"name a Service with 64 characters", schema, "serviceName", own(func(o object) {
		long := strings.Repeat("x", 64)
		o.spec("serviceName", long).meta("name", long+".shop."+thief)
	})},
	{"name a Service in upper case", schema, "serviceName", own(func(o object) { o.spec("serviceName", "Web") })},
	{"name a record with 254 characters", apiserver, "must be no more than 253", ownPage(func(o object) {
		o.meta("name", strings.Repeat("x", 250)+"."+thief)
	})},
	{"publish 4 MB at once", apiserver, "", own(func(o object) {
		o.spec("exportedAnnotations", object{"big": strings.Repeat("x", 4<<20)})
	})},
	{"publish 300 KB of annotations", apiserver, "metadata.annotations: Too long", own(func(o object) {
		o.meta("annotations", object{"big": strings.Repeat("x", 300<<10)})
	})},
	{"nest objects 100,000 deep", apiserver, "", func(context.Context, *world) request {
		r := create("serviceexportrecords", exportOf(thief, shop, "fake"))
		deep := strings.Repeat(`{"x":`, 100_000) + "1" + strings.Repeat("}", 100_000)
		r.body = []byte(strings.Replace(string(r.body), `"spec":{`, `"spec":{"deep":`+deep+`,`, 1))
		return r
	}},
	{"send no JSON", apiserver, "", func(context.Context, *world) request {
		r := create("serviceexportrecords", exportOf(thief, shop, "fake"))
		r.body = r.body[:len(r.body)-2]
		return r
	}},
	{
		"replace its own export by a stale version",
		apiserver,
		"the object has been modified",
		plain(replace("serviceexportrecords",
			exportOf(thief, open, "honest").meta("resourceVersion", "1"))),
	},
	{"replace its own export whatever its version", apiserver, "must be specified for an update", plain(replace(
		"serviceexportrecords", exportOf(thief, open, "honest")))},
	{"create a record with a version", apiserver, "resourceVersion should not be set", own(func(o object) {
		o.meta("resourceVersion", "1")
	})},
	{"delete another member's export in any version", records, does, plain(request{
		method: http.MethodDelete, path: path("serviceexportrecords", "web.shop.a"), kind: jsonKind,
		body: body(object{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground",
			"gracePeriodSeconds": 0}),
	})},
	{"create another member's record by a dry run", records, does, func(context.Context, *world) request {
		r := create("serviceexportrecords", exportOf("a", shop, "forged"))
		r.path += "?dryRun=All"
		return r
	}},
}
