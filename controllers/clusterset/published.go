package clusterset

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// Annotations of a member's copy of a ServiceExportRecord, and of its own one. The hub's API server sets both times.
const (
	// AnnotationCreated is when the hub created the record that it shows. Slices of F5 have it, too.
	AnnotationCreated = "clusterset-dns.io/created"
	// AnnotationPublished is when the hub first created a record of this export: before AnnotationCreated if the hub
	// has lost the record and its owner has published it again.
	AnnotationPublished = "clusterset-dns.io/published"
)

// Created returns the time in AnnotationCreated, or the far future if there is none.
func Created(copied metav1.Object) time.Time {
	return timeIn(copied, AnnotationCreated)
}

// Published returns the time in AnnotationPublished, or the far future if there is none: a member's own export that is
// not on the hub yet ranks behind all others (C1).
func Published(copied *hubv1alpha1.ServiceExportRecord) time.Time {
	return timeIn(copied, AnnotationPublished)
}

func timeIn(copied metav1.Object, annotation string) time.Time {
	at, err := time.Parse(time.RFC3339, copied.GetAnnotations()[annotation])
	if err != nil {
		return time.Unix(1<<40, 0)
	}
	return at
}

// SetPublished annotates copied with the times of the record that the hub shows. copied still has the spec that it had
// before. An export goes on while its exportedAt stays the same, it is not withdrawn, and its owner has not departed
// since. It then keeps its earliest time, so that exports keep their order while owners publish again on a hub that was
// emptied.
func SetPublished(copied, shown *hubv1alpha1.ServiceExportRecord, departed time.Time) {
	first := shown.CreationTimestamp.Time
	was, is := &copied.Spec, &shown.Spec
	goesOn := !was.Withdrawn && !is.Withdrawn && was.ExportedAt.Equal(is.ExportedAt)
	if before := Published(copied); goesOn && before.Before(first) && !before.Before(departed) {
		first = before
	}
	set := func(annotation string, at time.Time) {
		metav1.SetMetaDataAnnotation(&copied.ObjectMeta, annotation, at.UTC().Format(time.RFC3339))
	}
	set(AnnotationCreated, shown.CreationTimestamp.Time)
	set(AnnotationPublished, first)
}

// IsOlder reports whether a restored hub shows an older record than the copy is of. Either may be nil.
func IsOlder(shown, copied *hubv1alpha1.ServiceExportRecord) bool {
	return shown != nil && copied != nil && shown.Spec.Revision < copied.Spec.Revision &&
		!shown.CreationTimestamp.After(Created(copied))
}
