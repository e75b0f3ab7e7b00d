package heartbeat

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestAStartIsNotComparedAtOnce: a hub that has just been listed is not listed again beside the start's own work, but soon after; and at
// once after a connection that is new.
func TestAStartIsNotComparedAtOnce(t *testing.T) {
	now, connections, lists := start, int64(1), 0
	hub := plane(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		lists++
		return c.List(ctx, list, opts...)
	}})
	h := process("me", plane(t, interceptor.Funcs{}), hub, &now)
	h.Connections, h.Position = func() int64 { return connections }, func(client.Object) string { return "" }
	look := func() int {
		t.Helper()
		lists = 0
		if _, err := h.verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		return lists
	}
	if n := look(); n > 0 {
		t.Errorf("%d lists at the start", n)
	}
	now = now.Add(5 * settling)
	if look() == 0 {
		t.Error("no look after ten seconds")
	}
	now = now.Add(time.Second)
	if n := look(); n > 0 {
		t.Errorf("%d lists a second after a look", n)
	}
	connections++
	if look() == 0 {
		t.Error("no look after a new connection")
	}
}

// TestDifferencesAreProved: what a watch went past without showing it, it never will, wherever other kinds have brought the hub since; what is
// ahead of it may be on its way, for as long as API servers take to say how far a watch has come.
func TestDifferencesAreProved(t *testing.T) {
	at := func(version string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "prod", Name: "web.shop.b", UID: "u", ResourceVersion: version}
	}
	const never = -1
	for name, test := range map[string]struct {
		there    int    // the resourceVersion of the record on the hub, 0 for none
		cached   []int  // in the cache, look by look
		position []int  // of the watch
		list     []int  // of the list on the hub; the last of each goes on
		looks    int    // until the Event
		reason   string // of it
	}{
		"it went past":                           {12, []int{0}, []int{15}, []int{17}, 2, "HubRestored"},
		"the hub goes on":                        {12, []int{0}, []int{15}, []int{17, 19, 25, 40}, 2, "HubRestored"},
		"it goes past":                           {12, []int{0}, []int{4, 4, 14}, []int{17, 19, 25, 40}, 4, "HubRestored"},
		"of another version":                     {12, []int{14}, []int{15}, []int{17, 19}, 2, "HubRestored"},
		"it has not come to that":                {12, []int{0}, []int{11}, []int{17, 19, 25, 40}, 92, "HubSilent"},
		"it went past a deletion":                {0, []int{3}, []int{15, 15, 18}, []int{17, 19, 25, 40}, 4, "HubRestored"},
		"it has not come to a deletion":          {0, []int{3}, []int{15}, []int{17, 19, 25, 40}, 92, "HubSilent"},
		"it lags, and shows it":                  {12, []int{0, 0, 0, 12}, []int{4, 4, 12}, []int{17, 19, 25, 40}, never, ""},
		"it lags behind one that comes and goes": {0, []int{13, 18, 28, 38, 0}, []int{13, 18, 28, 38, 50}, []int{17, 27, 37, 47, 57}, never, ""},
	} {
		t.Run(name, func(t *testing.T) {
			now, look := start, 0
			of := func(list []int) string { return strconv.Itoa(list[min(look, len(list)-1)]) }
			hub := plane(t, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				list.SetResourceVersion(of(test.list))
				if l := list.(*metav1.PartialObjectMetadataList); l.Kind == "ServiceExportRecordList" && test.there > 0 {
					l.Items = []metav1.PartialObjectMetadata{{ObjectMeta: at(strconv.Itoa(test.there))}}
				}
				return nil
			}})
			cached := plane(t, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				if l, ok := list.(*hubv1alpha1.ServiceExportRecordList); ok && of(test.cached) != "0" {
					l.Items = []hubv1alpha1.ServiceExportRecord{{ObjectMeta: at(of(test.cached))}}
				}
				return nil
			}})
			h := process("me", nil, hub, &now)
			h.Hub = func() client.Client { return cached }
			h.Connections = func() int64 { return 1 }
			h.Position = func(client.Object) string { return of(test.position) }
			said, after := "", never
			h.Relist = func(reason, message string) {
				if said, after = reason, look+1; !strings.Contains(message, "ServiceExportRecord web.shop.b of version") {
					t.Errorf("the Event does not say what: %s", message)
				}
			}
			h.look, h.verified = now, 1
			for ; look < 100 && said == ""; look++ {
				if _, err := h.verify(t.Context()); err != nil {
					t.Fatal(err)
				}
				now = now.Add(settling)
			}
			if said != test.reason || after != test.looks {
				t.Errorf("%q at look %d, want %q at %d", said, after, test.reason, test.looks)
			}
		})
	}
}

// TestWhatIsWrittenDuringALookIsNoDifference: the cache may show it before it is read. What the cache had before, and the hub has not, is one,
// also on a hub that was restored and starts again from a lower resourceVersion.
func TestWhatIsWrittenDuringALookIsNoDifference(t *testing.T) {
	for name, c := range map[string]struct {
		before string // where the watch was before the look
		want   []string
	}{
		"since":    {"17", nil},
		"restored": {"900", []string{"no ServiceExportRecord web.shop.b of version 18 of "}},
	} {
		now := start
		hub := plane(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			list.SetResourceVersion("17")
			return err
		}})
		cached := plane(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if records, ok := list.(*hubv1alpha1.ServiceExportRecordList); ok {
				records.Items = []hubv1alpha1.ServiceExportRecord{{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web.shop.b", ResourceVersion: "18"}}}
			}
			return nil
		}})
		h := process("me", nil, hub, &now)
		h.Hub, h.Position = func() client.Client { return cached }, func(client.Object) string { return c.before }
		wrong, err := h.differences(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(wrong)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestAnOutageIsNoSilence: a renewal that the hub took right before it went away was not shown for want of a hub.
func TestAnOutageIsNoSilence(t *testing.T) {
	now, away := start, false
	hub := plane(t, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
		if away {
			return errors.New("connection refused")
		}
		return c.Update(ctx, o, opts...)
	}})
	h := process("me", plane(t, interceptor.Funcs{}), hub, &now)
	h.Relist = func(reason, message string) {
		if reason == "HubSilent" {
			t.Error(message)
		}
	}
	for range 3 {
		if err := beat(t, h, &now); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(11 * time.Second)
	var shown coordinationv1.Lease
	if err := hub.Get(t.Context(), client.ObjectKey{Namespace: "prod", Name: "east"}, &shown); err != nil {
		t.Fatal(err)
	}
	cached := interceptor.NewClient(hub, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
		shown.DeepCopyInto(o.(*coordinationv1.Lease))
		return nil
	}})
	h.Hub = func() client.Client { return cached }
	if _, err := h.Reconcile(t.Context(), own); err != nil { // and this one is not shown
		t.Fatal(err)
	}
	refused := 0
	for away = true; now.Before(start.Add(5 * time.Minute)); now = now.Add(11 * time.Second) {
		if err := beat(t, h, &now); err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("no renewal was due")
	}
	away = false
	h.Hub = func() client.Client { return hub }
	if err := beat(t, h, &now); err != nil {
		t.Fatal(err)
	}
}
