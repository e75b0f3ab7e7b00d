package heartbeat

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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
	h.Connections, h.Watching = func() int64 { return connections }, func(string) bool { return true }
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
