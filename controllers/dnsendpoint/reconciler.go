// Package dnsendpoint writes the external names of Services (SPEC F5) as DNSEndpoint objects of external-dns, for one
// zone (F6). It reads the external EndpointSlices of its own cluster and nothing of the hub. It does not know which
// provider external-dns writes to.
package dnsendpoint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	externaldnsv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/externaldns/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// prefix, followed by the name of a Service, is the name of its DNSEndpoint.
const prefix = "external-"

// missingInterval is how often a name is looked at while DNSEndpoints cannot be read: no event says that they can.
const missingInterval = 15 * time.Second

type Config struct {
	kube.Member
	Zone string // without a dot at its end
}

// New returns the controller. Its requests are namespace/name of a Service.
func New(c Config) kube.Controller {
	return kube.Controller{
		Name: "dnsendpoint",
		Watches: []kube.Watch{
			{Side: kube.Local, Object: &discoveryv1.EndpointSlice{}, Requests: kube.Named(kube.ExternalOf)},
			{
				Side:     kube.Local,
				Object:   &mcsv1beta1.ServiceImport{},
				Requests: kube.Named(client.ObjectKeyFromObject),
				Alike:    sameOwner,
			},
			{
				Side: kube.Local, Object: &externaldnsv1alpha1.DNSEndpoint{}, Requests: kube.Named(serviceOf),
				Optional: true,
			},
		},
		Reconciler: &reconciler{c},
	}
}

// serviceOf returns the Service that a DNSEndpoint is named after, or an empty name.
func serviceOf(o client.Object) types.NamespacedName {
	service, found := strings.CutPrefix(o.GetName(), prefix)
	if !found {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: service}
}

// sameOwner is the Alike of ServiceImports, which are read as owners only.
func sameOwner(was, is client.Object) bool {
	return was.GetUID() == is.GetUID() && kube.Manages(was) == kube.Manages(is)
}

type reconciler struct{ Config }

// Reconcile makes the DNSEndpoint of one Service what its external slices state.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	imp, err := kube.Get[*mcsv1beta1.ServiceImport](ctx, r.Local, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	want, err := r.want(ctx, req.NamespacedName, imp)
	if err != nil || want != nil && !kube.Manages(imp) { // then the slices stay as they are, too
		return reconcile.Result{}, err
	}
	if why := r.Missing(&externaldnsv1alpha1.DNSEndpoint{}); why != nil {
		if want == nil {
			return reconcile.Result{}, nil
		}
		r.Events.Event(kube.System(), kube.Warning, "DNSEndpointsUnavailable", fmt.Sprintf(
			"External names are not written as DNSEndpoints: %v. Install the CRD of external-dns, and: "+
				"kubectl apply -k deploy/member/dnsendpoint", why))
		return reconcile.Result{RequeueAfter: missingInterval}, nil
	}
	name := types.NamespacedName{Namespace: req.Namespace, Name: prefix + req.Name}
	is, err := kube.Get[*externaldnsv1alpha1.DNSEndpoint](ctx, r.Local, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err = r.apply(ctx, want, is); want != nil && kube.Refused(err) {
		r.Events.Event(imp, kube.Warning, "DNSEndpointRefused", fmt.Sprintf("This cluster's API server refuses "+
			"DNSEndpoint %s: %v; change its policy or quota", want.Name, err))
	}
	return reconcile.Result{}, err
}

// want returns the DNSEndpoint that the slices of a Service ask for; nil if it has no external names or no import.
func (r *reconciler) want(
	ctx context.Context, service types.NamespacedName, imp *mcsv1beta1.ServiceImport,
) (*externaldnsv1alpha1.DNSEndpoint, error) {
	if imp == nil {
		return nil, nil
	}
	var list discoveryv1.EndpointSliceList
	named := client.MatchingFields{kube.ByExternal: kube.Key(service)}
	if err := r.Local.List(ctx, &list, client.InNamespace(service.Namespace), named); err != nil {
		return nil, err
	}
	records := Records(r.Zone, service, slices.DeleteFunc(list.Items, func(s discoveryv1.EndpointSlice) bool {
		return !kube.Owned(&s)
	}))
	if len(records) == 0 {
		return nil, nil
	}
	controlled := false
	return &externaldnsv1alpha1.DNSEndpoint{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: prefix + service.Name,
			Labels: map[string]string{derived.LabelManagedBy: kube.Manager},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: mcsv1beta1.GroupVersion.String(), Kind: "ServiceImport", Name: imp.Name, UID: imp.UID,
				Controller: &controlled,
			}},
		},
		Spec: externaldnsv1alpha1.DNSEndpointSpec{Endpoints: records},
	}, nil
}

// apply writes what differs. An object of the name that belongs to another program stays (I10).
func (r *reconciler) apply(ctx context.Context, want, is *externaldnsv1alpha1.DNSEndpoint) error {
	switch {
	case is == nil && want == nil:
		return nil
	case is == nil:
		log.FromContext(ctx).Info("creating a DNSEndpoint", "endpoint", want.Name, "records", len(want.Spec.Endpoints))
		return r.Local.Create(ctx, want)
	case !kube.Owned(is):
		if want != nil {
			r.Events.Event(is, kube.Warning, "DNSEndpointNotOwned", fmt.Sprintf(
				"The external names of Service %s/%s are not written: this DNSEndpoint belongs to another program. "+
					"If they should be: kubectl -n %[1]s delete dnsendpoint %[2]s", is.Namespace, is.Name))
		}
		return nil
	case is.DeletionTimestamp != nil:
		return nil // its end requests another pass
	case want == nil:
		log.FromContext(ctx).Info("deleting a DNSEndpoint", "endpoint", is.Name)
		return kube.Delete(ctx, r.Local, is)
	}
	next := is.DeepCopy()
	next.Spec, next.OwnerReferences = want.Spec, want.OwnerReferences
	if equality.Semantic.DeepEqual(next, is) {
		return nil
	}
	log.FromContext(ctx).Info("updating a DNSEndpoint", "endpoint", is.Name, "records", len(next.Spec.Endpoints))
	return r.Local.Update(ctx, next)
}
