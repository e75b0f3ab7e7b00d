package vips

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

// TestV4AnAgentKilledInTheMidstOfACreation: the API server has given a derived Service its addresses, and asks a webhook whether it may store it,
// when the agent is killed. It stores it, with these, though it sees at once that a usual client leaves. So where the Service gets one more.
func TestV4AnAgentKilledInTheMidstOfACreation(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	e.mode(t, ipam.ModeShared)
	asked := e.held(t, ns)
	next := func() *midst {
		select {
		case h := <-asked:
			return h
		case <-time.After(limit):
			t.Fatal("the API server asks nobody")
			return nil
		}
	}
	killed := func() []netip.Addr {
		h := next()
		e.Agent.Kill()
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- e.Create(ctx, service(ns, "usual", v4)) }()
		usual := next()
		leave()
		select {
		case <-usual.left:
		case <-time.After(limit):
			t.Fatal("the API server does not see that a usual client left: this test shows nothing")
		}
		close(usual.answer)
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		select {
		case <-h.left:
			t.Error("the API server saw that the agent was killed, and broke its request off")
		default:
		}
		close(h.answer)
		svc := derivedOf(ns, "web")
		eventually(t, "the Service is stored", func() error {
			err := e.Get(t.Context(), client.ObjectKeyFromObject(svc), svc)
			if err == nil && !slices.Equal(svc.Spec.ClusterIPs, h.ips) {
				err = fmt.Errorf("it has %v, and was given %v", svc.Spec.ClusterIPs, h.ips)
			}
			return err
		})
		if err := e.Agent.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ips := make([]netip.Addr, len(h.ips))
		for i, ip := range h.ips {
			ips[i] = netip.MustParseAddr(ip)
		}
		return ips
	}

	e.export(t, ns, "web", v4)
	one := killed()
	if got := e.wantVIPs(t, ns, "web", v4); !slices.Equal(got, one) {
		t.Errorf("%v became %v", one, got)
	}
	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}
	if err := e.Patch(t.Context(), web, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ipFamilyPolicy":"RequireDualStack"}}`))); err != nil {
		t.Fatal(err)
	}
	two := killed()
	if got := e.wantVIPs(t, ns, "web", both); !slices.Equal(got, two) || got[0] != one[0] {
		t.Errorf("%v and then %v became %v", one, two, got)
	}
	e.wantNoLeak(t, strings.Split(serviceRanges, ",")...)
}

// midst is a request that the API server is in the midst of.
type midst struct {
	ips    []string
	left   <-chan struct{} // the API server waits for no answer any more
	answer chan struct{}
}

// held makes the API server ask before it stores a Service of the namespace, but an exported one, that has got addresses.
func (e *env) held(t *testing.T, ns string) <-chan *midst {
	t.Helper()
	asked, over := make(chan *midst), make(chan struct{})
	var is atomic.Bool
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		var svc, old corev1.Service
		err := json.NewDecoder(r.Body).Decode(&review)
		if err == nil {
			err = json.Unmarshal(review.Request.Object.Raw, &svc)
		}
		if err == nil && review.Request.OldObject.Raw != nil {
			err = json.Unmarshal(review.Request.OldObject.Raw, &old)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !*review.Request.DryRun && svc.Name != "web" && len(svc.Spec.ClusterIPs) > len(old.Spec.ClusterIPs) {
			h := &midst{svc.Spec.ClusterIPs, r.Context().Done(), make(chan struct{})}
			select {
			case asked <- h:
				select {
				case <-h.answer:
				case <-over:
				}
			case <-over:
			}
		}
		is.Store(true)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		json.NewEncoder(w).Encode(review)
	}))
	config := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: held.clusterset-dns.test}
webhooks:
- name: held.clusterset-dns.test
  clientConfig: {url: %q, caBundle: %s}
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  rules: [{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [services]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 30
`, hook.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})), ns)
	if err := e.Cluster.Apply(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := e.Cluster.Kubectl(context.Background(), "", "delete", "validatingwebhookconfiguration", "held.clusterset-dns.test"); err != nil {
			t.Error(err)
		}
		close(over)
		hook.Close()
	})
	eventually(t, "the API server asks", func() error {
		err := e.Create(t.Context(), service(ns, "nobody", v4), client.DryRunAll)
		if err == nil && !is.Load() {
			err = errNot("yet")
		}
		return err
	})
	return asked
}
