package kube

import (
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"
)

// rewriteAltered is the pause before an object that the API server stores differently is written again.
const rewriteAltered = 10 * time.Minute

// CacheDelay is how long a cache may take to show a write. Until then, passes would write the same again.
const CacheDelay = 2 * time.Second

// Written describes the last write of an object. The API server may store something else: its CRD prunes a field, or a
// policy sets one. Writing such an object at every pass would never end.
type Written struct {
	Version string   // of the object after the write; the caller sets it
	content [32]byte // hash of what was asked for
	at      time.Time
}

// NewWritten returns a write of content, without a version. Call it before the write: the client decodes the answer
// into the same memory.
func NewWritten(content any, at time.Time) Written { return Written{content: hash(content), at: at} }

// RetryIn returns after how long to write content again, if the last write had the same content and the object has not
// changed since. A result of 0 or less means: write it now.
func (w Written) RetryIn(version string, content any, now time.Time) time.Duration {
	if w.Version != version || w.content != hash(content) {
		return 0
	}
	return w.at.Add(rewriteAltered).Sub(now)
}

func hash(content any) [32]byte {
	text, _ := json.Marshal(content) // specs of API types always encode
	return sha256.Sum256(text)
}

// reportEvery is the shortest time between two messages about failures of one object. A write triggers the next pass,
// so messages that always differ (by a port number, say) would make passes follow each other without a pause.
const reportEvery = time.Minute

// Reported remembers when a failure of each name was reported last. The zero value is ready to use.
type Reported struct {
	mu sync.Mutex
	at map[string]time.Time
}

// Forget is for a name that has not failed, or is gone.
func (r *Reported) Forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.at, name)
}

// Repeats returns whether a failure of a name was noted within reportEvery. If not, it notes this one. A name that has
// not failed is forgotten.
func (r *Reported) Repeats(name string, failed bool, now time.Time) bool {
	if !failed {
		r.Forget(name)
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, known := r.at[name]; known && now.Sub(at) < reportEvery {
		return true
	}
	if r.at == nil {
		r.at = map[string]time.Time{}
	}
	r.at[name] = now
	return false
}
