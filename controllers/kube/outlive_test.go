package kube

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestV4ARequestOutlivesItsClient: of two clients that leave while the API server is at work, it sees the usual one's end, after that of the
// other, which it has not seen.
func TestV4ARequestOutlivesItsClient(t *testing.T) {
	began, seen, release := make(chan string), make(chan string), make(chan struct{})
	done := make(chan error, 1)
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		svc := &corev1.Service{}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, svc)
		}
		if err != nil || r.Header.Get("Authorization") != "Bearer secret" || r.Method != http.MethodPost {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		if svc.Name != "quick" {
			began <- svc.Name
		}
		switch svc.Name {
		case "usual":
			<-r.Context().Done()
			seen <- svc.Name
		case "lasting":
			<-release
			done <- r.Context().Err()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		w.Write([]byte(strings.Replace(string(body), `"metadata":{`, `"metadata":{"uid":"`+r.Proto+`",`, 1)))
	}))
	api.EnableHTTP2 = true
	api.StartTLS()
	t.Cleanup(api.Close)
	cfg := &rest.Config{Host: api.URL, BearerToken: "secret"}
	cfg.ContentType = "application/json"
	cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	options := client.Options{Scheme: scheme.Scheme, Mapper: mapper}
	lasting, err := Outliving(cfg, options)
	if err != nil {
		t.Fatal(err)
	}
	usual, err := client.New(cfg, options)
	if err != nil {
		t.Fatal(err)
	}
	service := func(name string) *corev1.Service {
		return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	}
	leave := func(c client.Client, name string) {
		ctx, end := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- c.Create(ctx, service(name)) }()
		select {
		case <-began:
		case err := <-left:
			t.Fatalf("%s: %v", name, err)
		}
		end()
		if err := <-left; err == nil {
			t.Errorf("%s has an answer", name)
		}
	}
	leave(lasting, "lasting")
	leave(usual, "usual")
	select {
	case <-seen:
	case <-time.After(time.Minute):
		t.Fatal("the API server does not see that its client left: this test shows nothing")
	}
	close(release)
	if err := <-done; err != nil {
		t.Errorf("what was to be carried out to its end: %v", err)
	}
	for range 3 { // one after another, as ever
		svc := service("quick")
		if err := lasting.Create(t.Context(), svc); err != nil || svc.UID != "HTTP/1.1" {
			t.Errorf("%v; the answer is of %s", err, svc.UID)
		}
	}
}
