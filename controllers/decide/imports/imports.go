// Package imports decides what a ServiceImport says (SPEC I3–I5, C7, C8). Pure: the merged export, the families that this cluster can
// serve and the VIPs in; metadata, spec, status and the condition Ready out.
package imports

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
)

const (
	// AnnotationDerived names the derived Service (DESIGN §11).
	AnnotationDerived = "multicluster.kubernetes.io/derived-service"
	// AnnotationExported lists the keys of labels, then of annotations, that came from exports, so that they go when those change while
	// what users have added stays.
	AnnotationExported = "clusterset-dns.io/exported"
)

// Metadata gives imp the exported labels and annotations (C8) and ours, which nobody can export over. What earlier exports had put there
// goes; what users put there stays.
func Metadata(imp *mcsv1beta1.ServiceImport, m *conflict.Merged, derivedName, manager string) {
	oldLabels, oldAnnotations, _ := strings.Cut(imp.Annotations[AnnotationExported], ";")
	labels, annotations := maps.Clone(imp.Labels), maps.Clone(imp.Annotations)
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	forget(labels, oldLabels)
	forget(annotations, oldAnnotations)
	exportedLabels, exportedAnnotations := allowed(m.Labels), allowed(m.Annotations)
	maps.Copy(labels, exportedLabels)
	maps.Copy(annotations, exportedAnnotations)
	labels[derived.LabelManagedBy] = manager
	annotations[AnnotationDerived] = derivedName
	delete(annotations, clusterset.AnnotationPreference)
	if m.Preference != hubv1alpha1.PreferNone && m.Preference != "" {
		annotations[clusterset.AnnotationPreference] = string(m.Preference)
	}
	delete(annotations, clusterset.AnnotationProbe)
	if m.Probe != "" {
		annotations[clusterset.AnnotationProbe] = string(m.Probe)
	}
	delete(annotations, AnnotationExported)
	if len(exportedLabels)+len(exportedAnnotations) > 0 {
		annotations[AnnotationExported] = keys(exportedLabels) + ";" + keys(exportedAnnotations)
	}
	imp.Labels, imp.Annotations = labels, annotations
}

func forget(from map[string]string, list string) {
	for _, k := range strings.Split(list, ",") {
		if !reserved(k) {
			delete(from, k)
		}
	}
}

func allowed(in map[string]string) map[string]string {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(k, _ string) bool { return reserved(k) })
	return out
}

// reserved keys are the field's and ours: a peer must not steer this cluster by them.
func reserved(k string) bool {
	prefix, _, _ := strings.Cut(k, "/")
	return k == derived.LabelManagedBy || prefix == "clusterset-dns.io" || prefix == "multicluster.kubernetes.io"
}

func keys(m map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(m)), ",") }

// Ours tells whether the agent made imp or has taken it over, so that it goes with its last export (I2). It says so itself; where a user
// has removed that, a slice of imported that imp owns says so, or the derived Service svc (nil: none) whose VIP imp shows. Users'
// imports, and those of another implementation, which may bear the same annotations, are none of these.
func Ours(imp *mcsv1beta1.ServiceImport, manager string, svc *corev1.Service, imported []*discoveryv1.EndpointSlice) bool {
	if imp.Labels[derived.LabelManagedBy] == manager {
		return true
	}
	for _, slice := range imported {
		for _, owner := range slice.OwnerReferences {
			if imp.UID != "" && owner.UID == imp.UID {
				return true
			}
		}
	}
	return svc != nil && derived.Is(svc, manager) && slices.ContainsFunc(imp.Spec.IPs, func(ip string) bool { return slices.Contains(svc.Spec.ClusterIPs, ip) })
}

// Spec is I3. ips are in the order of families.
func Spec(m *conflict.Merged, families []corev1.IPFamily, ips []string) mcsv1beta1.ServiceImportSpec {
	traffic := m.InternalTrafficPolicy
	spec := mcsv1beta1.ServiceImportSpec{
		Type: m.Type, IPs: ips, IPFamilies: families, Ports: []mcsv1beta1.ServicePort{},
		SessionAffinity: m.SessionAffinity, SessionAffinityConfig: m.SessionAffinityConfig.DeepCopy(),
		InternalTrafficPolicy: &traffic,
	}
	for _, p := range m.Ports {
		port := mcsv1beta1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Number}
		if p.AppProtocol != "" {
			app := p.AppProtocol
			port.AppProtocol = &app
		}
		spec.Ports = append(spec.Ports, port)
	}
	if m.TrafficDistribution != "" {
		distribution := m.TrafficDistribution
		spec.TrafficDistribution = &distribution
	}
	return spec
}

