package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/votes"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// A member probes at most atOnce endpoints in a round and begins at most one round per pause. With more endpoints,
// each is probed less often.
const (
	atOnce = 50
	pause  = time.Second
)

// target is an endpoint that is probed.
type target struct {
	votes.Endpoint
	service types.NamespacedName
	kind    hubv1alpha1.Probe
	port    int32
	result  votes.Result
	n       int // probes so far
	due     time.Time
}

// updateTargets finds what to probe of one Service: the ready endpoints of other clusters that may be imported (S4),
// if the exporters allow it. It returns this cluster's copies of the Service's records.
func (o *Observer) updateTargets(
	ctx context.Context, name types.NamespacedName,
) ([]hubv1alpha1.ServiceExportRecord, error) {
	var copies hubv1alpha1.ServiceExportRecordList
	if err := o.Local.List(
		ctx,
		&copies,
		client.InNamespace(kube.SystemNamespace),
		client.MatchingFields{kube.ByService: kube.Key(name)},
	); err != nil {
		return nil, err
	}
	var exports []clusterset.Export
	for i := range copies.Items {
		if copies.Items[i].Spec.Withdrawn {
			continue
		}
		if e, err := clusterset.ParseExport(&copies.Items[i]); err == nil { // serviceimport reports invalid ones
			exports = append(exports, e)
		}
	}
	var s serviceTargets
	if len(exports) > 0 {
		m, _ := conflict.Merge(exports)
		var err error
		if s, err = o.find(ctx, name, &m); err != nil {
			return nil, err
		}
	}
	o.replace(name, s)
	return copies.Items, nil
}

// serviceTargets is what members probe of one Service.
type serviceTargets struct {
	targets   []target
	probed    map[string]bool  // by record whose endpoints the hub shows: whether they are probed
	notProbed []votes.Endpoint // endpoints of families that this cluster lacks; other members probe them
}

// find returns the targets of a Service.
func (o *Observer) find(
	ctx context.Context, name types.NamespacedName, m *conflict.Merged,
) (s serviceTargets, err error) {
	o.mu.Lock()
	kind := o.spec.Default
	o.mu.Unlock()
	if m.Probe != "" {
		kind = m.Probe
	}
	s.probed = map[string]bool{}
	if kind == hubv1alpha1.ProbeNone || kind == "" {
		for cluster := range m.Names {
			s.probed[clusterset.RecordName(name.Name, name.Namespace, cluster)] = false
		}
		return s, nil
	}
	var records hubv1alpha1.EndpointRecordList
	if err := o.Hub().
		List(ctx, &records, client.InNamespace(o.HubNamespace),
			client.MatchingFields{kube.ByService: kube.Key(name)}); err != nil {
		return s, err
	}
	families, err := o.Families(ctx)
	if err != nil {
		return s, err
	}
	for i := range records.Items {
		rec := &records.Items[i]
		cluster := rec.Spec.ClusterID
		if cluster == o.Cluster || m.Names[cluster] == nil {
			continue
		}
		spec, _, err := clusterset.ParseEndpoints(rec, o.Reserved)
		if err != nil {
			continue
		}
		record := clusterset.RecordName(name.Name, name.Namespace, cluster)
		port, ok := portOf(spec.Ports, kind)
		here := slices.Contains(families, corev1.IPFamily(spec.AddressType))
		if s.probed[record] = s.probed[record] || ok && here; !ok {
			continue
		}
		for _, address := range endpoints.ReadyAddresses(&spec) {
			if e := (votes.Endpoint{Cluster: cluster, Record: record, Address: address}); here {
				s.targets = append(s.targets, target{Endpoint: e, service: name, kind: kind, port: port})
			} else {
				s.notProbed = append(s.notProbed, e)
			}
		}
	}
	return s, nil
}

// portOf returns the port to probe: the first TCP port, or for grpc the first that declares gRPC, if there is one.
func portOf(ports []hubv1alpha1.EndpointPort, kind hubv1alpha1.Probe) (number int32, ok bool) {
	for _, p := range ports {
		if p.Protocol != corev1.ProtocolTCP || p.Port == nil {
			continue
		}
		speaks := p.AppProtocol != nil && (*p.AppProtocol == "grpc" || *p.AppProtocol == "kubernetes.io/h2c")
		if kind == hubv1alpha1.ProbeGRPC && speaks {
			return *p.Port, true
		}
		if !ok {
			number, ok = *p.Port, true
		}
	}
	return number, ok
}

// replace sets the targets of a Service and keeps the results of those that it had.
func (o *Observer) replace(name types.NamespacedName, s serviceTargets) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.targets[name]
	delete(o.targets, name)
	if o.probed[name] = s.probed; len(s.probed) == 0 {
		delete(o.probed, name)
	}
	if o.notProbed[name] = s.notProbed; len(s.notProbed) == 0 {
		delete(o.notProbed, name)
	}
	if len(s.targets) == 0 {
		return
	}
	of := make(map[votes.Endpoint]*target, len(s.targets))
	for _, t := range s.targets {
		if known := was[t.Endpoint]; known != nil {
			t.result, t.n, t.due = known.result, known.n, known.due
		} else {
			t.due = o.Now().Add(o.pace.First(o.Cluster, t.Endpoint))
			t.result.Down = o.seed.Includes(t.Endpoint) // the previous process's result
		}
		of[t.Endpoint] = &t
	}
	o.targets[name] = of
}

// round probes the targets that are due.
func (o *Observer) round(ctx context.Context) (reconcile.Result, error) {
	if !o.on.Load() {
		return reconcile.Result{}, nil
	}
	began := o.Now()
	due, pace, wait := o.due(began)
	if wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	reached := make([]bool, len(due))
	var all sync.WaitGroup
	for i := range due {
		all.Go(func() { reached[i] = reaches(ctx, o.Dial, due[i], pace.Timeout) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err() // the agent stops
	}
	o.take(due, reached)
	return reconcile.Result{RequeueAfter: max(pause-o.Now().Sub(began), time.Millisecond)}, nil
}

// due returns the targets of a round that begins now, longest due first, or how long to wait.
func (o *Observer) due(now time.Time) (due []target, pace votes.Pace, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if since := now.Sub(o.rounded); since >= 0 && since < pause {
		return nil, o.pace, pause - since
	}
	next := now.Add(o.pace.Interval)
	for _, of := range o.targets {
		for _, t := range of {
			if !t.due.After(now) {
				due = append(due, *t)
			} else if t.due.Before(next) {
				next = t.due
			}
		}
	}
	if len(due) == 0 {
		return nil, o.pace, max(next.Sub(now), pause)
	}
	slices.SortFunc(due, func(a, b target) int { return a.due.Compare(b.due) })
	o.rounded = now
	return due[:min(len(due), atOnce)], o.pace, 0
}

// take stores the results of targets that still exist.
func (o *Observer) take(due []target, reached []bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, d := range due {
		if reached[i] {
			o.probes.Succeeded++
		} else {
			o.probes.Failed++
		}
		t := o.targets[d.service][d.Endpoint]
		if t == nil {
			continue
		}
		t.result, t.n = t.result.Next(reached[i]), t.n+1
		t.due = o.Now().Add(o.pace.Again(o.Cluster, t.Endpoint, t.result, t.n))
	}
}
