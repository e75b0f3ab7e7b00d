// Package credentials renews the token by which a member writes to the hub, long before it expires
// (DESIGN §6). It asks for a token of the same lifetime as the one it has, so that the admin who
// made the first decides, within the day that the hub's policy allows.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// renewals is how often a token is renewed within its lifetime.
const renewals = 24

// unknown is when to try again if there is no token that can be read.
const unknown = time.Minute

// requestTimeout is how long one connection to the hub may take, so that the next one is tried.
const requestTimeout = 10 * time.Second

// Renewer renews one member's token. Local reads no cache.
type Renewer struct {
	Cluster, HubNamespace string
	Local                 client.Client
	// Hubs returns uncached clients of the hub that authenticate with token, in the order to try them. Only the hub
	// that issued token accepts it, so the new token cannot be another hub's.
	Hubs  func(token string) ([]client.Client, error)
	Token func() (string, error) // the token with which the agent reaches the hub; "" if it uses something else
	Now   func() time.Time
}

// ErrElsewhere means that the agent does not manage the credentials for the hub.
var ErrElsewhere = errors.New("the credentials for the hub come from elsewhere, and must be renewed there")

// Fault is a fault of the token in the Secret that is known without an answer of the hub.
type Fault struct{ error }

// Renew renews the token if that is due. It returns when to call it again, also with an error.
func (r *Renewer) Renew(ctx context.Context) (again time.Duration, err error) {
	secret, err := kube.Get[*corev1.Secret](
		ctx, r.Local, types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.SecretHub},
	)
	if err != nil {
		return unknown, err
	}
	if secret == nil {
		return unknown, fmt.Errorf(
			"there is no Secret %s/%s: %w", kube.SystemNamespace, clusterset.SecretHub, ErrElsewhere,
		)
	}
	again, err = r.renew(ctx, secret)
	if err != nil && r.unused(strings.TrimSpace(string(secret.Data[clusterset.SecretToken]))) {
		err = ErrElsewhere
	}
	return again, err
}

// unused reports whether the agent reaches the hub with something else than the Secret's token. A kubelet brings that
// late, so an earlier one may still be in use, but none that expires later.
func (r *Renewer) unused(token string) bool {
	used, err := r.Token()
	if err != nil || strings.TrimSpace(used) == token {
		return false
	}
	kept, _ := clusterset.ParseToken(token) // it expires at 0 if it cannot be read
	current, err := clusterset.ParseToken(used)
	return err != nil || current.Expires > kept.Expires
}

// renew is Renew with the Secret.
func (r *Renewer) renew(ctx context.Context, secret *corev1.Secret) (again time.Duration, err error) {
	old, err := clusterset.ParseToken(string(secret.Data[clusterset.SecretToken]))
	if err != nil {
		return unknown, Fault{fmt.Errorf(
			"key %s of Secret %s/%s: %w; kubectl clusterset join --renew --hub-context=HUB makes a new one",
			clusterset.SecretToken, kube.SystemNamespace, clusterset.SecretHub, err,
		)}
	}
	account := clusterset.AccountPrefix + r.Cluster
	if want := "system:serviceaccount:" + r.HubNamespace + ":" + account; old.Subject != want {
		return unknown, Fault{fmt.Errorf(
			"the token in Secret %s/%s is of %s and not of %s; "+
				"kubectl clusterset join --renew --hub-context=HUB makes a new one",
			kube.SystemNamespace, clusterset.SecretHub, old.Subject, want,
		)}
	}
	if wait := due(old, r.Now()); wait > 0 {
		return wait, nil
	}
	again = old.Lifetime() / (4 * renewals)
	hubs, err := r.Hubs(strings.TrimSpace(string(secret.Data[clusterset.SecretToken])))
	if err != nil {
		return again, err
	}
	owner := &corev1.ServiceAccount{}
	owner.Namespace, owner.Name = r.HubNamespace, account
	issued, err := request(ctx, hubs, owner, int64(old.Lifetime()/time.Second))
	if err != nil {
		ends := time.Unix(old.Expires, 0).UTC()
		if r.Now().After(ends) {
			return again, Fault{fmt.Errorf(
				"this member's token expired at %s: kubectl clusterset join --renew --hub-context=HUB, "+
					"which keeps ID and VIPs: %w",
				ends.Format(time.RFC3339), err,
			)}
		}
		return again, fmt.Errorf(
			"asking the hub for a new token failed "+
				"(this one expires at %s; then: kubectl clusterset join --renew --hub-context=HUB): %w",
			ends.Format(time.RFC3339), err,
		)
	}
	renewed := secret.DeepCopy()
	renewed.Data[clusterset.SecretToken] = []byte(issued.Token)
	if err := r.Local.Update(ctx, renewed); err != nil {
		return again, err
	}
	log.FromContext(ctx).
		Info("renewed the token for the hub", "expires", issued.ExpirationTimestamp.UTC().Format(time.RFC3339))
	return old.Lifetime() / renewals, nil
}

// request returns a new token of owner from the first of hubs that issues one, or the errors of all.
func request(
	ctx context.Context, hubs []client.Client, owner *corev1.ServiceAccount, seconds int64,
) (issued authenticationv1.TokenRequestStatus, failed error) {
	for _, hub := range hubs {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		attempt, cancel := context.WithTimeout(ctx, requestTimeout)
		err := hub.SubResource("token").Create(attempt, owner, request)
		cancel()
		if err == nil {
			return request.Status, nil
		}
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		failed = err
	}
	return issued, failed
}

// due returns the time until a token must be renewed, 0 or less if that is now: also for one that was issued in the
// future, because then a clock is wrong.
func due(t clusterset.Token, now time.Time) time.Duration {
	age := now.Sub(time.Unix(t.Issued, 0))
	if age < -t.Lifetime()/renewals {
		return 0
	}
	return t.Lifetime()/renewals - age
}
