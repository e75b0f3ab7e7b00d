package cluster

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// Forward opens a local port that leads to a Pod's until ctx ends, as kubectl port-forward
// does. It needs the right to create pods/portforward. failed gets the error that ends it.
func Forward(ctx context.Context, cfg *rest.Config, pod *corev1.Pod, port int32) (local uint16, failed <-chan error,
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
