package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	golog "log"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/cache"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster/catalog"
)

// bench is a store with its feeds, and decodes what a test gives it as a stream would.
type workbench struct {
	t          *testing.T
	store      *store
	imports    cache.ReflectorStore
	slices     cache.ReflectorStore
	namespaces cache.ReflectorStore
	version    uint64
}

func newWorkbench(t *testing.T, selectNamespaces bool) *workbench {
	s := newStore(selectNamespaces)
	s.rest = func(time.Duration) time.Duration { return 0 }
	b := &workbench{t: t, store: s, imports: s.importFeed(), slices: s.sliceFeed(), version: 10}
	if selectNamespaces {
		b.namespaces = s.namespaceFeed()
	}
	return b
}

// listed is a store whose first lists were empty.
func listed(t *testing.T) *workbench {
	b := newWorkbench(t, false)
	replace(b.imports, nil, "1")
	replace(b.slices, nil, "1")
	return b
}

// decode gives an object the next resourceVersion and reads it.
func (b *workbench) decode(o object) any {
	b.version++
	return b.decodeAs(o, b.version)
}

func (b *workbench) decodeAs(o object, version uint64) any {
	b.t.Helper()
	o = o.DeepCopyObject().(object)
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	switch o := o.(type) {
	case *mcsv1beta1.ServiceImport:
		raw, err := json.Marshal(o)
		if err != nil {
			b.t.Fatal(err)
		}
		return readImport(raw)
	case *discoveryv1.EndpointSlice:
		return readSlice(Config{Topology: b.store.topology}, marshal(o))
	}
	return newStripped("", o.GetName(), o.GetResourceVersion(), struct{}{})
}

func (b *workbench) feedOf(o object) cache.ReflectorStore {
	switch o.(type) {
	case *mcsv1beta1.ServiceImport:
		return b.imports
	case *discoveryv1.EndpointSlice:
		return b.slices
	}
	return b.namespaces
}

func (b *workbench) put(all ...object) {
	for _, o := range all {
		b.feedOf(o).Update(b.decode(o))
	}
}

func (b *workbench) delete(o object) { b.feedOf(o).Delete(b.decode(o)) }

func (b *workbench) want(key, want string) {
	b.t.Helper()
	if got := addrs(b.store.index, key); got != want {
		b.t.Errorf("%s answers %q, want %q", key, got, want)
	}
}

// why wants the cause that the index has (M8).
func (b *workbench) why(key, want string) {
	b.t.Helper()
	why, _ := b.store.index.Why.Load(key)
	if got, _ := why.(string); got != want {
		b.t.Errorf("%s: %q, want %q", key, got, want)
	}
}

func TestSliceBeforeImportIsHeldAndUsed(t *testing.T) {
	b := listed(t)
	b.put(slice("db-1", "db", "eu", "10.1.0.1"))
	b.want("db.test", "absent") // N17
	b.why("db.test", "")
	b.put(headless("db"))
	b.want("db.test", "10.1.0.1")
	b.why("db.test", "")
	b.delete(slice("db-1", "db", "eu", "10.1.0.1"))
	b.why("db.test", "the ServiceImport is Headless and has no ready endpoint")
	b.put(slice("db-1", "db", "eu", "10.1.0.1"))
	b.why("db.test", "")
	b.delete(headless("db"))
	b.want("db.test", "absent")
	b.why("db.test", "")
	b.put(headless("db"))
	b.want("db.test", "10.1.0.1")
}

func TestTypeFlipChangesAllNamesAtOnce(t *testing.T) {
	b := listed(t)
	b.put(clusterSetIP("db", "10.42.0.1"), slice("db-1", "db", "eu", "10.1.0.1"))
	b.want("db.test", "10.42.0.1")
	b.put(headless("db"))
	s := b.store.index.Service("db.test")
	if s.Type() != catalog.Headless ||
		s.Host("10-1-0-1.eu", catalog.V4, catalog.Window{}).Outcome != catalog.Success {
		t.Error("the Service is not Headless with its host names")
	}
	b.want("db.test", "10.1.0.1")
	b.put(clusterSetIP("db", "10.42.0.1"))
	if s := b.store.index.Service("db.test"); s.Host(
		"10-1-0-1.eu",
		catalog.V4,
		catalog.Window{},
	).Outcome != catalog.NameError {
		t.Error("a ClusterSetIP Service has host names (N11)")
	}
	b.want("db.test", "10.42.0.1")
}

