package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/clusterset-dns/clusterset-dns/test/soak/oracle"
)

// fault is something that fails, and is repaired a while later.
type fault struct {
	name string   // without the member, for the count
	at   string   // the member, or ""
	in   []string // what the oracle is to know as troubled
	hold time.Duration
	// begin and repair. repair returns when what failed has been started, not when it is ready.
	begin, repair func(context.Context) error
	deadly        string // the member that will count as dead
	alone         bool   // not beside another
}

// kind of faults, for a member; hub's are for none.
type kind struct {
	weight int
	make   func(w *world, r *rand.Rand, m *member) *fault
}

// kinds is a table of what may fail, and how often beside the others.
var kinds = []kind{
	{
		4,
		agentKilled,
	},
	{2, agentPaused},
	{3, dnsKilled},
	{1, controllerKilled},
	{3, memberServerKilled},
	{2, memberEtcdKilled},
	{
		3,
		hubServerKilled,
	},
	{2, hubEtcdKilled},
	{3, linkCut},
	{1, linkHung},
	{2, allLinksCut},
	{3, hubEmptied},
	{2, hubRestored},
	{1, deadByKill},
	{1, deadByPause},
	{1, deadByCut},
	{1, deadByHang},
	{2, lateJoiner},
	{2, thief},
}

// between is a random duration, on a scale where deaths are as long as the Lease makes them.
func (w *world) between(r *rand.Rand, from, to float64) time.Duration {
	unit := float64(w.lease.RenewSeconds) / 10 * float64(time.Second)
	return time.Duration((from + r.Float64()*(to-from)) * unit)
}

// death is longer than anybody may be silent and live, but not much.
func (w *world) death(r *rand.Rand) time.Duration {
	return bounds(w.lease, w.hurried).Gone + w.between(r, 5, 15)
}

func agentKilled(w *world, r *rand.Rand, m *member) *fault {
	return w.killAgent("agent killed", m, w.between(r, 0, 20))
}

func deadByKill(w *world, r *rand.Rand, m *member) *fault {
	f := w.killAgent("agent away for longer than its lease", m, w.death(r))
	if f != nil {
		f.deadly = m.ID
	}
	return f
}

func (w *world) killAgent(name string, m *member, hold time.Duration) *fault {
	if w.kept(m) {
		return nil
	}
	return &fault{name: name, at: m.ID, in: []string{m.ID}, hold: hold,
		begin: func(context.Context) error { m.Agent.Kill(); return nil }, repair: m.Agent.Start}
}

func agentPaused(w *world, r *rand.Rand, m *member) *fault {
	return w.pauseAgent("agent paused", m, w.between(r, 2, 35))
}

func deadByPause(w *world, r *rand.Rand, m *member) *fault {
	f := w.pauseAgent("agent paused for longer than its lease", m, w.death(r))
	if f != nil {
		f.deadly = m.ID
	}
	return f
}

// pauseAgent: one that is paused for long no longer leads, and starts again; that is not for a process whose memory
// is measured.
func (w *world) pauseAgent(name string, m *member, hold time.Duration) *fault {
	if w.kept(m) && hold > 15*time.Second {
		return nil
	}
	return &fault{
		name:   name,
		at:     m.ID,
		in:     []string{m.ID},
		hold:   hold,
		begin:  func(context.Context) error { return m.Agent.Pause() },
		repair: func(context.Context) error { return m.Agent.Resume() },
	}
}

func dnsKilled(w *world, r *rand.Rand, m *member) *fault {
	if w.kept(m) {
		return nil
	}
	return &fault{name: "CoreDNS killed", at: m.ID, hold: w.between(r, 0, 10),
		begin: func(context.Context) error { w.oracle.Down(m.ID); m.DNS.Kill(); return nil },
		repair: func(ctx context.Context) error {
			if err := m.DNS.Start(ctx); err != nil {
				return err
			}
			go func() { // it may wait for its API server
				if insist(ctx, func() error { return unless(m.DNS.Ready()) }) == nil {
					w.oracle.Up(m.ID, time.Now())
				}
			}()
			return nil
		}}
}

var errNotReady = errors.New("not ready")

func unless(ready bool) error {
	if ready {
		return nil
	}
	return errNotReady
}

func controllerKilled(w *world, r *rand.Rand, _ *member) *fault {
	if w.measured() {
		return nil
	}
	return &fault{name: "hub controller killed", hold: w.between(r, 0, 30),
		begin: func(context.Context) error { w.controller.Kill(); return nil }, repair: w.controller.Start}
}

func memberServerKilled(w *world, r *rand.Rand, m *member) *fault {
	return &fault{
		name:  "member's API server killed",
		at:    m.ID,
		in:    []string{m.ID},
		hold:  w.shortIf(w.kept(m), r, 1, 40),
		begin: func(context.Context) error { w.serves(m.ID, false); m.Cluster.KillAPIServer(); return nil },
		repair: func(ctx context.Context) error {
			defer w.serves(m.ID, true)
			return m.Cluster.StartAPIServer(ctx)
		},
	}
}

func memberEtcdKilled(w *world, r *rand.Rand, m *member) *fault {
	return &fault{name: "member's etcd killed", at: m.ID, in: []string{m.ID}, hold: w.between(r, 1, 15),
		begin: func(context.Context) error { w.serves(m.ID, false); m.Cluster.KillEtcd(); return nil },
		repair: func(context.Context) error {
			defer w.serves(m.ID, true)
			return m.Cluster.StartEtcd()
		}}
}

