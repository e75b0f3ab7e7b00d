package ipam

import (
	"math/rand/v2"
	"testing"
)

// TestPositionsAgreeWithASet: next is the lowest that is not taken, through any taking and giving, however full.
func TestPositionsAgreeWithASet(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		size := uint64(1 + r.IntN(9000))
		s := positions{size: size, words: map[uint64]uint64{}}
		taken := make([]bool, size)
		for step := range 1000 {
			p := r.Uint64N(size)
			for n := uint64(0); n < 64 && p+n < size; n++ { // runs, so that words fill
				if taken[p+n] = step%8 < 6; taken[p+n] {
					s.take(p + n)
				} else {
					s.give(p + n)
				}
			}
			from := r.Uint64N(size)
			want := from
			for want < size && taken[want] {
				want++
			}
			if got, ok := s.next(from); ok != (want < size) || ok && got != want {
				t.Fatalf("seed %d, step %d: next(%d) of %d is %d %v, want %d", seed, step, from, size, got, ok, want)
			}
		}
		for p := range size {
			s.give(p)
		}
		if len(s.words) > 0 {
			t.Fatalf("seed %d: %d words are left of an empty set", seed, len(s.words))
		}
	}
}

// TestTheOnlyFreePositionIsFound wherever it is and wherever the search begins. (That it is found as fast as any: test/bench/ipam.)
func TestTheOnlyFreePositionIsFound(t *testing.T) {
	s := positions{size: 1 << 18, words: map[uint64]uint64{}}
	for p := range s.size {
		s.take(p)
	}
	if _, ok := s.from(12345); ok {
		t.Fatal("a full set has a free position")
	}
	for _, free := range []uint64{0, 1, 63, 64, 4095, 4096, 1<<18 - 1} {
		s.give(free)
		if got, ok := s.from(100000); !ok || got != free {
			t.Errorf("the only free one is %d: %d %v", free, got, ok)
		}
		s.take(free)
	}
}
