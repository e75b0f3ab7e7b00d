package members

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// liar writes records as a member that has no agent of ours: by the rights, and through the policies, of
// deploy/hub/member. It renews its Lease from
// then on: who was dead to a member in one test would be so in the next.
func (s *set) liar(
	t *testing.T, ns string, since time.Time, groups ...hubv1alpha1.EndpointGroup,
) *hubv1alpha1.ServiceExportRecord {
	t.Helper()
	s.liarJoins(t)
	origin := hubv1alpha1.Origin{ClusterID: "liar", ServiceNamespace: ns, ServiceName: "web", Revision: 1}
	record := &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: "web." + ns + ".liar"},
		Spec: hubv1alpha1.ServiceExportRecordSpec{
			Origin:     origin,
			ExportedAt: &metav1.Time{Time: since},
			Type:       "ClusterSetIP",
			Ports: []hubv1alpha1.ServicePort{
				{Name: "http", Protocol: "TCP", Port: 80},
			},
			IPFamilies: []corev1.IPFamily{"IPv4"},
		},
	}
	record.Spec.Endpoints = groups
	s.lie(t, record)
	return record
}

// group is one of endpoints that listen at 8080 for port 80.
func group(family discoveryv1.AddressType, addresses ...string) hubv1alpha1.EndpointGroup {
	target := int32(8080)
	out := hubv1alpha1.EndpointGroup{AddressType: family,
		Ports: []hubv1alpha1.EndpointPort{{Protocol: "TCP", Port: 80, Target: &target}}}
	for _, a := range addresses {
		out.Endpoints = append(out.Endpoints, hubv1alpha1.Endpoint{Address: a})
	}
	return out
}

// liarJoins makes the liar a member, once.
func (s *set) liarJoins(t *testing.T) {
	t.Helper()
	s.lives.Do(func() {
		root, err := lab.Root()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Hub.Apply(t.Context(), lab.HubMember(root, "liar")); err != nil {
			t.Fatal(err)
		}
		file, err := s.Hub.ServiceAccountKubeconfig(t.Context(), lab.HubNamespace, "mcs-liar", nil)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := clientcmd.BuildConfigFromFlags("", file)
		if err != nil {
			t.Fatal(err)
		}
		if s.asLiar, err = client.New(cfg, client.Options{Scheme: agent.Scheme()}); err != nil {
			t.Fatal(err)
		}
		if err := s.renewLiar(t.Context()); err != nil {
			t.Fatal(err)
		}
		go func() {
			for { // as long as the hub is there
				time.Sleep(5 * time.Second)
				_ = s.renewLiar(context.Background())
			}
		}()
	})
}

// lie writes these to the hub.
func (s *set) lie(t *testing.T, records ...client.Object) {
	t.Helper()
	for _, record := range records {
		if err := s.asLiar.Create(t.Context(), record); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *set) renewLiar(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: "liar"}}
	_, err := controllerutil.CreateOrUpdate(ctx, s.asLiar, lease, func() error {
		now := metav1.NowMicro()
		lease.Spec.RenewTime = &now
		return nil
	})
	return err
}

// TestS4ALyingPeer: addresses that no peer may claim are not imported, and the user of the import is told; the
// others are.
func TestS4ALyingPeer(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a")
	s.liar(t, ns, time.Now(), group("IPv4", "127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "10.66.0.1"))
	s.members["a"].wantImport(t, ns, "web", ready("liar"))
	s.members["a"].wantEndpoints(t, ns, "web", "liar/http/10.66.0.1:8080")
	s.members["a"].wantEvent(
		t,
		ns,
		"web",
		"EndpointsRefused",
		"127.0.0.1",
		"169.254.169.254",
		"224.0.0.1",
		"0.0.0.0",
	)
}

// TestS4ReservedAndIPv6: what c's agent was given as --reserved-cidrs is refused there alone, and of IPv6 what is
// of IPv4; each is named.
func TestS4ReservedAndIPv6(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "c")
	s.liar(t, ns, time.Now(), group("IPv4", "10.77.0.1", "10.66.0.1"), group("IPv6", "fe80::1", "::1"))
	s.members["a"].wantEndpoints(t, ns, "web", "liar/http/10.66.0.1:8080", "liar/http/10.77.0.1:8080")
	s.members["c"].wantEndpoints(t, ns, "web", "liar/http/10.66.0.1:8080")
	s.members["c"].wantEvent(t, ns, "web", "EndpointsRefused", "10.77.0.1")
	for _, id := range []string{"a", "c"} {
		s.members[id].wantEvent(t, ns, "web", "EndpointsRefused", "fe80::1", "::1")
	}
}

// TestC1ABackdatedExport wins conflicts with who exported at most ten minutes before it; later it does not:
// TestC1WhoJoinsLateUpsetsNothing in test/packets.
func TestC1ABackdatedExport(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a", "b")
	s.members["a"].exported(t, headless(ns, "web"), "10.1.0.1")
	s.older(t, "a", ns, "web")
	s.liar(t, ns, time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), group("IPv4", "10.66.0.1"))
	for _, id := range []string{"a", "b"} {
		s.members[id].wantImport(t, ns, "web", func(imp *mcsv1beta1.ServiceImport) error {
			if imp.Spec.Type != mcsv1beta1.ClusterSetIP {
				return errors.New("not the type of who says that it is the oldest")
			}
			return ready("a", "liar")(imp)
		})
	}
	s.members["a"].wantCondition(t, ns, "web", conflict, metav1.ConditionTrue, "TypeConflict")
}

