package members

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// otherImplementation writes what the reference controllers write, without our label, again and again. Each write
// carries the resourceVersion of its last one, so the API server refuses it if anybody has written in between.
type otherImplementation struct {
	client.Client
	imp    *mcsv1beta1.ServiceImport
	svc    *corev1.Service
	slice  *discoveryv1.EndpointSlice // under a name of ours
	export *mcsv1beta1.ServiceExport  // its conditions; nil for a time
	rounds int
}

// create makes its objects for three names in a namespace: an import, a derived Service, a slice.
func (o *otherImplementation) create(ctx context.Context, ns, slice string) error {
	o.imp = &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "import"}}
	o.imp.Spec.Type, o.imp.Spec.Ports = mcsv1beta1.ClusterSetIP, []mcsv1beta1.ServicePort{{Port: 80}}
	o.svc = service(ns, derived.Name(ns, "service"))
	o.svc.Spec.ClusterIP = corev1.ClusterIPNone
	o.slice = &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: ns, Name: slice},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	return errors.Join(o.Create(ctx, o.imp), o.Create(ctx, o.svc), o.Create(ctx, o.slice))
}

// write is one round. It fails if anybody else has written one of its objects.
func (o *otherImplementation) write(ctx context.Context) error {
	o.rounds++
	round := strconv.Itoa(o.rounds)
	for _, object := range []client.Object{o.imp, o.svc, o.slice} {
		object.SetLabels(map[string]string{"round": round})
		if err := o.Update(ctx, object); err != nil {
			return fmt.Errorf("round %s: %T: %w", round, object, err)
		}
	}
	o.imp.Status.Clusters = []mcsv1beta1.ClusterStatus{{Cluster: "c" + round}}
	if err := o.Status().Update(ctx, o.imp); err != nil {
		return fmt.Errorf("round %s: status of the import: %w", round, err)
	}
	if o.export == nil {
		return nil
	}
	o.export.Status.Conditions = []metav1.Condition{{
		Type: "Valid", Status: metav1.ConditionUnknown, Reason: "Theirs", Message: round,
		LastTransitionTime: metav1.Now(),
	}}
	return o.Status().Update(ctx, o.export)
}

// run writes until it is stopped, and returns the first error.
func (o *otherImplementation) run(ctx context.Context) (stop func() error) {
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		for running.Err() == nil { // a write is never cut off: its resourceVersion would be unknown
			if err := o.write(ctx); err != nil {
				done <- err
				return
			}
			time.Sleep(20 * time.Millisecond) // the rate of its writes
		}
		done <- nil
	}()
	return func() error {
		cancel()
		return <-done
	}
}

