package serviceimport

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// plane is an API server with the indexes of one side.
func plane(t *testing.T, side kube.Side, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme,
		mcsv1beta1.Install, aboutv1beta1.AddToScheme,
		hubv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().
		WithScheme(scheme).
		WithObjects(objects...).
		WithStatusSubresource(&mcsv1beta1.ServiceImport{}, &hubv1alpha1.ServiceExportRecord{})
	for _, x := range kube.Indexes() {
		if x.Side == side {
			b = b.WithIndex(x.Object, x.Field, x.Values)
		}
	}
	return b.Build()
}

// record is one of a cluster's export of shop/web, of the type that needs no VIP.
func record(cluster, namespace string) *hubv1alpha1.ServiceExportRecord {
	rec := &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterset.RecordName("web", "shop", cluster)},
	}
	rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: cluster, ServiceNamespace: "shop", ServiceName: "web", Revision: 1}
	rec.Spec.Type, rec.Spec.ExportedAt, rec.Spec.IPFamilies = mcsv1beta1.Headless, &metav1.Time{
		Time: time.Unix(100, 0),
	}, []corev1.IPFamily{
		"IPv4",
	}
	if namespace == "set" {
		rec.CreationTimestamp = metav1.Unix(100, 0)
		rec.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []hubv1alpha1.Endpoint{{Address: "10.0.0.1"}},
		}}
	}
	return rec
}

// imported is what b has imported of shop/web from these clusters, each with one endpoint.
func imported(clusters ...string) (objects []client.Object) {
	imp := &mcsv1beta1.ServiceImport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      "web",
			UID:       "i",
			Labels:    map[string]string{derived.LabelManagedBy: kube.Manager},
		},
	}
	imp.Spec.Type, imp.Spec.IPFamilies = mcsv1beta1.Headless, []corev1.IPFamily{"IPv4"}
	merged := conflict.Merged{Type: mcsv1beta1.Headless, Names: map[string]map[clusterset.PortKey]string{}}
	want := &endpoints.Import{
		Namespace: "shop",
		Name:      "web",
		UID:       "i",
		Derived:   derived.Name("shop", "web"),
		Manager:   kube.Manager,
		Merged:    &merged,
	}
	for _, cluster := range clusters {
		imp.Status.Clusters = append(imp.Status.Clusters, mcsv1beta1.ClusterStatus{Cluster: cluster})
		src := &endpoints.Source{Name: endpoints.SourceName(0, cluster), ClusterID: cluster, Created: 100, Revision: 1}
		src.EndpointGroup = record(cluster, "set").Spec.Endpoints[0]
		objects = append(objects, endpoints.Desired(src, want))
	}
	return append(objects, imp, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
}

// pass makes one in b, and tells what is imported then: the clusters of the slices, if the import is there.
func pass(t *testing.T, local, hub client.Client) (sources string, imp *mcsv1beta1.ServiceImport, again time.Duration) {
	t.Helper()
	env := Config{
		Member: kube.Member{
			Events:       &member{},
			Cluster:      "b",
			HubNamespace: "set",
			Local:        local,
			Now:          func() time.Time { return time.Unix(1000, 0) },
			Hub:          func() client.Client { return hub },
			Families:     func(context.Context) ([]corev1.IPFamily, error) { return []corev1.IPFamily{"IPv4"}, nil },
		},
		Gateways: func() bool { return false },
	}
	r := New(env).Reconciler
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	res, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: name})
	if err != nil {
		t.Fatal(err)
	}
	var list discoveryv1.EndpointSliceList
	if err := local.List(t.Context(), &list, client.InNamespace("shop")); err != nil {
		t.Fatal(err)
	}
	var of []string
	for _, s := range list.Items {
		of = append(of, s.Labels[mcsv1beta1.LabelSourceCluster])
	}
	slices.Sort(of)
	if imp, err = kube.Get[*mcsv1beta1.ServiceImport](t.Context(), local, name); err != nil {
		t.Fatal(err)
	}
	return strings.Join(of, " "), imp, res.RequeueAfter
}

// departure is a ClusterSet that lists a as departed then.
func departure(at int64) *hubv1alpha1.ClusterSet {
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "set"}}
	set.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "a", At: metav1.Unix(at, 0)}}
	return set
}

