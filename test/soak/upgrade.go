package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// release is one version of the product: a checkout whose bin has its programs.
type release struct{ name, root string }

func (r release) program(name string) string { return filepath.Join(r.root, "bin", name) }

// hubCRDs is the name of a part.
const hubCRDs = "the hub's CRDs"

// future is the name of the release of test/upgrade/future.patch.
const future = "future"

// skew is which part has which version.
type skew struct {
	releases [2]release
	parts    []part
	is       map[string]release // by part; the first release where there is none
	snapshot string             // of the hub, and what it had
	then     map[string]release
}

// part is what has a version of its own: a program, or manifests.
type part struct {
	name, at string
	by       string                  // the command that applies all of it, if there is one
	turn     func(to release) *fault // a step, without its name
}

func (s *skew) has(p part) release {
	if r, ok := s.is[p.name+p.at]; ok {
		return r
	}
	return s.releases[0]
}

// turned gives a part a version.
func (s *skew) turned(p part, to release) *fault {
	f := p.turn(to)
	f.name, f.at = p.name+" becomes "+to.name, p.at
	begin := f.begin
	f.begin = func(ctx context.Context) error { s.is[p.name+p.at] = to; return begin(ctx) }
	return f
}

// upgraded are the kinds of steps. A part gets the other version, whichever it has: so upgrades and roll backs come in
// any order.
var upgraded = []kind{{6, partTurned}, {2, commandRun}, {1, hubSavedOrRestored}, {1, newSettings}}

func partTurned(w *world, r *rand.Rand, _ *member) *fault {
	s := w.skew
	p := s.parts[r.IntN(len(s.parts))]
	to := s.releases[0]
	if s.has(p) == to {
		to = s.releases[1]
	}
	return s.turned(p, to)
}

// findParts lists the parts, in the order that docs/operate.md recommends. Manifests that are the same in both versions
// are no part.
func (w *world) findParts() (out []part, err error) {
	const crds = "deploy/crds/"
	applied := func(name, at, by string, on *lab.ControlPlane, patterns ...string) {
		first, failed := manifests(w.skew.releases[0], patterns)
		second, failed2 := manifests(w.skew.releases[1], patterns)
		if err = errors.Join(err, failed, failed2); first != second {
			out = append(out, part{name, at, by, func(to release) *fault {
				begin := func(ctx context.Context) error {
					if to == w.skew.releases[0] {
						return on.Apply(ctx, first)
					}
					return on.Apply(ctx, second)
				}
				return &fault{begin: begin, repair: func(context.Context) error { return nil }}
			}})
		}
	}
	applied(hubCRDs, "", "init", w.Hub, crds+"hub/hub*.yaml", crds+"record/hub*.yaml", crds+"inventory/multi*.yaml")
	applied("the hub's policies and rights", "", "init", w.Hub, "deploy/hub/[^k]*.yaml",
		"deploy/hub/clusterset/role.yaml", "deploy/hub/clusterset/flow*.yaml", "deploy/hub/controller/role.yaml")
	applied("the members' rights on the hub", "", "", w.Hub, "deploy/hub/member/m*.yaml")
	out = append(out, part{"the hub's controller", "", "", w.restarted(w.controller, func() *fault {
		return controllerKilled(w, w.chance, nil)
	})})
	for _, m := range w.members {
		applied("the CRDs of", m.ID, "join", m.Cluster, crds+"multi*.yaml", crds+"record/hub*.yaml",
			crds+"about/about*.yaml", crds+"member/hub*.yaml")
		applied("the policies and rights of", m.ID, "join", m.Cluster, "deploy/member/rbac.yaml",
			"deploy/member/users.yaml", "deploy/member/derived.yaml", "deploy/member/agent.yaml",
			"deploy/member/identity.yaml")
		applied("CoreDNS's rights of", m.ID, "", m.Cluster, "deploy/coredns/role/role.yaml",
			"deploy/coredns/binding.yaml")
		out = append(out,
			part{"the agent of", m.ID, "", w.restarted(m.Agent, func() *fault { return w.killAgent("", m, 0) })},
			part{"the DNS of", m.ID, "", func(to release) *fault {
				f := dnsKilled(w, w.chance, m)
				start := f.repair
				f.hold = w.between(w.chance, 0, 2)
				f.repair = func(ctx context.Context) error {
					m.DNS.Use(to.program("coredns"))
					return start(ctx)
				}
				return f
			}})
	}
	return out, err
}

