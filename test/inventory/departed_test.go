package inventory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// Eviction: deleting the ClusterProfile is all that is needed, and the neighbours whose ids are the beginning or the
// end of its own keep everything. There are more records than one answer holds.
func TestEvictedMemberIsGoneFromTheHub(t *testing.T) {
	e := setUp(t)
	ctx := t.Context()
	m := e.join(t, home, "x.west")
	m.isMember(t)
	m.publish(t, 300)
	neighbours := []*member{e.join(t, home, "x"), e.join(t, home, "west"), e.join(t, home, "west-x")}
	for _, n := range neighbours {
		n.isMember(t)
		n.publish(t, 1)
	}
	last := exportRecord(home, "x.west", "last")
	must(t, errors.Join(m.Create(ctx, last), m.Delete(ctx, last)))
	_, err := e.cp.Kubectl(ctx, "", "-n", home, "delete", "clusterprofile", "x.west")
	must(t, err)
	e.gone(t, home, "x.west")
	if d := e.departed(t, home)["x.west"]; len(d) != 1 || !d[0].After(last.CreationTimestamp.Time) {
		t.Errorf("departed %v, and created a record that it deleted at %v", d, last.CreationTimestamp)
	}
	m.stop()
	must(t, until(ctx, func() error { // the API server remembers for some seconds whose a token was
		err := m.List(ctx, &hubv1alpha1.ClusterSetList{}, client.InNamespace(home))
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("its token is still one: %v", err)
		}
		return nil
	}))
	for _, n := range neighbours {
		n.becomes(t, "Joined=True/Member", "ControlPlaneHealthy=True/Heartbeat")
		if left := len(e.records(t, home, n.id)); left != 2 {
			t.Errorf("%s has %d of its 2 records left", n.id, left)
		}
	}
	must(t, until(ctx, func() error {
		var events eventsv1.EventList
		if err := e.admin.List(ctx, &events, client.InNamespace(home)); err != nil {
			return err
		}
		for _, ev := range events.Items {
			if ev.Regarding.Name == "x.west" && ev.Reason == "CleanedUp" {
				return nil
			}
		}
		return errors.New("there is no Event CleanedUp")
	}))
}

// A member that does not know that it is evicted, and publishes on, leaves nothing behind.
func TestEvictedMemberLeavesNothingBehindWhileItWrites(t *testing.T) {
	e := setUp(t)
	m := e.join(t, home, "busy")
	m.isMember(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wrote := make(chan int)
	for w := range 4 {
		go func() {
			n := 0
			for ctx.Err() == nil {
				if m.Create(ctx, exportRecord(home, "busy", fmt.Sprintf("s%d-%d", w, n))) == nil {
					n++
				}
			}
			wrote <- n
		}()
	}
	must(t, until(t.Context(), func() error {
		if n := len(e.records(t, home, "busy")); n < 50 {
			return fmt.Errorf("%d records are there yet", n)
		}
		return nil
	}))
	e.evict(t, home, "busy")
	e.gone(t, home, "busy")
	cancel()
	for range 4 {
		if n := <-wrote; n == 0 {
			t.Error("one of the writers wrote nothing")
		}
	}
	e.gone(t, home, "busy")
}

// ID4: a member that says that it has left is cleaned up after without any admin, and may join again with the same
// id.
func TestID4LeftMemberJoinsAgain(t *testing.T) {
	e := setUp(t)
	for round := range 2 {
		m := e.join(t, home, "again")
		first := m.isMember(t)
		// What it has of before its departure is still to go where others were away, so that stays on record.
		if d := e.departed(t, home)["again"]; len(d) != round {
			t.Errorf("a member for the %d. time, and departed %v", round+1, d)
		}
		m.publish(t, 3)
		m.stop()
		m.update(t, func(p *inventoryv1alpha1.ClusterProfile) { p.Annotations[clusterset.AnnotationLeft] = "true" })
		must(t, until(t.Context(), func() error {
			err := e.admin.Get(t.Context(), client.ObjectKeyFromObject(first), &inventoryv1alpha1.ClusterProfile{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("its ClusterProfile is still there: %v", err)
		}))
		e.gone(t, home, "again")
		if len(e.departed(t, home)["again"]) != 1 {
			t.Errorf("departed: %v", e.departed(t, home))
		}
	}
}

// A clean-up goes on after a crash in its midst; and as long as a member may write, its records are not called
// cleaned up.
func TestCleanUpSurvivesACrash(t *testing.T) {
	e := setUp(t)
	ctx, hub := t.Context(), e.running(home)
	m := e.join(t, home, "crash")
	m.isMember(t)
	m.publish(t, 3)
	m.stop()
	extra := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: "by-hand"}}
	extra.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clusterset-member"}
	extra.Subjects = []rbacv1.Subject{{Kind: "ServiceAccount", Name: "mcs-crash", Namespace: home}}
	must(t, e.admin.Create(ctx, extra))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(e.admin.Delete(context.WithoutCancel(ctx), extra))) })
	must(t, e.admin.Delete(ctx, m.profile(t)))
	must(t, until(ctx, func() error {
		var events eventsv1.EventList
		if err := e.admin.List(ctx, &events, client.InNamespace(home)); err != nil {
			return err
		}
		for _, ev := range events.Items {
			if ev.Regarding.Name == "crash" && ev.Reason == "RightsNotRevoked" &&
				strings.Contains(ev.Note, "delete that") {
				return nil
			}
		}
		return errors.New("there is no Event RightsNotRevoked")
	}))
	hub.Kill()
	if len(e.records(t, home, "crash")) != 6 || m.profile(t).DeletionTimestamp == nil {
		t.Error("it was cleaned up although it might write")
	}
	must(t, e.admin.Delete(ctx, extra))
	must(t, hub.again(ctx))
	must(t, until(ctx, func() error {
		if err := e.admin.Get(
			ctx,
			client.ObjectKey{Namespace: home, Name: "crash"},
			&inventoryv1alpha1.ClusterProfile{},
		); !apierrors.IsNotFound(err) {
			return fmt.Errorf("its ClusterProfile is still there: %v", err)
		}
		return nil
	}))
	e.gone(t, home, "crash")
}

