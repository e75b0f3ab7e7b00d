package credentials

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestSeveralLifetimesUnderLoadWithoutAFailedWrite: exports and endpoints of east change all the while; by the hub's
// audit log no write of a member failed, nobody was unknown, and every token in use was replaced before its end: an API
// server takes one for another minute, so that its refusals alone would not tell. In the short form the tokens that the
// agents get to see have two minutes left; an agent reads the file again within one.
func TestSeveralLifetimesUnderLoadWithoutAFailedWrite(t *testing.T) {
	e := setUp(t)
	life, lasts := 2*time.Minute, 7*time.Minute
	if long {
		life, lasts = lifetime, 3*lifetime+2*time.Minute
	}
	slice := e.exported(t, "busy", "10.1.0.1")
	e.exported(t, "blinking", "10.1.0.2")
	eventually(t, "west has busy", func(ctx context.Context) error { return e.seen(ctx, "busy", "10.1.0.1") })

	began := time.Now()
	ctx, end := context.WithDeadline(t.Context(), began.Add(lasts))
	defer end()
	var beside sync.WaitGroup
	given := &tokens{of: map[string]token{}}
	for _, c := range []string{"east", "west"} {
		beside.Go(func() { e.note(ctx, t, c, life, given) })
	}
	changes, address := 0, ""
	for ; ctx.Err() == nil; changes++ {
		address = fmt.Sprintf("10.1.%d.%d", 1+changes/250%250, 1+changes%250)
		if err := e.move(t.Context(), slice, address); err != nil {
			t.Fatal(err)
		}
		if changes%20 == 10 {
			e.blink(t, changes%40 == 10)
		}
		time.Sleep(200 * time.Millisecond) // the rate of changes
	}
	beside.Wait()
	eventually(t, "west has the last address", func(ctx context.Context) error { return e.seen(ctx, "busy", address) })

	used := map[string]map[string]bool{"east": {}, "west": {}}
	written := 0
	for _, r := range e.audit(t, began) {
		for cluster := range used {
			if r.of(cluster) {
				used[cluster][r.token()] = true
				if ends := given.of[r.token()].ends; !ends.IsZero() && r.RequestReceivedTimestamp.After(ends) {
					t.Errorf("%s, by a token that had ended at %s", r.String(), ends.Format(time.TimeOnly))
				}
			}
		}
		if r.of("east") && r.write() {
			written++
		}
		if r.failed() {
			t.Error(r.String())
		}
	}
	t.Logf(
		"%d changes, %d writes of east on the hub; tokens used by east: %d, by west: %d",
		changes,
		written,
		len(used["east"]),
		len(used["west"]),
	)
	if written < changes/4 {
		t.Errorf("%d writes are no load for %d changes", written, changes)
	}
	for cluster, tokens := range used {
		short := 0
		for id := range tokens {
			if given.of[id].short {
				short++
			}
		}
		if len(tokens) < 3 || !long && short < 3 {
			t.Errorf(
				"%s wrote with %d tokens, %d of them with no more than %v to live: that is not several lifetimes",
				cluster,
				len(tokens),
				short,
				life,
			)
		}
	}
}

// token is one that a member was given.
type token struct {
	ends  time.Time
	short bool
}

// tokens are by what names them in the audit log.
type tokens struct {
	sync.Mutex
	of map[string]token
}

// note notes every token that a member gets, and in the short form leaves it no more than life: the agent renews what
// it finds, and finds what is left here.
func (e *environment) note(ctx context.Context, t *testing.T, cluster string, life time.Duration, given *tokens) {
	for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		err := func() error {
			s, err := e.token(ctx, cluster)
			if err != nil {
				return err
			}
			id, ends, err := parse(string(s.Data["token"]))
			if err != nil {
				return err
			}
			short := !long && time.Until(ends) <= life
			given.Lock()
			if _, noted := given.of[id]; !noted {
				given.of[id] = token{ends, short}
			}
			given.Unlock()
			if !long && !short {
				err = e.age(ctx, cluster, life)
			}
			return err
		}()
		if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "the object has been modified") {
			t.Errorf("%s: %v", cluster, err)
			return
		}
	}
}

