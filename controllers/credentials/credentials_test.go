package credentials

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	issued  = 1_700_000_000
	day     = 24 * time.Hour
	subject = "system:serviceaccount:blue:mcs-east"
)

func token(subject string, lifetime time.Duration) string {
	payload := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, issued, issued+int64(lifetime/time.Second))
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".sig"
}

// TestDue: a twenty-fourth of its lifetime after it was issued; at once where a clock is wrong.
func TestDue(t *testing.T) {
	c := clusterset.Token{Issued: issued, Expires: issued + int64(day/time.Second)}
	for _, r := range []struct{ age, due time.Duration }{
		{0, time.Hour}, {30 * time.Minute, 30 * time.Minute}, {time.Hour, 0}, {2 * time.Hour, -time.Hour},
		{-time.Minute, time.Hour + time.Minute}, {-61 * time.Minute, 0},
	} {
		if got := due(c, time.Unix(issued, 0).Add(r.age)); got != r.due {
			t.Errorf("at the age of %v it is due in %v, want %v", r.age, got, r.due)
		}
	}
}

// TestRenew: what becomes of the token in the Secret, when to try again, and what is said where nothing does.
func TestRenew(t *testing.T) {
	fresh, elsewhere := token(subject, 12*time.Hour), []string{ErrElsewhere.Error()}
	expired := errors.New("Unauthorized")
	for _, c := range []struct {
		what   string
		secret string // its token; "-": there is no Secret
		used   string // "": the Secret's; "-": no token
		age    time.Duration
		hub    error
		again  time.Duration
		token  string // afterwards
		says   []string
	}{
		{"not due", token(subject, day), "", 0, nil, time.Hour, token(subject, day), nil},
		{"due", token(subject, day), "", time.Hour, nil, time.Hour, fresh, nil},
		{"run out, and the hub takes it no more", token(subject, day), "", 25 * time.Hour, expired, 15 * time.Minute,
			token(subject, day), []string{"Unauthorized", "expired at 2023-11-15T22:13:20Z", "join --renew"}},
		{"due, and the hub does not answer", token(subject, day), "", 2 * time.Hour, expired, 15 * time.Minute,
			token(subject, day), []string{"(this one expires at 2023-11-15T22:13:20Z"}},
		{"run out, and its file is older", token(subject, day), token(subject, time.Hour), 25 * time.Hour, expired,
			15 * time.Minute, token(subject, day), []string{"expired at 2023-11-15T22:13:20Z"}},
		{"run out, and another is used", token(subject, day), token(subject, 48*time.Hour), 25 * time.Hour, expired,
			15 * time.Minute, token(subject, day), elsewhere},
		{"run out, and a certificate is used", token(subject, day), "-", 25 * time.Hour, expired, 15 * time.Minute,
			token(subject, day), elsewhere},
		{"dropped, and another is used", "", token(subject, day), 0, nil, time.Minute, "", elsewhere},
		{"of another subject", token("system:serviceaccount:blue:mcs-west", day), "", 2 * time.Hour, nil, time.Minute,
			token("system:serviceaccount:blue:mcs-west", day), []string{"mcs-west", "join --renew"}},
		{"no token", "", "", 0, nil, time.Minute, "", []string{"no JSON Web Token", "join --renew"}},
		{"nonsense", "a.!.c", "", 0, nil, time.Minute, "a.!.c", []string{"no JSON Web Token"}},
		{"no lifetime", token(subject, 0), "", 0, nil, time.Minute, token(subject, 0), []string{"no lifetime"}},
		{"no Secret", "-", "", 0, nil, time.Minute, "", elsewhere},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			s := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme} {
				if err := add(s); err != nil {
					t.Fatal(err)
				}
			}
			local := fake.NewClientBuilder().WithScheme(s).Build()
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub},
			}
			if c.secret != "-" {
				secret.Data = map[string][]byte{"token": []byte(c.secret), "kubeconfig": []byte("k")}
				if err := local.Create(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
			}
			hub := fake.NewClientBuilder().WithScheme(s).WithInterceptorFuncs(interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, sub string, o, request client.Object,
					_ ...client.SubResourceCreateOption) error {
					if sub != "token" || o.GetNamespace() != "blue" || o.GetName() != "mcs-east" {
						t.Errorf("asked for %s of %s/%s", sub, o.GetNamespace(), o.GetName())
					}
					r := request.(*authenticationv1.TokenRequest)
					if r.Spec.ExpirationSeconds == nil || *r.Spec.ExpirationSeconds != int64(day/time.Second) {
						t.Errorf("asked for %v seconds", r.Spec.ExpirationSeconds)
					}
					r.Status.Token = fresh
					return c.hub
				},
			}).Build()
			r := &Renewer{
				Cluster:      "east",
				HubNamespace: "blue",
				Local:        local,
				Hubs: func(token string) ([]client.Client, error) {
					if token != c.secret {
						t.Errorf("it authenticates with %q", token)
					}
					return []client.Client{hub}, nil
				},
				Token: func() (string, error) {
					if c.used == "-" {
						return "", nil
					}
					return cmp.Or(c.used, c.secret), nil
				},
				Now: func() time.Time { return time.Unix(issued, 0).Add(c.age) },
			}
			again, err := r.Renew(t.Context())
			if again != c.again || (err == nil) != (c.says == nil) {
				t.Errorf("again in %v, want %v; %v", again, c.again, err)
			}
			for _, says := range c.says {
				if err != nil && !strings.Contains(err.Error(), says) {
					t.Errorf("%v, without %q", err, says)
				}
			}
			if errors.Is(err, ErrElsewhere) != reflect.DeepEqual(c.says, elsewhere) {
				t.Errorf("ErrElsewhere: %v", err)
			}
			byHub := err == nil || c.hub != nil && c.age < day || errors.Is(err, ErrElsewhere)
			if errors.As(err, new(Fault)) == byHub {
				t.Errorf("Fault: %v", err)
			}
			if c.secret == "-" {
				return
			}
			if err := local.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
				t.Fatal(err)
			}
			if got := string(secret.Data["token"]); got != c.token || string(secret.Data["kubeconfig"]) != "k" {
				t.Errorf("the token is %q, want %q", got, c.token)
			}
		})
	}
}

