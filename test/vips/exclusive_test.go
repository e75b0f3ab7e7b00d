package vips

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// TestV2OnlyVIPsLiveInAnExclusiveRange: each is fenced before the API server can give out of it, in every family, and an ordinary Service
// that is faster where a VIP is given out is counted.
func TestV2OnlyVIPsLiveInAnExclusiveRange(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	e.mode(t, ipam.ModeExclusive, "10.211.0.0/22", "fd00:211::/112")
	first := []string{"10.211.0.0/24", "fd00:211::/120"}
	for _, p := range first {
		e.wantRange(t, p)
		e.wantFencedFirst(t, p)
	}
	lost := e.metric(t, e.series("swap_losses_total"))
	var ordinary sync.WaitGroup
	for i := range 2 {
		ordinary.Go(func() {
			for j := range 30 {
				if err := e.Create(t.Context(), service(ns, fmt.Sprintf("plain-%d-%d", i, j), both)); err != nil {
					t.Error(err) // no ordinary creation is refused because of us
				}
			}
		})
	}
	for name, families := range map[string][]corev1.IPFamily{"four": v4, "six": v6, "both": both} {
		e.export(t, ns, name, families)
		wantIn(t, e.wantVIPs(t, ns, name, families), first...)
	}
	for _, p := range first { // V6
		for _, name := range []string{"allocations_total", "allocation_duration_seconds_count"} {
			e.wantMetric(t, e.series(name, "range", p), is("2"))
		}
	}
	ordinary.Wait()
	e.wantMetric(t, e.series("swap_losses_total"), is(strconv.Itoa(lost+len(e.ordinaryIn(t, first...)))))
	if n := len(e.ours(t)); n != 2 {
		t.Errorf("%d ranges were made, want one of each family", n)
	}
}

// TestV2TheNextRangeIsThereBeforeThisOneIsFull: cut of the next block, and fenced before it is one.
func TestV2TheNextRangeIsThereBeforeThisOneIsFull(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	e.mode(t, ipam.ModeExclusive, "10.213.0.0/28", "10.213.0.16/28")
	e.wantRange(t, "10.213.0.0/28")
	for i := range 10 {
		e.export(t, ns, fmt.Sprintf("web-%d", i), v4)
		wantIn(t, e.wantVIPs(t, ns, fmt.Sprintf("web-%d", i), v4), "10.213.0.0/28")
	}
	if e.ours(t)["10.213.0.16/28"] != nil {
		t.Error("there is another range before it is needed")
	}
	e.export(t, ns, "web-10", v4)
	wantIn(t, e.wantVIPs(t, ns, "web-10", v4), "10.213.0.0/28")
	e.wantRange(t, "10.213.0.16/28")
	e.wantFencedFirst(t, "10.213.0.16/28")
	e.wantProperty(t, clusterset.PropertyBlocks, "ipv4=2 ipv6=1")
	for series, want := range map[string]string{"allocated": "11", "available": "3"} {
		e.wantMetric(t, e.series("range_"+series, "range", "10.213.0.0/28"), is(want))
	}
	e.wantMetric(t, e.series("allocations_total", "range", "10.213.0.0/28"), is("11"))
	e.wantMetric(t, e.series("allocation_duration_seconds_count", "range", "10.213.0.0/28"), is("11"))
	if found := e.ordinaryIn(t, "10.213.0.0/28", "10.213.0.16/28"); len(found) > 0 {
		t.Errorf("ordinary Services: %v", found)
	}
}

// TestV4TheFenceIsMended: in each family, after a freed VIP, a lost reservation, and a crash in between; an ordinary Service that was faster
// is counted and reported, at once and by an agent that starts, and the VIP is another address.
func TestV4TheFenceIsMended(t *testing.T) {
	for _, c := range []struct {
		families []corev1.IPFamily
		block    string
	}{{v4, "10.212.0.0/29"}, {v6, "fd00:212::/125"}} {
		t.Run(string(c.families[0]), func(t *testing.T) {
			e := start(t)
			ns := e.namespace(t)
			block := c.block
			at := slices.Collect(ipam.Addresses(netip.MustParsePrefix(block)))
			third, fourth, fifth := at[2].String(), at[3].String(), at[4].String()
			e.mode(t, ipam.ModeExclusive, block)
			e.wantRange(t, block)
			e.wantFence(t, block)

			vip := func(name string) netip.Addr {
				e.export(t, ns, name, c.families)
				ips := e.wantVIPs(t, ns, name, c.families)
				wantIn(t, ips, block)
				return ips[0]
			}
			freed := vip("freed")
			e.wantMetric(t, e.series("range_allocated", "range", block), is("1")) // V6
			e.wantMetric(t, e.series("range_available", "range", block), is(strconv.Itoa(len(at)-1)))
			if err := e.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil { // with it the promise ends
				t.Fatal(err)
			}
			e.wantReservation(t, freed.String())

			e.remove(t, third)
			e.wantReservation(t, third)

			made := ipam.Named(netip.MustParsePrefix(block), ipam.Exclusive).Name
			other := e.namespace(t, "other")
			lost := e.metric(t, e.series("swap_losses_total"))
			if err := e.Agent.Pause(); err != nil { // else the agent may be faster
				t.Fatal(err)
			}
			e.remove(t, third)
			quick := service(other, "quick", c.families)
			quick.Spec.ClusterIP = third
			e.create(t, quick)
			if err := e.Agent.Resume(); err != nil {
				t.Fatal(err)
			}
			e.wantMetric(t, e.series("swap_losses_total"), is(strconv.Itoa(lost+1)))
			e.wantEvent(t, "default", made, "VIPSwapLost", other+"/quick")
			if err := e.Delete(t.Context(), quick); err != nil {
				t.Fatal(err)
			}
			e.wantReservation(t, third)

			e.Agent.Kill()
			e.remove(t, fourth)
			e.remove(t, fifth)
			fast := service(other, "fast", c.families)
			fast.Spec.ClusterIP = fifth
			e.create(t, fast)
			if err := e.Agent.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.wantReservation(t, fourth)
			e.wantMetric(t, e.series("swap_losses_total"), is("1")) // of this process
			e.wantEvent(t, "default", made, "VIPSwapLost", other+"/fast")
			for i := range 4 { // of six or seven, one is a Service's and one rests
				name := fmt.Sprint("web-", i)
				e.export(t, other, name, c.families)
				if ips := e.wantVIPs(t, other, name, c.families); ips[0].String() == fifth {
					t.Errorf("%v has two owners", ips)
				}
			}
			if found := e.ordinaryIn(t, block); len(found) != 1 {
				t.Errorf("ordinary Services: %v, want the one", found)
			}
		})
	}
}

