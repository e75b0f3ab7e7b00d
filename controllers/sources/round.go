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
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
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
	// answerTimeout is how long an agent or an endpoint may take to answer.
	answerTimeout = time.Second
	// storeTimeout is how long a round may take to store its results: enough for slow writes.
	storeTimeout = 5 * time.Second
	// maxTries is how many endpoints of a member a round tries.
	maxTries = 8
	// maxTriesOfGroup is how many endpoints a round tries of all suspects, and how many of all untested members. Each
	// gets one at least.
	maxTriesOfGroup = 512
	// maxGroups is how many groups of endpoints of a member a round reads to find them.
	maxGroups = 64
	// untilServed is how many rounds in a row try endpoints of a member whose agent answers. If none has answered by
	// then, every untilServed-th round tries.
	untilServed = 10
	// proveAgain is after how many rounds an endpoint that answered is tried again while the agent answers.
	proveAgain = 300
	// reportSilent is how long an agent is silent while its endpoints answer before an Event says so.
	reportSilent = 30 * time.Second
)

// member is what this process knows of another member.
type member struct {
	reach.Member
	address    int           // index of the agent's address to ask next
	roundTrip  time.Duration // of the last answer
	reported   bool          // an Event has said that its agent is silent
	tried      int           // rounds that looked for endpoints to try
	serves     string        // the endpoint that answered last
	servedLast bool          // it did so in the last round that tried any
}

// question is what a round asks of one member.
type question struct {
	cluster  string
	member   *member
	stored   *coordinationv1.Lease
	agent    string // its agent's address; "" if none is known
	overdue  bool
	renewal  liveness.Renewal // the last that the hub shows
	tries    []string         // endpoints to try
	onlyLast bool             // that is only the one that answered last

	turn      int  // of samples
	searched  bool // sample found endpoints that it publishes
	took      time.Duration
	agentIs   reach.Answer
	endpoints reach.Answer
	serves    string // the endpoint that answers, if one does
	// Something accepts connections in the agent's place, as a service mesh or a gateway does. It may accept those to
	// endpoints, too, so their answers prove nothing.
	behindProxy bool
}

