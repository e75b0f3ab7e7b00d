package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	aboutv1beta1 "github.com/clusterset-dns/clusterset-dns/controllers/api/about/v1beta1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// member is a cluster of these objects.
func member(id string, objects ...client.Object) *place {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: types.UID(id)}}
	c := fake.NewClientBuilder().WithScheme(cluster.Scheme()).WithObjects(append(objects, system)...).Build()
	return &place{Cluster: &cluster.Cluster{Client: c, Name: "context " + id}, id: id, created: true}
}

// options are those of a test in namespace verify-1.
func options() *Options {
	return &Options{Namespace: "verify-1", Timeout: time.Minute, Say: func(string, ...any) {}}
}

// TestANamespaceThatStaysCostsNoReport: it is a warning in the report, or part of the error if there is no report.
func TestANamespaceThatStaysCostsNoReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stays := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "verify-1", Finalizers: []string{"example.org/x"}},
		}
		places := []*place{member("east"), member("west", stays)}
		errs := remove(t.Context(), options(), places)

		all := newReport("blue", "verify-1", places)
		if err := all.cleanedUp(options(), nil, errs); err != nil {
			t.Errorf("there is a report: %v", err)
		}
		const want = "context west: deleting namespace verify-1 failed: "
		if report.Count(all.Findings) != (report.Tally{Warnings: 1}) || !strings.Contains(all.Findings[0].What, want) ||
			all.Findings[0].Remedy != "kubectl get namespace verify-1 -o yaml" {
			t.Errorf("%+v, want %q", all.Findings, want)
		}

		failed := errors.New("no route")
		if err := all.cleanedUp(options(), failed, errs); !errors.Is(err, failed) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("there is no report: %v", err)
		}
	})
}

// TestNoNamespaceGoesWhileAClusterExports: the agent of another would create it again, and never delete it (I12).
func TestNoNamespaceGoesWhileAClusterExports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var places []*place
		for _, id := range []string{"east", "west"} {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "verify-1"}}
			p := member(id, append(objects("verify-1", id, "image", ""), ns)...)
			p.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object,
					opts ...client.DeleteOption) error {
					_, is := o.(*corev1.Namespace)
					for _, other := range places {
						var left mcsv1beta1.ServiceExportList
						if err := other.List(ctx, &left); is && (err != nil || len(left.Items) > 0) {
							t.Errorf("that of %s goes while %s exports: %v", id, other.id, err)
						}
					}
					return c.Delete(ctx, o, opts...)
				},
			})
			places = append(places, p)
		}
		if err := errors.Join(remove(t.Context(), options(), places)...); err != nil {
			t.Error(err)
		}
	})
}

// TestAnAPIServerThatHangsKeepsNoOthersNamespace: each of its requests ends by its own deadline.
func TestAnAPIServerThatHangsKeepsNoOthersNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var places []*place
		for _, id := range []string{"east", "south", "west"} {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "verify-1"}}
			p := member(id, append(objects("verify-1", id, "image", ""), ns)...)
			p.Client = interceptor.NewClient(p.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					opts ...client.GetOption) error {
					if id == "south" {
						<-ctx.Done()
					}
					return cmp.Or(ctx.Err(), c.Get(ctx, key, o, opts...))
				},
			})
			places = append(places, p)
		}
		if err := errors.Join(remove(t.Context(), options(), places)...); err == nil {
			t.Error("south hangs, and nobody says so")
		}
		for _, p := range []*place{places[0], places[2]} {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "verify-1"}}
			if err := p.Get(t.Context(), client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
				t.Errorf("in %s it stays: %v", p.id, err)
			}
		}
	})
}

// TestAPodThatNoNodeTakesIsNoMatterOfItsImage.
func TestAPodThatNoNodeTakesIsNoMatterOfItsImage(t *testing.T) {
	for node, want := range map[string]string{
		"": "pod probe is not scheduled: 0/1 nodes are available; no node has taken the Pod\n" +
			"  → kubectl describe nodes",
		"n1": "phase Pending\n  → --image IMAGE",
	} {
		synctest.Test(t, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "verify-1", Name: vipName}}
			pod.Spec.NodeName, pod.Status.Phase = node, corev1.PodPending
			if node == "" {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled,
					Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}}
			}
			east := member("east", pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			if err := east.await(t.Context(), options()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("on node %q: %v, want %q", node, err, want)
			}
		})
	}
}

