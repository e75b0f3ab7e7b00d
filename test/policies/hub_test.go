package policies

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// A member does with its own all that an agent does.
func TestMembersWriteTheirOwn(t *testing.T) {
	e := setUp(t)
	for _, id := range memberIDs {
		t.Run(id, func(t *testing.T) {
			ctx, c := t.Context(), e.members[id]
			for _, o := range []client.Object{exportRecord(id, "own"), endpointPage(id, "own")} {
				must(t, c.Create(ctx, o))
				o.SetAnnotations(map[string]string{"example.org/any": "thing"})
				origin := originOf(o)
				origin.Revision = 3
				if export, ok := o.(*hubv1alpha1.ServiceExportRecord); ok {
					export.Spec.Withdrawn = true
				}
				must(t, c.Update(ctx, o))
				must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(o), o))
				if got := originOf(o); got.Revision != 3 ||
					o.GetAnnotations()["example.org/any"] != "thing" {
					t.Errorf("%T: written as %+v", o, got)
				}
				must(t, c.Delete(ctx, o))
			}
			l := lease(home, id)
			must(t, c.Create(ctx, l))
			holder := "another pod"
			l.Spec.HolderIdentity = &holder
			must(t, c.Update(ctx, l))
			must(t, e.admin.Delete(ctx, l))
			must(t, requestToken(ctx, c, home, "mcs-"+id, 24*60*60))
			must(t, requestToken(ctx, c, home, "mcs-"+id, 60*60))
		})
	}
}

func TestMembersReadTheWholeClusterSet(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	foreign := exportRecord("a", "read")
	must(t, e.members["a"].Create(ctx, foreign))
	t.Cleanup(func() { must(t, e.admin.Delete(context.WithoutCancel(ctx), foreign)) })
	c := e.members["b"]
	var records hubv1alpha1.ServiceExportRecordList
	must(t, c.List(ctx, &records, client.InNamespace(home)))
	if !slices.ContainsFunc(
		records.Items,
		func(r hubv1alpha1.ServiceExportRecord) bool { return r.Name == foreign.Name },
	) {
		t.Errorf("b does not see %s among %d records", foreign.Name, len(records.Items))
	}
	var sets hubv1alpha1.ClusterSetList
	must(t, c.List(ctx, &sets, client.InNamespace(home)))
	if len(sets.Items) != 1 || sets.Items[0].Name != home {
		t.Errorf("ClusterSets in %s: %v", home, sets.Items)
	}
	must(t, c.List(ctx, &hubv1alpha1.EndpointPageList{}, client.InNamespace(home)))
	refused(
		t,
		c.List(ctx, &hubv1alpha1.ServiceExportRecordList{}, client.InNamespace(other)),
		"cannot list resource",
	)
	refused(t, c.List(ctx, &hubv1alpha1.ServiceExportRecordList{}), "cannot list resource")
}

func originOf(o client.Object) *hubv1alpha1.Origin {
	switch r := o.(type) {
	case *hubv1alpha1.ServiceExportRecord:
		return &r.Spec.Origin
	case *hubv1alpha1.EndpointPage:
		return &r.Spec.Origin
	}
	panic(fmt.Sprintf("%T is no record", o))
}

// forgedName is the name of a record or page like this one, of a Service forged.
func forgedName(o client.Object) string {
	of := originOf(o)
	if page, ok := o.(*hubv1alpha1.EndpointPage); ok {
		return clusterset.PageName(page.Spec.Number, "forged", of.ServiceNamespace, of.ClusterID)
	}
	return clusterset.RecordName("forged", of.ServiceNamespace, of.ClusterID)
}

// attack is what a member might try on a record of another.
type attack struct {
	name string
	try  func(ctx context.Context, as client.Client, record client.Object) error
}

