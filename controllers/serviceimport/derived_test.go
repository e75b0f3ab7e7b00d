package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestI9WhoseADerivedServiceIs: its annotation says so, and so does its name, where a user has edited that.
func TestI9WhoseADerivedServiceIs(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), hubv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, name := range []string{"web", "far"} {
		rec := &hubv1alpha1.ServiceExportRecord{}
		rec.Namespace, rec.Name = kube.SystemNamespace, name+".shop.b"
		rec.Spec.Origin = hubv1alpha1.Origin{ClusterID: "b", ServiceNamespace: "shop", ServiceName: name}
		builder = builder.WithObjects(rec)
	}
	for _, x := range kube.Indexes() {
		if _, record := x.Object.(*hubv1alpha1.ServiceExportRecord); record && x.Side == kube.Local {
			builder = builder.WithIndex(x.Object, x.Field, x.Values)
		}
	}
	r := newReconciler(Config{Member: kube.Member{Local: builder.Build()}})
	for _, c := range []struct{ what, name, says, want string }{
		{"as it was made", derived.Name("shop", "web"), "shop/web", "shop/web shop/web"},
		{"without what it says", derived.Name("shop", "web"), "", "shop/web"},
		{"saying another's", derived.Name("shop", "web"), "shop/db", "shop/db shop/web"},
		{"that nobody exports", derived.Name("shop", "db"), "shop/db", "shop/db"},
		{"nobody's", "derived-x", "", ""},
		{"a user's", "web", "", ""},
	} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: c.name}}
		if c.says != "" {
			svc.Annotations = map[string]string{derived.AnnotationImport: c.says}
		}
		var got []string
		for _, req := range r.requestsForDerived(t.Context(), svc) {
			got = append(got, req.String())
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("one %s is %q's; want %q", c.what, got, c.want)
		}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "x", Labels: map[string]string{discoveryv1.LabelServiceName: c.name},
		}}
		imported := slices.ContainsFunc(r.requestsForSlice(t.Context(), slice), func(req reconcile.Request) bool {
			return req.Name == "web"
		})
		if want := c.name == "web" || c.name == derived.Name("shop", "web"); imported != want {
			t.Errorf("a slice of one %s is one of web's: %t", c.what, imported)
		}
	}
}

// TestI6AnOlderAPIServerMakesTheServiceAllTheSame: one that does not know what the oldest exporter asks for in
// trafficDistribution refuses that value, and is asked without it; for an hour, not again.
func TestI6AnOlderAPIServerMakesTheServiceAllTheSame(t *testing.T) {
	asked := 0
	refuse := func(o client.Object) error {
		asked++
		d := o.(*corev1.Service).Spec.TrafficDistribution
		if d == nil {
			return nil
		}
		return apierrors.NewInvalid(
			corev1.SchemeGroupVersion.WithKind("Service").GroupKind(),
			o.GetName(),
			field.ErrorList{
				field.NotSupported(field.NewPath("spec", "trafficDistribution"), *d, []string{"PreferClose"}),
			},
		)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	local := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := refuse(o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := refuse(o); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	now := time.Unix(1000, 0)
	r := newReconciler(Config{Member: kube.Member{Local: local, Now: func() time.Time { return now }}})
	s := &snapshot{name: types.NamespacedName{Namespace: "shop", Name: "web"}}
	m := &conflict.Merged{
		TrafficDistribution: corev1.ServiceTrafficDistributionPreferSameNode,
		Type:                mcsv1beta1.ClusterSetIP,
	}
	for i, want := range []int{2, 1, 2} { // made, changed, and changed after an hour
		if asked = 0; i == 2 {
			now = now.Add(time.Hour)
		}
		m.Ports = append(
			m.Ports,
			clusterset.Port{Name: fmt.Sprint("p", len(m.Ports)), Protocol: "TCP", Number: int32(80 + len(m.Ports))},
		)
		svc, err := r.write(t.Context(), s, m, []corev1.IPFamily{corev1.IPv4Protocol}, nil)
		if err != nil || svc == nil || len(svc.Spec.Ports) != len(m.Ports) || svc.Spec.TrafficDistribution != nil {
			t.Fatalf("%v: %+v", err, svc)
		}
		if s.svc = svc; asked != want {
			t.Errorf("the API server was asked %d times, want %d", asked, want)
		}
		asked = 0
		if _, err := r.write(t.Context(), s, m, []corev1.IPFamily{corev1.IPv4Protocol}, nil); err != nil ||
			asked > 0 {
			t.Errorf("a settled pass asks it %d times: %v", asked, err)
		}
	}
}

// TestC6AnOlderAPIServerIsWrittenToOnce: it refuses PreferSameNode in a Service, and drops hints for nodes.
func TestC6AnOlderAPIServerIsWrittenToOnce(t *testing.T) {
	for _, kind := range []mcsv1beta1.ServiceImportType{mcsv1beta1.ClusterSetIP, mcsv1beta1.Headless} {
		m := newMember(t)
		m.Addresses = &ranges{}
		accept := func(o client.Object) error {
			switch o := o.(type) {
			case *discoveryv1.EndpointSlice:
				o.Endpoints = o.DeepCopy().Endpoints // the caller shares them
				for _, e := range o.Endpoints {
					e.Hints.ForNodes = nil
				}
			case *corev1.Service:
				if d := o.Spec.TrafficDistribution; d != nil {
					return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, o.Name, field.ErrorList{
						field.NotSupported(field.NewPath("spec", "trafficDistribution"), *d, []string{"PreferClose"})})
				}
			}
			return nil
		}
		m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if err := accept(o); err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				if err := accept(o); err != nil {
					return err
				}
				return c.Update(ctx, o, opts...)
			},
		})
		m.export("c", "10.3.0.1")
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Type = kind
			rec.Spec.TrafficDistribution = new(corev1.ServiceTrafficDistributionPreferSameNode)
		})
		var result reconcile.Result
		for range 3 {
			m.writes = 0
			var err error
			name := types.NamespacedName{Namespace: "shop", Name: "web"}
			if result, err = m.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
				t.Fatal(err)
			}
		}
		if m.writes > 0 {
			t.Errorf("%s: a pass over an import that has not changed writes %d times", kind, m.writes)
		}
		asks := kind == mcsv1beta1.ClusterSetIP // for a Service, also once the API server is upgraded
		if again := result.RequeueAfter; (again == unknownFor) != asks || !asks && again != 0 {
			t.Errorf("%s: the next pass comes after %s", kind, again)
		}
	}
}

