package members

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// older waits until the export of who is first is in effect everywhere, and makes sure that the next one is
// younger: creation times are whole
// seconds, and a wins ties.
func (s *set) older(t *testing.T, first, ns, name string) {
	t.Helper()
	for _, id := range []string{"a", "b"} {
		s.members[id].wantImport(t, ns, name, ready(first))
	}
	e := export(ns, name)
	if err := s.members[first].Get(t.Context(), client.ObjectKeyFromObject(e), e); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(e.CreationTimestamp.Add(time.Second)))
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

// TestC1C2TheOldestWins: type, in both clusters alike, though its cluster's id is the greater and its type not the
// default.
func TestC1C2TheOldestWins(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["b"].exported(t, headless(ns, "web"), "10.2.0.1")
	s.older(t, "b", ns, "web")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.both(t, ns, func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Spec.Type != mcsv1beta1.Headless {
			return errors.New("not the oldest's type")
		}
		return nil
	})
	for _, id := range []string{"a", "b"} {
		s.members[id].wantCondition(t, ns, "web", conflict, metav1.ConditionTrue, "TypeConflict")
		s.members[id].wantMessage(t, ns, "web", `Using "Headless" from oldest service export in "b"`)
	}
}

// TestC3C4Ports: the union; a port that lost gets no traffic of its cluster, the same port under another name does;
// order alone is no
// conflict.
func TestC3C4Ports(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web", port("http", 80), port("metrics", 9090)), "10.1.0.1")
	s.members["a"].exported(t, service(ns, "order", port("x", 1), port("y", 2)), "10.1.0.1")
	s.older(t, "a", ns, "web")
	s.older(t, "a", ns, "order")
	s.members["b"].exported(
		t,
		service(ns, "web", port("www", 80), port("metrics", 9091), port("extra", 7)),
		"10.2.0.1",
	)
	s.members["b"].exported(t, service(ns, "order", port("y", 2), port("x", 1)), "10.2.0.1")
	s.both(t, ns, func(imp *mcsv1beta1.ServiceImport) error {
		if got := ports(imp); got != "http:80/TCP metrics:9090/TCP extra:7/TCP " {
			return fmt.Errorf("ports %s", got)
		}
		return nil
	})
	for _, id := range []string{"a", "b"} {
		s.members[id].wantEndpoints(
			t,
			ns,
			"web",
			"a/http/10.1.0.1:8080",
			"a/metrics/10.1.0.1:17090",
			"b/http/10.2.0.1:8080",
			"b/extra/10.2.0.1:8007",
		)
		s.members[id].wantCondition(t, ns, "web", conflict, metav1.ConditionTrue, "PortConflict")
		s.members[id].wantCondition(t, ns, "order", conflict, metav1.ConditionFalse, "NoConflicts")
	}
}

// TestC3HeadlessPorts: clients of a Headless Service find the number by the port's name, so each cluster has its own.
func TestC3HeadlessPorts(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, headless(ns, "web", port("http", 80)), "10.1.0.1")
	s.older(t, "a", ns, "web")
	s.members["b"].exported(t, headless(ns, "web", port("http", 81)), "10.2.0.1")
	for _, id := range []string{"a", "b"} {
		s.members[id].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080", "b/http/10.2.0.1:8081")
		s.members[id].wantCondition(t, ns, "web", conflict, metav1.ConditionFalse, "NoConflicts")
	}
}

// TestC3Unnamed: one unnamed port stays so; beside another it gets a name.
func TestC3Unnamed(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, service(ns, "web", port("", 80)), "10.1.0.1")
	s.older(t, "a", ns, "web")
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

