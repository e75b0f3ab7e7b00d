package members

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// older waits until a's export is in effect everywhere, and makes sure that the next one is younger: creation times are whole seconds,
// and a wins ties.
func (s *set) older(t *testing.T, ns, name string) {
	t.Helper()
	for _, id := range []string{"a", "b"} {
		s.members[id].wantImport(t, ns, name, ready("a"))
	}
}

func (s *set) both(t *testing.T, ns string, check func(*mcsv1beta1.ServiceImport) error) {
	t.Helper()
	for _, id := range []string{"a", "b"} {
		s.members[id].wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
			return errors.Join(ready("a", "b")(imp), check(imp))
		})
	}
}

func ports(imp *mcsv1beta1.ServiceImport) string {
	out := ""
	for _, p := range imp.Spec.Ports {
		out += fmt.Sprintf("%s:%d/%s ", p.Name, p.Port, p.Protocol)
	}
	return out
}

// TestC1C2TheOldestWins: type, in both clusters alike.
func TestC1C2TheOldestWins(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, headless(ns, "web"), "10.1.0.1")
	s.older(t, ns, "web")
	s.members["b"].exported(t, service(ns, "web"), "10.2.0.1")
	s.both(t, ns, func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Spec.Type != mcsv1beta1.Headless {
			return errors.New("not the oldest's type")
		}
		return nil
	})
	s.members["a"].wantCondition(t, ns, "web", conflict, metav1.ConditionTrue, "TypeConflict")
}

// TestC3C4Ports: the union; a port that lost gets no traffic of its cluster, the same port under another name does; order alone is no
// conflict.
func TestC3C4Ports(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web", port("http", 80), port("metrics", 9090)), "10.1.0.1")
	s.members["a"].exported(t, service(ns, "order", port("x", 1), port("y", 2)), "10.1.0.1")
	s.older(t, ns, "web")
	s.older(t, ns, "order")
	s.members["b"].exported(t, service(ns, "web", port("www", 80), port("metrics", 9091), port("extra", 7)), "10.2.0.1")
	s.members["b"].exported(t, service(ns, "order", port("y", 2), port("x", 1)), "10.2.0.1")
	s.both(t, ns, func(imp *mcsv1beta1.ServiceImport) error {
		if got := ports(imp); got != "http:80/TCP metrics:9090/TCP extra:7/TCP " {
			return fmt.Errorf("ports %s", got)
		}
		return nil
	})
	for _, id := range []string{"a", "b"} {
		s.members[id].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080", "a/metrics/10.1.0.1:17090", "b/http/10.2.0.1:8080", "b/extra/10.2.0.1:8007")
		s.members[id].wantCondition(t, ns, "web", conflict, metav1.ConditionTrue, "PortConflict")
		s.members[id].wantCondition(t, ns, "order", conflict, metav1.ConditionFalse, "NoConflicts")
	}
}

// TestC3Unnamed: one unnamed port stays so; beside another it gets a name.
func TestC3Unnamed(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web", port("", 80)), "10.1.0.1")
	s.older(t, ns, "web")
	s.members["b"].wantEndpoints(t, ns, "web", "a//10.1.0.1:8080")
	s.members["b"].exported(t, service(ns, "web", port("", 81)), "10.2.0.1")
	s.both(t, ns, func(imp *mcsv1beta1.ServiceImport) error {
		if got := ports(imp); got != "tcp-80:80/TCP tcp-81:81/TCP " {
			return fmt.Errorf("ports %s", got)
		}
		return nil
	})
	s.members["b"].wantEndpoints(t, ns, "web", "a/tcp-80/10.1.0.1:8080", "b/tcp-81/10.2.0.1:8081")
}

// TestC5C6C8TheOldestsSet: affinity and its config, policies, labels and annotations, each with its reason.
func TestC5C6C8TheOldestsSet(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.older(t, ns, "web")
	svc := service(ns, "web")
	local, near := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceTrafficDistributionPreferClose
	svc.Spec.SessionAffinity, svc.Spec.InternalTrafficPolicy, svc.Spec.TrafficDistribution = corev1.ServiceAffinityClientIP, &local, &near
	e := export(ns, "web")
	e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{"k": "v"}, map[string]string{"k": "v"}
	s.members["b"].create(t, svc, slice(svc, "web-1", "10.2.0.1"), e)
	s.both(t, ns, func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Spec.SessionAffinity != corev1.ServiceAffinityNone || imp.Spec.SessionAffinityConfig != nil ||
			*imp.Spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster || imp.Spec.TrafficDistribution != nil || imp.Labels["k"] != "" || imp.Annotations["k"] != "" {
			return errors.New("not the oldest's")
		}
		return nil
	})
	for _, id := range []string{"a", "b"} {
		s.members[id].wantCondition(t, ns, "web", conflict, metav1.ConditionTrue,
			"SessionAffinityConflict,SessionAffinityConfigConflict,InternalTrafficPolicyConflict,TrafficDistributionConflict,LabelsConflict,AnnotationsConflict")
	}
	s.members["a"].remove(t, export(ns, "web"))
	s.members["a"].wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || imp.Labels["k"] != "v" {
			return errors.New("not the remaining exporter's")
		}
		return ready("b")(imp)
	})
}

// TestC7NoFamilyThatThisClusterHas: an import says so, and comes to life when there is one.
func TestC7NoFamilyThatThisClusterHas(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	svc := headless(ns, "web") // a headless Service without selector may have families that the cluster lacks
	both := corev1.IPFamilyPolicyRequireDualStack
	svc.Spec.IPFamilyPolicy = &both
	s.members["a"].exported(t, svc, "10.1.0.1")
	s.members["b"].wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
		if len(imp.Spec.IPFamilies) != 1 || imp.Spec.IPFamilies[0] != corev1.IPv4Protocol {
			return fmt.Errorf("families %v, want what this cluster has", imp.Spec.IPFamilies)
		}
		return ready("a")(imp)
	})
}
