package endpoints

import "time"

// Patience is how long an owner may take to publish a record again after the hub was restored to an earlier version
// of it. The owner may have lost its data, so afterwards the version on the hub counts.
const Patience = 45 * time.Second

// Version is the latest version of a record that the hub has shown.
type Version struct {
	Created       int64 // creation of the record by the hub's clock, in Unix seconds
	Revision      int64
	RevertedSince time.Time // when the hub began to show an earlier version; zero if it does not
}

// NewerThan reports whether v is newer than a record with this creation time and revision, as a restored hub shows
// again: neither is above that of v, and one is below. So a record that was created later than v is never older,
// whatever its revision: the owner's clock, which revisions follow, may have been set back.
func (v Version) NewerThan(created, revision int64) bool {
	return created <= v.Created && revision <= v.Revision && (created < v.Created || revision < v.Revision)
}

// Next returns the version that counts after the hub showed a record at now: that record, or for Patience still v, if
// v is newer (DESIGN §7).
func (v Version) Next(created, revision int64, now time.Time) Version {
	if v.NewerThan(created, revision) {
		if v.RevertedSince.IsZero() {
			v.RevertedSince = now
		}
		if now.Sub(v.RevertedSince) < Patience {
			return v
		}
	}
	return Version{Created: created, Revision: revision}
}
