package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestS2EndpointsComeBeforeTheirExport and go after it, whatever the hub has of both: else members follow an export
// that the hub shows again with endpoints of an earlier one, which a backup has brought back.
func TestS2EndpointsComeBeforeTheirExport(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	origin := hubv1alpha1.Origin{ClusterID: "me", ServiceNamespace: "shop", ServiceName: "web", Revision: 3}
	exported := hubv1alpha1.ServiceExportRecordSpec{
		Origin: origin, EndpointRecords: clusterset.EndpointSet([]string{"u.me"}),
	}
	slice := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u",
		Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.2"}}}}
	older := origin
	older.Revision = 1
	export := &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "web.shop.me"},
		Spec:       hubv1alpha1.ServiceExportRecordSpec{Origin: older},
	}
	endpoints := &hubv1alpha1.EndpointRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "u.me"},
		Spec: hubv1alpha1.EndpointRecordSpec{Origin: older,
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []hubv1alpha1.Endpoint{{Address: "10.0.0.1"}}},
	}
	for _, c := range []struct {
		name   string
		own    hubv1alpha1.ServiceExportRecordSpec
		hub    []client.Object
		refuse string
		want   string
	}{
		{"the first time", exported, nil, "", "EndpointRecord ServiceExportRecord"},
		{"a backup has earlier ones", exported, []client.Object{export, endpoints}, "",
			"EndpointRecord ServiceExportRecord"},
		{"the hub refuses the endpoints", exported, nil, "EndpointRecord", "EndpointRecord ServiceExportRecord"},
		{"withdrawn", clusterset.Withdrawn(origin, now),
			[]client.Object{export, endpoints}, "", "ServiceExportRecord EndpointRecord"},
	} {
		scheme := runtime.NewScheme()
		if err := hubv1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		var wrote []string
		write := func(o client.Object) error {
			kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1.")
			if wrote = append(wrote, kind); kind == c.refuse {
				return errors.New("refused")
			}
			return nil
		}
		hub := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				return errors.Join(write(o), w.Create(ctx, o, opts...))
			},
			Update: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return errors.Join(write(o), w.Update(ctx, o, opts...))
			},
			Delete: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				return errors.Join(write(o), w.Delete(ctx, o, opts...))
			},
		})
		s := &state{
			own: &hubv1alpha1.ServiceExportRecord{
				ObjectMeta: metav1.ObjectMeta{Name: "web.shop.me"},
				Spec:       c.own,
			},
			endpoints: map[string]*hubv1alpha1.EndpointRecord{},
		}
		if !c.own.Withdrawn {
			s.setEndpoints([]discoveryv1.EndpointSlice{slice})
		}
		on := hub.WithObjects(c.hub...).Build()
		r := reconcilerOf(nil, on, lease{}, &now)
		r.Cluster, r.HubNamespace = "me", "set"
		if len(c.hub) > 0 {
			s.published, s.endpoints[endpoints.Name] = get(t, on, export), get(t, on, endpoints)
			clusterset.SetPublished(s.own, s.published, time.Time{})
		}
		if _, err := r.publish(t.Context(), s); (err != nil) != (c.refuse != "") {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := strings.Join(slices.Compact(wrote), " "); got != c.want {
			t.Errorf("%s: it wrote %s, want %s", c.name, got, c.want)
		}
	}
}

// lease is a Lease that this agent holds.
type lease struct {
	silent bool
	before time.Time
	lost   bool
}

func (l lease) MayPublish() bool                  { return !l.silent }
func (l lease) HubMayHaveLost() (time.Time, bool) { return l.before, l.lost }

// reconcilerOf returns the reconciler of the member east.
func reconcilerOf(local, hub client.Client, l Lease, now *time.Time) *reconciler {
	return New(Config{
		Cluster: "east", HubNamespace: "prod", Local: local, Hub: func() client.Client { return hub },
		Lease: l, Now: func() time.Time { return *now },
	}).Reconciler.(*reconciler)
}

