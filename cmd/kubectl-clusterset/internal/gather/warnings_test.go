package gather

import (
	"context"
	"errors"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
)

// TestV7TheAgentsWarningsAreRead, of all namespaces and page by page; where they are not, it is told why.
func TestV7TheAgentsWarningsAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		fails bool
		want  int
	}{
		"there": {nil, false, 2},
		"forbidden": {apierrors.NewForbidden(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}, "",
			errors.New("no")), true, 0},
		"not reached": {errors.New("connection refused"), true, 0},
	} {
		funcs := interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, into client.ObjectList,
			opts ...client.ListOption) error {
			var o client.ListOptions
			o.ApplyOptions(opts)
			if of := o.AsListOptions().FieldSelector; o.Namespace != "" || o.Limit != 500 ||
				of != "reportingController=clusterset-controller.clusterset-dns.io,type=Warning" {
				t.Errorf("%s: asked for %q of %q", name, of, o.Namespace)
			}
			l := into.(*eventsv1.EventList)
			l.Items = make([]eventsv1.Event, 1)
			l.Continue = map[string]string{"": "more"}[o.Continue]
			return c.err
		}}
		here := &cluster.Cluster{
			Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithInterceptorFuncs(funcs).Build(),
			Name:   "this cluster",
		}
		if got, err := warnings(t.Context(), here); len(got) != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %d, %v", name, len(got), err)
		}
	}
}
