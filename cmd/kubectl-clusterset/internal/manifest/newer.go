package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
)

// The labels by which the CRDs of mcs-api tell their version.
const (
	labelRelease  = "multicluster.x-k8s.io/release-version"
	labelRevision = "multicluster.x-k8s.io/crd-schema-revision"
)

// FieldManager is who applies what kubectl-clusterset applies.
const FieldManager = "kubectl-clusterset"

// LeaveAlone tells why a CRD that is there is not to be replaced by ours; "" if it is. Kinds of other projects may have been brought by
// others, and a newer CRD has fields and versions that objects in the cluster may use.
func LeaveAlone(there, ours *unstructured.Unstructured) string {
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
		return fmt.Sprintf("it is of release %s, newer than %s", theirs[labelRelease], mine[labelRelease])
	case err == nil && err2 == nil && was.LessThan(is):
		return ""
	case err == nil && err2 == nil:
		a, _ := strconv.Atoi(theirs[labelRevision])
		if b, _ := strconv.Atoi(mine[labelRevision]); a > b {
			return fmt.Sprintf("it is of schema revision %d, newer than %d", a, b)
		}
	}
	if is != nil && was == nil || Ours(there) {
		return ""
	}
	return "others brought it, and it serves all that is needed"
}

// Ours tells whether kubectl-clusterset applied an object.
func Ours(o *unstructured.Unstructured) bool {
	for _, f := range o.GetManagedFields() {
		if f.Manager == FieldManager {
			return true
		}
	}
	return false
}

// Brought tells whether kubectl-clusterset brought a kind, and nobody else did, before or since: who applied it owns fields of its spec,
// too, since server-side apply takes over what differs and shares what does not; and whoever left no word of it is written down then as the
// manager before-first-apply.
func Brought(crd *unstructured.Unstructured) bool {
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

// Served are the versions that a CRD serves.
func Served(crd *unstructured.Unstructured) []string { return versions(crd, "served") }

// further is a version that there has and ours has not.
func further(there, ours *unstructured.Unstructured) string {
	known := versions(ours, "name")
	for _, v := range versions(there, "name") {
		if !slices.Contains(known, v) {
			return v
		}
	}
	return ""
}

// lacks are the versions that ours serves and there does not.
func lacks(there, ours *unstructured.Unstructured) (out []string) {
	served := Served(there)
	for _, v := range Served(ours) {
		if !slices.Contains(served, v) {
			out = append(out, v)
		}
	}
	return out
}

// versions are the names of a CRD's versions; of those that are served only, where flag says so.
func versions(crd *unstructured.Unstructured, flag string) (out []string) {
	list, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, e := range list {
		v, _ := e.(map[string]any)
		if name, _ := v["name"].(string); name != "" && (flag == "name" || v[flag] == true) {
			out = append(out, name)
		}
	}
	return out
}
