package clusterset

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func checkMetadata(labels, annotations map[string]string) error {
	return errors.Join(
		checkCount("exportedLabels", len(labels)),
		checkCount("exportedAnnotations", len(annotations)),
		checkSize(labels, annotations), checkLabels(labels), checkAnnotations(annotations))
}

func checkLabels(labels map[string]string) error {
	return sorted(metav1validation.ValidateLabels(labels, field.NewPath("exportedLabels")))
}

func checkAnnotations(annotations map[string]string) error {
	return sorted(apivalidation.ValidateAnnotations(annotations, field.NewPath("exportedAnnotations")))
}

// sorted joins errors in an order that does not depend on that of a map: the same record always has the same error.
func sorted(list field.ErrorList) error {
	slices.SortFunc(list, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	if len(list) == 0 {
		return nil
	}
	return list.ToAggregate()
}

// maxSize is half of what an API server accepts as annotations of one object. The ServiceImport has others too, among
// them one that lists the keys of all exported labels and annotations.
const maxSize = 128 << 10

func checkSize(labels, annotations map[string]string) error {
	size := 0
	for k, v := range annotations {
		size += len(k) + len(v)
	}
	for _, m := range []map[string]string{labels, annotations} {
		for k := range m {
			size += len(k) + 1
		}
	}
	if size > maxSize {
		return fmt.Errorf("exportedAnnotations and the keys of both: %d bytes are too many; the limit is %d",
			size, maxSize)
	}
	return nil
}

// Reserved reports whether a key is one that agents set or read. An export does not carry it, and an importer ignores
// it.
func Reserved(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	return key == LabelManagedBy || prefix == "clusterset-dns.io" || prefix == "multicluster.kubernetes.io"
}

// exportable returns those labels and annotations that checkMetadata accepts, and an error for what it leaves out:
// single entries that are invalid or Reserved, and all annotations or labels if there are too many.
func exportable(labels, annotations map[string]string) (_, _ map[string]string, leftOut []error) {
	keep := func(what string, in map[string]string, check func(map[string]string) error) map[string]string {
		out := map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(in)) {
			err := check(map[string]string{key: in[key]})
			if Reserved(key) {
				err = fmt.Errorf("%s: %s is for agents alone", what, key)
			}
			if err != nil {
				leftOut = append(leftOut, err)
				continue
			}
			out[key] = in[key]
		}
		if err := checkCount(what, len(out)); err != nil {
			leftOut = append(leftOut, err)
			return nil
		}
		return out
	}
	labels = keep("exportedLabels", labels, checkLabels)
	annotations = keep("exportedAnnotations", annotations, checkAnnotations)
	if err := checkSize(labels, annotations); err != nil {
		leftOut = append(leftOut, err)
		annotations = nil
	}
	return labels, annotations, leftOut
}
