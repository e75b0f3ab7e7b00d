// Package conditions sets conditions, and makes those of ServiceExports and ServiceImports. It is pure: the caller has
// the clock.
package conditions

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// maxMessage limits a message in bytes, because it may quote other clusters; an API server accepts 32768.
const maxMessage = 4096

// Set returns current with the wanted conditions set, and whether anything differs. It sets observedGeneration, and
// changes lastTransitionTime only if a status changes. It does not change current.
func Set(
	current, wanted []metav1.Condition,
	generation int64,
	now metav1.Time,
) (out []metav1.Condition, changed bool) {
	out = slices.Clone(current)
	for _, c := range wanted {
		c.Message = Shorten(c.Message, maxMessage)
		c.ObservedGeneration = generation
		c.LastTransitionTime = now
		changed = meta.SetStatusCondition(&out, c) || changed
	}
	return out, changed
}

// Shorten cuts a text between characters, to at most limit bytes.
func Shorten(text string, limit int) string {
	const ellipsis = " …"
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(ellipsis)], "") + ellipsis
}

// Valid returns the condition Valid of a ServiceExport that is valid.
func Valid() metav1.Condition {
	return condition(string(mcsv1beta1.ServiceExportConditionValid), metav1.ConditionTrue,
		string(mcsv1beta1.ServiceExportReasonValid), "The Service can be exported.")
}

// validWithout begins the message of a Service that is exported without a part that is invalid.
const validWithout = "The Service is exported. What is invalid has no effect, and an earlier preference or export-to " +
	"stays: "

// ValidWithout returns the condition Valid of a ServiceExport that is in effect without a part.
func ValidWithout(leftOut error) metav1.Condition {
	c := Valid()
	c.Message = validWithout + leftOut.Error()
	return c
}

// LeftOut returns what ValidWithout was told, or "".
func LeftOut(valid *metav1.Condition) string {
	_, what, _ := strings.Cut(valid.Message, validWithout)
	return what
}

// Invalid returns the condition Valid of a ServiceExport that is not valid.
func Invalid(reason mcsv1beta1.ServiceExportConditionReason, message string) metav1.Condition {
	return condition(string(mcsv1beta1.ServiceExportConditionValid), metav1.ConditionFalse, string(reason), message)
}

// Ready returns the condition Ready of a ServiceExport or a ServiceImport.
func Ready[Reason ~string](status metav1.ConditionStatus, reason Reason, message string) metav1.Condition {
	return condition(string(mcsv1beta1.ServiceExportConditionReady), status, string(reason), message)
}

// Conflict returns the condition Conflict of a ServiceExport, with all reasons joined by commas.
func Conflict(conflicts []conflict.Conflict) metav1.Condition {
	if len(conflicts) == 0 {
		return condition(string(mcsv1beta1.ServiceExportConditionConflict), metav1.ConditionFalse,
			string(mcsv1beta1.ServiceExportReasonNoConflicts), "All exporting clusters agree.")
	}
	var reasons, messages []string
	for _, c := range conflicts {
		reasons = append(reasons, string(c.Reason))
		messages = append(messages, c.Message)
	}
	return condition(string(mcsv1beta1.ServiceExportConditionConflict), metav1.ConditionTrue,
		strings.Join(reasons, ","), strings.Join(messages, " "))
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
