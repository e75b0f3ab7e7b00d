package clusterset

import (
	"slices"
	"strings"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// DefaultDeny are the namespaces of a ClusterSet without spec.namespaces.deny: those of Kubernetes and of this project.
var DefaultDeny = []string{"kube-*", "clusterset-*"}

// AnnotationNamespaceImport on a Namespace, with the value "false", keeps imports out of it.
const AnnotationNamespaceImport = "clusterset-dns.io/import"

// AnnotationNamespaceDeclared on a Namespace prevails over the ClusterSet's spec.declaredImports, with its values.
const AnnotationNamespaceDeclared = "clusterset-dns.io/declared-imports"

// MayUse returns whether names of a namespace may be exported and imported (SPEC S5). An empty allow list allows every
// namespace, and deny prevails. The policy clusterset-namespaces of deploy/hub decides the same in CEL.
func MayUse(rules hubv1alpha1.NamespaceRules, namespace string) bool {
	deny := rules.Deny
	if deny == nil { // the hub's CRD has no default yet
		deny = DefaultDeny
	}
	matches := func(pattern string) bool { return matchesPattern(pattern, namespace) }
	return (len(rules.Allow) == 0 || slices.ContainsFunc(rules.Allow, matches)) && !slices.ContainsFunc(deny, matches)
}

// matchesPattern returns whether a namespace has the name in pattern. A * at the end or at the beginning of a pattern
// stands for any characters.
func matchesPattern(pattern, namespace string) bool {
	if prefix, found := strings.CutSuffix(pattern, "*"); found {
		return strings.HasPrefix(namespace, prefix)
	}
	if suffix, found := strings.CutPrefix(pattern, "*"); found {
		return strings.HasSuffix(namespace, suffix)
	}
	return namespace == pattern
}
