package consumers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	namespace = "shop"
	service   = "web"
	here      = "a" // the cluster of the consumers, which exports the Service, too
	annotated = "clusterset-dns.io/preference"
)

// ports of the Service, by which consumers are asked, and where its Pods listen.
var ports = map[int32]int32{80: 8080, 5432: 15432}

// set holds endpoints as address:port.
type set = map[string]bool

// world is a clusterset whose members export one Service. Its Pods have a status, but no node runs them.
type world struct {
	*lab.ClusterSet
	client  map[string]client.Client // by cluster
	pods    map[string][]*pod        // by cluster
	made    int                      // pods, ever
	random  *rand.Rand
	vip     string
	derived string          // name of the Service with that VIP
	serving map[string]bool // clusters whose endpoints are to get traffic from here
	live    map[string]bool // clusters whose endpoints are known here
}

type pod struct {
	*corev1.Pod
	ready, terminating bool
}

// begin starts members with some Pods each, and returns when the Service is imported with all of them.
func begin(t *testing.T, members ...string) *world {
	t.Helper()
	// Nobody here renews a Node's Lease, so nothing may be evicted.
	planes := func(string) lab.Options {
		return lab.Options{ControllerManager: []string{
			"--controllers=*,-node-lifecycle-controller,-pod-garbage-collector-controller",
		}}
	}
	set, err := lab.StartClusterSet(t.Context(), lab.ClusterSetOptions{Members: members, Plane: planes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Stop)
	t.Cleanup(func() {
		if t.Failed() {
			log := strings.Split(set.Members[0].Agent.Log(), "\n")
			t.Logf("the agent of %s:\n%s", here, strings.Join(log[max(0, len(log)-30):], "\n"))
			slices, err := set.Members[0].Cluster.Kubectl(context.Background(), "", "-n", namespace,
				"get", "endpointslices", "-o", "yaml")
			t.Log(slices, err)
		}
	})
	w := &world{
		ClusterSet: set,
		client:     map[string]client.Client{},
		pods:       map[string][]*pod{},
		random:     rand.New(rand.NewPCG(49, 49)),
		serving:    map[string]bool{},
		live:       map[string]bool{},
	}
	for _, m := range set.Members {
		if w.client[m.ID], err = m.Cluster.Client(agent.Scheme()); err != nil {
			t.Fatal(err)
		}
		w.export(t, m.ID)
		w.serving[m.ID], w.live[m.ID] = true, true
	}
	w.wait(t, "the Service is imported", func() error {
		imported := &mcsv1beta1.ServiceImport{ObjectMeta: meta(service)}
		if err := w.client[here].Get(t.Context(), client.ObjectKeyFromObject(imported), imported); err != nil {
			return err
		}
		if len(imported.Spec.IPs) != 1 {
			return fmt.Errorf("ips %v", imported.Spec.IPs)
		}
		w.vip, w.derived = imported.Spec.IPs[0], imported.Annotations["multicluster.kubernetes.io/derived-service"]
		return nil
	})
	return w
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }

// export makes the Service, with six Pods, and its ServiceExport.
func (w *world) export(t *testing.T, cluster string) {
	t.Helper()
	svc := &corev1.Service{ObjectMeta: meta(service)}
	svc.Spec.Selector = map[string]string{"app": service}
	for _, number := range slices.Sorted(maps.Keys(ports)) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("p%d", number), Port: number, TargetPort: intstr.FromInt32(ports[number]),
		})
	}
	w.create(t, cluster,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	w.wait(t, cluster+" has the namespace's ServiceAccount", func() error {
		account := &corev1.ServiceAccount{ObjectMeta: meta("default")}
		return w.client[cluster].Get(t.Context(), client.ObjectKeyFromObject(account), account)
	})
	w.create(t, cluster, svc)
	for range 6 {
		w.add(t, cluster)
	}
	// Of two Services of one name, Istio takes the older one, and of one second the first by name.
	w.wait(t, "the next second", func() error {
		if !time.Now().Truncate(time.Second).After(svc.CreationTimestamp.Time) {
			return errors.New("a derived Service could be as old as the cluster's own")
		}
		return nil
	})
	w.create(t, cluster, &mcsv1beta1.ServiceExport{ObjectMeta: meta(service)})
}

func (w *world) create(t *testing.T, cluster string, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := w.client[cluster].Create(t.Context(), o); err != nil {
			t.Fatalf("%s: %T %s: %v", cluster, o, o.GetName(), err)
		}
	}
}

// add makes a ready Pod.
func (w *world) add(t *testing.T, cluster string) {
	t.Helper()
	w.made++
	p := &pod{Pod: &corev1.Pod{ObjectMeta: meta(fmt.Sprintf("web-%d", w.made))}, ready: true}
	p.Labels = map[string]string{"app": service}
	p.Spec.NodeName = "node"
	p.Spec.Containers = []corev1.Container{{Name: "web", Image: "web"}}
	w.create(t, cluster, p.Pod)
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", 1+cluster[0]-'a', w.made/250, 1+w.made%250)
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	w.report(t, cluster, p)
	w.pods[cluster] = append(w.pods[cluster], p)
}

