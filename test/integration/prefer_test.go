package integration

import (
	"testing"

	"github.com/miekg/dns"
)

// T2: the binary answers the endpoints of the own cluster alone while one of them is ready, at once the others when it
// goes, those
// of a zone before all others, and names of zones.
func TestT2PreferAndZonal(t *testing.T) {
	c := fixtureCluster(t)
	c.kubectl(t, "", "create", "namespace", "near")
	t.Cleanup(func() { c.kubectl(t, "", "delete", "namespace", "near", "--wait=false") })
	c.apply(t, headless("near", "db")+"---\n"+zoned("z-1", slice("near", "db", "cluster-a", "10.9.0.1"))+"---\n"+
		zoned("z-2", slice("near", "db", "cluster-b", "10.9.0.2", "10.9.0.3")))
	s := c.serve(t, `.:0 {
		bind 127.0.0.1
		errors
		multicluster {
			kubeconfig KUBECONFIG
			prefer local cluster-a subset
			zonal
		}
	}`)
	const db = "db.near.svc.clusterset.local."
	s.waitForAnswer(t, db, "A", "10.9.0.1")
	s.waitForAnswer(t, "z-2.pin._zone."+db, "A", "10.9.0.2,10.9.0.3")
	s.waitForAnswer(t, "z-9.prefer._zone."+db, "A", "10.9.0.1") // as the Service
	if m := dig(
		t,
		s.addr,
		question{name: "z-9.pin._zone." + db, qtype: "A"},
	); m.Rcode != dns.RcodeSuccess ||
		len(m.Answer) > 0 {
		t.Errorf("a zone without endpoints: %v, want NODATA", m)
	}
	c.kubectl(t, "", "-n", "near", "delete", "endpointslice/db-cluster-a")
	s.waitForAnswer(t, db, "A", "10.9.0.2,10.9.0.3")
	s.waitForAnswer(t, "z-9.prefer._zone."+db, "A", "10.9.0.2,10.9.0.3")
	c.apply(t, zoned("z-1", slice("near", "db", "cluster-a", "10.9.0.4")))
	s.waitForAnswer(t, db, "A", "10.9.0.4")

	near := c.serve(t, `.:0 {
		bind 127.0.0.1
		errors
		multicluster {
			kubeconfig KUBECONFIG
			prefer zone z-2 order
		}
	}`)
	near.waitForAnswer(t, db, "A", "10.9.0.2,10.9.0.3,10.9.0.4")

	plain := c.serve(t, stanza)
	plain.waitForAnswer(t, db, "A", "10.9.0.4,10.9.0.3,10.9.0.2") // one of its turns
	plain.waitForNone(t, "z-1.pin._zone."+db)
}