// TestARecordThatIsNonsense to Kubernetes, though the hub's schema lets it pass, is not imported, and says so.
func TestARecordThatIsNonsense(t *testing.T) {
	s := three(t)
	s.liarJoins(t)
	ns := s.namespace(t, "a")
	bad := "not a protocol!"
	record := &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: "web." + ns + ".liar"},
		Spec: hubv1alpha1.ServiceExportRecordSpec{
			Origin: hubv1alpha1.Origin{
				ClusterID:        "liar",
				ServiceNamespace: ns,
				ServiceName:      "web",
				Revision:         1,
			},
			ExportedAt: &metav1.Time{Time: time.Now()},
			Type:       "ClusterSetIP",
			IPFamilies: []corev1.IPFamily{"IPv4"},
			Ports:      []hubv1alpha1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, AppProtocol: &bad}},
		},
	}
	s.lie(t, record)
	s.members["a"].wantEvent(t, "clusterset-system", record.Name, "RecordRefused")
	if _, err := s.members["a"].imported(t.Context(), ns, "web"); err == nil {
		t.Error("it is imported")
	}
}

// TestEndpointsThatAreNonsense, one port twice, are not imported, and an Event on the import reports them. The
// cluster's other groups are imported.
func TestEndpointsThatAreNonsense(t *testing.T) {
	s := three(t)
	ns := s.namespace(t, "a")
	bad, other := group("IPv4", "10.66.0.2"), int32(8081)
	bad.Ports = append(bad.Ports, hubv1alpha1.EndpointPort{Protocol: "TCP", Port: 80, Target: &other})
	s.liar(t, ns, time.Now(), group("IPv4", "10.66.0.1"), bad)
	s.members["a"].wantEvent(t, ns, "web", "RecordRefused", "liar", "80/TCP")
	s.members["a"].wantEndpoints(t, ns, "web", "liar/http/10.66.0.1:8080")
}

// TestALostCopyRetiresNothing: who deletes this cluster's copies of its peers' records, or of its own, deletes
// nothing that is imported.
// The copies are recreated.
func TestALostCopyRetiresNothing(t *testing.T) {
	s := three(t)
	a, b := s.members["a"], s.members["b"]
	ns := s.namespace(t, "a", "b")
	a.exported(t, service(ns, "web"), "10.1.0.1")
	b.exported(t, service(ns, "mine"), "10.2.0.1")
	endpoints := map[string]string{"web": "a/http/10.1.0.1:8080", "mine": "b/http/10.2.0.1:8080"}
	for name, cluster := range map[string]string{"web": "a", "mine": "b"} {
		was := b.wantImport(t, ns, name, ready(cluster))
		b.wantEndpoints(t, ns, name, endpoints[name])
		stop := b.throughout(t, ns, name, func(got map[string]bool) bool { return !got[endpoints[name]] })
		for range 5 {
			rec := &hubv1alpha1.ServiceExportRecord{ObjectMeta: objectMeta(name + "." + ns + "." + cluster)}
			rec.Namespace = "clusterset-system"
			deleted := types.UID("")
			eventually(t, "the copy is recreated", func() error {
				if err := b.Get(t.Context(), client.ObjectKeyFromObject(rec), rec); err != nil {
					return err
				}
				if deleted == "" {
					deleted = rec.UID
					b.remove(t, rec)
				}
				if rec.UID == deleted {
					return errors.New("it is the old one")
				}
				return nil
			})
		}
		if bad := stop(); len(bad) > 0 {
			t.Errorf("%s: without its endpoints: %v", name, bad)
		}
		if is := b.wantImport(t, ns, name, ready(cluster)); is.UID != was.UID {
			t.Errorf("%s: the import was %s, and is %s", name, was.UID, is.UID)
		}
	}
}