// TestI10BesideAnotherImplementation: nothing of it is touched when a cluster joins, runs and leaves, although it
// writes all the time. Names that need one of its objects are not imported, which is reported once. Other names are.
func TestI10BesideAnotherImplementation(t *testing.T) {
	t.Parallel()
	j := joiningSet(t)
	p, r := j.members["p"], j.r
	ns := j.namespace(t, "p")
	r.create(t, &corev1.Namespace{ObjectMeta: objectMeta(ns)})
	contested := []string{"import", "service", "slice"}
	for _, name := range append(contested, "free") {
		p.exported(t, service(ns, name), "10.1.0.1")
	}
	r.exported(t, service(ns, "import"), "10.3.0.1") // this cluster exports it as well
	slice := p.wantSlice(t, ns, "slice")

	o := &otherImplementation{Client: r.Client}
	if err := o.create(t.Context(), ns, slice); err != nil {
		t.Fatal(err)
	}
	stop := o.run(t.Context())
	j.claim(t, "r")
	r.Agent = j.agent(t, "r", "r", lab.HubNamespace)
	r.wantImport(t, ns, "free", ready("p"))
	r.wantEndpoints(t, ns, "free", "p/http/10.1.0.1:8080")
	for _, name := range contested {
		r.wantNotOwned(t, ns, name)
	}
	p.wantImport(t, ns, "import", ready("p", "r")) // its export has nothing to do with that
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	o.export = export(ns, "import")
	eventually(t, "the ServiceExport says why", func() error {
		if err := r.Get(t.Context(), client.ObjectKeyFromObject(o.export), o.export); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(o.export.Status.Conditions, "Imported"); c == nil || c.Reason != "NotOwned" {
			return fmt.Errorf("%+v", o.export.Status.Conditions)
		}
		return nil
	})
	stop = o.run(t.Context()) // from here on the conditions of the ServiceExport, too
	p.remove(t, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "import-1"}})
	p.exported(t, service(ns, "late"), "10.1.0.2")
	r.wantImport(t, ns, "late", ready("p"))
	for _, name := range []string{"service", "slice"} {
		was := r.copyOf(t, ns, name).Generation
		change(t, p, service(ns, name), func(s *corev1.Service) { s.Spec.SessionAffinity = "ClientIP" })
		eventually(t, "the change of "+name+" is decided about", func() error {
			rec := r.copyOf(t, ns, name)
			c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported)
			if rec.Generation == was || c == nil || c.ObservedGeneration != rec.Generation {
				return fmt.Errorf("generation %d, and was %d: %+v", rec.Generation, was, c)
			}
			return nil
		})
	}
	for _, name := range contested {
		r.wantNotOwned(t, ns, name)
	}

	change(t, r, &aboutv1beta1.ClusterProperty{ObjectMeta: objectMeta(clusterset.PropertySet)},
		func(p *aboutv1beta1.ClusterProperty) {
			p.Annotations = map[string]string{clusterset.AnnotationLeaving: "true"}
		})
	eventually(t, "the membership ends", func() error {
		if got := r.property(t, clusterset.PropertySet); got != nil {
			return fmt.Errorf("%+v", got.ObjectMeta)
		}
		return nil
	})
	if err := errors.Join(stop(), o.write(t.Context())); err != nil {
		t.Fatal(err)
	}
	if o.rounds < 30 {
		t.Errorf("it wrote %d times only", o.rounds)
	}
	r.wantNoImport(t, ns, "free")
}

// wantSlice waits for the slice that is imported of a name, and returns its name.
func (m *member) wantSlice(t *testing.T, ns, name string) (slice string) {
	t.Helper()
	eventually(t, "an imported slice of "+name, func() error {
		var list discoveryv1.EndpointSliceList
		err := m.List(t.Context(), &list, client.InNamespace(ns),
			client.MatchingLabels{mcsv1beta1.LabelServiceName: name})
		if err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d: %w", len(list.Items), err)
		}
		slice = list.Items[0].Name
		return nil
	})
	return slice
}

// copyOf returns the member's copy of p's record of a name.
func (m *member) copyOf(t *testing.T, ns, name string) *hubv1alpha1.ServiceExportRecord {
	t.Helper()
	rec := &hubv1alpha1.ServiceExportRecord{}
	key := client.ObjectKey{Namespace: kube.SystemNamespace, Name: clusterset.RecordName(name, ns, "p")}
	if err := m.Get(t.Context(), key, rec); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return rec
}

// wantNotOwned waits until a name is not imported, and one Event has said so.
func (m *member) wantNotOwned(t *testing.T, ns, name string) {
	t.Helper()
	eventually(t, m.ID+" does not import "+name, func() error {
		rec := m.copyOf(t, ns, name)
		c := meta.FindStatusCondition(rec.Status.Conditions, hubv1alpha1.ConditionImported)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != hubv1alpha1.ReasonNotOwned {
			return fmt.Errorf("%+v", rec.Status.Conditions)
		}
		var events corev1.EventList
		if err := m.List(t.Context(), &events); err != nil {
			return err
		}
		said := 0
		for _, e := range events.Items {
			if e.Reason == hubv1alpha1.ReasonNotOwned && e.Message == c.Message {
				// To a ServiceExport it may say so again, when the copy of that comes after another one.
				again := e.InvolvedObject.Kind == "ServiceExport" && e.Series != nil && e.Series.Count == 2
				if said++; e.Series != nil && !again {
					t.Fatalf("the Event about %s is repeated: %+v", name, e.Series)
				}
			}
		}
		if said != 1 {
			return fmt.Errorf("%d Events", said)
		}
		return nil
	})
}
