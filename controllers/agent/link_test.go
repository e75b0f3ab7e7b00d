package agent

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
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
	if err := servedByHub(t.Context(), hub, "clusterset"); err != nil {
		t.Fatal(err)
	}
	missing = true
	err := servedByHub(t.Context(), hub, "clusterset")
	if err == nil || !strings.Contains(err.Error(), "upgrade the hub first") ||
		!strings.Contains(err.Error(), "EndpointPage") {
		t.Errorf("%v", err)
	}
}
