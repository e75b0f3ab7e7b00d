package members

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// TestS6KubeProxyAndMeshesReadTrafficSlices: one for each exporter, without the label by which Istio skips a slice, and
// also in the exporter itself. What a user deletes comes back.
func TestS6KubeProxyAndMeshesReadTrafficSlices(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	for _, id := range []string{"a", "b"} {
		m := s.members[id]
		derived := m.derivedOf(t, m.wantImport(t, ns, "web", ready("a")))
		var found discoveryv1.EndpointSlice
		read := func() error {
			var list discoveryv1.EndpointSliceList
			if err := m.List(t.Context(), &list, client.InNamespace(ns),
				client.MatchingLabels{discoveryv1.LabelServiceName: derived.Name}); err != nil {
				return err
			}
			count := 0
			for _, slice := range list.Items {
				if _, hidden := slice.Labels[corev1.IsHeadlessService]; hidden {
					continue
				}
				count, found = count+1, slice
			}
			if count != 1 {
				return fmt.Errorf("%d slices for kube-proxy, want one", count)
			}
			if _, skipped := found.Labels[mcsv1beta1.LabelServiceName]; skipped || len(found.Ports) != 1 ||
				*found.Ports[0].Name != derived.Spec.Ports[0].Name || len(found.Endpoints) != 1 ||
				found.Endpoints[0].Addresses[0] != "10.1.0.1" || found.Endpoints[0].TargetRef != nil {
				return fmt.Errorf("slice %+v of Service %+v", found, derived.Spec.Ports)
			}
			return nil
		}
		eventually(t, "the traffic slice in "+id, read)
		deleted := found
		m.remove(t, &deleted)
		eventually(t, "the traffic slice in "+id+" again", func() error {
			if err := read(); err != nil {
				return err
			}
			if found.UID == deleted.UID {
				return fmt.Errorf("%s is still there", found.Name)
			}
			return nil
		})
	}
}
