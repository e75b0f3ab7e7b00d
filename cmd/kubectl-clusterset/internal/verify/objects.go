package verify

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

const (
	vipName      = "probe"          // a ClusterSetIP Service
	headlessName = "probe-headless" // a Headless one
	port         = 8080
)

// label is on everything that verify creates.
const label = "clusterset-dns.io/verify"

// objects returns what verify creates in a cluster: a Pod that answers with the cluster's ID, and two exported Services
// that select it. The image is that of clusterset-controller, whose command probe serves the ID at /name. The Pod
// satisfies the restricted Pod Security Standard. exportTo is the value of AnnotationExportTo; "" exports to all.
func objects(namespace, id, image, exportTo string) []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{label: "true"}}
	}
	web := &corev1.Service{ObjectMeta: meta(vipName), Spec: corev1.ServiceSpec{
		Selector:       map[string]string{label: "true"},
		IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
		Ports:          []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(port)}},
	}}
	headless := &corev1.Service{ObjectMeta: meta(headlessName), Spec: *web.Spec.DeepCopy()}
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	pod := &corev1.Pod{ObjectMeta: meta(vipName), Spec: corev1.PodSpec{
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		NodeSelector:                  map[string]string{corev1.LabelOSStable: "linux"},
		// A lost packet is sent again before the probe gives up the lookup, which is after 3 seconds.
		DNSConfig: &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{
			{Name: "timeout", Value: ptr.To("1")}, {Name: "attempts", Value: ptr.To("3")},
		}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   ptr.To(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:  "probe",
			Image: image,
			Args:  []string{"probe", "-name=" + id},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port}},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/name", Port: intstr.FromInt32(port)},
				},
				PeriodSeconds: 1,
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}}
	out := []client.Object{pod, web, headless}
	for _, name := range []string{vipName, headlessName} {
		export := &mcsv1beta1.ServiceExport{ObjectMeta: meta(name)}
		if exportTo != "" {
			export.Annotations = map[string]string{clusterset.AnnotationExportTo: exportTo}
		}
		out = append(out, export)
	}
	return out
}