// answers returns whether anything of the member answers. A refusal does not count: a firewall may send it.
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
	// With one other member, this cluster's API server is the second witness. questions has unreachable members, too:
	// otherwise a cluster that is cut off would take the last reachable member for unreachable.
	if len(questions) == 1 && len(questions[0].tries) > 0 && r.Home != "" {
		all.Go(func() { home, _ = r.try(ctx, []string{r.Home}) })
	}
	for _, q := range questions {
		all.Go(func() { q.agentIs, q.took, q.behindProxy = r.askAgent(ctx, q.cluster, q.agent) })
		all.Go(func() { q.endpoints, q.serves = r.try(ctx, q.tries) })
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
	brief, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for _, q := range questions {
		others := answered
		if q.answers() {
			others--
		}
		// Even a refusal by this cluster's API server shows that the network works.
		if r.applyAnswers(q, others > 0 || home >= reach.Refused) {
			_, err := r.decide(brief, q.cluster)
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil { // no error is returned: backoff would slow the rounds
		if text := err.Error(); text != r.lastFailure {
			r.lastFailure = text
			log.FromContext(ctx).Info("storing what answers failed; each round tries again", "reason", text)
		}
	}
	return reconcile.Result{RequeueAfter: max(reach.Interval-r.Now().Sub(began), 10*time.Millisecond)}, nil
}

// questions returns what to ask of each source cluster.
func (r *Reconciler) questions(ctx context.Context, now time.Time) (out []*question, err error) {
	stored, err := kube.Sources(ctx, r.Local)
	if err != nil {
		return nil, err
	}
	set, _, err := kube.SetOf(ctx, r.Hub(), r.HubNamespace)
	if err != nil {
		return nil, err
	}
	l := limitsOf(set.Spec.Lease)
	members := make(map[string]*member, len(stored)) // without those that have left
	var suspects, untested []*question
	for _, lease := range kube.ByName(stored) {
		q := &question{cluster: lease.Labels[liveness.LabelSource], stored: lease}
		onHub, err := kube.Get[*coordinationv1.Lease](
			ctx, r.Hub(), types.NamespacedName{Namespace: r.HubNamespace, Name: q.cluster},
		)
		if err != nil {
			return nil, err
		}
		addresses := r.addresses(onHub, lease)
		r.mu.Lock()
		m, known := r.members[q.cluster]
		if !known {
			m = &member{Member: reach.Restored(reach.Read(q.stored), now)}
		}
		members[q.cluster], q.member = m, m
		if len(addresses) > 0 {
			q.agent = addresses[m.address%len(addresses)]
		}
		o := r.observations[q.cluster]
		q.renewal = liveness.RenewalOf(onHub)
		q.overdue = o.Expired || o.ObservedUntil.Sub(o.RenewedAt) > l.Renew*3/2
		m.Member = m.Ask(now)
		suspect := m.IsSuspect(now, q.overdue)
		switch {
		// While it keeps the member Serving, and every proveAgain rounds: only the endpoint that answered last.
		case m.State == reach.Serving && m.servedLast, !suspect && m.HasServed() && r.rounds%proveAgain == 0:
			q.onlyLast = m.serves != ""
		case suspect:
			suspects = append(suspects, q)
		// While the agent still answers: to know whether endpoints can be reached at all.
		case m.State != reach.Unknown && !m.HasServed() && (m.tried < untilServed || r.rounds%untilServed == 0):
			untested = append(untested, q)
		}
		if q.onlyLast || suspect && m.serves != "" {
			q.tries = []string{m.serves}
		}
		q.turn = m.tried
		r.mu.Unlock()
		out = append(out, q)
	}
	r.mu.Lock()
	r.members = members
	r.mu.Unlock()
	for _, group := range [][]*question{suspects, untested} {
		for _, q := range group {
			if err := r.sample(ctx, q, max(1, min(maxTries, maxTriesOfGroup/len(group)))); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// addresses returns where the agent of a member answers. A hub that lost its data shows no Lease of a member that has
// not joined again: what it showed before holds, because absence is not deletion. Whoever has the address by now does
// not greet as that member.
func (r *Reconciler) addresses(onHub, stored *coordinationv1.Lease) []string {
	if onHub == nil {
		onHub = stored
	}
	return reach.ReadAddresses(onHub, r.Reserved)
}

// sample adds ready Pods of a member to q.tries, up to size in all, from as many groups as possible. Each turn adds
// others.
func (r *Reconciler) sample(ctx context.Context, q *question, size int) error {
	brief, cancel := context.WithTimeout(ctx, answerTimeout/4) // a dry run that hangs must not delay the round
	families, err := r.Families(brief)
	cancel()
	if err != nil { // not known: try both
		families = kube.BothFamilies
	}
	groups, err := r.groups(ctx, q.cluster)
	if err != nil {
		return err
	}
	n := len(groups)
	q.searched = n > 0
	full := max(size, len(q.tries)+1) // q.tries may have the one that answered last; add one more at least
	first := q.turn * (full - len(q.tries))
	for i := range min(n*size, maxGroups) {
		at := first + i
		group := groups[at%n]
		if len(q.tries) == full || !slices.Contains(families, corev1.IPFamily(group.AddressType)) {
			continue
		}
		if a := target(group, at/n, r.Reserved); a != "" && !slices.Contains(q.tries, a) {
			q.tries = append(q.tries, a)
		}
	}
	return nil
}

// groups returns all groups of endpoints that a member publishes, in the order of names. They belong to the cache.
func (r *Reconciler) groups(ctx context.Context, cluster string) (out []*hubv1alpha1.EndpointGroup, err error) {
	of := []client.ListOption{
		client.InNamespace(r.HubNamespace),
		client.MatchingFields{kube.ByCluster: cluster},
		client.UnsafeDisableDeepCopy,
	}
	var records hubv1alpha1.ServiceExportRecordList
	if err := r.Hub().List(ctx, &records, of...); err != nil {
		return nil, err
	}
	for _, rec := range kube.ByName(records.Items) {
		for i := range rec.Spec.Endpoints {
			out = append(out, &rec.Spec.Endpoints[i])
		}
	}
	var pages hubv1alpha1.EndpointPageList
	if err := r.Hub().List(ctx, &pages, of...); err != nil {
		return nil, err
	}
	for _, page := range kube.ByName(pages.Items) {
		out = append(out, &page.Spec.EndpointGroup)
	}
	return out, nil
}

// target returns one ready Pod of a group, with its first TCP port, or "". Each turn returns another one. An endpoint
// that is no Pod may be outside its cluster, and answer when that is dead.
func target(published *hubv1alpha1.EndpointGroup, turn int, reserved []netip.Prefix) string {
	group, _, err := clusterset.ParseGroup(published, reserved)
	if err != nil {
		return "" // serviceimport reports it
	}
	port := slices.IndexFunc(group.Ports, func(p hubv1alpha1.EndpointPort) bool {
		return p.Protocol == corev1.ProtocolTCP && p.Target != nil
	})
	group.Endpoints = slices.DeleteFunc(group.Endpoints, func(e hubv1alpha1.Endpoint) bool { return e.PodName == "" })
	ready := endpoints.ReadyAddresses(&group)
	if port < 0 || len(ready) == 0 {
		return ""
	}
	return net.JoinHostPort(ready[turn%len(ready)], strconv.Itoa(int(*group.Ports[port].Target)))
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
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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

// try returns what the best of some endpoints answers, and which that is.
func (r *Reconciler) try(ctx context.Context, addresses []string) (best reach.Answer, at string) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answers := make([]reach.Answer, len(addresses))
	var all sync.WaitGroup
	for i, a := range addresses {
		all.Go(func() {
			conn, err := r.Dial(ctx, "tcp", a)
			switch {
			case err == nil:
				conn.Close()
				answers[i] = reach.Yes
				cancel()
			case errors.Is(err, syscall.ECONNREFUSED):
				answers[i] = reach.Refused
			default:
				answers[i] = reach.No
			}
		})
	}
	all.Wait()
	for i, answer := range answers {
		if answer > best {
			best, at = answer, addresses[i]
		}
	}
	return best, at
}

// applyAnswers updates a member by the answers of a round, and returns whether its stored Lease has another state.
func (r *Reconciler) applyAnswers(q *question, others bool) (changed bool) {
	r.mu.Lock()
	m := q.member
	switch q.agentIs {
	case reach.Yes:
		m.roundTrip = q.took
	case reach.No:
		m.address++
	}
	if q.searched {
		m.tried++
	}
	if len(q.tries) > 0 {
		if m.servedLast = q.endpoints == reach.Yes; m.servedLast {
			m.serves = q.serves
		}
	}
	if q.onlyLast && !q.answers() { // perhaps only its Pod is gone: the next round tries others
		r.mu.Unlock()
		return false
	}
	if q.onlyLast && !m.servedLast { // forget it, so that the next rounds sample others
		m.serves = ""
	}
	had := m.HasServed()
	m.Member = m.Next(reach.Round{
		Now: r.Now(), Overdue: q.overdue, Renewal: q.renewal,
		Agent: q.agentIs, Endpoints: q.endpoints, Others: others,
	})
	if had && !m.HasServed() { // prove it again soon
		m.tried = 0
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
		"Since %s only endpoints of cluster %s answer, not its agent. They stay while it renews its Lease, and for an "+
			"hour even if that expires. Run `kubectl clusterset doctor` in that cluster.",
		since.UTC().Format(time.RFC3339), q.cluster))
	return changed
}

// Unreachable returns the members that a cluster does not reach, and since when, as its own Leases say: those that are
// unreachable by evidence, and those whose Lease decides and has expired.
func Unreachable(ctx context.Context, local client.Reader) (map[string]time.Time, error) {
	stored, err := kube.Sources(ctx, local)
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