// TestI6ARefusedFamilyFreezesNothing: while the API server has no address of a family that an import gained, or a
// policy refuses dual stack, the derived Service follows the exports with the family that it holds. After a conflict,
// or while a VIP is waited for, the next pass does.
func TestI6ARefusedFamilyFreezesNothing(t *testing.T) {
	services := corev1.Resource("services")
	for _, c := range []struct {
		name    string
		refusal error
		follows bool
	}{
		{"full", apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full")), true},
		{"a policy", apierrors.NewForbidden(services, "x", errors.New("no dual stack here")), true},
		{"a conflict", apierrors.NewConflict(services, "x", errors.New("changed")), false},
		{"busy", ipam.ErrPending, false},
	} {
		m := newMember(t)
		m.Addresses = &ranges{}
		m.Local = interceptor.NewClient(m.local, interceptor.Funcs{Update: func(
			ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption,
		) error {
			if len(o.(*corev1.Service).Spec.IPFamilies) > 1 {
				return c.refusal
			}
			return under.Update(ctx, o, opts...)
		}})
		was := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")}}
		was.Spec.IPFamilies, was.Spec.ClusterIP, was.Spec.ClusterIPs = []corev1.IPFamily{
			corev1.IPv6Protocol,
		}, "fd00::9", []string{
			"fd00::9",
		}
		if err := m.local.Create(t.Context(), was); err != nil {
			t.Fatal(err)
		}
		s := &snapshot{name: types.NamespacedName{Namespace: "shop", Name: "web"}, svc: was}
		merged := &conflict.Merged{
			Type:  mcsv1beta1.ClusterSetIP,
			Ports: []clusterset.Port{{Name: "http", Protocol: "TCP", Number: 80}},
		}
		svc, err := m.service(t.Context(), s, nil, merged, []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol})
		if !errors.Is(err, c.refusal) || (len(svc.Spec.Ports) == 1) != c.follows || len(svc.Spec.IPFamilies) != 1 {
			t.Errorf("%s: %v, %+v", c.name, err, svc.Spec)
		}
	}
}