func TestUnknownTypeAnswersNothing(t *testing.T) {
	b := listed(t)
	o := clusterSetIP("web", "10.42.0.1")
	b.put(o)
	o.Spec.Type = "Other"
	b.put(o)
	b.want("web.test", "absent")
}

func TestSliceFollowsItsLabel(t *testing.T) {
	b := listed(t)
	b.put(headless("db"), headless("cache"), slice("s", "db", "eu", "10.1.0.1"))
	b.want("db.test", "10.1.0.1")
	b.put(slice("s", "cache", "eu", "10.1.0.1"))
	b.want("db.test", "absent")
	b.want("cache.test", "10.1.0.1")
	b.delete(slice("s", "cache", "eu"))
	b.want("cache.test", "absent")
	if n := len(b.store.slicesOf); n != 0 {
		t.Errorf("slices of %d Services are held, want none", n)
	}
	b.delete(headless("db"))
	b.delete(headless("cache"))
	if len(b.store.imports)+len(b.store.slices) != 0 {
		t.Error("something is held when all is gone")
	}
}

func TestListRemovesLast(t *testing.T) {
	b := listed(t)
	b.put(headless("db"), slice("old", "db", "eu", "10.1.0.1"))
	replace(b.slices, []any{b.decode(slice("new", "db", "eu", "10.1.0.2"))}, "90")
	b.want("db.test", "10.1.0.2")
	if got := b.store.index.Serial(); got != 90 {
		t.Errorf("serial %d after a removal found in the list of version 90", got)
	}
	replace(b.slices, nil, "91")
	b.want("db.test", "absent") // an empty list is followed
}

// TestNamespaceTouchesItsOwnServicesOnly: a change of a Namespace builds no Service of another one.
func TestNamespaceTouchesItsOwnServicesOnly(t *testing.T) {
	b := newWorkbench(t, true)
	replace(b.imports, nil, "1")
	replace(b.slices, nil, "1")
	replace(b.namespaces, nil, "1")
	b.put(clusterSetIP("web", "10.42.0.1"), in(clusterSetIP("web", "10.42.0.2"), "prod"), namespace("test", nil))
	b.want("web.test", "10.42.0.1")
	built := hide(b.store.index, "web.test")
	b.put(namespace("prod", nil))
	if built() != 0 {
		t.Error("a Service of another Namespace was built")
	}
	b.want("web.prod", "10.42.0.2")
}

func TestListOfWhatIsHeldBuildsNothing(t *testing.T) {
	b := listed(t)
	b.put(clusterSetIP("web", "10.42.0.1"), headless("db"), slice("s", "db", "eu", "10.1.0.1"))
	built := hide(b.store.index, "web.test", "db.test")
	// The same objects again; one has a new status.
	imports := []any{b.decodeAs(clusterSetIP("web", "10.42.0.1"), 11), b.decodeAs(headless("db"), 12)}
	slices := []any{b.decodeAs(slice("s", "db", "eu", "10.1.0.1"), 13)}
	imports[1].(*importObject).version = 14
	replace(b.imports, imports, "20")
	replace(b.slices, slices, "20")
	if n := built(); n != 0 {
		t.Errorf("%d Services were built", n)
	}
}

func TestSyncedAfterAllLists(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		b := newWorkbench(t, true)
		lists := []func(){
			func() {
				replace(
					b.imports,
					[]any{b.decode(clusterSetIP("web", "10.42.0.1")), b.decode(headless("db"))},
					"20",
				)
			},
			func() { replace(b.slices, []any{b.decode(slice("s", "db", "eu", "10.1.0.1"))}, "20") },
			func() { replace(b.namespaces, []any{b.decode(namespace("test", nil))}, "20") },
		}
		for i, n := range order {
			if b.store.synced.Load() {
				t.Errorf("order %v: synced after %d lists of 3", order, i)
			}
			lists[n]()
		}
		select {
		case <-b.store.done:
		default:
			t.Errorf("order %v: not synced after all lists", order)
		}
		b.want("web.test", "10.42.0.1")
		b.want("db.test", "10.1.0.1")
	}
}