// get reads an object as the hub has it.
func get[T client.Object](t *testing.T, c client.Client, like T) T {
	t.Helper()
	o := like.DeepCopyObject().(T)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(like), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestNothingIsPublishedWithoutTheLease: names wait.
func TestNothingIsPublishedWithoutTheLease(t *testing.T) {
	now := time.Unix(1, 0)
	r := reconcilerOf(nil, nil, lease{silent: true}, &now)
	web := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	if got, err := r.Reconcile(t.Context(), web); err != nil || got.RequeueAfter != askAgain {
		t.Errorf("%v, %v; want %v", got, err, askAgain)
	}
}

// TestE4AFailureWhoseTextDiffersIsWrittenOnce, and what it has become a minute later: each write brings the next
// attempt before its time. Slices fail in the order of their names.
func TestE4AFailureWhoseTextDiffersIsWrittenOnce(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	origin := hubv1alpha1.Origin{ClusterID: "east", ServiceNamespace: "shop", ServiceName: "web", Revision: 3}
	own := &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "web.shop.east", Generation: 1},
		Spec:       hubv1alpha1.ServiceExportRecordSpec{Origin: origin},
	}
	objects := []client.Object{own}
	for _, name := range []string{"web-2", "web-1"} {
		objects = append(objects, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop",
			Name:      name,
			UID:       types.UID("of-" + name),
			Labels:    map[string]string{discoveryv1.LabelServiceName: "web"},
		}, AddressType: discoveryv1.AddressTypeIPv4})
	}
	attempts, writes := 0, 0
	refuses := func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		attempts++
		return fmt.Errorf("%s: read tcp 10.0.0.5:%d: connection reset by peer", o.GetName(), 40000+attempts)
	}
	hub := plane(t, kube.Hub, interceptor.Funcs{Create: refuses})
	local := plane(t, kube.Local, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if l, ok := list.(*discoveryv1.EndpointSliceList); ok && attempts%2 == 1 { // an index has no order
				slices.Reverse(l.Items)
			}
			return err
		},
	}, objects...)
	r := reconcilerOf(local, hub, lease{}, &now)
	for i, c := range []struct {
		after  time.Duration
		writes int
		says   string
	}{{0, 1, ":40001"}, {time.Second, 1, ":40001"}, {30 * time.Second, 1, ":40001"}, {time.Minute, 2, ":40010"},
		{time.Second, 2, ":40010"}} {
		now = now.Add(c.after)
		if _, err := r.Reconcile(
			t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}},
		); err == nil {
			t.Fatal("the hub took it")
		}
		got := get(t, local, own).Status.Conditions
		if writes != c.writes || len(got) != 1 || !strings.Contains(got[0].Message, c.says) {
			t.Errorf("pass %d: %d writes, want %d: %+v, want %s", i, writes, c.writes, got, c.says)
		}
		first, second := strings.Index(got[0].Message, "of-web-1"), strings.Index(got[0].Message, "of-web-2")
		if first < 0 ||
			first > second {
			t.Errorf("pass %d: %s", i, got[0].Message)
		}
	}
}

// TestE4AHubWithoutItsNamespaceHasNothing: that is reported. A record that the cache still shows is not: the next pass
// creates it.
func TestE4AHubWithoutItsNamespaceHasNothing(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		answer error
		reason string
	}{
		{"the namespace is gone", apierrors.NewNotFound(corev1.Resource("namespaces"), "prod"), "Failed"},
		{"a record is gone", apierrors.NewNotFound(
			schema.GroupResource{Group: hubv1alpha1.GroupVersion.Group, Resource: "serviceexportrecords"},
			"web.shop.east",
		), ""},
		{"no error", nil, "Published"},
	} {
		own := ownRecord(kube.SystemNamespace, exportedAt(1))
		hub := plane(t, kube.Hub, interceptor.Funcs{Create: func(ctx context.Context, w client.WithWatch,
			o client.Object, opts ...client.CreateOption) error {
			if c.answer != nil {
				return c.answer
			}
			return w.Create(ctx, o, opts...)
		}})
		local := plane(t, kube.Local, interceptor.Funcs{}, own)
		req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
		if _, err := reconcilerOf(local, hub, lease{}, &now).Reconcile(t.Context(), req); !errors.Is(err, c.answer) {
			t.Fatal(c.name, err)
		}
		reason, conditions := "", get(t, local, own).Status.Conditions
		if p := meta.FindStatusCondition(conditions, hubv1alpha1.ConditionPublished); p != nil {
			reason = p.Reason
		}
		if reason != c.reason {
			t.Errorf("%s: reason %q, want %q", c.name, reason, c.reason)
		}
	}
}

