package manifest

import (
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
)

// The labels with the version of our own CRDs, and of mcs-api's.
const (
	labelOwn      = "app.kubernetes.io/version"
	labelRelease  = "multicluster.x-k8s.io/release-version"
	labelRevision = "multicluster.x-k8s.io/crd-schema-revision"
)

// FieldManager is the field manager of all writes.
const FieldManager = "kubectl-clusterset"

// Keep returns why an existing CRD must not be replaced by ours, or "". A newer CRD has fields and versions that
// objects may use, and CRDs of other projects may have been applied by others.
func Keep(there, ours *unstructured.Unstructured) string {
	known, served := versions(ours, false), versions(there, true)
	for _, v := range versions(there, false) {
		if !slices.Contains(known, v) {
			return "it has version " + v + ", which this kubectl-clusterset does not know"
		}
	}
	group, _, _ := unstructured.NestedString(ours.Object, "spec", "group")
	if group == "hub.clusterset-dns.io" {
		theirs, err := version.ParseSemantic(there.GetLabels()[labelOwn])
		mine, also := version.ParseSemantic(ours.GetLabels()[labelOwn])
		if err == nil && also == nil && mine.LessThan(theirs) {
			return fmt.Sprintf("its version v%s is newer than v%s", theirs, mine)
		}
		return ""
	}
	for _, v := range versions(ours, true) {
		if !slices.Contains(served, v) {
			return ""
		}
	}
	theirs, mine := releaseOf(there), releaseOf(ours)
	switch {
	case mine.version == nil:
	case theirs.version == nil || theirs.version.LessThan(mine.version):
		return ""
	case mine.version.LessThan(theirs.version):
		return fmt.Sprintf("its release v%s is newer than v%s", theirs.version, mine.version)
	case theirs.revision < mine.revision:
		return ""
	case theirs.revision > mine.revision:
		return fmt.Sprintf("its schema revision %d is newer than %d", theirs.revision, mine.revision)
	}
	if Ours(there) {
		return ""
	}
	return "others applied it, and it serves all that is needed"
}

// release is which mcs-api a CRD comes from.
type release struct {
	version  *version.Version // nil if it does not say
	revision int              // of the schema, within the release
}

func releaseOf(crd *unstructured.Unstructured) (r release) {
	r.version, _ = version.ParseSemantic(crd.GetLabels()[labelRelease])
	r.revision, _ = strconv.Atoi(crd.GetLabels()[labelRevision])
	return r
}

// Ours reports whether kubectl-clusterset applied an object.
func Ours(o *unstructured.Unstructured) bool { return Managed(o, FieldManager) }

// Managed reports whether one of some field managers has written an object.
func Managed(o *unstructured.Unstructured, by ...string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return slices.Contains(by, f.Manager)
	})
}

// versions returns the versions of a CRD, or only the served ones.
func versions(crd *unstructured.Unstructured, served bool) (out []string) {
	list, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, e := range list {
		v, _ := e.(map[string]any)
		if name, _ := v["name"].(string); name != "" && (!served || v["served"] == true) {
			out = append(out, name)
		}
	}
	return out
}
