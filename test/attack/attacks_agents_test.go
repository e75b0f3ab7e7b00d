package attack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// publication is an attack with records that the hub's API server takes, so that the victims' agents must withstand it.
type publication struct {
	name    string
	records []object
	beside  []object                                  // groups of endpoints that the attacker's own name has meanwhile
	run     func(ctx context.Context, w *world) error // in place of records
	// event is the reason of the Event that each victim raises, with these words; "" for none.
	event string
	words []string
	// shares is the name of shop that the attacker exports as well. Another exporter may add ports and endpoints to it.
	shares string
}

// refused is an export that no agent imports, as it names something that a ServiceImport cannot have.
func refused(name, what string, change func(object), words ...string) publication {
	o := exportOf(thief, shop, what)
	change(o)
	return publication{
		name: name, records: []object{o}, event: "RecordRefused", words: append([]string{o.name()}, words...),
	}
}

// unreachable is an endpoint of the attacker's own name that no agent imports. Two notes share an Event once in 64
// cases (controllers/kube/events.go): if the Event of a new address does not come, take another address.
func unreachable(name, family string, addresses ...string) publication {
	group := groupOf(addresses...).with("addressType", family)
	return publication{
		name: name, beside: []object{group}, event: "EndpointsRefused", words: []string{"honest", addresses[0]},
	}
}

// ignored are records that cause nothing.
func ignored(name string, records ...object) publication {
	return publication{name: name, records: records}
}

// sharing is an export of a victim's name with one endpoint.
func sharing(name, victim string, change func(export, group object)) publication {
	export, group := exportOf(thief, shop, victim), groupOf("10.66.8.8")
	change(export, group)
	return publication{
		name: name, records: []object{export.spec("endpoints", []object{group})}, shares: victim,
	}
}

