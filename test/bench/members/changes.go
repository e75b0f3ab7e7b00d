package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// exports measures from ServiceExport to answer.
func (b *bench) exports(ctx context.Context, rounds int) error {
	var took []time.Duration
	since, from, to := now(), b.Members[0], b.Members[1]
	for i := range rounds {
		svc, slice := service(fmt.Sprintf("web%d", i), fmt.Sprintf("10.1.%d.%d", 1+i/250, i%250))
		if err := b.clients[from].Create(ctx, svc); err != nil {
			return err
		}
		if err := b.clients[from].Create(ctx, slice); err != nil {
			return err
		}
		began := time.Now()
		if err := b.clients[from].Create(
			ctx,
			&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: svc.Name}},
		); err != nil {
			return err
		}
		if err := until(
			ctx,
			to,
			svc.Name,
			time.Millisecond,
			func(answer []string) bool { return len(answer) == 1 },
		); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	b.line("ServiceExport → import → answer (clusterset IP)", took, 0, since)
	return nil
}

// moving is a headless Service whose one address changes.
type moving struct {
	from, to *lab.Member
	client   client.Client
	name     string
	slice    *discoveryv1.EndpointSlice
	n        int
}

func (b *bench) moving(ctx context.Context, from, to *lab.Member, name string) (*moving, error) {
	svc, slice := service(name, "10.2.0.1")
	svc.Spec.ClusterIP = corev1.ClusterIPNone
	for _, o := range []client.Object{svc, slice,
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}} {
		if err := b.clients[from].Create(ctx, o); err != nil {
			return nil, err
		}
	}
	m := &moving{from: from, to: to, client: b.clients[from], name: name, slice: slice}
	return m, m.seen(ctx, 25*time.Millisecond)
}

// change moves it.
func (m *moving) change(ctx context.Context) error {
	m.n++
	m.slice.Endpoints[0].Addresses[0] = fmt.Sprintf("10.3.%d.%d", 1+m.n/250, 1+m.n%250)
	return m.client.Update(ctx, m.slice)
}

// seen waits for the answer, asking as often.
func (m *moving) seen(ctx context.Context, every time.Duration) error {
	return until(
		ctx,
		m.to,
		m.name,
		every,
		func(answer []string) bool { return slices.Equal(answer, m.slice.Endpoints[0].Addresses) },
	)
}

// changes measures changes one after the other.
func (b *bench) changes(ctx context.Context, what string, m *moving, rounds int) error {
	var took []time.Duration
	since := now()
	for range rounds {
		began := time.Now()
		if err := m.change(ctx); err != nil {
			return err
		}
		if err := m.seen(ctx, time.Millisecond); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	b.line(what, took, barLoaded, since)
	return nil
}

// until asks a member's CoreDNS until the answer is right.
func until(ctx context.Context, at *lab.Member, name string, every time.Duration, right func([]string) bool) error {
	m := new(dns.Msg)
	m.SetQuestion(name+"."+ns+".svc.clusterset.local.", dns.TypeA)
	conn, err := dns.Dial("udp", at.DNS.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(every) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := conn.WriteMsg(m); err != nil {
			return err
		}
		reply, err := conn.ReadMsg()
		if err != nil {
			return err
		}
		var answer []string
		for _, rr := range reply.Answer {
			if a, ok := rr.(*dns.A); ok {
				answer = append(answer, a.A.String())
			}
		}
		if right(answer) {
			return nil
		}
	}
	return fmt.Errorf(
		"%s has not the right answer in %s after two minutes; its agent says:\n%s",
		name,
		at.ID,
		tail(at.Agent.Log(), 8192),
	)
}

func tail(text string, most int) string { return text[max(0, len(text)-most):] }

func service(name, address string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	port, target, ready, tcp := "http", int32(8080), true, corev1.ProtocolTCP
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	svc := &corev1.Service{
		ObjectMeta: meta,
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: port, Port: 80, Protocol: tcp}}},
	}
	meta.Name += "-1"
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	return svc, &discoveryv1.EndpointSlice{
		ObjectMeta:  meta,
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: &target, Protocol: &tcp}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
		},
	}
}
