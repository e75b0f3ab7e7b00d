package serviceimport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// change is what somebody does to the objects of one name, the same to both members.
type change func(m *member, cluster string, chance *rand.Rand)

func edited[T client.Object](m *member, side client.Client, o T, name types.NamespacedName, edit func(T)) {
	m.t.Helper()
	if side.Get(m.t.Context(), name, o) != nil {
		return // there is none now
	}
	edit(o)
	if err := side.Update(m.t.Context(), o); err != nil {
		m.t.Fatal(err)
	}
}

// editGroup changes the endpoints of a cluster, if it has some.
func (m *member) editGroup(cluster string, edit func(*hubv1alpha1.EndpointGroup)) {
	m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
		if len(rec.Spec.Endpoints) > 0 && len(rec.Spec.Endpoints[0].Endpoints) > 0 {
			edit(&rec.Spec.Endpoints[0])
		}
	})
}

// editRecord has a cluster change its record, if it has one that is not withdrawn.
func (m *member) editRecord(cluster string, edit func(*hubv1alpha1.ServiceExportRecord)) {
	rec := &hubv1alpha1.ServiceExportRecord{}
	side := m.records(cluster, rec)
	edited(m, side, rec, client.ObjectKeyFromObject(rec), func(rec *hubv1alpha1.ServiceExportRecord) {
		if !rec.Spec.Withdrawn {
			rec.Spec.Revision++
			edit(rec)
		}
	})
}

func (m *member) editSlice(cluster string, edit func(*discoveryv1.EndpointSlice)) {
	for _, slice := range m.slices() {
		if slice.Labels[mcsv1beta1.LabelSourceCluster] == cluster &&
			slice.Labels[mcsv1beta1.LabelServiceName] == "web" {
			edited(m, m.local, &discoveryv1.EndpointSlice{}, client.ObjectKeyFromObject(&slice), edit)
		}
	}
}

