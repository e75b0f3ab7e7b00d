// Package imports decides the content of a ServiceImport (SPEC I3–I5, C7, C8). The input is the merged export, the
// families of this cluster and the VIPs; the output is metadata, spec, status and the condition Ready. It is pure and
// writes nothing.
package imports

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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
	// AnnotationExported lists the keys of the exported labels, then of the exported annotations, so that they can be
	// removed later while those that users added stay.
	AnnotationExported = "clusterset-dns.io/exported"
	// AnnotationAwaitsVIP marks an import that stays Headless until there is a VIP (C9): its exports are ClusterSetIP.
	AnnotationAwaitsVIP = "clusterset-dns.io/awaits-vip"
	// AnnotationFilled marks an import that another program declared and the agent fills (I11). It has the VIPs that
	// the agent wrote, separated by commas, or Emptied.
	AnnotationFilled = "clusterset-dns.io/filled"
	// Emptied is the value of AnnotationFilled after Clear, while slices of the import are still to go.
	Emptied = "emptied"
)

// Metadata sets the exported labels and annotations (C8) and ours on imp, and removes those of earlier exports. An
// export cannot override ours. What users added stays.
func Metadata(imp *mcsv1beta1.ServiceImport, m *conflict.Merged, derivedName, manager string) {
	oldLabels, oldAnnotations, _ := strings.Cut(imp.Annotations[AnnotationExported], ";")
	labels, annotations := maps.Clone(imp.Labels), maps.Clone(imp.Annotations)
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	removeListed(labels, oldLabels)
	removeListed(annotations, oldAnnotations)
	exportedLabels, exportedAnnotations := allowed(m.Labels), allowed(m.Annotations)
	maps.Copy(labels, exportedLabels)
	maps.Copy(annotations, exportedAnnotations)
	labels[derived.LabelManagedBy] = manager
	annotations[AnnotationDerived] = derivedName
	delete(annotations, derived.AnnotationAdopt)
	delete(annotations, AnnotationFilled)
	delete(annotations, AnnotationAwaitsVIP)
	delete(annotations, clusterset.AnnotationPreference)
	delete(annotations, clusterset.AnnotationMinReady)
	if m.Preference != hubv1alpha1.PreferNone && m.Preference != "" {
		annotations[clusterset.AnnotationPreference] = string(m.Preference)
		if m.MinReady != "" {
			annotations[clusterset.AnnotationMinReady] = string(m.MinReady)
		}
	}
	delete(annotations, AnnotationExported)
	if len(exportedLabels)+len(exportedAnnotations) > 0 {
		annotations[AnnotationExported] = keys(exportedLabels) + ";" + keys(exportedAnnotations)
	}
	imp.Labels, imp.Annotations = labels, annotations
}

func removeListed(from map[string]string, list string) {
	for _, k := range strings.Split(list, ",") {
		if !clusterset.Reserved(k) {
			delete(from, k)
		}
	}
}

func allowed(in map[string]string) map[string]string {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(k, _ string) bool { return clusterset.Reserved(k) })
	return out
}

func keys(m map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(m)), ",") }

// Spec returns the spec of the import (I3). ips are in the order of families.
func Spec(m *conflict.Merged, families []corev1.IPFamily, ips []string) mcsv1beta1.ServiceImportSpec {
	spec := mcsv1beta1.ServiceImportSpec{
		Type: m.Type, IPs: ips, IPFamilies: families, Ports: []mcsv1beta1.ServicePort{},
		SessionAffinity: m.SessionAffinity, SessionAffinityConfig: m.SessionAffinityConfig.DeepCopy(),
		InternalTrafficPolicy: ptr.To(m.InternalTrafficPolicy),
	}
	for _, p := range m.Ports {
		port := mcsv1beta1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Number}
		if p.AppProtocol != "" {
			port.AppProtocol = ptr.To(p.AppProtocol)
		}
		spec.Ports = append(spec.Ports, port)
	}
	if m.TrafficDistribution != "" {
		spec.TrafficDistribution = ptr.To(m.TrafficDistribution)
	}
	return spec
}

// Status returns the status of the import without its conditions (I4, I5).
func Status(m *conflict.Merged) mcsv1beta1.ServiceImportStatus {
	status := mcsv1beta1.ServiceImportStatus{EndpointSliceObjects: mcsv1beta1.EndpointSliceObjectsPresent}
	for _, c := range m.Clusters {
		status.Clusters = append(status.Clusters, mcsv1beta1.ClusterStatus{Cluster: c})
	}
	return status
}