// TestAnExcludedNamespaceEndsTheWait: no import comes. A Service that the agent has not seen yet does not.
func TestAnExcludedNamespaceEndsTheWait(t *testing.T) {
	for reason, ends := range map[string]bool{"ExcludedNamespace": true, "NoService": false} {
		synctest.Test(t, func(t *testing.T) {
			export := &mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "verify-1", Name: vipName}}
			export.Status.Conditions = []metav1.Condition{{Type: "Valid", Status: metav1.ConditionFalse, Reason: reason,
				Message: "The ClusterSet excludes namespace verify-1."}}
			findings, err := awaitImports(t.Context(), options(), []*place{member("east", export)})
			if ends && (err == nil || !strings.Contains(err.Error(), "excludes namespace verify-1") ||
				!strings.Contains(err.Error(), "--namespace")) {
				t.Errorf("%s: %v", reason, err)
			}
			if !ends && (err != nil || len(findings) != 2) {
				t.Errorf("%s: %+v, %v", reason, findings, err)
			}
		})
	}
}

// TestALostPortForwardIsNoFinding about the network of the Pods; what the Pod says is.
func TestALostPortForwardIsNoFinding(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "i/o timeout", http.StatusBadGateway)
	}))
	east := member("east")
	east.local = netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	east.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}
	rows, err := east.ask(t.Context(), options(), []*place{east})
	if err != nil || len(rows) != 1 || rows[0].Route != "i/o timeout" {
		t.Errorf("%+v, %v", rows, err)
	}
	server.Close()
	rows, err = east.ask(t.Context(), options(), []*place{east})
	if err == nil || len(rows) > 0 ||
		!strings.Contains(err.Error(), "context east: asking Pod probe failed: port-forward") {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestAnOlderImageIsNoFinding: it takes other parameters, and returns other results.
func TestAnOlderImageIsNoFinding(t *testing.T) {
	older := http.NewServeMux()
	for path, answer := range map[string]string{"/resolve": `["10.96.0.1"]`, "/ask": `{"east": 1}`, "/connect": `{}`} {
		older.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
	}
	server := httptest.NewServer(older)
	defer server.Close()
	east := member("east")
	east.local = netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	east.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}
	rows, err := east.ask(t.Context(), options(), []*place{east})
	if err == nil || len(rows) > 0 || !strings.Contains(err.Error(), "its image is too old") {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestBeforeAnybodyHasJoinedRoutesAreTried, and nothing else; where only some have, the others are named. Two contexts
// of one cluster are no two clusters.
func TestBeforeAnybodyHasJoinedRoutesAreTried(t *testing.T) {
	property := func(name, value string) client.Object {
		return &aboutv1beta1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: aboutv1beta1.ClusterPropertySpec{Value: value}}
	}
	east, west := member("east"), member("west", property(clusterset.PropertyID, "west"),
		property(clusterset.PropertySet, "blue"))
	if _, _, err := members(t.Context(), []*cluster.Cluster{east.Cluster, west.Cluster}); err == nil ||
		!strings.Contains(err.Error(), "context east is a member of no ClusterSet, and others are") {
		t.Errorf("one has joined: %v", err)
	}
	out, set, err := members(t.Context(), []*cluster.Cluster{east.Cluster, member("south").Cluster})
	if err != nil || set != "" || len(out) != 2 || out[1].id != "context south" {
		t.Errorf("%q, %v, %v", set, out, err)
	}
	again := *east.Cluster
	again.Name = "context again"
	if _, _, err := members(t.Context(), []*cluster.Cluster{east.Cluster, &again}); err == nil ||
		!strings.Contains(err.Error(), "context east and context again lead to one cluster") {
		t.Errorf("two contexts of one cluster: %v", err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"east": 1}`)
	}))
	defer server.Close()
	east.local = netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	east.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}
	o := options()
	o.routes = true
	rows, err := east.ask(t.Context(), o, []*place{east})
	own := Result{"east", "east", corev1.IPv4Protocol, OK, None, None}
	if err != nil || len(rows) != 1 || rows[0] != own {
		t.Errorf("%+v, %v", rows, err)
	}
}

// TestALostPacketIsSentAgain by the Pod's resolver, before the probe gives up the lookup after three seconds.
func TestALostPacketIsSentAgain(t *testing.T) {
	pod := objects("verify-1", "east", "clusterset-controller", "")[0].(*corev1.Pod)
	got := map[string]int{"timeout": 5, "attempts": 2} // of a resolver without options
	for _, o := range ptr.Deref(pod.Spec.DNSConfig, corev1.PodDNSConfig{}).Options {
		got[o.Name], _ = strconv.Atoi(*o.Value)
	}
	if got["timeout"] < 1 || got["attempts"] < 2 || got["timeout"]*got["attempts"] > 3 {
		t.Errorf("%v", got)
	}
}

// TestClustersWithoutACommonFamily are one finding of their own, which hides none about the VIP.
func TestClustersWithoutACommonFamily(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch to := r.FormValue("to"); {
		case r.URL.Path == "/v2/resolve":
			fmt.Fprintf(w, `{"10.96.0.1": %d, "10.0.0.1": %[1]d, "10.0.0.2": %[1]d}`, tries)
		case strings.HasPrefix(to, "10.96.0.1:"):
			fmt.Fprint(w, `{"east": 100}`) // not mid
		default:
			fmt.Fprint(w, `{"east": 1, "mid": 1}`)
		}
	}))
	defer server.Close()
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "verify-1", Name: vipName}}
	imp.Spec.IPs, imp.Spec.IPFamilies = []string{"10.96.0.1"}, []corev1.IPFamily{corev1.IPv4Protocol}
	east, mid, west := member("east", imp), member("mid"), member("west")
	east.local = netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	east.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}
	mid.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}}}}
	west.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "fd00::3"}}}}
	places := []*place{east, mid, west}
	r := newReport("blue", "verify-1", places)
	var err error
	if r.Results, err = east.ask(t.Context(), options(), places); err != nil {
		t.Fatal(err)
	}
	r.conclude(places)
	if !failing(&r, "east and west have no IP family", "from east to mid by IPv4, the VIP does not lead there") ||
		!strings.Contains(r.Findings[0].Remedy, "dual-stack in one of them") {
		t.Errorf("%+v", r.Findings)
	}
	o := options()
	o.routes = true
	began := time.Now()
	if rows, err := east.look(t.Context(), o, places); err != nil || len(rows) != 2 || time.Since(began) > settling/2 {
		t.Errorf("%+v, %v after %v", rows, err, time.Since(began))
	}
}

// TestAgentsDoNotGetAheadOfVerify: they may create the namespace of an export that they see, and other members may not
// see any.
func TestAgentsDoNotGetAheadOfVerify(t *testing.T) {
	for _, members := range []int{2, 17} { // the list of an export has at most 16 entries
		synctest.Test(t, func(t *testing.T) {
			var places []*place
			for i := range members {
				places = append(places, member(fmt.Sprintf("c%02d", i)))
			}
			places[0].Client = interceptor.NewClient(places[0].Client.(client.WithWatch), interceptor.Funcs{
				Create: func(
					ctx context.Context, c client.WithWatch, o client.Object, by ...client.CreateOption,
				) error {
					if _, is := o.(*mcsv1beta1.ServiceExport); is {
						ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "verify-1"}}
						_ = places[1].Create(ctx, ns) // unless it is there
					}
					return c.Create(ctx, o, by...)
				},
			})
			o := options()
			o.Image = "clusterset-controller"
			if err := o.start(t.Context(), places); err == nil || !strings.Contains(err.Error(), "waiting for Pod") {
				t.Errorf("%v", err) // no Pod runs here
			}
			var exports mcsv1beta1.ServiceExportList
			if err := places[0].List(t.Context(), &exports); err != nil {
				t.Fatal(err)
			}
			want := map[int]string{2: "cluster=c00,cluster=c01"}[members]
			for _, e := range exports.Items {
				if got := e.Annotations[clusterset.AnnotationExportTo]; got != want {
					t.Errorf("%s is exported to %q, want %q", e.Name, got, want)
				}
			}
			if len(exports.Items) != 2 {
				t.Errorf("%d exports", len(exports.Items))
			}
		})
	}
}

// TestAnAttemptDoesNotPassByChance: every seventh lookup fails, as does every seventh connection to the VIP.
func TestAnAttemptDoesNotPassByChance(t *testing.T) {
	did := map[string]int{} // times, by the request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		times, _ := strconv.Atoi(r.FormValue("times"))
		what := r.URL.Path + r.FormValue("to")
		before := did[what] / 7
		did[what] += times
		failed := did[what]/7 - before
		switch {
		case strings.HasPrefix(r.FormValue("to"), "10.0.0.1:"): // its Pod
			fmt.Fprint(w, map[string]string{"/v2/ask": `{"east": 1}`, "/v2/connect": "{}"}[r.URL.Path])
		case r.URL.Path == "/v2/connect" && failed > 0:
			fmt.Fprintf(w, `{"timeout": %d}`, failed)
		case failed > 0:
			http.Error(w, "no such host", http.StatusBadGateway)
		default:
			fmt.Fprintf(w, `{"10.96.0.1": %d, "10.0.0.1": %[1]d, "east": %[1]d}`, times)
		}
	}))
	defer server.Close()
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "verify-1", Name: vipName}}
	imp.Spec.IPs, imp.Spec.IPFamilies = []string{"10.96.0.1"}, []corev1.IPFamily{corev1.IPv4Protocol}
	imp.Spec.Ports = []mcsv1beta1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}
	endpoints := endpointsOf("east", discoveryv1.AddressTypeIPv4, "10.0.0.1")
	endpoints.Namespace, endpoints.Labels[mcsv1beta1.LabelServiceName] = imp.Namespace, imp.Name
	east := member("east", imp, &endpoints)
	east.local = netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	east.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}
	rows, err := east.ask(t.Context(), options(), []*place{east})
	if err != nil || len(rows) != 1 || rows[0].Route != OK || !failed(rows[0].Name) || !failed(rows[0].VIP) {
		t.Errorf("%+v, %v", rows, err)
	}
	all := &Report{Name: "probe.verify-1"}
	if err := east.try(t.Context(), all, imp); err != nil ||
		!failing(all, "DNS probe.verify-1: no such host", "VIP 10.96.0.1:80: 14 of 100 connections failed: timeout") {
		t.Errorf("%+v, %v", all.Findings, err)
	}
	// Its Pod is another one after a restart.
	endpoints.Endpoints[0].Addresses[0] = "10.0.0.2"
	if err := east.Update(t.Context(), &endpoints); err != nil {
		t.Fatal(err)
	}
	all = &Report{Name: "probe.verify-1"}
	if err := east.try(t.Context(), all, imp); err != nil || all.Steps[2].What != "10.0.0.2:8080 in east" {
		t.Errorf("%+v, %v", all.Steps, err)
	}
}

// TestOneAttemptNeedNotMeetEveryCluster: a VIP leads to each by chance, and there may be many.
func TestOneAttemptNeedNotMeetEveryCluster(t *testing.T) {
	attempt := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v2/resolve":
			fmt.Fprintf(w, `{"10.96.0.1": %d, "10.0.0.1": %[1]d, "10.0.0.2": %[1]d}`, tries)
		case strings.HasPrefix(r.FormValue("to"), "10.96.0.1:"):
			attempt++
			fmt.Fprint(w, []string{`{"east": 40}`, `{"west": 40}`}[attempt%2])
		default:
			fmt.Fprint(w, `{"east": 1, "west": 1}`)
		}
	}))
	defer server.Close()
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "verify-1", Name: vipName}}
	imp.Spec.IPs, imp.Spec.IPFamilies = []string{"10.96.0.1"}, []corev1.IPFamily{corev1.IPv4Protocol}
	places := []*place{member("east", imp), member("west")}
	for i, p := range places {
		p.local = netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
		p.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.0.0.%d", i+1)}}}}
	}
	for range 2 {
		rows, err := places[0].ask(t.Context(), options(), places)
		if err != nil || len(rows) != 2 {
			t.Fatalf("%+v, %v", rows, err)
		}
		if all := rows[0].VIP == OK && rows[1].VIP == OK; all != (attempt == 2) {
			t.Errorf("attempt %d: %+v", attempt, rows)
		}
	}
}

// TestEachVIPKeepsWhoHasAnswered: dual-stack Services have two, and each attempt asks both.
func TestEachVIPKeepsWhoHasAnswered(t *testing.T) {
	answer := `{"east": 1}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, answer)
	}))
	defer server.Close()
	east := member("east")
	east.local = netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	for _, answer = range []string{`{"east": 1}`, `{"west": 1}`} {
		for _, vip := range []string{"10.96.0.1", "fd00::1"} {
			got, err := east.through(t.Context(), netip.MustParseAddr(vip))
			if err != nil || got["east"] != 1 || got["west"] != strings.Count(answer, "west") {
				t.Errorf("%s, after %s: %v, %v", vip, answer, got, err)
			}
		}
	}
}