var changes = map[string]change{
	"an endpoint is ready or not": func(m *member, cluster string, chance *rand.Rand) {
		ready := chance.IntN(2) == 0
		m.editGroup(cluster, func(g *hubv1alpha1.EndpointGroup) { g.Endpoints[0].Ready = &ready })
	},
	"an endpoint moves": func(m *member, cluster string, chance *rand.Rand) {
		address := fmt.Sprintf("10.0.0.%d", chance.IntN(9)+1)
		m.editGroup(cluster, func(g *hubv1alpha1.EndpointGroup) { g.Endpoints[0].Address = address })
	},
	"an address is refused": func(m *member, cluster string, _ *rand.Rand) {
		m.editGroup(cluster, func(g *hubv1alpha1.EndpointGroup) { g.Endpoints[0].Address = "127.0.0.1" })
	},
	"a port changes": func(m *member, cluster string, chance *rand.Rand) {
		number := int32(8080 + chance.IntN(3))
		m.editGroup(cluster, func(g *hubv1alpha1.EndpointGroup) { g.Ports[0].Target = &number })
	},
	"a record is invalid": func(m *member, cluster string, _ *rand.Rand) {
		m.editGroup(cluster, func(g *hubv1alpha1.EndpointGroup) { g.Ports = append(g.Ports, g.Ports[0]) })
	},
	"a record is older": func(m *member, cluster string, _ *rand.Rand) {
		m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Revision -= 2 })
	},
	"a record goes": func(m *member, cluster string, _ *rand.Rand) {
		rec := &hubv1alpha1.ServiceExportRecord{}
		_ = m.records(cluster, rec).Delete(m.t.Context(), rec)
	},
	"endpoints move into pages, or change there": func(m *member, cluster string, chance *rand.Rand) {
		m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
			rec.Spec.Endpoints, rec.Spec.Pages = nil, int32(1+chance.IntN(3))
			for number := range rec.Spec.Pages {
				m.page(cluster, number, fmt.Sprintf("10.0.2.%d", chance.IntN(9)+1))
			}
		})
	},
	"one endpoint in a page changes": func(m *member, cluster string, chance *rand.Rand) {
		m.page(cluster, int32(chance.IntN(2)), fmt.Sprintf("10.0.2.%d", chance.IntN(9)+1))
	},
	"a page goes": func(m *member, cluster string, chance *rand.Rand) {
		name := clusterset.PageName(int32(chance.IntN(2)), "web", "shop", cluster)
		_ = m.hub.Delete(
			m.t.Context(),
			&hubv1alpha1.EndpointPage{ObjectMeta: metav1.ObjectMeta{Namespace: "set", Name: name}},
		)
	},
	"a cluster states that it has no endpoints": func(m *member, cluster string, _ *rand.Rand) {
		m.editRecord(
			cluster,
			func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Endpoints, rec.Spec.Pages = nil, 0 },
		)
	},
	"a cluster exports": func(m *member, cluster string, chance *rand.Rand) {
		address := fmt.Sprintf("10.0.1.%d", chance.IntN(9)+1)
		m.publish(cluster, address)
	},
	"an export ends": func(m *member, cluster string, _ *rand.Rand) {
		m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
			at := rec.Spec.ExportedAt
			rec.Spec = clusterset.Withdrawn(rec.Spec.Origin, noon)
			rec.Spec.ExportedAt = at
		})
	},
	"an export prefers some clusters": func(m *member, cluster string, chance *rand.Rand) {
		all := []hubv1alpha1.Preference{
			"",
			hubv1alpha1.PreferLocal,
			hubv1alpha1.LocalOnly,
			"cluster=b,any",
			"cluster=d,same:region",
			"region=eu,any",
		}
		preference := all[chance.IntN(len(all))]
		m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Preference = preference })
	},
	"an export goes to some clusters": func(m *member, cluster string, chance *rand.Rand) {
		to := []string{"", "", "cluster=a", "cluster=b", "region=eu"}[chance.IntN(5)]
		m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.ExportTo = to })
	},
	"an exporter is in a region": func(m *member, cluster string, chance *rand.Rand) {
		region := map[string]string{"region": []string{"eu", "us"}[chance.IntN(2)]}
		m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Properties = region })
	},
	"this cluster is in a region": func(m *member, _ string, chance *rand.Rand) {
		property := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "region"}}
		_ = m.local.Delete(m.t.Context(), property.DeepCopy())
		property.Spec.Value = []string{"eu", "us"}[chance.IntN(2)]
		if err := m.local.Create(m.t.Context(), property); err != nil {
			m.t.Fatal(err)
		}
	},
	"time passes": func(m *member, _ string, _ *rand.Rand) { m.later += 7 * time.Second },
	"an export has other families": func(m *member, cluster string, chance *rand.Rand) {
		both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
		families := both[:1+chance.IntN(2)]
		m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.IPFamilies = families })
	},
	"an export has another port": func(m *member, cluster string, chance *rand.Rand) {
		number := int32(80 + chance.IntN(2))
		m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) { rec.Spec.Ports[0].Port = number })
	},
	"a cluster expires or is live": func(m *member, cluster string, chance *rand.Rand) {
		state := liveness.State{Expired: chance.IntN(2) == 0, OnExpiry: hubv1alpha1.ExpiryRemove}
		lease := &coordinationv1.Lease{}
		lease.Namespace, lease.Name = kube.SystemNamespace, liveness.LeaseName(cluster)
		lease.Labels, lease.Annotations = map[string]string{liveness.LabelSource: cluster}, map[string]string{}
		state.Write(lease.Annotations)
		_ = m.local.Delete(m.t.Context(), lease.DeepCopy())
		if err := m.local.Create(m.t.Context(), lease); err != nil {
			m.t.Fatal(err)
		}
	},
	"a user edits endpoints": func(m *member, cluster string, _ *rand.Rand) {
		m.editSlice(cluster, func(slice *discoveryv1.EndpointSlice) { slice.Endpoints = nil })
	},
	"a user edits where a slice comes from": func(m *member, cluster string, _ *rand.Rand) {
		m.editSlice(cluster, func(slice *discoveryv1.EndpointSlice) {
			delete(slice.Annotations, endpoints.AnnotationRevision)
		})
	},
	"a user edits labels": func(m *member, cluster string, _ *rand.Rand) {
		m.editSlice(cluster, func(slice *discoveryv1.EndpointSlice) {
			slice.Labels[mcsv1beta1.LabelSourceCluster] = "c"
		})
	},
	"a user takes a slice": func(m *member, cluster string, _ *rand.Rand) {
		m.editSlice(cluster, func(slice *discoveryv1.EndpointSlice) {
			slice.Labels[discoveryv1.LabelManagedBy] = "somebody"
		})
	},
	"a user deletes a slice": func(m *member, cluster string, _ *rand.Rand) {
		for _, slice := range m.slices() {
			if slice.Labels[mcsv1beta1.LabelSourceCluster] == cluster {
				if err := m.local.Delete(m.t.Context(), &slice); err != nil {
					m.t.Fatal(err)
				}
			}
		}
	},
	"a user edits the import": func(m *member, _ string, _ *rand.Rand) {
		name := types.NamespacedName{Namespace: "shop", Name: "web"}
		edited(m, m.local, &mcsv1beta1.ServiceImport{}, name, func(imp *mcsv1beta1.ServiceImport) {
			imp.Spec.Ports = nil
		})
	},
	"the namespace refuses imports or not": func(m *member, _ string, chance *rand.Rand) {
		value := []string{"false", "true"}[chance.IntN(2)]
		edited(m, m.local, &corev1.Namespace{}, types.NamespacedName{Name: "shop"}, func(ns *corev1.Namespace) {
			ns.Annotations = map[string]string{clusterset.AnnotationNamespaceImport: value}
		})
	},
	"the hub is away or back": func(m *member, _ string, chance *rand.Rand) { m.seesHub = chance.IntN(3) > 0 },
}

