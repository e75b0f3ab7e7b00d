// Package honest proves SPEC E3: each Service and EndpointSlice that an API server accepts is imported, or what was
// left out is named in condition Valid of its exporter. It draws objects, lets a real API server say which are valid,
// and compares the import in another cluster, and its DNS answers with those of cluster.local.
package honest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	namespace = "honest"
	seeds     = 48 // of a run without HONEST_FOR
	together  = 6
	limit     = 4 * time.Minute // of one step, far more than it takes: machines are shared
)

// corefile answers both zones, so that one program is asked for both.
const corefile = `.:DNS_PORT {
    bind 127.0.0.1
    errors
    health HEALTH_ADDR
    ready READY_ADDR
    prometheus METRICS_ADDR
    multicluster clusterset.local {
        kubeconfig %[1]s
    }
    kubernetes cluster.local {
        kubeconfig %[1]s
    }
}
`

// world is two members: a exports, b imports.
type world struct {
	a, b             client.Client
	dnsA, dnsB       string
	mu               sync.Mutex
	accepted, denied int // objects
	leftOut          int // passes in which Valid named something
}

// TestE3WhatTheAPIServerAcceptsIsImported plays fixed seeds; HONEST_SEED one, and HONEST_FOR new ones for that long.
func TestE3WhatTheAPIServerAcceptsIsImported(t *testing.T) {
	log.SetLogger(logr.Discard()) // of the clients
	w := start(t)
	first, count := uint64(0), seeds
	until := time.Now()
	if text := os.Getenv("HONEST_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, count = seed, 1
	}
	if text := os.Getenv("HONEST_FOR"); text != "" {
		duration, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		first, until = uint64(time.Now().UnixMilli()), until.Add(duration)
	}
	next := make(chan uint64)
	go func() {
		defer close(next)
		for i := 0; i < count || time.Now().Before(until); i++ {
			next <- first + uint64(i)
		}
	}()
	played := 0
	var all sync.WaitGroup
	for range together {
		all.Go(func() {
			for seed := range next {
				if err := w.play(t.Context(), seed); err != nil {
					t.Errorf("HONEST_SEED=%d: %v", seed, err)
				}
				w.mu.Lock()
				played++
				w.mu.Unlock()
			}
		})
	}
	all.Wait()
	const summary = "Kubernetes %s: %d seeds from %d; %d objects accepted, %d refused; %d times, something was left out"
	t.Logf(summary, lab.KubernetesVersion, played, first, w.accepted, w.denied, w.leftOut)
	if w.accepted == 0 || w.denied == 0 || played > 40 && w.leftOut == 0 {
		t.Error("the draw is too tame: it must meet what is refused and what is left out")
	}
}

