package packets

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestC1WhoJoinsLateUpsetsNothing: three clusters serve http/80 for an hour. A fourth then joins, with a ServiceExport
// that is a year old, of a headless Service with another port and one family. No connection fails in any cluster, no
// VIP, port or family changes, and all four are told.
func TestC1WhoJoinsLateUpsetsNothing(t *testing.T) {
	w, ns := clusters(t)
	d := w.stranger(t, "d", ns)
	for _, c := range w.clusters {
		c.exports(t, service(ns, tcp("http", 80)), c.ID+"1", c.ID+"2")
	}
	type served struct {
		vips  []netip.AddrPort
		ports []mcsv1beta1.ServicePort
	}
	before := map[*cluster]served{}
	for _, c := range w.clusters {
		before[c] = served{c.asked(t, ns, 80, "a", "b", "c"), c.imported(t, ns, "a", "b", "c").Spec.Ports}
	}
	const hour = time.Hour
	if err := w.set.Hub.Backdate(t.Context(), "hub.clusterset-dns.io/serviceexportrecords", hour); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.clusters {
		c.wantPublished(t, ns, time.Now().Add(-hour/2), "a", "b", "c")
	}
	six := []string{"a1:8080", "a2:8080", "b1:8080", "b2:8080", "c1:8080", "c2:8080"}
	r := newRecord(t)
	for _, c := range w.clusters {
		for _, vip := range before[c].vips {
			c.wantAnswers(t, "tcp", vip, six...)
			r.renewed(c, "tcp", vip)
			r.lasting(c, "tcp", vip, c.ID+"1:8080")
		}
	}
	r.more(50)

	w.joins(t, d)
	all := append(slices.Clone(w.clusters), d)
	for _, c := range all {
		c.wantConflict(t, ns, "TypeConflict", "PortConflict", "IPFamilyConflict")
		imp := c.imported(t, ns, "a", "b", "c", "d")
		if imp.Spec.Type != mcsv1beta1.ClusterSetIP {
			t.Errorf("%s: the import is %s", c.ID, imp.Spec.Type)
		}
		if was, ok := before[c]; ok {
			if now := c.asked(t, ns, 80, "a", "b", "c", "d"); !slices.Equal(now, was.vips) {
				t.Errorf("%s: the VIPs were %v and are %v", c.ID, was.vips, now)
			}
			if len(imp.Spec.Ports) != 1 || imp.Spec.Ports[0] != was.ports[0] {
				t.Errorf("%s: ports %+v, before %+v", c.ID, imp.Spec.Ports, was.ports)
			}
		}
	}
	for _, vip := range d.asked(t, ns, 80, "a", "b", "c", "d") {
		d.wantAnswers(t, "tcp", vip, six...)
	}
	r.more(200)
	if failed := r.stop(); len(failed) > 0 {
		t.Errorf("%d attempts failed", len(failed))
	}
	for _, c := range w.clusters {
		for _, vip := range before[c].vips {
			c.wantAnswers(t, "tcp", vip, six...)
		}
	}
}

// stranger starts a cluster that is no member, with an export that is a year old.
func (w *world) stranger(t *testing.T, id, namespace string) *cluster {
	t.Helper()
	plane, err := lab.Start(t.Context(), lab.Options{ServiceCIDR: "10.96.0.0/16,fd00:10:96::/112"})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		Member: &lab.Member{ID: id, Cluster: plane}, node: w.net.nodes[3], zone: "west", backends: map[string]*pod{},
	}
	t.Cleanup(func() {
		c.proxy.Stop()
		plane.Stop()
	})
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		plane.ApplyFolder(t.Context(), filepath.Join(root, "deploy/member")), c.start(t.Context()),
	); err != nil {
		t.Fatal(err)
	}
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	svc, policy := service(namespace, tcp("http", 8081)), corev1.IPFamilyPolicySingleStack
	svc.Spec.ClusterIP, svc.Spec.IPFamilyPolicy = corev1.ClusterIPNone, &policy
	svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	c.create(t, svc, c.endpoints(svc, id+"1")[1], export(svc))
	const kind = "multicluster.x-k8s.io/serviceexports"
	if err := plane.Backdate(t.Context(), kind, 365*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	return c
}

// joins makes the stranger a member until the test ends. Then the hub forgets it, for tests that count members.
func (w *world) joins(t *testing.T, c *cluster) {
	t.Helper()
	hub := allKinds(t, w.set.Hub)
	members := w.set.Members
	t.Cleanup(func() {
		w.set.Members = members
		c.Agent.Stop()
		of := metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: c.ID}
		for _, o := range []client.Object{
			&inventoryv1alpha1.ClusterProfile{ObjectMeta: of}, &coordinationv1.Lease{ObjectMeta: of},
		} {
			if err := client.IgnoreNotFound(hub.Delete(context.WithoutCancel(t.Context()), o)); err != nil {
				t.Error(err)
			}
		}
	})
	var err error
	if c.Member, err = w.set.Join(t.Context(), c.ID, c.Cluster); err != nil {
		t.Fatal(err)
	}
}

// wantPublished waits until the copies of these clusters' records say that the hub has had them since before then.
func (c *cluster) wantPublished(t *testing.T, namespace string, then time.Time, exporters ...string) {
	t.Helper()
	for _, id := range exporters {
		eventually(t, fmt.Sprintf("%s: the record of %s is old", c.ID, id), func() error {
			rec := &hubv1alpha1.ServiceExportRecord{}
			name := client.ObjectKey{Namespace: "clusterset-system", Name: "web." + namespace + "." + id}
			if err := c.Get(t.Context(), name, rec); err != nil {
				return err
			}
			if at := clusterset.Published(rec); !at.Before(then) {
				return fmt.Errorf("published %v", at)
			}
			return nil
		})
	}
}

// wantConflict waits until the cluster's export has these conflicts.
func (c *cluster) wantConflict(t *testing.T, namespace string, reasons ...string) {
	t.Helper()
	eventually(t, c.ID+"'s export is told of the conflict", func() error {
		e := &mcsv1beta1.ServiceExport{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, e); err != nil {
			return err
		}
		told := meta.FindStatusCondition(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionConflict))
		if told == nil || told.Status != "True" || told.Reason != strings.Join(reasons, ",") {
			return fmt.Errorf("%+v", e.Status.Conditions)
		}
		return nil
	})
}