// manifests are the files of a version that match patterns, as an admin applies them.
func manifests(of release, patterns []string) (string, error) {
	var all []string
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(of.root, pattern))
		if err != nil || len(files) == 0 {
			return "", fmt.Errorf("no file is %s: %w", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if !strings.Contains(string(text), "CLUSTER-ID") {
				all = append(all, string(text))
				continue
			}
			for _, id := range clusters {
				all = append(all, strings.ReplaceAll(string(text), "CLUSTER-ID", id))
			}
		}
	}
	return strings.Join(all, "\n---\n"), nil
}

// restarted makes steps that run another build of a controller. It ends as by a kubelet, or is killed, and sometimes
// the new one is killed as it starts.
func (w *world) restarted(c *lab.Controller, make func() *fault) func(release) *fault {
	return func(to release) *fault {
		f, how := make(), w.chance.IntN(4)
		f.hold = w.between(w.chance, 0, 2)
		if how > 1 {
			f.begin = func(context.Context) error { c.Terminate(); return nil }
		}
		f.repair = func(ctx context.Context) error {
			c.Use(to.program("clusterset-controller"))
			if err := c.Start(ctx); err != nil || how != 0 {
				return err
			}
			if err := sleep(ctx, 500*time.Millisecond); err != nil {
				return err
			}
			c.Kill()
			return c.Start(ctx)
		}
		return f
	}
}

// commandRun has an admin run a command of either version. What init and join apply has their version then.
func commandRun(w *world, r *rand.Rand, m *member) *fault {
	s := w.skew
	by := s.releases[r.IntN(2)]
	const image, hub = "--image=registry.example/clusterset-controller:v0.1.0", "--hub-context=hub"
	args := [][]string{
		{"status", hub}, {"doctor", hub}, {"explain", "steady." + ns},
		{"init", "--wait=false", hub, image}, {"join", "--wait=false", hub, image},
	}[r.IntN(5)]
	return &fault{
		name: fmt.Sprintf("%s of %s runs", args[0], by.name),
		at:   m.ID,
		begin: func(ctx context.Context) error {
			for _, p := range s.parts {
				if p.by == args[0] && (p.at == "" || p.at == m.ID) {
					s.is[p.name+p.at] = by
				}
			}
			w.run(ctx, by, m, args...)
			return nil
		},
		repair: func(context.Context) error { return nil },
	}
}

// run runs a command of a version for a member, and fails if it does not end as it should.
func (w *world) run(ctx context.Context, by release, m *member, args ...string) (out string) {
	out, err := w.command(ctx, by, append(args, "--context="+m.ID)...)
	if why := broken(out, err, m.ID); why != "" {
		w.tape.fail("%s of %s for %s: %s: %v:\n%s", strings.Join(args, " "), by.name, m.ID, why, err, out)
	}
	return out
}

// broken returns why a command has not ended as it should. status and doctor end with 1 or 2 after a report with
// findings, and Go's runtime with 2 after a panic.
func broken(out string, err error, member string) string {
	var exit *exec.ExitError
	reports := func(begin string) bool { return strings.HasPrefix(out, begin) }
	switch {
	case strings.Contains(out, "panic: ") || strings.Contains(out, "goroutine "):
		return "it panics"
	case err == nil:
		return ""
	case !errors.As(err, &exit) || exit.ExitCode() != 1 && exit.ExitCode() != 2:
		return "it ends with another code"
	case !slices.ContainsFunc([]string{"ClusterSet " + lab.HubNamespace + ": ",
		"Cluster " + member + " of ClusterSet " + lab.HubNamespace + ": ", "{"}, reports):
		return "it reports nothing"
	}
	return ""
}

// examined fails on what doctor of a version finds twice, other than what the laboratory always has. What it finds once
// may be a change that users make while it reads.
func (w *world) examined(ctx context.Context, by release, m *member) {
	look := func() []string {
		out := w.run(ctx, by, m, "doctor", "--hub-context=hub", "-o", "json")
		wrong, err := findings(out)
		if err != nil {
			w.tape.fail("doctor of %s for %s: %v:\n%s", by.name, m.ID, err, out)
		}
		return wrong
	}
	wrong := look()
	if len(wrong) == 0 {
		return
	}
	again := look()
	for _, what := range wrong {
		if slices.Contains(again, what) {
			w.tape.fail("doctor of %s finds in %s: %s", by.name, m.ID, what)
		}
	}
}

