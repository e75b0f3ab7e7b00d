package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Snapshot is a backup of etcd.
type Snapshot struct {
	objects map[string]table
	version int64
	ips     map[string]bool
}

// Snapshot takes a backup.
func (s *Server) Snapshot() Snapshot {
	return Snapshot{objects: maps.Clone(s.objects), version: s.version, ips: maps.Clone(s.ips.taken)}
}

// Restore goes back to a backup, and resourceVersions fall back with it. No object gets the same version before and
// after: with few objects that would be common, which it is not in an API server.
func (s *Server) Restore(b Snapshot) {
	clear(s.feeds)
	s.restored++
	s.objects, s.version, s.ips.taken = maps.Clone(b.objects), b.version+s.restored, maps.Clone(b.ips)
}

// Empty is a restore without a backup, after which the admin has applied again what keep holds for, at versions of the
// new server.
func (s *Server) Empty(keep func(client.Object) bool) {
	s.restored++
	s.version = 10 + s.restored
	for _, k := range slices.Sorted(maps.Keys(s.objects)) {
		s.objects[k] = slices.DeleteFunc(slices.Clone(s.objects[k]), func(o client.Object) bool { return !keep(o) })
		for i, o := range s.objects[k] {
			s.version++
			applied := o.DeepCopyObject().(client.Object)
			applied.SetResourceVersion(strconv.FormatInt(s.version, 10))
			s.objects[k][i] = applied
		}
	}
	clear(s.feeds)
}

func (k Key) groupKind() schema.GroupKind {
	return schema.GroupKind{Group: kinds[k.Kind].group, Kind: k.Kind}
}

// label is the server's name as part of a UID, which must hold no dot.
func (s *Server) label() string { return strings.ReplaceAll(s.Name, ".", "-") }

// collectable are the kinds whose objects have owners, or a namespace, here.
var collectable = []string{
	EndpointSlice,
	Lease,
	Service,
	ServiceExport,
	ServiceImport,
	ServiceExportRecord,
	EndpointPage,
}

// Orphans are the objects that the garbage collector is about to delete: all their owners are gone, or an owner waits
// for it (foreground deletion).
func (s *Server) Orphans() []Key {
	var out []Key
	for _, kind := range collectable {
		for _, o := range s.List(kind) {
			refs := o.GetOwnerReferences()
			orphan := len(refs) > 0
			for _, ref := range refs {
				owner := s.Get(Key{ref.Kind, types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}})
				if owner != nil && owner.GetUID() == ref.UID && owner.GetDeletionTimestamp() == nil {
					orphan = false
				}
			}
			if orphan {
				out = append(out, KeyOf(o))
			}
		}
	}
	return out
}

// Foreground is the finalizer of an owner that waits for its dependents.
const Foreground = "foregroundDeletion"

// Waiting are the owners whose last dependent is gone.
func (s *Server) Waiting() []Key {
	var out []Key
	for _, kind := range collectable {
		for _, o := range s.List(kind) {
			if o.GetDeletionTimestamp() == nil || len(o.GetFinalizers()) != 1 || o.GetFinalizers()[0] != Foreground {
				continue
			}
			if !s.owns(o) {
				out = append(out, KeyOf(o))
			}
		}
	}
	return out
}

func (s *Server) owns(owner client.Object) bool {
	for _, kind := range collectable {
		for _, o := range s.List(kind) {
			for _, ref := range o.GetOwnerReferences() {
				if ref.UID == owner.GetUID() {
					return true
				}
			}
		}
	}
	return false
}

// Collect lets the garbage collector look at one object again, and deletes or releases it.
func (s *Server) Collect(k Key) error {
	o := s.Get(k)
	if o == nil {
		return fmt.Errorf("%s is gone", k)
	}
	if o.GetDeletionTimestamp() != nil {
		o = clone(o)
		o.SetFinalizers(nil)
		return s.Update("garbage-collector", o, false)
	}
	return s.Delete("garbage-collector", k, nil)
}

// Going are the objects that the namespace controller is about to delete, and the namespaces that are empty.
func (s *Server) Going() []Key {
	var out []Key
	for _, ns := range s.List(Namespace) {
		if ns.GetDeletionTimestamp() == nil {
			continue
		}
		empty := true
		for _, kind := range collectable {
			for _, o := range s.List(kind) {
				if o.GetNamespace() == ns.GetName() {
					out, empty = append(out, KeyOf(o)), false
				}
			}
		}
		if empty {
			out = append(out, KeyOf(ns))
		}
	}
	return out
}

// Finish lets the namespace controller delete one of Going.
func (s *Server) Finish(k Key) error {
	o := s.Get(k)
	if o == nil {
		return fmt.Errorf("%s is gone", k)
	}
	if k.Kind == Namespace {
		s.put(&Write{User: NamespaceController, Key: k, Old: o})
		return nil
	}
	return s.Delete(NamespaceController, k, nil)
}
