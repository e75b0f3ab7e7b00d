package kube

import (
	"bytes"
	"net/netip"
	"strings"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// The labels of imported slices.
const (
	labelServiceName   = "multicluster.kubernetes.io/service-name"
	labelSourceCluster = "multicluster.kubernetes.io/source-cluster"
)

// sliceReader makes records of EndpointSlices. What it reads from is used again for the next object, so all is copied. It belongs
// to one stream.
type sliceReader struct {
	store    *store
	podNames bool // option endpoint_pod_names
	zoned    bool // answers depend on zones
	names    interner
	meta     metadata
	sum      sum
	kind     []byte
	key      []byte
	found    []endpoint
	hosts    []byte // of all endpoints
	ports    []catalog.Port
	ready    []catalog.Endpoint
	host     []byte // of the endpoint being read, as the other fields
	zone     []byte
	pod      podRef
	addrs    [][]byte
}

// endpoint is one ready address, with where its host name stands in hosts.
type endpoint struct {
	addr       netip.Addr
	start, end int
	zone       string
}

// podRef is what an endpoint refers to.
type podRef struct{ kind, name []byte }

// metadata of an object, as far as anyone asks for it.
type metadata struct {
	namespace, name, version []byte
	service, cluster         []byte // labels
	trigger                  []byte // annotation
	initialEnd               bool   // annotation: all initial events of a watch have been sent
}

// Labels and annotations are in fields of key and value.
func (md *metadata) read(b []byte) error {
	m := message{b: b}
	for m.next() {
		switch {
		case m.is(1, wireBytes):
			md.name = m.val
		case m.is(3, wireBytes):
			md.namespace = m.val
		case m.is(6, wireBytes):
			md.version = m.val
		case m.is(11, wireBytes), m.is(12, wireBytes):
			md.entry(&m)
		}
	}
	return m.err
}

func (md *metadata) entry(m *message) {
	entry := message{b: m.val}
	key, value := entry.pair()
	m.err = entry.err
	switch string(key) {
	case labelServiceName:
		if m.num == 11 {
			md.service = value
		}
	case labelSourceCluster:
		if m.num == 11 {
			md.cluster = value
		}
	case corev1.EndpointsLastChangeTriggerTime:
		if m.num == 12 {
			md.trigger = value
		}
	case initialEventsEnd:
		md.initialEnd = m.num == 12 && string(value) == "true"
	}
}

// read makes a record of the protobuf of one EndpointSlice. If the store holds it already it is that one. nil: it has no
// name.
func (r *sliceReader) read(b []byte) (*sliceObject, error) {
	r.meta, r.kind, r.found, r.hosts, r.ports = metadata{}, nil, r.found[:0], r.hosts[:0], r.ports[:0]
	r.sum, r.zoned = sumOf(b), r.store.topology != (catalog.Topology{})
	m := message{b: b}
	for m.next() {
		switch {
		case m.is(1, wireBytes):
			if m.err = r.meta.read(m.val); m.err == nil && len(m.b) > 0 && r.named() {
				if held := r.store.heldSlice(r.key, r.version(), r.sum); held != nil {
					return held, nil
				}
			}
		case m.is(2, wireBytes):
			m.err = r.endpoint(m.val)
		case m.is(3, wireBytes):
			m.err = r.port(m.val)
		case m.is(4, wireBytes):
			r.kind = m.val
		}
	}
	if m.err != nil || !r.named() || r.version() == 0 {
		return nil, m.err
	}
	return r.record(), nil
}

func (r *sliceReader) version() uint64 { return parseUint(r.meta.version, 64) }

func (r *sliceReader) named() bool {
	if len(r.meta.namespace) == 0 || len(r.meta.name) == 0 {
		return false
	}
	r.key = append(append(append(r.key[:0], r.meta.namespace...), '/'), r.meta.name...)
	return true
}

func (r *sliceReader) record() *sliceObject {
	o := &sliceObject{
		key:     string(r.key),
		service: string(r.meta.service) + "." + string(r.meta.namespace),
		version: r.version(),
		sum:     r.sum,
	}
	if t, err := time.Parse(time.RFC3339Nano, string(r.meta.trigger)); err == nil {
		o.trigger = t.UnixNano()
	}
	cluster := r.names.intern(bytes.ToLower(r.meta.cluster))
	switch {
	case cluster == "":
		o.skipped = noSourceCluster
	case !catalog.IsClusterID(cluster):
		o.skipped = impossibleClusterID
	case string(r.kind) != string(discoveryv1.AddressTypeIPv4) && string(r.kind) != string(discoveryv1.AddressTypeIPv6):
		o.skipped = wrongAddressType
	default:
		_, name, _ := strings.Cut(o.key, "/")
		o.slice = catalog.NewSlice(name, cluster, r.ports, r.endpoints())
	}
	return o
}

// endpoints are the ready ones whose address is of the slice's type. Their host names share one string, which NewSlice copies.
func (r *sliceReader) endpoints() []catalog.Endpoint {
	hosts := string(r.hosts)
	four := string(r.kind) == string(discoveryv1.AddressTypeIPv4)
	r.ready = r.ready[:0]
	for _, e := range r.found {
		if e.addr.Is4() == four {
			r.ready = append(r.ready, catalog.Endpoint{Addr: e.addr, Host: hosts[e.start:e.end], Zone: e.zone})
		}
	}
	return r.ready
}

// endpoint adds the addresses of one endpoint, if it is ready (N16). Terminating ones are not, unless the slice says so.
func (r *sliceReader) endpoint(b []byte) error {
	ready := true
	r.addrs, r.host, r.zone, r.pod = r.addrs[:0], nil, nil, podRef{}
	m := message{b: b}
	for m.next() {
		switch {
		case m.is(1, wireBytes):
			r.addrs = append(r.addrs, m.val)
		case m.is(2, wireBytes):
			conditions := message{b: m.val}
			for conditions.next() {
				if conditions.is(1, wireVarint) {
					ready = conditions.n != 0
				}
			}
			m.err = conditions.err
		case m.is(3, wireBytes):
			r.host = m.val
		case m.is(4, wireBytes):
			m.err = r.pod.read(m.val)
		case m.is(7, wireBytes):
			r.zone = m.val
		}
	}
	if m.err != nil || !ready {
		return m.err
	}
	zone := ""
	if r.zoned {
		zone = r.store.topology.Keep(r.names.intern(r.zone))
	}
	start := len(r.hosts)
	r.hosts = append(r.hosts, r.hostname()...)
	for _, text := range r.addrs {
		if addr, ok := address(text); ok {
			r.found = append(r.found, endpoint{addr, start, len(r.hosts), zone})
		}
	}
	return nil
}

func (p *podRef) read(b []byte) error {
	m := message{b: b}
	for m.next() {
		switch {
		case m.is(1, wireBytes):
			p.kind = m.val
		case m.is(3, wireBytes):
			p.name = m.val
		}
	}
	return m.err
}

// hostname of the endpoint being read, empty where it is named by its address (N15).
func (r *sliceReader) hostname() []byte {
	if len(r.host) > 0 {
		return r.host
	}
	if r.podNames && string(r.pod.kind) == "Pod" && catalog.IsLabel(strings.ToLower(string(r.pod.name))) {
		return r.pod.name
	}
	return nil
}

func (r *sliceReader) port(b []byte) error {
	var p catalog.Port
	m := message{b: b}
	for m.next() {
		switch {
		case m.is(1, wireBytes):
			p.Name = r.names.intern(m.val)
		case m.is(2, wireBytes):
			p.Proto = r.names.intern(m.val)
		case m.is(3, wireVarint):
			p.Number = 0
			if n := int32(m.n); n > 0 && n <= 0xffff {
				p.Number = uint16(n)
			}
		}
	}
	r.ports = append(r.ports, p)
	return m.err
}
