package credentials

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestTheHubMoves: the agent takes the address that join wrote, also while the old one answers no more, without a
// restart; and one that leads nowhere takes nothing from it, as long as the old one answers.
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
	renew := func(address string) {
		t.Helper()
		line := fmt.Sprintf(
			"join --context=east --hub-context=hub --renew --token-lifetime=%v --hub-server=%s",
			lifetime,
			address,
		)
		if text, err := e.plugin(t.Context(), line); err != nil {
			t.Fatalf("kubectl clusterset %s: %v\n%s", line, err, text)
		}
	}
	original, err := e.planes["hub"].RESTConfig()
	if err != nil {
		t.Fatal(err)
	}

	first := forward()
	renew("https://" + first.Addr())
	eventually(t, "the agent goes the new way while the old one is there", func(context.Context) error {
		if first.Bytes() == 0 {
			return errors.New("nothing has passed there")
		}
		return nil
	})
	follows("west follows by the new way")

	first.Cut()
	second := forward()
	renew("https://" + second.Addr()) // which waits until the agent has renewed its Lease
	follows("west follows by the way that was given when the other was gone")

	renew("https://127.0.0.1:9") // nobody listens there
	follows("west follows by the way that works")
	renew(original.Host)
	follows("west follows by the way of before")
	if now := e.nodes["east"].Starts("clusterset-controller"); now != starts {
		t.Errorf("the agent was started %d times meanwhile", now-starts)
	}
}