// TestCausesAreFound: what fails without a route is not blamed on the VIP.
func TestCausesAreFound(t *testing.T) {
	for _, c := range []struct {
		route, name, vip string
		errors           int
		says             string
	}{
		{OK, OK, OK, 0, "0 errors"},
		{"i/o timeout", OK, "i/o timeout", 1, "routes between the Pods"},
		{OK, OK, "40 connections to 10.96.0.1 did not reach west", 1, "kube-proxy in east"},
		{OK, "no such host", OK, 1, "in cluster east: kubectl clusterset doctor"},
		{"i/o timeout", "no such host", "i/o timeout", 2, "failed   failed   failed"},
	} {
		r := newReport("blue", "verify-1", nil)
		r.Results = []Result{{"east", "west", "IPv4", c.route, c.name, c.vip}}
		if c.route != OK { // a VIP leads there, too
			r.Results = append(r.Results, Result{"east", "east", "IPv4", OK, OK, "i/o timeout"})
		}
		r.Results = append(r.Results, Result{"east", "east", "IPv6", OK, OK, None})
		r.conclude(nil)
		var out strings.Builder
		Print(&out, &r)
		if report.Count(r.Findings).Errors != c.errors || !strings.Contains(out.String(), c.says) {
			t.Errorf("%+v:\n%s", c, out.String())
		}
	}
}