func TestSerialOfTheFirstBuildCountsSlices(t *testing.T) {
	b := newWorkbench(t, false)
	notReady := slice("t", "db", "eu")
	replace(b.imports, []any{b.decodeAs(headless("db"), 5)}, "20")
	replace(b.slices, []any{b.decodeAs(slice("s", "db", "eu", "10.1.0.1"), 6), b.decodeAs(notReady, 9)}, "20")
	if got := b.store.index.Serial(); got != 9 {
		t.Errorf("serial %d, want 9: the last ready endpoint of a slice may have gone at 9 (M4)", got)
	}
}

// TestM4SerialMovesOnlyWithAnAnswer: neither with a status nor with a label. Whoever starts later
// is not behind, with the objects as they are and in another order.
func TestM4SerialMovesOnlyWithAnAnswer(t *testing.T) {
	for _, selective := range []bool{false, true} {
		b := newWorkbench(t, selective)
		labelled := slice("s", "db", "eu", "10.1.0.1")
		labelled.Labels["new"] = "label"
		type step struct {
			name   string
			o      object
			ahead  uint64 // its watch is
			alters bool   // if its namespace is selected
		}
		steps := []step{
			{
				"an import",
				clusterSetIP("web", "10.42.0.1"),
				0,
				true,
			},
			{"its status", clusterSetIP("web", "10.42.0.1"), 0, false},
			{"its slice, which answers nothing", slice("w", "web", "eu", "10.1.0.7"), 0, false},
			{"a slice before its import, which is older", slice("s", "db", "eu", "10.1.0.1"), 3, false},
			{"its import", headless("db"), 0, true},
			{"a label of the slice", labelled, 3, false},
			{"the import's status", headless("db"), 0, false},
			{"a slice without a ready endpoint", slice("t", "db", "us"), 0, false},
			{"one of no import", slice("u", "absent", "us", "10.2.0.1"), 0, false},
			{"an import without slices", headless("empty"), 0, false},
			{"of another namespace", in(clusterSetIP("web", "10.42.0.2"), "prod"), 0, true},
			{"now Headless", headless("web"), 0, true},
			{"and back", clusterSetIP("web", "10.42.0.1"), 0, true},
		}
		if selective {
			for i := range steps {
				steps[i].alters = false
			}
			steps = append(
				steps,
				step{"a namespace", namespace("test", nil), 0, true},
				step{"its status", namespace("test", nil), 0, false},
				step{"one without imports", namespace("none", nil), 0, false},
				step{"an import that no namespace selects", in(headless("x"), "dev"), 0, false},
			)
			replace(b.namespaces, nil, "1")
		}
		replace(b.imports, nil, "1")
		replace(b.slices, nil, "1")
		type known struct {
			o       object
			version uint64
		}
		last := map[string]known{}
		for _, step := range steps {
			before := b.store.index.Serial()
			b.version += step.ahead
			b.put(step.o)
			b.version -= step.ahead
			if moved := b.store.index.Serial() != before; moved != step.alters {
				t.Errorf("%s: the serial moves: %v, want %v", step.name, moved, step.alters)
			}
			last[pluralOf(step.o)+"/"+step.o.GetNamespace()+"/"+step.o.GetName()] = known{
				step.o,
				b.version + step.ahead,
			}
			later := newWorkbench(t, selective)
			lists := map[cache.ReflectorStore][]any{later.imports: nil, later.slices: nil}
			if selective {
				lists[later.namespaces] = nil
			}
			for _, k := range last {
				f := later.feedOf(k.o)
				lists[f] = append(lists[f], later.decodeAs(k.o, k.version))
			}
			for f, objects := range lists {
				replace(f, objects, "1")
			}
			if x, y := b.store.index.Serial(), later.store.index.Serial(); x > y {
				t.Errorf("after %s: serial %d, and %d of who starts now", step.name, x, y)
			}
		}
	}
}

