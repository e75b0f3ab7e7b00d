package gather

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestP2OnlyOurClusterProfilesAreMembers: another cluster manager may keep its own beside them.
func TestP2OnlyOurClusterProfilesAreMembers(t *testing.T) {
	east, theirs := &inventoryv1alpha1.ClusterProfile{}, &inventoryv1alpha1.ClusterProfile{}
	east.Namespace, east.Name, east.Spec.ClusterManager.Name = "blue", "east", "clusterset-dns"
	theirs.Namespace, theirs.Name, theirs.Spec.ClusterManager.Name = "blue", "theirs", "another"
	hub := &cluster.Cluster{Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(east,
		theirs).Build(), Name: "the hub"}
	h := &status.Hub{Hub: facts.Hub{Namespace: "blue"}}
	if err := members(t.Context(), hub, &h.Hub); err != nil || len(h.Profiles) != 1 ||
		h.Profiles[0].Name != "east" {
		t.Errorf("%v: %+v", err, h.Profiles)
	}
}

// TestDoctorReadsListsPageByPage: a cluster may have thousands of slices.
func TestDoctorReadsListsPageByPage(t *testing.T) {
	labels := map[string]string{}
	funcs := interceptor.Funcs{List: func(ctx context.Context, _ client.WithWatch, into client.ObjectList,
		opts ...client.ListOption) error {
		var o client.ListOptions
		o.ApplyOptions(opts)
		if _, limited := ctx.Deadline(); !limited || o.Limit != 500 {
			t.Errorf("%T: %+v", into, o)
		}
		if l, ok := into.(*discoveryv1.EndpointSliceList); ok {
			l.Continue = map[string]string{"": "more"}[o.Continue]
			labels[o.LabelSelector.String()] += o.Continue
		}
		return nil
	}}
	g := &gatherer{&doctor.Facts{}, Source{Member: &cluster.Cluster{
		Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithInterceptorFuncs(funcs).Build(),
	}}}
	for _, read := range []func(context.Context) error{g.agent, g.exports, g.imports, g.ranges} {
		if err := read(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if want := map[string]string{
		mcsv1beta1.LabelServiceName + "," + mcsv1beta1.LabelSourceCluster: "more",
		external.Label + "," + mcsv1beta1.LabelSourceCluster:              "more",
	}; !maps.Equal(labels, want) {
		t.Errorf("slices are read by %v", labels)
	}
}

// TestListsAreReadPageByPage, each with a time of its own, and doctor reads no records.
func TestListsAreReadPageByPage(t *testing.T) {
	var asked []string
	var last time.Time
	funcs := interceptor.Funcs{List: func(ctx context.Context, _ client.WithWatch, into client.ObjectList,
		opts ...client.ListOption) error {
		var o client.ListOptions
		o.ApplyOptions(opts)
		until, there := ctx.Deadline()
		if !there || !until.After(last) || o.Limit != 500 || o.Namespace != "blue" {
			t.Errorf("%T: %+v until %v, after %v", into, o, until, last)
		}
		last = until
		asked = append(asked, fmt.Sprintf("%T %s", into, o.Continue))
		if l, ok := into.(*hubv1alpha1.EndpointPageList); ok {
			l.Items = make([]hubv1alpha1.EndpointPage, 2)
			l.Continue = map[string]string{"": "more", "more": "most"}[o.Continue]
		}
		return nil
	}}
	hub := &cluster.Cluster{
		Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithInterceptorFuncs(funcs).Build(),
		Name:   "the hub",
	}
	h := &status.Hub{Hub: facts.Hub{Namespace: "blue"}}
	if err := members(t.Context(), hub, &h.Hub); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 3 || slices.ContainsFunc(asked, func(s string) bool {
		return s == "*v1alpha1.ServiceExportRecordList " || s == "*v1alpha1.EndpointPageList "
	}) {
		t.Errorf("members are read by %v", asked)
	}
	asked = nil
	if err := exported(t.Context(), hub, h); err != nil {
		t.Fatal(err)
	}
	if want := []string{"*v1alpha1.ServiceExportRecordList ", "*v1alpha1.EndpointPageList ",
		"*v1alpha1.EndpointPageList more", "*v1alpha1.EndpointPageList most"}; !slices.Equal(asked, want) ||
		len(h.Pages) != 6 {
		t.Errorf("%v: %d records", asked, len(h.Pages))
	}
}

// agentIn is a member whose agent runs, and knows this of its membership.
func agentIn(t *testing.T, conditions ...metav1.Condition) *cluster.Cluster {
	set := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: clusterset.PropertySet},
		Spec: aboutv1beta1.ClusterPropertySpec{Value: "blue"}}
	agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
		Name: manifest.AgentDeployment}}
	renewed := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
		Name: clusterset.LeaseRenewed}}
	known := &hubv1alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Name: hubv1alpha1.MembershipName},
		Status: hubv1alpha1.MembershipStatus{Hub: "https://hub"}}
	known.Status.Conditions = conditions
	at := metav1.Now()
	leads := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace,
		Name: "clusterset-controller", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "a", Operation: "Update",
			APIVersion: "coordination.k8s.io/v1", Time: &at, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1("{}")}}}}
	leads.Spec.LeaseDurationSeconds, leads.Spec.RenewTime = new(int32(3600)), &metav1.MicroTime{Time: at.Time}
	return inMemory("this cluster", refusing(t, true), set, agent, renewed, known, leads)
}