// report writes a Pod's status, as its kubelet does.
func (w *world) report(t *testing.T, cluster string, p *pod) {
	t.Helper()
	status := corev1.ConditionFalse
	if p.ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: status}, {Type: corev1.ContainersReady, Status: status},
	}
	if err := w.client[cluster].Status().Update(t.Context(), p.Pod); err != nil {
		t.Fatal(err)
	}
}

// change does one thing to a Pod: it comes, goes, terminates, or is ready no more or again. Two stay ready, since a
// preference hands over when there is none.
func (w *world) change(t *testing.T, cluster string) {
	t.Helper()
	all, ready := w.pods[cluster], 0
	for _, p := range all {
		if p.ready && !p.terminating {
			ready++
		}
	}
	at := w.random.IntN(len(all))
	p := all[at]
	switch action := w.random.IntN(4); {
	case action == 0 || ready <= 2:
		w.add(t, cluster)
	case action == 1 || p.terminating:
		w.delete(t, cluster, p, 0)
		w.pods[cluster] = slices.Delete(all, at, at+1)
	case action == 2:
		w.delete(t, cluster, p, 600)
		p.terminating = true
	default:
		p.ready = !p.ready
		w.report(t, cluster, p)
	}
}

func (w *world) delete(t *testing.T, cluster string, p *pod, grace int64) {
	t.Helper()
	if err := w.client[cluster].Delete(t.Context(), p.Pod, client.GracePeriodSeconds(grace)); err != nil {
		t.Fatal(err)
	}
}

// exported returns the endpoints of a port in clusters: those that are to get new connections, or all.
func (w *world) exported(port int32, clusters map[string]bool, all bool) set {
	out := set{}
	for cluster := range clusters {
		for _, p := range w.pods[cluster] {
			if all || p.ready && !p.terminating {
				out[fmt.Sprintf("%s:%d", p.Status.PodIP, ports[port])] = true
			}
		}
	}
	return out
}

// proxied returns the endpoints of a port that kube-proxy here sends new connections to: those that are ready, in
// slices of the derived Service that it watches, under the port's name in that Service.
func (w *world) proxied(ctx context.Context, port int32) (set, error) {
	svc := &corev1.Service{ObjectMeta: meta(w.derived)}
	if err := w.client[here].Get(ctx, client.ObjectKeyFromObject(svc), svc); err != nil {
		return nil, err
	}
	var list discoveryv1.EndpointSliceList
	err := w.client[here].List(ctx, &list, client.InNamespace(namespace),
		client.MatchingLabels{discoveryv1.LabelServiceName: w.derived})
	out := set{}
	for _, s := range list.Items {
		_, headless := s.Labels[corev1.IsHeadlessService]
		_, foreign := s.Labels["service.kubernetes.io/service-proxy-name"]
		if headless || foreign {
			continue
		}
		for _, p := range s.Ports {
			named := func(of corev1.ServicePort) bool { return of.Name == *p.Name && of.Port == port }
			if !slices.ContainsFunc(svc.Spec.Ports, named) {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					out[fmt.Sprintf("%s:%d", e.Addresses[0], *p.Port)] = true
				}
			}
		}
	}
	return out, err
}

// prefer writes the order of clusters into every export; "" deletes it.
func (w *world) prefer(t *testing.T, order string) {
	t.Helper()
	for cluster, c := range w.client {
		w.wait(t, "write of the preference in "+cluster, func() error {
			e := &mcsv1beta1.ServiceExport{ObjectMeta: meta(service)}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(e), e); err != nil {
				return err
			}
			if e.Annotations == nil {
				e.Annotations = map[string]string{}
			}
			e.Annotations[annotated] = order
			if order == "" {
				delete(e.Annotations, annotated)
			}
			return c.Update(t.Context(), e)
		})
	}
}

// member returns the one with this ID.
func (w *world) member(id string) *lab.Member {
	return w.Members[slices.IndexFunc(w.Members, func(m *lab.Member) bool { return m.ID == id })]
}

// wait asks until there is no error.
func (w *world) wait(t *testing.T, what string, ask func() error) {
	t.Helper()
	if err := lab.Until(t.Context(), limit, what, ask); err != nil {
		t.Fatal(err)
	}
}

// difference says what is in one only.
func difference(got, want set) error {
	var extra, missing []string
	for e := range got {
		if !want[e] {
			extra = append(extra, e)
		}
	}
	for e := range want {
		if !got[e] {
			missing = append(missing, e)
		}
	}
	if len(extra)+len(missing) == 0 {
		return nil
	}
	slices.Sort(extra)
	slices.Sort(missing)
	return fmt.Errorf("%d of %d endpoints; too many: %s; missing: %s",
		len(want)-len(missing), len(want), strings.Join(extra, " "), strings.Join(missing, " "))
}

const (
	soon  = 30 * time.Second // for what takes a second or two, since machines are shared
	limit = 3 * time.Minute  // for what waits until programs have started, or a Lease has expired
)
