package agent

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/clusterset-dns/clusterset-dns/controllers/sources"
)

// TestF4AgentsAnswer whoever connects, beside others that never read, until they end.
func TestF4AgentsAnswer(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	o := &Options{Cluster: "east", AnswerOn: free.Addr().String(), PodIPs: []string{"127.0.0.1", "fd00::1"}}
	_, port, _ := net.SplitHostPort(o.AnswerOn)
	if want := []string{"127.0.0.1:" + port, "[fd00::1]:" + port}; !slices.Equal(o.answersAt(), want) {
		t.Errorf("answers at %v, want %v", o.answersAt(), want)
	}
	ctx, end := context.WithCancel(t.Context())
	if err := greet(ctx, o, logr.Discard()); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		conn, err := net.Dial("tcp", o.AnswerOn)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	conn, err := net.Dial("tcp", o.AnswerOn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if got, err := io.ReadAll(conn); err != nil || string(got) != sources.Greeting("east") {
		t.Errorf("%q, %v", got, err)
	}
	if err := greet(ctx, o, logr.Discard()); err == nil {
		t.Error("a port in use is no error")
	}
	end()
	for began := time.Now(); ; {
		if again, err := net.Listen("tcp", o.AnswerOn); err == nil {
			again.Close()
			break
		} else if time.Since(began) > 2*time.Minute {
			t.Fatal(err)
		}
	}
}

func TestNobodyIsAnsweredWhereNobodyKnowsWhere(t *testing.T) {
	for _, o := range []Options{{AnswerOn: ":8082"}, {PodIPs: []string{"10.0.0.1"}}} {
		if got := o.answersAt(); got != nil {
			t.Errorf("%+v: answers at %v", o, got)
		}
	}
}

func TestTheAddressOfTheAPIServer(t *testing.T) {
	for host, want := range map[string]string{
		"https://10.96.0.1:443": "10.96.0.1:443", "https://api.example": "api.example:443",
		"https://[fd00::1]:6443": "[fd00::1]:6443", "10.0.0.1:6443": "10.0.0.1:6443", "": "localhost:443",
	} {
		if got := hostPort(host); got != want {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}
