package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clustersetips"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
	"github.com/clusterset-dns/clusterset-dns/controllers/servicecidrs"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	ns      = "bench"
	cluster = "a"
	crowd   = 4 // imports at a time
)

// world is one control plane, which is hub and member, with what picks addresses on it.
type world struct {
	setting
	client.Client // the admin's
	addresses     *clustersetips.Addresses
	agent         client.Client // whose requests are counted
	requests      *counter
	made          int
	ended         chan struct{}
}

// counter counts requests but for watches.
type counter struct {
	mu  sync.Mutex
	n   map[string]int // writes
	sum requests
}

// over counts what goes over a connection.
func (c *counter) over(to http.RoundTripper) http.RoundTripper { return counted{c, to} }

type counted struct {
	*counter
	to http.RoundTripper
}

// requests are how many an API server answers; a dry run, which creates nothing, goes all the way to the allocator
// as a write does.
type requests struct{ writes, dryRuns, reads int }

func (r requests) sum() int { return r.writes + r.dryRuns + r.reads }

func (r requests) since(before requests) requests {
	return requests{r.writes - before.writes, r.dryRuns - before.dryRuns, r.reads - before.reads}
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.count(r)
	return c.to.RoundTrip(r)
}

func (c *counter) count(r *http.Request) {
	query := r.URL.Query()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case query.Get("watch") != "":
	case r.Method == http.MethodGet:
		c.sum.reads++
	case query.Get("dryRun") != "":
		c.sum.dryRuns++
	default:
		resource, verb := r.URL.Path, "create"
		if r.Method != http.MethodPost {
			resource, verb = path.Dir(r.URL.Path), strings.ToLower(r.Method)
		}
		c.n[verb+" "+path.Base(resource)]++
		c.sum.writes++
	}
}

func (c *counter) of(verb, resource string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[verb+" "+resource]
}

// String is what was written so far.
func (c *counter) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.n)
}

func (c *counter) all() requests {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

type silent struct{}

func (silent) Event(kuberuntime.Object, string, string, string) {}

func newWorld(ctx context.Context, cp *lab.ControlPlane, s setting) (*world, error) {
	admin, err := cp.RESTConfig()
	if err != nil {
		return nil, err
	}
	admin.QPS = -1
	w := &world{setting: s, requests: &counter{n: map[string]int{}}, ended: make(chan struct{})}
	if w.Client, err = client.New(admin, client.Options{Scheme: agent.Scheme()}); err != nil {
		return nil, err
	}
	if err := w.set(ctx); err != nil {
		return nil, err
	}
	counted := rest.CopyConfig(admin)
	counted.Wrap(w.requests.over)
	again := true // of the controller's name
	mgr, err := manager.New(counted, manager.Options{
		Scheme:     agent.Scheme(),
		Logger:     logr.Discard(),
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again},
	})
	if err != nil {
		return nil, err
	}
	w.agent = mgr.GetClient()
	hub := func() client.Client { return mgr.GetClient() }
	missing := func(client.Object) error { return nil }
	w.addresses = clustersetips.New(kube.Member{
		Cluster:      cluster,
		HubNamespace: lab.HubNamespace,
		Local:        mgr.GetClient(),
		LocalNow:     mgr.GetAPIReader(),
		Hub:          hub,
		Events:       silent{},
		Now:          time.Now,
		Missing:      missing,
	})
	ranges := servicecidrs.New(kube.Member{
		Cluster: cluster, HubNamespace: lab.HubNamespace, Local: mgr.GetClient(), Hub: hub,
		Families: kube.Families(mgr.GetClient(), time.Now), Events: silent{}, Missing: missing,
	})
	ctl, err := controller.New(ranges.Name, mgr, ranges.Options())
	if err != nil {
		return nil, err
	}
	for _, watch := range ranges.Watches {
		if err := ctl.Watch(
			source.Kind(mgr.GetCache(), watch.Object, handler.EnqueueRequestsFromMapFunc(watch.Requests)),
		); err != nil {
			return nil, err
		}
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &networkingv1.IPAddress{}); err != nil {
		return nil, err
	}
	go func() { defer close(w.ended); _ = mgr.Start(ctx) }() // its end is ours
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return nil, errors.New("the caches have not synced")
	}
	return w, nil
}

