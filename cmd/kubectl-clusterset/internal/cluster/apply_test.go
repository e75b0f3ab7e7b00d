package cluster

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestAnAPIServerThatHasJustStartedIsWaitedFor: what it says then of a kind or of a policy's parameters is no refusal;
// anything else is.
func TestAnAPIServerThatHasJustStartedIsWaitedFor(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: "about.k8s.io", Resource: "clusterproperties"},
			"clusterset.k8s.io", errors.New(why))
	}
	early := forbidden("ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find " +
		"resource referenced by paramKind")
	early.(*apierrors.StatusError).ErrStatus.Reason = metav1.StatusReasonInvalid // as API servers say it
	for name, c := range map[string]struct {
		says  []error
		wants error
	}{
		"ready":             {[]error{nil}, nil},
		"early":             {[]error{early, early, nil}, nil},
		"early, then never": {[]error{early, forbidden("it is a member's"), nil}, forbidden("it is a member's")},
		"refused":           {[]error{forbidden("it is a member's"), nil}, forbidden("it is a member's")},
		"a kind that is not served yet": {[]error{&meta.NoKindMatchError{},
			apierrors.NewNotFound(schema.GroupResource{}, "x"), nil}, nil},
	} {
		asked := 0
		err := Settled(t.Context(), func(context.Context) error { asked++; return c.says[asked-1] })
		if (err == nil) != (c.wants == nil) || err != nil && err.Error() != c.wants.Error() {
			t.Errorf("%s: %v, want %v", name, err, c.wants)
		}
	}
	ended, end := context.WithCancel(t.Context())
	if err := Settled(ended, func(context.Context) error { end(); return early }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestTheQuestionEndsWithItsContext: nobody answers, and the user presses Ctrl-C.
func TestTheQuestionEndsWithItsContext(t *testing.T) {
	in, _ := io.Pipe()
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	asked := make(chan error, 1)
	go func() { asked <- Confirm(ctx, in, io.Discard) }()
	select {
	case err := <-asked:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it still asks")
	}
}
