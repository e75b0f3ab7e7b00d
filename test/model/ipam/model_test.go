package ipam

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

var (
	seeds = flag.Uint64("seeds", 2000, "how many random inputs")
	seed  = flag.Uint64("seed", 0, "the first of them: with -seeds 1, one is replayed")
)

func each(f func(seed uint64, r *rand.Rand)) {
	for s := *seed; s < *seed+*seeds; s++ {
		f(s, rand.New(rand.NewPCG(s, 0)))
	}
}

// TestCarveAgreesWithTheModel is the hub's part of DESIGN §5 for any input.
func TestCarveAgreesWithTheModel(t *testing.T) {
	each(func(seed uint64, r *rand.Rand) {
		if err := TryCarve(RandomCarving(r), ipam.Carve); err != nil {
			t.Fatalf("-seed %d: %v", seed, err)
		}
	})
}
