package multicluster

import (
	"sync/atomic"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/kube"
)

// streams bounds how many questions are answered at a time over TCP and what runs on it. The server has no write timeout there: a client
// that does not read keeps a goroutine and a whole reply for as long as it stays (docs/decisions/0011). UDP waits for no client, and has CoreDNS's shed plugin.
type streams struct {
	limit int64
	busy  atomic.Int64
}

// enter tells whether there is room; then leave is to be called.
func (s *streams) enter() bool {
	if s.busy.Add(1) > s.limit {
		s.busy.Add(-1)
		kube.Shed.Inc()
		return false
	}
	return true
}

func (s *streams) leave() { s.busy.Add(-1) }
