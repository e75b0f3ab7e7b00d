package clustersetip

import (
	"context"
	"errors"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// rest is why an address that no IPAddress is of goes to nobody else.
type rest struct {
	of    types.NamespacedName
	until time.Time
}

// claimants are those whose VIPs rest where no IPAddress speaks for them.
type claimants struct {
	services []corev1.Service
	imports  []mcsv1beta1.ServiceImport // of this agent
}

// claimants reads them. Nobody needs to wait for that: whoever came or went meanwhile is told by the watch of IPAddresses.
func (r *Room) claimants(ctx context.Context) (claimants, error) {
	var services corev1.ServiceList
	var imports mcsv1beta1.ServiceImportList
	err := errors.Join(
		r.Local.List(ctx, &services, client.UnsafeDisableDeepCopy),
		r.Local.List(ctx, &imports, client.UnsafeDisableDeepCopy, client.MatchingLabels{derived.LabelManagedBy: kube.Manager}))
	return claimants{services.Items, imports.Items}, err
}

// keep makes the VIPs rest that no IPAddress speaks for, as long as they are somebody's: those of derived Services, where it was lost, and
// those of imports whose derived Service is gone and comes back with them (I6). An agent may have seen neither go. They are returned,
// since they need their ranges as others do (V3). Under the lock.
func (r *Room) keep(all claimants) (vips []ipam.Held) {
	if r.view.unsupported != nil {
		return nil
	}
	seen := map[netip.Addr]bool{}
	hold := func(owner types.NamespacedName, texts []string) {
		for _, text := range texts {
			a, err := netip.ParseAddr(text)
			e, there := r.view.addresses[a]
			if _, given := r.gifts[a]; err != nil || given || there && !e.fence || seen[a] {
				continue
			}
			seen[a] = true
			vips = append(vips, ipam.Held{Owner: owner, Address: a})
		}
	}
	for i := range all.services {
		svc := &all.services[i]
		r.whose(svc)
		if derived.Is(svc, kube.Manager) && !r.rested(client.ObjectKeyFromObject(svc)) {
			hold(client.ObjectKeyFromObject(svc), svc.Spec.ClusterIPs)
		}
	}
	for i := range all.imports {
		imp := &all.imports[i]
		hold(types.NamespacedName{Namespace: imp.Namespace, Name: derived.Name(imp.Namespace, imp.Name)}, imp.Spec.IPs)
	}
	until := r.Now().Add(derived.Quarantine)
	for _, h := range vips {
		rests := func() { r.rests[h.Address] = rest{h.Owner, until} }
		if r.view.alloc == nil { // it is made by them
			rests()
		} else {
			r.change(h.Address, rests)
		}
	}
	return vips
}

// whose notes whether a Service that has the name of a derived one is one: an address may have been seen before its Service. Under the lock.
func (r *Room) whose(svc *corev1.Service) {
	if !derived.Named(svc.Name) {
		return
	}
	for _, text := range svc.Spec.ClusterIPs {
		a, err := netip.ParseAddr(text)
		e := r.view.addresses[a]
		if err != nil || e.uid == "" || e.fence || e.other != "" || e.held.Owner != client.ObjectKeyFromObject(svc) {
			continue
		}
		e.held.Foreign = !derived.Is(svc, kube.Manager)
		if now := func() { r.view.addresses[a] = e }; r.view.alloc == nil { // it is made by them
			now()
		} else if r.view.addresses[a] != e {
			r.change(a, now)
		}
	}
}
