package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conflict"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// late begins the cluster IDs of members that join during the run. They are evicted when their fault is repaired.
const late = "late-"

// disputed are the names that a late member exports too: those that every other member exports all the time.
var disputed = []string{"steady", "quarrel", "heads", "moving"}

// lateJoiner is a further member that exports names that run already, and claims to have done so for years. It has
// another type, other ports and the other family, and no endpoint. Rule C1: nothing that runs changes.
func lateJoiner(w *world, r *rand.Rand, _ *member) *fault {
	return w.intruder("a member joins with older exports", w.between(r, 3, 20), func(
		ctx context.Context, id string, hub client.Client,
	) error {
		var all error
		for _, name := range disputed {
			all = errors.Join(all, insist(ctx, func() error { return exists(hub.Create(ctx, oldExport(name, id))) }))
		}
		return all
	})
}

// thief has the credentials of a member, and tries what the hub must refuse. It floods the hub with records of its own.
func thief(w *world, r *rand.Rand, _ *member) *fault {
	return w.intruder("a member's key is stolen", w.between(r, 3, 20), func(
		ctx context.Context, id string, hub client.Client,
	) error {
		for what, try := range forgeries(id, w.members[r.IntN(len(w.members))].ID) {
			err := insist(ctx, func() error {
				err := try(ctx, hub)
				if refused(err) || err == nil {
					w.check(what, err)
					return nil
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		for i := range 200 {
			own := flood(i, id)
			if err := insist(ctx, func() error { return exists(hub.Create(ctx, own)) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// flood is an export in a namespace that no member has.
func flood(n int, id string) *hubv1alpha1.ServiceExportRecord {
	r := oldExport(fmt.Sprintf("flood-%d", n), id)
	r.Name, r.Spec.ServiceNamespace = clusterset.RecordName(r.Spec.ServiceName, "flood", id), "flood"
	return r
}

func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// check fails if the hub has accepted a forgery.
func (w *world) check(what string, err error) {
	if err == nil {
		w.tape.fail("the hub accepts from a thief: %s", what)
	}
}

// intruder is a fault in which a further member joins and acts, by its own credentials. It is evicted afterwards, and
// the fault is over once the hub controller has deleted all of it. Names have to run for longer than conflict.Window,
// because before that an older export may win.
func (w *world) intruder(
	name string, hold time.Duration, act func(ctx context.Context, id string, hub client.Client) error,
) *fault {
	if time.Since(w.populated) < conflict.Window+time.Minute {
		return nil
	}
	w.intruders++
	id := fmt.Sprintf("%s%d", late, w.intruders)
	return &fault{
		name: name, hold: hold, alone: true,
		begin: func(ctx context.Context) error {
			root, err := lab.Root()
			if err != nil {
				return err
			}
			if err := w.Hub.Apply(ctx, lab.HubMember(root, id)); err != nil {
				return err
			}
			hub, err := w.as(ctx, id)
			if err != nil {
				return err
			}
			return act(ctx, id, hub)
		},
		repair: func(ctx context.Context) error { return w.evict(ctx, id) },
	}
}

// as returns a client of the hub with a member's credentials.
func (w *world) as(ctx context.Context, id string) (client.Client, error) {
	path, err := w.Hub.ServiceAccountKubeconfig(ctx, lab.HubNamespace, "mcs-"+id, nil)
	if err != nil {
		return nil, err
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Timeout = -1, 10*time.Second
	return client.New(cfg, client.Options{Scheme: agent.Scheme()})
}

// evict deletes a member's ClusterProfile, and waits until the hub controller has deleted its records and the profile.
func (w *world) evict(ctx context.Context, id string) error {
	profile := &inventoryv1alpha1.ClusterProfile{ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: id}}
	return insist(ctx, func() error {
		err := w.hub.Delete(ctx, profile)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		return unless(err != nil)
	})
}

// oldExport is an export of a name that contradicts those of the other members, and claims to be years old.
func oldExport(name, id string) *hubv1alpha1.ServiceExportRecord {
	claimed := metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	kind := mcsv1beta1.Headless
	if slices.Contains(headless, name) {
		kind = mcsv1beta1.ClusterSetIP
	}
	return &hubv1alpha1.ServiceExportRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: lab.HubNamespace, Name: clusterset.RecordName(name, ns, id)},
		Spec: hubv1alpha1.ServiceExportRecordSpec{
			Origin: hubv1alpha1.Origin{
				ClusterID: id, ServiceNamespace: ns, ServiceName: name, Revision: 1,
			},
			ExportedAt:      &claimed,
			Type:            kind,
			SessionAffinity: corev1.ServiceAffinityClientIP,
			IPFamilies:      []corev1.IPFamily{corev1.IPv6Protocol},
			Ports:           []hubv1alpha1.ServicePort{{Name: "other", Protocol: corev1.ProtocolTCP, Port: 8443}},
		},
	}
}

// forgeries are writes of a thief that the hub must refuse.
func forgeries(id, victim string) map[string]func(context.Context, client.Client) error {
	record := func(name string) *hubv1alpha1.ServiceExportRecord {
		return &hubv1alpha1.ServiceExportRecord{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: lab.HubNamespace, Name: clusterset.RecordName(name, ns, victim),
			},
		}
	}
	return map[string]func(context.Context, client.Client) error{
		"another member's record is deleted": func(ctx context.Context, c client.Client) error {
			return c.Delete(ctx, record("steady"))
		},
		"another member's record is withdrawn": func(ctx context.Context, c client.Client) error {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"withdrawn":true}}`))
			return c.Patch(ctx, record("heads"), patch)
		},
		"another member's endpoints": func(ctx context.Context, c client.Client) error {
			return c.Create(ctx, &hubv1alpha1.EndpointPage{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: lab.HubNamespace, Name: clusterset.PageName(0, "heads", ns, victim),
				},
				Spec: hubv1alpha1.EndpointPageSpec{
					Origin: hubv1alpha1.Origin{
						ClusterID: victim, ServiceNamespace: ns, ServiceName: "heads", Revision: 1,
					},
					EndpointGroup: hubv1alpha1.EndpointGroup{
						AddressType: discoveryv1.AddressTypeIPv4,
						Endpoints:   []hubv1alpha1.Endpoint{{Address: "10.99.0.1"}},
					},
				},
			})
		},
		"a record in a protected namespace": func(ctx context.Context, c client.Client) error {
			r := oldExport("kube-dns", id)
			r.Name, r.Spec.ServiceNamespace = clusterset.RecordName("kube-dns", "kube-system", id), "kube-system"
			return c.Create(ctx, r)
		},
	}
}
