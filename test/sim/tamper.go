package sim

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// tamper lets a user lay hands on what is the agent's (I9).
func (w *World) tamper(m *member, n types.NamespacedName) {
	switch w.rng.IntN(6) {
	case 0:
		w.tamperImport(m, n)
	case 1, 2:
		w.tamperService(m, n)
	case 3, 4:
		w.tamperSlice(m, n)
	case 5:
		w.tamperRecord(m, n)
	}
}

func (w *World) tamperImport(m *member, n types.NamespacedName) {
	imp := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, n)
	if imp == nil || imp.DeletionTimestamp != nil {
		return
	}
	imp = imp.DeepCopy()
	switch w.rng.IntN(4) {
	case 0: // the address would be lost with the derived Service, whoever makes that again
		w.guard.forgive(m, n)
		imp.Spec.Ports, imp.Spec.IPs = []mcsv1beta1.ServicePort{}, []string{"10.9.9.9"}
		w.update(m, imp)
	case 1:
		imp.Labels, imp.Annotations = nil, map[string]string{"note": "mine"}
		w.update(m, imp)
	case 2:
		w.remove(m, imp)
	case 3: // kubectl delete --cascade=foreground
		imp.Finalizers = []string{api.Foreground}
		w.update(m, imp)
		w.remove(m, imp)
	}
}

func (w *World) tamperService(m *member, n types.NamespacedName) {
	svc := get[*corev1.Service](m, api.Service, types.NamespacedName{Namespace: n.Namespace, Name: derivedName(n)})
	if svc == nil {
		return
	}
	svc = svc.DeepCopy()
	switch w.rng.IntN(6) {
	case 0:
		svc.Spec.Ports[0].Name, svc.Spec.Ports[0].Port = "mine", 7777
		svc.Spec.SessionAffinity, svc.Spec.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
		w.update(m, svc)
	case 1:
		svc.Labels, svc.Annotations = nil, nil
		w.update(m, svc)
	case 2:
		w.remove(m, svc) // refused by the policy
	default: // by an admin, against the policy: the import remembers the address, unless it is Headless
		if m.server.Now().Sub(svc.CreationTimestamp.Time) < 2*time.Second {
			return // nobody is that fast, and the agent may not have seen the address yet
		}
		if imp := get[*mcsv1beta1.ServiceImport](
			m,
			api.ServiceImport,
			n,
		); imp == nil ||
			len(imp.Spec.IPs) != len(svc.Spec.ClusterIPs) {
			return
		}
		w.guard.adminDeleted(m, n)
		w.user(m, "deletes, as admin,", svc, m.server.Delete("admin", api.KeyOf(svc), nil))
	}
}

// imported are the slices of an import, by their labels.
func (m *member) imported(n types.NamespacedName) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(
		all[*discoveryv1.EndpointSlice](m.server, api.EndpointSlice),
		func(s *discoveryv1.EndpointSlice) bool {
			return s.Namespace != n.Namespace || s.Labels[mcsv1beta1.LabelServiceName] != n.Name ||
				endpoints.IsProjection(s.Name)
		},
	)
}

func (w *World) tamperSlice(m *member, n types.NamespacedName) {
	imported := m.imported(n)
	for _, s := range all[*discoveryv1.EndpointSlice](m.server, api.EndpointSlice) {
		if s.Namespace == n.Namespace && endpoints.ServiceOf(s.Name) == derivedName(n) &&
			endpoints.IsProjection(s.Name) {
			imported = append(imported, s)
		}
	}
	if len(imported) == 0 {
		return
	}
	s := pick(w, imported).DeepCopy()
	switch w.rng.IntN(6) {
	case 0:
		s.Endpoints = w.endpoints(m, s.AddressType)
		w.update(m, s)
	case 1:
		s.Labels = nil
		w.update(m, s)
	case 2:
		s.Annotations = nil
		w.update(m, s)
	case 3:
		s.Ports = []discoveryv1.EndpointPort{}
		w.update(m, s)
	case 4:
		w.remove(m, s)
	case 5: // some labels, which other clients still go by
		for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
			if w.chance(0.5) {
				delete(s.Labels, label)
			}
		}
		w.update(m, s)
	}
}

// tamperRecord deletes one of this cluster's records. Its own ones and the hub's are not lost in one episode: an export
// that ended meanwhile would be known to nobody.
func (w *World) tamperRecord(m *member, n types.NamespacedName) {
	for _, rec := range all[*hubv1alpha1.ServiceExportRecord](m.server, api.ServiceExportRecord) {
		if rec.Spec.ServiceNamespace == n.Namespace && rec.Spec.ServiceName == n.Name {
			if rec.Spec.ClusterID == m.id && !w.mayLose("an own record") {
				return
			}
			w.remove(m, rec)
			return
		}
	}
}

// mayLose returns whether records may be lost there in this episode.
func (w *World) mayLose(where string) bool {
	if w.lost == "" {
		w.lost = where
	}
	return w.lost == where
}