// TestM4EveryChangeMovesTheSerial: a change that comes after one of a later version, of another watch, moves it by 1.
func TestM4EveryChangeMovesTheSerial(t *testing.T) {
	b := newWorkbench(t, true)
	replace(b.imports, []any{b.decodeAs(headless("db"), 5), b.decodeAs(clusterSetIP("web", "10.42.0.1"), 90)}, "90")
	replace(b.slices, []any{b.decodeAs(slice("s", "db", "eu", "10.1.0.1"), 6)}, "90")
	replace(b.namespaces, []any{b.decodeAs(namespace("test", nil), 4)}, "90")
	for i, change := range []func(){
		func() {},
		func() { b.slices.Update(b.decodeAs(slice("s", "db", "eu", "10.1.0.2"), 80)) },
		func() { b.imports.Delete(b.decodeAs(clusterSetIP("web"), 81)) },
		func() { b.namespaces.Delete(b.decodeAs(namespace("test", nil), 82)) },
	} {
		if change(); b.store.index.Serial() != uint32(90+i) {
			t.Errorf("serial %d, want %d", b.store.index.Serial(), 90+i)
		}
	}
}

// TestM4NanosecondsMoveTheSerialForward: GKE's resourceVersions, whose low 32 bits begin again every 4.3 s. A first
// build takes the highest once, however many Services it has.
func TestM4NanosecondsMoveTheSerialForward(t *testing.T) {
	const at = 1753647547040015001
	b := newWorkbench(t, false)
	replace(b.imports, []any{
		b.decodeAs(clusterSetIP("a", "10.42.0.1"), at-1),
		b.decodeAs(clusterSetIP("b", "10.42.0.2"), at),
		b.decodeAs(clusterSetIP("c", "10.42.0.3"), at-2),
	}, "1")
	replace(b.slices, nil, "1")
	if got := b.store.index.Serial(); got != at>>30 {
		t.Errorf("serial %d after the first build, want %d", got, at>>30)
	}
	for i, later := range []uint64{1, 3e9, 4e9, 3e9, 60e9, 63e9} { // one is behind, of another watch
		before := b.store.index.Serial()
		b.imports.Update(b.decodeAs(clusterSetIP("a", fmt.Sprintf("10.42.1.%d", i)), at+later))
		if after := b.store.index.Serial(); !catalog.Newer(after, before) {
			t.Errorf("serial %d after %d, by a change %d ns later", after, before, later)
		}
	}
}

func TestNamespacesSelect(t *testing.T) {
	b := newWorkbench(t, true)
	replace(b.imports, nil, "1")
	replace(b.slices, nil, "1")
	replace(b.namespaces, []any{b.decode(namespace("test", nil))}, "1")
	b.put(
		clusterSetIP("web", "10.42.0.1"),
		in(clusterSetIP("web", "10.42.0.2"), "prod"),
		headless("db"),
		slice("s", "db", "eu", "10.1.0.1"),
	)
	b.want("web.test", "10.42.0.1")
	b.want("web.prod", "absent")
	b.why("web.prod", "")
	b.put(namespace("prod", nil))
	b.want("web.prod", "10.42.0.2")
	b.why("web.prod", "")
	b.delete(namespace("test", nil))
	b.want("web.test", "absent")
	b.want("db.test", "absent")
	if got := uint64(b.store.index.Serial()); got != b.version {
		t.Errorf("serial %d, want %d: the namespace's", got, b.version)
	}
	replace(b.namespaces, []any{b.decode(namespace("test", nil))}, "90")
	b.want("db.test", "10.1.0.1")
	b.want("web.prod", "absent")
}

// M4, L6: the Services of a Namespace come and go as one change: no transfer has a part of them under its serial.
func TestOneSerialHasOneContent(t *testing.T) {
	b := newWorkbench(t, true)
	replace(b.imports, nil, "1")
	replace(b.slices, nil, "1")
	replace(b.namespaces, nil, "1")
	b.put(clusterSetIP("one", "10.42.0.1"), clusterSetIP("two", "10.42.0.2"), clusterSetIP("three", "10.42.0.3"))
	content := make(map[uint32]int)
	look := func() {
		serial, all := b.store.index.Snapshot()
		if n, seen := content[serial]; seen && n != len(all) {
			t.Errorf("serial %d has %d Services, and %d", serial, n, len(all))
		}
		content[serial] = len(all)
	}
	answers := b.store.answers
	b.store.answers = func(key string, before *catalog.Service) *catalog.Service {
		look()
		return answers(key, before)
	}
	b.put(namespace("test", nil))
	look()
	b.delete(namespace("test", nil))
	look()
	if len(content) != 3 {
		t.Errorf("%d serials of nothing, three Services and nothing", len(content))
	}
}

