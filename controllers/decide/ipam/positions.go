package ipam

import "math/bits"

// positions is the set of those taken among the numbers below size. Level 0 has a bit per position; each level above has one per word of
// the level below, set when that word is full. So the next free position is found in a step or two per level, as fast in a full set as in
// an empty one, and only words with a bit set exist (V5).
type positions struct {
	size  uint64
	words map[uint64]uint64
}

const levels = 10 // 64^10 = 2^60 > maxSize

// key of a word: its level above its index, which at level 0 has at most 54 bits.
func key(level, index uint64) uint64 { return level<<58 | index }

func (s *positions) take(p uint64) {
	for level := range uint64(levels) {
		k := key(level, p>>6)
		word := s.words[k] | 1<<(p&63)
		s.words[k] = word
		if word != ^uint64(0) {
			return
		}
		p >>= 6
	}
}

func (s *positions) give(p uint64) {
	for level := range uint64(levels) {
		k := key(level, p>>6)
		word := s.words[k]
		if left := word &^ (1 << (p & 63)); left != 0 {
			s.words[k] = left
		} else {
			delete(s.words, k)
		}
		if word != ^uint64(0) {
			return
		}
		p >>= 6
	}
}

// next is the first free position from p on.
func (s *positions) next(p uint64) (uint64, bool) {
	for level := range uint64(levels) {
		free := ^s.words[key(level, p>>6)] & (^uint64(0) << (p & 63))
		if free == 0 {
			p = p>>6 + 1
			continue
		}
		p = p&^63 | uint64(bits.TrailingZeros64(free))
		for ; level > 0; level-- {
			p = p<<6 | uint64(bits.TrailingZeros64(^s.words[key(level-1, p)]))
		}
		return p, p < s.size
	}
	return 0, false
}

// from is the first free position from p on, round the end.
func (s *positions) from(p uint64) (uint64, bool) {
	if found, ok := s.next(p); ok {
		return found, true
	}
	return s.next(0)
}
