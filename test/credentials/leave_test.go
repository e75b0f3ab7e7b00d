package credentials

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// TestID3AMemberWhoseTokenRanOutLeaves: leaving takes the hub; it says what to do, and that is enough.
func TestID3AMemberWhoseTokenRanOutLeaves(t *testing.T) {
	e := setUp(t)
	e.exported(t, "parting", "10.1.0.6")
	eventually(t, "west has parting", func(ctx context.Context) error { return e.seen(ctx, "parting", "10.1.0.6") })
	e.nodes["east"].Stop()
	if err := e.age(t.Context(), "east", -grace); err != nil {
		t.Fatal(err)
	}
	e.restart(t, "east")
	const leave = "leave --context=east --hub-context=hub --yes"
	out, err := e.plugin(t.Context(), leave+" --timeout=60s") // in which its agent starts, and is refused
	if err == nil {
		t.Fatalf("it left without a token:\n%s", out)
	}
	if err := said(
		out,
		"the hub refuses this member's credentials",
		"has expired, or its rights there were deleted: kubectl clusterset --context=east join",
	); err != nil {
		t.Error(err)
	}
	record := &hubv1alpha1.ServiceExportRecord{} // in west its endpoints may have expired by now
	if err := e.admin["hub"].Get(
		t.Context(),
		client.ObjectKey{Namespace: "clusterset", Name: "parting.shop.east"},
		record,
	); err != nil ||
		record.Spec.Withdrawn {
		t.Errorf("it is withdrawn already: %v, %+v", err, record.Spec)
	}
	out, err = e.plugin(t.Context(), "join --context=east --hub-context=hub --renew")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := said(out, "continues to leave ClusterSet clusterset", "--context=east leave"); err != nil {
		t.Error(err)
	}
	if out, err := e.plugin(t.Context(), leave); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "west has it no more", func(ctx context.Context) error { return e.seen(ctx, "parting", "") })
	profile := &inventoryv1alpha1.ClusterProfile{}
	if err := e.admin["hub"].Get(
		t.Context(),
		client.ObjectKey{Namespace: "clusterset", Name: "east"},
		profile,
	); client.IgnoreNotFound(err) != nil ||
		err == nil {
		t.Errorf("its claim is still on the hub: %v", err)
	}
	e.join(t, "east")
}

// join makes a cluster a member again.
func (e *environment) join(t *testing.T, cluster string) {
	t.Helper()
	if out, err := e.plugin(t.Context(), joins(cluster)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
