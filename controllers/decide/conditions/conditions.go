// Package conditions turns outcomes into the conditions of ServiceExports and ServiceImports (SPEC E3–E5, E8, I4). Pure; the time of a
// flip comes from the caller.
package conditions

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// longest is a message's length in octets: what a peer's nonsense makes of it is not to reach an API server's limit of 32768.
const longest = 4096

// Set returns current with wanted in it, each with observedGeneration, and lastTransitionTime only where the status flips (E8), and
// whether anything differs. Types that are not wanted are left alone; current is not changed.
func Set(current, wanted []metav1.Condition, generation int64, now metav1.Time) (out []metav1.Condition, changed bool) {
	out = slices.Clone(current)
	for _, c := range wanted {
		if len(c.Message) > longest {
			c.Message = strings.ToValidUTF8(c.Message[:longest], "") + " …"
		}
		c.ObservedGeneration = generation
		c.LastTransitionTime = now
		changed = meta.SetStatusCondition(&out, c) || changed
	}
	return out, changed
}

// Valid is E3.
func Valid() metav1.Condition {
	return condition(string(mcsv1beta1.ServiceExportConditionValid), metav1.ConditionTrue, string(mcsv1beta1.ServiceExportReasonValid),
		"The Service can be exported.")
}

// Invalid is E3: reason NoService, InvalidServiceType or one of ours.
func Invalid(reason mcsv1beta1.ServiceExportConditionReason, message string) metav1.Condition {
	return condition(string(mcsv1beta1.ServiceExportConditionValid), metav1.ConditionFalse, string(reason), message)
}

// ExportReady is E4.
func ExportReady(status metav1.ConditionStatus, reason mcsv1beta1.ServiceExportConditionReason, message string) metav1.Condition {
	return condition(string(mcsv1beta1.ServiceExportConditionReady), status, string(reason), message)
}

// Conflict is E5: all reasons that hold, comma-joined, with a message each.
func Conflict(conflicts []conflict.Conflict) metav1.Condition {
	if len(conflicts) == 0 {
		return condition(string(mcsv1beta1.ServiceExportConditionConflict), metav1.ConditionFalse, string(mcsv1beta1.ServiceExportReasonNoConflicts),
			"All exporting clusters agree.")
	}
	var reasons, messages []string
	for _, c := range conflicts {
		reasons = append(reasons, string(c.Reason))
		messages = append(messages, c.Message)
	}
	return condition(string(mcsv1beta1.ServiceExportConditionConflict), metav1.ConditionTrue, strings.Join(reasons, ","), strings.Join(messages, " "))
}

// ImportReady is I4.
func ImportReady(status metav1.ConditionStatus, reason mcsv1beta1.ServiceImportConditionReason, message string) metav1.Condition {
	return condition(string(mcsv1beta1.ServiceImportConditionReady), status, string(reason), message)
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