// Absence is not deletion (DESIGN §2): of a hub whose ClusterProfiles were lost nobody is evicted, and joining
// goes on where it was.
func TestLostProfileEvictsNobody(t *testing.T) {
	e := setUp(t)
	ctx, hub := t.Context(), e.running(home)
	m := e.join(t, home, "lost")
	m.isMember(t)
	m.publish(t, 1)
	hub.Kill()
	p := m.profile(t)
	p.Finalizers = nil
	must(t, e.admin.Update(ctx, p))
	must(t, e.admin.Delete(ctx, p))
	must(t, hub.again(ctx))
	other := e.join(t, home, "lost-other") // the program has looked at all that there is
	other.isMember(t)
	must(t, m.List(ctx, &hubv1alpha1.ClusterSetList{}, client.InNamespace(home)))
	if n := len(e.records(t, home, "lost")); n != 2 || len(e.departed(t, home)["lost"]) != 0 {
		t.Errorf("%d of its 2 records are left, departed: %v", n, e.departed(t, home))
	}
	must(t, e.cp.Apply(ctx, named(lab.HubMember(e.root, "lost"), home)))
	m.claim(t)
	m.becomes(t, "Joined=True/Member", "ControlPlaneHealthy=True/Heartbeat")
}

// publish has the member publish n services, each with one page of its endpoints.
func (m *member) publish(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("web-%d", i)
		must(t, m.Create(t.Context(), exportRecord(m.ns, m.id, name)))
		must(t, m.Create(t.Context(), &hubv1alpha1.EndpointPage{
			ObjectMeta: metav1.ObjectMeta{Namespace: m.ns, Name: clusterset.PageName(0, name, "shop", m.id)},
			Spec: hubv1alpha1.EndpointPageSpec{
				Origin:        origin(m.id, name),
				EndpointGroup: hubv1alpha1.EndpointGroup{AddressType: discoveryv1.AddressTypeIPv4},
			},
		}))
	}
}

func origin(id, service string) hubv1alpha1.Origin {
	return hubv1alpha1.Origin{ClusterID: id, ServiceNamespace: "shop", ServiceName: service, Revision: 1}
}

func exportRecord(ns, id, service string) *hubv1alpha1.ServiceExportRecord {
	since := metav1.NewTime(time.Unix(1_700_000_000, 0))
	return &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: service + ".shop." + id},
		Spec: hubv1alpha1.ServiceExportRecordSpec{
			Origin: origin(
				id,
				service,
			),
			ExportedAt: &since,
			Type:       mcsv1beta1.ClusterSetIP,
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
		},
	}
}

// records are the names of a member's records on the hub, by what they say and not by their names.
func (e *environment) records(t *testing.T, ns, id string) (names []string) {
	t.Helper()
	var exports hubv1alpha1.ServiceExportRecordList
	var slices hubv1alpha1.EndpointPageList
	must(
		t,
		errors.Join(
			e.admin.List(t.Context(), &exports, client.InNamespace(ns)),
			e.admin.List(t.Context(), &slices, client.InNamespace(ns)),
		),
	)
	for _, r := range exports.Items {
		if r.Spec.ClusterID == id {
			names = append(names, r.Name)
		}
	}
	for _, r := range slices.Items {
		if r.Spec.ClusterID == id {
			names = append(names, r.Name)
		}
	}
	return names
}

// gone fails where anything of a member is left.
func (e *environment) gone(t *testing.T, ns, id string) {
	t.Helper()
	if left := e.records(t, ns, id); len(left) > 0 {
		t.Errorf("%d of its records are left: %.200v", len(left), left)
	}
	for name, o := range map[string]client.Object{
		id: &coordinationv1.Lease{}, "mcs-" + id: &corev1.ServiceAccount{}, "mcs-" + id + ":token": &rbacv1.Role{},
	} {
		if err := e.admin.Get(
			t.Context(),
			client.ObjectKey{Namespace: ns, Name: name},
			o,
		); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is left: %v", o, name, err)
		}
	}
	var bindings rbacv1.RoleBindingList
	must(t, e.admin.List(t.Context(), &bindings, client.InNamespace(ns)))
	for _, b := range bindings.Items {
		for _, s := range b.Subjects {
			if s.Name == "mcs-"+id {
				t.Errorf("RoleBinding %s is left", b.Name)
			}
		}
	}
}

// departed are the departures that a ClusterSet notes, by cluster id.
func (e *environment) departed(t *testing.T, ns string) map[string][]metav1.Time {
	t.Helper()
	var set hubv1alpha1.ClusterSet
	must(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: ns}, &set))
	out := map[string][]metav1.Time{}
	for _, d := range set.Status.Departed {
		out[d.ClusterID] = append(out[d.ClusterID], d.At)
	}
	return out
}