// TestTheNextConnectionIsTried after one that fails, and what both answer is said if neither gives a token.
func TestTheNextConnectionIsTried(t *testing.T) {
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), authenticationv1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	hub := func(answer error) client.Client {
		return fake.NewClientBuilder().WithScheme(s).WithInterceptorFuncs(interceptor.Funcs{
			SubResourceCreate: func(ctx context.Context, _ client.Client, _ string, _, o client.Object,
				_ ...client.SubResourceCreateOption) error {
				if _, limited := ctx.Deadline(); !limited {
					t.Error("a connection without an answer is in the way of the next one")
				}
				o.(*authenticationv1.TokenRequest).Status.Token = "fresh"
				return answer
			},
		}).Build()
	}
	wrong, refused := errors.New("no route"), errors.New("Unauthorized")
	for _, c := range []struct {
		hubs  []client.Client
		token string
		err   string
	}{
		{[]client.Client{hub(nil), hub(refused)}, "fresh", "<nil>"},
		{[]client.Client{hub(wrong), hub(nil)}, "fresh", "<nil>"},
		{[]client.Client{hub(wrong), hub(refused)}, "", "no route; Unauthorized"},
	} {
		issued, err := request(t.Context(), c.hubs, &corev1.ServiceAccount{}, 3600)
		if issued.Token != c.token || fmt.Sprint(err) != c.err {
			t.Errorf("token %q and %v, want %q and %s", issued.Token, err, c.token, c.err)
		}
	}
}
