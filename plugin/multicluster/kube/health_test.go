package kube

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestTroubleIsSaidOnce: one line when the reason changes, whatever number of watches and attempts it meets (L2).
func TestTroubleIsSaidOnce(t *testing.T) {
	imports, slices := &resource{kind: "ServiceImports", missing: "apply deploy/crds"}, &resource{kind: "EndpointSlices"}
	gr := schema.GroupResource{Resource: "serviceimports"}
	h := newHealth(2, func() bool { return false })
	for i, step := range []struct {
		r    *resource
		err  error
		says string // "" for nothing
		up   bool
	}{
		{imports, errors.New("refused"), "Cannot list and watch ServiceImports", false},
		{slices, errors.New("refused"), "", false},
		{imports, errors.New("reset"), "", false},
		{imports, apierrors.NewUnauthorized("token"), "does not accept our credentials", false},
		{slices, apierrors.NewUnauthorized("token"), "", false},
		{imports, apierrors.NewNotFound(gr, ""), "not served by the API server: apply deploy/crds", false},
		{imports, apierrors.NewForbidden(gr, "", nil), "apply deploy/coredns/rbac.yaml", false},
		{slices, nil, "", false},
		{imports, nil, "answers again", true},
		{imports, nil, "", true},
	} {
		out := capture(t)
		h.asked(step.r, step.err)
		if got := out.String(); strings.Count(got, "\n") != min(1, len(step.says)) || !strings.Contains(got, step.says) {
			t.Errorf("step %d says %q, want %q", i, got, step.says)
		}
		if h.up() != step.up {
			t.Errorf("step %d: up %v", i, h.up())
		}
		if refused := h.refused() != nil; refused != (i == 5 || i == 6 || i == 7) {
			t.Errorf("step %d: refused %v", i, refused)
		}
	}
}
