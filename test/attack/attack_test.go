package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// groups are the refusals, by what they aim at.
var groups = []struct {
	name     string
	refusals []refusal
}{
	{"records of others", foreign}, {"Leases", liveness}, {"membership and settings", membership},
	{"namespaces", namespaces}, {"tokens and rights", credentials}, {"shapes and versions", shapes},
}

// TestNoAttackChangesTheVictims: each attack is refused by whom the list says, or is withstood by the agents.
func TestNoAttackChangesTheVictims(t *testing.T) {
	w := start(t)
	before := w.states(t)
	for _, g := range groups {
		if t.Failed() {
			return // as below
		}
		t.Run(strings.ReplaceAll(g.name, " ", "_"), func(t *testing.T) {
			for _, a := range g.refusals {
				t.Run(strings.ReplaceAll(a.name, " ", "_"), func(t *testing.T) { w.refuses(t, a) })
			}
			w.settle(t)
			must(t, w.compare(t.Context(), before))
		})
	}
	for _, p := range publications {
		if t.Failed() {
			return // what an attack left behind fails each one after it, a long wait later
		}
		t.Run("agents/"+strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			w.withstands(t, p, before)
			must(t, until(t.Context(), "a share in a victim's name goes with its export", func() error {
				return w.compare(t.Context(), before)
			}))
			for _, o := range p.records { // the victims have followed the withdrawal
				w.ask(t.Context(), remove(resourceOf(o), o.name()))
			}
		})
	}
}

// refuses fails unless the hub refuses the attack as the list says.
func (w *world) refuses(t *testing.T, a refusal) {
	t.Helper()
	code, says := w.ask(t.Context(), a.ask(t.Context(), w))
	for code == http.StatusConflict && !strings.Contains(says, a.says) { // the agent wrote between reading and writing
		code, says = w.ask(t.Context(), a.ask(t.Context(), w))
	}
	if code/100 == 2 {
		t.Fatalf("succeeded: %d %.300s", code, says)
	}
	if code/100 != 4 && a.by != apiserver { // it answers 500 to a version on an object to create
		t.Fatalf("is no refusal: %d %.300s", code, says)
	}
	by := apiserver
	switch {
	case code == http.StatusForbidden && strings.Contains(says, " cannot "):
		by = rbac
	case strings.Contains(says, "ValidatingAdmissionPolicy '"):
		_, policy, _ := strings.Cut(says, "ValidatingAdmissionPolicy '")
		policy, _, _ = strings.Cut(policy, ".clusterset-dns.io'")
		by = "policy `" + policy + "`"
	case code == http.StatusUnprocessableEntity && strings.Contains(says, ".hub.clusterset-dns.io ") &&
		a.by != apiserver:
		by = schema
	}
	if by != a.by || !strings.Contains(says, a.says) {
		t.Errorf("refused by %s: %d %.300s; want %s: %s", by, code, says, a.by, a.says)
	}
}

// withstands publishes, waits until the victims have seen it, and withdraws. They have what they had before, unless
// it shares a name of theirs.
func (w *world) withstands(t *testing.T, p publication, before []string) {
	t.Helper()
	ctx := t.Context()
	cores := w.cores(t, p.shares)
	if p.run != nil {
		must(t, p.run(ctx, w))
	}
	for _, o := range p.records {
		must(t, w.done(ctx, create(resourceOf(o), o)))
	}
	if w.beside = p.beside; w.beside != nil {
		must(t, w.publishHonest(ctx))
	}
	if p.event != "" {
		for _, v := range w.victims {
			must(t, v.hasEvent(ctx, p.event, p.words))
		}
	}
	w.settle(t)
	for name, is := range w.cores(t, p.shares) {
		if was := cores[name]; was != is {
			t.Errorf("%s: what runs has changed:\n%s", name, difference(was, is))
		}
	}
	for _, v := range w.victims {
		got, err := v.addresses(ctx, open, "honest")
		if err != nil || len(got) != 1 || got[0] != w.honestAddress() {
			t.Errorf("%s imports %v of the attacker's own name, want %s: %v", v.ID, got, w.honestAddress(), err)
		}
	}
	if p.shares == "" {
		must(t, w.compare(ctx, before))
	}
	for _, o := range p.records {
		must(t, w.withdraw(ctx, o))
	}
	w.beside = nil
	w.settle(t)
}

// settle has the attacker change its own name, and waits until the victims have followed: they have seen by then what
// was published before.
func (w *world) settle(t *testing.T) {
	t.Helper()
	must(t, w.follow(t.Context()))
}

// follow is settle without a test.
func (w *world) follow(ctx context.Context) error {
	err := w.publishHonest(ctx)
	for _, v := range w.victims {
		err = errors.Join(err, v.hasHonest(ctx, w.honestAddress()))
	}
	return err
}

// states are what the victims have.
func (w *world) states(t *testing.T) (out []string) {
	t.Helper()
	for _, v := range w.victims {
		s, err := v.state(t.Context())
		must(t, err)
		out = append(out, s)
	}
	return out
}

// compare returns an error unless the victims have what they had before.
func (w *world) compare(ctx context.Context, before []string) (err error) {
	for i, v := range w.victims {
		now, failed := v.state(ctx)
		if failed == nil && now != before[i] {
			failed = fmt.Errorf("%s is not as before:\n%s", v.ID, difference(before[i], now))
		}
		err = errors.Join(err, failed)
	}
	return err
}

// cores are those of a name in the victims; none if it is "".
func (w *world) cores(t *testing.T, name string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, v := range w.victims {
		if name == "" {
			continue
		}
		core, err := v.core(t.Context(), name)
		must(t, err)
		out[v.ID] = core
	}
	return out
}

// difference returns the lines that only one of two texts has.
func difference(was, is string) string {
	var out []string
	for sign, pair := range map[string][2]string{"-": {was, is}, "+": {is, was}} {
		for _, line := range strings.Split(pair[0], "\n") {
			if !strings.Contains("\n"+pair[1]+"\n", "\n"+line+"\n") {
				out = append(out, sign+" "+line)
			}
		}
	}
	return strings.Join(out, "\n")
}

// hasEvent waits until a victim has raised an Event with these words.
func (v *victim) hasEvent(ctx context.Context, reason string, words []string) error {
	return until(ctx, v.ID+": Event "+reason, func() error {
		var events corev1.EventList
		if err := v.List(ctx, &events); err != nil {
			return err
		}
		var seen []string
		for _, e := range events.Items {
			if e.Reason != reason {
				continue
			}
			all := true
			for _, word := range words {
				all = all && strings.Contains(e.InvolvedObject.Name+": "+e.Message, word)
			}
			if all {
				return nil
			}
			seen = append(seen, e.Message)
		}
		return fmt.Errorf("only %q, want %q", seen, words)
	})
}

// asToken returns the token of a TokenRequest.
func asToken(answer string) (string, error) {
	var r struct{ Status struct{ Token string } }
	err := json.Unmarshal([]byte(answer), &r)
	return r.Status.Token, err
}
