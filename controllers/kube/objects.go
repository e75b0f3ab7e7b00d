package kube

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EventReason is one word for a condition: its type where it is a complaint by name, its reason otherwise. Comma-joined
// reasons of a conflict become the one word that users filter by.
func EventReason(c metav1.Condition) string {
	if strings.Contains(c.Reason, ",") {
		return c.Type
	}
	return c.Reason
}
