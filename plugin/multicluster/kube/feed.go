package kube

import (
	"cmp"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// feed holds the objects of one kind, and gives each change of one to its store (cache.ReflectorStore). It applies an
// event as it comes, and a list at its end, which shows what is gone.
type feed[T any] struct {
	gate    *gate
	kind    string                  // plural
	objects map[string]*stripped[T] // by key
	same    func(old, o *stripped[T]) bool
	// changed replaces an object. Nil stands for none; version is that of the change.
	changed func(old, o *stripped[T], version uint64)
	listed  bool
}

func newFeed[T any](
	g *gate, kind string, objects map[string]*stripped[T],
	same func(old, o *stripped[T]) bool, changed func(old, o *stripped[T], version uint64),
) *feed[T] {
	g.unlisted++
	return &feed[T]{gate: g, kind: kind, objects: objects, same: same, changed: changed}
}

func (s *store) importFeed() *feed[importContent] {
	same := func(old, o *importObject) bool {
		return old.content.kind == o.content.kind && old.content.service.Same(o.content.service)
	}
	return newFeed(&s.gate, "ServiceImports", s.imports, same, s.importChanged)
}

func (s *store) sliceFeed() *feed[sliceContent] {
	same := func(old, o *sliceObject) bool { // each version that is skipped counts
		return old.content.same(o.content) && (o.version == old.version || o.content.skipped == notSkipped)
	}
	return newFeed(&s.gate, "EndpointSlices", s.slices, same, s.sliceChanged)
}

func (s *store) namespaceFeed() *feed[struct{}] {
	same := func(_, _ *namespaceObject) bool { return true } // nothing but its existence counts
	return newFeed(&s.gate, "Namespaces", s.namespaces, same, s.namespaceChanged)
}

// Add implements cache.ReflectorStore.
func (f *feed[T]) Add(object any) error {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	f.set(object.(*stripped[T]))
	return nil
}

// Update implements cache.ReflectorStore.
func (f *feed[T]) Update(object any) error { return f.Add(object) }

// Delete implements cache.ReflectorStore, of objects that are stripped or not. The version of a deleted object is that
// of its deletion.
func (f *feed[T]) Delete(object any) error {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	o := object.(metav1.ObjectMetaAccessor).GetObjectMeta()
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64) // 0: one above the last (M4)
	f.remove(keyOf(o.GetNamespace(), o.GetName()), v)
	return nil
}

// Replace implements cache.ReflectorStore.
func (f *feed[T]) Replace(objects []any, version string) error {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	slices.SortFunc(objects, func(a, b any) int { // so that the serial does not run ahead of the versions (M4)
		return cmp.Compare(a.(*stripped[T]).version, b.(*stripped[T]).version)
	})
	there := make(map[string]bool, len(objects))
	for _, object := range objects {
		o := object.(*stripped[T])
		there[o.key] = true
		f.set(o)
	}
	v, _ := strconv.ParseUint(version, 10, 64) // 0: one above the last (M4)
	for key := range f.objects {
		if !there[key] {
			f.remove(key, v)
		}
	}
	if !f.listed {
		f.listed = true
		f.gate.listed(len(f.objects), f.kind)
	}
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to repeat.
func (f *feed[T]) Resync() error { return nil }

// set replaces an object. One with the same content stays, with the new version.
func (f *feed[T]) set(o *stripped[T]) {
	old := f.objects[o.key]
	if old != nil && f.same(old, o) {
		old.version = o.version
		return
	}
	f.objects[o.key] = o
	f.changed(old, o, o.version)
}

func (f *feed[T]) remove(key string, version uint64) {
	if old := f.objects[key]; old != nil {
		delete(f.objects, key)
		f.changed(old, nil, version)
	}
}
