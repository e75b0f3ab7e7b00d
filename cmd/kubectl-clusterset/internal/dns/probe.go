package dns

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	miekg "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
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
		local, failed, err := forward(ctx, cfg, pod, port)
		if err != nil {
			return nil, fmt.Errorf("port-forward to pod %s failed: %w", pod.Name, err)
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
			return nil, fmt.Errorf("asking pod %s failed: %w", pod.Name, err)
		}
		return answer, nil
	}
}

// forward opens a local port that leads to a Pod's until ctx ends.
func forward(ctx context.Context, cfg *rest.Config, pod *corev1.Pod, port int32) (local uint16, failed <-chan error,
	err error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return 0, nil, err
	}
	at := base.JoinPath("api/v1/namespaces", pod.Namespace, "pods", pod.Name, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(cfg)
	if err != nil {
		return 0, nil, err
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, at)
	if tunnel, err := portforward.NewSPDYOverWebsocketDialer(at, cfg); err == nil {
		dialer = portforward.NewFallbackDialer(tunnel, dialer, httpstream.IsUpgradeFailure)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ctx.Done(),
		ready, nil, nil)
	if err != nil {
		return 0, nil, err
	}
	go func() { ended <- f.ForwardPorts() }()
	select {
	case err := <-ended:
		return 0, nil, err
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	case <-ready:
	}
	ports, err := f.GetPorts()
	if err != nil {
		return 0, nil, err
	}
	return ports[0].Local, ended, nil
}