// TestWhatTheAgentKnowsIsInEveryReport: status, explain and doctor find the same.
func TestWhatTheAgentKnowsIsInEveryReport(t *testing.T) {
	c := agentIn(t, metav1.Condition{Type: hubv1alpha1.ConditionDNSAnswers, Status: metav1.ConditionFalse,
		Reason: "NotServed", Message: "no clusterset.local"})
	m, err := member(t.Context(), c)
	if err != nil || len(m.Known) != 1 || m.Known[0].What != "no clusterset.local" {
		t.Fatalf("status: %+v, %v", m, err)
	}
	f, err := Explain(t.Context(), c, types.NamespacedName{Namespace: "shop", Name: "web"})
	if err != nil || !slices.Equal(f.Known, m.Known) {
		t.Errorf("explain: %+v, %v", f, err)
	}
	d, err := Doctor(t.Context(), Source{Member: c})
	if err != nil || !slices.Equal(d.Known, m.Known) {
		t.Errorf("doctor: %+v, %v", d, err)
	}
}

// TestAMemberThatIsTakenForTheHubIsAMember: its ClusterSet is read, and where its hub is.
func TestAMemberThatIsTakenForTheHubIsAMember(t *testing.T) {
	f, err := Status(t.Context(), Source{Hub: agentIn(t), HubNamespace: "clusterset"})
	if err != nil || f.Hub.Role.MemberOf != "blue" || f.Hub.Role.Server != "https://hub" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestStatusOfAHubThatIsNoMemberIsTheHubs, as doctor's is.
func TestStatusOfAHubThatIsNoMemberIsTheHubs(t *testing.T) {
	set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}
	f, err := Status(t.Context(), Source{Member: inMemory("this cluster", refusing(t, true), set),
		HubNamespace: "clusterset"})
	if err != nil || f.Member != nil || f.Namespace != "blue" || len(f.Hub.Sets) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestWhatCannotBeListedIsNamedAsKubectlNamesIt.
func TestWhatCannotBeListedIsNamedAsKubectlNamesIt(t *testing.T) {
	c := inMemory("the hub", "")
	c.Client = interceptor.NewClient(c.Client.(client.WithWatch), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no")
		},
	})
	err := members(t.Context(), c, &facts.Hub{})
	if err == nil || err.Error() != "the hub: listing clustersets failed: no" {
		t.Error(err)
	}
}