var attacks = []attack{
	{"forge", func(ctx context.Context, as client.Client, record client.Object) error {
		forged := record.DeepCopyObject().(client.Object)
		forged.SetResourceVersion("")
		forged.SetUID("")
		forged.SetName(forgedName(forged))
		originOf(forged).ServiceName = "forged"
		return as.Create(ctx, forged)
	}},
	{"forge by server-side apply", func(ctx context.Context, as client.Client, record client.Object) error {
		name, o := forgedName(record), originOf(record)
		kind, rest := "EndpointPage", "number: 7, addressType: IPv4"
		if _, ok := record.(*hubv1alpha1.ServiceExportRecord); ok {
			kind, rest = "ServiceExportRecord", "withdrawn: true"
		}
		fresh := record.DeepCopyObject().(client.Object)
		fresh.SetName(name)
		return as.Patch(ctx, fresh, client.RawPatch(types.ApplyYAMLPatchType, fmt.Appendf(
			nil,
			`{apiVersion: hub.clusterset-dns.io/v1alpha1, kind: %s, metadata: {name: %q, namespace: %q},
				spec: {clusterID: %q, serviceNamespace: shop, serviceName: forged, revision: 9, %s}}`,
			kind,
			name,
			home,
			o.ClusterID,
			rest,
		)), client.FieldOwner("attacker"), client.ForceOwnership)
	}},
	{"update", func(ctx context.Context, as client.Client, record client.Object) error {
		originOf(record).Revision = 99
		return as.Update(ctx, record)
	}},
	{"annotate", func(ctx context.Context, as client.Client, record client.Object) error {
		return as.Patch(
			ctx,
			record,
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)),
		)
	}},
	{"withdraw", func(ctx context.Context, as client.Client, record client.Object) error {
		return as.Patch(
			ctx,
			record,
			client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/withdrawn","value":true}]`)),
		)
	}},
	{
		"delete",
		func(ctx context.Context, as client.Client, record client.Object) error { return as.Delete(ctx, record) },
	},
	{"delete the collection", func(ctx context.Context, as client.Client, record client.Object) error {
		return as.DeleteAllOf(ctx, record, client.InNamespace(home))
	}},
}

// The IDs are chosen so that the owner's is the attacker's end, or the other way round.
func TestRecordsOfOthersAreOutOfReach(t *testing.T) {
	e := setUp(t)
	rights := []struct {
		name    string
		clients map[string]client.Client
		pairs   [][2]string // attacker, owner
		says    map[string]string
	}{
		{
			"with the shipped rights",
			e.members,
			[][2]string{{"b", "a"}, {"x.b", "b"}, {"b", "x.b"}},
			map[string]string{
				"delete the collection":      "cannot deletecollection resource",
				"annotate":                   "cannot patch resource",
				"withdraw":                   "cannot patch resource",
				"forge by server-side apply": "cannot patch resource",
			},
		},
		{"with every right", e.mighty, [][2]string{{"n", "m"}, {"x.n", "n"}, {"n", "x.n"}}, nil},
	}
	for _, r := range rights {
		for _, pair := range r.pairs {
			attacker, owner := pair[0], pair[1]
			for _, kind := range []client.Object{exportRecord(owner, "target"), endpointPage(owner, "target")} {
				for _, a := range attacks {
					t.Run(
						fmt.Sprintf("%s/%s attacks %s/%T/%s", r.name, attacker, owner, kind, a.name),
						func(t *testing.T) {
							ctx := t.Context()
							record := kind.DeepCopyObject().(client.Object)
							must(t, r.clients[owner].Create(ctx, record))
							t.Cleanup(func() {
								must(
									t,
									client.IgnoreNotFound(r.clients[owner].Delete(context.WithoutCancel(ctx), record)),
								)
							})
							before := record.DeepCopyObject().(client.Object)
							says := r.says[a.name]
							if says == "" {
								says = fmt.Sprintf(
									"cluster %s does not write the records of cluster %s",
									attacker,
									owner,
								)
							}
							refused(
								t,
								a.try(ctx, r.clients[attacker], record.DeepCopyObject().(client.Object)),
								says,
							)
							must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(record), record))
							if record.GetResourceVersion() != before.GetResourceVersion() {
								t.Errorf("was changed")
							}
						},
					)
				}
			}
		}
	}
}

