package sim

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/model/resolution"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// createBeside lets another implementation of the API create what an import needs, before the agent does (I10).
func (w *World) createBeside(m *member, n types.NamespacedName) {
	labels := pick(w, []map[string]string{nil, {"app.kubernetes.io/managed-by": "other"}})
	meta := metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, Labels: labels}
	w.guard.forgive(m, n) // the import may get that Service's address
	if w.chance(0.5) {
		imp := &mcsv1beta1.ServiceImport{ObjectMeta: meta}
		imp.Spec.Type, imp.Spec.Ports = mcsv1beta1.ClusterSetIP, []mcsv1beta1.ServicePort{}
		w.create(m, imp)
		return
	}
	svc := &corev1.Service{ObjectMeta: meta}
	svc.Name, svc.Spec.Ports = derivedName(n), w.ports()
	w.create(m, svc)
}

// foreign is what other programs have of the names that imports need.
func (m *member) foreign(n types.NamespacedName) (out []client.Object) {
	if imp := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, n); imp != nil {
		out = append(out, imp)
	}
	derived := types.NamespacedName{Namespace: n.Namespace, Name: derivedName(n)}
	if svc := get[*corev1.Service](m, api.Service, derived); svc != nil {
		out = append(out, svc)
	}
	for _, s := range all[*discoveryv1.EndpointSlice](m.server, api.EndpointSlice) {
		if s.Namespace == n.Namespace && endpoints.ServiceOf(s.Name) == derived.Name {
			out = append(out, s)
		}
	}
	theirs := out[:0]
	for _, o := range out {
		if !kube.Writable(o) && o.GetDeletionTimestamp() == nil {
			theirs = append(theirs, o)
		}
	}
	return theirs
}

// exportedTo returns whether somebody exports a name to a member, and goes on: what is in a namespace that is being
// deleted is still there, but not for long.
func (w *World) exportedTo(m *member, n types.NamespacedName) bool {
	ends := map[string]bool{}
	for _, exporter := range w.honest() {
		ends[exporter.id] = exporter.namespace(n.Namespace) == nil
	}
	return slices.ContainsFunc(w.truthOf(n).exports, func(e clusterset.Export) bool {
		return resolution.Imports(e, placeOf(m.id)) && !ends[e.Cluster]
	})
}

// givesAway lets the owners of foreign objects give them to the agent, or delete them. What is given of a name that
// nobody exports to its cluster waits (I10).
func (w *World) givesAway() {
	for _, m := range w.honest() {
		for _, n := range names {
			exported := w.exportedTo(m, n)
			for _, o := range m.foreign(n) {
				if w.guard.forgive(m, n); !exported || w.chance(0.3) {
					w.remove(m, o)
					continue
				}
				o = o.DeepCopyObject().(client.Object)
				o.SetAnnotations(map[string]string{kube.AnnotationAdopt: "true"})
				w.update(m, o)
			}
		}
	}
}