func TestSkippedSlicesAreCountedAndWarnedAboutOnce(t *testing.T) {
	out := capture(t)
	b := listed(t)
	b.put(headless("db"))
	anonymous := slice("anonymous", "db", "", "10.1.0.1")
	delete(anonymous.Labels, labelSourceCluster)
	fqdn := slice("fqdn", "db", "eu", "a.example.org")
	fqdn.AddressType = discoveryv1.AddressTypeFQDN
	before := map[reason]float64{}
	for r := range advice {
		before[r] = counted(t, r)
	}
	for range 3 {
		b.put(anonymous, slice("bad-id", "db", "eu_1", "10.1.0.1"), fqdn)
	}
	b.want("db.test", "absent")
	for r := range advice {
		if n := counted(t, r) - before[r]; n != 3 {
			t.Errorf("%s counts %v versions, want 3", r, n)
		}
		if n := strings.Count(out.String(), advice[r]); n != 1 {
			t.Errorf("%d warnings of %s, want 1:\n%s", n, r, out)
		}
	}
	b.put(slice("bad-id", "db", "eu", "10.1.0.2")) // repaired
	b.want("db.test", "10.1.0.2")
	b.put(slice("bad-id", "db", "eu_1", "10.1.0.2")) // and broken again
	b.want("db.test", "absent")
}

func TestWarningsAreBounded(t *testing.T) {
	out := capture(t)
	b := listed(t)
	for i := range 3 * maxWarnings {
		b.put(slice("s"+strconv.Itoa(i), "db", "eu_1"))
	}
	if n := strings.Count(out.String(), "\n"); n != maxWarnings+2 {
		t.Errorf("%d lines, want that of the first lists, %d, and one that says so", n, maxWarnings)
	}
}

func TestEndpointsAreCountedByCluster(t *testing.T) {
	b := listed(t)
	counts := func() map[string]int {
		n := map[string]int{}
		b.store.count(map[catalog.Type]int{}, n)
		return n
	}
	b.put(headless("db"), slice("s", "db", "eu", "10.1.0.1", "10.1.0.2"), slice("t", "db", "us", "10.2.0.1"))
	b.put(clusterSetIP("web"), slice("w", "web", "eu", "10.1.0.9"))
	if n := counts(); n["eu"] != 2 || n["us"] != 1 {
		t.Errorf("%v, want 2 of eu and 1 of us: those of Headless Services", n)
	}
	b.put(slice("s", "db", "eu", "10.1.0.1"))
	b.delete(slice("t", "db", "us"))
	n := counts()
	if _, there := n["us"]; there || n["eu"] != 1 {
		t.Errorf("%v, want 1 of eu and nothing of us", n)
	}
	b.put(clusterSetIP("db"))
	if n := counts(); len(n) != 0 {
		t.Errorf("%v of ClusterSetIP Services", n)
	}
}

// capture collects the lines that the plugin logs.
func capture(t *testing.T) *bytes.Buffer {
	out := new(bytes.Buffer)
	golog.SetOutput(out)
	t.Cleanup(func() { golog.SetOutput(os.Stderr) })
	return out
}

// TestListsAreFollowedBackwards: after the API server's data was restored, a list has what was replaced long ago.
func TestListsAreFollowedBackwards(t *testing.T) {
	b := listed(t)
	imp, sl := b.decode(clusterSetIP("web", "10.42.0.1")), b.decode(slice("s", "db", "eu", "10.1.0.1"))
	db := b.decode(headless("db"))
	b.imports.Add(imp)
	b.imports.Add(db)
	b.slices.Add(sl)
	b.put(clusterSetIP("web", "10.42.0.2"), slice("s", "db", "eu", "10.1.0.2"))
	b.want("web.test", "10.42.0.2")
	b.want("db.test", "10.1.0.2")
	replace(b.imports, []any{imp, db}, "12")
	replace(b.slices, []any{sl}, "12")
	b.want("web.test", "10.42.0.1")
	b.want("db.test", "10.1.0.1")
}

