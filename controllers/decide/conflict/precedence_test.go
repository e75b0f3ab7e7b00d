package conflict_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
)

// founded is when the hub got the first record.
var founded = time.Unix(1_800_000_000, 0)

// since returns an export that states an age in days, and whose record came so long after the first.
func since(cluster string, days int, after time.Duration) clusterset.Export {
	return clusterset.Export{
		Cluster: cluster, Type: mcsv1beta1.ClusterSetIP, Families: []corev1.IPFamily{corev1.IPv4Protocol},
		Created: founded.AddDate(0, 0, -days), Published: founded.Add(after),
	}
}

func order(exports ...clusterset.Export) string {
	conflict.Order(exports)
	var ids []string
	for i := range exports {
		ids = append(ids, exports[i].Cluster)
	}
	return strings.Join(ids, " ")
}

func TestC1Precedence(t *testing.T) {
	notOnHub := since("a", 9, 0)
	notOnHub.Published = clusterset.Published(&hubv1alpha1.ServiceExportRecord{})
	standIn := since("z", 0, 0)
	standIn.Created, standIn.Published = time.Time{}, time.Time{}
	const late = conflict.Window + time.Second
	for _, c := range []struct {
		name    string
		exports []clusterset.Export
		want    string
	}{
		{"the oldest export first", []clusterset.Export{since("b", 1, 0), since("a", 2, 0)}, "a b"},
		{"whoever comes first, within the window",
			[]clusterset.Export{since("b", 1, 0), since("a", 2, conflict.Window)}, "a b"},
		{"an old export that joins late", []clusterset.Export{since("b", 1, 0), since("a", 9000, late)}, "b a"},
		{"late ones in the order in which they came",
			[]clusterset.Export{since("c", 1, 0), since("b", 1, late), since("a", 9000, late+time.Second)}, "c b a"},
		{"late ones behind the last that was in time",
			[]clusterset.Export{since("c", 1, 0), since("b", 0, conflict.Window), since("a", 9000, late)}, "c b a"},
		{"the window is that of the first",
			[]clusterset.Export{since("c", 1, 0), since("b", 2, late/2), since("a", 3, late)}, "b c a"},
		{"ties by cluster ID",
			[]clusterset.Export{since("b", 1, late), since("c", 1, 0), since("a", 1, late)}, "c a b"},
		{"what is not on the hub yet comes last", []clusterset.Export{notOnHub, since("b", 1, 0), since("c", 1, late)},
			"b c a"},
		{"what an import stands in for comes first",
			[]clusterset.Export{since("a", 9, 0), since("b", 1, late), standIn}, "z a b"},
	} {
		if got := order(c.exports...); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestC1ALaterRecordChangesNoWinner unless it comes within the window of the first. The order is total, and does not
// depend on the order of the input.
func TestC1ALaterRecordChangesNoWinner(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	later := 0
	for range 4_000 {
		exports := resolution.Random(r)
		if len(exports) < 2 {
			continue
		}
		whole := order(slices.Clone(exports)...)
		shuffled := slices.Clone(exports)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := order(shuffled...); again != whole {
			t.Fatalf("%s, and from another order %s: %+v", whole, again, exports)
		}
		last := exports[0]
		var first time.Time
		for _, e := range exports[1:] {
			if first.IsZero() || !e.Published.IsZero() && e.Published.Before(first) {
				first = e.Published
			}
		}
		before := order(slices.Clone(exports[1:])...)
		if first.IsZero() || !last.Published.After(first.Add(conflict.Window)) {
			continue
		}
		later++
		without := strings.Join(slices.DeleteFunc(strings.Fields(whole), func(id string) bool {
			return id == last.Cluster
		}), " ")
		if without != before {
			t.Fatalf("%s comes later, and %s became %s: %+v", last.Cluster, before, whole, exports)
		}
		is, _ := conflict.Merge(exports)
		was, _ := conflict.Merge(exports[1:])
		if is.Type != was.Type || is.SessionAffinity != was.SessionAffinity ||
			!slices.Equal(is.Families, was.Families) {
			t.Fatalf("%s comes later, and %+v became %+v", last.Cluster, was, is)
		}
	}
	if later < 200 {
		t.Errorf("a later record came %d times only", later)
	}
}
