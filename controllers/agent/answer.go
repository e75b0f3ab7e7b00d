package agent

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"

	"github.com/clusterset-dns/clusterset-dns/controllers/sources"
)

// greet writes sources.Greeting to every connection until ctx ends. Other members use it to see that this cluster is
// alive when its Lease on the hub is not renewed (SPEC F4).
func greet(ctx context.Context, o *Options, log logr.Logger) error {
	if len(o.answersAt()) == 0 {
		return nil // nobody knows where to ask
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.AnswerOn)
	if err != nil {
		return fmt.Errorf("--answer-bind-address: %w", err)
	}
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		greeting := []byte(sources.Greeting(o.Cluster))
		for {
			conn, err := l.Accept()
			if err == nil { // the greeting fits into the socket's buffer, so that nobody delays the next one
				_ = conn.SetDeadline(time.Now().Add(time.Second))
				_, _ = conn.Write(greeting)
				conn.Close()
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond): // do not spin, such as after "too many open files"
				log.Error(err, "accepting a connection from another member failed")
			}
		}
	}()
	return nil
}

// answersAt returns the addresses of this Pod at which greet listens.
func (o *Options) answersAt() (out []string) {
	_, port, err := net.SplitHostPort(o.AnswerOn)
	if err != nil {
		return nil
	}
	for _, ip := range o.PodIPs {
		out = append(out, net.JoinHostPort(ip, port))
	}
	return out
}
