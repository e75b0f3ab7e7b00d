package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
)

const (
	jwt   = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
	plain = "hunter2hunter2"
)

// TestNoSecretGetsIntoTheArchive: Secrets are not read, and no file has their data by another way.
func TestNoSecretGetsIntoTheArchive(t *testing.T) {
	meta := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	pod := &corev1.Pod{ObjectMeta: meta(system, "agent"), Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Args: []string{"--token=" + plain}, Env: []corev1.EnvVar{{Name: "X", Value: plain}}}}}}
	pod.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": plain}
	objects := []client.Object{pod,
		&corev1.Secret{ObjectMeta: meta(system, "hub-kubeconfig"), Data: map[string][]byte{"token": []byte(jwt)}},
		&corev1.ConfigMap{ObjectMeta: meta(kubeSystem, "coredns"), Data: map[string]string{
			"Corefile": ".:53 {\n    tsig {\n        secret key.example. " + plain + "\n    }\n}\n"}},
		&corev1.ConfigMap{ObjectMeta: meta(beside, "coredns"), Data: map[string]string{ // YAML quotes such a text
			"Corefile": ".:53 {\n\troute53 a.example:Z {\n\t\taws_access_key\tID " + plain + "\n\t}\n} \n"}},
		&corev1.ConfigMap{ObjectMeta: meta(kubeSystem, "others"), Data: map[string]string{"x": plain}},
	}
	funcs := interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, k client.ObjectKey, o client.Object,
			_ ...client.GetOption) error {
			t.Errorf("%T %s is read", o, k)
			return nil
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			switch kind := l.GetObjectKind().GroupVersionKind().Kind; {
			case strings.HasPrefix(kind, "Secret"):
				t.Error("Secrets are listed")
			case kind == "NodeList":
				return errors.New("forbidden")
			case kind == "ServiceCIDRList": // YAML has no channels
				all := l.(*unstructured.UnstructuredList)
				all.Items = []unstructured.Unstructured{{Object: map[string]any{"x": make(chan int)}}}
				return nil
			}
			return c.List(ctx, l, opts...)
		}}
	here := &cluster.Cluster{Name: "this cluster", Client: fake.NewClientBuilder().WithScheme(cluster.Scheme()).
		WithObjects(objects...).WithInterceptorFuncs(funcs).Build()}
	logs := func(_ context.Context, _, _, _ string, previous bool) ([]byte, error) {
		if previous {
			return nil, errors.New("there is none")
		}
		return []byte("Authorization: Bearer " + jwt + "\n{\"token\":\"" + plain + "\"}\npassword=" + plain +
			"\nstarted\nerr=\"{\\\"token\\\":\\\"a " + plain + "\\\"}, password=\\\"" + plain + "\\\"\"\n" +
			"msg=\"wrong password:\" password=\"" + plain + "\"\n" +
			"{\\\"password\\\":\\\"a\\\\n" + plain + " foo, " + plain + "\\\"}\n" +
			"password: \"a, " + plain + "\"\npassword: 'it''s " + plain + "'\n" +
			"-----BEGIN RSA PRIVATE KEY-----\n" + plain + "\n-----END RSA PRIVATE KEY-----\n"), nil
	}
	var out bytes.Buffer
	unread, err := Write(t.Context(), &out, time.Unix(0, 0), []Cluster{{Cluster: here, Folder: "member", Logs: logs}},
		map[string][]byte{"doctor.json": []byte(`{"note": "` + jwt + `"}`)})
	if err != nil || unread != 2 {
		t.Fatalf("%d unread, %v", unread, err)
	}
	unzipped, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(unzipped); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimPrefix(head.Name, "clusterset-support/"))
		for _, s := range []string{jwt, plain, "eyJ"} {
			if bytes.Contains(text, []byte(s)) {
				t.Errorf("%s has a credential:\n%s", head.Name, text)
			}
		}
		if strings.HasSuffix(head.Name, "main.log") && !bytes.Contains(text, []byte("started")) {
			t.Errorf("the log is lost: %s", text)
		}
	}
	for _, want := range []string{"member/clusterset-system/pod.yaml", "member/clusterset-system/agent.main.log",
		"member/kube-system/configmap.yaml", "member/clusterset-dns/configmap.yaml", "doctor.json", "errors.txt"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s in %v", want, names)
		}
	}
}
