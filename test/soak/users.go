package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// live makes ordinary changes, about one in pace, until ctx ends.
func (w *world) live(ctx context.Context, pace time.Duration) {
	r := rand.New(rand.NewPCG(w.seed, 2))
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(r.Int64N(int64(2 * pace)))):
		}
		w.users.Lock()
		m := w.members[r.IntN(len(w.members))]
		w.mu.Lock()
		reachable := !w.unserved[m.ID]
		w.mu.Unlock()
		if reachable {
			if err := w.act(ctx, r, m); err != nil && ctx.Err() == nil {
				w.tape.fail("a user's change in %s: %v", m.ID, err)
			}
		}
		w.users.Unlock()
	}
}

// act makes one change in a member.
func (w *world) act(ctx context.Context, r *rand.Rand, m *member) error {
	switch n := r.IntN(10); {
	case n < 6:
		return w.move(ctx, moved[r.IntN(len(moved))], m, 1+r.IntN(3))
	case n < 9:
		name := toggled[r.IntN(len(toggled))]
		if w.exported[pair{name, m.ID}] {
			return w.unexport(ctx, name, m)
		}
		return w.export(ctx, name, m)
	default:
		return w.quarrel(ctx, m)
	}
}

// move gives an exported name's slice other addresses.
func (w *world) move(ctx context.Context, name string, m *member, count int) error {
	if !w.exported[pair{name, m.ID}] {
		return nil
	}
	addresses := w.fresh(m, count)
	written := w.oracle.Publish(name, m.ID, true, addresses, time.Now())
	if err := w.place(ctx, name, m, addresses); err != nil {
		return err
	}
	written(time.Now())
	w.tape.did("%s in %s has %v", name, m.ID, addresses)
	return nil
}

// fresh are addresses that no other state of anything has, so that an answer tells which state it is of.
func (w *world) fresh(m *member, count int) (out []string) {
	for range count {
		n := w.addresses[m.ID]
		w.addresses[m.ID]++
		out = append(out, fmt.Sprintf("10.%d.%d.%d", m.index, n/250, 1+n%250))
	}
	slices.Sort(out)
	return out
}

func (w *world) place(ctx context.Context, name string, m *member, addresses []string) error {
	ready := true
	return insist(ctx, func() error {
		slice := &discoveryv1.EndpointSlice{}
		if err := m.Get(ctx, client.ObjectKey{Namespace: ns, Name: sliceName(name)}, slice); err != nil {
			return err
		}
		slice.Endpoints = nil
		for _, a := range addresses {
			slice.Endpoints = append(
				slice.Endpoints,
				discoveryv1.Endpoint{
					Addresses:  []string{a},
					Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				},
			)
		}
		return m.Update(ctx, slice)
	})
}

func (w *world) export(ctx context.Context, name string, m *member) error {
	addresses := w.fresh(m, 1)
	published := addresses
	if slices.Contains(vips, name) {
		published, w.behind[pair{name, m.ID}] = nil, addresses
	}
	written := w.oracle.Publish(name, m.ID, true, published, time.Now())
	if err := w.place(ctx, name, m, addresses); err != nil {
		return err
	}
	if err := insist(ctx, func() error { return exists(m.Create(ctx, serviceExport(name))) }); err != nil {
		return err
	}
	written(time.Now())
	w.exported[pair{name, m.ID}] = true
	w.tape.did("%s exports %s", m.ID, name)
	return nil
}

func (w *world) unexport(ctx context.Context, name string, m *member) error {
	written := w.oracle.Publish(name, m.ID, false, nil, time.Now())
	if err := insist(
		ctx,
		func() error { return client.IgnoreNotFound(m.Delete(ctx, serviceExport(name))) },
	); err != nil {
		return err
	}
	written(time.Now())
	w.exported[pair{name, m.ID}] = false
	w.tape.did("%s exports %s no more", m.ID, name)
	return nil
}

// quarrel makes a member want the other session affinity: a conflict, unless all want the same. Nothing of it may
// reach the VIP.
func (w *world) quarrel(ctx context.Context, m *member) error {
	want := corev1.ServiceAffinityClientIP
	if w.affinity[m.ID] == want {
		want = corev1.ServiceAffinityNone
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "quarrel"}}
	err := insist(ctx, func() error {
		if err := m.Get(ctx, client.ObjectKeyFromObject(svc), svc); err != nil {
			return err
		}
		svc.Spec.SessionAffinity = want
		if want == corev1.ServiceAffinityNone {
			svc.Spec.SessionAffinityConfig = nil
		}
		return m.Update(ctx, svc)
	})
	if err == nil {
		w.affinity[m.ID] = want
		w.tape.did("%s wants session affinity %s for quarrel", m.ID, want)
	}
	return err
}

// exportAll is the state in which memory is measured.
func (w *world) exportAll(ctx context.Context) error {
	for _, name := range toggled {
		for _, m := range w.members {
			if !w.exported[pair{name, m.ID}] {
				if err := w.export(ctx, name, m); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// probe makes one more change everywhere, so that the answers tell when everything is followed again.
func (w *world) probe(ctx context.Context) error {
	for _, m := range w.members {
		if err := w.move(ctx, "moving", m, 1); err != nil {
			return err
		}
	}
	return nil
}
