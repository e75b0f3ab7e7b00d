package sim

import (
	"context"
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/test/sim/api"
)

// enough seeds to find any planted fault.
const enough = 120

// planted are faults that the simulation must find, and the words that it must find for one of them.
var planted = []struct {
	name, says string
	agent      func(*kube.Env) // before the controllers are made
	hub        func(*api.Server)
}{
	{name: "absence is taken as deletion", says: "nobody touches", agent: func(env *kube.Env) {
		hub := env.Hub
		env.Hub = func() client.Client {
			if hub() == nil {
				return nil
			}
			return everybodyDeparted{hub()}
		}
	}},
	{name: "a withdrawn record does not wait", says: "though nobody exports that", agent: func(env *kube.Env) {
		hub := env.Hub
		env.Hub = func() client.Client {
			if hub() == nil {
				return nil
			}
			return noMembers{hub()}
		}
	}},
	{name: "pages are not counted", says: "imported endpoints", agent: func(env *kube.Env) {
		hub := env.Hub
		env.Hub = func() client.Client {
			if hub() == nil {
				return nil
			}
			return noPages{hub()}
		}
	}},
	{name: "pages go and come again", says: "though its record counts it", agent: func(env *kube.Env) {
		hub, read := env.Hub, 0
		env.Hub = func() client.Client {
			if hub() == nil {
				return nil
			}
			return losesPages{hub(), &read}
		}
	}},
	{
		name: "the hub takes what a member says for another",
		says: "nobody touches",
		hub:  func(s *api.Server) { s.Policies = nil },
	},
	{name: "any address is imported", says: "(S4)", agent: func(env *kube.Env) { env.Reserved = nil }},
	{name: "removal goes before addition", says: "C9", agent: local(func(c *broken) {
		c.update = func(ctx context.Context, o client.Object) error {
			if s, ok := o.(*discoveryv1.EndpointSlice); ok {
				again := s.DeepCopy()
				again.ResourceVersion = ""
				if err := c.Client.Delete(ctx, s); err != nil {
					return err
				}
				return c.Client.Create(ctx, again)
			}
			return c.Client.Update(ctx, o)
		}
	})},
	{name: "an import that nobody exports", says: "no record is in effect", agent: local(func(c *broken) {
		c.create = func(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
			if imp, ok := o.(*mcsv1beta1.ServiceImport); ok {
				other := imp.DeepCopy()
				other.Name = "nobody"
				if err := c.Client.Create(ctx, other); err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
			}
			return c.Client.Create(ctx, o, opts...)
		}
	})},
	{name: "imported slices stay", says: "(S2)", agent: local(func(c *broken) {
		c.delete = func(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
			if _, ok := o.(*discoveryv1.EndpointSlice); ok {
				return nil
			}
			return c.Client.Delete(ctx, o, opts...)
		}
	})},
	{name: "a VIP that was lost is not asked for again", says: "I6", agent: local(func(c *broken) {
		c.create = func(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
			if svc, ok := o.(*corev1.Service); ok {
				svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "", nil
			}
			return c.Client.Create(ctx, o, opts...)
		}
	})},
	{name: "an address is taken from whoever has it", says: "two owners", agent: local(func(c *broken) {
		c.create = func(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
			err := c.Client.Create(ctx, o, opts...)
			svc, ok := o.(*corev1.Service)
			if !ok || !apierrors.IsInvalid(err) || svc.Spec.ClusterIP == "" {
				return err
			}
			ip := &networkingv1.IPAddress{}
			ip.Name = svc.Spec.ClusterIP
			return errors.Join(c.Client.Delete(ctx, ip), err)
		}
	})},
	{name: "a peer's later revision is not followed", says: "spec of the ServiceImport", agent: local(func(c *broken) {
		c.update = func(ctx context.Context, o client.Object) error {
			if rec, ok := o.(*hubv1alpha1.ServiceExportRecord); ok && !rec.Spec.Withdrawn {
				return nil
			}
			return c.Client.Update(ctx, o)
		}
	})},
	{
		name: "a pass writes what is there already",
		says: "a pass over a settled state writes",
		agent: func(env *kube.Env) {
			right := env.Families
			env.Families = func(ctx context.Context) ([]corev1.IPFamily, error) {
				ns := &corev1.Namespace{}
				if err := env.Local.Get(ctx, client.ObjectKey{Name: kube.SystemNamespace}, ns); err != nil {
					return nil, err
				}
				if err := env.Local.Update(ctx, ns); err != nil {
					return nil, err
				}
				return right(ctx)
			}
		},
	},
	{
		name: "a pass deletes what is not there",
		says: "a pass over a settled state writes",
		agent: func(env *kube.Env) {
			right := env.Families
			env.Families = func(ctx context.Context) ([]corev1.IPFamily, error) {
				never := &discoveryv1.EndpointSlice{}
				never.Namespace, never.Name = kube.SystemNamespace, "never"
				if err := env.Local.Delete(ctx, never); client.IgnoreNotFound(err) != nil {
					return nil, err
				}
				return right(ctx)
			}
		},
	},
	{name: "a cached object is changed", says: "changed by its reader", agent: local(func(c *broken) {
		c.create = func(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
			var services corev1.ServiceList
			if err := c.Client.List(ctx, &services); err != nil {
				return err
			}
			for i := range services.Items {
				services.Items[i].Labels = map[string]string{"mine": "yes"}
			}
			return c.Client.Create(ctx, o, opts...)
		}
	})},
}

