package credentials

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestTheHubMoves: the agent starts again for the address that join wrote, also while the old one answers no more; and
// one that leads nowhere takes nothing from it, as long as the old one answers.
func TestTheHubMoves(t *testing.T) {
	e := setUp(t)
	slice := e.exported(t, "moving", "10.1.0.10")
	eventually(t, "west has moving", func(ctx context.Context) error { return e.seen(ctx, "moving", "10.1.0.10") })
	address := 10
	follows := func(what string) {
		t.Helper()
		address++
		want := fmt.Sprintf("10.1.0.%d", address)
		if err := e.move(t.Context(), slice, want); err != nil {
			t.Fatal(err)
		}
		eventually(t, what, func(ctx context.Context) error { return e.seen(ctx, "moving", want) })
	}
	forward := func() *lab.Forwarder {
		t.Helper()
		f, err := e.planes["hub"].Forward()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	starts := e.nodes["east"].Starts("clusterset-controller")
	line := func(address string) string {
		return fmt.Sprintf("join --context=east --hub-context=hub --renew --token-lifetime=%v --hub-server=%s",
			lifetime, address)
	}
	renew := func(address string) {
		t.Helper()
		if text, err := e.plugin(t.Context(), line(address)); err != nil {
			t.Fatalf("kubectl clusterset %s: %v\n%s", line(address), err, text)
		}
	}
	original, err := e.planes["hub"].RESTConfig()
	if err != nil {
		t.Fatal(err)
	}

	first := forward()
	renew("https://" + first.Addr()) // which waits until the agent has renewed its Lease there
	if first.Bytes() == 0 {
		t.Error("nothing has passed by the new way while the old one is there")
	}
	follows("west follows by the new way")

	first.Cut()
	second := forward()
	renew("https://" + second.Addr())
	follows("west follows by the way that was given when the other was gone")

	still := "still uses the hub at https://" + second.Addr() + " and not at https://127.0.0.1:9" // nobody listens there
	text, err := e.plugin(t.Context(), line("https://127.0.0.1:9")+" --timeout=20s")
	if err == nil || !strings.Contains(text+err.Error(), still) {
		t.Errorf("join --renew with a wrong address: %v\n%s", err, text)
	}
	follows("west follows by the way that works")
	text, err = e.plugin(t.Context(), "doctor --context=east --hub-context=hub")
	if err == nil || !strings.Contains(text, "The agent still uses the hub at https://"+second.Addr()) ||
		!strings.Contains(text, "https://127.0.0.1:9/") {
		t.Errorf("doctor: %v\n%s", err, text)
	}
	renew(original.Host)
	follows("west follows by the way of before")
	if now := e.nodes["east"].Starts("clusterset-controller"); now != starts+3 {
		t.Errorf("the agent was started %d times for three addresses", now-starts)
	}
}
