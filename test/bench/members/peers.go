package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/test/bench/bar"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// renewal is the ClusterSet's spec.lease.renewSeconds.
const renewal = 10 * time.Second

// peer is a simulated member: it renews its Lease, as one that lives does, and changes its records when it is told
// to.
type peer struct {
	id      string
	config  *rest.Config
	client  client.Client
	lease   *coordinationv1.Lease
	records []*hubv1alpha1.ServiceExportRecord
	todo    chan int // which record

	mu     sync.Mutex
	took   []time.Duration // each write
	missed int
	err    error // the last one

	renewals []time.Time // when the hub took each
}

// crowd are all of them.
type crowd struct {
	peers  []*peer
	cancel context.CancelFunc
	done   sync.WaitGroup
	began  time.Time
	late   int // changes that nobody was free to make
}

// gather starts simulated members; once b imports all that they export, they change it at a rate until stop.
func (b *bench) gather(ctx context.Context, o *options) (*crowd, error) {
	c, members, each, rate := &crowd{}, o.peers, o.each, o.rate
	var all sync.WaitGroup
	errs := make([]error, members)
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range members {
		p := &peer{id: fmt.Sprintf("peer%d", i), todo: make(chan int, 4)}
		c.peers = append(c.peers, p)
		if err := b.admit(ctx, p); err != nil {
			c.cancel()
			return nil, err
		}
		all.Go(func() { errs[i] = p.publish(ctx, i, o) })
		c.done.Go(func() { p.live(ctx) })
	}
	all.Wait()
	err := errors.Join(errs...)
	for _, m := range b.Members {
		err = errors.Join(err, b.imported(ctx, m, members*each))
	}
	if err != nil {
		c.stop()
		return nil, err
	}
	c.began = time.Now()
	if rate > 0 {
		c.done.Go(func() { c.drive(ctx, each, rate) })
	}
	return c, nil
}

// admit makes it a member of the hub.
func (b *bench) admit(ctx context.Context, p *peer) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	if err := b.Hub.Apply(ctx, lab.HubMember(root, p.id)); err != nil {
		return err
	}
	kubeconfig, err := b.Hub.ServiceAccountKubeconfig(ctx, lab.HubNamespace, "mcs-"+p.id, nil)
	if err != nil {
		return err
	}
	if p.config, err = config(kubeconfig); err != nil {
		return err
	}
	p.client, err = client.New(p.config, client.Options{Scheme: agent.Scheme()})
	return err
}

// imported waits until as many slices of simulated members are in a cluster, of those that readers of the MCS API read:
// there is one for each export.
func (b *bench) imported(ctx context.Context, m *lab.Member, want int) error {
	var last int
	for deadline := time.Now().Add(20 * time.Minute); time.Now().Before(deadline) &&
		ctx.Err() == nil; time.Sleep(time.Second) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(discoveryv1.SchemeGroupVersion.WithKind("EndpointSliceList"))
		if err := b.clients[m].List(
			ctx,
			list,
			client.InNamespace(ns),
			client.HasLabels{mcsv1beta1.LabelServiceName, mcsv1beta1.LabelSourceCluster},
		); err != nil {
			return err
		}
		last = 0
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].Labels[mcsv1beta1.LabelSourceCluster], "peer") {
				last++
			}
		}
		if last >= want {
			return nil
		}
	}
	return fmt.Errorf(
		"%s has imported %d of %d slices after twenty minutes; its agent says:\n%s",
		m.ID,
		last,
		want,
		tail(m.Agent.Log(), 8192),
	)
}