// page writes a page of a cluster.
func (m *member) page(cluster string, number int32, address string) {
	page := &hubv1alpha1.EndpointPage{}
	page.Namespace, page.Name = "set", clusterset.PageName(number, "web", "shop", cluster)
	found := m.hub.Get(m.t.Context(), client.ObjectKeyFromObject(page), page) == nil
	page.Spec.Origin = hubv1alpha1.Origin{
		ClusterID: cluster, ServiceNamespace: "shop", ServiceName: "web", Revision: page.Spec.Revision + 1,
	}
	page.Spec.Number = number
	page.Spec.EndpointGroup = hubv1alpha1.EndpointGroup{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []hubv1alpha1.EndpointPort{{Protocol: corev1.ProtocolTCP, Port: 80, Target: ptr.To[int32](8080)}},
		Endpoints:   []hubv1alpha1.Endpoint{{Address: address}},
	}
	write := func() error { return m.hub.Create(m.t.Context(), page) }
	if found {
		write = func() error { return m.hub.Update(m.t.Context(), page) }
	}
	if err := write(); err != nil {
		m.t.Fatal(err)
	}
}

// editCopy changes this cluster's copy of a record, if there is one: a user does, or the agent did.
func (m *member) editCopy(cluster string, edit func(*hubv1alpha1.ServiceExportRecord)) {
	name := types.NamespacedName{Namespace: kube.SystemNamespace, Name: clusterset.RecordName("web", "shop", cluster)}
	edited(m, m.local, &hubv1alpha1.ServiceExportRecord{}, name, edit)
}

// publish has a cluster export, again if it did before.
func (m *member) publish(cluster, address string) {
	was := &hubv1alpha1.ServiceExportRecord{}
	side := m.records(cluster, was)
	_ = side.Get(m.t.Context(), client.ObjectKeyFromObject(was), was)
	_ = side.Delete(m.t.Context(), was.DeepCopy())
	m.export(cluster, address)
	m.editRecord(cluster, func(rec *hubv1alpha1.ServiceExportRecord) {
		rec.Spec.Type, rec.Spec.ExportedAt = mcsv1beta1.ClusterSetIP, ptr.To(metav1.NewTime(noon))
		rec.Spec.Revision += was.Spec.Revision
	})
}

// state is what the agent has made of a name.
func (m *member) state() (out []string) {
	for _, slice := range m.slices() {
		labels, annotations := slices.Sorted(maps.Keys(slice.Labels)), []string{}
		for k, v := range slice.Annotations {
			annotations = append(annotations, k+"="+v)
		}
		slices.Sort(annotations)
		for i, k := range labels {
			labels[i] += "=" + slice.Labels[k]
		}
		out = append(out, fmt.Sprint(slice.Name, labels, annotations))
		for _, p := range slice.Ports {
			out = append(out, fmt.Sprint(" port ", *p.Name, " ", *p.Port))
		}
		for _, e := range slice.Endpoints {
			out = append(out, fmt.Sprint(" endpoint ", e.Addresses, ptr.Deref(e.Conditions.Ready, true)))
		}
	}
	imp := &mcsv1beta1.ServiceImport{}
	if m.local.Get(m.t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, imp) == nil {
		out = append(out, fmt.Sprint("import ", imp.Spec.Ports, imp.Spec.IPs, imp.Spec.Type, imp.Status.Clusters))
	}
	return out
}

