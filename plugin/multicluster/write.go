package multicluster

import (
	"context"
	"crypto/tls"
	"net"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// outlet is the way that a reply takes. Straight below the server stands its ScrubWriter, which would find out again, in two more
// walks over all records, that the reply fits, and does not compress large replies to TCP (M3, docs/decisions/0003): where no
// other plugin has put a writer between, the reply goes past it, packed by us if the writer below takes the wire format. Then nobody
// keeps it, and it is made in memory that the next one is made in (docs/decisions/0004).
type outlet struct {
	w    dns.ResponseWriter
	bare *request.ScrubWriter // w, if it is the server's own, or merely passes on to that
	lent *lent                // if the reply goes out as octets
}

type lent struct {
	memory reply.Memory
	wire   []byte
}

var lents = sync.Pool{New: func() any { return new(lent) }}

func newOutlet(w dns.ResponseWriter) outlet {
	o := outlet{w: w}
	if scrub := serversOwn(w); scrub != nil {
		o.bare = scrub
		if takesWire(scrub.ResponseWriter) {
			o.lent = lents.Get().(*lent)
		}
	}
	return o
}

// passing is the type of the writer that CoreDNS has around every other for the next plugin, so that metrics can tell who wrote. It has no name
// outside, passes everything on, and tells nothing to a ScrubWriter.
var passing = func() reflect.Type {
	var t reflect.Type
	next := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, _ *dns.Msg) (int, error) {
		t = reflect.TypeOf(w)
		return 0, nil
	})
	_, _ = plugin.NextOrFailure("", next, context.Background(), &request.ScrubWriter{}, nil)
	if t == nil {
		return nil
	}
	if s := t.Elem(); s.NumField() == 0 || s.Field(0).Type != reflect.TypeFor[dns.ResponseWriter]() || !s.Field(0).IsExported() {
		return nil
	}
	return t
}()

// serversOwn is the server's ScrubWriter, if no plugin has put a writer of its own on it.
func serversOwn(w dns.ResponseWriter) *request.ScrubWriter {
	for {
		if scrub, ok := w.(*request.ScrubWriter); ok {
			return scrub
		}
		v := reflect.ValueOf(w)
		if v.Type() != passing {
			return nil
		}
		w, _ = v.Elem().Field(0).Interface().(dns.ResponseWriter)
	}
}

func (o *outlet) release() {
	if o.lent != nil {
		lents.Put(o.lent)
	}
}

func (o *outlet) memory() *reply.Memory {
	if o.lent == nil {
		return nil
	}
	return &o.lent.memory
}

// write sends a reply that fits the client's buffer and says itself whether it is to be compressed.
func (o *outlet) write(r, m *dns.Msg) error {
	if o.bare != nil {
		state := request.Request{W: o.bare.ResponseWriter, Req: r}
		state.SizeAndDo(m)
		if o.lent != nil {
			if wire, ok := reply.Pack(o.lent.wire[:0], m); ok {
				o.lent.wire = wire
				_, err := o.bare.ResponseWriter.Write(wire)
				return err
			}
		}
		return o.bare.ResponseWriter.WriteMsg(m)
	}
	if m.Compress && overStream(o.w) {
		if scrub := scrubber(o.w); scrub != nil {
			scrub.ResponseWriter = compressor{scrub.ResponseWriter}
		}
	}
	return o.w.WriteMsg(m)
}

// WireWriter is a writer that keeps nothing: its Write sends a packed message as it is, its WriteMsg packs at once.
type WireWriter interface {
	dns.ResponseWriter
	TakesWire()
}

// takesWire tells whether Write of w sends a packed message as WriteMsg would. That of the library's UDP, TCP and TLS server does, but
// not where the server decorates its writers, as the shed plugin has it do: Write goes past the decorator, and a decorator may keep the
// octets that it is given, which are lent. Writers for HTTPS, QUIC and gRPC keep the message, and get one.
func takesWire(w dns.ResponseWriter) bool {
	k := known.Load()
	if t := reflect.TypeOf(w); k == nil || k.of != t {
		if _, ok := w.(WireWriter); ok {
			return true
		}
		if k = learn(t); k == nil {
			return false
		}
		known.Store(k)
	}
	v := reflect.ValueOf(w)
	next := v.Elem().Field(k.writer).Elem()
	return next.Kind() == reflect.Pointer && next.Pointer() == v.Pointer()
}

// response is the type of the library's writer, and which of its fields holds the writer that packed messages go to: itself, or what
// decorates it. Neither has a name outside.
type response struct {
	of     reflect.Type
	writer int
}

// known is the last one that was learnt: looking a field up by its name allocates.
var known atomic.Pointer[response]

// learn is nil for any other type.
func learn(t reflect.Type) *response {
	if t.String() != "*dns.response" {
		return nil
	}
	f, ok := t.Elem().FieldByName("writer")
	if !ok || len(f.Index) != 1 || f.Type.Kind() != reflect.Interface {
		return nil
	}
	return &response{t, f.Index[0]}
}

// overStream tells whether a client asks over TCP. The address may be wrapped, as proxyproto's tlv_metadata does. What the cache plugin asks
// for itself, to refresh what it has, comes from nobody's: no client waits.
func overStream(w dns.ResponseWriter) bool {
	addr := w.RemoteAddr()
	if wrapped, ok := addr.(interface{ Unwrap() net.Addr }); ok {
		addr = wrapped.Unwrap()
	}
	tcp, ok := addr.(*net.TCPAddr)
	return ok && (tcp.IP != nil || tcp.Port != 0)
}

// scrubber finds the server's writer below those that plugins have put on it. They embed the next one, as a field of the
// interface's name. It finds none below a writer of the cache plugin that writes nothing to the client: the client may be served what is
// stale meanwhile, through the same ScrubWriter, by another goroutine.
func scrubber(w dns.ResponseWriter) *request.ScrubWriter {
	for range 32 { // no chain of plugins is longer
		if s, ok := w.(*request.ScrubWriter); ok {
			return s
		}
		v := reflect.Indirect(reflect.ValueOf(w))
		if v.Kind() != reflect.Struct {
			return nil
		}
		if detached := v.FieldByName("prefetch"); detached.Kind() == reflect.Bool && detached.Bool() {
			return nil
		}
		f := v.FieldByName("ResponseWriter")
		if !f.IsValid() || !f.CanInterface() {
			return nil
		}
		next, ok := f.Interface().(dns.ResponseWriter)
		if !ok {
			return nil
		}
		w = next
	}
	return nil
}

// compressor stands below a ScrubWriter, for one reply.
type compressor struct{ dns.ResponseWriter }

// WriteMsg implements dns.ResponseWriter.
func (c compressor) WriteMsg(m *dns.Msg) error {
	m.Compress = true
	return c.ResponseWriter.WriteMsg(m)
}

// ConnectionState implements dns.ConnectionStater as ScrubWriter does.
func (c compressor) ConnectionState() *tls.ConnectionState {
	if s, ok := c.ResponseWriter.(dns.ConnectionStater); ok {
		return s.ConnectionState()
	}
	return nil
}
