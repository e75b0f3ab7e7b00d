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

// NewerThan reports whether v is newer than a record that was created and revised so: a restored hub shows such a
// record again. A record that was created later is newer whatever its revision, which follows the owner's clock.
func (v Version) NewerThan(created, revision int64) bool {
	return created <= v.Created && revision <= v.Revision && (created < v.Created || revision < v.Revision)
}

// Next returns the version after the hub showed a record at now. It stays v for Patience if v is newer (S2, DESIGN
// §7).
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
