package inventory

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

func at(second int64) metav1.Time { return metav1.NewTime(time.Unix(1_700_000_000+second, 0)) }

func TestDepartures(t *testing.T) {
	var s hubv1alpha1.ClusterSetStatus
	steps := []struct {
		change func() bool
		want   bool
		then   string
	}{
		{func() bool { return recordDeparture(&s, "east", at(2)) }, true, "[east:2]"},
		{func() bool { return recordDeparture(&s, "east", at(2)) }, false, "[east:2]"}, // the same, once more
		{func() bool { return recordDeparture(&s, "west", at(1)) }, true, "[west:1 east:2]"},
		{
			func() bool { return recordDeparture(&s, "west", at(3)) },
			true,
			"[east:2 west:3]",
		}, // it joined, and left again before it was heard of
		{func() bool { return recordDeparture(&s, "west", at(1)) }, false, "[east:2 west:3]"},
	}
	for i, step := range steps {
		if got := step.change(); got != step.want {
			t.Errorf("step %d: changed=%v, want %v", i, got, step.want)
		}
		var is []string
		for _, d := range s.Departed {
			is = append(is, fmt.Sprintf("%s:%d", d.ClusterID, d.At.Unix()-1_700_000_000))
		}
		if got := fmt.Sprint(is); got != step.then {
			t.Errorf("step %d: %s, want %s", i, got, step.then)
		}
	}
}

func TestNewestDeparturesAreKept(t *testing.T) {
	var s hubv1alpha1.ClusterSetStatus
	for i := range int64(hubv1alpha1.MaxDeparted + 5) {
		recordDeparture(&s, fmt.Sprint("c", i), at(i))
	}
	if n := len(s.Departed); n != hubv1alpha1.MaxDeparted || s.Departed[0].ClusterID != "c5" ||
		s.Departed[n-1].ClusterID != "c204" {
		t.Errorf("%d departures, from %s to %s", n, s.Departed[0].ClusterID, s.Departed[n-1].ClusterID)
	}
}

// TestOneRefusalHoldsUpNoOther: all other records of an evicted member go.
func TestOneRefusalHoldsUpNoOther(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), hubv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	webhook := errors.New("failed calling webhook")
	objects := []client.Object{
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "clusterset", Name: "east"}},
	}
	for _, name := range []string{"a.shop.east", "b.shop.east", "c.shop.east"} {
		objects = append(objects, &hubv1alpha1.ServiceExportRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "clusterset", Name: name}})
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if o.GetName() == "b.shop.east" {
				return webhook
			}
			return c.Delete(ctx, o, opts...)
		},
	}).Build()
	r := &reconciler{HubEnv: kube.HubEnv{Namespace: "clusterset", Hub: hub, Live: hub}}
	records, err := r.listRecords(t.Context(), "east")
	if err != nil || len(records) != 3 {
		t.Fatal(err, records)
	}
	if err := r.deleteRecords(t.Context(), "east", records); !errors.Is(err, webhook) {
		t.Errorf("the error is %v", err)
	}
	if left, err := r.listRecords(t.Context(), "east"); err != nil || len(left) != 1 {
		t.Errorf("%v, left: %v", err, left)
	}
	var leases coordinationv1.LeaseList
	if err := hub.List(t.Context(), &leases); err != nil || len(leases.Items) > 0 {
		t.Errorf("%v, Leases left: %v", err, leases.Items)
	}
}
