package multicluster

import (
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
)

// growStacks lets the goroutine of each UDP question grow its stack once, when it starts.
//
// The server starts a goroutine with 2 KiB of stack for each question. The plugins need 8, or 16 behind cache and
// kubernetes, so the runtime copies the stack up to three times while the chain deepens. That is a fifth of the
// server's CPU, which the ablations of make bench measure. The function below is the only hook that runs at
// the top of that goroutine, where there is next to nothing to copy. It belongs to the listener, so other blocks on it
// gain, too. TCP and TLS have a goroutine for each connection and no copies; HTTPS has 7 % of them, and no such hook.
//
// If several blocks on a listener have such a function, the server takes the last one. This one stays away if an
// earlier block has one, which would not be called then. It calls the one that its own block has.
func growStacks(c *caddy.Controller) {
	for earlier := *c; earlier.ServerBlockIndex > 0; {
		earlier.ServerBlockIndex--
		if dnsserver.GetConfig(&earlier).UDPDecorateWriterFunc != nil {
			return
		}
	}
	config := dnsserver.GetConfig(c)
	decorate := config.UDPDecorateWriterFunc
	config.UDPDecorateWriterFunc = func(s *dnsserver.Server) dns.DecorateWriter {
		inner := func(w dns.Writer) dns.Writer { return w }
		if decorate != nil {
			inner = decorate(s)
		}
		return func(w dns.Writer) dns.Writer {
			grow(false)
			return inner(w)
		}
	}
}

// grow needs a frame of 10 KiB, and its prologue makes the stack large enough for it. Nothing is written to the frame.
//
//go:noinline
func grow(never bool) byte {
	if !never {
		return 0
	}
	var frame [10 << 10]byte
	return last(frame[:])
}

//go:noinline
func last(b []byte) byte { return b[len(b)-1] }