// TestS2EndpointsThatNobodyStatedAreDropped: an agent ended after it had published a slice, which has gone since. The
// next one states what it has with a higher revision before it deletes that record; else members keep the endpoints.
func TestS2EndpointsThatNobodyStatedAreDropped(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := hubv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, refused := range []error{nil, errors.New("refused")} {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		origin := hubv1alpha1.Origin{ClusterID: "me", ServiceNamespace: "shop", ServiceName: "web", Revision: 3}
		own := &hubv1alpha1.ServiceExportRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: "web.shop.me"},
			Spec: hubv1alpha1.ServiceExportRecordSpec{
				Origin: origin, EndpointRecords: clusterset.EndpointSet(nil), ExportedAt: &metav1.Time{Time: now},
			},
		}
		published := own.DeepCopy()
		published.Namespace = "set"
		newer := origin
		newer.Revision = now.Add(time.Hour).UnixMilli() // this clock was set back since
		left := &hubv1alpha1.EndpointRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: "v.me"},
			Spec:       hubv1alpha1.EndpointRecordSpec{Origin: newer, AddressType: discoveryv1.AddressTypeIPv4},
		}
		hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(published, left).
			WithInterceptorFuncs(interceptor.Funcs{Update: func(ctx context.Context, w client.WithWatch,
				o client.Object, opts ...client.UpdateOption) error {
				if refused != nil {
					return refused
				}
				return w.Update(ctx, o, opts...)
			}}).Build()
		local := fake.NewClientBuilder().WithScheme(scheme).WithObjects(own).Build()
		r := reconcilerOf(local, hub, lease{}, &now)
		r.Cluster, r.HubNamespace = "me", "set"
		s := &state{
			own: get(t, local, own), published: get(t, hub, published),
			endpoints: map[string]*hubv1alpha1.EndpointRecord{"v.me": get(t, hub, left)},
		}
		clusterset.SetPublished(s.own, s.published, time.Time{})
		_, err := r.publish(t.Context(), s)
		var records hubv1alpha1.EndpointRecordList
		if listed := hub.List(t.Context(), &records); listed != nil {
			t.Fatal(listed)
		}
		stated := get(t, hub, published).Spec.Revision
		switch {
		case refused != nil && (err == nil || len(records.Items) != 1):
			t.Errorf("the hub refuses the statement: %v, and %d endpoints are left", err, len(records.Items))
		case refused == nil && (err != nil || len(records.Items) != 0 || stated <= newer.Revision):
			t.Errorf("%v; %d endpoints are left; revision %d is stated, and they had %d",
				err, len(records.Items), stated, newer.Revision)
		}
	}
}

// TestAServiceExportWithADot, which no Service can have, may have the name of the record of a member whose ID has one.
func TestAServiceExportWithADot(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	theirs := ownRecord(kube.SystemNamespace, exportedAt(1))
	theirs.Name, theirs.Spec.ClusterID = clusterset.RecordName("web", "shop", "x.east"), "x.east"
	for _, copied := range []bool{true, false} {
		published := theirs.DeepCopy()
		published.Namespace = "prod"
		local, hub := plane(t, kube.Local, interceptor.Funcs{}), plane(t, kube.Hub, interceptor.Funcs{}, published)
		if copied {
			local = plane(t, kube.Local, interceptor.Funcs{}, theirs.DeepCopy())
		}
		dotted := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "x", Name: "web.shop"}}
		if _, err := reconcilerOf(local, hub, lease{}, &now).Reconcile(t.Context(), dotted); err != nil {
			t.Error(err)
		}
		if is := get(t, hub, published); is.ResourceVersion != "999" { // as the fake client begins
			t.Errorf("copied %v: the other member's record is %+v", copied, is)
		}
		if copied && get(t, local, theirs).ResourceVersion != "999" {
			t.Errorf("the other member's copy is %+v", get(t, local, theirs))
		}
	}
}