func is(want string) func(string) bool { return func(value string) bool { return value == want } }

// remove deletes an IPAddress, as nobody ought to.
func (e *env) remove(t *testing.T, address string) {
	t.Helper()
	if err := e.Delete(t.Context(), &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: address}}); err != nil {
		t.Fatal(err)
	}
}

// wantReservation waits until the address is fenced.
func (e *env) wantReservation(t *testing.T, address string) {
	t.Helper()
	eventually(t, "reservation of "+address, func() error {
		ip := &networkingv1.IPAddress{}
		if err := e.Get(t.Context(), client.ObjectKey{Name: address}, ip); err != nil {
			return err
		}
		if ip.Labels[networkingv1.LabelManagedBy] != kube.Manager {
			return fmt.Errorf("it is %v's, of %v", ip.Labels, ip.Spec.ParentRef)
		}
		return nil
	})
}

// wantFence waits until each address of a range has an IPAddress.
func (e *env) wantFence(t *testing.T, prefix string) {
	t.Helper()
	for a := range ipam.Addresses(netip.MustParsePrefix(prefix)) {
		eventually(t, "fence of "+prefix, func() error {
			return e.Get(t.Context(), client.ObjectKey{Name: a.String()}, &networkingv1.IPAddress{})
		})
	}
}

// ordinaryIn are the ordinary Services with an address of these ranges. No address has two owners.
func (e *env) ordinaryIn(t *testing.T, prefixes ...string) (found []string) {
	t.Helper()
	var services corev1.ServiceList
	if err := e.List(t.Context(), &services); err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{}
	for _, svc := range services.Items {
		if svc.Namespace == spoiled { // one of them on purpose
			continue
		}
		for _, ip := range svc.Spec.ClusterIPs {
			a, err := netip.ParseAddr(ip)
			if err != nil {
				continue
			}
			if was := owners[ip]; was != "" {
				t.Errorf("%s has two owners: %s and %s", ip, was, svc.Name)
			}
			owners[ip] = svc.Name
			for _, p := range prefixes {
				if netip.MustParsePrefix(p).Contains(a) && !strings.HasPrefix(svc.Name, "derived-") {
					found = append(found, svc.Name+" "+ip)
				}
			}
		}
	}
	return found
}

// wantFencedFirst fails unless every address of the range was reserved before its ServiceCIDR was made, as the audit log tells.
func (e *env) wantFencedFirst(t *testing.T, prefix string) {
	t.Helper()
	name := "clusterset-vips-exclusive-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(prefix)
	missing := map[string]bool{}
	for a := range ipam.Addresses(netip.MustParsePrefix(prefix)) {
		missing[a.String()] = true
	}
	eventually(t, "audit of "+prefix, func() error { // it is written behind
		left, made := len(missing), false
		err := e.audit(func(event *request) {
			switch ref := event.ObjectRef; {
			case event.Verb != "create" || event.ResponseStatus.Code != 201 || strings.Contains(event.RequestURI, "dryRun"):
			case ref.Resource == "ipaddresses" && missing[ref.Name] && !made:
				left--
			case ref.Resource == "servicecidrs" && ref.Name == name:
				made = true
			}
		})
		if err == nil && !made {
			err = errors.New("its ServiceCIDR was not made")
		}
		if err == nil && left > 0 {
			t.Fatalf("%s: %d of %d addresses were not reserved when its ServiceCIDR was made", prefix, left, len(missing))
		}
		return err
	})
}

// request is one of the audit log's.
type request struct {
	Verb                                     string
	RequestURI                               string
	ObjectRef                                struct{ Resource, Subresource, Namespace, Name string }
	User                                     struct{ Username string }
	ResponseStatus                           struct{ Code int }
	ResponseObject                           struct{ Spec struct{ ClusterIPs []string } } // of Services
	RequestReceivedTimestamp, StageTimestamp metav1.MicroTime
}

// audit calls f with every request of the member's API server so far, in the order of their ends.
func (e *env) audit(f func(*request)) error {
	file, err := os.Open(e.Cluster.AuditLog())
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event request
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return err
		}
		f(&event)
	}
	return lines.Err()
}