// tried is what the Pod of east gets of web.shop: DNS answers one address, or "" for none, and it cannot connect to
// what is broken.
func tried(t *testing.T, imp *mcsv1beta1.ServiceImport, from []discoveryv1.EndpointSlice, answer, broken string,
) *Report {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch to := r.FormValue("to"); {
		case r.URL.Path == "/v2/resolve" && answer == "":
			http.Error(w, "no such host", http.StatusBadGateway)
		case r.URL.Path == "/v2/resolve" && to == "web.shop.svc.clusterset.local.":
			fmt.Fprintf(w, `{%q: %s}`, answer, r.FormValue("times"))
		case r.URL.Path == "/v2/connect" && slices.Contains(strings.Fields(broken), to):
			fmt.Fprintf(w, `{"timeout": %s}`, r.FormValue("times"))
		case r.URL.Path == "/v2/connect":
			fmt.Fprint(w, "{}")
		}
	}))
	defer server.Close()
	var objects []client.Object
	for i := range from {
		objects = append(objects, &from[i])
	}
	east := member("east", objects...)
	east.local = netip.MustParseAddrPort(server.Listener.Addr().String()).Port()
	east.pod = &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}}}
	all := &Report{Name: "web.shop"}
	if err := east.try(t.Context(), all, imp); err != nil {
		t.Error(err)
	}
	return all
}

