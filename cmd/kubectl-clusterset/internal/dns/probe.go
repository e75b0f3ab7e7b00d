package dns

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
)

// Asker sends one question to a Pod and returns the answer.
type Asker func(ctx context.Context, pod *corev1.Pod, port int32, question *miekg.Msg) (*miekg.Msg, error)

// patience is the time for one question, with its port-forward.
const patience = 10 * time.Second

// Forwarded returns an Asker that sends questions over TCP through a port-forward of the API server, as kubectl
// port-forward does. It needs the right to create pods/portforward.
func Forwarded(cfg *rest.Config) Asker {
	return func(ctx context.Context, pod *corev1.Pod, port int32, question *miekg.Msg) (*miekg.Msg, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		local, failed, err := cluster.Forward(ctx, cfg, pod, port)
		if err != nil {
			return nil, fmt.Errorf("cannot be asked: the port-forward failed: %w", err)
		}
		c := miekg.Client{Net: "tcp", Timeout: patience}
		answer, _, err := c.ExchangeContext(ctx, question, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(local))))
		select {
		case because := <-failed: // the pod refused the connection, which looks like an end of file here
			if err != nil {
				err = because
			}
		default:
		}
		if err != nil {
			return nil, fmt.Errorf("cannot be asked: %w", err)
		}
		return answer, nil
	}
}