// TestI3APortThatTheVIPLacksIsNotNamed: a policy refuses a change of the derived Service. The import names a new port
// once the VIP has it, and the other ports stay.
func TestI3APortThatTheVIPLacksIsNotNamed(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
		rec.Spec.Type, rec.Spec.Ports[0].Name = mcsv1beta1.ClusterSetIP, "http"
	})
	var refusal error
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{Update: func(
		ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption,
	) error {
		if _, is := o.(*corev1.Service); is && refusal != nil {
			return refusal
		}
		return under.Update(ctx, o, opts...)
	}})
	// The fake API server allocates nothing.
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web"),
		Labels: map[string]string{derived.LabelManagedBy: kube.Manager}}}
	svc.Spec.IPFamilies, svc.Spec.ClusterIP = []corev1.IPFamily{corev1.IPv4Protocol}, "10.96.0.7"
	svc.Spec.ClusterIPs = []string{"10.96.0.7"}
	if err := m.local.Create(t.Context(), svc); err != nil {
		t.Fatal(err)
	}
	m.mustPass()
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
		rec.Spec.Ports = append(rec.Spec.Ports, hubv1alpha1.ServicePort{Name: "new", Protocol: "TCP", Port: 81},
			hubv1alpha1.ServicePort{Name: "udp", Protocol: "UDP", Port: 80})
	})
	for _, c := range []struct {
		refusal error
		want    string
	}{
		{apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("no port 81 here")), "http"},
		{nil, "http new udp"},
	} {
		refusal = c.refusal
		if err := m.pass(); !errors.Is(err, refusal) {
			t.Errorf("%v, want %v", err, refusal)
		}
		imp := &mcsv1beta1.ServiceImport{}
		if err := m.local.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, imp); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range imp.Spec.Ports {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != c.want || len(imp.Spec.IPs) != 1 {
			t.Errorf("while the policy says %v, the import of %v has ports %v", refusal, imp.Spec.IPs, got)
		}
	}
}

// TestC9AHeadlessImportStaysUntilThereIsAVIP: its clients have no other answer meanwhile, and a pass that waits writes
// nothing.
func TestC9AHeadlessImportStaysUntilThereIsAVIP(t *testing.T) {
	quota := apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("exceeded quota"))
	for what, c := range map[string]struct {
		addresses Addresses
		refusal   error
	}{
		"a quota":      {&ranges{}, quota},
		"a full range": {&choosing{}, apierrors.NewInternalError(ipam.ErrFull)},
		"a wait":       {&ranges{busy: true}, nil},
	} {
		m := newMember(t)
		m.Addresses = c.addresses
		m.export("c", "10.3.0.1")
		m.mustPass()
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
		m.refuseWrites(func(o client.Object) error {
			if _, is := o.(*corev1.Service); is {
				return c.refusal
			}
			return nil
		})
		for i := range 3 {
			before := m.writes
			if err := m.pass(); (err != nil) != (c.refusal != nil) || i == 2 && m.writes > before {
				t.Errorf("%s: %v, %d writes in pass %d", what, err, m.writes-before, i)
			}
			imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport)
			if imp.Spec.Type != mcsv1beta1.Headless || m.imported()["c"] == nil {
				t.Errorf("%s: the import is %+v, slices %v", what, imp.Spec, m.imported())
			}
			// Else it would be Headless for good once an exporter's record cannot be read.
			if e, ok := imports.StandIn(imp, "c", nil); !ok || e.Type != mcsv1beta1.ClusterSetIP {
				t.Errorf("%s: the stand-in of an exporter is %+v, %v", what, e, ok)
			}
		}
		m.Local, m.Addresses = m.local, &ranges{}
		m.mustPass()
		if imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport); imp.Spec.Type != mcsv1beta1.ClusterSetIP ||
			len(imp.Spec.IPs) != 1 || imp.Annotations[imports.AnnotationAwaitsVIP] != "" || m.traffic()["c"] == nil {
			t.Errorf("%s: then the import is %+v, slices %v", what, imp.Spec, m.traffic())
		}
	}
}

// TestC9AnImportThatWaitsForAVIPKeepsPorts: a Headless import may have one name for two numbers, a VIP may not.
func TestC9AnImportThatWaitsForAVIPKeepsPorts(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	for cluster, number := range map[string]int32{"c": 80, "d": 81} {
		m.export(cluster, "10.3.0.1")
		m.edit(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Ports[0].Name, rec.Spec.Ports[0].Port = "http", number
			rec.Spec.Endpoints[0].Ports[0].Port = number
		})
	}
	m.mustPass()
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.edit("d", func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Type = mcsv1beta1.ClusterSetIP })
	m.refuseWrites(func(o client.Object) error {
		if _, is := o.(*corev1.Service); is {
			return apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("exceeded quota"))
		}
		return nil
	})
	for range 3 {
		if err := m.pass(); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	}
	for _, cluster := range []string{"c", "d"} {
		if ports := m.imported()[cluster].Ports; len(ports) != 1 || *ports[0].Name != "http" {
			t.Errorf("the slice of %s has the ports %+v", cluster, ports)
		}
	}
}