// TestASettledNameIsAsAWholePassMakesIt, after each of many changes in any order.
func TestASettledNameIsAsAWholePassMakesIt(t *testing.T) {
	names := slices.Sorted(maps.Keys(changes))
	followed, clusters := 0, []string{"b", "c", "d"}
	for seed := range uint64(20) {
		quick, whole := newMember(t), newMember(t)
		quick.Addresses, whole.Addresses = &ranges{}, &ranges{}
		var story []string
		for step := range 60 {
			choice := rand.New(rand.NewPCG(seed, uint64(step)))
			name, cluster := names[choice.IntN(len(names))], clusters[choice.IntN(len(clusters))]
			if step < len(clusters) {
				name, cluster = "a cluster exports", clusters[step]
			} else if choice.IntN(2) == 0 {
				name = "an endpoint is ready or not"
			}
			story = append(story, cluster+": "+name)
			for _, m := range []*member{quick, whole} {
				changes[name](m, cluster, rand.New(rand.NewPCG(seed, uint64(step))))
				for range 3 {
					if m == whole {
						clear(m.settled)
					}
					was := m.settled[types.NamespacedName{Namespace: "shop", Name: "web"}]
					_ = m.pass()
					if m == quick && was != nil &&
						was == m.settled[types.NamespacedName{Namespace: "shop", Name: "web"}] {
						followed++
					}
				}
			}
			if got, want := quick.state(), whole.state(); !equality.Semantic.DeepEqual(got, want) {
				t.Fatalf("seed %d: after %q\nit is  %q\nwant   %q", seed, story, got, want)
			}
		}
	}
	if followed < 300 {
		t.Errorf("endpoints alone were followed %d times: too few to show anything", followed)
	}
}

// TestT1ASettledNameLosesADeadCluster, although nothing that it publishes has changed.
func TestT1ASettledNameLosesADeadCluster(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	for _, cluster := range []string{"b", "c"} {
		m.publish(cluster, "10.0.0.1")
	}
	pass := func() {
		for range 3 {
			if err := m.pass(); err != nil {
				t.Fatal(err)
			}
		}
	}
	pass()
	if m.settled[types.NamespacedName{Namespace: "shop", Name: "web"}] == nil || m.imported()["b"] == nil {
		t.Fatal("the name is not settled")
	}
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = kube.SystemNamespace, liveness.LeaseName("b")
	lease.Labels, lease.Annotations = map[string]string{liveness.LabelSource: "b"}, map[string]string{}
	dead := liveness.State{Expired: true, OnExpiry: hubv1alpha1.ExpiryRemove}
	dead.Write(lease.Annotations)
	if err := m.local.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	pass()
	if m.imported()["b"] != nil || m.imported()["c"] == nil {
		t.Errorf("slices of %v, want c's alone", slices.Sorted(maps.Keys(m.imported())))
	}
}

// TestASettledNameLosesWhatIsGone: the record goes after its cluster has stated that it has none.
func TestASettledNameLosesWhatIsGone(t *testing.T) {
	m := newMember(t)
	m.Addresses = &ranges{}
	for _, cluster := range []string{"b", "c"} {
		m.publish(cluster, "10.0.0.1")
	}
	chance := rand.New(rand.NewPCG(1, 1))
	for _, what := range []string{"a cluster states that it has no endpoints", "a record goes"} {
		changes[what](m, "b", chance)
		for range 3 {
			if err := m.pass(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := m.imported(); got["b"] != nil || got["c"] == nil {
		t.Errorf("%v", m.state())
	}
}

// TestS2ARefusedUpdateIsTriedAgain, by a whole pass and by one over a settled name. An API server calls a slice invalid
// as well if an admission policy without a reason denies it. Other clusters' endpoints are followed meanwhile.
func TestS2ARefusedUpdateIsTriedAgain(t *testing.T) {
	for _, settles := range []bool{true, false} {
		m := newMember(t)
		m.Addresses = &ranges{}
		m.publish("b", "10.0.0.1")
		m.publish("c", "10.0.0.1")
		for range 2 {
			if err := m.pass(); err != nil {
				t.Fatal(err)
			}
		}
		var refusal error = apierrors.NewInvalid(schema.GroupKind{}, "x", nil)
		m.Local = interceptor.NewClient(m.local, interceptor.Funcs{Update: func(
			ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption,
		) error {
			if o.GetLabels()[mcsv1beta1.LabelSourceCluster] == "b" && refusal != nil {
				return refusal
			}
			return under.Update(ctx, o, opts...)
		}})
		for _, cluster := range []string{"b", "c"} {
			m.editGroup(cluster, func(g *hubv1alpha1.EndpointGroup) { g.Endpoints[0].Address = "10.0.0.2" })
		}
		address := func(cluster string) string { return m.imported()[cluster].Endpoints[0].Addresses[0] }
		for range 2 {
			if !settles {
				clear(m.settled)
			}
			m.told = nil
			if err := m.pass(); !errors.Is(err, refusal) || !slices.Contains(m.told, "SliceRefused") ||
				address("b") != "10.0.0.1" || address("c") != "10.0.0.2" {
				t.Errorf("settled %v: %v, told %v, imported %v", settles, err, m.told, m.state())
			}
		}
		refusal = nil
		if err := m.pass(); err != nil || address("b") != "10.0.0.2" {
			t.Errorf("settled %v, then: %v, %v", settles, err, m.state())
		}
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
