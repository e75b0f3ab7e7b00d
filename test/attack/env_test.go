// Package attack tries what somebody with one member's credentials for the hub may try. The hub, its policies and the
// rights are those of deploy/. Two other members with real agents and CoreDNS are the victims: no attack may change
// what they import, give out or answer. docs/security.md has the list; go test ./test/attack -update writes it.
package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/derived"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/imports"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	// thief is the attacker's cluster ID. It ends like a victim's.
	thief = "t.a"
	// shop is the victims' namespace; open is where the attacker may have a name of its own.
	shop, open = "shop", "open"
	// closed refuses imports in the victims, and nowhere does not exist there.
	closed, nowhere = "closed", "nowhere"
	// reserved is given to the victims' agents as --reserved-cidrs.
	reserved = "10.77.0.0/16"
	// limit is far more than anything takes: machines are shared.
	limit = 4 * time.Minute
)

// world is a hub, two victims and an attacker.
type world struct {
	*lab.ClusterSet
	hub     client.Client
	victims []*victim
	config  *rest.Config // the attacker's, for the hub
	http    *http.Client
	honest  int      // revision of the attacker's own export
	since   string   // when that began
	beside  []object // groups of endpoints that it has beside the honest one
	alive   context.CancelFunc
}

type victim struct {
	*lab.Member
	client.Client
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // of the clients
	code := m.Run()
	if shared.world != nil {
		shared.world.stop()
	}
	os.Exit(code)
}

var shared struct {
	sync.Once
	world *world
	err   error
}

// start returns the world, which the tests share.
func start(t *testing.T) *world {
	t.Helper()
	shared.Do(func() { shared.world, shared.err = newWorld(t) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	w := shared.world
	t.Cleanup(func() {
		if t.Failed() {
			for _, v := range w.victims {
				lines := strings.Split(v.Agent.Log(), "\n")
				t.Logf("agent %s:\n%s", v.ID, strings.Join(lines[max(0, len(lines)-40):], "\n"))
			}
		}
	})
	return w
}

func newWorld(t *testing.T) (_ *world, err error) {
	ctx := context.WithoutCancel(t.Context())
	w := &world{since: time.Now().UTC().Format(time.RFC3339)}
	args := []string{"--reserved-cidrs", reserved}
	w.ClusterSet, err = lab.StartClusterSet(ctx, lab.ClusterSetOptions{
		Members: []string{"a", "b"}, DNS: true, AgentArgs: map[string][]string{"a": args, "b": args},
	})
	if err != nil {
		return nil, err
	}
	if w.hub, err = w.Hub.Client(agent.Scheme()); err != nil {
		return w, err
	}
	for _, m := range w.Members {
		c, err := m.Cluster.Client(agent.Scheme())
		if err != nil {
			return w, err
		}
		w.victims = append(w.victims, &victim{m, c})
	}
	if err := w.joinThief(ctx); err != nil {
		return w, err
	}
	return w, w.furnish(ctx)
}

func (w *world) stop() {
	if w.alive != nil {
		w.alive()
	}
	w.Stop()
}

// joinThief gives the attacker what any member has on the hub, and renews its Lease.
func (w *world) joinThief(ctx context.Context) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	if err := w.Hub.Apply(ctx, lab.HubMember(root, thief)); err != nil {
		return err
	}
	file, err := w.Hub.ServiceAccountKubeconfig(ctx, lab.HubNamespace, clusterset.AccountPrefix+thief, nil)
	if err != nil {
		return err
	}
	if w.config, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		return err
	}
	if w.http, err = rest.HTTPClientFor(w.config); err != nil {
		return err
	}
	w.http.Timeout = limit
	if code, says := w.ask(ctx, create("leases", ownLease(time.Now()))); code != http.StatusCreated {
		return errors.New(says)
	}
	claimed := object{clusterset.AnnotationClusterUID: "uid"}
	claim := patch("clusterprofiles", thief, object{}.meta("annotations", claimed))
	if err := w.done(ctx, claim); err != nil {
		return err
	}
	ctx, w.alive = context.WithCancel(ctx)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Second):
				w.ask(ctx, w.update(ctx, "leases", ownLease(time.Now())))
			}
		}
	}()
	return nil
}