var publications = []publication{
	unreachable("claim loopback addresses", "IPv4", "127.0.0.1", "127.8.8.8"),
	unreachable("claim the loopback address of IPv6", "IPv6", "::1"),
	unreachable("claim link-local addresses, which clouds use for credentials", "IPv4", "169.254.169.254"),
	unreachable("claim link-local addresses of IPv6", "IPv6", "fe80::1"),
	unreachable("claim the unspecified address", "IPv4", "0.0.0.0"),
	unreachable("claim multicast and broadcast addresses", "IPv4", "224.0.0.1", "255.255.255.255"),
	unreachable("claim metadata addresses of clouds", "IPv4", "168.63.129.16", "100.100.100.200"),
	unreachable("claim the metadata address of a cloud in IPv6", "IPv6", "fd00:ec2::254"),
	unreachable("claim IPv4 addresses inside of IPv6", "IPv6", "::ffff:127.0.0.1", "64:ff9b::7f00:1"),
	unreachable("claim addresses that a victim has reserved", "IPv4", "10.77.0.1"),
	unreachable("claim a name in place of an address", "IPv4", "evil.example"),
	unreachable("claim an address of the other family", "IPv4", "fd00:66::1"),
	unreachable("claim an address with leading zeros", "IPv4", "010.001.0.1"),
	unreachable("claim an address with a zone", "IPv6", "fd00::1%eth0"),

	refused("export one port name twice", "twice", func(o object) {
		o.spec(
			"ports",
			[]object{{"name": "x", "protocol": "TCP", "port": 80}, {"name": "x", "protocol": "TCP", "port": 81}},
		)
	}, "used twice"),
	refused("export one port number twice", "double", func(o object) {
		o.spec(
			"ports",
			[]object{{"name": "x", "protocol": "TCP", "port": 80}, {"name": "y", "protocol": "TCP", "port": 80}},
		)
	}, "used twice"),
	refused("export several ports without names", "unnamed", func(o object) {
		o.spec("ports", []object{{"protocol": "TCP", "port": 80}, {"protocol": "TCP", "port": 81}})
	}, "needs a name"),
	refused("export a port with a name that is none", "port", func(o object) {
		o.spec("ports", []object{{"name": "HTTP!", "protocol": "TCP", "port": 80}})
	}, "HTTP!"),
	refused("export an appProtocol that is none", "protocol", func(o object) {
		o.spec("ports", []object{{"name": "x", "protocol": "TCP", "port": 80, "appProtocol": "not one!"}})
	}, "appProtocol"),
	refused("export one family twice", "families", func(o object) { o.spec("ipFamilies", []string{"IPv4", "IPv4"}) },
		"ipFamilies"),
	refused("export an affinity of minus one second", "affinity", func(o object) {
		o.spec("sessionAffinityConfig", object{"clientIP": object{"timeoutSeconds": -1}})
	}, "timeout"),
	refused("export labels that are none", "labels", func(o object) {
		o.spec("exportedLabels", object{"not a key!": "x"})
	}, "exportedLabels"),
	refused("export more annotations than an import can have", "annotations", func(o object) {
		o.spec("exportedAnnotations", object{"big": strings.Repeat("x", 200<<10)})
	}, "too many"),
	refused(
		"export since the year 1",
		"date",
		func(o object) { o.spec("exportedAt", "0001-01-01T00:00:00Z") },
		"exportedAt",
	),
	{
		name:  "publish endpoints with one port twice",
		event: "RecordRefused",
		words: []string{"port 80/TCP is used twice"},
		beside: []object{groupOf("10.66.9.9").with("ports", []object{
			{"protocol": "TCP", "port": 80, "target": 1}, {"protocol": "TCP", "port": 80, "target": 2},
		})},
	},

	ignored("add endpoints to a victim's name without an export",
		pageOf(thief, shop, "web", 0, "10.66.9.9")),
	ignored("publish a page that its export does not count", pageOf(thief, open, "honest", 0, "10.66.9.9")),
	ignored("count 10,000 pages and publish none", exportOf(thief, open, "pages").spec("pages", 10000)),
	ignored("export into a namespace that refuses imports",
		exportOf(thief, closed, "web").spec("endpoints", []object{groupOf("10.66.9.9")})),
	ignored("export into a namespace that the victims do not have",
		exportOf(thief, nowhere, "web").spec("endpoints", []object{groupOf("10.66.9.9")})),
	ignored("withdraw and export at once", exportOf(thief, shop, "both").spec("withdrawn", true).
		spec("endpoints", []object{groupOf("10.66.9.9")}).
		spec("pages", 1), pageOf(thief, shop, "both", 0, "10.66.9.9")),
	ignored("send fields that the schema does not know", exportOf(thief, shop, "unknown").spec("withdrawn", true).
		spec("clusterIP", "10.96.0.10").
		spec("selector", object{"app": "bank"}).spec("externalIPs", []string{"10.9.9.9"})),

	sharing("state an old date", "web", func(export, _ object) {
		export.spec("exportedAt", "2001-01-01T00:00:00Z").spec("type", "Headless")
	}),
	sharing("state an old date for another port", "web", func(export, group object) {
		export.spec("exportedAt", "2001-01-01T00:00:00Z").
			spec("ports", []object{{"name": "http", "protocol": "UDP", "port": 8080}})
		group.with("ports", []object{{"protocol": "UDP", "port": 8080, "target": 8080}})
	}),
	sharing("state an old date for a port of no protocol", "web", func(export, _ object) {
		export.spec("exportedAt", "2001-01-01T00:00:00Z").
			spec("ports", []object{{"name": "http", "protocol": "ICMP", "port": 8080}})
	}),
	sharing("state an old date for another family", "web", func(export, group object) {
		export.spec("exportedAt", "2001-01-01T00:00:00Z").spec("ipFamilies", []string{"IPv6"})
		group.with("addressType", "IPv6").with("endpoints", endpoints("fd00:66::1"))
	}),
	sharing("state an old date for a local-only preference", "web", func(export, _ object) {
		export.spec("exportedAt", "2001-01-01T00:00:00Z").spec("preference", "local-only")
	}),
	sharing("state a date in the future", "web", func(export, _ object) {
		export.spec("exportedAt", "2100-01-01T00:00:00Z").spec("type", "Headless")
	}),
	sharing("forge when the hub created its record", "web", func(export, _ object) {
		export.meta("creationTimestamp", "2001-01-01T00:00:00Z").meta("uid", "11111111-1111-1111-1111-111111111111").
			meta("generation", 99).spec("exportedAt", "2001-01-01T00:00:00Z").spec("type", "Headless")
	}),
	sharing("put labels of the agent on an import", "db", func(export, _ object) {
		export.spec("exportedAt", "2001-01-01T00:00:00Z").
			spec("exportedLabels", object{"app.kubernetes.io/managed-by": "thief"}).
			spec("exportedAnnotations", object{"multicluster.kubernetes.io/derived-service": "kube-dns",
				"clusterset-dns.io/import": "kube-system/kube-dns"})
	}),
	sharing("claim a victim's endpoints", "web", func(_, group object) {
		group.with("endpoints", endpoints("10.1.0.1", "10.1.0.2", "10.2.0.1"))
	}),
	{name: "export again from a withdrawn record", run: func(ctx context.Context, w *world) error {
		o := exportOf(thief, shop, "returns").spec("withdrawn", true)
		if err := w.done(ctx, create("serviceexportrecords", o)); err != nil {
			return err
		}
		code, says := w.ask(ctx, w.update(ctx, "serviceexportrecords", o.spec("withdrawn", false).spec("revision", 2)))
		if code != http.StatusForbidden || !strings.Contains(says, "a withdrawn record stays withdrawn") {
			return fmt.Errorf("it returns: %d %s", code, says)
		}
		return w.done(ctx, remove("serviceexportrecords", o.name()))
	}},
	{
		name:   "delete and recreate a victim's name 15 times",
		shares: "web",
		run: func(ctx context.Context, w *world) error {
			export := exportOf(thief, shop, "web").spec("exportedAt", "2001-01-01T00:00:00Z").spec("type", "Headless")
			for range 15 {
				delete(export.at("metadata"), "resourceVersion")
				if err := errors.Join(
					w.done(ctx, create("serviceexportrecords", export)),
					w.done(ctx, remove("serviceexportrecords", export.name())),
				); err != nil {
					return err
				}
			}
			delete(export.at("metadata"), "resourceVersion")
			return errors.Join(w.done(ctx, create("serviceexportrecords", export)), w.withdraw(ctx, export))
		},
	},
	{name: "repeat its lowest revision after its highest", run: func(ctx context.Context, w *world) error {
		o := exportOf(thief, shop, "ends").spec("withdrawn", true).spec("revision", int64(1)<<53)
		if err := w.done(ctx, create("serviceexportrecords", o)); err != nil {
			return err
		}
		return w.done(ctx, w.update(ctx, "serviceexportrecords", o.spec("revision", 1)))
	}},
	{name: "say that it reaches no victim", run: func(ctx context.Context, w *world) error {
		o := ownLease(time.Now())
		o.meta("annotations", object{
			"clusterset-dns.io/unreachable": `{"a":"2026-01-01T00:00:00Z","b":"2026-01-01T00:00:00Z"}`,
		})
		return w.put(ctx, "leases", o)
	}},
	{name: "answer at 200 KB of addresses", run: func(ctx context.Context, w *world) error {
		o := ownLease(time.Now()).meta("annotations", object{
			"clusterset-dns.io/answers-at": strings.Repeat("127.0.0.1:1,", 17<<10),
		})
		return errors.Join(
			w.put(ctx, "leases", o),
			w.put(ctx, "leases", ownLease(time.Now())),
		)
	}},
	{name: "renew its Lease for a hundred years ahead", run: func(ctx context.Context, w *world) error {
		ahead := w.put(ctx, "leases", ownLease(time.Now().AddDate(100, 0, 0)))
		return errors.Join(ahead, w.put(ctx, "leases", ownLease(time.Now())))
	}},
	{name: "claim ranges that overlap everybody's", run: func(ctx context.Context, w *world) error {
		return w.done(ctx, request{
			method: http.MethodPatch, kind: mergeKind, path: path("clusterprofiles", thief) + "/status",
			body: body(object{}.set([]string{"status", "properties"}, []object{
				{"name": "service-ranges.clusterset-dns.io", "value": "10.0.0.0/8 fd00::/8"},
			})),
		})
	}},
	{name: "use a token of its own for another audience", run: func(ctx context.Context, w *world) error {
		r := tokenOf("mcs-"+thief, 3600)
		r.body = body(object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
			"spec": object{"expirationSeconds": 3600, "audiences": []string{"elsewhere"}}})
		code, answer := w.ask(ctx, r)
		if code != http.StatusCreated {
			return nil // refused before it can be used
		}
		got, err := asToken(answer)
		if err != nil {
			return err
		}
		list := request{method: http.MethodGet, path: path("serviceexportrecords", "")}
		if code, says := w.ask(ctx, withHeader(list, "Authorization", "Bearer "+got)); code != http.StatusUnauthorized {
			return fmt.Errorf("the hub takes a token for another audience: %d %.200s", code, says)
		}
		return nil
	}},
	{name: "run a second agent with copied credentials", run: func(ctx context.Context, w *world) error {
		code, says := w.ask(ctx, patch("clusterprofiles", thief,
			object{}.meta("annotations", object{"clusterset-dns.io/cluster-uid": "another"})))
		if code != http.StatusForbidden || !strings.Contains(says, "is in use by the cluster") {
			return fmt.Errorf("a claim that is in use: %d %s", code, says)
		}
		return nil
	}},
}

// resourceOf returns the resource of a record.
func resourceOf(o object) string {
	if o["kind"] == "EndpointPage" {
		return "endpointpages"
	}
	return "serviceexportrecords"
}

// withdraw ends a record, or deletes a page.
func (w *world) withdraw(ctx context.Context, o object) error {
	if o["kind"] == "EndpointPage" {
		return w.done(ctx, remove(resourceOf(o), o.name()))
	}
	spec, withdrawn := o.at("spec"), named(hubGroup, o["kind"].(string), o.name())
	for _, field := range []string{"clusterID", "serviceNamespace", "serviceName"} {
		if v, ok := spec[field]; ok {
			withdrawn.spec(field, v)
		}
	}
	withdrawn.spec("withdrawn", true).spec("pages", 0).spec("revision", int64(1)<<52)
	return w.done(ctx, w.update(ctx, resourceOf(o), withdrawn))
}