// TestV5AFullFamilyTakesNoOtherDown: the API server refuses a Service of two families whole where one is full. The
// import has the other's VIP at once, says that the first is full, and gets it when an address is free.
func TestV5AFullFamilyTakesNoOtherDown(t *testing.T) {
	free := map[corev1.IPFamily]string{corev1.IPv4Protocol: "10.0.0.9", corev1.IPv6Protocol: "fd00::9"}
	for _, c := range []struct {
		full []corev1.IPFamily
		want string
	}{
		{[]corev1.IPFamily{corev1.IPv4Protocol}, "[fd00::9]"}, {[]corev1.IPFamily{corev1.IPv6Protocol}, "[10.0.0.9]"},
		{[]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, "[]"},
	} {
		m, full := newMember(t), c.full
		allocate := func(o client.Object) error {
			svc, is := o.(*corev1.Service)
			if !is {
				return nil
			}
			for _, f := range svc.Spec.IPFamilies[len(svc.Spec.ClusterIPs):] {
				if slices.Contains(full, f) {
					return apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full"))
				}
				svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, free[f])
				svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
			}
			return nil
		}
		m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
			Create: func(ctx context.Context, under client.WithWatch, o client.Object,
				opts ...client.CreateOption) error {
				if err := allocate(o); err != nil {
					return err
				}
				return under.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, under client.WithWatch, o client.Object,
				opts ...client.UpdateOption) error {
				if err := allocate(o); err != nil {
					return err
				}
				return under.Update(ctx, o, opts...)
			},
		})
		m.Addresses = &choosing{}
		m.Families = func(context.Context) ([]corev1.IPFamily, error) {
			return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, nil
		}
		m.export("c", "10.3.0.1")
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Type, rec.Spec.IPFamilies = mcsv1beta1.ClusterSetIP, []corev1.IPFamily{
				corev1.IPv4Protocol,
				corev1.IPv6Protocol,
			}
		})
		shows := func(want string) {
			t.Helper()
			imp := &mcsv1beta1.ServiceImport{}
			if err := m.local.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, imp); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(imp.Spec.IPs) != want || slices.Contains(m.told, imports.ReasonFull) != (len(full) > 0) {
				t.Errorf("%v: VIPs are %v, want %s; told: %v", full, imp.Spec.IPs, want, m.told)
			}
		}
		for range 2 {
			if err := m.pass(); !errors.Is(err, ipam.ErrFull) {
				t.Fatalf("%v: %v", full, err)
			}
			shows(c.want)
		}
		full, m.told = nil, nil
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		shows("[10.0.0.9 fd00::9]")
	}
}

// TestV4AServiceGetsNoSecondAddressInItsFirstSecond: the API server's repair would take it back. A VIP that the import
// had is not given up meanwhile (I6).
func TestV4AServiceGetsNoSecondAddressInItsFirstSecond(t *testing.T) {
	m, now := newMember(t), time.Now().Truncate(time.Second)
	m.Now = func() time.Time { return now }
	asked, full, four := 0, "range is full", "10.0.0.9"
	allocate := func(o client.Object) error {
		svc, is := o.(*corev1.Service)
		if !is {
			return nil
		}
		asked++
		if len(svc.Spec.IPFamilies) == 2 && full != "" {
			return apierrors.NewInternalError(errors.New(full))
		}
		svc.Spec.ClusterIPs = []string{four, "fd00::9"}[:len(svc.Spec.IPFamilies)]
		svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
		return nil
	}
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
		Create: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := allocate(o); err != nil {
				return err
			}
			o.SetCreationTimestamp(metav1.NewTime(now))
			return under.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := allocate(o); err != nil {
				return err
			}
			return under.Update(ctx, o, opts...)
		},
	})
	m.Addresses = &choosing{}
	m.Families = func(context.Context) ([]corev1.IPFamily, error) {
		return []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}, nil
	}
	m.export("c", "10.3.0.1")
	m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
		rec.Spec.Type, rec.Spec.IPFamilies = mcsv1beta1.ClusterSetIP, []corev1.IPFamily{
			corev1.IPv4Protocol,
			corev1.IPv6Protocol,
		}
	})
	shows := func(want string, asks int) {
		t.Helper()
		imp := &mcsv1beta1.ServiceImport{}
		if err := m.local.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, imp); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(imp.Spec.IPs) != want || asked != asks {
			t.Errorf(
				"VIPs are %v, want %s; the API server was asked %d times, want %d", imp.Spec.IPs, want, asked, asks,
			)
		}
	}
	if err := m.pass(); err != nil {
		t.Fatal(err)
	}
	shows("[10.0.0.9]", 2) // for both, and for one
	full = ""
	for _, later := range []time.Duration{0, time.Second} {
		now = now.Add(later)
		if err := m.pass(); err != nil {
			t.Fatal(err)
		}
		shows("[10.0.0.9]", 2)
	}
	now = now.Add(time.Second)
	if err := m.pass(); err != nil {
		t.Fatal(err)
	}
	shows("[10.0.0.9 fd00::9]", 3)
	for _, four = range []string{"10.0.0.9", "10.0.0.8"} {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")}}
		if err := m.local.Delete(t.Context(), svc); err != nil {
			t.Fatal(err)
		}
		asked, full = 0, "etcdserver: request timed out"
		for range 2 {
			if err := m.pass(); err != nil {
				t.Fatal(err)
			}
			if four == "10.0.0.9" {
				shows("[10.0.0.9 fd00::9]", 2)
			} else {
				shows("[10.0.0.8]", 2) // the import shows no address that is another's by now
			}
		}
	}
}