// TestALostCopyRetiresNothing: a missing copy of another member's record proves nothing about that member (DESIGN §2).
// Only a withdrawal, or a departure after the record was created, ends what was imported.
func TestALostCopyRetiresNothing(t *testing.T) {
	withdrawn, nonsense := record("a", "set"), record("a", "set")
	withdrawn.Spec.Withdrawn, nonsense.Spec.Type = true, "ExternalName"
	earlier := withdrawn.DeepCopy()
	earlier.CreationTimestamp, earlier.Spec.Revision = metav1.Unix(99, 0), 0
	hub := func(objects ...client.Object) client.Client { return plane(t, kube.Hub, objects...) }
	second := departure(99) // of two ClusterSets
	second.Name = "set2"
	for _, c := range []struct {
		name string
		hub  client.Client
		want string
		lost bool
	}{
		{"no hub since this agent began", nil, "a", true},
		{"the hub shows it", hub(record("a", "set")), "a", false}, // it is copied again
		{"the hub shows nonsense", hub(nonsense), "a", true},
		{"the hub lost it too", hub(), "a", true},
		{"its owner departed", hub(departure(101)), "", false},
		{"its owner departed, by one of two ClusterSets", hub(departure(101), second), "", false},
		{"its owner departed before, and joined again", hub(departure(99)), "a", true},
		{"it is withdrawn", hub(withdrawn), "", false},
		{"a restored hub shows that one before it was withdrawn", hub(earlier), "a", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, imp, again := pass(t, plane(t, kube.Local, imported("a")...), c.hub)
			if got != c.want || (imp != nil) != (c.want != "") {
				t.Errorf("endpoints of %q, want %q; import: %v", got, c.want, imp)
			}
			if (again == recheck) != c.lost {
				t.Errorf("it is looked at again after %v", again)
			}
		})
	}
}

// TestADepartureEndsWhatWasCopied, also while the hub has two ClusterSets: no setting says otherwise.
func TestADepartureEndsWhatWasCopied(t *testing.T) {
	second := departure(99)
	second.Name = "set2"
	copied := record("a", kube.SystemNamespace)
	clusterset.SetPublished(copied, record("a", "set"), time.Time{})
	local := plane(t, kube.Local, append(imported("a"), copied)...)
	got, imp, _ := pass(t, local, plane(t, kube.Hub, departure(101), second))
	copies, err := kube.Copies(t.Context(), local, types.NamespacedName{Namespace: "shop", Name: "web"})
	if got != "" || imp != nil || len(copies) > 0 || err != nil {
		t.Errorf("endpoints of %q, import %v, copies %v; %v", got, imp, copies, err)
	}
}

// TestI2ALateWithdrawalIsNotTheLastWord: an API server that was away may write what the agent sent it long before,
// here that the export is over, when its owner has exported it again since.
func TestI2ALateWithdrawalIsNotTheLastWord(t *testing.T) {
	over := record("a", kube.SystemNamespace)
	over.Spec = clusterset.Withdrawn(over.Spec.Origin, time.Unix(900, 0))
	at := func(revision int64, edit func(*hubv1alpha1.ServiceExportRecord)) client.Client {
		rec := record("a", "set")
		rec.Spec.Revision = revision
		edit(rec)
		return plane(t, kube.Hub, rec)
	}
	as := func(*hubv1alpha1.ServiceExportRecord) {}
	for _, c := range []struct {
		name string
		hub  client.Client
		want string
	}{
		{"exported again since", at(over.Spec.Revision+1, as), "a"},
		{"the hub is behind", at(over.Spec.Revision-1, as), ""},
		{"again, and over again", at(over.Spec.Revision+1,
			func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.Withdrawn = true }), ""},
		{"again, as nonsense", at(over.Spec.Revision+1,
			func(r *hubv1alpha1.ServiceExportRecord) { r.Spec.Type = "ExternalName" }), ""},
		{"the hub shows none", plane(t, kube.Hub), ""},
		{"no hub", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, imp, _ := pass(
				t, plane(t, kube.Local, append(imported("a"), over.DeepCopy())...), c.hub,
			); got != c.want ||
				(imp != nil) != (c.want != "") {
				t.Errorf("endpoints of %q, want %q; import: %v", got, c.want, imp)
			}
		})
	}
}

// TestALostCopyOfWhatHasNoEndpoints keeps the import all the same.
func TestALostCopyOfWhatHasNoEndpoints(t *testing.T) {
	objects := slices.DeleteFunc(
		imported("a"), func(o client.Object) bool { _, is := o.(*discoveryv1.EndpointSlice); return is },
	)
	if _, imp, _ := pass(t, plane(t, kube.Local, objects...), nil); imp == nil {
		t.Error("the import is gone")
	}
}

