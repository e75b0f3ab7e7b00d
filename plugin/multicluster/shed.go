package multicluster

import "sync/atomic"

// streams limits how many questions are answered at a time over TCP and what runs on it. The server has no write
// timeout there: a client that does not read keeps a goroutine and a whole reply for as long as it stays
// (docs/design.md). UDP waits for no client, and has CoreDNS's shed plugin.
type streams struct {
	limit int64
	busy  atomic.Int64
}

// enter reports whether one more question may be answered. If so, call leave afterwards.
func (s *streams) enter() bool {
	if s.busy.Add(1) > s.limit {
		s.busy.Add(-1)
		shedTotal.Inc()
		return false
	}
	return true
}

func (s *streams) leave() { s.busy.Add(-1) }
