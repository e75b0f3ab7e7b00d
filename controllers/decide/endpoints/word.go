package endpoints

import "time"

// Patience with an owner whose record is behind its last word: it looks itself whether the hub has what it wrote (publish). An owner that has
// lost its memory may have nothing more to say, so what the hub shows counts then.
const Patience = 45 * time.Second

// Word is the latest that an owner said of a record, as far as the hub has shown.
type Word struct {
	Created  int64 // when the record was created, by the hub's clock, in seconds since 1970
	Revision int64
	Behind   time.Time // since when the hub has shown an earlier one; zero while it shows this one
}

// Older tells whether a record says less than w: one that a restored hub shows again. A record that was created later on the hub, which
// had lost it, is its owner's later word whatever its revision, which goes by the owner's clock; and so is a higher revision of one that
// a backup brought back.
func (w Word) Older(created, revision int64) bool {
	return created <= w.Created && revision <= w.Revision && (created < w.Created || revision < w.Revision)
}

// Shown is the latest word once the hub shows this one: the same, and behind, where that is an earlier one and the owner may be expected
// to say its last again (S2, DESIGN §7).
func (w Word) Shown(created, revision int64, now time.Time) Word {
	if !w.Older(created, revision) {
		return Word{Created: created, Revision: revision}
	}
	if w.Behind.IsZero() {
		w.Behind = now
	}
	if now.Sub(w.Behind) < Patience {
		return w
	}
	return Word{Created: created, Revision: revision}
}