func start(t *testing.T) *world {
	t.Helper()
	cs, err := lab.StartClusterSet(context.WithoutCancel(t.Context()), lab.ClusterSetOptions{
		Members: []string{"a", "b"}, DNS: true,
		Corefile: func(kubeconfig string) (string, error) { return fmt.Sprintf(corefile, kubeconfig), nil },
		Plane: func(string) lab.Options {
			return lab.Options{ServiceCIDR: "10.96.0.0/16,fd00:96::/112"}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cs.Stop)
	w := &world{dnsA: cs.Members[0].DNS.Addr(), dnsB: cs.Members[1].DNS.Addr()}
	for i, c := range []*client.Client{&w.a, &w.b} {
		if *c, err = cs.Members[i].Cluster.Client(agent.Scheme()); err != nil {
			t.Fatal(err)
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := (*c).Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// refused returns whether the API server does not accept an object. Of node ports it says that as a fault of its own.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "nodePort")
}

// created returns whether the API server accepts an object.
func (w *world) created(ctx context.Context, o client.Object) (bool, error) {
	err := w.a.Create(ctx, o)
	w.mu.Lock()
	defer w.mu.Unlock()
	if refused(err) {
		w.denied++
		return false, nil
	}
	w.accepted++
	return true, err
}

// play exports one Service, edits it, and ends the export.
func (w *world) play(ctx context.Context, seed uint64) (err error) {
	d := draw{rand.New(rand.NewPCG(seed, 0))}
	name := fmt.Sprint(pick(d, "h", "h", "7"), seed%1e12)
	if d.chance(0.1) {
		name += strings.Repeat("x", 63-len(name))
	}
	var svc *corev1.Service
	for {
		svc = d.service(namespace, name)
		if ok, err := w.created(ctx, svc); err != nil {
			return err
		} else if ok {
			break
		}
		name = "h" + strings.TrimLeft(name, "7h") // digits first are of Kubernetes 1.36
	}
	objects := []client.Object{svc}
	defer func() {
		for _, o := range objects {
			err = errors.Join(err, client.IgnoreNotFound(w.a.Delete(context.WithoutCancel(ctx), o)))
		}
	}()
	for i := range 1 + d.IntN(3) {
		slice := d.slice(svc, fmt.Sprintf("s%d-%d", seed, i))
		ok, err := w.created(ctx, slice)
		if err != nil {
			return err
		} else if ok {
			objects = append(objects, slice)
		}
	}
	export := d.export(svc)
	objects = append(objects, export)
	if err := w.a.Create(ctx, export); err != nil {
		return err
	}
	if err := w.settles(ctx, name); err != nil {
		return fmt.Errorf("%w%s", err, w.print(ctx, objects))
	}
	for range 2 {
		if err := w.a.Get(ctx, client.ObjectKeyFromObject(svc), svc); err != nil {
			return err
		}
		d.edit(svc)
		switch err := w.a.Update(ctx, svc); {
		case refused(err):
			continue
		case err != nil:
			return err
		}
		if err := w.settles(ctx, name); err != nil {
			return fmt.Errorf("after an edit: %w%s", err, w.print(ctx, objects))
		}
	}
	return nil
}

// print returns objects as they are now.
func (w *world) print(ctx context.Context, objects []client.Object) (text string) {
	for _, o := range objects {
		_ = w.a.Get(ctx, client.ObjectKeyFromObject(o), o)
		o.SetManagedFields(nil)
		printed, _ := yaml.Marshal(o)
		text += "\n---\n" + string(printed)
	}
	return text
}

// settles waits until what is imported of a name is right.
func (w *world) settles(ctx context.Context, name string) error {
	var s seen
	err := lab.Until(ctx, limit, name, func() (err error) {
		if s, err = w.see(ctx, name); err != nil {
			return err
		}
		return s.check()
	})
	if err == nil && strings.Contains(s.message, "no effect") {
		w.mu.Lock()
		w.leftOut++
		w.mu.Unlock()
	}
	return err
}

// see reads all of a name.
func (w *world) see(ctx context.Context, name string) (s seen, err error) {
	s = seen{
		service: &corev1.Service{}, export: &mcsv1beta1.ServiceExport{}, imp: &mcsv1beta1.ServiceImport{},
		dnsA: w.dnsA, dnsB: w.dnsB,
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := w.a.Get(ctx, key, s.service); err != nil {
		return s, err
	}
	if err := w.a.Get(ctx, key, s.export); err != nil {
		return s, err
	}
	if err := w.b.Get(ctx, key, s.imp); err != nil {
		return s, fmt.Errorf("%w; %+v", err, s.export.Status.Conditions)
	}
	return s, w.slices(ctx, &s)
}

// slices reads those of the Service itself, and those of the import in b.
func (w *world) slices(ctx context.Context, s *seen) error {
	var list discoveryv1.EndpointSliceList
	own := client.MatchingLabels{discoveryv1.LabelServiceName: s.service.Name}
	if err := w.a.List(ctx, &list, client.InNamespace(namespace), own); err != nil {
		return err
	}
	s.slices = list.Items
	var there discoveryv1.EndpointSliceList
	imported := client.MatchingLabels{"multicluster.kubernetes.io/service-name": s.service.Name}
	if err := w.b.List(ctx, &there, client.InNamespace(namespace), imported); err != nil {
		return err
	}
	s.imported = there.Items
	return nil
}
