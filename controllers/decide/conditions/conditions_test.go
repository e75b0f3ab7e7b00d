package conditions

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// TestE8TransitionTimes: observedGeneration follows, lastTransitionTime moves only with the status, nothing new is
// no change.
func TestE8TransitionTimes(t *testing.T) {
	t0, t1 := metav1.NewTime(time.Unix(100, 0)), metav1.NewTime(time.Unix(200, 0))
	one, changed := Set(nil, []metav1.Condition{Valid()}, 1, t0)
	if !changed || len(one) != 1 || one[0].ObservedGeneration != 1 || !one[0].LastTransitionTime.Equal(&t0) {
		t.Errorf("first: %+v", one)
	}
	same, changed := Set(one, []metav1.Condition{Valid()}, 1, t1)
	if changed || !same[0].LastTransitionTime.Equal(&t0) {
		t.Errorf("again: %+v", same)
	}
	next, changed := Set(one, []metav1.Condition{Valid()}, 2, t1)
	if !changed || next[0].ObservedGeneration != 2 || !next[0].LastTransitionTime.Equal(&t0) ||
		one[0].ObservedGeneration != 1 {
		t.Errorf("a new generation: %+v", next)
	}
	flipped, _ := Set(one, []metav1.Condition{Invalid(mcsv1beta1.ServiceExportReasonNoService, "x")}, 1, t1)
	if !flipped[0].LastTransitionTime.Equal(&t1) {
		t.Errorf("flipped: %+v", flipped)
	}
}

// TestE5AllReasons: comma-joined without spaces.
func TestE5AllReasons(t *testing.T) {
	c := Conflict(
		[]conflict.Conflict{
			{Reason: mcsv1beta1.ServiceExportReasonTypeConflict, Message: "A."},
			{Reason: mcsv1beta1.ServiceExportReasonPortConflict, Message: "B."},
		},
	)
	if c.Status != metav1.ConditionTrue || c.Reason != "TypeConflict,PortConflict" || c.Message != "A. B." {
		t.Errorf("%+v", c)
	}
	if c := Conflict(nil); c.Status != metav1.ConditionFalse || c.Reason != "NoConflicts" {
		t.Errorf("%+v", c)
	}
}

// TestALongMessageIsCut, between characters: an API server refuses a status with one of 32768 octets, and then
// nothing is told.
func TestALongMessageIsCut(t *testing.T) {
	c, _ := Set(nil, []metav1.Condition{Invalid("InvalidExport", strings.Repeat("é", 20000))}, 1, metav1.Now())
	if m := c[0].Message; len(m) > 4200 || !utf8.ValidString(m) || !strings.HasPrefix(m, "éé") {
		t.Errorf("%d octets: %.20s", len(m), m)
	}
}

// TestLongTextIsCutBetweenCharacters: an Event whose note is longer, or no UTF-8, would be lost.
func TestLongTextIsCutBetweenCharacters(t *testing.T) {
	const limit = 1024
	for name, message := range map[string]string{
		"short":          "as it is",
		"at the limit":   strings.Repeat("a", limit),
		"one too long":   strings.Repeat("a", limit+1),
		"of three":       strings.Repeat("…", limit),
		"of three, +1":   "a" + strings.Repeat("…", limit),
		"of three, +2":   "aa" + strings.Repeat("…", limit),
		"of four":        strings.Repeat("🙂", limit),
		"of no language": "\xff\xfe as a peer may write",
	} {
		got := Shorten(message, limit)
		if len(got) > limit || !utf8.ValidString(got) {
			t.Errorf("%s: %d octets, valid: %v", name, len(got), utf8.ValidString(got))
		}
		if len(message) <= limit && utf8.ValidString(message) && got != message {
			t.Errorf("%s: it is truncated to %q", name, got)
		}
		if len(message) > limit && (!strings.HasSuffix(got, " …") || len(got) < limit-4) {
			t.Errorf("%s: %d octets, which end in %q", name, len(got), got[len(got)-8:])
		}
	}
}