// deletecollection goes object by object: what it may, it deletes; it stops at the first that it may not.
func TestNoCollectionTakesAnothersRecordAlong(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	for _, id := range mightyIDs {
		must(t, e.mighty[id].Create(ctx, exportRecord(id, "collected")))
		t.Cleanup(func() {
			must(
				t,
				client.IgnoreNotFound(e.admin.Delete(context.WithoutCancel(ctx), exportRecord(id, "collected"))),
			)
		})
	}
	refused(
		t,
		e.mighty["n"].DeleteAllOf(ctx, &hubv1alpha1.ServiceExportRecord{}, client.InNamespace(home)),
		"cluster n does not write the records of cluster",
	)
	for _, id := range []string{"m", "x.n"} {
		must(
			t,
			e.admin.Get(
				ctx,
				client.ObjectKeyFromObject(exportRecord(id, "collected")),
				&hubv1alpha1.ServiceExportRecord{},
			),
		)
	}
}

// A name that ends like a member's id is not that member's: x.b's names all end with .b.
func TestNamesBelongToOneMember(t *testing.T) {
	e := setUp(t)
	export := func(id, name string) client.Object {
		r := exportRecord(id, "web")
		r.Name = name
		return r
	}
	endpoints := func(id, name string) client.Object {
		r := endpointPage(id, "web")
		r.Name = name
		return r
	}
	like := endpointPage("b", "web") // the page of b for x/web looks like one of x.b
	like.Name, like.Spec.ServiceNamespace = "7.web.x.b", "x"
	const exportRule = "metadata.name must be <serviceName>.<serviceNamespace>.<clusterID>"
	const endpointRule = "metadata.name must be <number>.<serviceName>.<serviceNamespace>.<clusterID>"
	for _, c := range []struct {
		as     string
		object client.Object
		says   string
	}{
		{"b", export("b", "web.shop.x.b"), exportRule},
		{"b", export("b", "web.shop.a"), exportRule},
		{"b", export("b", "web.b"), exportRule},
		{"b", export("b", "b"), exportRule},
		{"x.b", export("x.b", "web.shop.b"), exportRule},
		{"b", endpoints("b", "7.web.shop.x.b"), endpointRule},
		{"b", endpoints("b", "7.web.shop.a"), endpointRule},
		{"b", endpoints("b", "web.shop.b"), endpointRule},
		{"b", endpoints("b", "b"), endpointRule},
		{"x.b", endpoints("x.b", "7.shop.x.b"), endpointRule},
		{"x.b", endpoints("x.b", "7.web.shop.b"), endpointRule},
		{"x.b", like, "cluster x.b does not write the records of cluster b"},
	} {
		t.Run(fmt.Sprintf("%s makes %T %s", c.as, c.object, c.object.GetName()), func(t *testing.T) {
			refused(t, e.members[c.as].Create(t.Context(), c.object), c.says)
		})
	}
}

func TestMembersStayInTheirClusterSet(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	elsewhere := func(id string) client.Object {
		r := exportRecord(id, "elsewhere")
		r.Namespace = other
		return r
	}
	const outside = "is a member in namespace clusterset and writes nothing in blue"
	refused(t, e.members["a"].Create(ctx, elsewhere("a")), "cannot create resource")
	refused(t, e.members["a"].Create(ctx, lease(other, "a")), "cannot create resource")
	refused(t, e.mighty["m"].Create(ctx, elsewhere("m")), outside)
	refused(t, e.mighty["m"].Create(ctx, lease(other, "m")), outside)
	refused(t, requestToken(ctx, e.mighty["m"], other, "default", 3600), "asks for tokens of its own only")
}

// The member's copies are the agent's, whichever cluster they speak of; the hub's policies have no part in them.
func TestHubMayBeAMember(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	for _, id := range memberIDs {
		c := exportRecord(id, "copied")
		c.Namespace = system
		must(t, e.agent.Create(ctx, c))
		before := c.DeepCopy()
		c.Status.Conditions = []metav1.Condition{
			{
				Type:               hubv1alpha1.ConditionHeld,
				Status:             metav1.ConditionTrue,
				Reason:             "Absent",
				LastTransitionTime: metav1.Now(),
			},
		}
		must(t, e.agent.Status().Patch(ctx, c, client.MergeFrom(before)))
		c.Spec.Revision = 2
		must(t, e.agent.Update(ctx, c))
		must(t, e.agent.Delete(ctx, c))
	}
	refused(t, e.agent.Create(ctx, exportRecord("a", "hub")), "cannot create resource")
	refused(
		t,
		e.members["a"].Create(
			ctx,
			func() client.Object { r := exportRecord("a", "system"); r.Namespace = system; return r }(),
		),
		"cannot create resource",
	)
}

