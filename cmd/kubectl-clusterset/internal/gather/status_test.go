package gather

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/external"
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
		if l, ok := into.(*hubv1alpha1.EndpointRecordList); ok {
			l.Items = make([]hubv1alpha1.EndpointRecord, 2)
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
		return s == "*v1alpha1.ServiceExportRecordList " || s == "*v1alpha1.EndpointRecordList "
	}) {
		t.Errorf("members are read by %v", asked)
	}
	asked = nil
	if err := exported(t.Context(), hub, h); err != nil {
		t.Fatal(err)
	}
	if want := []string{"*v1alpha1.ServiceExportRecordList ", "*v1alpha1.EndpointRecordList ",
		"*v1alpha1.EndpointRecordList more", "*v1alpha1.EndpointRecordList most"}; !slices.Equal(asked, want) ||
		len(h.Endpoints) != 6 {
		t.Errorf("%v: %d records", asked, len(h.Endpoints))
	}
}
