package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func record(cluster string, age int,
	change func(*hubv1alpha1.ServiceExportRecordSpec)) hubv1alpha1.ServiceExportRecord {
	at := metav1.NewTime(start.Add(-time.Duration(age) * time.Hour))
	rec := hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{Name: "web.shop." + cluster}}
	rec.Spec = hubv1alpha1.ServiceExportRecordSpec{
		Origin: hubv1alpha1.Origin{
			ClusterID:        cluster,
			ServiceNamespace: "shop",
			ServiceName:      "web",
			Revision:         1,
		},
		ExportedAt: &at,
		Type:       mcsv1beta1.ClusterSetIP,
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		Ports:      []hubv1alpha1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
	}
	if change != nil {
		change(&rec.Spec)
	}
	return rec
}

func slice(cluster string, ready, notReady int) discoveryv1.EndpointSlice {
	name, proto, number := "http", corev1.ProtocolTCP, int32(8080)
	s := discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &proto, Port: &number}}}
	s.Namespace, s.Name = "shop", "derived-"+cluster
	s.Labels = map[string]string{mcsv1beta1.LabelServiceName: "web", mcsv1beta1.LabelSourceCluster: cluster}
	for i := range ready + notReady {
		yes := i < ready
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.0.%d.%d",
			cluster[0], i+1)}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}})
	}
	return s
}

// world is a cluster, with what the tests change most.
type world struct {
	*snapshot.Member
	Import   *mcsv1beta1.ServiceImport
	Corefile string
	Lacks    []snapshot.Part
}

// member is a cluster where two export web, which is imported and answers.
func member() *world {
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web",
		Labels: map[string]string{derived.LabelManagedBy: kube.Manager}}}
	imp.Spec = mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, IPs: []string{"10.96.0.7"},
		Ports: []mcsv1beta1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}}
	property := func(name, value string) aboutv1beta1.ClusterProperty {
		return aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}
	}
	return &world{
		Member: &snapshot.Member{
			Now: start, Version: "v1.36.0", Namespaces: []snapshot.Namespace{{Name: "shop"}},
			Properties: []aboutv1beta1.ClusterProperty{property(clusterset.PropertyID, "west"),
				property(clusterset.PropertySet, "blue")},
			Records: []hubv1alpha1.ServiceExportRecord{record("west", 1, nil), record("east", 2, nil)},
			Slices:  []discoveryv1.EndpointSlice{slice("west", 1, 0), slice("east", 2, 0)},
		},
		Import: imp, Corefile: ".:53 {\n multicluster\n}\n",
		// What the tests are not about.
		Lacks: []snapshot.Part{snapshot.Agent, snapshot.Membership, snapshot.Secret},
	}
}

func (f *world) explain() explain.Report {
	s := &snapshot.Snapshot{Member: f.Member, Unread: map[snapshot.Part]snapshot.Lack{}}
	at, seconds := metav1.NewTime(start), int32(40)
	agent := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: facts.AgentLease,
		ManagedFields: []metav1.ManagedFieldsEntry{{Time: &at}}}}
	agent.Spec.RenewTime, agent.Spec.LeaseDurationSeconds = &metav1.MicroTime{Time: start}, &seconds
	f.Leases = append(f.Leases, agent)
	if f.Imports = nil; f.Import != nil {
		f.Imports = []mcsv1beta1.ServiceImport{*f.Import}
	}
	f.DNS = dns.State{ConfigKey: "Corefile", Objects: platform.Objects{
		Config: &corev1.ConfigMap{Data: map[string]string{"Corefile": f.Corefile}}}}
	for i, p := range f.Lacks {
		lack := snapshot.Lack{Why: snapshot.NotNamed}
		if i > 2 {
			lack = snapshot.Lack{Why: "forbidden", Right: string(p)}
		}
		s.Unread[p] = lack
	}
	w := check.See(s, &web)
	return explain.Explain(w, check.Run(w))
}

