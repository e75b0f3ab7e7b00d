// Package authority has what the zones of both plugins share: the options, the way of a question, the client's buffer
// size, NOTIFY and transfers. It does not know what names a plugin has below those of every zone.
package authority

import (
	"context"
	"net"

	"github.com/coredns/coredns/plugin/tsig"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// refuse returns the rcode of a message that is not a question for our records.
func refuse(r *dns.Msg) int {
	q := r.Question[0]
	switch {
	case r.Opcode != dns.OpcodeQuery: // NOTIFY reaches plugins
		return dns.RcodeNotImplemented
	case q.Qclass != dns.ClassINET: // chaos and forward have the server let other classes in
		return dns.RcodeRefused
	case q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR: // the transfer plugin passed it on (L6)
		return dns.RcodeRefused
	}
	return dns.RcodeSuccess
}

// maxDatagram is the most octets that UDP over IPv4 carries: 65,535 less the headers (RFC 768, RFC 791).
const maxDatagram = 65507

// maxSignature is the most octets of a TSIG record without the labels of its key: those of hmac-sha512 (RFC 8945).
const maxSignature = 104

// limit returns how many octets the client takes. signed reports whether the tsig plugin will sign the reply: then they
// are without the signature, and the caller must compress, since the server neither cuts nor compresses the reply.
func limit(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (octets int, signed bool) {
	state := request.Request{W: w, Req: r}
	octets = max(state.Size(), dns.MinMsgSize)
	if octets > maxDatagram && !overStream(w) {
		octets = maxDatagram
	}
	key, signed := tsig.ValidatedKeyName(ctx)
	if signed {
		octets -= len(key) + maxSignature
	}
	return octets, signed
}

// overStream reports whether a client asks over TCP.
func overStream(w dns.ResponseWriter) bool {
	_, ok := Remote(w).(*net.TCPAddr)
	return ok
}

// Remote returns the address that asks. It may be wrapped, as proxyproto's tlv_metadata does.
func Remote(w dns.ResponseWriter) net.Addr {
	addr := w.RemoteAddr()
	if wrapped, ok := addr.(interface{ Unwrap() net.Addr }); ok {
		return wrapped.Unwrap()
	}
	return addr
}
