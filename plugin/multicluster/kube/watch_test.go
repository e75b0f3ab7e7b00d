package kube

import "testing"

func TestFollowsTheAPI(t *testing.T) {
	a := startAPI(t)
	a.put(clusterSetIP("web", "10.42.42.42"), headless("db"), slice("db-1", "db", "eu", "10.1.0.1", "10.1.0.2"))
	w := synced(t, open(t, a.config()))
	for key, want := range map[string]string{"web.test": "10.42.42.42", "db.test": "10.1.0.1 10.1.0.2"} {
		if got := addrs(w.Index(), key); got != want {
			t.Errorf("once synced %s answers %s, want %s", key, got, want)
		}
	}
	a.put(clusterSetIP("web", "10.42.42.43"))
	answers(t, w, "web.test", "10.42.42.43")
	a.put(slice("db-1", "db", "eu", "10.1.0.2"))
	answers(t, w, "db.test", "10.1.0.2")
	a.delete(slice("db-1", "db", "eu"))
	answers(t, w, "db.test", "absent")
	a.delete(clusterSetIP("web"))
	answers(t, w, "web.test", "absent")
}