// TestV5AClusterOfOneFamilyHasAVIP, although a policy denies the dry run that shows its families.
func TestV5AClusterOfOneFamilyHasAVIP(t *testing.T) {
	for i, only := range kube.BothFamilies {
		m, vip := newMember(t), []string{"10.0.0.9", "fd00::9"}[i]
		m.Addresses = &choosing{}
		m.Families = func(context.Context) ([]corev1.IPFamily, error) {
			return nil, apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("exceeded quota"))
		}
		refuse := func(svc *corev1.Service) error {
			path := field.NewPath("spec", "ipFamilyPolicy")
			if len(svc.Spec.IPFamilies) == 1 {
				path = field.NewPath("spec", "ipFamilies").Index(0)
			}
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, svc.Name,
				field.ErrorList{field.Invalid(path, "", "this cluster is not configured for it")})
		}
		m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
			Create: func(
				ctx context.Context, under client.WithWatch, o client.Object, opts ...client.CreateOption,
			) error {
				if svc, is := o.(*corev1.Service); is {
					if !slices.Equal(svc.Spec.IPFamilies, []corev1.IPFamily{only}) {
						return refuse(svc)
					}
					svc.Spec.ClusterIP, svc.Spec.ClusterIPs = vip, []string{vip}
				}
				return under.Create(ctx, o, opts...)
			},
			Update: func(
				ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption,
			) error {
				if svc, is := o.(*corev1.Service); is {
					return refuse(svc)
				}
				return under.Update(ctx, o, opts...)
			},
		})
		m.export("c", "10.3.0.1")
		m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Type, rec.Spec.IPFamilies = mcsv1beta1.ClusterSetIP, kube.BothFamilies
		})
		err := m.pass()
		imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		if ips := m.read(imp).(*mcsv1beta1.ServiceImport).Spec.IPs; !slices.Equal(ips, []string{vip}) {
			t.Errorf("%s: %v, %v", only, ips, err)
		}
	}
}