func TestNamesAreReadAsUsersWriteThem(t *testing.T) {
	for _, in := range [][2]string{{"web.shop", ""}, {"web.shop.svc.cluster.local", ""},
		{"Web.Shop.svc.clusterset.local.", ""},
		{"web.shop.svc", "default"}, {"web", "shop"}, {"web.shop", "other"},
		{"_http._tcp.web.shop.svc.clusterset.local", ""}, {"db-0.east.web.shop.svc.clusterset.local.", ""}} {
		if got, err := explain.ParseName(in[0], in[1]); err != nil || got != web {
			t.Errorf("%v: %v %v", in, got, err)
		}
	}
	// A Service may be in a namespace that is called svc.
	for _, in := range []string{"web.svc", "web.svc.svc"} {
		if got, err := explain.ParseName(in, "default"); err != nil || got.String() != "svc/web" {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"web.svc.clusterset.local", "svc.clusterset.local"} {
		if got, err := explain.ParseName(in, "shop"); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
	for _, in := range []string{"web", "", "a.b.c", "_http._tcp.web.shop",
		"web.shop.svc.cluster.example", "-.shop"} {
		if got, err := explain.ParseName(in, ""); err == nil ||
			!strings.Contains(err.Error(), "SERVICE.NAMESPACE") {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestAHealthyNameHasAnswersAndNoProblem(t *testing.T) {
	r := member().explain()
	if r.Outcome != explain.Success || len(r.Findings) != 0 || len(r.Withheld) != 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Answers) != 2 || r.Answers[0].Data[0] != "10.96.0.7" ||
		r.Answers[1].Data[0] != "80 web.shop.svc.clusterset.local" {
		t.Errorf("answers %+v", r.Answers)
	}
	if len(r.Exporters) != 2 || r.Exporters[0].Cluster != "east" || r.Exporters[0].Ready != 2 ||
		!r.Exporters[1].Here {
		t.Errorf("exporters %+v", r.Exporters)
	}
}

func headless(f *world) {
	f.Import.Spec.Type, f.Import.Spec.IPs = mcsv1beta1.Headless, nil
	for i := range f.Records {
		f.Records[i].Spec.Type = mcsv1beta1.Headless
	}
}

func TestAHeadlessNameAnswersItsReadyEndpoints(t *testing.T) {
	f := member()
	headless(f)
	f.Slices[1] = slice("east", 1, 1)
	host := "db-0"
	f.Slices[1].Endpoints[0].Hostname = &host
	r := f.explain()
	if len(r.Answers) != 2 || len(r.Answers[0].Data) != 2 || len(r.Answers[1].Data) != 2 {
		t.Errorf("answers %+v", r.Answers)
	}
	if len(r.Hosts) != 2 || !strings.HasPrefix(r.Hosts[1], "db-0.east.") {
		t.Errorf("hosts %v", r.Hosts)
	}
	if x := r.Exporters[0]; x.Cluster != "east" || x.Ready != 1 || x.NotReady != 1 {
		t.Errorf("%+v", x)
	}
}

// TestN15EndpointsAreNamedAsCoreDNSNamesThem: by their host name, by their pod where the Corefile says so, by their
// address.
func TestN15EndpointsAreNamedAsCoreDNSNamesThem(t *testing.T) {
	host := "db-0"
	for option, want := range map[string][]string{"": {"10-0-119-2.", "db-0."},
		"endpoint_pod_names": {"db-0.", "web-7d9."}} {
		f := member()
		headless(f)
		f.Corefile = ".:53 {\n multicluster {\n" + option + "\n}\n}\n"
		f.Slices = []discoveryv1.EndpointSlice{slice("west", 2, 0)}
		f.Slices[0].Endpoints[0].Hostname = &host
		for i, name := range []string{"web-5c2", "web-7d9"} {
			f.Slices[0].Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: name}
		}
		r := f.explain()
		if len(r.Hosts) != 2 || !strings.HasPrefix(r.Hosts[0], want[0]+"west.") ||
			!strings.HasPrefix(r.Hosts[1], want[1]+"west.") {
			t.Errorf("%q: hosts %v, want %v", option, r.Hosts, want)
		}
	}
}

func condition(kind, status, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}
}

func gone(f *world) { f.Import, f.Slices = nil, nil }

// causes are planted one at a time: what is withheld, or noted of an exporter. package check has the findings.
var causes = []struct {
	name   string
	change func(*world)
	want   string // in what is printed
}{
	{"a port lost", func(f *world) { f.Records[0].Spec.Ports[0].Port = 81 },
		"an older export uses this port's name for another port"},
	{"no family in common", func(f *world) { f.Records[0].Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} },
		"ipFamilies              IPv4           what all have   west has IPv6"},
	{"a foreign slice", func(f *world) { f.Slices[0].Labels[mcsv1beta1.LabelSourceCluster] = "NOT_ONE" },
		"is no cluster ID"},
	{"a record that is nonsense", func(f *world) { f.Records[0].Spec.Type = "Other" },
		"the record is not valid"},
	{"a record that is held", func(f *world) {
		f.Records[0].Status.Conditions = []metav1.Condition{condition("Held", "True", "Absent",
			"the hub no longer shows it")}
	}, "held: the hub no longer shows it"},
	{"T3 a cluster that is damped", func(f *world) {
		damped := dead("east")
		damped.Annotations[liveness.AnnotationRenewingSince] = "2026-01-01T12:00:30Z"
		f.Leases = []coordinationv1.Lease{damped}
	}, "x cluster east has expired: it expired repeatedly, renews its Lease on the hub again since " +
		"2026-01-01T12:00:30Z, and counts as " +
		"live at most 5m0s after that; clients here do not get its endpoints (onExpiry: Remove)"},
	{"F4 a cluster that is not reached", func(f *world) {
		gone := dead("east")
		at := time.Date(2026, 1, 1, 12, 0, 9, 0, time.UTC)
		reach.Restored(reach.Stored{State: reach.Unreachable, Since: at}, at).Write(&gone, 0)
		f.Leases = []coordinationv1.Lease{gone}
	}, "x cluster east has expired: neither its agent nor its endpoints answered here at 2026-01-01T12:00:09Z, while " +
		"others did; clients here do not get its endpoints (onExpiry: Remove)"},
	{"a cluster whose agent is silent", func(f *world) {
		f.Leases = []coordinationv1.Lease{reached(reach.Serving)}
	}, "since 2026-01-01T12:00:09Z only its endpoints answer here, not its agent: they stay while it renews its " +
		"Lease, and for an hour even if that expires"},
	{"a cluster whose agent is silent, and no endpoint can be tried", func(f *world) {
		f.Leases = []coordinationv1.Lease{reached(reach.Silent)}
	}, "since 2026-01-01T12:00:09Z its agent does not answer here: its endpoints stay until its Lease has expired"},
	{"onExpiry keeps the endpoints", func(f *world) {
		kept := dead("east")
		liveness.State{Expired: true, OnExpiry: hubv1alpha1.ExpiryKeep}.Write(kept.Annotations)
		f.Leases = []coordinationv1.Lease{kept}
	}, "clients here still get its endpoints (onExpiry: Keep)"},
	{"a preference", func(f *world) {
		for i := range f.Records {
			f.Records[i].Spec.Preference = "prefer-local"
		}
		f.Slices[0].Labels["clusterset-dns.io/standby"] = "true"
	}, "no traffic from the VIP"},
}

// TestWhatIsNotCountedIsNotCounted: that no endpoint of it is here says nothing about the exporter.
func TestWhatIsNotCountedIsNotCounted(t *testing.T) {
	for name, edit := range map[string]func(*world){
		"foreign": func(f *world) {
			f.Records[0].Status.Conditions = []metav1.Condition{condition("Imported", "False", "NotOwned",
				"ServiceImport shop/web belongs to another program; kubectl annotate")}
			f.Slices = nil
		},
		"no namespace": func(f *world) {
			f.Namespaces = nil
			gone(f)
		},
	} {
		f := member()
		edit(f)
		r := f.explain()
		out := text(&r)
		if strings.Contains(out, "no ready endpoint") || !r.Exporters[0].NotCounted {
			t.Errorf("%s:\n%s", name, out)
		}
	}
}

func TestTheCauseIsNamed(t *testing.T) {
	for _, c := range causes {
		t.Run(c.name, func(t *testing.T) {
			sound := member().explain()
			f := member()
			c.change(f)
			r := f.explain()
			if was := text(&sound); strings.Contains(was, c.want) {
				t.Fatalf("it says so without a cause:\n%s", was)
			}
			if got := text(&r); !strings.Contains(got, c.want) {
				t.Errorf("no %q in:\n%s", c.want, got)
			}
		})
	}
}

// reached is the Lease of east, whose agent has been in a state since a time.
func reached(state reach.State) coordinationv1.Lease {
	lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{liveness.LabelSource: "east"}, Annotations: map[string]string{}}}
	at := time.Date(2026, 1, 1, 12, 0, 9, 0, time.UTC)
	reach.Restored(reach.Stored{State: state, Since: at}, at).Write(&lease, 0)
	return lease
}