// set makes the clusterset's mode and blocks, and the ranges by hand.
func (w *world) set(ctx context.Context) error {
	if err := w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		return err
	}
	set := &hubv1alpha1.ClusterSet{}
	if err := w.Get(ctx, client.ObjectKey{Namespace: lab.HubNamespace, Name: lab.HubNamespace}, set); err != nil {
		return err
	}
	set.Spec.VIPs.Mode, set.Spec.VIPs.Pools = hubv1alpha1.VIPMode(w.mode), w.blocks
	if err := w.Update(ctx, set); err != nil {
		return err
	}
	for _, b := range w.blocks {
		set.Status.Blocks = append(set.Status.Blocks, hubv1alpha1.Block{ClusterID: cluster, CIDR: b})
	}
	if err := w.Status().Update(ctx, set); err != nil {
		return err
	}
	var creations errgroup.Group
	creations.SetLimit(8)
	for i := range w.ranges {
		creations.Go(func() error {
			c := &networkingv1.ServiceCIDR{}
			c.Name, c.Labels = fmt.Sprintf("range-%d", i), map[string]string{ipam.LabelVIPs: ipam.Shared}
			c.Spec.CIDRs = w.cut(i)
			return w.Create(ctx, c)
		})
	}
	return creations.Wait()
}

// ready waits until each family has its ranges that VIPs come from.
func (w *world) ready(ctx context.Context) error {
	if w.mode == ipam.ModeShared { // VIPs come from the cluster's own
		return nil
	}
	for {
		var list networkingv1.ServiceCIDRList
		if err := w.List(ctx, &list, client.HasLabels{ipam.LabelVIPs}); err != nil {
			return err
		}
		open := map[corev1.IPFamily]int{}
		for i := range list.Items {
			ranges, errs := ipam.Ranges(&list.Items[i])
			if len(errs) > 0 {
				return errors.Join(errs...)
			}
			for _, r := range ranges {
				if r.State == ipam.Ready && len(list.Items[i].Finalizers) > 1 {
					open[ipam.Family(r.Prefix.Addr())]++
				}
			}
		}
		if !slices.ContainsFunc(w.families, func(f corev1.IPFamily) bool { return open[f] < max(1, w.ranges) }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// times are of the allocations of one line.
type times struct{ whole, reserve, ordinary []time.Duration }

// allocate gives VIPs to n more imports, so many at a time; beside tells to make as many ordinary Services.
func (w *world) allocate(ctx context.Context, n, askers int, beside bool) (out times, err error) {
	if n <= 0 {
		return out, nil
	}
	out = times{make([]time.Duration, n), make([]time.Duration, n), make([]time.Duration, n)}
	errs := make([]error, askers)
	var all sync.WaitGroup
	first := w.made
	for asker := range askers {
		all.Go(func() {
			for i := asker; i < n && errs[asker] == nil; i += askers {
				out.whole[i], out.reserve[i], errs[asker] = w.one(ctx, fmt.Sprintf("web-%d", first+i))
				if beside && errs[asker] == nil {
					out.ordinary[i], errs[asker] = w.ordinary(ctx, fmt.Sprintf("plain-%d", first+i))
				}
			}
		})
	}
	all.Wait()
	w.made += n
	return out, errors.Join(errs...)
}

// one does for a VIP what controllers/serviceimport does. Time counts from the first choice of an address.
func (w *world) one(ctx context.Context, name string) (whole, choice time.Duration, err error) {
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	q := &ipam.Request{
		Import:   imp,
		Service:  types.NamespacedName{Namespace: ns, Name: derived.Name(ns, name)},
		Families: w.families,
	}
	began := time.Now()
	for {
		chosen := time.Now()
		asked, err := w.addresses.Pick(ctx, q)
		choice = max(choice, time.Since(chosen))
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
		svc := w.service(q.Service.Name)
		for _, a := range asked {
			svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, a.String())
			svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
		}
		if err = w.agent.Create(ctx, svc); err == nil {
			w.addresses.Allocated(ctx, q, svc, time.Since(chosen))
			return time.Since(began), choice, nil
		}
		if err := w.addresses.Refused(ctx, q, asked, err); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", name, err)
		}
	}
}

// ordinary makes a Service as anybody does.
func (w *world) ordinary(ctx context.Context, name string) (time.Duration, error) {
	svc := w.service(name)
	began := time.Now()
	err := w.Create(ctx, svc)
	return time.Since(began), err
}

// own are the cluster's own ranges.
var own = []string{"10.96.0.0/16", "fd00:96::/108"}

// service is one of the world's families.
func (w *world) service(name string) *corev1.Service {
	policy := corev1.IPFamilyPolicySingleStack
	if len(w.families) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.ServiceSpec{
			Ports:          []corev1.ServicePort{{Port: 80}},
			IPFamilies:     w.families,
			IPFamilyPolicy: &policy,
		},
	}
}

// heap is what is in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
