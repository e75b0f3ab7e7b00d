package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

const (
	jwt   = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
	plain = "hunter2hunter2"
)

// TestNoCredentialGetsIntoTheArchive, whatever an admin wrote where; the rest is read again as it was.
func TestNoCredentialGetsIntoTheArchive(t *testing.T) {
	agent := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "clusterset-controller",
		Annotations: map[string]string{"password": plain, "note": "Authorization: Bearer " + jwt,
			corev1.LastAppliedConfigAnnotation: `{"env":[{"name":"X","value":"http://u:` + plain + `@proxy"}]}`}}}
	agent.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Args: []string{"--token=" + plain},
		Env: []corev1.EnvVar{{Name: "X", Value: plain}}}}
	corefile := ".:53 {\n    tsig {\n        secret key.example. " + plain + "\n    }\n    multicluster\n}\n" +
		"a.example:53 {\n\troute53 a.example:Z {\n\t\taws_access_key\tID " + plain + "\n\t}\n}\n"
	rec := hubv1alpha1.ServiceExportRecord{ObjectMeta: metav1.ObjectMeta{Name: "web.shop.east"}}
	rec.Spec.Revision = 1<<62 + 1 // more than a float holds
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &snapshot.Snapshot{
		Release: "v1.0.0",
		Flags:   report.Flags{Context: "east", Kubeconfig: "/home/jane/.kube/config"},
		Unread: map[snapshot.Part]snapshot.Lack{
			snapshot.Nodes: {Why: "forbidden; token: " + plain, Right: "nodes (list)"},
		},
		Member: &snapshot.Member{Now: at, Agent: agent, Records: []hubv1alpha1.ServiceExportRecord{rec},
			DNS: dns.State{ConfigKey: "Corefile", Objects: platform.Objects{Config: &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					corev1.LastAppliedConfigAnnotation: fmt.Sprintf(`{"data":{"Corefile":%q}}`, corefile)}},
				Data: map[string]string{"Corefile": corefile}}}}},
	}
	var out bytes.Buffer
	unread, err := Write(t.Context(), &out, at, s, nil, nil)
	if err != nil || unread != 1 {
		t.Fatalf("%d unread, %v", unread, err)
	}
	file := filepath.Join(t.TempDir(), "archive.tar.gz")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{jwt, plain, "eyJ", "/home/jane"} {
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("it has %s:\n%s", secret, text)
		}
	}
	got, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Member.Now.Equal(at) || got.Member.Records[0].Spec.Revision != rec.Spec.Revision ||
		got.Unread[snapshot.Nodes].Right != "nodes (list)" || got.Flags.Context != "east" ||
		!reflect.DeepEqual(got.Member.Agent.Name, agent.Name) {
		t.Errorf("%+v", got.Member)
	}
	if c, line := got.Member.Plugin(); c == nil || line == nil {
		t.Errorf("the Corefile is lost:\n%s", got.Member.DNS.Corefile())
	}
}

// TestAnInterruptedArchiveIsNone: logs that nobody could read any more would be missing in it.
func TestAnInterruptedArchiveIsNone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Write(ctx, io.Discard, time.Now(), &snapshot.Snapshot{}, nil, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
}

func TestWhatLooksLikeACredentialIsReplaced(t *testing.T) {
	for _, line := range []string{"Authorization: Bearer " + jwt, `{"token":"` + plain + `"}`, "password=" + plain,
		`err="{\"token\":\"a ` + plain + `\"}, password=\"` + plain + `\""`,
		`msg="wrong password:" password="` + plain + `"`,
		`{\"password\":\"a\\n` + plain + ` foo, ` + plain + `\"}`, `password: "a, ` + plain + `"`,
		`password: 'it''s ` + plain + `'`, "http://jane:" + plain + "@proxy.example:3128",
		"-----BEGIN RSA PRIVATE KEY-----\n" + plain + "\n-----END RSA PRIVATE KEY-----"} {
		if got := string(Redact([]byte(line))); strings.Contains(got, plain) || strings.Contains(got, "eyJ") {
			t.Errorf("%s: %s", line, got)
		}
	}
	const sound = `the key token of Secret hub-kubeconfig cannot be used (no JSON Web Token), "by":"x@y"` +
		"https://hub.example:6443"
	if got := string(Redact([]byte(sound))); got != sound {
		t.Error(got)
	}
}