func hubServerKilled(w *world, r *rand.Rand, _ *member) *fault {
	return &fault{
		name:  "hub's API server killed",
		in:    []string{oracle.Hub},
		hold:  w.shortIf(w.measured(), r, 1, 120),
		begin: func(context.Context) error { w.oracle.HubAway(time.Now()); w.Hub.KillAPIServer(); return nil },
		repair: func(ctx context.Context) error {
			defer func() { w.oracle.HubBack(time.Now()) }()
			return w.Hub.StartAPIServer(ctx)
		},
	}
}

func hubEtcdKilled(w *world, r *rand.Rand, _ *member) *fault {
	return &fault{name: "hub's etcd killed", in: []string{oracle.Hub}, hold: w.between(r, 1, 15),
		begin: func(context.Context) error { w.oracle.HubAway(time.Now()); w.Hub.KillEtcd(); return nil },
		repair: func(context.Context) error {
			defer func() { w.oracle.HubBack(time.Now()) }()
			return w.Hub.StartEtcd()
		}}
}

func linkCut(w *world, r *rand.Rand, m *member) *fault {
	return w.link("link to the hub cut", m, w.between(r, 1, 35), m.ToHub.Cut)
}

func linkHung(w *world, r *rand.Rand, m *member) *fault {
	return w.link("link to the hub silent, not closed", m, w.between(r, 5, 35), m.ToHub.Hang)
}

func deadByCut(w *world, r *rand.Rand, m *member) *fault {
	f := w.link("link to the hub cut for longer than the lease", m, w.death(r), m.ToHub.Cut)
	f.deadly = m.ID
	return f
}

// deadByHang lasts until whoever did not freeze would have taken everybody else for dead.
func deadByHang(w *world, r *rand.Rand, m *member) *fault {
	f := w.link("link to the hub silent, not closed, for longer than the lease", m, w.death(r), m.ToHub.Hang)
	f.deadly = m.ID
	return f
}

func (w *world) link(name string, m *member, hold time.Duration, cut func()) *fault {
	return &fault{
		name:   name,
		at:     m.ID,
		in:     []string{oracle.Link(m.ID)},
		hold:   hold,
		begin:  func(context.Context) error { cut(); return nil },
		repair: func(context.Context) error { m.ToHub.Restore(); return nil },
	}
}

// allLinksCut is a hub that nobody reaches, for as long as it likes: nobody's death.
func allLinksCut(w *world, r *rand.Rand, _ *member) *fault {
	f := &fault{name: "every link to the hub cut", hold: w.between(r, 20, 120), alone: true}
	for _, m := range w.members {
		f.in = append(f.in, oracle.Link(m.ID))
	}
	f.begin = func(context.Context) error {
		w.oracle.HubAway(time.Now())
		for _, m := range w.members {
			m.ToHub.Cut()
		}
		return nil
	}
	f.repair = func(context.Context) error {
		defer func() { w.oracle.HubBack(time.Now()) }()
		for _, m := range w.members {
			m.ToHub.Restore()
		}
		return nil
	}
	return f
}

func hubEmptied(w *world, r *rand.Rand, m *member) *fault {
	return &fault{
		name:  "hub emptied of a member's records",
		at:    m.ID,
		in:    []string{oracle.Hub},
		hold:  w.between(r, 0, 10),
		alone: true,
		begin: func(ctx context.Context) error {
			var exports hubv1alpha1.ServiceExportRecordList
			var pages hubv1alpha1.EndpointPageList
			err := insist(ctx, func() error {
				return errors.Join(
					w.hub.List(ctx, &exports, client.InNamespace(lab.HubNamespace)),
					w.hub.List(ctx, &pages, client.InNamespace(lab.HubNamespace)),
				)
			})
			for i := range exports.Items {
				if exports.Items[i].Spec.ClusterID == m.ID && err == nil {
					err = client.IgnoreNotFound(w.hub.Delete(ctx, &exports.Items[i]))
				}
			}
			for i := range pages.Items {
				if pages.Items[i].Spec.ClusterID == m.ID && err == nil {
					err = client.IgnoreNotFound(w.hub.Delete(ctx, &pages.Items[i]))
				}
			}
			return err
		},
		repair: func(context.Context) error { return nil },
	}
}

// hubRestored goes back to how the hub was some changes ago.
func hubRestored(w *world, r *rand.Rand, _ *member) *fault {
	var snapshot string
	return &fault{
		name:  "hub restored from a snapshot",
		in:    []string{oracle.Hub},
		hold:  w.between(r, 5, 30),
		alone: true,
		begin: func(context.Context) (err error) { snapshot, err = w.Hub.Snapshot(); return err },
		repair: func(ctx context.Context) error {
			w.oracle.HubAway(time.Now())
			defer func() { w.oracle.HubBack(time.Now()) }()
			return w.Hub.Restore(ctx, snapshot)
		},
	}
}

// kept is a member whose agent and CoreDNS are not ended any more: their memory is measured.
func (w *world) kept(m *member) bool {
	return w.measured() && m == w.members[len(w.members)-1]
}

// shortIf keeps an API server from being away for so long that a controller gives up leading and starts again.
func (w *world) shortIf(short bool, r *rand.Rand, from, to float64) time.Duration {
	if short {
		return w.between(r, from, min(to, 15))
	}
	return w.between(r, from, to)
}

func (w *world) serves(member string, yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unserved[member] = !yes
}

func (w *world) measured() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.baseline
}
