package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	mcs "sigs.k8s.io/mcs-api/pkg/client/clientset/versioned/typed/apis/v1beta1"
)

const aboutReal = "" +
	"The same on a real etcd and kube-apiserver beside them. Endpoint write: from the moment that the request " +
	"to change an EndpointSlice is sent until the server's answer to the endpoint's host name changes, by " +
	"rounds of 200 in turn; ratio: ours through in-tree's."

// cluster is the laboratory's control plane with what it takes to write to it.
type cluster struct {
	*lab.ControlPlane
	core kubernetes.Interface
	mcs  mcs.MulticlusterV1beta1Interface
}

func (b *bench) real() ([]row, error) {
	imports, writes, rounds := 50_000, 1000, 5
	if b.quick {
		imports, writes, rounds = 1000, 20, 1
	}
	c, err := b.cluster()
	if err != nil {
		return nil, err
	}
	defer c.Stop()
	shape := standard(imports)
	began := time.Now()
	if err := c.create(b.ctx, shape); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "%d imports were created in %.0f s\n", imports, time.Since(began).Seconds())
	rows, err := b.starts(c.Kubeconfig(), imports, rounds)
	if err != nil {
		return nil, err
	}
	more, err := b.writes(c, writes)
	return append(rows, more...), err
}

func (b *bench) cluster() (*cluster, error) {
	root, err := lab.Root()
	if err != nil {
		return nil, err
	}
	cp, err := lab.Start(b.ctx, lab.Options{NoControllerManager: true})
	if err != nil {
		return nil, err
	}
	c := &cluster{ControlPlane: cp}
	if err := c.connect(b.ctx, filepath.Join(root, "deploy/crds")); err != nil {
		cp.Stop()
		return nil, err
	}
	return c, nil
}

func (c *cluster) connect(ctx context.Context, crds string) error {
	if err := c.ApplyFolder(ctx, crds); err != nil {
		return err
	}
	config, err := c.RESTConfig()
	if err != nil {
		return err
	}
	config.QPS = -1 // as fast as the API server takes it
	if c.core, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c.mcs, err = mcs.NewForConfig(config)
	return err
}

// create writes the data set.
func (c *cluster) create(ctx context.Context, shape stub.Shape) error {
	for _, ns := range shape.Namespaces() {
		ns.UID = ""
		if _, err := c.core.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for _, o := range shape.ServiceImports() {
		g.Go(func() error {
			o.UID, o.ManagedFields = "", nil
			_, err := c.mcs.ServiceImports(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
			return err
		})
	}
	for _, o := range shape.EndpointSlices() {
		g.Go(func() error {
			o.UID, o.ManagedFields = "", nil
			_, err := c.core.DiscoveryV1().EndpointSlices(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
			return err
		})
	}
	return g.Wait()
}

// writes measures from an endpoint's write to the changed answer.
func (b *bench) writes(c *cluster, n int) ([]row, error) {
	put := func(slice *discoveryv1.EndpointSlice) error {
		slice.UID, slice.ManagedFields = "", nil
		_, err := c.core.DiscoveryV1().EndpointSlices(slice.Namespace).Update(b.ctx, slice, metav1.UpdateOptions{})
		return err
	}
	servers := map[string]*server{}
	for _, p := range []string{ours, inTree} {
		s, err := b.serve(stanza(p, c.Kubeconfig()), anyCore)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		if err := s.ready(20 * time.Millisecond); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		servers[p] = s
	}
	var rows []row
	for _, h := range standard(0).Headless {
		if h.DualStack || h.Endpoints == 100 {
			continue
		}
		took := map[string][]float64{}
		for i := range n {
			order := []string{ours, inTree}
			if i%2 == 1 { // each is asked for endpoints that go and for endpoints that come
				slices.Reverse(order)
			}
			for turn, p := range order {
				d, err := servers[p].follow(h, 2*i+turn, put)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", p, err)
				}
				took[p] = append(took[p], d)
			}
		}
		for _, p := range []float64{0.5, 0.99} {
			x, y := inRounds(took[ours], p), inRounds(took[inTree], p)
			ratio := pairs(x, y)
			rows = append(
				rows,
				row{
					What: fmt.Sprintf(
						"endpoint write to changed answer, %s endpoints, p%.0f",
						number(float64(h.Endpoints)),
						p*100,
					),
					Ours:   microseconds(median(x)),
					Theirs: microseconds(median(y)),
					Ratio:  number(ratio),
				}.atMost(ratio, noise, ""),
			)
		}
	}
	return rows, nil
}

// inRounds is a percentile of each two hundred: where the machine stands still for a moment, the worst of all are
// its own.
func inRounds(values []float64, p float64) (each []float64) {
	for round := range slices.Chunk(values, 200) {
		each = append(each, percentile(slices.Clone(round), p))
	}
	return each
}
