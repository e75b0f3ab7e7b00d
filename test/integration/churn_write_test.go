package integration

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

// write lets writers do their part of something. Service i is writer i%churnWriters's alone.
func (c *churn) write(part func(n int)) {
	c.Helper()
	var all sync.WaitGroup
	for n := range churnWriters {
		all.Go(func() { part(n) })
	}
	all.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

// create makes what there is when the server starts.
func (c *churn) create(n int) {
	for i := n; i < churned && !c.Failed(); i += churnWriters {
		for part := range parts {
			if stateOf(c.seed, i, part, 0).there {
				c.put(i, part, 0)
			}
		}
	}
}

// change changes every import once, a slice for each eighth of them, and for every other one something of those that
// change all the time.
func (c *churn) change(n int) {
	r := c.dice(churnAskers + n)
	for _, i := range r.Perm(churned / churnWriters) {
		if c.Failed() {
			return
		}
		i = i*churnWriters + n
		c.next(i, theImport)
		if r.IntN(8) == 0 {
			c.next(i, firstSlice+r.IntN(parts-firstSlice))
		}
		if r.IntN(2) == 0 {
			c.next(
				r.IntN(churnedHot/churnWriters)*churnWriters+n,
				max(r.IntN(4)-1, theImport),
			) // the import as often as both slices
		}
	}
}

// next writes the next version of an object.
func (c *churn) next(i, part int) {
	v := int(c.tried[i][part].Load()) + 1
	if v > lastVersion {
		c.Errorf("%s has had more versions than fit into an address", churnName(i))
		return
	}
	c.tried[i][part].Store(int32(v)) // before it can be seen
	was, is := stateOf(c.seed, i, part, v-1).there, stateOf(c.seed, i, part, v).there
	if was || is {
		c.put(i, part, v)
		c.changes.Add(1)
	}
}

// put creates, updates or deletes an object.
func (c *churn) put(i, part, v int) {
	version := &c.resource[i][part]
	o := churnObject(c.seed, i, part, v, *version)
	do := func() error { return c.api.Create(c.Context(), o) }
	switch is := stateOf(c.seed, i, part, v).there; {
	case !is:
		do = func() error { return c.api.Delete(c.Context(), o) }
	case *version != "":
		do = func() error { return c.api.Update(c.Context(), o) }
	}
	if err := do(); err != nil {
		c.Errorf("%s, version %d of part %d: %v", churnName(i), v, part, err)
	}
	if *version = o.GetResourceVersion(); !stateOf(c.seed, i, part, v).there {
		*version = ""
	}
}

// churnObject is a part of a Service in a version, as it is written. resourceVersion is that of the version before, if
// there is one.
func churnObject(seed uint64, i, part, v int, resourceVersion string) client.Object {
	state := stateOf(seed, i, part, v)
	meta := metav1.ObjectMeta{Name: churnName(i), Namespace: churnNamespace(i), ResourceVersion: resourceVersion}
	if part == theImport {
		o := &mcsv1beta1.ServiceImport{ObjectMeta: meta}
		o.Spec.Type = mcsv1beta1.Headless
		o.Spec.Ports = []mcsv1beta1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: int32(churnPort(v))}}
		if !state.headless {
			o.Spec.Type = mcsv1beta1.ClusterSetIP
			o.Spec.IPs = []string{churnAddress(i, part, v, 0).String(), churnAddress6(i, part, v, 0).String()}
		}
		return o
	}
	cluster := fmt.Sprintf("c%d", part)
	meta.Name += "-" + cluster
	meta.Labels = map[string]string{
		"multicluster.kubernetes.io/service-name":   churnName(i),
		"multicluster.kubernetes.io/source-cluster": cluster,
	}
	name, port, tcp := "http", int32(churnPort(v)), corev1.ProtocolTCP
	o := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &tcp}}}
	for k := range mostEndpoints {
		host, ready := fmt.Sprintf("h%d", k), k < state.ready
		o.Endpoints = append(
			o.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{churnAddress(i, part, v, k).String()}, Hostname: &host,
				Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
		)
	}
	return o
}
