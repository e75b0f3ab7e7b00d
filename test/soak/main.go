// Command soak runs a real clusterset, a hub and three members with all that is ours in each, lets things fail at
// random for an hour, and asks every name twenty times a second in every member. What is answered is checked by
// test/soak/oracle, and all objects by check.go.
// docs/reliability.md is its report.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/clusterset-dns/clusterset-dns/test/lab/offclock"
)

// version is the commit that is run, set by the Makefile.
var version = "unknown"

// byDefault is what a ClusterSet has where nobody says otherwise.
var byDefault = hubv1alpha1.LeaseSpec{
	RenewSeconds:    10,
	DurationSeconds: 40,
	GraceSeconds:    10,
	OnExpiry:        hubv1alpha1.ExpiryRemove,
}

func main() {
	duration := flag.Duration("duration", time.Hour, "of the random faults, beside which the scenarios are played")
	seed := flag.Uint64("seed", 0, "of the faults and changes; 0: another each time")
	scenarios := flag.String("scenarios", "all", "names of those to run, separated by commas; all; or none")
	out := flag.String("out", "", "file for the report, also the screen")
	raw := flag.String(
		"log",
		"",
		"file for every change, fault and answer, packed; empty: bin/soak-DATE-SEED.log.gz",
	)
	flag.StringVar(&profiles, "profiles", "", "directory for the heap profiles of section G; empty: they are not kept")
	releases := flag.String(
		"upgrade",
		"",
		"instead of faults: checkouts of two versions, built, NAME=FOLDER,NAME=FOLDER, between which each part changes",
	)
	steps := flag.Int("steps", 10, "of an upgrade, before everything becomes the second version")
	flag.Parse()
	log.SetLogger(logr.Discard()) // of the clients
	if err := errors.Join(echoes(), offclock.Run()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	acts, err := named(*scenarios)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	if *releases != "" {
		if err := upgrade(ctx, *releases, *steps, *seed); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if *raw == "" {
		*raw = fmt.Sprintf("bin/soak-%s-%d.log.gz", time.Now().UTC().Format(time.DateOnly), *seed)
	}
	if err := soak(ctx, *duration, *seed, acts, *out, *raw); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// named are the scenarios to run, in their order.
func named(list string) (acts []scenario, err error) {
	wanted := map[string]bool{}
	for _, name := range strings.Split(list, ",") {
		wanted[name] = true
	}
	var known []string
	for _, s := range scenes {
		if known = append(known, s.name); wanted["all"] || wanted[s.name] {
			acts = append(acts, s.play)
		}
		delete(wanted, s.name)
	}
	delete(wanted, "all")
	delete(wanted, "none")
	for name := range wanted {
		return nil, fmt.Errorf("no scenario %q: there are %s", name, strings.Join(known, ", "))
	}
	return acts, nil
}

// patient is how long all may take to be right again after a fault of the long run was repaired.
const patient = 75 * time.Second

func soak(ctx context.Context, duration time.Duration, seed uint64, acts []scenario, out, raw string) error {
	if err := os.MkdirAll(filepath.Dir(raw), 0o755); err != nil {
		return err
	}
	tape, err := record(raw, func(text string) { fmt.Println(text) })
	if err != nil {
		return err
	}
	tape.note("seed %d, version %s", seed, version)
	r := &results{seed: seed, raw: raw, tape: tape}
	// side by side, each in a clusterset of its own: nobody has died lately where a scenario begins (T3)
	var both sync.WaitGroup
	var failed [2]error
	both.Go(func() {
		failed[0] = stand(ctx, seed, tape.of("faults"), r, func(w *world, _ *asker) (err error) {
			p := plan{
				length:  duration,
				warm:    min(10*time.Minute, duration/4),
				quiet:   6,
				still:   20 * time.Second,
				pace:    700 * time.Millisecond,
				patient: patient,
			}
			p.told = func(t *tally) { r.shook(w, t); r.write(out) }
			_, err = w.shake(ctx, p)
			return err
		})
	})
	if len(acts) > 0 {
		both.Go(func() {
			failed[1] = stand(ctx, seed, tape.of("scenarios"), r, func(w *world, a *asker) error {
				return w.play(ctx, a, r.finding, acts...)
			})
		})
	}
	both.Wait()
	if err := errors.Join(failed[0], failed[1], tape.close()); err != nil {
		return err
	}
	if r.sum, r.size, err = fingerprint(raw); err != nil {
		return err
	}
	fmt.Print(r.text())
	r.write(out)
	if failed := tape.failed(); len(failed) > 0 {
		return fmt.Errorf(
			"%d times what must not be, with seed %d; everything is in %s:\n%s",
			len(failed),
			seed,
			raw,
			short(failed, 20),
		)
	}
	return nil
}

// stand does something in a clusterset in which every name is asked all the time.
func stand(ctx context.Context, seed uint64, tape *tape, r *results, do func(*world, *asker) error) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	w, err := begin(ctx, root, byDefault, false, seed, tape)
	if err != nil {
		return err
	}
	defer w.end()
	defer func() {
		if len(tape.failed()) > 0 {
			w.keepLogs(tape, seed)
		}
	}()
	looking, stop := context.WithCancel(ctx)
	defer stop()
	go w.watchLeases(looking)
	asker, err := w.ask(ctx)
	if err != nil {
		return err
	}
	defer asker.end()
	r.counting(asker)
	if err := w.heard(ctx); err != nil {
		return err
	}
	return do(w, asker)
}
