package api

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Write is a change that somebody asks for. Old is nil for a creation, New for a deletion.
type Write struct {
	User     string
	Key      Key
	Old, New client.Object
	Status   bool // of the status subresource
}

// Verb is what the change does.
func (w *Write) Verb() string {
	switch {
	case w.Old == nil:
		return "create"
	case w.New == nil:
		return "delete"
	case w.Status:
		return "update the status of"
	}
	return "update"
}

// Server is one API server with its etcd.
type Server struct {
	Name     string
	Now      func() time.Time
	Families []corev1.IPFamily    // that its Services can have, the default one first
	Policies []func(*Write) error // admission beyond what the kinds demand
	Changed  func(*Write)         // is told of every change once it is made

	objects  map[string]table
	feeds    map[string][]Event
	version  int64
	restored int64 // times
	uids     int
	ips      *addresses

	ranges bool // cluster IPs are of ServiceCIDRs, and turn and freed go with that
	dry    bool // what is created now is not to be kept
	turn   int
	freed  map[string]types.NamespacedName // addresses whose Service is gone, which the allocator has not seen yet
}

// Event is one change of one object, as a watch shows it.
type Event struct {
	Version int64
	Object  client.Object
	Deleted bool
}

// NewServer returns a server that holds the given namespaces.
func NewServer(name string, now func() time.Time, families []corev1.IPFamily, namespaces ...string) *Server {
	s := &Server{
		Name:     name,
		Now:      now,
		Families: families,
		Changed:  func(*Write) {},
		ips:      &addresses{taken: map[string]bool{}},
	}
	s.objects, s.feeds, s.freed = map[string]table{}, map[string][]Event{}, map[string]types.NamespacedName{}
	for _, ns := range namespaces {
		if err := s.Create("admin", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, false); err != nil {
			panic(err) // the store is empty
		}
	}
	return s
}

// Get returns an object as it is now, or nil. It is the server's own: not to be changed.
func (s *Server) Get(k Key) client.Object { return s.objects[k.Kind].get(k.NamespacedName) }

// List returns all objects of a kind in the order of their names. They are the server's own: not to be changed.
func (s *Server) List(kind string) []client.Object { return s.objects[kind] }

// Create stores o, and makes it what was stored.
func (s *Server) Create(user string, o client.Object, dryRun bool) error {
	k := kinds[KindOf(o)]
	obj := wire(o)
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(fmt.Sprintf("%s%05d", obj.GetGenerateName(), s.uids))
	}
	key := KeyOf(obj)
	if key.Name == "" || (key.Namespace == "") != k.cluster {
		return apierrors.NewBadRequest(fmt.Sprintf("%s: a name, and a namespace where the kind has one", key))
	}
	if err := s.inNamespace(key); err != nil {
		return err
	}
	if obj.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if k.status || key.Kind == Service {
		statusOf(obj).SetZero()
	}
	obj.SetUID(types.UID(fmt.Sprintf("u%d-%s", s.uids, s.label())))
	s.uids++
	obj.SetCreationTimestamp(metav1.NewTime(s.Now().Truncate(time.Second)))
	obj.SetDeletionTimestamp(nil)
	obj.SetGeneration(0)
	if k.custom || key.Kind == EndpointSlice {
		obj.SetGeneration(1)
	}
	if s.Get(key) != nil && key.Kind == IPAddress {
		return apierrors.NewAlreadyExists(key.resource(), key.Name)
	}
	s.dry = dryRun
	if err := s.admit(&Write{User: user, Key: key, New: obj}); err != nil {
		return err
	}
	if s.Get(key) != nil {
		return apierrors.NewAlreadyExists(key.resource(), key.Name)
	}
	if !dryRun {
		s.put(&Write{User: user, Key: key, New: obj})
	}
	assign(o, obj)
	return nil
}

// Update stores o over the object of its name, or o's status alone, and makes o what is stored then.
func (s *Server) Update(user string, o client.Object, status bool) error {
	key, k := KeyOf(o), kinds[KindOf(o)]
	old := s.Get(key)
	if old == nil {
		return apierrors.NewNotFound(key.resource(), key.Name)
	}
	if o.GetResourceVersion() == "" && k.custom {
		return s.invalid(
			key,
			field.Invalid(field.NewPath("metadata", "resourceVersion"), "", "must be specified for an update"),
		)
	}
	if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() ||
		o.GetUID() != "" && o.GetUID() != old.GetUID() {
		return apierrors.NewConflict(
			key.resource(),
			key.Name,
			fmt.Errorf(
				"the object has been modified: %s is at resourceVersion %s, not %s",
				s.Name,
				old.GetResourceVersion(),
				v,
			),
		)
	}
	obj := wire(o)
	if status {
		obj = clone(old)
		statusOf(obj).Set(statusOf(wire(o)))
	} else if k.status || key.Kind == Service {
		statusOf(obj).Set(statusOf(clone(old)))
	}
	obj.SetUID(old.GetUID())
	obj.SetResourceVersion(old.GetResourceVersion())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	obj.SetGeneration(old.GetGeneration())
	s.dry = false
	w := &Write{User: user, Key: key, Old: old, New: obj, Status: status}
	if err := s.admit(w); err != nil {
		return err
	}
	if !equality.Semantic.DeepEqual(old, obj) {
		if !sameContent(old, obj) && old.GetGeneration() > 0 {
			obj.SetGeneration(old.GetGeneration() + 1)
		}
		s.put(w)
	}
	assign(o, obj)
	return nil
}

