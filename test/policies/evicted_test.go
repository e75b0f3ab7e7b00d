package policies

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestAnEvictedMemberWritesNothingThatItHeldBack: the API server checks rights by a request's head, and then waits for
// its body. It asks for the body (100 Continue) when it has checked them.
func TestAnEvictedMemberWritesNothingThatItHeldBack(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	root, err := lab.Root()
	must(t, err)
	must(t, e.cp.Apply(ctx, lab.HubMember(root, "held")))
	kubeconfig, err := e.cp.ServiceAccountKubeconfig(ctx, home, "mcs-held", nil)
	must(t, err)
	member, err := connect(kubeconfig)
	must(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	must(t, err)

	const group = "/apis/hub.clusterset-dns.io/v1alpha1"
	late := exportRecord("held", "late")
	late.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind("ServiceExportRecord"))
	held := map[string]heldBack{
		"records": holdBack(ctx, t, config, group, "serviceexportrecords", late),
		"Leases":  holdBack(ctx, t, config, "/apis/coordination.k8s.io/v1", "leases", lease(home, "held")),
	}
	binding := &rbacv1.RoleBinding{}
	must(t, e.admin.Get(ctx, client.ObjectKey{Namespace: home, Name: "mcs-held"}, binding))
	must(t, e.admin.Delete(ctx, binding))
	must(t, until(ctx, func() error {
		err := member.List(ctx, &hubv1alpha1.ServiceExportRecordList{}, client.InNamespace(home))
		if apierrors.IsForbidden(err) {
			return nil
		}
		return err
	}))
	for what, h := range held {
		if code, says := h.finish(t); code != http.StatusForbidden ||
			!strings.Contains(says, "cluster held may no longer write "+what) {
			t.Errorf("%s: %d, %s", what, code, says)
		}
	}
}

// heldBack is a request whose head has arrived.
type heldBack struct {
	body   []byte
	write  *io.PipeWriter
	answer chan answer
}

type answer struct {
	code int
	says string
	err  error
}

// holdBack begins to create an object, until the API server asks for it.
func holdBack(ctx context.Context, t *testing.T, config *rest.Config, group, resource string,
	o client.Object) heldBack {
	t.Helper()
	tls, err := rest.TLSConfigFor(config)
	must(t, err)
	tls.NextProtos = nil // HTTP/1.1
	transport := &http.Transport{TLSClientConfig: tls, ExpectContinueTimeout: limit}
	t.Cleanup(transport.CloseIdleConnections)
	body, err := json.Marshal(o)
	must(t, err)
	read, write := io.Pipe()
	asked := make(chan struct{})
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() { close(asked) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, config.Host+group+"/namespaces/"+home+"/"+resource, read)
	must(t, err)
	r.ContentLength = int64(len(body))
	r.Header = http.Header{"Authorization": {"Bearer " + config.BearerToken}, "Content-Type": {"application/json"},
		"Expect": {"100-continue"}}
	h := heldBack{body, write, make(chan answer, 1)}
	go func() {
		resp, err := transport.RoundTrip(r)
		if err != nil {
			h.answer <- answer{err: err}
			return
		}
		defer resp.Body.Close()
		says, err := io.ReadAll(resp.Body)
		h.answer <- answer{resp.StatusCode, string(says), err}
	}()
	select {
	case <-asked:
	case a := <-h.answer:
		t.Fatalf("%s: answered before it has the object: %+v", resource, a)
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	return h
}

// finish sends the object, and returns the answer.
func (h *heldBack) finish(t *testing.T) (code int, says string) {
	t.Helper()
	if _, err := h.write.Write(h.body); err != nil {
		t.Fatal(err)
	}
	must(t, h.write.Close())
	a := <-h.answer
	must(t, a.err)
	return a.code, a.says
}
