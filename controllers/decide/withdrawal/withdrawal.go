// Package withdrawal decides what a member acknowledges, and when the owner of a withdrawn record deletes it
// (DESIGN §2). A withdrawn record is a tombstone: it stays on the hub until every other member has acknowledged it.
//
// A member acknowledges in its Lease one version of one tombstone, by UID and resourceVersion: it has applied this one
// and all older ones. The owner looks that version up among the tombstones that it sees itself. So an acknowledgement
// from before a restore counts only if the hub still has this very version, and the order of resourceVersions is only
// used within one list.
package withdrawal

import (
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// AnnotationAcknowledged on a member's Lease on the hub names the version (kube.Version) of a tombstone: the newest
// that the member has applied with all older ones.
const AnnotationAcknowledged = "clusterset-dns.io/acknowledged"

// A tombstone stays on the hub for MinRetention, because the caches may not show a member yet that is just joining. It
// is deleted after MaxRetention even if a member never acknowledges it.
const (
	MinRetention = 10 * time.Minute
	MaxRetention = 30 * 24 * time.Hour
)

// recheck is how often an owner looks whether a tombstone is acknowledged. Leases are renewed too often to be watched
// for that.
const recheck = time.Minute

// Newest returns the newest tombstone that is applied with all older ones, or nil. It sorts tombstones, oldest first.
func Newest(
	tombstones []*hubv1alpha1.ServiceExportRecord, applied func(*hubv1alpha1.ServiceExportRecord) bool,
) (newest *hubv1alpha1.ServiceExportRecord) {
	slices.SortFunc(tombstones, compare)
	for _, rec := range tombstones {
		if !applied(rec) {
			break
		}
		newest = rec
	}
	return newest
}

func compare(a, b *hubv1alpha1.ServiceExportRecord) int {
	order, _ := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return order
}

// Acknowledged returns whether every Lease of another member acknowledges a tombstone of cluster. members are the
// cluster IDs of all members that have not departed, with or without a Lease. find returns the tombstone on the hub
// with a version, or nil.
func Acknowledged(
	rec *hubv1alpha1.ServiceExportRecord, members map[string]*coordinationv1.Lease,
	find func(version string) *hubv1alpha1.ServiceExportRecord,
) bool {
	for _, cluster := range slices.Sorted(maps.Keys(members)) { // sorted, so that a simulation can be replayed
		lease := members[cluster]
		if cluster == rec.Spec.ClusterID {
			continue
		}
		if lease == nil || lease.Annotations[AnnotationAcknowledged] == "" {
			return false
		}
		if newest := find(lease.Annotations[AnnotationAcknowledged]); newest == nil || compare(newest, rec) < 0 {
			return false
		}
	}
	return true
}

// RecheckIn returns after how long the owner of a tombstone looks at it again; 0 means to delete it now.
func RecheckIn(age time.Duration, acknowledged bool) time.Duration {
	switch {
	case age >= MaxRetention || acknowledged && age >= MinRetention:
		return 0
	case age < MinRetention:
		return MinRetention - age
	}
	return min(recheck, MaxRetention-age)
}
