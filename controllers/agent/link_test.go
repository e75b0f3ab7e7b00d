package agent

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestAHubOfAnEarlierVersionIsRefused, and the error says what to do.
func TestAHubOfAnEarlierVersionIsRefused(t *testing.T) {
	missing := false
	hub := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, ok := list.(*hubv1alpha1.EndpointPageList); ok && missing {
				kind := schema.GroupKind{Group: hubv1alpha1.GroupVersion.Group, Kind: "EndpointPage"}
				return &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: []string{"v1alpha1"}}
			}
			return c.List(ctx, list, o...)
		},
	}).Build()
	if err := checkHubKinds(t.Context(), hub, "clusterset"); err != nil {
		t.Fatal(err)
	}
	missing = true
	err := checkHubKinds(t.Context(), hub, "clusterset")
	if err == nil || !strings.Contains(err.Error(), "upgrade the hub first") ||
		!strings.Contains(err.Error(), "EndpointPage") {
		t.Errorf("%v", err)
	}
}

// TestDiscoveryOfASilentHubEndsWithItsCaller: of a hub that is gone, and whose address drops what it is sent, a forced
// leave waits for no more than it has time for.
func TestDiscoveryOfASilentHubEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := &Agent{mgr: schemed{}, hub: func() (*rest.Config, error) {
		return &rest.Config{Host: "https://" + silent.Addr().String()}, nil
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	hub, err := a.dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	err = hub.List(ctx, &hubv1alpha1.ClusterSetList{})
	if took := time.Since(began); err == nil || took > 5*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

// TestAnAttemptToConnectEndsInTime, and with the agent: of a hub that is silent.
func TestAnAttemptToConnectEndsInTime(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cfg := &rest.Config{Host: "https://" + silent.Addr().String()}
	a := &Agent{mgr: schemed{}, log: logr.Discard()}
	for name, attempt := range map[string]func(){
		"in time": func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := a.connect(ctx, rest.CopyConfig(cfg)); err == nil {
				t.Error("it is connected")
			}
		},
		"with the agent": func() {
			ctx, stop := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, stop)
			a.tryAccess(ctx, rest.CopyConfig(cfg))
		},
	} {
		began := time.Now()
		attempt()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("not %s: it took %v", name, took)
		}
	}
}

// listing is a hub whose first lists do not end.
type listing struct {
	cluster.Cluster
	reader client.Reader
}

func (l listing) GetCache() cache.Cache       { return endless{} }
func (l listing) GetAPIReader() client.Reader { return l.reader }

type endless struct{ cache.Cache }

func (endless) WaitForCacheSync(ctx context.Context) bool {
	<-ctx.Done()
	return false
}

// TestID7AHubIsAskedUntilItHasListed: one that dies or refuses before it has is not stated to answer.
func TestID7AHubIsAskedUntilItHasListed(t *testing.T) {
	for what, answers := range map[string]func(context.Context) error{
		"silent":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"refuses": func(context.Context) error { return apierrors.NewUnauthorized("revoked") },
		"slow":    func(context.Context) error { return nil },
	} {
		synctest.Test(t, func(t *testing.T) {
			hub := fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
				List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
					return answers(ctx)
				},
			}).Build()
			var got []error
			a := &Agent{env: &kube.Env{Answered: func(err error) { got = append(got, err) }}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Second)
			defer cancel()
			if err := a.awaitSync(ctx, listing{reader: hub}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: it ends with %v", what, err)
			}
			synctest.Wait()
			if len(got) < 3 || (got[2] == nil) != (what == "slow") {
				t.Errorf("%s: in a minute, the answers are %v", what, got)
			}
		})
	}
}