// parse is a token's name in the audit log, and its end.
func parse(text string) (id string, ends time.Time, err error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return "", ends, errors.New("it is no JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", ends, err
	}
	var claims struct {
		ID      string `json:"jti"`
		Expires int64  `json:"exp"`
	}
	err = json.Unmarshal(payload, &claims)
	return claims.ID, time.Unix(claims.Expires, 0), err
}

// blink withdraws an export, or makes it.
func (e *environment) blink(t *testing.T, on bool) {
	t.Helper()
	o := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "blinking"}}
	err := e.admin["east"].Delete(t.Context(), o)
	if !on {
		err = e.admin["east"].Create(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnOutageLongerThanALifetime: the message says what to do, that is enough, and id and VIPs are as before.
func TestAnOutageLongerThanALifetime(t *testing.T) {
	e := setUp(t)
	slice := e.exported(t, "steady", "10.1.0.3")
	eventually(t, "west has steady", func(ctx context.Context) error { return e.seen(ctx, "steady", "10.1.0.3") })
	vips := e.vip(t, "east", "steady") + "; " + e.vip(t, "west", "steady")

	e.nodes["east"].Stop()
	if long {
		time.Sleep(lifetime + time.Minute)
	} else if err := e.age(t.Context(), "east", -grace); err != nil {
		t.Fatal(err)
	}
	e.restart(t, "east")
	eventually(t, "the agent says what to do", func(ctx context.Context) error {
		return e.told(
			ctx,
			"east",
			"this member's token expired at",
			"kubectl clusterset join --renew",
		)
	})
	eventually(t, "so does doctor", func(ctx context.Context) error {
		out, err := e.plugin(ctx, "doctor --context=east")
		if err == nil {
			return errors.New("it finds nothing wrong")
		}
		return said(out, "x ", "join --hub-context=HUB --renew")
	})
	if got := e.vip(t, "east", "steady") + "; " + e.vip(t, "west", "steady"); got != vips {
		t.Errorf("while it is out, the VIPs are %s and were %s", got, vips)
	}

	e.renew(t, "east")
	if err := e.move(t.Context(), slice, "10.1.0.4"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "west follows again", func(ctx context.Context) error { return e.seen(ctx, "steady", "10.1.0.4") })
	if got := e.vip(t, "east", "steady") + "; " + e.vip(t, "west", "steady"); got != vips {
		t.Errorf("the VIPs were %s and are %s", vips, got)
	}
}

// restart is a node that comes back.
func (e *environment) restart(t *testing.T, cluster string) {
	t.Helper()
	n, err := lab.StartKubelet(e.planes[cluster])
	if err != nil {
		t.Fatal(err)
	}
	e.nodes[cluster] = n
}

// told returns an error unless the condition CredentialsValid of the Membership is False and says all of this.
func (e *environment) told(ctx context.Context, cluster string, all ...string) error {
	m := &hubv1alpha1.Membership{}
	if err := e.admin[cluster].Get(ctx, client.ObjectKey{Name: hubv1alpha1.MembershipName}, m); err != nil {
		return err
	}
	valid := meta.FindStatusCondition(m.Status.Conditions, hubv1alpha1.ConditionCredentialsValid)
	if valid == nil || valid.Status != metav1.ConditionFalse {
		return fmt.Errorf("CredentialsValid is %+v", valid)
	}
	return said(valid.Message, all...)
}

// said returns an error unless a text has all of these.
func said(text string, all ...string) error {
	for _, want := range all {
		if !strings.Contains(text, want) {
			return fmt.Errorf("no %q in\n%s", want, text)
		}
	}
	return nil
}