// TestAPodThatRefusesIsNoMissingRoute.
func TestAPodThatRefusesIsNoMissingRoute(t *testing.T) {
	for why, want := range map[string]string{
		"dial tcp 10.1.0.1:8080: connect: connection refused": "the targetPort of Service web in west, or its Pod",
		"dial tcp 10.1.0.1:8080: i/o timeout":                 "routes between the Pods, or NetworkPolicies",
	} {
		if got := endpointRemedy("1 of 1 connections failed: "+why, "web", "west"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", why, got)
		}
	}
}

// failing reports whether exactly these steps have failed.
func failing(r *Report, steps ...string) bool {
	return slices.EqualFunc(r.Findings, steps, func(f report.Finding, step string) bool {
		return strings.HasPrefix(f.What, step)
	})
}

func endpointsOf(cluster string, family discoveryv1.AddressType, addresses ...string) discoveryv1.EndpointSlice {
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: strings.ToLower(string(family)),
			Labels: map[string]string{mcsv1beta1.LabelSourceCluster: cluster, mcsv1beta1.LabelServiceName: "web"}},
		AddressType: family, Ports: []discoveryv1.EndpointPort{{Port: ptr.To(int32(8080))}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// TestANameSaysWhichStepFailed: a cause, and not what follows from it.
func TestANameSaysWhichStepFailed(t *testing.T) {
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	imp.Spec.IPs = []string{"10.9.0.1"}
	imp.Spec.Ports = []mcsv1beta1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP},
		{Port: 53, Protocol: corev1.ProtocolUDP}}
	west := []discoveryv1.EndpointSlice{endpointsOf("west", discoveryv1.AddressTypeIPv4, "10.1.0.1")}
	for name, c := range map[string]struct {
		answer, broken string // the VIP that DNS answers, and what cannot be connected to
		endpoints      []discoveryv1.EndpointSlice
		want           []string // steps
	}{
		"all is well": {"10.9.0.1", "", west, nil},
		"DNS":         {"10.9.0.2", "", west, []string{"DNS web.shop: the VIP 10.9.0.1 is missing in 100 of 100"}},
		"no route": {"10.9.0.1", "10.1.0.1:8080 10.9.0.1:80", west,
			[]string{"Endpoint 10.1.0.1:8080 in west: 1 of 1"}},
		"kube-proxy": {"10.9.0.1", "10.9.0.1:80", west, []string{"VIP 10.9.0.1:80: 100 of 100"}},
		"none ready": {"10.9.0.1", "10.9.0.1:80", nil, []string{"Endpoint web.shop: no endpoint is ready"}},
		"no route by IPv6": {"10.9.0.1", "[fd01::1]:8080 10.9.0.1:80", []discoveryv1.EndpointSlice{
			endpointsOf("west", discoveryv1.AddressTypeIPv4, "10.1.0.1", "10.1.0.2", "10.1.0.3"),
			endpointsOf("west", discoveryv1.AddressTypeIPv6, "fd01::1", "fd01::2", "fd01::3"),
		}, []string{"Endpoint [fd01::1]:8080 in west: 1 of 1"}},
	} {
		all := tried(t, imp, c.endpoints, c.answer, c.broken)
		if last := all.Steps[len(all.Steps)-1]; !failing(all, c.want...) || last != (Step{"VIP", "10.9.0.1:53", None}) {
			t.Errorf("%s: %+v, want %q; last %v", name, all.Findings, c.want, last)
		}
	}
}

// TestAHeadlessNameWithoutReadyEndpointsDoesNotExist, and DNS does not fail.
func TestAHeadlessNameWithoutReadyEndpointsDoesNotExist(t *testing.T) {
	imp := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	imp.Spec.Type = mcsv1beta1.Headless
	down := endpointsOf("west", discoveryv1.AddressTypeIPv4, "10.1.0.1")
	down.Endpoints[0].Conditions.Ready = ptr.To(false)
	for want, from := range map[string]discoveryv1.EndpointSlice{
		"Endpoint web.shop: no endpoint is ready": down,
		"DNS web.shop: no such host":              endpointsOf("west", discoveryv1.AddressTypeIPv4, "10.1.0.1"),
	} {
		if all := tried(t, imp, []discoveryv1.EndpointSlice{from}, "", ""); !failing(all, want) {
			t.Errorf("%+v, want %q", all.Findings, want)
		}
	}
}
