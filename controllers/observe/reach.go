package observe

import (
	"context"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// dialer is Config.Dial.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// reaches reports whether an endpoint answers in time.
func reaches(ctx context.Context, dial dialer, t target, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addr, err := netip.ParseAddr(t.Address)
	if err != nil {
		return true // not an address: not the endpoint's fault
	}
	to := netip.AddrPortFrom(addr, uint16(t.port)).String()
	if t.kind == hubv1alpha1.ProbeGRPC {
		return healthy(ctx, dial, to)
	}
	conn, err := dial(ctx, "tcp", to)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// healthy calls grpc.health.v1.Health/Check for the whole server. A server without that service counts as healthy.
func healthy(ctx context.Context, dial dialer, to string) bool {
	conn, err := grpc.NewClient(
		"passthrough:///"+to,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4<<10)),
		grpc.WithMaxHeaderListSize(16<<10), // an answer has a few bytes
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return dial(ctx, "tcp", to) }),
	)
	if err != nil {
		return true
	}
	defer conn.Close()
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return status.Code(err) == codes.Unimplemented
	}
	return answer.Status == grpc_health_v1.HealthCheckResponse_SERVING
}
