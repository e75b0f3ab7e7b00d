package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/liveness"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// round is the request that asks all other members whether they answer. Requests for a member have no namespace.
var round = types.NamespacedName{Namespace: "reach", Name: "round"}

const (
	// patience is how long an agent or an endpoint may take to answer.
	patience = time.Second
	// tried is how many endpoints of a suspect member are tried in a round, at most.
	tried = 8
	// allTried is how many endpoints of all suspect members are tried in a round: one of each member at least.
	allTried = 512
	// looked is among how many EndpointRecords a round looks for these endpoints.
	looked = 64
	// reportSilent is how long an agent is silent while its endpoints answer before an Event says so.
	reportSilent = 30 * time.Second
)

// member is what this process knows of another member.
type member struct {
	reach.Member
	address   int           // index of the agent's address to ask next
	roundTrip time.Duration // of the last answer
	reported  bool          // an Event has said that its agent is silent
}

// question is what a round asks of one member.
type question struct {
	cluster string
	stored  *coordinationv1.Lease
	agent   string // its agent's address; "" if none is known
	overdue bool
	tries   []string // endpoints to try

	took      time.Duration
	agentIs   reach.Answer
	endpoints reach.Answer
	// Something accepts connections in the agent's place, as a service mesh or a gateway does. It would for endpoints.
	behindProxy bool
}

// answers reports whether anything of the member answers. A refusal may be that of a firewall before this cluster.
func (q *question) answers() bool { return q.agentIs == reach.Yes || q.endpoints == reach.Yes }

