package clusterset

import "time"

// NextRevision follows last. It goes by the clock, so that a member that has lost all memory of last still comes out above it; and
// always forward, whatever the clock does.
func NextRevision(last int64, now time.Time) int64 {
	return max(last+1, now.UnixMilli())
}

// Retention is how long a withdrawn record stays on the hub, for members that are away (DESIGN §2).
const Retention = 24 * time.Hour