func TestHubAdminIsNotHeldUp(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	must(t, e.members["a"].Create(ctx, exportRecord("a", "evicted")))
	must(t, e.members["a"].Create(ctx, lease(home, "a")))
	must(
		t,
		e.admin.Patch(
			ctx,
			exportRecord("a", "evicted"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.org/look"]}}`)),
		),
	)
	looked := exportRecord("a", "evicted")
	must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(looked), looked))
	looked.Spec.Revision = 2
	must(t, e.members["a"].Update(ctx, looked))
	must(
		t,
		e.admin.Patch(
			ctx,
			exportRecord("a", "evicted"),
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)),
		),
	)
	must(t, e.admin.Delete(ctx, exportRecord("a", "evicted")))
	must(t, e.admin.Delete(ctx, lease(home, "a")))
}

// With every right, so that the policy is what refuses.
func TestStatusFinalizersAndOwnersOfRecordsAreNotTheMembers(t *testing.T) {
	e := setUp(t)
	ctx, m := t.Context(), e.mighty["m"]
	own := exportRecord("m", "own")
	must(t, m.Create(ctx, own))
	t.Cleanup(func() { must(t, e.admin.Delete(context.WithoutCancel(ctx), own)) })
	patch := func(o client.Object, p string) error {
		return m.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(p)))
	}
	owner := `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ServiceAccount","name":"mcs-m","uid":"1"}]}}`
	finalizer := `{"metadata":{"finalizers":["example.org/keep"]}}`
	refused(t, patch(own, finalizer), "cluster m may not change the finalizers of a record")
	refused(t, patch(own, owner), "cluster m may not change the ownerReferences of a record")
	born := endpointPage("m", "born")
	born.Finalizers = []string{"example.org/keep"}
	refused(t, m.Create(ctx, born), "cluster m may not change the finalizers of a record")

	l := lease(home, "m")
	must(t, m.Create(ctx, l))
	t.Cleanup(func() { must(t, m.Delete(context.WithoutCancel(ctx), l)) })
	refused(t, patch(l, finalizer), "cluster m may not change the finalizers of a Lease")
	refused(t, patch(l, owner), "cluster m may not change the ownerReferences of a Lease")

	status := client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":[]}}`))
	refused(
		t,
		m.Status().Patch(ctx, own.DeepCopy(), status),
		"members do not write the status of records on the hub",
	)
	shipped := exportRecord("a", "own")
	must(t, e.members["a"].Create(ctx, shipped))
	t.Cleanup(func() { must(t, e.members["a"].Delete(context.WithoutCancel(ctx), shipped)) })
	refused(t, e.members["a"].Status().Patch(ctx, shipped.DeepCopy(), status), "cannot patch resource")
}

