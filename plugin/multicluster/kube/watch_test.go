package kube

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

func TestFollowsTheAPI(t *testing.T) {
	for name, streams := range map[string]bool{"streamed list": true, "list": false} {
		t.Run(name, func(t *testing.T) {
			a := startAPI(t)
			a.noStreams = !streams
			a.put(
				clusterSetIP("web", "10.42.42.42"),
				headless("db"),
				slice("db-1", "db", "eu", "10.1.0.1", "10.1.0.2"),
			)
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
			deletion := a.delete(clusterSetIP("web"))
			answers(t, w, "web.test", "absent")
			if got := w.Index().Serial(); uint64(got) != deletion {
				t.Errorf("serial %d, want %d: the version of the deletion (M4)", got, deletion)
			}
			if err := w.Refused(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestN17ASliceThatKubernetesTakesOver is answered no longer, from the change on.
func TestN17ASliceThatKubernetesTakesOver(t *testing.T) {
	a := startAPI(t)
	s := slice("db-1", "db", "eu", "10.1.0.1")
	a.put(headless("db"), s)
	w := synced(t, open(t, a.config()))
	answers(t, w, "db.test", "10.1.0.1")
	s.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	version := a.put(s)
	answers(t, w, "db.test", "absent")
	if got := w.Index().Serial(); uint64(got) != version {
		t.Errorf("serial %d, want %d", got, version)
	}
}

// TestHowEachIsListed: ServiceImports whole, EndpointSlices as a stream (decision 0014), after an
// expired version too.
func TestHowEachIsListed(t *testing.T) {
	a := startAPI(t)
	a.put(clusterSetIP("web", "10.42.0.1"), slice("db-1", "db", "eu", "10.1.0.1"))
	w := synced(t, open(t, a.config()))
	lists := func() (whole, streamed []string) {
		for _, r := range a.asked() {
			plural := r[strings.LastIndexByte(r[:strings.IndexByte(r, '?')], '/')+1 : strings.IndexByte(r, '?')]
			switch {
			case strings.Contains(r, "sendInitialEvents=true"):
				streamed = append(streamed, plural)
			case !strings.Contains(r, "watch=true"):
				whole = append(whole, plural)
			}
		}
		return whole, streamed
	}
	check := func(n int) {
		t.Helper()
		whole, streamed := lists()
		if !slices.Equal(whole, slices.Repeat([]string{"serviceimports"}, n)) ||
			!slices.Equal(streamed, slices.Repeat([]string{"endpointslices"}, n)) {
			t.Errorf(
				"listed whole: %v, streamed: %v; want ServiceImports and EndpointSlices %d times",
				whole,
				streamed,
				n,
			)
		}
	}
	check(1)
	a.put(clusterSetIP("web", "10.42.0.2"))
	answers(t, w, "web.test", "10.42.0.2")
	a.edit(func() { // at once, so that no bookmark brings a watch to the version that is left
		a.version++
		a.compacted, a.log = a.version, nil
		a.generation++
	})
	eventually(t, "both listed again", func() bool {
		whole, streamed := lists()
		return len(whole)+len(streamed) == 4
	})
	check(2)
}

func TestNotSyncedWhileSlicesAreMissing(t *testing.T) {
	out := capture(t)
	a := startAPI(t)
	a.put(clusterSetIP("web", "10.42.0.1"))
	a.edit(func() { a.forbidden["endpointslices"] = true })
	w := open(t, a.config())
	eventually(t, "refused", func() bool { return w.Refused() != nil })
	if w.Synced() {
		t.Fatal("synced without EndpointSlices (L1)")
	}
	if got := w.Refused().Error(); got != "not allowed to list and watch EndpointSlices: bind ClusterRole "+
		"clusterset-dns:coredns to the user that CoreDNS authenticates as (deploy/coredns does so for "+
		"kube-system/coredns)" {
		t.Error(got)
	}
	a.edit(func() { a.forbidden["endpointslices"] = false })
	synced(t, w)
	if w.Refused() != nil {
		t.Error("refused though synced")
	}
	if n := strings.Count(out.String(), "not allowed"); n != 1 {
		t.Errorf("%d lines about one refusal:\n%s", n, out)
	}
}

func TestMissingCRDIsFoundWhenItComes(t *testing.T) {
	out := capture(t)
	a := startAPI(t)
	a.edit(func() { delete(a.served, "/apis/multicluster.x-k8s.io/v1beta1") })
	w := open(t, a.config())
	eventually(t, "refused", func() bool { return w.Refused() != nil })
	if got := w.Refused().Error(); got != "ServiceImports are not served by the API server: apply deploy/crds" {
		t.Error(got)
	}
	tries := len(a.asked())
	eventually(t, "three more attempts", func() bool { return len(a.asked()) > tries+12 })
	a.put(clusterSetIP("web", "10.42.0.1"))
	a.edit(func() { a.served["/apis/multicluster.x-k8s.io/v1beta1"] = true })
	synced(t, w)
	answers(t, w, "web.test", "10.42.0.1")
	eventually(t, "api_up", w.health.up)
	if n := strings.Count(out.String(), "not served"); n != 1 || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("want one line about the CRD and two when it is there:\n%s", out)
	}
}

func TestServedVersionIsFollowed(t *testing.T) {
	const v1alpha1, v1beta1 = "/apis/multicluster.x-k8s.io/v1alpha1", "/apis/multicluster.x-k8s.io/v1beta1"
	a := startAPI(t)
	a.served[v1alpha1], a.served[v1beta1] = true, false
	a.put(clusterSetIP("web", "10.42.0.1"))
	w := synced(t, open(t, a.config()))
	answers(t, w, "web.test", "10.42.0.1") // L5
	a.edit(func() { a.served[v1alpha1], a.served[v1beta1] = false, true })
	a.put(clusterSetIP("web", "10.42.0.2"))
	a.endWatches()
	answers(t, w, "web.test", "10.42.0.2")
	a.edit(func() { a.served[v1beta1] = false })
	eventually(t, "api_up 0", func() bool {
		a.endWatches() // again: the watch after the list may begin just now
		return !w.health.up()
	})
	answers(t, w, "web.test", "10.42.0.2") // nothing is served, so nothing is known to have gone
	if !w.Synced() || w.Refused() != nil {
		t.Error("synced went back (L1)")
	}
}

func TestOutageKeepsAnswersAndReloads(t *testing.T) {
	out := capture(t)
	a := startAPI(t)
	a.put(clusterSetIP("web", "10.42.0.1"))
	c := a.config()
	w := synced(t, open(t, c))
	eventually(t, "api_up", w.health.up)
	a.down()
	eventually(t, "api_up 0", func() bool { return !w.health.up() })
	again := open(t, c)
	if again != w || !again.Synced() || addrs(again.Index(), "web.test") != "10.42.0.1" {
		t.Error("a reload while the API server is down has not the watched state (L4)")
	}
	a.put(clusterSetIP("web", "10.42.0.2"))
	a.up(t)
	answers(t, w, "web.test", "10.42.0.2")
	eventually(t, "api_up", w.health.up)
	if n := strings.Count(out.String(), "Cannot list and watch"); n != 1 {
		t.Errorf("%d lines about one outage:\n%s", n, out)
	}
	if n := strings.Count(out.String(), "answers again"); n != 1 {
		t.Errorf("%d lines when it was over:\n%s", n, out)
	}
}

func TestExpiredVersionListsAgainWithoutBuilding(t *testing.T) {
	a := startAPI(t)
	a.put(
		clusterSetIP("web", "10.42.0.1"),
		clusterSetIP("gone", "10.42.0.2"),
		headless("db"),
		slice("s", "db", "eu", "10.1.0.1"),
	)
	w := synced(t, open(t, a.config()))
	eventually(t, "api_up", w.health.up)
	built := hide(w.Index(), "web.test", "db.test")
	a.down()
	a.delete(clusterSetIP("gone"))
	last := a.put(clusterSetIP("new", "10.42.0.3"))
	a.compact()
	a.up(t)
	answers(t, w, "new.test", "10.42.0.3")
	answers(t, w, "gone.test", "absent")
	if n := built(); n != 0 {
		t.Errorf("%d Services were built that did not change", n)
	}
	if got := uint64(w.Index().Serial()); got != last+1 {
		t.Errorf("serial %d, want %d: that of the list, and one more for the removal that it shows", got, last+1)
	}
}

// TestL1RestoredStateIsFollowed: an API server that comes back from a backup has what was rolled
// back, not what was new, and all that is written since, whether or not it has passed the version
// that was seen, or has given that version to something else. Until the lists are in, every answer
// stays.
func TestL1RestoredStateIsFollowed(t *testing.T) {
	for name, written := range map[string]int{"behind what was seen": 0, "at the same versions": 7, "ahead of it": 30} {
		t.Run(name, func(t *testing.T) {
			a := startAPI(t)
			a.put(
				clusterSetIP("back", "10.42.0.1"),
				clusterSetIP("gone", "10.42.0.2"),
				headless("db"),
				slice("db-1", "db", "eu", "10.1.0.1"),
			)
			restore := a.backup()
			a.delete(clusterSetIP("gone"))
			a.put(clusterSetIP("back", "10.42.0.9"), slice("db-1", "db", "eu", "10.1.0.9"))
			seen := a.put(
				clusterSetIP("lost", "10.42.0.3"),
				clusterSetIP("same", "10.42.0.4"),
				slice("db-2", "db", "us", "10.2.0.9"),
				headless("late"),
			)
			w := synced(t, open(t, a.config()))
			before := map[string]string{
				"back.test": "10.42.0.9", "gone.test": "absent", "lost.test": "10.42.0.3", "same.test": "10.42.0.4",
			}
			for key, want := range before {
				answers(t, w, key, want)
			}
			answers(t, w, "db.test", "10.1.0.9 10.2.0.9")
			eventually(t, "api_up: both watches are open", w.health.up)
			asked := len(a.asked())
			a.down()
			eventually(t, "api_up 0", func() bool { return !w.health.up() })
			restore()
			if written > 0 {
				a.put(
					namespace("x", nil),
					clusterSetIP("new", "10.42.0.5"),
					namespace("y", nil),
					namespace("z", nil),
					clusterSetIP("same", "10.42.0.44"),
					slice("db-2", "db", "us", "10.2.0.44"),
				)
			}
			for range written - 6 {
				a.put(namespace("x", nil))
			}
			if v := a.version; v < seen != (written == 0) || v > seen != (written == 30) {
				t.Fatalf("the API server is at %d, %d was seen", v, seen)
			}
			a.edit(func() { a.cut["serviceimports"] = true })
			a.up(t)
			eventually(t, "lists that break off", func() bool {
				for key, want := range before {
					if got := addrs(w.Index(), key); got != want {
						t.Fatalf("%s answers %s before there is a list, want %s", key, got, want)
					}
				}
				return strings.Count(strings.Join(a.asked()[asked:], "\n"), "serviceimports?") > 1
			})
			a.edit(func() { clear(a.cut) })
			after := map[string]string{
				"back.test": "10.42.0.1",
				"gone.test": "10.42.0.2",
				"lost.test": "absent",
				"same.test": "absent",
				"db.test":   "10.1.0.1",
			}
			if written > 0 {
				after["new.test"], after["same.test"] = "10.42.0.5", "10.42.0.44"
				after["db.test"] = "10.1.0.1 10.2.0.44"
			}
			for key, want := range after {
				answers(t, w, key, want)
			}
			a.put(clusterSetIP("after", "10.42.0.6"))
			answers(t, w, "after.test", "10.42.0.6")
			for _, r := range a.asked()[asked:] {
				if strings.Contains(r, "resourceVersion=") &&
					(!strings.Contains(r, "watch=true") || strings.Contains(r, "sendInitialEvents")) {
					t.Errorf("a list that asks for less than the newest: %s", r)
				}
			}
		})
	}
}

// TestL1OnlyWatchesThatEndInOrderGoOn: one that the network broke off, or that is refused, may
// stand before an API server that was restored. Where all is as it was, the list builds nothing.
func TestL1OnlyWatchesThatEndInOrderGoOn(t *testing.T) {
	a := startAPI(t)
	a.put(clusterSetIP("web", "10.42.0.1"), headless("db"), slice("s", "db", "eu", "10.1.0.1"))
	w := synced(t, open(t, a.config()))
	watching := func() {
		t.Helper()
		heard := a.put(clusterSetIP("web", "10.42.0.1"), slice("s", "db", "eu", "10.1.0.1"))
		eventually(t, "both watches are open", func() bool {
			w.store.mu.Lock()
			defer w.store.mu.Unlock()
			return w.store.slices["s.test"].version == heard && w.store.imports["web.test"].version == heard-1
		})
	}
	lists := func() (n int) {
		for _, r := range a.asked() {
			if !strings.Contains(r, "watch=true") || strings.Contains(r, "sendInitialEvents=true") {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		name  string
		lists int
		end   func()
	}{
		{"ended early", 2, a.endWatches}, {"broken off", 2, a.breakWatches}, {"refused", 2, func() {
			a.down()
			eventually(t, "api_up 0", func() bool { return !w.health.up() })
			a.up(t)
		}},
	} {
		watching()
		before, built, asked := lists(), hide(w.Index(), "web.test", "db.test"), len(a.asked())
		c.end()
		if c.lists > 0 {
			eventually(
				t,
				c.name+": listed again",
				func() bool { return lists() >= before+c.lists && w.health.up() },
			)
		} else {
			eventually(t, c.name+": watched again", func() bool { return len(a.asked()) >= asked+2 })
		}
		if n := built(); n != 0 {
			t.Errorf("%s: %d Services built though nothing changed", c.name, n)
		}
		watching()
		if n := lists() - before; n != c.lists {
			t.Errorf("%s: %d lists, want %d", c.name, n, c.lists)
		}
	}
}

func TestMalformedObjectsAreNoHindrance(t *testing.T) {
	a := startAPI(t)
	for name, raw := range map[string]string{
		"nothing": `{}`, "null": `null`, "number": `5`, "list": `[{"metadata":{}}]`,
		"spec": `{"metadata":{"name":"spec","namespace":"test","resourceVersion":"7"},"spec":[1,{}]}`,
		"fields": `{"metadata":{"name":"fields","namespace":"test","resourceVersion":"8"},` +
			`"spec":{"type":1,"ips":"x","ports":{"a":[]}}}`,
		"inside": `{"metadata":{"name":"inside","namespace":"test","resourceVersion":"9"},` +
			`"spec":{"type":"ClusterSetIP","ips":[null,5,"10.42.0.9","::x"],"ports":[null,7,{"port":-1,"name":[]}]}}`,
		"version": `{"metadata":{"name":"version","namespace":"test","resourceVersion":"abc"},` +
			`"spec":{"type":"ClusterSetIP"}}`,
		"dots.dot": `{"metadata":{"name":"dots.dot","namespace":"test","resourceVersion":"10"},` +
			`"spec":{"type":"ClusterSetIP","ips":["10.42.0.1"]}}`,
	} {
		a.garbage[name] = raw
		a.put(clusterSetIP(name))
	}
	a.put(clusterSetIP("web", "10.42.0.1"))
	w := synced(t, open(t, a.config()))
	answers(t, w, "web.test", "10.42.0.1")
	answers(t, w, "inside.test", "10.42.0.9")
	for _, key := range []string{"spec.test", "fields.test", "version.test", "dots.dot.test"} {
		if got := addrs(w.Index(), key); got != "absent" {
			t.Errorf("%s answers %s", key, got)
		}
	}
	a.put(clusterSetIP("nothing"), clusterSetIP("null"))
	a.put(clusterSetIP("web", "10.42.0.2"))
	answers(t, w, "web.test", "10.42.0.2")
}

func TestNamespacesAndLabelsAreSelected(t *testing.T) {
	a := startAPI(t)
	labelled := clusterSetIP("labelled", "10.42.0.1")
	labelled.Labels = map[string]string{"tier": "front"}
	a.put(
		labelled,
		clusterSetIP("plain", "10.42.0.2"),
		headless("db"),
		slice("s", "db", "eu", "10.1.0.1"),
		in(
			clusterSetIP("web", "10.42.0.3"),
			"prod",
		),
		in(clusterSetIP("web", "10.42.0.4"), "dev"),
		in(slice("s", "web", "eu", "10.1.0.9"), "dev"),
		namespace("test", map[string]string{"dns": "yes"}),
		namespace("prod", nil),
	)
	all := map[string]string{
		"labelled.test": "10.42.0.1",
		"plain.test":    "10.42.0.2",
		"db.test":       "10.1.0.1",
		"web.prod":      "10.42.0.3",
		"web.dev":       "10.42.0.4",
	}
	for name, c := range map[string]struct {
		change func(*Config)
		keys   []string
		slices int
		asks   string
	}{
		"all": {
			func(c *Config) {}, []string{"labelled.test", "plain.test", "db.test", "web.prod", "web.dev"}, 2,
			"/v1beta1/serviceimports?",
		},
		"one namespace": {
			func(c *Config) { c.Namespaces = []string{"prod"} }, []string{"web.prod"}, 0,
			"/v1beta1/namespaces/prod/serviceimports?",
		},
		"two namespaces": {
			func(c *Config) { c.Namespaces = []string{"test", "prod"} },
			[]string{"labelled.test", "plain.test", "db.test", "web.prod"}, 1, "/v1beta1/serviceimports?",
		},
		"namespace labels": {
			func(c *Config) { c.NamespaceLabels = "dns in (yes)" },
			[]string{"labelled.test", "plain.test", "db.test"}, 2, "/api/v1/namespaces?",
		},
		"labels": {
			func(c *Config) { c.Labels = "tier=front" }, []string{"labelled.test"}, 2,
			"labelSelector=tier%3Dfront",
		},
		"noendpoints": {
			func(c *Config) { c.NoEndpoints = true },
			[]string{"labelled.test", "plain.test", "web.prod", "web.dev"}, 0, "serviceimports?",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(a.asked())
			config := a.config()
			c.change(&config)
			w := synced(t, open(t, config))
			found := 0
			for key, want := range all {
				got := addrs(w.Index(), key)
				if got == want {
					found++
				} else if got != "absent" {
					t.Errorf("%s answers %s", key, got)
				}
			}
			for _, key := range c.keys {
				if addrs(w.Index(), key) != all[key] {
					t.Errorf("%s is not there", key)
				}
			}
			if found != len(c.keys) {
				t.Errorf("%d names answer, want %d", found, len(c.keys))
			}
			if got := held(w); got != c.slices {
				t.Errorf("%d slices held, want %d", got, c.slices)
			}
			const cause = "Headless Services have no names here, because of the option noendpoints" // M8
			if why, _ := w.Index().Why.Load("db.test"); config.NoEndpoints != (why == cause) {
				t.Errorf("db.test answers nothing because %v", why)
			}
			asked := strings.Join(a.asked()[before:], "\n")
			if !strings.Contains(asked, c.asks) || config.NoEndpoints == strings.Contains(asked, "endpointslices") {
				t.Errorf("asked\n%s", asked)
			}
		})
	}
}

// held is how many slices are in memory.
func held(w *Watch) int {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	return len(w.store.slices)
}

func TestWatchesAreSharedAndStop(t *testing.T) {
	a := startAPI(t)
	c := a.config()
	before := goroutines()
	one, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	synced(t, one)
	requests := len(a.asked())
	two, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	other := c
	other.EndpointPodNames = true
	three, err := Open(other)
	if err != nil {
		t.Fatal(err)
	}
	if one != two || one == three {
		t.Error("equal Configs share a Watch, others do not")
	}
	synced(t, three)
	one.Close()
	a.put(clusterSetIP("web", "10.42.0.1"))
	answers(t, two, "web.test", "10.42.0.1") // it lives while one reference does
	eventually(t, "the third's requests", func() bool { return len(a.asked()) > requests })
	three.Close()
	two.Close()
	a.put(clusterSetIP("late", "10.42.0.2"))
	eventually(t, "no goroutine is left", func() bool { return goroutines() <= before })
	if got := addrs(two.Index(), "late.test"); got != "absent" {
		t.Error("a closed Watch goes on")
	}
	two.Close() // one too many does no harm
	if len(watches.All()) != 0 {
		t.Error("closed Watches count as open")
	}
}

// TestCloseDoesNotWaitForTheAPIServer, which takes a request and answers only after Close has returned.
func TestCloseDoesNotWaitForTheAPIServer(t *testing.T) {
	asked, closed := make(chan struct{}, 100), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-closed
	}))
	defer api.Close()
	w, err := Open(Config{Endpoint: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	<-asked
	w.Close() // else the test hangs
	close(closed)
}

// TestAttemptsAreAtMost4SecondsApart, so that a CRD or a permission that comes is used within 5 (L2).
func TestAttemptsAreAtMost4SecondsApart(t *testing.T) {
	next := backoff.DelayFunc()
	for range 100 {
		if d := next(); d > 4*time.Second || d < 200*time.Millisecond {
			t.Fatalf("a delay of %v", d)
		}
	}
}

// goroutines counts those that run our code or a reflector's.
func goroutines() (n int) {
	stacks := make([]byte, 4<<20)
	for _, g := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if strings.Contains(g, "client-go/tools/cache.(*Reflector)") ||
			strings.Contains(g, "multicluster/kube.(*resource)") {
			n++
		}
	}
	return n
}

func TestReflectorUsesAllOfTheStore(t *testing.T) {
	var i any = new(intake)
	if !is[cache.ReflectorBookmarkStore](i) || !is[cache.TransformingStore](i) {
		t.Error("intake is no ReflectorBookmarkStore or TransformingStore: the Reflector would pass over it")
	}
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(headlessObject("a")); err != nil || key != "test/a" {
		t.Errorf("an import has the key %q: %v", key, err)
	}
}

func is[T any](v any) bool { _, ok := v.(T); return ok }