// publish writes its Lease and, for the first time, its records.
func (p *peer) publish(ctx context.Context, i int, o *options) error {
	var objects []client.Object
	for j := range o.each {
		origin := hubv1alpha1.Origin{
			ClusterID:        p.id,
			ServiceNamespace: ns,
			ServiceName:      fmt.Sprintf("peer%d", j),
			Revision:         1,
		}
		if o.ownNames {
			origin.ServiceName = fmt.Sprintf("%s-%d", p.id, j)
		}
		n := i*o.each + j
		export := &hubv1alpha1.ServiceExportRecord{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: lab.HubNamespace,
				Name:      origin.ServiceName + "." + ns + "." + p.id,
			},
			Spec: hubv1alpha1.ServiceExportRecordSpec{
				Origin:     origin,
				ExportedAt: &metav1.Time{Time: time.Now()},
				Type:       mcsv1beta1.ClusterSetIP,
				Ports: []hubv1alpha1.ServicePort{
					{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80},
				},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			},
		}
		target := int32(8080)
		export.Spec.Endpoints = []hubv1alpha1.EndpointGroup{{
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []hubv1alpha1.EndpointPort{{Protocol: corev1.ProtocolTCP, Port: 80, Target: &target}},
			Endpoints:   []hubv1alpha1.Endpoint{{Address: fmt.Sprintf("10.%d.%d.1", 128+n>>8, n&255)}},
		}}
		objects = append(objects, export)
		p.records = append(p.records, export)
	}
	seconds, renewed := int32(40), metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: lab.HubNamespace,
			Name:      p.id,
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &p.id,
			LeaseDurationSeconds: &seconds,
			RenewTime:            &renewed,
		},
	}
	if err := p.client.Create(ctx, lease); err != nil {
		return err
	}
	p.mu.Lock()
	p.lease = lease
	p.mu.Unlock()
	for _, o := range objects {
		if err := p.client.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// live renews and changes until ctx ends.
func (p *peer) live(ctx context.Context) {
	go func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(renewal/2 + rand.N(renewal/2)): // not all at once
				p.renew(ctx)
			}
		}
	}()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case j := <-p.todo:
			rec := p.records[j]
			rec.Spec.Revision++
			rec.Spec.Endpoints[0].Endpoints[0].Address = fmt.Sprintf("10.%d.%d.%d", 100+n/250%100, j, n%250)
			began := time.Now()
			if err := p.client.Update(ctx, rec); ctx.Err() == nil {
				p.note(err, time.Since(began))
			}
		}
	}
}

// renew renews its Lease, and tries again as soon as an agent does.
func (p *peer) renew(ctx context.Context) {
	p.mu.Lock()
	lease := p.lease
	p.mu.Unlock()
	if lease == nil {
		return
	}
	for pause := (wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Steps: 10, Cap: 2 * time.Second}); ; {
		renewed := metav1.NowMicro()
		lease.Spec.RenewTime = &renewed
		one, cancel := context.WithTimeout(ctx, renewal/2)
		err := p.client.Update(one, lease)
		if apierrors.IsConflict(err) { // an attempt without an answer was taken
			err = p.client.Get(one, client.ObjectKeyFromObject(lease), lease)
		}
		cancel()
		if err == nil {
			p.mu.Lock()
			p.renewals = append(p.renewals, time.Now())
			p.mu.Unlock()
			return
		}
		if ctx.Err() != nil {
			return
		}
		p.note(err, 0)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause.Step()):
		}
	}
}

func (p *peer) note(err error, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.missed, p.err = p.missed+1, err
		return
	}
	p.took = append(p.took, took)
}

// drive hands out a change per tick, of one member after the other; what is due is due also where a tick came late.
func (c *crowd) drive(ctx context.Context, each, rate int) {
	every := time.Second / time.Duration(rate)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for ; time.Duration(n)*every < time.Since(c.began); n++ {
			select {
			case c.peers[n%len(c.peers)].todo <- turn(n, len(c.peers), each):
			default:
				c.late++
			}
		}
	}
}

// turn is which of its records a member changes at the n-th change: another Service's than the other members' in
// the same round.
func turn(n, members, each int) int { return (n/members*7 + n%members) % each }

// stop ends it, and tells what was made.
func (c *crowd) stop() made {
	c.cancel()
	c.done.Wait()
	m := made{over: time.Since(c.began), late: c.late}
	for _, p := range c.peers {
		p.mu.Lock()
		m.took, m.failed = append(m.took, p.took...), m.failed+p.missed
		if p.err != nil {
			m.last = p.err
		}
		p.mu.Unlock()
	}
	return m
}

// made is what the simulated members did in a time.
type made struct {
	over         time.Duration
	took         []time.Duration // each change
	late, failed int
	last         error
}

// enough is how much of the rate the lines under load are to have had, which else are not what their names say.
const enough = .95

// report is the page's sentence about it.
func (m made) report(missed *bar.Missed, rate int) string {
	p50, p99 := quantiles(m.took)
	got, least := float64(len(m.took))/m.over.Seconds(), enough*float64(rate)
	holds := missed.Holds(
		fmt.Sprintf("simulated members: %.1f changes a second, bar >= %.1f", got, least),
		got >= least,
	)
	out := fmt.Sprintf(
		"The simulated members made %.1f changes a second meanwhile (bar: >= %.1f; holds: %s), which took the "+
			"hub's API server %d ms at p50 and %d ms at p99.",
		got,
		least,
		holds,
		p50.Milliseconds(),
		p99.Milliseconds(),
	)
	if m.late > 0 {
		out += fmt.Sprintf(" %d changes were not made, since their member was still at the one before.", m.late)
	}
	if m.failed > 0 {
		out += fmt.Sprintf(" %d failed, the last one since: %v.", m.failed, m.last)
	}
	return out
}
