package sources

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// BenchmarkRoundAmong40Members is what an agent does once a second: it asks 39 others by TCP, and answers 39.
func BenchmarkRoundAmong40Members(b *testing.B) {
	var others []string
	for i := range 39 {
		others = append(others, fmt.Sprintf("c%d", i))
	}
	r := newReached(b, others...)
	at := map[string]string{}
	for i, id := range others {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		at[agentOf(i)] = l.Addr().String()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(Greeting(id)))
				conn.Close()
			}
		}()
	}
	dialer := &net.Dialer{}
	r.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, at[address])
	}
	r.rounds(2)
	r.want("c0", reach.Answers, false)
	before, rounds := cpu(), 0
	for b.Loop() {
		r.now = r.now.Add(reach.Interval)
		rounds++
		if _, err := r.Reconcile(b.Context(), reconcile.Request{NamespacedName: round}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu()-before).Microseconds())/1000/float64(rounds), "cpu-ms/round")
}

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