func TestLeasesOfOthersAreOutOfReach(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	for _, r := range []struct {
		clients         map[string]client.Client
		attacker, owner string
		deletion        string
	}{
		{e.members, "b", "a", "cannot delete resource"},
		{e.members, "x.b", "b", "cannot delete resource"},
		{e.members, "b", "x.b", "cannot delete resource"},
		{e.mighty, "n", "m", "cluster n does not write Lease m"},
		{e.mighty, "x.n", "n", "cluster x.n does not write Lease n"},
	} {
		t.Run(r.attacker+" attacks "+r.owner, func(t *testing.T) {
			says := fmt.Sprintf("cluster %s does not write Lease %s", r.attacker, r.owner)
			attacker := r.clients[r.attacker]
			refused(t, attacker.Create(ctx, lease(home, r.owner)), says)
			l := lease(home, r.owner)
			must(t, r.clients[r.owner].Create(ctx, l))
			t.Cleanup(func() { must(t, e.admin.Delete(context.WithoutCancel(ctx), l)) })
			refused(t, attacker.Update(ctx, l.DeepCopy()), says)
			refused(
				t,
				attacker.Patch(
					ctx,
					l.DeepCopy(),
					client.RawPatch(types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":40}}`)),
				),
				strings.Replace(r.deletion, "cannot delete", "cannot patch", 1),
			)
			refused(t, attacker.Delete(ctx, l), r.deletion)
		})
	}
	generated := lease(home, "")
	generated.GenerateName = "a"
	refused(t, e.members["a"].Create(ctx, generated), "cluster a does not write Lease a")
}

// Others may call their ServiceAccounts mcs-something too. Where there is no clusterset, that means nothing.
func TestAccountsElsewhereAreNotHeldUp(t *testing.T) {
	e := setUp(t)
	ctx, ns := t.Context(), namespace(t, e)
	must(
		t,
		e.cp.Apply(
			ctx,
			fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: mcs-z, namespace: %s}\n---\n", ns)+
				strings.ReplaceAll(
					everyRight(ns, "z")+"---\n"+everyRight(home, "z"),
					"namespace: "+home+"}]",
					"namespace: "+ns+"}]",
				),
		),
	)
	z, err := e.connectAs(ctx, ns, "mcs-z")
	must(t, err)
	must(t, z.Create(ctx, lease(ns, "any")))
	must(t, requestToken(ctx, z, ns, "default", 25*60*60))
	must(t, requestToken(ctx, e.admin, ns, "mcs-z", 25*60*60))
	elsewhere := exportRecord("a", "elsewhere")
	elsewhere.Namespace = ns
	must(t, z.Create(ctx, elsewhere))

	refused(
		t,
		z.Create(ctx, exportRecord("z", "intruder")),
		"cluster z is a member in namespace "+ns+" and writes nothing in "+home,
	)
	refused(
		t,
		z.Create(ctx, lease(home, "z")),
		"cluster z is a member in namespace "+ns+" and writes nothing in "+home,
	)
	refused(t, requestToken(ctx, z, home, "mcs-a", 3600), "asks for tokens of its own only")
}

func TestTokensAreOnesOwnAndShort(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	const day = 24 * 60 * 60
	refused(t, requestToken(ctx, e.members["b"], home, "mcs-a", 3600), "cannot create resource")
	refused(t, requestToken(ctx, e.members["x.b"], home, "mcs-b", 3600), "cannot create resource")
	refused(
		t,
		requestToken(ctx, e.mighty["x.n"], home, "mcs-n", 3600),
		"system:serviceaccount:clusterset:mcs-x.n asks for tokens of its own only, not of "+
			"system:serviceaccount:clusterset:mcs-n",
	)
	refused(t, requestToken(ctx, e.mighty["m"], home, "default", 3600), "asks for tokens of its own only")
	for _, as := range []client.Client{e.members["a"], e.admin} {
		refused(
			t,
			requestToken(ctx, as, home, "mcs-a", day+1),
			"a token of mcs-a may live for 86400 seconds at most, and 86401 were asked for",
		)
		must(t, requestToken(ctx, as, home, "mcs-a", day))
	}
	must(t, requestToken(ctx, e.admin, home, "default", day+1))
}

