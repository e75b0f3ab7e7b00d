package multicluster

import (
	"crypto/tls"
	"net"
	"reflect"
	"sync"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/reply"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// write sends a reply that fits the client's buffer and says itself whether it is to be compressed. Straight below the server
// stands its ScrubWriter, which would find out both again, in two more walks over all records, and does not compress large
// replies to TCP (M3, docs/decisions/0003): where no other plugin has put a writer between, the reply goes past it, packed by us if
// the writer below takes the wire format (docs/decisions/0004).
func write(w dns.ResponseWriter, r, m *dns.Msg) error {
	if scrub, ok := w.(*request.ScrubWriter); ok {
		state := request.Request{W: scrub.ResponseWriter, Req: r}
		state.SizeAndDo(m)
		if takesWire(scrub.ResponseWriter) {
			return writeWire(scrub.ResponseWriter, m)
		}
		return scrub.ResponseWriter.WriteMsg(m)
	}
	if m.Compress && overStream(w) {
		if scrub := scrubber(w); scrub != nil {
			scrub.ResponseWriter = compressor{scrub.ResponseWriter}
		}
	}
	return w.WriteMsg(m)
}

// WireWriter is a writer whose Write sends a packed message as it is, and keeps nothing of it.
type WireWriter interface {
	dns.ResponseWriter
	TakesWire()
}

// takesWire tells whether Write of w sends a packed message. That of the library's UDP, TCP and TLS server does, and its type has
// no name outside; writers for HTTPS, QUIC and gRPC keep the message, and get one.
func takesWire(w dns.ResponseWriter) bool {
	if _, ok := w.(WireWriter); ok {
		return true
	}
	return reflect.TypeOf(w).String() == "*dns.response"
}

// buffers for packed replies. Write hands them to the kernel before it returns.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

func writeWire(w dns.ResponseWriter, m *dns.Msg) error {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	wire, ok := reply.Pack((*buf)[:0], m)
	*buf = wire
	if !ok {
		return w.WriteMsg(m)
	}
	_, err := w.Write(wire)
	return err
}

func overStream(w dns.ResponseWriter) bool {
	_, tcp := w.RemoteAddr().(*net.TCPAddr)
	return tcp
}

// scrubber finds the server's writer below those that plugins have put on it. They embed the next one, as a field of the
// interface's name.
func scrubber(w dns.ResponseWriter) *request.ScrubWriter {
	for range 32 { // no chain of plugins is longer
		if s, ok := w.(*request.ScrubWriter); ok {
			return s
		}
		v := reflect.Indirect(reflect.ValueOf(w))
		if v.Kind() != reflect.Struct {
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
