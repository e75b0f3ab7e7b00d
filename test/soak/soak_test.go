package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/clusterset-dns/clusterset-dns/test/lab/offclock"
)

func TestMain(m *testing.M) {
	if err := errors.Join(echoes(), offclock.Run()); err != nil {
		panic(err)
	}
	log.SetLogger(logr.Discard()) // of the clients
	os.Exit(m.Run())
}

// TestSoak is make soak for a minute: a member dies and returns, and then things fail at random, with Leases that
// are short. Durations are
// not compared with their bounds here, since machines are shared; all else is as in the long run.
func TestSoak(t *testing.T) {
	path := filepath.Join(t.TempDir(), "soak.log.gz")
	if dir := os.Getenv("SOAK_KEEP"); dir != "" {
		path = filepath.Join(dir, "soak.log.gz")
	}
	tape, err := record(path, func(text string) { t.Log(text) })
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	w, err := begin(
		ctx,
		root,
		hubv1alpha1.LeaseSpec{
			RenewSeconds:    3,
			DurationSeconds: 10,
			GraceSeconds:    3,
			OnExpiry:        hubv1alpha1.ExpiryRemove,
		},
		true,
		seed,
		tape,
	)
	if err != nil {
		t.Fatal(err)
	}
	defer w.end()
	looking, stop := context.WithCancel(ctx)
	defer stop()
	go w.watchLeases(looking)
	asker, err := w.ask(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer asker.end()
	if err := w.heard(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.play(ctx, asker, func(finding) {}, memberDies); err != nil {
		t.Error(err)
	}
	tally, err := w.shake(
		ctx,
		plan{
			length:  20 * time.Second,
			warm:    time.Hour,
			quiet:   100,
			still:   5 * time.Second,
			pace:    300 * time.Millisecond,
			patient: 3 * time.Minute,
		},
	)
	if err != nil {
		t.Error(err)
	}
	asker.end()
	if asker.asked < 1000 || asker.answered < asker.asked/2 || tally.quiets != 1 || tally.writes == 0 ||
		tally.checked == 0 {
		t.Errorf(
			"it looked at too little: %d asked, %d answered, %d quiet, %d writes, %d objects",
			asker.asked,
			asker.answered,
			tally.quiets,
			tally.writes,
			tally.checked,
		)
	}
	if failed := tape.failed(); len(failed) > 0 {
		t.Errorf("%d times what must not be, with seed %d:\n%s", len(failed), seed, short(failed, 20))
	}
	if err := tape.close(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		for _, m := range w.members {
			t.Logf("agent %s:\n%s", m.ID, m.Agent.Log())
		}
	}
}
