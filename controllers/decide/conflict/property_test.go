package conflict_test

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
)

var (
	merges = flag.Int("merges", 8_000, "random inputs of TestMergeAgreesWithTheModel")
	seed   = flag.Uint64("seed", 0, "first seed; 0 takes the clock")
)

// TestMergeAgreesWithTheModel is C1–C8: for random exports Merge is what a model written from the text says, in
// every order of input, and the same when done again.
func TestMergeAgreesWithTheModel(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	for i := range uint64(*merges) {
		exports := resolution.Random(rand.New(rand.NewPCG(first+i, 0)))
		if err := resolution.Try(exports, conflict.Merge); err != nil {
			t.Fatalf("-seed %d -merges 1: %v", first+i, err)
		}
	}
}
