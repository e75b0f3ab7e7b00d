package kube

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestADryRunThatHangsKeepsOneCaller: the others get the last result, be it families or an error.
func TestADryRunThatHangsKeepsOneCaller(t *testing.T) {
	for name, failure := range map[string]error{"families": nil, "an error": errors.New("webhook")} {
		calls, asked, release := 0, make(chan struct{}), make(chan struct{})
		server := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				if calls++; calls == 2 {
					close(asked)
					<-release
				}
				o.(*corev1.Service).Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
				return failure
			},
		}).Build()
		now := time.Unix(1000, 0)
		families := Families(server, func() time.Time { return now })
		want, err := families(t.Context())
		if !errors.Is(err, failure) {
			t.Fatal(name, err)
		}
		now = now.Add(time.Hour)
		done := make(chan struct{}, 2)
		go func() {
			_, _ = families(t.Context())
			done <- struct{}{}
		}()
		<-asked
		var got []corev1.IPFamily
		go func() {
			got, err = families(t.Context())
			done <- struct{}{}
		}()
		select {
		case <-done:
			if len(got) != len(want) || !errors.Is(err, failure) {
				t.Errorf("%s: got %v, %v", name, got, err)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("%s: a second caller waits", name)
		}
		close(release)
		<-done
	}
}

// TestACallersDeadlineIsNoResultForOthers: they get an error for a second, and never that there is no family.
func TestACallersDeadlineIsNoResultForOthers(t *testing.T) {
	server := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			o.(*corev1.Service).Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
			return ctx.Err()
		},
	}).Build()
	now := time.Unix(1000, 0)
	families := Families(server, func() time.Time { return now })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := families(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, err := families(t.Context()); err == nil {
		t.Errorf("before the API server is asked again: %v without an error", got)
	}
	now = now.Add(familiesRetry)
	if got, err := families(t.Context()); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
