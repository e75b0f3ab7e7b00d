package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
)

// The labels with the version of mcs-api's CRDs.
const (
	labelRelease  = "multicluster.x-k8s.io/release-version"
	labelRevision = "multicluster.x-k8s.io/crd-schema-revision"
)

// FieldManager is the field manager of all writes.
const FieldManager = "kubectl-clusterset"

// Keep returns why an existing CRD must not be replaced by ours, or "". A newer CRD has fields and versions that
// objects may use, and CRDs of other projects may have been applied by others.
func Keep(there, ours *unstructured.Unstructured) string {
	if v := further(there, ours); v != "" {
		return "it has version " + v + ", which this kubectl-clusterset does not know"
	}
	group, _, _ := unstructured.NestedString(ours.Object, "spec", "group")
	if group == "hub.clusterset-dns.io" || len(lacks(there, ours)) > 0 {
		return ""
	}
	theirs, mine := there.GetLabels(), ours.GetLabels()
	was, err := version.ParseSemantic(theirs[labelRelease])
	is, err2 := version.ParseSemantic(mine[labelRelease])
	switch {
	case err == nil && err2 == nil && is.LessThan(was):
		return fmt.Sprintf("its release %s is newer than %s", theirs[labelRelease], mine[labelRelease])
	case err == nil && err2 == nil && was.LessThan(is):
		return ""
	case err == nil && err2 == nil:
		a, _ := strconv.Atoi(theirs[labelRevision])
		b, _ := strconv.Atoi(mine[labelRevision])
		switch {
		case a > b:
			return fmt.Sprintf("its schema revision %d is newer than %d", a, b)
		case a < b:
			return ""
		}
	}
	if is != nil && was == nil || Ours(there) {
		return ""
	}
	return "others applied it, and it serves all that is needed"
}

// Ours reports whether kubectl-clusterset applied an object.
func Ours(o *unstructured.Unstructured) bool {
	for _, f := range o.GetManagedFields() {
		if f.Manager == FieldManager {
			return true
		}
	}
	return false
}

// OnlyOurs reports whether kubectl-clusterset applied a CRD, and nobody else did. Everyone who applied it owns fields
// of its spec: server-side apply shares fields that do not differ, and records earlier writers as the manager
// before-first-apply.
func OnlyOurs(crd *unstructured.Unstructured) bool {
	for _, f := range crd.GetManagedFields() {
		var fields map[string]any
		if f.Manager == FieldManager || f.FieldsV1 == nil {
			continue
		}
		if err := json.Unmarshal(f.FieldsV1.GetRawBytes(), &fields); err != nil || fields["f:spec"] != nil {
			return false
		}
	}
	return Ours(crd)
}

// Served returns the versions that a CRD serves.
func Served(crd *unstructured.Unstructured) []string { return versions(crd, true) }

// further returns a version that only there has.
func further(there, ours *unstructured.Unstructured) string {
	known := versions(ours, false)
	for _, v := range versions(there, false) {
		if !slices.Contains(known, v) {
			return v
		}
	}
	return ""
}

// lacks returns the versions that only ours serves.
func lacks(there, ours *unstructured.Unstructured) (out []string) {
	served := Served(there)
	for _, v := range Served(ours) {
		if !slices.Contains(served, v) {
			out = append(out, v)
		}
	}
	return out
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
