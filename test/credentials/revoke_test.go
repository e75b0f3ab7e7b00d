package credentials

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
)

// An API server believes a token that it has checked for a while, and one that has ended for a minute, since clocks
// differ (RFC 7519 §4.1.4). Of a ServiceAccount that was deleted it hears by its own watch.
const (
	notice = 10 * time.Second
	cached = 10*time.Second + notice
	grace  = time.Minute + cached
)

// thief is whoever has a token.
func (e *environment) thief(t *testing.T, token string) client.Client {
	t.Helper()
	cfg, err := e.planes["hub"].RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg = rest.AnonymousClientConfig(cfg)
	cfg.BearerToken, cfg.QPS = token, -1
	c, err := client.New(cfg, client.Options{Scheme: agent.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// write is one that the member west may do, and nobody notices.
func write(ctx context.Context, c client.Client) error {
	lease := &coordinationv1.Lease{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "clusterset", Name: "west"}, lease); err != nil {
		return err
	}
	return c.Update(ctx, lease, client.DryRunAll)
}

// out waits until the hub knows the token no more, and returns when it last did.
func out(t *testing.T, c client.Client) (last time.Time) {
	t.Helper()
	eventually(t, "the hub refuses the token", func(ctx context.Context) error {
		asked := time.Now()
		err := write(ctx, c)
		if apierrors.IsUnauthorized(err) {
			return nil
		}
		if err == nil {
			last = asked
		}
		return fmt.Errorf("the hub says: %v", err)
	})
	return last
}

// TestALeakedTokenEndsWithItsLife where the thief does not renew it, as the next test has him do; and until then it
// does nothing but its member's writes (test/policies).
func TestALeakedTokenEndsWithItsLife(t *testing.T) {
	e := setUp(t)
	secret, err := e.token(t.Context(), "west")
	if err != nil {
		t.Fatal(err)
	}
	const left = 20 * time.Second
	token, err := e.planes["hub"].Age(string(secret.Data["token"]), left)
	if err != nil {
		t.Fatal(err)
	}
	ends := time.Now().Add(left)
	leaked := e.thief(t, token)
	eventually(t, "it is good while it lives", func(ctx context.Context) error { return write(ctx, leaked) })
	if last := out(t, leaked); last.After(ends.Add(grace)) {
		t.Errorf("it was good until %v after its end", last.Sub(ends))
	}
}

// TestAServiceAccountDeletedIsOutAtOnce, whatever its tokens have left to live, and though whoever has one got himself
// another by it (docs/security.md); what was imported stays, and the member is told what to do.
func TestAServiceAccountDeletedIsOutAtOnce(t *testing.T) {
	e := setUp(t)
	e.exported(t, "kept", "10.1.0.5")
	eventually(t, "west has kept", func(ctx context.Context) error { return e.seen(ctx, "kept", "10.1.0.5") })
	vip := e.vip(t, "west", "kept")
	secret, err := e.token(t.Context(), "west")
	if err != nil {
		t.Fatal(err)
	}
	leaked := e.thief(t, string(secret.Data["token"]))
	eventually(t, "it is good", func(ctx context.Context) error { return write(ctx, leaked) })
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "clusterset", Name: "mcs-west"}}
	seconds := int64(lifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := leaked.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatalf("whoever has a token may renew it, as its member does: %v", err)
	}
	renewed := e.thief(t, request.Status.Token)
	eventually(t, "what he got by it is good", func(ctx context.Context) error { return write(ctx, renewed) })
	if err := e.admin["hub"].Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	for what, thief := range map[string]client.Client{"its token": leaked, "what was got by it": renewed} {
		if last := out(t, thief); last.After(deleted.Add(cached)) {
			t.Errorf("%s was good until %v after that", what, last.Sub(deleted))
		}
	}
	eventually(t, "doctor says what to do", func(ctx context.Context) error {
		text, err := e.plugin(ctx, "doctor --context=west")
		if err == nil {
			return errors.New("it finds nothing wrong")
		}
		return said(text, "x agent-knows: The hub refuses the agent's token", "join --hub-context=HUB")
	})
	if err := e.seen(t.Context(), "kept", "10.1.0.5"); err != nil || e.vip(t, "west", "kept") != vip {
		t.Errorf("what was imported did not stay: %v, VIP %s and %s", err, vip, e.vip(t, "west", "kept"))
	}
	e.renew(t, "west")
}

// TestAMemberThatMayNotRenewIsOutWithinItsTokensLife, and says so as long as something can be done about it.
func TestAMemberThatMayNotRenewIsOutWithinItsTokensLife(t *testing.T) {
	e := setUp(t)
	if _, err := e.planes["hub"].Kubectl(
		t.Context(),
		"",
		"-n",
		"clusterset",
		"delete",
		"rolebinding",
		"mcs-west:token",
	); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent says that it cannot renew", func(ctx context.Context) error {
		return e.told(
			ctx,
			"west",
			"this one expires at",
			"then: kubectl clusterset join --renew",
		)
	})
	const left = 20 * time.Second
	if err := e.age(t.Context(), "west", left); err != nil {
		t.Fatal(err)
	}
	secret, err := e.token(t.Context(), "west")
	if err != nil {
		t.Fatal(err)
	}
	ends, thief := time.Now().Add(left), e.thief(t, string(secret.Data["token"]))
	eventually(t, "it is still good", func(ctx context.Context) error { return write(ctx, thief) })
	if last := out(t, thief); last.After(ends.Add(grace)) {
		t.Errorf("its token was good until %v after its end", last.Sub(ends))
	}
	again, err := e.token(t.Context(), "west")
	if err != nil || string(again.Data["token"]) != string(secret.Data["token"]) {
		t.Errorf("it has another token, %v", err)
	}
	e.renew(t, "west")
}

// renew brings a member back.
func (e *environment) renew(t *testing.T, cluster string) {
	t.Helper()
	line := fmt.Sprintf("join --context=%s --hub-context=hub --renew --token-lifetime=%v", cluster, lifetime)
	if text, err := e.plugin(t.Context(), line); err != nil {
		t.Fatalf("kubectl clusterset %s: %v\n%s", line, err, text)
	}
}
