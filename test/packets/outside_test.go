package packets

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// outside is who asks for a name for clients outside, from three networks, at the DNS server of each cluster.
type outside struct {
	name    string
	servers map[*cluster]*lab.DNS
}

// paris, boston and osaka are networks of clients. The clusters are in Berlin (a), New York (b) and Tokyo (c).
const paris, boston, osaka = "203.0.113.0/24", "192.0.2.0/24", "2001:db8:77::/48"

// balancer is the address of a cluster's load balancer.
func balancer(c *cluster) string { return fmt.Sprintf("198.51.100.%d", c.node.number) }

// outside gives each cluster a place, a Service with a load balancer that is exported for clients outside, and a DNS
// server that knows where clients are.
func (f *failover) outside(t *testing.T) *outside {
	t.Helper()
	geo := filepath.Join(t.TempDir(), "city.mmdb")
	if err := lab.WriteGeoDatabase(geo, map[string]lab.Place{
		paris:  {Latitude: 48.86, Longitude: 2.35, Continent: "EU"},
		boston: {Latitude: 42.36, Longitude: -71.06, Continent: "NA"},
		osaka:  {Latitude: 34.69, Longitude: 135.5, Continent: "AS"},
	}); err != nil {
		t.Fatal(err)
	}
	o := &outside{name: "web." + f.ns + ".global.example.org", servers: map[*cluster]*lab.DNS{}}
	place := map[*cluster]string{f.a: "52.52,13.40", f.b: "40.71,-74.01", f.c: "35.68,139.69"}
	for _, c := range f.clusters {
		location := &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: "location"}}
		location.Spec.Value = place[c]
		c.create(t, location)
		t.Cleanup(func() {
			if err := c.Delete(f.ctx, location); err != nil {
				t.Error(err)
			}
		})
		svc := service(f.ns, tcp("http", 80))
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		c.create(t, svc)
		c.create(t, c.endpoints(svc, c.ID+"1")...)
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: balancer(c)}}
		if err := c.Status().Update(t.Context(), svc); err != nil {
			t.Fatal(err)
		}
		e := export(svc)
		e.Annotations = map[string]string{"clusterset-dns.io/external": "true"}
		c.create(t, e)
		server, err := lab.ServeDNS(t.Context(), c.Cluster, func(kubeconfig string) (string, error) {
			return fmt.Sprintf(`global.example.org:DNS_PORT {
				bind 127.0.0.1
				errors
				ready READY_ADDR
				metadata
				geoip %s {
					edns-subnet
				}
				multicluster_external {
					kubeconfig %s
					edns-subnet
					nameserver 127.0.0.1
				}
			}`, geo, kubeconfig), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
		o.servers[c] = server
	}
	return o
}

// check asks the servers of these clusters from all three networks: want are the clusters whose load balancers Paris,
// Boston and Osaka must get.
func (o *outside) check(t *testing.T, at []*cluster, want ...*cluster) error {
	t.Helper()
	for _, c := range at {
		host, port, err := net.SplitHostPort(o.servers[c].Addr())
		if err != nil {
			return err
		}
		for i, from := range []string{paris, boston, osaka} {
			out, err := exec.CommandContext(
				t.Context(), "dig", "+short", "+tries=1", "+time=120", "+subnet="+from, "@"+host, "-p", port,
				o.name, "A",
			).CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != balancer(want[i]) {
				return fmt.Errorf("%s answers %s with %q (%v), not with %s", c.ID, from, got, err, balancer(want[i]))
			}
		}
	}
	return nil
}

// cut drops what passes the router between the clusters of a pair, without a farewell, in place of earlier cuts.
func (f *failover) cut(t *testing.T, pairs ...[2]*cluster) {
	t.Helper()
	rules := "add table inet cut\ndelete table inet cut\n"
	if len(pairs) > 0 {
		rules += "table inet cut { chain off { type filter hook forward priority 0; "
		for _, p := range pairs {
			rules += fmt.Sprintf("iifname node%d oifname node%d drop; iifname node%[2]d oifname node%[1]d drop; ",
				p[0].node.number, p[1].node.number)
		}
		rules += "}; }\n"
	}
	if err := f.net.router.Do(func() error { return command(rules, "nft", "-f", "-") }); err != nil {
		t.Fatal(err)
	}
}

// TestF5ClientsOutsideGetTheNearestClusterThatIsAlive, by the views of the majority: the DNS server of each cluster
// says so, also of a cluster that is cut off, because all see the hub.
func TestF5ClientsOutsideGetTheNearestClusterThatIsAlive(t *testing.T) {
	f := newFailover(t)
	t.Cleanup(func() { f.cut(t) })
	a, b, c := f.a, f.b, f.c
	o := f.outside(t)
	want := func(what string, want ...*cluster) (took time.Duration) {
		t.Helper()
		began := time.Now()
		eventually(t, what, func() error { return o.check(t, f.clusters, want...) })
		return time.Since(began)
	}
	// A cluster is down after less than five seconds: in twice that, what is to stay would have gone.
	stays := func(what string, want ...*cluster) {
		t.Helper()
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			if err := o.check(t, f.clusters, want...); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	want("everybody gets the nearest", a, b, c)
	f.proven()

	f.cut(t, [2]*cluster{c, a}, [2]*cluster{c, b})
	t.Logf("gone from all answers after %v", want("c is cut off: Osaka goes to Europe", a, b, a))
	f.cut(t)
	t.Logf("back after %v", want("c is back", a, b, c))
	f.hear(t, f.clusters...)
	for _, c := range f.clusters {
		f.wantStated(t, c)
	}

	f.cut(t, [2]*cluster{a, c})
	f.wantStated(t, a, c)
	stays("one of two does not reach c", a, b, c)

	f.cut(t, [2]*cluster{a, b}, [2]*cluster{a, c}, [2]*cluster{b, c})
	stays("nobody reaches anybody", a, b, c)
}

// wantStated waits until a cluster's Lease on the hub says that it does not reach these, and no others.
func (f *failover) wantStated(t *testing.T, c *cluster, others ...*cluster) {
	t.Helper()
	hub := allKinds(t, f.set.Hub)
	eventually(t, fmt.Sprintf("%s does not reach %d others, by its Lease", c.ID, len(others)), func() error {
		lease := &coordinationv1.Lease{}
		err := hub.Get(t.Context(), client.ObjectKey{Namespace: lab.HubNamespace, Name: c.ID}, lease)
		since, invalid := reach.ReadUnreachable(lease)
		missing := func(o *cluster) bool { return since[o.ID].IsZero() }
		err = errors.Join(err, invalid)
		if err == nil && (len(since) != len(others) || slices.ContainsFunc(others, missing)) {
			err = fmt.Errorf("it says %v", since)
		}
		return err
	})
}
