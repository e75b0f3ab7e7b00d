package multicluster

import (
	"testing"
	"unsafe"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
)

type otherWriter struct{ dns.Writer }

// The hook wraps what its block has, and leaves the listener to what an earlier block has.
func TestGrowStacksKeepsOthersWriters(t *testing.T) {
	other := func(s *dnsserver.Server) dns.DecorateWriter {
		if s == nil {
			t.Error("the function was not given its server")
		}
		return func(w dns.Writer) dns.Writer { return otherWriter{w} }
	}
	for name, tt := range map[string]struct {
		has  int // the block that has a writer of its own; -1: none
		want bool
		then dns.Writer
	}{
		"nobody has one":                        {-1, true, nil},
		"its own block":                         {1, true, otherWriter{}},
		"an earlier block":                      {0, false, nil},
		"a later block, which the server takes": {2, true, nil},
	} {
		corefile := caddy.NewTestController("dns", "")
		block := func(i int) *caddy.Controller {
			c := *corefile
			c.ServerBlockIndex = i
			return &c
		}
		if tt.has >= 0 {
			dnsserver.GetConfig(block(tt.has)).UDPDecorateWriterFunc = other
		}
		growStacks(block(1))
		f := dnsserver.GetConfig(block(1)).UDPDecorateWriterFunc
		if (f != nil) != tt.want {
			t.Errorf("%s: set %v, want %v", name, f != nil, tt.want)
		}
		if f == nil {
			continue
		}
		if w := f(new(dnsserver.Server))(nil); w != tt.then {
			t.Errorf("%s: the writer is %T, want %T", name, w, tt.then)
		}
	}
}

// After grow, a goroutine that needs what the plugins need keeps its stack where it is.
func TestGrowMovesTheStackOnce(t *testing.T) {
	moved := make(chan bool)
	go func() {
		var b byte
		grow(false)
		before := uintptr(unsafe.Pointer(&b))
		deepen(8)
		moved <- uintptr(unsafe.Pointer(&b)) != before
	}()
	if <-moved {
		t.Error("the stack was copied again")
	}
}

// deepen needs a KiB of stack for each n.
//
//go:noinline
func deepen(n int) byte {
	var frame [1 << 10]byte
	if n > 0 {
		frame[n] = deepen(n - 1)
	}
	return last(frame[:])
}
