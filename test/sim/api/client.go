package api

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client is a user's way to a server. It reads from Cache, or from the server where that is nil.
type Client struct {
	Server *Server
	User   string
	Cache  *Cache
	// Before is asked before each write and each direct read; its error stands for a request that did not arrive. After
	// is asked once a write was made; its error stands for an answer that did not arrive. Either may panic: then the
	// client's holder dies there.
	Before, After func(verb string, k Key) error
}

var _ client.Client = (*Client)(nil)

// Get is client.Reader's.
func (c *Client) Get(_ context.Context, name client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	refuse(len(opts) > 0, "options of Get")
	k := Key{KindOf(o), name}
	found := c.Server.Get(k)
	if c.Cache != nil {
		found = c.Cache.view(k.Kind).objects.get(name)
	} else if err := c.Before("read", k); err != nil {
		return err
	}
	if found == nil {
		return apierrors.NewNotFound(k.resource(), name.Name)
	}
	assign(o, found)
	if c.Cache != nil {
		c.Cache.lend(o, found)
	}
	return nil
}

// List is client.Reader's.
func (c *Client) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	partial, _ := list.(*metav1.PartialObjectMetadataList)
	kind := ""
	if partial != nil {
		kind = strings.TrimSuffix(partial.Kind, "List")
	} else {
		kind = KindOf(list)
	}
	all, version := c.Server.List(kind), c.Server.version
	if c.Cache != nil {
		c.Cache.view(kind)
		all = slices.Clone(c.Cache.All(kind))
		c.Cache.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	} else if err := c.Before("list", Key{Kind: kind}); err != nil {
		return err
	}
	var found []runtime.Object
	var originals []client.Object
	for _, obj := range all {
		if c.matches(kind, obj, &o) {
			found, originals = append(found, clone(obj)), append(originals, obj)
		}
	}
	if partial != nil {
		refuse(c.Cache != nil, "metadata from a cache")
		for _, o := range originals {
			m := metav1.PartialObjectMetadata{
				ObjectMeta: metav1.ObjectMeta{
					Namespace:       o.GetNamespace(),
					Name:            o.GetName(),
					UID:             o.GetUID(),
					ResourceVersion: o.GetResourceVersion(),
					Generation:      o.GetGeneration(),
				},
			}
			partial.Items = append(partial.Items, m)
		}
		partial.ResourceVersion = strconv.FormatInt(version, 10)
		return nil
	}
	if err := meta.SetList(list, found); err != nil {
		return err
	}
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	for i := range originals {
		if c.Cache != nil {
			c.Cache.lend(items.Index(i).Addr().Interface().(client.Object), originals[i])
		}
	}
	return nil
}

func (c *Client) matches(kind string, obj client.Object, o *client.ListOptions) bool {
	if o.Namespace != "" && obj.GetNamespace() != o.Namespace ||
		o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(obj.GetLabels())) {
		return false
	}
	if o.FieldSelector == nil {
		return true
	}
	for _, r := range o.FieldSelector.Requirements() {
		if c.Cache == nil && r.Field == "metadata.name" {
			if obj.GetName() != r.Value {
				return false
			}
			continue
		}
		refuse(
			c.Cache == nil || c.Cache.indexes[kind][r.Field] == nil,
			"field "+r.Field+" of "+kind+", which is not indexed",
		)
		matched := false
		for _, v := range c.Cache.indexes[kind][r.Field](obj) {
			matched = matched || v == r.Value
		}
		if !matched {
			return false
		}
	}
	return true
}

func (c *Cache) view(kind string) *view {
	v := c.views[kind]
	refuse(v == nil || !v.listed, kind+" from a cache that has not listed it")
	return v
}

// write makes one write between Before and After.
func (c *Client) write(verb string, k Key, do func() error) error {
	if err := c.Before(verb, k); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return c.After(verb, k)
}

// Create is client.Writer's.
func (c *Client) Create(_ context.Context, o client.Object, opts ...client.CreateOption) error {
	var options client.CreateOptions
	options.ApplyOptions(opts)
	if len(options.DryRun) > 0 {
		return c.Server.Create(c.User, o, true)
	}
	return c.write("create", KeyOf(o), func() error { return c.Server.Create(c.User, o, false) })
}

// Update is client.Writer's.
func (c *Client) Update(_ context.Context, o client.Object, opts ...client.UpdateOption) error {
	refuse(len(opts) > 0, "options of Update")
	return c.write("update", KeyOf(o), func() error { return c.Server.Update(c.User, o, false) })
}

// Delete is client.Writer's.
func (c *Client) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(opts)
	refuse(len(options.DryRun) > 0 || options.PropagationPolicy != nil, "options of Delete other than preconditions")
	return c.write("delete", KeyOf(o), func() error { return c.Server.Delete(c.User, KeyOf(o), options.Preconditions) })
}

// Status is client.StatusClient's.
func (c *Client) Status() client.SubResourceWriter { return status{c} }

type status struct{ *Client }

// Update is client.SubResourceWriter's.
func (s status) Update(_ context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	refuse(len(opts) > 0, "options of Status().Update")
	return s.write("update the status of", KeyOf(o), func() error { return s.Server.Update(s.User, o, true) })
}

// Patch is client.SubResourceWriter's, of what was changed since it was read (kube.Changes, kube.StatusChanges): that
// comes to an update.
func (s status) Patch(
	ctx context.Context,
	o client.Object,
	p client.Patch,
	opts ...client.SubResourcePatchOption,
) error {
	data, err := p.Data(o)
	refuse(
		len(opts) > 0 || err != nil || !bytes.Contains(data, []byte(`resourceVersion"`)),
		"Status().Patch of anything but the resourceVersion that was read",
	)
	return s.Update(ctx, o)
}

// refuse stops where a reconciler asks for what is not simulated: an answer would be made up.
func refuse(missing bool, what string) {
	if missing {
		panic(fmt.Sprintf("not simulated: %s", what))
	}
}

// What follows is part of client.Client, and not simulated.

func (c *Client) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	panic("not simulated: Patch")
}

func (c *Client) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	panic("not simulated: Apply")
}

func (c *Client) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	panic("not simulated: DeleteAllOf")
}

func (c *Client) SubResource(string) client.SubResourceClient {
	panic("not simulated: SubResource")
}

func (c *Client) Scheme() *runtime.Scheme { panic("not simulated: Scheme") }

func (c *Client) RESTMapper() meta.RESTMapper { panic("not simulated: RESTMapper") }

func (c *Client) GroupVersionKindFor(o runtime.Object) (schema.GroupVersionKind, error) {
	return schema.GroupVersionKind{Group: kinds[KindOf(o)].group, Kind: KindOf(o)}, nil
}

func (c *Client) IsObjectNamespaced(o runtime.Object) (bool, error) {
	return !kinds[KindOf(o)].cluster, nil
}

func (s status) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	panic("not simulated: Status().Create")
}

func (s status) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	panic("not simulated: Status().Apply")
}