// TestALostCopyAmongOthers is written again in this pass. If the hub has lost the record, too, the others' endpoints
// are followed, and those of the lost one's cluster stay.
func TestALostCopyAmongOthers(t *testing.T) {
	none := record("c", "set")
	none.Spec.Endpoints, none.Spec.Revision = nil, 2
	for _, c := range []struct {
		name  string
		hub   client.Client
		want  string
		again time.Duration
	}{
		{"the hub shows it", plane(t, kube.Hub, record("a", "set"), record("c", "set")), "a c", 0},
		{"c has deleted its slice, and the hub lost the record of a", plane(t, kube.Hub, none), "a", recheck},
	} {
		t.Run(c.name, func(t *testing.T) {
			local := plane(t, kube.Local, append(imported("a", "c"), record("c", kube.SystemNamespace))...)
			got, imp, again := pass(t, local, c.hub)
			if got != c.want || imp == nil || len(imp.Status.Clusters) != 2 || again != c.again {
				t.Errorf("endpoints of %q, want %q; again after %v; import %+v", got, c.want, again, imp)
			}
		})
	}
}

// TestACopyThatCannotBeReadTakesNothingFromTheImport: what its cluster may have given stays, whatever it is; the
// others add to it and leave it as ever. Who joins with such a record holds nothing.
func TestACopyThatCannotBeReadTakesNothingFromTheImport(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	port := func(name string, number int32) hubv1alpha1.ServicePort {
		return hubv1alpha1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number}
	}
	m.export("c", "10.3.0.1")
	m.export("d", "10.4.0.1")
	readable := func(rec *hubv1alpha1.ServiceExportRecord) { // the oldest
		rec.Spec.Type, rec.Spec.ExportedAt, rec.Spec.ExportedLabels = mcsv1beta1.ClusterSetIP, &metav1.Time{
			Time: time.Unix(100, 0),
		}, map[string]string{
			"team": "shop",
		}
		rec.Spec.Ports = []hubv1alpha1.ServicePort{port("http", 80), port("admin", 8080)}
	}
	m.edit("d", readable)
	sees := func(what, clusters, endpoints string, ports ...int32) {
		t.Helper()
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		imp, svc := &mcsv1beta1.ServiceImport{}, &corev1.Service{}
		if err := errors.Join(
			m.local.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, imp),
			m.local.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: derived.Name("shop", "web")}, svc),
		); err != nil {
			t.Fatal(err)
		}
		var in, vip []int32
		for _, p := range imp.Spec.Ports {
			in = append(in, p.Port)
		}
		for _, p := range svc.Spec.Ports {
			vip = append(vip, p.Port)
		}
		of := ""
		for _, c := range imp.Status.Clusters {
			of += c.Cluster
		}
		if of != clusters || imp.Spec.Type != mcsv1beta1.ClusterSetIP || len(imp.Spec.IPs) != 1 ||
			imp.Labels["team"] != "shop" ||
			!slices.Equal(in, ports) ||
			!slices.Equal(vip, ports) {
			t.Errorf("%s: the Service has ports %v, and the import is %+v of %q", what, vip, imp.Spec, of)
		}
		if got := strings.Join(slices.Sorted(maps.Keys(m.imported())), ""); got != endpoints {
			t.Errorf("%s: endpoints of %q, want %q", what, got, endpoints)
		}
	}
	newer := func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = "Newer" }
	sees("at first", "cd", "cd", 80, 8080)
	m.edit("d", newer) // the hub shows the same, or the copy would follow it
	m.editCopy("d", newer)
	sees("unreadable", "cd", "cd", 80, 8080)
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
		rec.Spec.Ports = append(rec.Spec.Ports, port("more", 90))
		rec.Spec.Ports[0].Name = "web"
	})
	sees("another adds a port", "cd", "cd", 80, 8080, 90)
	m.export("e", "10.5.0.1")
	m.edit("e", newer)
	sees("another joins with nonsense", "cd", "cd", 80, 8080, 90)
	m.export("b", "10.2.0.1")
	sees("another joins", "bcd", "bcd", 80, 8080, 90)
	for _, cluster := range []string{"b", "c"} {
		m.edit(cluster, func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Withdrawn = true })
	}
	sees("all others withdraw", "d", "d", 80, 8080, 90)
	m.edit("d", readable)
	sees("it is read again", "d", "d", 80, 8080)
}