// furnish makes what the victims have, and the attacker's own name.
func (w *world) furnish(ctx context.Context) error {
	for _, v := range w.victims {
		for _, name := range []string{shop, open, closed} {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if name == closed {
				ns.Annotations = map[string]string{clusterset.AnnotationNamespaceImport: "false"}
			}
			if err := v.Create(ctx, ns); err != nil {
				return err
			}
		}
	}
	a, b := w.victims[0], w.victims[1]
	if err := errors.Join(
		a.export(ctx, "web", "", "10.1.0.1", "10.1.0.2"), a.export(ctx, "db", corev1.ClusterIPNone, "10.1.0.3"),
		a.export(ctx, "many", "", manyAddresses()...),
		b.export(ctx, "web", "", "10.2.0.1"), w.publishHonest(ctx),
	); err != nil {
		return err
	}
	for _, v := range w.victims {
		if err := errors.Join(
			v.imported(ctx, "web", 3), v.imported(ctx, "db", 1), v.imported(ctx, "many", paged),
			v.hasHonest(ctx, w.honestAddress()),
		); err != nil {
			return err
		}
	}
	if err := w.untilSteady(ctx); err != nil {
		return err
	}
	// What they export has run for long, as far as the hub knows.
	if err := w.Hub.Backdate(ctx, "hub.clusterset-dns.io/serviceexportrecords", time.Hour); err != nil {
		return err
	}
	return w.untilSteady(ctx)
}

// paged is how many endpoints the Service many has: more than a record takes, so that a has pages.
const paged = 101

func manyAddresses() (out []string) {
	for n := range paged {
		out = append(out, fmt.Sprintf("10.1.4.%d", n+1))
	}
	return out
}

func (v *victim) export(ctx context.Context, name, clusterIP string, addresses ...string) error {
	port, target, protocol, ready := "http", int32(8080), corev1.ProtocolTCP, true
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}}
	svc.Spec = corev1.ServiceSpec{ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Name: port, Port: 80}}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &target, Protocol: &protocol}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name}}
	return errors.Join(v.Create(ctx, svc), v.Create(ctx, slice), v.Create(ctx, export))
}

// imported waits until a name of the victims has so many endpoints.
func (v *victim) imported(ctx context.Context, name string, endpoints int) error {
	return until(ctx, v.ID+": import of "+name, func() error {
		var imp mcsv1beta1.ServiceImport
		if err := v.Get(ctx, client.ObjectKey{Namespace: shop, Name: name}, &imp); err != nil {
			return err
		}
		if imp.Spec.Type == mcsv1beta1.ClusterSetIP && len(imp.Spec.IPs) == 0 {
			return fmt.Errorf("it has no VIP: %+v", imp.Status)
		}
		if got, err := v.addresses(ctx, shop, name); err != nil || len(got) != endpoints {
			return fmt.Errorf("endpoints %v, want %d: %w", got, endpoints, err)
		}
		return nil
	})
}

// addresses returns the imported endpoints of a name.
func (v *victim) addresses(ctx context.Context, namespace, name string) (out []string, err error) {
	var list discoveryv1.EndpointSliceList
	err = v.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{mcsv1beta1.LabelServiceName: name})
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			out = append(out, e.Addresses...)
		}
	}
	slices.Sort(out)
	return out, err
}

// untilSteady waits until all exports of the victims are Ready, and what they have stays the same while they follow a
// change of the attacker's own name.
func (w *world) untilSteady(ctx context.Context) error {
	was := make([]string, len(w.victims))
	return until(ctx, "the victims are steady", func() (err error) {
		for i, v := range w.victims {
			var exports mcsv1beta1.ServiceExportList
			now, failed := v.state(ctx)
			err = errors.Join(err, failed, v.List(ctx, &exports))
			for _, e := range exports.Items {
				if !meta.IsStatusConditionTrue(e.Status.Conditions, string(mcsv1beta1.ServiceExportConditionReady)) {
					err = errors.Join(err, fmt.Errorf("%s of %s: %+v", e.Name, v.ID, e.Status.Conditions))
				}
			}
			if now != was[i] {
				err = errors.Join(err, errors.New(difference(was[i], now)))
			}
			was[i] = now
		}
		if err != nil {
			err = errors.Join(err, w.follow(ctx))
		}
		return err
	})
}

