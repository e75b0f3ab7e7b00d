package withdrawal

import (
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

func tombstone(cluster string, version int) *hubv1alpha1.ServiceExportRecord {
	rec := &hubv1alpha1.ServiceExportRecord{}
	rec.Spec.ClusterID, rec.ResourceVersion, rec.Spec.Withdrawn = cluster, strconv.Itoa(version), true
	return rec
}

// TestE10AMemberAcknowledgesNothingBeyondWhatItHasNotApplied, whatever the order of the list.
func TestE10AMemberAcknowledgesNothingBeyondWhatItHasNotApplied(t *testing.T) {
	for _, c := range []struct {
		name      string
		versions  []int
		unapplied map[string]bool
		want      string
	}{
		{"there is none", nil, nil, ""},
		{"all are applied", []int{10, 9, 100}, nil, "100"}, // 100 is newer than 9, as a number
		{"the newest is not", []int{10, 9, 100}, map[string]bool{"100": true}, "10"},
		{"one in between is not", []int{10, 9, 100}, map[string]bool{"10": true}, "9"},
		{"the oldest is not", []int{10, 9, 100}, map[string]bool{"9": true}, ""},
	} {
		var list []*hubv1alpha1.ServiceExportRecord
		for _, v := range c.versions {
			list = append(list, tombstone("east", v))
		}
		got := ""
		applied := func(rec *hubv1alpha1.ServiceExportRecord) bool { return !c.unapplied[rec.ResourceVersion] }
		if rec := Newest(list, applied); rec != nil {
			got = rec.ResourceVersion
		}
		if got != c.want {
			t.Errorf("%s: acknowledges %q, want %q", c.name, got, c.want)
		}
	}
}

// TestE10ATombstoneWaitsForEveryOtherMember: for one that is away, one that has no Lease, and one whose
// acknowledgement is of a hub before it was restored.
func TestE10ATombstoneWaitsForEveryOtherMember(t *testing.T) {
	lease := func(acknowledged string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{}
		l.Annotations = map[string]string{AnnotationAcknowledged: acknowledged}
		return l
	}
	onHub := map[string]*hubv1alpha1.ServiceExportRecord{
		"older": tombstone("west", 9), "this": tombstone("east", 10), "newer": tombstone("west", 11),
	}
	for _, c := range []struct {
		name    string
		members map[string]*coordinationv1.Lease
		want    bool
	}{
		{"nobody else", map[string]*coordinationv1.Lease{"east": nil}, true},
		{"this one", map[string]*coordinationv1.Lease{"west": lease("this")}, true},
		{"a newer one", map[string]*coordinationv1.Lease{"west": lease("newer"), "east": nil}, true},
		{"an older one", map[string]*coordinationv1.Lease{"west": lease("older")}, false},
		{"one that the hub does not have", map[string]*coordinationv1.Lease{"west": lease("before a restore")}, false},
		{"none", map[string]*coordinationv1.Lease{"west": {}}, false},
		{"a member without a Lease", map[string]*coordinationv1.Lease{"west": nil, "north": lease("this")}, false},
	} {
		find := func(version string) *hubv1alpha1.ServiceExportRecord { return onHub[version] }
		if got := Acknowledged(onHub["this"], c.members, find); got != c.want {
			t.Errorf("%s: acknowledged %v, want %v", c.name, got, c.want)
		}
	}
}

func TestE10RetentionOfATombstone(t *testing.T) {
	for _, c := range []struct {
		age          time.Duration
		acknowledged bool
		want         time.Duration
	}{
		{0, true, MinRetention},
		{MinRetention - time.Second, true, time.Second},
		{MinRetention, true, 0},
		{MinRetention, false, time.Minute},
		{7 * 24 * time.Hour, false, time.Minute},
		{7 * 24 * time.Hour, true, 0},
		{MaxRetention - time.Second, false, time.Second},
		{MaxRetention, false, 0},
		{-time.Hour, true, time.Hour + MinRetention}, // the clock was set back
	} {
		if got := RecheckIn(c.age, c.acknowledged); got != c.want {
			t.Errorf("after %v, acknowledged %v: %v, want %v", c.age, c.acknowledged, got, c.want)
		}
	}
}
