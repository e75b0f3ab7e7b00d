package publish

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestC1SinceWhenAnExportCounts: the own record learns when the hub created it, and keeps that when the hub loses it.
// An export that begins again after a withdrawal, or states an earlier time, gets a new record, and counts since then.
// So does one whose cluster has departed.
func TestC1SinceWhenAnExportCounts(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	begin := now
	own := &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "web.shop.east"},
		Spec: hubv1alpha1.ServiceExportRecordSpec{
			Origin: hubv1alpha1.Origin{
				ClusterID: "east", ServiceNamespace: "shop", ServiceName: "web", Revision: now.UnixMilli(),
			},
			ExportedAt: new(metav1.NewTime(now.AddDate(-1, 0, 0))), Type: mcsv1beta1.ClusterSetIP,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
	hub := plane(t, kube.Hub, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetCreationTimestamp(metav1.NewTime(now))
			o.SetUID(types.UID(now.String()))
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if is, ok := o.(*hubv1alpha1.ServiceExportRecord); ok { // the policy clusterset-records
				var was hubv1alpha1.ServiceExportRecord
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), &was); err != nil {
					return err
				}
				if was.Spec.Withdrawn && !is.Spec.Withdrawn || is.Spec.ExportedAt.Before(was.Spec.ExportedAt) {
					return errors.New("the hub's policy refuses it")
				}
			}
			return c.Update(ctx, o, opts...)
		},
	})
	local := plane(t, kube.Local, interceptor.Funcs{}, own)
	r := reconcilerOf(local, hub, lease{}, &now)
	var shown hubv1alpha1.ServiceExportRecord
	published := func() time.Duration { // after the begin of the test, as the own record says
		t.Helper()
		for range 5 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{
				NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"},
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(
			local.Get(t.Context(), client.ObjectKeyFromObject(own), own),
			hub.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: own.Name}, &shown),
		); err != nil {
			t.Fatal(err)
		}
		return clusterset.Published(own).Sub(begin)
	}
	edit := func(change func()) {
		t.Helper()
		now = now.Add(time.Hour)
		change()
		own.Spec.Revision = clusterset.NextRevision(own.Spec.Revision, now)
		if err := local.Update(t.Context(), own); err != nil {
			t.Fatal(err)
		}
	}
	if got := published(); got != 0 {
		t.Errorf("a new export counts since %v", got)
	}
	edit(func() { own.Spec.Type = mcsv1beta1.Headless })
	if got := published(); got != 0 {
		t.Errorf("after an edit, it counts since %v", got)
	}
	edit(func() {
		if err := hub.Delete(t.Context(), &shown); err != nil {
			t.Fatal(err)
		}
	})
	if got := published(); got != 0 || clusterset.Created(own).Sub(begin) != 2*time.Hour {
		t.Errorf("the hub lost it, and it counts since %v, created %v", got, clusterset.Created(own))
	}
	effect := own.Spec
	edit(func() { // as serviceexport does
		exportedAt := own.Spec.ExportedAt
		own.Spec = clusterset.Withdrawn(own.Spec.Origin, now)
		own.Spec.ExportedAt = exportedAt
		delete(own.Annotations, clusterset.AnnotationPublished)
	})
	if published(); !shown.Spec.Withdrawn {
		t.Fatalf("not withdrawn: %+v", shown)
	}
	edit(func() { own.Spec = effect })
	if got := published(); got != 4*time.Hour || shown.Spec.Withdrawn {
		t.Errorf("exported again, it counts since %v: %+v", got, shown.Spec)
	}
	edit(func() {
		own.Spec.ExportedAt = new(metav1.NewTime(own.Spec.ExportedAt.Add(-time.Hour)))
		delete(own.Annotations, clusterset.AnnotationPublished)
	})
	if got := published(); got != 5*time.Hour || !shown.Spec.ExportedAt.Equal(own.Spec.ExportedAt) {
		t.Errorf("with an earlier exportedAt, it counts since %v: %+v", got, shown.Spec)
	}
	edit(func() {
		set := &hubv1alpha1.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "prod"}}
		set.Status.Departed = []hubv1alpha1.Departure{{ClusterID: "east", At: metav1.NewTime(now)}}
		if err := errors.Join(hub.Create(t.Context(), set), hub.Delete(t.Context(), &shown)); err != nil {
			t.Fatal(err)
		}
	})
	if got := published(); got != 6*time.Hour {
		t.Errorf("evicted and a member again, it counts since %v", got)
	}
}