// everybodyDeparted is a hub on which every member departs in the far future.
type everybodyDeparted struct{ client.Client }

func (h everybodyDeparted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	sets, ok := list.(*hubv1alpha1.ClusterSetList)
	if !ok {
		return h.Client.List(ctx, list, opts...)
	}
	var read hubv1alpha1.ClusterSetList
	err := h.Client.List(ctx, &read)
	read.DeepCopyInto(sets) // what a cache returns must not change
	for i := range sets.Items {
		for _, id := range ids {
			sets.Items[i].Status.Departed = append(sets.Items[i].Status.Departed,
				hubv1alpha1.Departure{ClusterID: id, At: metav1.NewTime(start.AddDate(100, 0, 0))})
		}
	}
	return err
}

// noMembers is a hub that lists no members.
type noMembers struct{ client.Client }

func (h noMembers) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list.(type) {
	case *coordinationv1.LeaseList, *inventoryv1alpha1.ClusterProfileList:
		return nil
	}
	return h.Client.List(ctx, list, opts...)
}

// noPages is a hub that never shows pages, so that importers take what is stated there for empty.
type noPages struct{ client.Client }

func (h noPages) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	records, ok := list.(*hubv1alpha1.ServiceExportRecordList)
	if !ok {
		return h.Client.List(ctx, list, opts...)
	}
	var read hubv1alpha1.ServiceExportRecordList
	err := h.Client.List(ctx, &read, opts...)
	read.DeepCopyInto(records) // what a cache returns must not change
	for i := range records.Items {
		records.Items[i].Spec.Pages = 0
	}
	return err
}

// losesPages is a hub from which a member now and then deletes a page that it reads, and publishes it again.
type losesPages struct {
	client.Client
	read *int
}

func (h losesPages) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := h.Client.List(ctx, list, opts...)
	pages, ok := list.(*hubv1alpha1.EndpointPageList)
	if !ok || len(pages.Items) == 0 {
		return err
	}
	if *h.read++; *h.read%10 == 0 {
		_ = h.Client.Delete(ctx, pages.Items[0].DeepCopy()) // the hub refuses that of other members' pages
	}
	return err
}

// broken is a client that does some of its work otherwise.
type broken struct {
	client.Client
	create func(context.Context, client.Object, ...client.CreateOption) error
	update func(context.Context, client.Object) error
	delete func(context.Context, client.Object, ...client.DeleteOption) error
}

func (b *broken) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if b.create == nil {
		return b.Client.Create(ctx, o, opts...)
	}
	return b.create(ctx, o, opts...)
}

func (b *broken) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if b.update == nil {
		return b.Client.Update(ctx, o, opts...)
	}
	return b.update(ctx, o)
}

func (b *broken) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if b.delete == nil {
		return b.Client.Delete(ctx, o, opts...)
	}
	return b.delete(ctx, o, opts...)
}

// local breaks the client of an agent's own cluster.
func local(how func(*broken)) func(*kube.Env) {
	return func(env *kube.Env) {
		b := &broken{Client: env.Local}
		how(b)
		env.Local = b
	}
}

// TestPlantedFaultsAreFound: a simulation that finds nothing may have nothing to find, or be blind.
func TestPlantedFaultsAreFound(t *testing.T) {
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			others := map[string]uint64{}
			for seed, o := range play(1, enough, func(seed uint64) Options {
				o := options(seed)
				o.BreakAgent, o.BreakHub = p.agent, p.hub
				return o
			}) {
				var v *Violation
				if !errors.As(o.err, &v) {
					continue
				}
				what, _, _ := strings.Cut(v.What, "\n  ")
				if strings.Contains(v.What, p.says) {
					t.Logf("found with seed %d: %.300s", seed, what)
					return
				}
				others[what] = seed
			}
			t.Errorf("not found within %d seeds; others were: %v", enough, others)
		})
	}
}