func text(r *explain.Report) string {
	var out strings.Builder
	explain.Print(&out, r, true, start)
	return out.String()
}

func TestTheOldestWinsAndOthersAreNamed(t *testing.T) {
	f := member()
	f.Records[0].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	f.Records[0].Spec.Ports = append(f.Records[0].Spec.Ports, hubv1alpha1.ServicePort{Name: "admin",
		Protocol: corev1.ProtocolTCP, Port: 9000})
	r := f.explain()
	got := map[string]check.Property{}
	for _, p := range r.Properties {
		got[p.Name+" "+p.Value] = p
	}
	if p := got["sessionAffinity None"]; p.From != "east" || p.Others["west"] != "ClientIP" {
		t.Errorf("%+v", r.Properties)
	}
	if p := got["port admin 9000/TCP"]; p.From != "west" || p.Others["east"] != "no such port" {
		t.Errorf("%+v", r.Properties)
	}
}

// outside is a slice for clients outside the clusters.
func outside(cluster, address, weight string, up bool) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web." + cluster,
			Labels:      map[string]string{external.Label: "web", mcsv1beta1.LabelSourceCluster: cluster},
			Annotations: map[string]string{external.AnnotationWeight: weight, external.AnnotationRegion: "eu"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &up},
		}},
	}
}