func TestMembersHaveNoOtherRights(t *testing.T) {
	e := setUp(t)
	got, err := e.cp.Rights(t.Context(), home, "system:serviceaccount:"+home+":mcs-a")
	must(t, err)
	want := []string{
		"clusterprofiles.multicluster.x-k8s.io [get list watch patch]",
		"clusterprofiles.multicluster.x-k8s.io/status [patch]",
		"clustersets.hub.clusterset-dns.io [list watch]",
		"endpointpages.hub.clusterset-dns.io [list watch create update delete]",
		"leases.coordination.k8s.io [get list watch create update]",
		"serviceaccounts/token [mcs-a] [create]",
		"serviceexportrecords.hub.clusterset-dns.io [list watch create update delete]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("may\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Who owns which block, and who departed, is the hub's word.
func TestV2MembersDoNotGrantThemselvesBlocks(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	for _, ns := range []string{home, other} {
		set := &hubv1alpha1.ClusterSet{}
		must(t, e.admin.Get(ctx, client.ObjectKey{Namespace: ns, Name: ns}, set))
		set.Status.Blocks = []hubv1alpha1.Block{{ClusterID: "a", CIDR: "10.0.0.0/8"}}
		refused(
			t,
			e.members["a"].Status().Update(ctx, set.DeepCopy()),
			"cannot update resource \"clustersets/status\"",
		)
		set.Spec.VIPs.Pools = []string{"10.0.0.0/8"}
		refused(t, e.members["a"].Update(ctx, set.DeepCopy()), "cannot update resource \"clustersets\"")
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"blocks": []}}`))
		refused(
			t,
			e.members["a"].Status().Patch(ctx, set.DeepCopy(), patch),
			"cannot patch resource \"clustersets/status\"",
		)
	}
}

// TestC1ARecordGetsNoOlder than the export that it was created for: it neither returns from a withdrawal nor gets an
// earlier exportedAt.
func TestC1ARecordGetsNoOlder(t *testing.T) {
	e := setUp(t)
	ctx, as := t.Context(), e.members["a"]
	rec := exportRecord("a", "aged")
	must(t, as.Create(ctx, rec))
	t.Cleanup(func() { must(t, e.admin.Delete(context.WithoutCancel(ctx), rec)) })
	effect := rec.Spec
	write := func(change func(*hubv1alpha1.ServiceExportRecordSpec)) error {
		rec.Spec = *effect.DeepCopy()
		change(&rec.Spec)
		err := as.Update(ctx, rec)
		must(t, e.admin.Get(ctx, client.ObjectKeyFromObject(rec), rec))
		return err
	}
	later := metav1.NewTime(effect.ExportedAt.Add(time.Hour))
	must(t, write(func(s *hubv1alpha1.ServiceExportRecordSpec) { s.ExportedAt = &later }))
	refused(t, write(func(*hubv1alpha1.ServiceExportRecordSpec) {}), "exportedAt never moves back")
	must(t, write(func(s *hubv1alpha1.ServiceExportRecordSpec) { s.ExportedAt, s.Revision = &later, 7 }))
	must(t, write(func(s *hubv1alpha1.ServiceExportRecordSpec) {
		*s = hubv1alpha1.ServiceExportRecordSpec{Origin: s.Origin}
		s.Withdrawn = true
	}))
	refused(t, write(func(s *hubv1alpha1.ServiceExportRecordSpec) { s.ExportedAt = &later }), "stays withdrawn")
}

// TestMembersStateDatesThatGoReads: with one that the CRD's format takes, and Go does not, nobody could list the kind.
func TestMembersStateDatesThatGoReads(t *testing.T) {
	e := setUp(t)
	ctx, withdrawn := t.Context(), exportRecord("a", "dated")
	withdrawn.Spec.Withdrawn = true
	for _, date := range []string{
		"2026-01-01t00:00:00Z", "2026-01-01T00:00:00z", "2026-01-01T00:00:00x5Z", "2026-01-01T00:00:00+99:99",
		"2026-01-01T00:00:00ZT", "9999-12-31T23:59:59-01:00",
	} {
		t.Run(date, func(t *testing.T) {
			for _, path := range []string{"spec.exportedAt", "spec.withdrawnAt"} {
				rec := with(t, e, withdrawn, wrong{path: path, value: date})
				refused(t, e.members["a"].Create(ctx, rec, client.DryRunAll), "timestamp")
			}
			e.fresh(t, "m")
			for path, value := range map[string]string{
				"properties": `[{"name":"p","value":"1","lastObservedTime":%q}]`,
				"conditions/-": `{"type":"MemberReady","status":"True","reason":"R","message":"",
					"lastTransitionTime":%q}`,
			} {
				patch := fmt.Appendf(nil, `[{"op":"add","path":"/status/%s","value":`+value+`}]`, path, date)
				refused(t, e.mighty["m"].Status().Patch(ctx, profile("m"),
					client.RawPatch(types.JSONPatchType, patch), client.DryRunAll), "timestamp")
			}
		})
	}
}

// An agent of before endpoints were in ServiceExportRecords would publish a name without endpoints.
func TestAgentsOfBeforeAreRefused(t *testing.T) {
	e := setUp(t)
	record := with(t, e, exportRecord("a", "before"), wrong{path: "spec.pages"})
	refused(t, e.members["a"].Create(t.Context(), record),
		"cluster a runs a clusterset-controller of before endpoints were in ServiceExportRecords: upgrade it")
}
