package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// objects are those of one cluster that say how the clusterset stands.
type objects struct {
	imports  []mcsv1beta1.ServiceImport
	services []corev1.Service
	slices   []discoveryv1.EndpointSlice
	exports  []mcsv1beta1.ServiceExport
	records  []hubv1alpha1.ServiceExportRecord // on the hub, or the copies
	pages    []hubv1alpha1.EndpointPage        // on the hub
	profiles []inventoryv1alpha1.ClusterProfile
}

// state is all of it.
type state struct {
	hub     objects
	members map[string]*objects
}

// gather reads everything as it is, past any cache.
func (w *world) gather(ctx context.Context) (*state, error) {
	s := &state{members: map[string]*objects{}}
	err := insist(ctx, func() error {
		s.hub = objects{}
		var pages hubv1alpha1.EndpointPageList
		var records hubv1alpha1.ServiceExportRecordList
		var profiles inventoryv1alpha1.ClusterProfileList
		in := client.InNamespace(lab.HubNamespace)
		err := errors.Join(
			w.hub.List(ctx, &pages, in),
			w.hub.List(ctx, &records, in),
			w.hub.List(ctx, &profiles, in),
		)
		s.hub.pages, s.hub.records, s.hub.profiles = pages.Items, records.Items, profiles.Items
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, m := range w.members {
		err := insist(ctx, func() error {
			var imports mcsv1beta1.ServiceImportList
			var services corev1.ServiceList
			var slices discoveryv1.EndpointSliceList
			var exports mcsv1beta1.ServiceExportList
			var records hubv1alpha1.ServiceExportRecordList
			in := client.InNamespace(ns)
			err := errors.Join(
				m.List(ctx, &imports, in),
				m.List(ctx, &services, in),
				m.List(ctx, &slices, in),
				m.List(ctx, &exports, in),
				m.List(ctx, &records, client.InNamespace(kube.SystemNamespace)),
			)
			s.members[m.ID] = &objects{
				imports:  imports.Items,
				services: services.Items,
				slices:   slices.Items,
				exports:  exports.Items,
				records:  records.Items,
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// versions are the resourceVersions of all objects, by where and what.
func (s *state) versions() map[string]string {
	out := map[string]string{}
	add := func(where string, of *objects) {
		for _, list := range []runtime.Object{
			&mcsv1beta1.ServiceImportList{Items: of.imports}, &corev1.ServiceList{Items: of.services},
			&discoveryv1.EndpointSliceList{Items: of.slices},
			&mcsv1beta1.ServiceExportList{Items: of.exports}, &hubv1alpha1.ServiceExportRecordList{Items: of.records},
			&hubv1alpha1.EndpointPageList{Items: of.pages},
			&inventoryv1alpha1.ClusterProfileList{Items: of.profiles},
		} {
			_ = meta.EachListItem(list, func(o runtime.Object) error { // the function does not fail
				kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*")
				out[fmt.Sprintf("%s %s in %s", kind, o.(client.Object).GetName(),
					where)] = o.(client.Object).GetResourceVersion()
				return nil
			})
		}
	}
	add("the hub", &s.hub)
	for id, of := range s.members {
		add(id, of)
	}
	return out
}

// written are the objects that are not as they were.
func written(before, after map[string]string) (out []string) {
	for what, version := range after {
		if before[what] != version {
			out = append(out, what)
		}
	}
	for what := range before {
		if _, ok := after[what]; !ok {
			out = append(out, what+" (deleted)")
		}
	}
	slices.Sort(out)
	return out
}

// remembered waits until a member's cluster has the note of its agent's last renewal on the hub, and the next one
// is not near. An agent that dies between the two says everything again when it starts, since the hub may have been
// restored meanwhile; so does one that dies before it has
// seen that it was.
func (w *world) remembered(ctx context.Context, m *member, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return insist(ctx, func() error {
		var there, note coordinationv1.Lease
		err := errors.Join(w.hub.Get(ctx, client.ObjectKey{Namespace: lab.HubNamespace, Name: m.ID}, &there),
			m.Get(ctx, client.ObjectKey{Namespace: kube.SystemNamespace, Name: clusterset.LeaseRenewed}, &note))
		if err == nil {
			err = resting(&there, &note, time.Now(), time.Duration(w.lease.RenewSeconds)*time.Second/2)
		}
		return err
	})
}

// resting tells why an agent may be during a renewal: it has left no note of the last one, or that was
// more than half an interval ago.
func resting(there, note *coordinationv1.Lease, now time.Time, half time.Duration) error {
	if is, noted := kube.Version(there), note.Annotations[clusterset.AnnotationRenewed]; noted != is {
		return fmt.Errorf("the hub has its Lease in version %s, and its cluster remembers %s", is, noted)
	}
	if age := now.Sub(ptr.Deref(there.Spec.RenewTime, metav1.MicroTime{}).Time); age > half {
		return fmt.Errorf("it renewed %v ago, and the next renewal may be under way", age)
	}
	return nil
}

// quiet stops the users, and looks at every object: all is as the exports say, the same everywhere, and nobody
// writes, also not an agent
// that starts again.
func (w *world) quiet(ctx context.Context, t *tally, p plan) error {
	w.users.Lock()
	defer w.users.Unlock()
	t.quiets++
	if _, err := w.settle(ctx, time.Now(), p.patient); err != nil {
		w.tape.fail("before a look at the objects not all is right after %v: %v", p.patient, err)
	}
	wrong, s, err := w.until(ctx, p.patient)
	if err != nil {
		return err
	}
	for _, what := range wrong {
		w.tape.fail("in quiet: %s", what)
	}
	before := s.versions()
	t.checked += len(before)
	for _, m := range w.members {
		if w.kept(m) {
			continue
		}
		if err := w.remembered(ctx, m, p.patient); err != nil {
			w.tape.fail("in quiet: %s: %v", m.ID, err)
		}
		w.oracle.Trouble(m.ID)
		m.Agent.Kill()
		if err := m.Agent.Start(ctx); err != nil {
			return err
		}
		if err := m.Agent.UntilReady(ctx); err != nil {
			return err
		}
		w.oracle.Healed(m.ID, time.Now())
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(p.still): // nothing to wait for: nothing may happen
	}
	if s, err = w.gather(ctx); err != nil {
		return err
	}
	for _, what := range written(before, s.versions()) {
		if w.skew != nil && strings.Contains(what, "ClusterProfile") {
			continue // a change of versions just before may have put off a write of its budget (P5)
		}
		w.tape.fail("in quiet, and agents started again: somebody wrote %s", what)
	}
	n, err := w.auditAll()
	t.writes += n
	w.tape.note("quiet: %d objects are right and stay as they are; %d writes were by those who may", len(before), n)
	return err
}

// until looks until nothing is wrong, or patience ends. Conditions and inventory may come later than answers.
func (w *world) until(ctx context.Context, patience time.Duration) (wrong []string, s *state, err error) {
	last := map[string]string{}
	for began := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		if w.skew != nil { // what is refused changes what is wrong
			if _, err := w.auditAll(); err != nil {
				return nil, nil, err
			}
		}
		if s, err = w.gather(ctx); err != nil {
			return nil, nil, err
		}
		now := s.versions()
		settled := maps.Equal(last, now)
		last = now
		if wrong = s.check(w.truth()); len(wrong) == 0 && settled {
			return nil, s, nil
		}
		if time.Since(began) > patience {
			if len(wrong) == 0 {
				wrong = []string{"objects are written again and again"}
			}
			return wrong, s, nil
		}
	}
}