// Status is I4 and I5, without the conditions.
func Status(m *conflict.Merged) mcsv1beta1.ServiceImportStatus {
	status := mcsv1beta1.ServiceImportStatus{EndpointSliceObjects: mcsv1beta1.EndpointSliceObjectsPresent}
	for _, c := range m.Clusters {
		status.Clusters = append(status.Clusters, mcsv1beta1.ClusterStatus{Cluster: c})
	}
	return status
}

// StandIn is the export that imp, which was made with one of this cluster's, gives it while that cannot be read: all that the import says, as the
// oldest's. So nothing is taken away that this cluster may have given: type, ports, families and VIP, affinity, labels; and others
// may add to it. What only the oldest decides waits. ok tells whether imp says enough.
func StandIn(imp *mcsv1beta1.ServiceImport, cluster string) (e clusterset.Export, ok bool) {
	spec := &imp.Spec
	if len(spec.IPFamilies) == 0 {
		return e, false // it was never of use, and nothing is lost with it
	}
	e = clusterset.Export{
		Cluster: cluster, Namespace: imp.Namespace, Name: imp.Name, Type: spec.Type,
		SessionAffinity: cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone), SessionAffinityConfig: spec.SessionAffinityConfig.DeepCopy(),
		InternalTrafficPolicy: corev1.ServiceInternalTrafficPolicyCluster, Preference: hubv1alpha1.PreferNone, Families: slices.Clone(spec.IPFamilies),
		Probe: hubv1alpha1.Probe(imp.Annotations[clusterset.AnnotationProbe]),
	}
	for _, p := range spec.Ports {
		port := clusterset.Port{Name: p.Name, Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), Number: p.Port}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		e.Ports = append(e.Ports, port)
	}
	if p := spec.InternalTrafficPolicy; p != nil {
		e.InternalTrafficPolicy = *p
	}
	if d := spec.TrafficDistribution; d != nil {
		e.TrafficDistribution = *d
	}
	if p := imp.Annotations[clusterset.AnnotationPreference]; p != "" {
		e.Preference = hubv1alpha1.Preference(p)
	}
	labels, annotations, _ := strings.Cut(imp.Annotations[AnnotationExported], ";")
	e.Labels, e.Annotations = listed(imp.Labels, labels), listed(imp.Annotations, annotations)
	return e, true
}

// listed are those of in whose keys list has.
func listed(in map[string]string, list string) map[string]string {
	keys := strings.Split(list, ",")
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(k, _ string) bool { return !slices.Contains(keys, k) })
	return out
}

// ReasonFull is why Ready is False while the ranges that VIPs come from have no room (V).
const ReasonFull = "VIPRangeFull"

// Ready is I4. failed is what the API server said to the derived Service, nil if nothing.
func Ready(m *conflict.Merged, families []corev1.IPFamily, ips []string, failed error) metav1.Condition {
	switch {
	case len(families) == 0:
		return conditions.ImportReady(metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonIPFamilyNotSupported,
			fmt.Sprintf("The exporting clusters have %v in common, none of which this cluster has.", m.Families))
	case errors.Is(failed, ipam.ErrFull):
		return conditions.ImportReady(metav1.ConditionFalse, ReasonFull, fmt.Sprintf("%v. It is tried again until there is room.", failed))
	case failed != nil:
		return conditions.ImportReady(metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending,
			fmt.Sprintf("The derived Service is not as it ought to be: %v. It is tried again until it is.", failed))
	case m.Type == mcsv1beta1.ClusterSetIP && len(m.Ports) == 0:
		return conditions.ImportReady(metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending, "No exporting cluster has a port; a clusterset IP needs one.")
	case m.Type == mcsv1beta1.ClusterSetIP && len(ips) == 0:
		return conditions.ImportReady(metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending, "Waiting for the clusterset IP.")
	}
	return conditions.ImportReady(metav1.ConditionTrue, mcsv1beta1.ServiceImportReasonReady, "The import can be used.")
}