// Delete removes an object, or marks it where finalizers hold it.
func (s *Server) Delete(user string, key Key, pre *metav1.Preconditions) error {
	old := s.Get(key)
	if old == nil {
		return apierrors.NewNotFound(key.resource(), key.Name)
	}
	if pre != nil &&
		(pre.UID != nil && *pre.UID != old.GetUID() || pre.ResourceVersion != nil && *pre.ResourceVersion != old.GetResourceVersion()) {
		return apierrors.NewConflict(
			key.resource(),
			key.Name,
			fmt.Errorf("the object in %s is not the one that is to be deleted", s.Name),
		)
	}
	w := &Write{User: user, Key: key, Old: old}
	for _, p := range s.Policies {
		if err := p(w); err != nil {
			return err
		}
	}
	if len(old.GetFinalizers()) > 0 || key.Kind == Namespace {
		if old.GetDeletionTimestamp() == nil {
			w.New = clone(old)
			now := metav1.NewTime(s.Now().Truncate(time.Second))
			w.New.SetDeletionTimestamp(&now)
			s.put(w)
		}
		return nil
	}
	s.put(w)
	return nil
}

// Touch lets somebody annotate an object, if it is there: whoever is about to write it has a conflict.
func (s *Server) Touch(k Key, mark int) {
	old := s.Get(k)
	if old == nil {
		return
	}
	touched := clone(old)
	annotations := maps.Clone(old.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["example.com/touched"] = strconv.Itoa(mark)
	touched.SetAnnotations(annotations)
	s.put(&Write{User: "somebody", Key: k, Old: old, New: touched})
}

// admit sets defaults, and refuses what is not valid or not allowed.
func (s *Server) admit(w *Write) error {
	if !w.Status {
		if err := s.valid(w); err != nil {
			return err
		}
	}
	for _, p := range s.Policies {
		if err := p(w); err != nil {
			return err
		}
	}
	return nil
}

// valid is what the kinds themselves demand, after their defaults.
func (s *Server) valid(w *Write) error {
	switch w.Key.Kind {
	case Service:
		return s.service(w.Old, w.New)
	case EndpointSlice:
		return endpointSlice(s, w.Old, w.New)
	case ServiceImport:
		return serviceImport(s, w.New)
	case ServiceExportRecord:
		return exportRecord(s, w.Old, w.New)
	case EndpointPage:
		return endpointPage(s, w.Old, w.New)
	case ServiceCIDR:
		old, _ := w.Old.(*networkingv1.ServiceCIDR)
		return serviceCIDR(s, old, w.New.(*networkingv1.ServiceCIDR))
	case IPAddress:
		old, _ := w.Old.(*networkingv1.IPAddress)
		return ipAddress(s, old, w.New.(*networkingv1.IPAddress))
	}
	return nil
}

// put makes a change, and lets watches know.
func (s *Server) put(w *Write) {
	s.version++
	at := strconv.FormatInt(s.version, 10)
	if w.New != nil && w.New.GetDeletionTimestamp() != nil && len(w.New.GetFinalizers()) == 0 &&
		w.Key.Kind != Namespace {
		w.New = nil // the last finalizer went
	}
	if w.Key.Kind == Service && s.ranges {
		old, _ := w.Old.(*corev1.Service)
		svc, _ := w.New.(*corev1.Service)
		s.addressesOf(old, svc)
	} else if old, ok := w.Old.(*corev1.Service); ok {
		s.ips.release(old)
	}
	if w.New == nil {
		last := clone(w.Old)
		last.SetResourceVersion(at)
		s.objects[w.Key.Kind] = s.objects[w.Key.Kind].without(w.Key.NamespacedName)
		s.feeds[w.Key.Kind] = append(s.feeds[w.Key.Kind], Event{s.version, last, true})
	} else {
		w.New.SetResourceVersion(at)
		if svc, ok := w.New.(*corev1.Service); ok && !s.ranges {
			s.ips.take(svc)
		}
		kept := clone(w.New)
		s.objects[w.Key.Kind] = s.objects[w.Key.Kind].with(kept)
		s.feeds[w.Key.Kind] = append(s.feeds[w.Key.Kind], Event{s.version, kept, false})
	}
	s.Changed(w)
}

// inNamespace refuses creations where there is no namespace, or a going one.
func (s *Server) inNamespace(k Key) error {
	if k.Namespace == "" {
		return nil
	}
	ns := s.Get(Key{Namespace, types.NamespacedName{Name: k.Namespace}})
	if ns == nil {
		return apierrors.NewNotFound(Key{Kind: Namespace}.resource(), k.Namespace)
	}
	if ns.GetDeletionTimestamp() != nil {
		return apierrors.NewForbidden(
			k.resource(),
			k.Name,
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", k.Namespace),
		)
	}
	return nil
}

func (s *Server) invalid(k Key, errs ...*field.Error) error {
	return apierrors.NewInvalid(Key{Kind: k.Kind}.groupKind(), k.Name, errs)
}