// TestI6AnAddressOfAnotherServiceIsNotShown: an API server that gives no new one does not bring it back. The address of
// the other family stays, and is asked for again. The same holds for a declared import, which has no families.
func TestI6AnAddressOfAnotherServiceIsNotShown(t *testing.T) {
	for name, c := range map[string]struct {
		refusal error
		lost    []string
		want    string
	}{
		"a quota": {
			apierrors.NewForbidden(corev1.Resource("services"), "x", errors.New("y")), []string{"10.96.0.8"},
			"[fd00::8]",
		},
		"a full range":         {ipam.ErrFull, []string{"fd00::8"}, "[10.96.0.8]"},
		"a wait":               {ipam.ErrPending, []string{"10.96.0.8", "fd00::8"}, "[]"},
		"nobody else has them": {ipam.ErrFull, nil, "[10.96.0.8 fd00::8]"},
	} {
		for _, declared := range []bool{false, true} {
			m, picks := newMember(t), &taken{}
			if declared {
				m = beside(t, declaredImport())
				m.set(hubv1alpha1.DeclaredImportsFill, "")
			} else {
				m.export("c", "10.3.0.1")
			}
			m.Addresses = picks
			m.Families = func(context.Context) ([]corev1.IPFamily, error) { return kube.BothFamilies, nil }
			m.edit("c", func(rec *hubv1alpha1.ServiceExportRecord) {
				rec.Spec.Type, rec.Spec.IPFamilies = mcsv1beta1.ClusterSetIP, kube.BothFamilies
			})
			m.mustPass()
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: derived.Name("shop", "web")}}
			if err := m.local.Delete(t.Context(), svc); err != nil {
				t.Fatal(err)
			}
			for _, ip := range c.lost {
				picks.err = errors.Join(picks.err, ipam.LostError(ip))
			}
			picks.err = errors.Join(picks.err, c.refusal)
			for range 2 {
				err := m.pass()
				imp := m.read(declaredImport()).(*mcsv1beta1.ServiceImport)
				if got := fmt.Sprint(imp.Spec.IPs); got != c.want || imp.Spec.Type != mcsv1beta1.ClusterSetIP ||
					!declared && len(imp.Spec.IPs) > 0 && len(imp.Spec.IPFamilies) != len(imp.Spec.IPs) {
					t.Errorf("%s, declared %v: %v, it is %+v, want %s", name, declared, err, imp.Spec, c.want)
				}
			}
		}
	}
}

// taken has both addresses until there is an error.
type taken struct {
	ranges
	err error
}

func (v *taken) Pick(context.Context, *ipam.Request) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("10.96.0.8"), netip.MustParseAddr("fd00::8")}, v.err
}

// choosing leaves all addresses to the API server.
type choosing struct{ ranges }

func (*choosing) Pick(context.Context, *ipam.Request) ([]netip.Addr, error) { return nil, nil }

func (*choosing) Refused(_ context.Context, _ *ipam.Request, _ []netip.Addr, err error) error {
	if err != nil && strings.Contains(err.Error(), ipam.ErrFull.Error()) {
		return fmt.Errorf("%w: %w", ipam.ErrFull, err)
	}
	return err
}

// ending is an agent that is told to end once an address is picked.
type ending struct {
	ranges
	end func()
}

func (e *ending) Pick(context.Context, *ipam.Request) ([]netip.Addr, error) {
	e.end()
	return nil, nil
}

// TestI6AnAgentThatEndsWaitsForTheServiceThatItMakes: the API server would take its addresses back, and might keep
// the Service.
func TestI6AnAgentThatEndsWaitsForTheServiceThatItMakes(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	m, vips := newMember(t), &ending{end: end}
	m.Addresses = vips
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{Create: func(
		ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption,
	) error {
		return errors.Join(ctx.Err(), c.Create(ctx, o, opts...))
	}})
	merged := &conflict.Merged{
		Type:  mcsv1beta1.ClusterSetIP,
		Ports: []clusterset.Port{{Protocol: corev1.ProtocolTCP, Number: 80}},
	}
	families := []corev1.IPFamily{corev1.IPv4Protocol}
	svc, err := m.allocate(
		ctx, &snapshot{name: types.NamespacedName{Namespace: "shop", Name: "web"}}, nil, merged, families, nil,
	)
	if err != nil || svc == nil || ctx.Err() == nil {
		t.Errorf("%v, %v; it was told to end: %v", svc, err, ctx.Err())
	}
}

// TestI6TheVIPOfAServiceThatIsGoneIsNotShown: the cache may show a derived Service that was deleted, with its address.
func TestI6TheVIPOfAServiceThatIsGoneIsNotShown(t *testing.T) {
	m := newMember(t)
	merged := &conflict.Merged{
		Type:  mcsv1beta1.ClusterSetIP,
		Ports: []clusterset.Port{{Protocol: corev1.ProtocolTCP, Number: 80}},
	}
	families := []corev1.IPFamily{corev1.IPv4Protocol}
	s := &snapshot{name: types.NamespacedName{Namespace: "shop", Name: "web"}}
	vips := []netip.Addr{netip.MustParseAddr("10.96.0.8")}
	s.svc = derived.Service("shop", "web", kube.Manager, merged, families, nil, vips)
	merged.Ports[0].Number = 81
	m.Local = interceptor.NewClient(m.local, interceptor.Funcs{
		Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			return apierrors.NewNotFound(corev1.Resource("services"), o.GetName())
		},
	})
	if svc, err := m.write(t.Context(), s, merged, families, nil); !apierrors.IsNotFound(err) || svc != nil {
		t.Errorf("%v, %v", svc, err)
	}
}