// TestF5WhatClientsOutsideGet: which clusters take part, with which share, and why others do not.
func TestF5WhatClientsOutsideGet(t *testing.T) {
	for name, c := range map[string]struct {
		outside []discoveryv1.EndpointSlice
		want    string
	}{
		"by weight": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "100", true),
				outside("west", "192.0.2.2", "300", true)},
			"east 192.0.2.1 yes 100 25% eu, west 192.0.2.2 yes 300 75% eu",
		},
		"one is drained": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "0", true),
				outside("west", "192.0.2.2", "100", true)},
			"east 192.0.2.1 yes 0 0% eu, west 192.0.2.2 yes 100 100% eu",
		},
		"one without ready endpoints, and the other drained": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "0", true),
				outside("north", "192.0.2.3", "100", false)},
			"east 192.0.2.1 yes 0 100% eu, north 192.0.2.3 no 100 0% eu no endpoint of the Service is ready there",
		},
		"none is up": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "100", false)},
			"east 192.0.2.1 no 100 100% eu more than half of the other live members do not reach it, or no endpoint " +
				"is ready there: kubectl clusterset status",
		},
		"one without a valid address": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "100", true),
				outside("west", "192.0.2.256", "100", true)},
			"east 192.0.2.1 yes 100 100% eu",
		},
		"one that has expired here": {
			[]discoveryv1.EndpointSlice{outside("east", "192.0.2.1", "100", true),
				outside("south", "192.0.2.4", "100", false)},
			"east 192.0.2.1 yes 100 100% eu, south 192.0.2.4 no 100 0% eu more than half of the other live members " +
				"do not reach it, or no endpoint is ready there: kubectl clusterset status",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := member()
			f.Records = append(f.Records, record("north", 1, nil), record("south", 1, nil))
			f.Leases = []coordinationv1.Lease{dead("south")}
			f.Outside = c.outside
			var text strings.Builder
			r := f.explain()
			explain.Print(&text, &r, false, start)
			_, table, _ := strings.Cut(text.String(), "FOR CLIENTS OUTSIDE")
			var rows []string
			for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
				rows = append(rows, strings.Join(strings.Fields(line), " "))
			}
			if got := strings.Join(rows, ", "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