// findings are those of a report of doctor, without those on names about which the laboratory's users disagree, and of
// the baseline's doctor on credentials, which its agents have from a file.
func findings(report string) (out []string, err error) {
	var doctor struct {
		Outcomes []struct {
			Findings []struct {
				Check, What string
				About       []string
			}
		}
	}
	err = json.Unmarshal([]byte(report), &doctor)
	if err == nil && len(doctor.Outcomes) == 0 {
		err = errors.New("it has no check")
	}
	agreed := func(name string) bool { return name != "steady."+ns && name != "quarrel."+ns }
	for _, o := range doctor.Outcomes {
		for _, f := range o.Findings {
			if f.Check != "credentials" && (f.Check != "conflict" || slices.ContainsFunc(f.About, agreed)) {
				out = append(out, f.Check+": "+f.What)
			}
		}
	}
	return out, err
}

// command runs kubectl-clusterset of a version.
func (w *world) command(ctx context.Context, of release, args ...string) (out string, err error) {
	planes := lab.Planes{"hub": w.Hub}
	for _, m := range w.members {
		planes[m.ID] = m.Cluster
	}
	file := filepath.Join(w.Hub.Dir(), "all.kubeconfig")
	if err := planes.WriteKubeconfig(file); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, of.program("kubectl-clusterset"), append(args, "--kubeconfig="+file)...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// newSettings has the hub's admin set a field and a value of the ClusterSet that only a later version knows (U2), once
// the hub has its CRDs. Nothing that they say counts here.
func newSettings(w *world, _ *rand.Rand, _ *member) *fault {
	if w.skew.is[hubCRDs].name != future {
		return nil
	}
	f := &fault{name: "later settings of the ClusterSet", repair: func(context.Context) error { return nil }}
	f.begin = func(ctx context.Context) error {
		set := &hubv1alpha1.ClusterSet{}
		set.Namespace, set.Name = lab.HubNamespace, lab.HubNamespace
		later := []byte(`{"spec":{"future":"a setting","lease":{"mostSilent":"Ask"}}}`)
		err := w.hub.Patch(ctx, set, client.RawPatch(types.MergePatchType, later))
		if apierrors.IsInvalid(err) { // the CRDs went back in the same step
			w.tape.note("refused: %s: %v", f.name, err)
			return nil
		}
		return err
	}
	return f
}

// restored names the step after which a watch of the hub may wait for a minute before it lists again (patient).
const restored = "the hub is restored"

// hubSavedOrRestored takes a snapshot of the hub, and the next time goes back to it.
func hubSavedOrRestored(w *world, _ *rand.Rand, _ *member) *fault {
	s := w.skew
	f := &fault{name: "the hub is saved", repair: func(context.Context) error { return nil }}
	f.begin = func(context.Context) (err error) {
		s.then = maps.Clone(s.is)
		s.snapshot, err = w.Hub.Snapshot()
		return err
	}
	if s.snapshot == "" {
		return f
	}
	f = hubRestored(w, w.chance, nil)
	f.name, f.hold = restored, 0
	f.begin = func(context.Context) error { return nil }
	f.repair = func(ctx context.Context) error {
		w.oracle.HubAway(time.Now())
		defer func() { w.oracle.HubBack(time.Now()) }()
		for _, p := range s.parts {
			if p.at == "" && p.name != "the hub's controller" {
				if s.is[p.name] = s.then[p.name]; s.is[p.name].name == "" {
					delete(s.is, p.name)
				}
			}
		}
		snapshot := s.snapshot
		s.snapshot = ""
		return w.Hub.Restore(ctx, snapshot)
	}
	return f
}

// upgrade plays one seed: it begins with all of the first version, makes steps, and ends with all of the second.
// After each step all answers and objects are as ever, and who was refused something says why.
func upgrade(ctx context.Context, list string, steps int, seed uint64) error {
	s := &skew{is: map[string]release{}}
	for i, one := range strings.SplitN(list, ",", 2) {
		s.releases[i].name, s.releases[i].root, _ = strings.Cut(one, "=")
		var err error
		if s.releases[i].root, err = filepath.Abs(s.releases[i].root); err != nil {
			return err
		}
	}
	if s.releases[1].name == "" {
		return fmt.Errorf("-upgrade %q: want NAME=FOLDER,NAME=FOLDER", list)
	}
	clusters = []string{"a", "b"}
	widen(20)
	tape, err := record(fmt.Sprintf("bin/upgrade-%d.log.gz", seed), func(text string) { fmt.Println(text) })
	if err != nil {
		return err
	}
	tape = tape.of("upgrade")
	tape.note("seed %d: from %s to %s", seed, s.releases[0].name, s.releases[1].name)
	w, err := begin(ctx, s.releases[0].root, byDefault, false, seed, tape)
	if err != nil {
		return err
	}
	defer w.end()
	w.skew, w.kinds = s, upgraded
	if s.parts, err = w.findParts(); err != nil {
		return err
	}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	go w.watchLeases(looking)
	asker, err := w.ask(ctx)
	if err != nil {
		return err
	}
	defer asker.end()
	if err := w.heard(ctx); err != nil {
		return err
	}
	err = w.walk(ctx, steps)
	asker.end()
	tape.note("seed %d: %d questions, %d wrong, %d without an answer while a CoreDNS was away, %d changes by users",
		seed, asker.asked, asker.wrong, asker.asked-asker.answered-asker.wrong, tape.changed())
	if failed := tape.failed(); len(failed) > 0 {
		w.keepLogs(tape, seed)
		err = errors.Join(err, fmt.Errorf("%d times what must not be, with seed %d:\n%s",
			len(failed), seed, short(failed, 20)))
	}
	return errors.Join(err, tape.close())
}

// widen adds names until there are n. Users change every third of them.
func widen(n int) {
	for i := 0; len(names) < n; i++ {
		vip, head := fmt.Sprintf("vip-%d", i), fmt.Sprintf("head-%d", i)
		vips, headless = append(vips, vip), append(headless, head)
		if i%3 == 0 {
			toggled, moved = append(toggled, vip), append(moved, head)
		}
		names = slices.Concat(vips, headless)
	}
}

// walk makes the steps, with users who change things beside them.
func (w *world) walk(ctx context.Context, steps int) error {
	t, p := &tally{faults: map[string]int{}}, plan{still: 3 * time.Second, patient: patient}
	before, err := w.imports(ctx)
	if err != nil {
		return err
	}
	living, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { w.live(living, 500*time.Millisecond); close(done) }()
	defer func() { stop(); <-done }()
	step := func(faults ...*fault) error {
		what, err := w.inflict(ctx, t, faults...)
		if err != nil {
			return err
		}
		limit := converge
		if slices.ContainsFunc(faults, func(f *fault) bool { return f.name == restored }) {
			limit = p.patient
		}
		return w.examine(ctx, limit, what, before)
	}
	for range steps {
		if err := step(w.choose(t)...); err != nil {
			return err
		}
	}
	// Up, all agents start again after the CRDs: only then they write what those dropped before (SPEC U5).
	isAgent := func(p part) bool { return strings.HasPrefix(p.name, "the agent") }
	agents := slices.DeleteFunc(slices.Clone(w.skew.parts), func(p part) bool { return !isAgent(p) })
	first, second := w.skew.releases[0], w.skew.releases[1]
	for _, part := range append(slices.DeleteFunc(slices.Clone(w.skew.parts), isAgent), agents...) {
		if isAgent(part) || w.skew.has(part) != second {
			if err := step(w.skew.turned(part, second)); err != nil {
				return err
			}
		}
	}
	if err := w.atRest(ctx, t, p, second); err != nil {
		return err
	}
	for _, m := range w.members {
		w.examined(ctx, second, m)
	}
	if w.chance.IntN(2) == 0 {
		return nil
	}
	for _, i := range w.chance.Perm(len(w.skew.parts)) {
		if err := step(w.skew.turned(w.skew.parts[i], first)); err != nil {
			return err
		}
	}
	return w.atRest(ctx, t, p, first)
}

// atRest looks at what there is once every part has a version.
func (w *world) atRest(ctx context.Context, t *tally, p plan, is release) error {
	if err := w.quiet(ctx, t, p); err != nil {
		return err
	}
	var wrong []string
	for began := time.Now(); time.Since(began) < patient; {
		lacks, err := w.lacks(ctx, is)
		if wrong = lacks; err != nil {
			return err
		}
		if len(wrong) == 0 {
			break
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	for _, what := range wrong {
		w.tape.fail("all parts are %s: %s", is.name, what)
	}
	for _, by := range w.skew.releases {
		for _, m := range w.members {
			w.run(ctx, by, m, "status", "--hub-context=hub")
			w.run(ctx, by, m, "doctor", "--hub-context=hub")
		}
	}
	return nil
}

// lacks returns what is wrong once every part has a version: a record that is refused still, a member that lacks
// something and, of future, what should have been written.
func (w *world) lacks(ctx context.Context, is release) (out []string, err error) {
	for _, r := range w.refusals {
		if is == w.skew.releases[1] && r.what() == "serviceexportrecords" && !(r.byRights() && r.used) {
			out = append(out, fmt.Sprintf("this was refused, and has not been written since: %s", r))
		}
	}
	for _, m := range w.members {
		var membership hubv1alpha1.Membership
		if err := m.Get(ctx, client.ObjectKey{Name: hubv1alpha1.MembershipName}, &membership); err != nil {
			return nil, err
		}
		all := membership.Status.Conditions
		for _, kind := range []string{hubv1alpha1.ConditionMembershipReady, hubv1alpha1.ConditionPermitted} {
			if !meta.IsStatusConditionTrue(all, kind) {
				out = append(out, fmt.Sprintf("%s of %s is %v", kind, m.ID, meta.FindStatusCondition(all, kind)))
			}
		}
		if is.name == future && meta.FindStatusCondition(all, "Future") == nil {
			out = append(out, "the Membership of "+m.ID+" lacks the condition")
		}
	}
	if is.name == future {
		lacks, err := w.lacksFuture(ctx)
		return append(out, lacks...), err
	}
	return out, nil
}

// lacksFuture returns what test/upgrade/future.patch should have written outside of Memberships (SPEC U4, U5).
func (w *world) lacksFuture(ctx context.Context) (out []string, err error) {
	records := func(in string, c client.Client, namespace string) error {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind("ServiceExportRecordList"))
		if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			spec, _, _ := unstructured.NestedMap(list.Items[i].Object, "spec")
			if spec["withdrawn"] != true && spec["future"] == nil {
				out = append(out, fmt.Sprintf("record %s in %s lacks the field", list.Items[i].GetName(), in))
			}
		}
		return nil
	}
	if err := records("the hub", w.hub, lab.HubNamespace); err != nil {
		return nil, err
	}
	for _, m := range w.members {
		var lease coordinationv1.Lease
		var object unstructured.Unstructured
		object.SetGroupVersionKind(hubv1alpha1.GroupVersion.WithKind("Future"))
		key := client.ObjectKey{Namespace: lab.HubNamespace, Name: m.ID}
		err := w.hub.Get(ctx, key, &object)
		if apierrors.IsNotFound(err) {
			out = append(out, "there is no Future of "+m.ID)
			err = nil
		}
		if err := errors.Join(err, w.hub.Get(ctx, key, &lease), records(m.ID, m, kube.SystemNamespace)); err != nil {
			return nil, err
		}
		if lease.Annotations["clusterset-dns.io/future"] == "" {
			out = append(out, "the Lease of "+m.ID+" lacks the annotation")
		}
	}
	return out, nil
}

// imports are, by member, the imports of names that are exported all the time: their UIDs, VIPs and clusters.
func (w *world) imports(ctx context.Context) (out []string, err error) {
	always := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(toggled, n) })
	for _, m := range w.members {
		one, err := w.identity(ctx, m, always)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// examine fails if after a step not all is as it was and as the users want it, or if somebody was refused something and
// does not say so.
func (w *world) examine(ctx context.Context, limit time.Duration, what string, before []string) error {
	done := time.Now()
	w.users.Lock() // one of them may wait for what has just begun again
	defer w.users.Unlock()
	if took, err := w.settle(ctx, done, limit); err != nil {
		w.tape.fail("after %s not all is right after %v: %v", what, limit, err)
	} else {
		w.tape.note("right again after %v", took.Round(10*time.Millisecond))
	}
	wrong, _, err := w.until(ctx, patient)
	if err != nil {
		return err
	}
	after, err := w.imports(ctx)
	for i := range after {
		if before[i] != after[i] {
			wrong = append(wrong, "imports in "+clusters[i]+": "+unchanged(before[i], after[i]))
		}
	}
	for _, one := range wrong {
		w.tape.fail("after %s: %s", what, one)
	}
	if err != nil {
		return err
	}
	return w.allStated(ctx, what)
}
