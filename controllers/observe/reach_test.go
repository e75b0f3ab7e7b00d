package observe

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	corev1 "k8s.io/api/core/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// listen is a server on loopback; serve gets its listener.
func listen(t *testing.T, serve func(net.Listener)) target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serve(l)
	at := netip.MustParseAddrPort(l.Addr().String())
	out := target{port: int32(at.Port())}
	out.Address = at.Addr().String()
	return out
}

// held is a port of loopback that nobody listens on, nor anybody else can take.
func held(t *testing.T) target {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	out := target{port: int32(at.(*syscall.SockaddrInet4).Port)}
	out.Address = "127.0.0.1"
	return out
}

// TestF4Probes: what is reached, by TCP and by gRPC, of real servers.
func TestF4Probes(t *testing.T) {
	states := health.NewServer()
	serving := listen(t, func(l net.Listener) {
		s := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(s, states)
		t.Cleanup(s.Stop)
		_ = s.Serve(l)
	})
	without := listen(t, func(l net.Listener) {
		s := grpc.NewServer()
		t.Cleanup(s.Stop)
		_ = s.Serve(l)
	})
	// Both serve, and say so in far more octets than that takes.
	answers := func(headers, body int) target {
		return listen(t, func(l net.Listener) {
			s := grpc.NewServer(
				grpc.UnaryInterceptor(
					func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
						out := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
						out.ProtoReflect().
							SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType),
								make([]byte, body)))
						return out, grpc.SetHeader(ctx, metadata.Pairs("x", strings.Repeat("x", headers)))
					},
				),
			)
			grpc_health_v1.RegisterHealthServer(s, states)
			t.Cleanup(s.Stop)
			_ = s.Serve(l)
		})
	}
	brief, long, wordy := answers(1<<10, 1<<10), answers(0, 64<<10), answers(64<<10, 0)
	silent := listen(t, func(net.Listener) {}) // the kernel takes connections, and nobody answers
	gone := held(t)

	dial := (&net.Dialer{}).DialContext
	for _, c := range []struct {
		what   string
		target target
		kind   hubv1alpha1.Probe
		state  grpc_health_v1.HealthCheckResponse_ServingStatus
		want   bool
	}{
		{"TCP", silent, hubv1alpha1.ProbeTCP, 0, true},
		{"TCP, nobody listens", gone, hubv1alpha1.ProbeTCP, 0, false},
		{"gRPC, serving", serving, hubv1alpha1.ProbeGRPC, grpc_health_v1.HealthCheckResponse_SERVING, true},
		{"gRPC, not serving", serving, hubv1alpha1.ProbeGRPC, grpc_health_v1.HealthCheckResponse_NOT_SERVING, false},
		{"gRPC without health", without, hubv1alpha1.ProbeGRPC, 0, true},
		{"gRPC, in a few words", brief, hubv1alpha1.ProbeGRPC, 0, true},
		{"gRPC, with a body without end", long, hubv1alpha1.ProbeGRPC, 0, false},
		{"gRPC, with headers without end", wordy, hubv1alpha1.ProbeGRPC, 0, false},
		{"gRPC, nobody answers", silent, hubv1alpha1.ProbeGRPC, 0, false},
		{"gRPC, nobody listens", gone, hubv1alpha1.ProbeGRPC, 0, false},
	} {
		limit := time.Minute // far more than an answer takes
		if c.target == silent && c.kind == hubv1alpha1.ProbeGRPC {
			limit = time.Second // there is none
		}
		states.SetServingStatus("", c.state)
		c.target.kind = c.kind
		began := time.Now()
		if got := reaches(t.Context(), dial, c.target, limit); got != c.want {
			t.Errorf("%s: reached %v", c.what, got)
		}
		if took := time.Since(began); took > 15*time.Second { // gRPC itself gives up after twenty
			t.Errorf("%s: took %v", c.what, took)
		}
	}
}

// TestF4WhichPort: the first of TCP, or for gRPC the first that says so.
func TestF4WhichPort(t *testing.T) {
	one, two, three, speaks := int32(1), int32(2), int32(3), "grpc"
	udp := hubv1alpha1.EndpointPort{Protocol: corev1.ProtocolUDP, Port: &one}
	web, api := hubv1alpha1.EndpointPort{
		Protocol: corev1.ProtocolTCP,
		Port:     &two,
	}, hubv1alpha1.EndpointPort{
		Protocol:    corev1.ProtocolTCP,
		Port:        &three,
		AppProtocol: &speaks,
	}
	for _, c := range []struct {
		kind  hubv1alpha1.Probe
		ports []hubv1alpha1.EndpointPort
		want  int32
	}{
		{hubv1alpha1.ProbeTCP, []hubv1alpha1.EndpointPort{udp, web, api}, 2},
		{hubv1alpha1.ProbeGRPC, []hubv1alpha1.EndpointPort{udp, web, api}, 3},
		{hubv1alpha1.ProbeGRPC, []hubv1alpha1.EndpointPort{web}, 2},
		{hubv1alpha1.ProbeTCP, []hubv1alpha1.EndpointPort{udp, {Protocol: corev1.ProtocolTCP}}, 0},
	} {
		if got, ok := portOf(c.ports, c.kind); got != c.want || ok != (c.want > 0) {
			t.Errorf("%s of %v: %d", c.kind, c.ports, got)
		}
	}
}
