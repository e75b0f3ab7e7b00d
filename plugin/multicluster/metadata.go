package multicluster

import (
	"context"
	"strings"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/query"
	"github.com/coredns/coredns/plugin/metadata"
	"github.com/coredns/coredns/request"
)

// Metadata implements metadata.Provider (O4): what the name of the question says, and the type of
// the Service that it names.
func (m *Multicluster) Metadata(ctx context.Context, state request.Request) context.Context {
	name := state.QName()
	zone, at := query.Zone(m.Origins, name)
	if zone < 0 {
		return ctx
	}
	set := func(label, value string) {
		if value != "" {
			metadata.SetValueFunc(ctx, pluginName+"/"+label, func() string { return value })
		}
	}
	q := query.Parse(name, at)
	switch q.Kind {
	case query.Namespace:
		set("namespace", q.Service)
		return ctx
	case query.Service, query.Proto, query.Port, query.Host, query.Zoned:
	default:
		return ctx
	}
	svc, ns, _ := strings.Cut(q.Service, ".")
	set("service", svc)
	set("namespace", ns)
	set("protocol", q.Proto)
	if s := m.Source.Index().Service(q.Service); s != nil {
		set("type", s.Type().String())
	}
	switch q.Kind {
	case query.Zoned:
		set("zone", q.Below)
	case query.Port:
		set("port-name", q.Below)
	case query.Host:
		if endpoint, cluster, ok := strings.Cut(q.Below, "."); ok {
			set("endpoint", endpoint)
			set("cluster", cluster)
		} else {
			set("cluster", q.Below)
		}
	}
	return ctx
}
