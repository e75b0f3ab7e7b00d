package sim

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// describe tells how a name stands, for a person who looks at a failure.
func (w *World) describe(n types.NamespacedName) string {
	var b strings.Builder
	t := w.truthOf(n)
	fmt.Fprintf(
		&b,
		"%s: %s with ports %s, exported by %v, conflicts %v\n",
		n,
		t.merged.Type,
		show(t.merged.Ports),
		t.merged.Clusters,
		t.reasons,
	)
	for _, e := range t.exports {
		fmt.Fprintf(
			&b,
			"  %s exports since %s: %s %s\n",
			e.Cluster,
			e.Created.UTC().Format("2006-01-02 15:04:05"),
			e.Type,
			show(e.Ports),
		)
	}
	for _, kind := range []string{api.ServiceExportRecord, api.EndpointPage} {
		for _, o := range w.hub.List(kind) {
			if nameOf(o) == n {
				fmt.Fprintf(
					&b,
					"  hub: %s revision %d withdrawn %v @%s\n",
					o.GetName(),
					originOf(o).Revision,
					withdrawn(o),
					o.GetResourceVersion(),
				)
			}
		}
	}
	for _, m := range w.honest() {
		fmt.Fprintf(&b, "  in %s (%v):\n", m.id, m.server.Families)
		if imp := get[*mcsv1beta1.ServiceImport](m, api.ServiceImport, n); imp != nil {
			fmt.Fprintf(
				&b,
				"    import %s of %v: %s %v ports %s\n",
				imp.UID,
				imp.Status.Clusters,
				imp.Spec.Type,
				imp.Spec.IPs,
				show(imp.Spec.Ports),
			)
		}
		if svc := get[*corev1.Service](
			m,
			api.Service,
			types.NamespacedName{Namespace: n.Namespace, Name: derivedName(n)},
		); svc != nil {
			fmt.Fprintf(
				&b,
				"    derived %s %v ports %s %v\n",
				svc.Name,
				svc.Spec.ClusterIPs,
				show(svc.Spec.Ports),
				svc.Annotations,
			)
		}
		for _, s := range m.imported(n) {
			fmt.Fprintf(
				&b,
				"    slice %s of %s: ports %s, %s %v\n",
				s.Name,
				s.Labels[mcsv1beta1.LabelSourceCluster],
				show(s.Ports),
				addresses(s),
				s.Annotations,
			)
		}
		for _, s := range m.slicesOf(n) {
			fmt.Fprintf(&b, "    own slice %s (%s): ports %s, %s\n", s.Name, s.UID, show(s.Ports), addresses(s))
		}
	}
	return b.String()
}

func addresses(s *discoveryv1.EndpointSlice) []string {
	var out []string
	for _, e := range s.Endpoints {
		state := ""
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			state = " not ready"
		}
		out = append(out, e.Addresses[0]+state)
	}
	return out
}