// TestALostCopyOfItsOwn stays until serviceexport has written it again, which it does where there is something to
// export.
func TestALostCopyOfItsOwn(t *testing.T) {
	export := func(valid metav1.ConditionStatus) *mcsv1beta1.ServiceExport {
		e := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		e.Status.Conditions = []metav1.Condition{{Type: string(mcsv1beta1.ServiceExportConditionValid), Status: valid}}
		return e
	}
	for _, c := range []struct {
		name string
		with []client.Object
		want string
	}{
		{"exported", []client.Object{export(metav1.ConditionTrue)}, "b"},
		{"nothing to export", []client.Object{export(metav1.ConditionFalse)}, ""},
		{"not exported", nil, ""},
	} {
		if got, imp, _ := pass(t, plane(t, kube.Local, append(imported("b"), c.with...)...), nil); got != c.want ||
			(imp != nil) != (c.want != "") {
			t.Errorf("%s: endpoints of %q, want %q; import: %v", c.name, got, c.want, imp)
		}
	}
}

// TestAnOwnRecordThatIsRefusedHoldsUpNobodyElse: a quota of clusterset-system refuses it, say, and its ServiceExport
// says so. What others publish is followed. This cluster's share stays as it is, as it does while serviceexport is
// about to write the record.
func TestAnOwnRecordThatIsRefusedHoldsUpNobodyElse(t *testing.T) {
	for reason, want := range map[string]string{"Pending": "10.3.0.2", "Failed": "10.3.0.2"} {
		m := newMember(t)
		m.export("c", "10.3.0.1")
		m.export("a", "10.1.0.1")
		native := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}}}}
		export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		if err := errors.Join(
			m.local.Create(t.Context(), native), m.local.Create(t.Context(), export), m.pass(),
		); err != nil {
			t.Fatal(err)
		}
		if m.imported()["a"] == nil || m.imported()["c"] == nil {
			t.Fatal(m.imported())
		}
		own := &hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{
			Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", "shop", "a"),
		}}
		export.Status.Conditions = []metav1.Condition{
			{Type: "Valid", Status: metav1.ConditionTrue, Reason: "Valid"},
			{Type: "Ready", Status: metav1.ConditionFalse, Reason: reason},
		}
		m.editGroup("c", func(g *hubv1alpha1.EndpointGroup) { g.Endpoints[0].Address = "10.3.0.2" })
		if err := errors.Join(
			m.local.Delete(t.Context(), own), m.local.Status().Update(t.Context(), export), m.pass(),
		); err != nil {
			t.Fatal(err)
		}
		if got := m.imported(); got["a"] == nil || got["a"].Endpoints[0].Addresses[0] != "10.1.0.1" ||
			got["c"].Endpoints[0].Addresses[0] != want {
			t.Errorf("%s: %+v, want %s of c", reason, got, want)
		}
		if slices.Contains(m.told, "RecordLost") {
			t.Errorf("%s: Events %q", reason, m.told)
		}
	}
}

// TestALabelIsNoShare (I9): a slice that a user has made, and called another cluster's, or an import that is a
// user's, keeps nothing.
func TestALabelIsNoShare(t *testing.T) {
	objects := imported("a")
	objects[0].GetLabels()[mcsv1beta1.LabelSourceCluster] = "nobody"
	objects[0].SetName("mine")
	objects[1].(*mcsv1beta1.ServiceImport).Labels = nil
	objects[0].SetOwnerReferences(nil)
	if got, _, _ := pass(t, plane(t, kube.Local, objects...), nil); got != "" {
		t.Errorf("endpoints of %s stay", got)
	}
}

// TestASliceWithAShortNameIsNoneOfOurs: a user has given it the agent's labels. It stays, as the rest of its cluster's
// share does.
func TestASliceWithAShortNameIsNoneOfOurs(t *testing.T) {
	objects := imported("a")
	mine := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	mine.Namespace, mine.Name, mine.Labels = "shop", "mine", maps.Clone(objects[0].GetLabels())
	if got, _, _ := pass(t, plane(t, kube.Local, append(objects, mine)...), nil); got != "a a" {
		t.Errorf("endpoints of %q stay, want both slices of a", got)
	}
}