// TestC5C6C8TheOldestsSet: affinity and its config, policies, labels and annotations, each with its reason. The
// oldest is not the cluster with
// the smallest id, and has no default.
func TestC5C6C8TheOldestsSet(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	svc := service(ns, "web")
	local, near := corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceTrafficDistributionPreferClose
	svc.Spec.SessionAffinity, svc.Spec.InternalTrafficPolicy,
		svc.Spec.TrafficDistribution = corev1.ServiceAffinityClientIP, &local, &near
	e := export(ns, "web")
	e.Spec.ExportedLabels, e.Spec.ExportedAnnotations = map[string]string{"k": "v"}, map[string]string{"k": "v"}
	s.members["b"].create(t, svc, slice(svc, "web-1", "10.2.0.1"), e)
	s.older(t, "b", ns, "web")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.both(t, ns, func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Spec.SessionAffinity != corev1.ServiceAffinityClientIP || imp.Spec.SessionAffinityConfig == nil ||
			*imp.Spec.InternalTrafficPolicy != local || imp.Spec.TrafficDistribution == nil ||
			*imp.Spec.TrafficDistribution != near ||
			imp.Labels["k"] != "v" || imp.Annotations["k"] != "v" {
			return errors.New("not the oldest's")
		}
		return nil
	})
	for _, id := range []string{"a", "b"} {
		s.members[id].wantCondition(
			t,
			ns,
			"web",
			conflict,
			metav1.ConditionTrue,
			"SessionAffinityConflict,SessionAffinityConfigConflict,InternalTrafficPolicyConflict,"+
				"TrafficDistributionConflict,LabelsConflict,AnnotationsConflict",
		)
	}
	s.members["b"].remove(t, export(ns, "web"))
	s.members["b"].wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
		if imp.Spec.SessionAffinity != corev1.ServiceAffinityNone ||
			*imp.Spec.InternalTrafficPolicy != corev1.ServiceInternalTrafficPolicyCluster ||
			imp.Spec.TrafficDistribution != nil || imp.Labels["k"] != "" ||
			imp.Annotations["k"] != "" {
			return errors.New("not the remaining exporter's")
		}
		return ready("a")(imp)
	})
}

// TestC7FamiliesThatThisClusterHas: of those of the exporters.
func TestC7FamiliesThatThisClusterHas(t *testing.T) {
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

// TestC7I4NoFamilyThatThisClusterHas: an import says so, and who exports another family learns of the conflict; it
// comes to life when there is
// one.
func TestC7I4NoFamilyThatThisClusterHas(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	record := s.liar(t, ns, time.Now().Add(-time.Minute), group("IPv4", "10.66.0.1"))
	families := func(revision int64, families ...corev1.IPFamily) {
		t.Helper()
		change(t, &member{&lab.Member{ID: "hub"}, s.hub}, record, func(r *hubv1alpha1.ServiceExportRecord) {
			r.Spec.Revision, r.Spec.IPFamilies = revision, families
		})
	}
	families(2, corev1.IPv6Protocol)
	none := func(clusters ...string) {
		t.Helper()
		for _, id := range []string{"a", "b"} {
			s.members[id].wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
				var from []string
				for _, c := range imp.Status.Clusters {
					from = append(from, c.Cluster)
				}
				c := meta.FindStatusCondition(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
				if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "IPFamilyNotSupported" ||
					!slices.Equal(from, clusters) {
					return fmt.Errorf("want IPFamilyNotSupported, of %v", clusters)
				}
				return nil
			})
		}
	}
	none("liar")
	s.members["a"].exported(t, service(ns, "web"), "10.1.0.1")
	s.members["a"].wantCondition(t, ns, "web", conflict, metav1.ConditionTrue, "IPFamilyConflict")
	none("a", "liar")
	families(3, corev1.IPv6Protocol, corev1.IPv4Protocol)
	for _, id := range []string{"a", "b"} {
		s.members[id].wantImport(t, ns, "web", ready("a", "liar"))
		s.members[id].wantEndpoints(t, ns, "web", "a/http/10.1.0.1:8080", "liar/http/10.66.0.1:8080")
	}
	s.members["a"].wantCondition(t, ns, "web", conflict, metav1.ConditionFalse, "NoConflicts")
}
