package vips

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// TestI6WithoutThePolicyTheVIPStaysOrIsACountedLoss: where nothing guards derived Services, an admin deletes one of a fenced range, at first
// alone, then while ordinary Services are made, to which the API server may give the address before the agent sees it free.
func TestI6WithoutThePolicyTheVIPStaysOrIsACountedLoss(t *testing.T) {
	e := start(t)
	ns := e.namespace(t)
	plain := e.namespace(t, "plain")
	blocks := []string{"10.232.0.0/28", "fd00:232::/124"}
	e.create(t, service(ns, "web", both)) // before there is a block that it could draw from
	e.mode(t, ipam.ModeExclusive, blocks...)
	for _, b := range blocks {
		e.wantRange(t, b)
	}
	e.exportMade(t, ns, "web")
	e.wantVIPs(t, ns, "web", both)
	lost := e.metric(t, e.series("swap_losses_total"))
	defer e.unguarded(t, ns)()

	for round := range 5 {
		was := derivedOf(ns, "web")
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(was), was); err != nil {
			t.Fatal(err)
		}
		var ordinary sync.WaitGroup
		back, begun := make(chan struct{}), make(chan struct{})
		ordinary.Go(func() {
			defer close(begun)
			for i := 0; round > 0 && i < 200; i++ {
				if err := e.Create(t.Context(), service(plain, fmt.Sprintf("plain-%d-%d", round, i), both)); err != nil {
					t.Errorf("an ordinary Service was refused: %v", err)
					return
				}
				select {
				case <-back:
					return
				case begun <- struct{}{}:
				default:
				}
			}
		})
		<-begun
		if err := e.Delete(t.Context(), was.DeepCopy()); err != nil {
			t.Error(err)
		}
		now := e.wantAgain(t, ns, "web", was.UID)
		close(back)
		ordinary.Wait()
		for i, ip := range was.Spec.ClusterIPs {
			if now.Spec.ClusterIPs[i] == ip {
				continue
			}
			swapped := slices.ContainsFunc(e.ordinaryIn(t, blocks...), func(one string) bool { return strings.HasSuffix(one, " "+ip) })
			if !swapped {
				t.Errorf("round %d: %s became %s, and no ordinary Service has it", round, ip, now.Spec.ClusterIPs[i])
			}
		}
	}
	e.wantVIPs(t, ns, "web", both)
	inside := e.ordinaryIn(t, blocks...)
	t.Logf("swap losses: %v", inside)
	e.wantMetric(t, e.series("swap_losses_total"), is(strconv.Itoa(lost+len(inside))))
}

// unguarded takes the policy of derived Services away, until the function that it returns puts it back.
func (e *env) unguarded(t *testing.T, ns string) (guard func()) {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile(filepath.Join(root, "deploy/member/derived.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Cluster.Kubectl(t.Context(), "", "delete", "validatingadmissionpolicybinding", "clusterset-derived-services.clusterset-dns.io"); err != nil {
		t.Fatal(err)
	}
	try := func() error { return e.Delete(t.Context(), derivedOf(ns, "web"), client.DryRunAll) }
	eventually(t, "nothing guards derived Services", try)
	return func() {
		if err := e.Cluster.Apply(t.Context(), string(policy)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "derived Services are guarded again", func() error {
			if err := try(); !apierrors.IsForbidden(err) {
				return errNot(fmt.Sprint("refused: ", err))
			}
			return nil
		})
	}
}

// wantAgain waits until there is another derived Service than the one with this UID.
func (e *env) wantAgain(t *testing.T, ns, name string, was types.UID) *corev1.Service {
	t.Helper()
	svc := derivedOf(ns, name)
	eventually(t, "another derived Service of "+ns+"/"+name, func() error {
		err := e.Get(t.Context(), client.ObjectKeyFromObject(svc), svc)
		if err == nil && (svc.UID == was || len(svc.Spec.ClusterIPs) != 2) {
			err = errors.New("it is not there yet")
		}
		return err
	})
	return svc
}
