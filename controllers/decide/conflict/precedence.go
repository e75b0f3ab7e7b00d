package conflict

import (
	"cmp"
	"slices"
	"time"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Window is how long after the first export of a name another one still ranks by the age of its ServiceExport (C1).
// Clusters that form a ClusterSet join within it, and agents publish again within it after a hub was emptied.
const Window = 10 * time.Minute

// Order sorts the exports of one name by precedence (C1): first those in time, by the creation of their ServiceExport,
// as K1645 says; then those that are Late, by the creation of their record. Equal ones rank by cluster ID. So a later
// record does not change the order of those that were there before, unless it comes within Window of the first.
func Order(exports []clusterset.Export) {
	late := Late(exports)
	rank := func(e *clusterset.Export) (class int, at time.Time) {
		if late(e) {
			return 1, e.Published
		}
		return 0, e.Created
	}
	slices.SortFunc(exports, func(a, b clusterset.Export) int {
		aClass, aAt := rank(&a)
		bClass, bAt := rank(&b)
		return cmp.Or(cmp.Compare(aClass, bClass), aAt.Compare(bAt), cmp.Compare(a.Cluster, b.Cluster))
	})
}

// Late returns a function that reports whether an export's record was created more than Window after the first of
// these exports. It ranks behind all that were in time, whatever age its ServiceExport states: only the hub's API
// server writes the creation time of a record.
func Late(exports []clusterset.Export) func(*clusterset.Export) bool {
	var first time.Time
	for i := range exports {
		at := exports[i].Published // zero if it is not known
		if first.IsZero() || !at.IsZero() && at.Before(first) {
			first = at
		}
	}
	limit := first.Add(Window)
	return func(e *clusterset.Export) bool { return e.Published.After(limit) }
}
