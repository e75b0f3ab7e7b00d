package clustersetips

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// duplicateInterval is how often addresses are compared. The API server's own repair loop runs every few minutes.
const duplicateInterval = time.Minute

// Controller returns a controller that reports each address that a derived Service shares with another Service. It
// repairs nothing: the API server's repair loop recreates missing IPAddresses and frees leaked ones.
//
// Its one request repeats at duplicateInterval. The watch only starts it: every cluster that serves IPAddresses has a
// ServiceCIDR.
func (a *Addresses) Controller() kube.Controller {
	return kube.Controller{
		Name: "clustersetips",
		Watches: []kube.Watch{
			{
				Side:     kube.Local,
				Object:   &networkingv1.ServiceCIDR{},
				Optional: true,
				Requests: kube.Named(func(client.Object) types.NamespacedName {
					return types.NamespacedName{Name: "duplicates"}
				}),
			},
		},
		Reconciler: reconcile.Func(a.duplicates),
		Metrics:    []prometheus.Collector{a.count.allocations, a.count.errors, a.count.duration},
	}
}

// duplicates compares the addresses of all derived Services with the IPAddresses.
func (a *Addresses) duplicates(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: duplicateInterval}
	if a.Served(&networkingv1.IPAddress{}) != nil {
		return again, nil
	}
	var services corev1.ServiceList
	err := a.Local.List(
		ctx,
		&services,
		client.MatchingLabels{derived.LabelManagedBy: kube.Manager},
		client.UnsafeDisableDeepCopy,
	)
	if err != nil {
		return reconcile.Result{}, err
	}
	for i := range services.Items {
		svc := &services.Items[i]
		for _, text := range svc.Spec.ClusterIPs {
			other, err := a.otherOwner(ctx, client.ObjectKeyFromObject(svc), text)
			if err != nil {
				return reconcile.Result{}, err
			}
			if other.Name != "" {
				a.Events.Event(
					svc,
					kube.Warning,
					"VIPDoubled",
					fmt.Sprintf("%s also belongs to Service %s. Delete one of the two to give it "+
						"another address; this one with "+
						"--as=system:serviceaccount:clusterset-system:clusterset-controller.", text, other),
				)
			}
		}
	}
	return again, nil
}

// otherOwner returns the other Service that has the address, by both the IPAddress and its own spec; none if there is
// no such Service.
func (a *Addresses) otherOwner(
	ctx context.Context,
	service types.NamespacedName,
	address string,
) (none types.NamespacedName, err error) {
	ip, err := kube.Get[*networkingv1.IPAddress](ctx, a.Local, types.NamespacedName{Name: address})
	if err != nil {
		return none, err
	}
	owner, _ := ownerOf(ip)
	if owner.Name == "" || owner == service {
		return none, nil
	}
	other, err := kube.Get[*corev1.Service](ctx, a.Local, owner)
	if err != nil || other == nil || !slices.Contains(other.Spec.ClusterIPs, address) {
		return none, err
	}
	return owner, nil
}