// askAll runs one round. A second request within the Interval waits.
func (r *Reconciler) askAll(ctx context.Context) (reconcile.Result, error) {
	began := r.Now()
	r.mu.Lock()
	since := began.Sub(r.rounded)
	if since < 0 || since >= reach.Interval {
		r.rounded, r.rounds = began, r.rounds+1
	}
	r.mu.Unlock()
	if since >= 0 && since < reach.Interval {
		return reconcile.Result{RequeueAfter: reach.Interval - since}, nil
	}
	questions, err := r.questions(ctx, began)
	if err != nil {
		return reconcile.Result{}, err
	}
	home := reach.NotAsked
	var all sync.WaitGroup
	if len(questions) == 1 && len(questions[0].tries) > 0 && r.Home != "" {
		all.Go(func() { home = r.try(ctx, []string{r.Home}) })
	}
	for _, q := range questions {
		all.Go(func() { q.agentIs, q.took, q.behindProxy = r.askAgent(ctx, q.cluster, q.agent) })
		all.Go(func() { q.endpoints = r.try(ctx, q.tries) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return reconcile.Result{}, ctx.Err() // the agent stops, and what failed proves nothing
	}
	answered := 0
	for _, q := range questions {
		if q.behindProxy {
			q.endpoints = reach.NotAsked
		}
		if q.answers() {
			answered++
		}
	}
	var errs []error
	for _, q := range questions {
		others := answered
		if q.answers() {
			others--
		}
		if r.take(q, others > 0 || home >= reach.Refused) {
			_, err := r.decide(ctx, q.cluster)
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: max(reach.Interval-r.Now().Sub(began), 10*time.Millisecond)}, nil
}

// questions returns what to ask of each source cluster.
func (r *Reconciler) questions(ctx context.Context, now time.Time) (out []*question, err error) {
	stored, err := stored(ctx, r.Local)
	if err != nil {
		return nil, err
	}
	spec, _, err := kube.LeaseSpec(ctx, r.Hub(), r.HubNamespace)
	if err != nil {
		return nil, err
	}
	l := limitsOf(spec)
	var suspects []*question
	for _, lease := range byName(stored) {
		q := &question{cluster: lease.Labels[liveness.LabelSource], stored: lease}
		if lease.Name != liveness.LeaseName(q.cluster) {
			continue // edited by hand
		}
		onHub, err := kube.Get[*coordinationv1.Lease](
			ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: q.cluster},
		)
		if err != nil {
			return nil, err
		}
		addresses := reach.ReadAddresses(onHub, r.Reserved)
		r.mu.Lock()
		m, known := r.members[q.cluster]
		if !known {
			m = &member{Member: reach.Restored(reach.Read(q.stored), now)}
			r.members[q.cluster] = m
		}
		if len(addresses) > 0 {
			q.agent = addresses[m.address%len(addresses)]
		}
		o := r.observations[q.cluster]
		q.overdue = o.Expired || o.ObservedUntil.Sub(o.RenewedAt) > l.Renew*3/2
		suspect := m.IsSuspect(now, q.overdue)
		r.mu.Unlock()
		if suspect {
			suspects = append(suspects, q)
		}
		out = append(out, q)
	}
	for _, q := range suspects {
		if q.tries, err = r.sample(ctx, q.cluster, max(1, min(tried, allTried/len(suspects)))); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sample returns up to size of the TCP endpoints that a member publishes, of as many EndpointRecords as possible. Each
// round returns others.
func (r *Reconciler) sample(ctx context.Context, cluster string, size int) (out []string, err error) {
	families, err := r.Families(ctx)
	if err != nil { // who is reached must be known all the same
		families = kube.BothFamilies
	}
	var records hubv1alpha1.EndpointRecordList
	if err := r.Hub().List(ctx, &records, client.InNamespace(r.HubNamespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{kube.ByCluster: cluster}); err != nil {
		return nil, err
	}
	sorted := byName(records.Items)
	n := len(sorted)
	for turn := range min(n*size, looked) {
		rec := sorted[(r.rounds*size+turn)%n]
		if len(out) == size || !slices.Contains(families, corev1.IPFamily(rec.Spec.AddressType)) {
			continue
		}
		if a := target(rec, r.rounds+turn/n, r.Reserved); a != "" && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out, nil
}

// byName returns objects of a cache, which must not change, in the order of their names.
func byName[T any, O interface {
	*T
	client.Object
}](items []T) []O {
	out := make([]O, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	slices.SortFunc(out, func(a, b O) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// target returns one ready endpoint of a record, with its first TCP port, or "". Each turn returns another one.
func target(rec *hubv1alpha1.EndpointRecord, turn int, reserved []netip.Prefix) string {
	spec, _, err := clusterset.ParseEndpoints(rec, reserved)
	if err != nil {
		return "" // serviceimport reports it
	}
	port := slices.IndexFunc(spec.Ports, func(p hubv1alpha1.EndpointPort) bool {
		return p.Protocol == corev1.ProtocolTCP && p.Port != nil
	})
	ready := endpoints.ReadyAddresses(&spec)
	if port < 0 || len(ready) == 0 {
		return ""
	}
	return net.JoinHostPort(ready[turn%len(ready)], strconv.Itoa(int(*spec.Ports[port].Port)))
}

// Greeting is what the agent of a cluster writes to whoever connects.
func Greeting(cluster string) string { return "clusterset-dns " + cluster + "\n" }

// askAgent returns whether the agent of a cluster answers at an address, and how long it took to connect; and whether
// something else accepts the connection.
func (r *Reconciler) askAgent(
	ctx context.Context, cluster, address string,
) (answer reach.Answer, took time.Duration, behindProxy bool) {
	if address == "" {
		return reach.NotAsked, 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := r.Now()
	conn, err := r.Dial(ctx, "tcp", address)
	if err != nil {
		return reach.No, 0, false
	}
	defer conn.Close()
	took = r.Now().Sub(began)
	want := Greeting(cluster)
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		return reach.No, 0, true
	}
	return reach.Yes, took, false
}

// try returns what the best of some endpoints answers.
func (r *Reconciler) try(ctx context.Context, addresses []string) reach.Answer {
	if len(addresses) == 0 {
		return reach.NotAsked
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := make(chan reach.Answer, len(addresses))
	for _, a := range addresses {
		go func() {
			conn, err := r.Dial(ctx, "tcp", a)
			switch {
			case err == nil:
				conn.Close()
				answers <- reach.Yes
			case errors.Is(err, syscall.ECONNREFUSED):
				answers <- reach.Refused
			default:
				answers <- reach.No
			}
		}()
	}
	best := reach.No
	for range addresses {
		if best = max(best, <-answers); best == reach.Yes {
			cancel()
		}
	}
	return best
}

// take continues what is known of a member, and reports whether its stored Lease has another state.
func (r *Reconciler) take(q *question, others bool) (changed bool) {
	r.mu.Lock()
	m := r.members[q.cluster]
	if m == nil { // it has left meanwhile
		r.mu.Unlock()
		return false
	}
	m.Member = m.Next(reach.Round{
		Now: r.Now(), Overdue: q.overdue, Agent: q.agentIs, Endpoints: q.endpoints, Others: others,
	})
	switch q.agentIs {
	case reach.Yes:
		m.roundTrip = q.took
	case reach.No:
		m.address++
	}
	silent := m.State == reach.Serving && r.Now().Sub(m.Since) >= reportSilent
	report, since := silent && !m.reported, m.Since
	m.reported = silent
	changed = m.State != reach.Read(q.stored).State
	r.mu.Unlock()
	if !report {
		return changed
	}
	r.Events.Event(q.stored, kube.Warning, "SourceSilent", fmt.Sprintf(
		"Since %s only endpoints of cluster %s answer, not its agent. They stay. "+
			"Run `kubectl clusterset doctor` in that cluster.", since.UTC().Format(time.RFC3339), q.cluster))
	return changed
}

// Unreachable returns the members that a cluster does not reach, and since when, as its own Leases say: those that are
// unreachable by evidence, and those whose Lease decides and has expired.
func Unreachable(ctx context.Context, local client.Reader) (map[string]time.Time, error) {
	stored, err := stored(ctx, local)
	if err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for i := range stored {
		cluster, s := stored[i].Labels[liveness.LabelSource], reach.Read(&stored[i])
		switch renewed := stored[i].Spec.RenewTime; {
		case s.State == reach.Unreachable:
			out[cluster] = s.Since
		case liveness.StateOf(&stored[i]).Expired && renewed != nil:
			out[cluster] = renewed.Time
		}
	}
	return out, nil
}
