package kube

import (
	"time"

	"k8s.io/client-go/tools/cache"
)

// intake is the store of a Reflector. It strips objects as they arrive, for the store that holds them, and notes when
// the API server was heard.
type intake struct {
	*resource
	into cache.ReflectorStore
}

// give strips an object and hands it on. One that does not count any more is deleted.
func (i *intake) give(object any, to func(any) error) error {
	i.heard.Store(time.Now().UnixNano())
	if stripped := i.strip(object); stripped != nil {
		return to(stripped)
	}
	return i.into.Delete(object)
}

// Add implements cache.ReflectorStore.
func (i *intake) Add(object any) error { return i.give(object, i.into.Add) }

// Update implements cache.ReflectorStore.
func (i *intake) Update(object any) error { return i.give(object, i.into.Update) }

// Delete implements cache.ReflectorStore.
func (i *intake) Delete(object any) error { return i.give(object, i.into.Delete) }

// Replace implements cache.ReflectorStore.
func (i *intake) Replace(objects []any, version string) error {
	i.heard.Store(time.Now().UnixNano())
	kept := make([]any, 0, len(objects))
	for _, object := range objects {
		if object = i.strip(object); object != nil {
			kept = append(kept, object)
		}
	}
	if i.streaming {
		i.streaming = false
		i.health.observe(i.resource, streamedList, nil)
	}
	return i.into.Replace(kept, version)
}

// Resync implements cache.ReflectorStore.
func (i *intake) Resync() error { return i.into.Resync() }

// Bookmark implements cache.ReflectorBookmarkStore.
func (i *intake) Bookmark(string) error {
	i.heard.Store(time.Now().UnixNano())
	return nil
}

// Transformer implements cache.TransformingStore: a streamed list is stripped object by object.
func (i *intake) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return i.strip(object), nil }
}