// StandIn returns an export with everything that imp says. It stands in for an exporter whose record cannot be read,
// so that nothing is removed that this exporter may have contributed, while others may add to it. live are the exports
// that it is merged with. ok is false if imp was never usable.
func StandIn(imp *mcsv1beta1.ServiceImport, cluster string, live []clusterset.Export) (e clusterset.Export, ok bool) {
	spec := &imp.Spec
	if len(spec.IPFamilies) == 0 {
		return e, false
	}
	e = clusterset.Export{
		Cluster:               cluster,
		Namespace:             imp.Namespace,
		Name:                  imp.Name,
		Type:                  spec.Type,
		Families:              slices.Clone(spec.IPFamilies),
		SessionAffinity:       cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone),
		SessionAffinityConfig: spec.SessionAffinityConfig.DeepCopy(),
		InternalTrafficPolicy: ptr.Deref(spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster),
		TrafficDistribution:   ptr.Deref(spec.TrafficDistribution, ""),
		Preference:            hubv1alpha1.PreferNone,
	}
	if imp.Annotations[AnnotationAwaitsVIP] != "" {
		e.Type = mcsv1beta1.ClusterSetIP
	}
	if p, err := clusterset.ParsePreference(imp.Annotations[clusterset.AnnotationPreference]); err == nil {
		e.Preference = p
	}
	e.MinReady, _ = clusterset.ParseMinReady(imp.Annotations[clusterset.AnnotationMinReady])
	for _, p := range spec.Ports {
		e.Ports = append(e.Ports, clusterset.Port{
			Name:        p.Name,
			Protocol:    cmp.Or(p.Protocol, corev1.ProtocolTCP),
			Number:      p.Port,
			AppProtocol: ptr.Deref(p.AppProtocol, ""),
		})
	}
	if e.Type == mcsv1beta1.Headless && len(e.Ports) > 1 { // a merge names no single port
		for i := range live {
			forgetGivenName(e.Ports, live[i].Ports)
		}
	}
	labels, annotations, _ := strings.Cut(imp.Annotations[AnnotationExported], ";")
	e.Labels, e.Annotations = listed(imp.Labels, labels), listed(imp.Annotations, annotations)
	return e, true
}

// forgetGivenName removes the name that a merge gave to the unnamed port of a live export: tcp-80, or if that is taken
// tcp-80-2, and so on. The ports of a Headless import are told apart by their names (C3), so the next merge would add
// the unnamed port once more, with the next number. If several ports have such names, the last one is the merge's.
func forgetGivenName(imported, exported []clusterset.Port) {
	if len(exported) != 1 || exported[0].Name != "" {
		return // only a single port may be unnamed
	}
	p, given := exported[0], -1
	for name, n := conflict.GivenName(p), 2; ; n++ {
		i := slices.IndexFunc(imported, func(q clusterset.Port) bool { return q.Name == name })
		if i < 0 {
			break
		}
		if imported[i].Key() == p.Key() {
			given = i
		}
		name = fmt.Sprintf("%s-%d", conflict.GivenName(p), n)
	}
	merged := func(q clusterset.Port) bool { return q.Name == "" && q.Protocol == p.Protocol }
	if given >= 0 && !slices.ContainsFunc(imported, merged) { // else p is the same port as that of another live export
		imported[given].Name = ""
	}
}

// listed returns the entries of in whose keys are in the list.
func listed(in map[string]string, list string) map[string]string {
	keys := strings.Split(list, ",")
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(k, _ string) bool { return !slices.Contains(keys, k) })
	return out
}

// ReasonFull is the reason of Ready False while the VIP ranges are full (V).
const ReasonFull = "VIPRangeFull"

// Ready returns the condition Ready (I4). failed is why the derived Service could not be written; nil if it could.
func Ready(m *conflict.Merged, families []corev1.IPFamily, ips []string, failed error) metav1.Condition {
	switch {
	case len(families) == 0:
		return conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonIPFamilyNotSupported, fmt.Sprintf(
			"The exporting clusters have IP families %v in common. This cluster supports none of them.", m.Families))
	case errors.Is(failed, ipam.ErrFull):
		return conditions.Ready(metav1.ConditionFalse, ReasonFull,
			fmt.Sprintf("%v. The agent retries until an address is free.", failed))
	case failed != nil:
		return conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending,
			fmt.Sprintf("Writing the derived Service failed: %v. The agent retries.", failed))
	case m.Type == mcsv1beta1.ClusterSetIP && len(m.Ports) == 0:
		return conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending,
			"No exporting cluster has a port. A clusterset IP needs one.")
	case m.Type == mcsv1beta1.ClusterSetIP && len(ips) == 0:
		return conditions.Ready(metav1.ConditionFalse, mcsv1beta1.ServiceImportReasonPending,
			"Waiting for the clusterset IP.")
	}
	return conditions.Ready(metav1.ConditionTrue, mcsv1beta1.ServiceImportReasonReady, "The import is usable.")
}