// replace does what a list of these objects does.
func replace(f cache.ReflectorStore, objects []any, version string) {
	if err := f.Replace(objects, version); err != nil {
		panic(err)
	}
}

// L3: a Service that changes all the time is built again only after a rest, and then as it is. Others do not wait.
func TestL3LargeChangesRest(t *testing.T) { synctest.Test(t, largeChangesRest) }

func largeChangesRest(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 0, 999 * time.Microsecond: 0, 28 * time.Millisecond: 280 * time.Millisecond, time.Minute: 5 * time.Second,
	} {
		if got := restAfter(took); got != want {
			t.Errorf("after %v: a rest of %v, want %v", took, got, want)
		}
	}
	b := listed(t)
	b.put(headless("db"), slice("s", "db", "eu", "10.1.0.1"), headless("web"))
	b.store.rest = func(time.Duration) time.Duration { return 200 * time.Millisecond }
	trigger := slice("s", "db", "eu", "10.1.0.2")
	b.put(trigger)
	before, serial := samples(t, programmingDuration), b.store.index.Serial()
	trigger = slice("s", "db", "eu", "10.1.0.3")
	trigger.Annotations = map[string]string{
		"endpoints.kubernetes.io/last-change-trigger-time": time.Now().Format(time.RFC3339Nano),
	}
	b.put(trigger, slice("s", "db", "eu", "10.1.0.4"))
	b.want("db.test", "10.1.0.2")
	b.put(slice("w", "web", "eu", "10.1.0.9"))
	b.want("web.test", "10.1.0.9")
	eventually(t, "the last change after the rest", func() bool {
		return addrs(b.store.index, "db.test") == "10.1.0.4"
	})
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if n := samples(t, programmingDuration) - before; n != 1 || b.store.index.Serial() == serial {
		t.Errorf("%d samples of the change that had a trigger, serial %d", n, b.store.index.Serial())
	}
}

// L3: a member that changes a large name thirty times costs other names no thirty builds of it.
func TestL3AHostileRateDoesNotHoldTheLock(t *testing.T) { synctest.Test(t, hostileRate) }

func hostileRate(t *testing.T) {
	b := listed(t)
	builds, answers := 0, b.store.answers
	b.store.answers = func(key string, before *catalog.Service) *catalog.Service {
		builds++
		return answers(key, before)
	}
	b.put(headless("db"))
	b.store.rest = func(time.Duration) time.Duration { return time.Second }
	builds = 0
	for i := range 30 {
		b.put(slice("s", "db", "eu", fmt.Sprintf("10.250.0.%d", i)))
	}
	b.want("db.test", "10.250.0.0")
	if builds != 1 {
		t.Errorf("30 changes at once are %d builds, want 1", builds)
	}
	eventually(t, "the last change", func() bool { return addrs(b.store.index, "db.test") == "10.250.0.29" })
	if builds != 2 {
		t.Errorf("%d builds after the rest, want 2", builds)
	}
}

// The log says when the first lists are complete, and that nobody has the ID of prefer.
func TestTheFirstListsAreLogged(t *testing.T) {
	var out bytes.Buffer
	golog.SetOutput(&out)
	defer golog.SetOutput(os.Stderr)
	for preferred, warns := range map[string]bool{"": false, "eu": false, "eu-wst": true} {
		out.Reset()
		b := newWorkbench(t, false)
		b.store.topology.Cluster = preferred
		replace(b.imports, []any{b.decode(headless("db")), b.decode(headless("web"))}, "50")
		if out.Len() > 0 {
			t.Errorf("before all lists are complete:\n%s", &out)
		}
		replace(b.slices, []any{b.decode(slice("s", "db", "eu", "10.1.0.1"))}, "50")
		if text := out.String(); !strings.Contains(text, "first lists are complete after 0.") ||
			!strings.Contains(text, " s: 2 ServiceImports, 1 EndpointSlices\n") {
			t.Errorf("prefer local %q:\n%s", preferred, text)
		}
		if got := strings.Contains(out.String(), "prefer local "+preferred+": no EndpointSlice"); got != warns {
			t.Errorf("prefer local %q: warned %v, want %v\n%s", preferred, got, warns, &out)
		}
	}
}
