package consumers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	listeners = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routes    = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	clusters  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpoints = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// proxy is a client of a control plane's incremental xDS, on one stream for all types, as Envoy and ztunnel have one.
type proxy struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

	sending sync.Mutex
	mu      sync.Mutex
	asked   map[string]map[string]bool       // by type, the names that were subscribed to
	has     map[string]map[string]*anypb.Any // by type and name
	ended   error
}

// connect opens the stream and subscribes to all resources of the types.
func connect(
	t *testing.T, addr string, creds credentials.TransportCredentials, node *corev3.Node, types ...string,
) *proxy {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); conn.Close() })
	p := &proxy{asked: map[string]map[string]bool{}, has: map[string]map[string]*anypb.Any{}}
	p.stream, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).
		DeltaAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range types {
		if err := p.send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typ}); err != nil {
			t.Fatal(err)
		}
	}
	go p.receive()
	return p
}

func (p *proxy) send(r *discoveryv3.DeltaDiscoveryRequest) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	return p.stream.Send(r)
}

func (p *proxy) receive() {
	for {
		r, err := p.stream.Recv()
		if err == nil {
			p.take(r)
			err = p.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
		}
		if err != nil {
			p.mu.Lock()
			p.ended = err
			p.mu.Unlock()
			return
		}
	}
}

func (p *proxy) take(r *discoveryv3.DeltaDiscoveryResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has[r.TypeUrl] == nil {
		p.has[r.TypeUrl] = map[string]*anypb.Any{}
	}
	for _, resource := range r.Resources {
		p.has[r.TypeUrl][resource.Name] = resource.Resource
	}
	for _, name := range r.RemovedResources {
		delete(p.has[r.TypeUrl], name)
	}
}

// all returns what the control plane has sent of a type, or why the stream ended.
func (p *proxy) all(typ string) (map[string]*anypb.Any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.has[typ]), p.ended
}

// one returns a resource, to which it subscribes. It fails while there is none.
func (p *proxy) one(typ, name string, into proto.Message) error {
	p.mu.Lock()
	known := p.asked[typ][name]
	if p.asked[typ] == nil {
		p.asked[typ] = map[string]bool{}
	}
	p.asked[typ][name] = true
	p.mu.Unlock()
	if !known {
		r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: typ, ResourceNamesSubscribe: []string{name}}
		if err := p.send(r); err != nil {
			return err
		}
	}
	all, err := p.all(typ)
	if err != nil {
		return err
	}
	if all[name] == nil {
		return fmt.Errorf("no %s %s", typ, name)
	}
	return all[name].UnmarshalTo(into)
}

// through returns the only cluster that connections to a listener may go to, by all its filters and routes. It takes
// the listener that match finds.
func (p *proxy) through(match func(*listenerv3.Listener) bool) (string, error) {
	all, err := p.all(listeners)
	if err != nil {
		return "", err
	}
	for _, packed := range all {
		l := &listenerv3.Listener{}
		if err := packed.UnmarshalTo(l); err != nil {
			return "", err
		}
		if !match(l) {
			continue
		}
		to, err := p.targets(l)
		if err != nil {
			return "", err
		}
		if len(to) != 1 {
			return "", fmt.Errorf("listener %s leads to %q", l.Name, to)
		}
		return to[0], nil
	}
	return "", fmt.Errorf("no such listener among %d", len(all))
}

// targets returns the clusters that a message names, and those of route configurations that it names.
func (p *proxy) targets(m proto.Message) ([]string, error) {
	found := map[string]bool{}
	err := protorange.Range(m.ProtoReflect(), func(at protopath.Values) error {
		last := at.Index(-1)
		if last.Step.Kind() != protopath.FieldAccessStep {
			return nil
		}
		switch last.Step.FieldDescriptor().FullName() {
		case "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.cluster",
			"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight.name",
			"envoy.config.route.v3.RouteAction.cluster", "envoy.config.route.v3.WeightedCluster.ClusterWeight.name":
			found[last.Value.String()] = true
		case "envoy.extensions.filters.network.http_connection_manager.v3.Rds.route_config_name":
			configuration := &routev3.RouteConfiguration{}
			if err := p.one(routes, last.Value.String(), configuration); err != nil {
				return err
			}
			more, err := p.targets(configuration)
			for _, name := range more {
				found[name] = true
			}
			return err
		}
		return nil
	})
	return slices.Sorted(maps.Keys(found)), err
}

// sends returns the endpoints, as address:port, that a proxy with this assignment sends new connections to.
func (p *proxy) sends(cluster string) (set, error) {
	all, err := p.all(clusters)
	if err != nil {
		return nil, err
	}
	if all[cluster] == nil {
		return nil, fmt.Errorf("no cluster %s among %d", cluster, len(all))
	}
	a := &endpointv3.ClusterLoadAssignment{}
	if err := p.one(endpoints, cluster, a); err != nil {
		return nil, err
	}
	out := set{}
	for _, locality := range a.Endpoints {
		for _, e := range locality.LbEndpoints {
			if s := e.HealthStatus; s != corev3.HealthStatus_UNKNOWN && s != corev3.HealthStatus_HEALTHY {
				continue
			}
			if locality.Priority != 0 {
				return nil, fmt.Errorf("%s has endpoints of priority %d", cluster, locality.Priority)
			}
			at := e.GetEndpoint().GetAddress().GetSocketAddress()
			key := fmt.Sprintf("%s:%d", at.GetAddress(), at.GetPortValue())
			if out[key] {
				return nil, fmt.Errorf("%s has %s twice", cluster, key)
			}
			out[key] = true
		}
	}
	return out, nil
}
