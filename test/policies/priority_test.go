package policies

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// observed is a client whose last answer says how it was served.
type observed struct {
	client.WithWatch
	http.RoundTripper
	names         map[string]string // by UID
	schema, level string            // of the last answer
}

func (o *observed) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.RoundTripper.RoundTrip(r)
	if err == nil {
		o.schema = o.names[answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)]
		o.level = o.names[answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)]
	}
	return answer, err
}

// observe connects with a token of an account.
func observe(ctx context.Context, e *environment, namespace, account string) (*observed, error) {
	o := &observed{names: map[string]string{}}
	var schemas flowcontrolv1.FlowSchemaList
	var levels flowcontrolv1.PriorityLevelConfigurationList
	if err := e.admin.List(ctx, &schemas); err != nil {
		return nil, err
	}
	if err := e.admin.List(ctx, &levels); err != nil {
		return nil, err
	}
	for _, s := range schemas.Items {
		o.names[string(s.UID)] = s.Name
	}
	for _, l := range levels.Items {
		o.names[string(l.UID)] = l.Name
	}
	file, err := e.cp.ServiceAccountKubeconfig(ctx, namespace, account, nil)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		o.RoundTripper = rt
		return o
	})
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	o.WithWatch, err = client.NewWithWatch(config, client.Options{HTTPClient: web, Scheme: e.admin.Scheme()})
	return o, err
}

// served is an error unless a request was served so.
func (o *observed) served(what, schema, level string, err error) error {
	if err == nil && (o.schema != schema || o.level != level) {
		err = fmt.Errorf("is served by FlowSchema %q at level %q, want %q at %q", o.schema, o.level, schema, level)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// A member's renewals are served apart from everything else that members ask for, in each clusterset, and apart from
// the Leases of the hub's own control plane. Lists of records are apart from both.
func TestRenewalsAreServedApartFromRecords(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	const apart, others, shared = "clusterset-renewals.clusterset-dns.io", "service-accounts", "workload-low"
	for _, ns := range []string{home, other} {
		// RBAC refuses it: requests are put in their places before it is asked.
		account, err := observe(ctx, e, ns, "default")
		must(t, err)
		must(t, until(ctx, func() error { // an API server takes up a FlowSchema some time after it was written
			err := account.Get(ctx, client.ObjectKey{Namespace: ns, Name: "m"}, &coordinationv1.Lease{})
			if apierrors.IsForbidden(err) {
				err = nil
			}
			return account.served("a Lease of "+ns, ns, apart, err)
		}))
	}

	m, err := observe(ctx, e, home, "mcs-m") // it has every right in both namespaces
	must(t, err)
	mine, record := lease(home, "m"), exportRecord("m", "priority")
	must(t, m.served("the first renewal", home, apart, m.Create(ctx, mine)))
	must(t, m.served("reading its Lease", home, apart, m.Get(ctx, client.ObjectKeyFromObject(mine), mine)))
	mine.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	must(t, m.served("a renewal", home, apart, m.Update(ctx, mine)))

	err = m.List(ctx, &coordinationv1.LeaseList{}, client.InNamespace(home))
	must(t, m.served("a list of all Leases", others, shared, err))
	watch, err := m.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(home))
	must(t, m.served("a watch of all Leases", others, shared, err))
	watch.Stop()
	must(t, m.served("a record", others, shared, m.Create(ctx, record)))
	err = m.List(ctx, &hubv1alpha1.ServiceExportRecordList{}, client.InNamespace(home))
	const lists = "clusterset-lists.clusterset-dns.io"
	must(t, m.served("a list of records", lists, lists, err))
	err = m.List(ctx, &hubv1alpha1.EndpointPageList{}, client.InNamespace(home))
	must(t, m.served("a list of endpoints", lists, lists, err))
	err = m.Get(ctx, client.ObjectKey{Namespace: other, Name: "m"}, &coordinationv1.Lease{})
	must(t, m.served("a Lease of another clusterset", others, shared, client.IgnoreNotFound(err)))

	must(t, e.admin.Delete(ctx, mine))
	must(t, e.admin.Delete(ctx, record))
}