// state is what a victim has: everything that a consumer can see, except in the namespace open.
func (v *victim) state(ctx context.Context) (string, error) {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	var namespaces corev1.NamespaceList
	var imps mcsv1beta1.ServiceImportList
	var services corev1.ServiceList
	var sliceList discoveryv1.EndpointSliceList
	var exports mcsv1beta1.ServiceExportList
	err := errors.Join(v.List(ctx, &namespaces), v.List(ctx, &imps), v.List(ctx, &services), v.List(ctx, &sliceList),
		v.List(ctx, &exports))
	for i := range namespaces.Items {
		add("namespace %s %v", namespaces.Items[i].Name, namespaces.Items[i].Annotations)
	}
	for i := range imps.Items {
		if o := &imps.Items[i]; o.Namespace != open {
			add("import %s/%s %s %v %v %s %s", o.Namespace, o.Name, o.UID, o.Labels, o.Annotations, text(o.Spec),
				text(o.Status))
		}
	}
	for i := range services.Items {
		if o := &services.Items[i]; o.Namespace != open {
			add("service %s/%s %s %v %v %s", o.Namespace, o.Name, o.UID, o.Labels, o.Annotations, text(o.Spec))
		}
	}
	for i := range sliceList.Items {
		if o := &sliceList.Items[i]; o.Namespace != open {
			add("slice %s/%s %s %v %v %s %s", o.Namespace, o.Name, o.UID, o.Labels, o.Annotations, text(o.Endpoints),
				text(o.Ports))
		}
	}
	for i := range exports.Items {
		o := &exports.Items[i]
		add("export %s/%s %s", o.Namespace, o.Name, text(o.Status))
	}
	for _, q := range []struct {
		name  string
		qtype uint16
	}{
		{"web.shop.svc", dns.TypeA}, {"_http._tcp.web.shop.svc", dns.TypeSRV}, {"db.shop.svc", dns.TypeA},
		{"_http._tcp.db.shop.svc", dns.TypeSRV}, {"kube-dns.kube-system.svc", dns.TypeA}, {"web.closed.svc", dns.TypeA},
		{"web.nowhere.svc", dns.TypeA},
	} {
		answer, failed := v.query(q.name, q.qtype)
		err = errors.Join(err, failed)
		add("answer %s %d %s", q.name, q.qtype, answer)
	}
	slices.Sort(out)
	return transition.ReplaceAllString(strings.Join(out, "\n"), ""), err
}

// transition is when a condition changed: it may have changed back.
var transition = regexp.MustCompile(`"lastTransitionTime":"[^"]*",`)

func (v *victim) query(name string, qtype uint16) (string, error) {
	m := new(dns.Msg).SetQuestion(name+".clusterset.local.", qtype)
	reply, _, err := (&dns.Client{Net: "tcp", Timeout: limit}).Exchange(m, v.DNS.Addr())
	if err != nil {
		return "", err
	}
	var out []string
	for _, rr := range slices.Concat(reply.Answer, reply.Extra) {
		out = append(out, rr.String())
	}
	slices.Sort(out)
	return dns.RcodeToString[reply.Rcode] + " " + strings.Join(out, "; "), nil
}

// core is the part of a name of the victims that not even another exporter of it may change.
func (v *victim) core(ctx context.Context, name string) (string, error) {
	imp := &mcsv1beta1.ServiceImport{}
	var list discoveryv1.EndpointSliceList
	if err := errors.Join(
		v.Get(ctx, client.ObjectKey{Namespace: shop, Name: name}, imp),
		v.List(ctx, &list, client.InNamespace(shop), client.MatchingLabels{mcsv1beta1.LabelServiceName: name}),
	); err != nil {
		return "", err
	}
	out := []string{fmt.Sprintf("%s %s %v %v %s %s", imp.UID, imp.Spec.Type, imp.Spec.IPs, imp.Spec.IPFamilies,
		imp.Annotations[imports.AnnotationDerived], imp.Labels[derived.LabelManagedBy])}
	for _, p := range imp.Spec.Ports {
		if p.Port == 80 {
			out = append(out, text(p))
		}
	}
	for i := range list.Items {
		if s := &list.Items[i]; s.Labels[mcsv1beta1.LabelSourceCluster] != thief {
			out = append(out, fmt.Sprintf("%s %s %s", s.Name, text(s.Endpoints), text(s.Ports)))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n"), nil
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// request is one of the attacker's.
type request struct {
	method, path string
	kind         string // content type
	body         []byte
	header       map[string]string
}

// ask sends a request with the attacker's token and returns the hub's answer.
func (w *world) ask(ctx context.Context, r request) (code int, says string) {
	q, err := http.NewRequestWithContext(ctx, r.method, w.config.Host+r.path, bytes.NewReader(r.body))
	if err != nil {
		return 0, err.Error()
	}
	q.Header.Set("Content-Type", r.kind)
	q.Header.Set("Accept", "application/json")
	for k, v := range r.header {
		q.Header.Set(k, v)
	}
	answer, err := w.http.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return answer.StatusCode, err.Error()
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" && status.Message != "" {
		return answer.StatusCode, status.Message
	}
	return answer.StatusCode, string(body)
}

// until asks until there is no error.
func until(ctx context.Context, what string, ask func() error) error {
	return lab.Until(ctx, limit, what, ask)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
