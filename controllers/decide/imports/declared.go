package imports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
)

// Fillable reports whether an import has no VIPs, or only those that the agent wrote (I11).
func Fillable(imp *mcsv1beta1.ServiceImport) bool {
	return len(imp.Spec.IPs) == 0 || strings.Join(imp.Spec.IPs, ",") == imp.Annotations[AnnotationFilled]
}

// Fill writes ips into an import that another program declared. Everything else in it is that program's (I11). A
// Headless import gets none, whatever is exported. IPs from the time before that program took the import over are
// listed first, and changed by the next pass: the policy clusterset-agent lets the agent change only what is listed.
func Fill(imp *mcsv1beta1.ServiceImport, ips []string) {
	if imp.Spec.Type == mcsv1beta1.Headless {
		ips = nil
	}
	if !Fillable(imp) {
		ips = imp.Spec.IPs
	}
	imp.Spec.IPs = ips
	metav1.SetMetaDataAnnotation(&imp.ObjectMeta, AnnotationFilled, strings.Join(ips, ","))
}

// Clear removes the VIPs that Fill wrote, and marks the import as Emptied. VIPs that another program has written since
// stay.
func Clear(imp *mcsv1beta1.ServiceImport) {
	if Fillable(imp) {
		imp.Spec.IPs = nil
	}
	metav1.SetMetaDataAnnotation(&imp.ObjectMeta, AnnotationFilled, Emptied)
}

// ClearStatus removes what the agent writes into a status.
func ClearStatus(status *mcsv1beta1.ServiceImportStatus) {
	status.Clusters, status.EndpointSliceObjects = nil, ""
	meta.RemoveStatusCondition(&status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
}

// ReasonDeclaredType is the reason of Ready False while an import is declared with another type than is exported.
const ReasonDeclaredType = "DeclaredTypeDiffers"

// Declared returns the condition Ready of an import that another program declared: ready, with what its declaration
// has and the exports have not. An import of another type than theirs cannot be used.
func Declared(ready metav1.Condition, imp *mcsv1beta1.ServiceImport, m *conflict.Merged) metav1.Condition {
	if imp.Spec.Type != m.Type {
		return conditions.Ready(metav1.ConditionFalse, ReasonDeclaredType, fmt.Sprintf(
			"The import is declared as %s, and the Service is exported as %s. Whoever declared it must change that.",
			imp.Spec.Type, m.Type))
	}
	declared, exported := portTexts(imp.Spec.Ports), portTexts(Spec(m, nil, nil).Ports)
	if !slices.Equal(declared, exported) {
		ready.Message += fmt.Sprintf(" Its declared ports %v differ from the exported ports %v, which the VIP and the "+
			"EndpointSlices have.", declared, exported)
	}
	return ready
}

// portTexts returns ports by name, number and protocol, in an order that does not depend on that of the list.
func portTexts(ports []mcsv1beta1.ServicePort) (out []string) {
	for _, p := range ports {
		text := fmt.Sprintf("%s %d/%s", p.Name, p.Port, cmp.Or(p.Protocol, corev1.ProtocolTCP))
		out = append(out, strings.TrimSpace(text))
	}
	slices.Sort(out)
	return out
}
