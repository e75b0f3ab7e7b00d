package oracle

import (
	"fmt"
	"slices"
	"time"
)

// What a server says.
const (
	NoError   = "NOERROR"
	NameError = "NXDOMAIN"
)

// Answer is one answer, or none.
type Answer struct {
	Member, Name   string
	Sent, Received time.Time
	Code           string   // NoError, NameError, another code, or "" for no answer
	Why            string   // there is none
	Addresses      []string // sorted
}

// Result on an answer.
type Result int

// A server that fails to answer says nothing wrong, but must be down to do so.
const (
	Right Result = iota
	Unanswered
	Wrong
)

// Classify is to be asked about the answers of one member to one name in their order. The reason says why an answer is
// wrong, or why there
// was none.
func (o *Oracle) Classify(a Answer) (Result, string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a.Code != NoError && a.Code != NameError {
		return o.unanswered(a)
	}
	n := o.name(a.Name)
	n.answered[a.Member] = last{a.Received, a.Code, a.Addresses}
	if n.vips != nil && (a.Code == NameError || len(a.Addresses) == 0) {
		return o.absent(n, a)
	}
	if n.vips != nil { // a headless name without an endpoint does not exist, whether anybody exports it or not
		return o.present(n, a)
	}
	of := map[string][]string{}
	for _, address := range a.Addresses {
		cluster, ok := o.owner[a.Name+" "+address]
		if !ok {
			return Wrong, fmt.Sprintf("%s was never published", address)
		}
		of[cluster] = append(of[cluster], address)
	}
	for _, cluster := range o.members {
		if why := o.share(n, a, cluster, of[cluster]); why != "" {
			return Wrong, why
		}
	}
	return Right, ""
}

// unanswered is what a server does that is down, or has not yet read everything.
func (o *Oracle) unanswered(a Answer) (Result, string) {
	what := a.Code
	if what == "" {
		what = a.Why
	}
	if up := o.servers[a.Member].clear(); up.IsZero() || a.Sent.After(up) {
		return Wrong, "no answer from a CoreDNS that is ready: " + what
	}
	if a.Code == "" {
		return Unanswered, "the process was down"
	}
	return Unanswered, "it had not read everything yet: " + a.Code
}

// absent classifies that a name does not exist: no import without an export (I2), and none goes while there is one,
// dead or alive.
func (o *Oracle) absent(n *name, a Answer) (Result, string) {
	found := map[pair]int{}
	for _, cluster := range o.members {
		p := pair{a.Member, cluster}
		at := o.find(n, p, a, n.exports, func(v *value) bool { return !v.exported })
		if at < 0 {
			return Wrong, fmt.Sprintf("the name does not exist, and %s exports it", cluster)
		}
		found[p] = at
	}
	ended := func(v *value) bool { return !v.exported && !v.from.After(a.Received) }
	withdrew := func(cluster string) bool { return slices.ContainsFunc(n.values[cluster][1:], ended) }
	if n.shown[a.Member] && !slices.ContainsFunc(o.members, withdrew) {
		return Wrong, "the name does not exist, was answered before, and nobody ended an export of it"
	}
	for p, at := range found {
		n.exports[p] = at
	}
	return Right, ""
}

// present classifies the VIP. It does not show whose exports the member knows. What it had to know by now it may not
// forget in trouble.
func (o *Oracle) present(n *name, a Answer) (Result, string) {
	if !slices.Equal(a.Addresses, []string{n.vips[a.Member]}) {
		return Wrong, fmt.Sprintf("the VIP is %s, and was %s", join(a.Addresses), n.vips[a.Member])
	}
	known := func(cluster string) bool {
		return o.find(n, pair{a.Member, cluster}, a, n.exports, func(v *value) bool { return v.exported }) >= 0
	}
	if !slices.ContainsFunc(o.members, known) {
		return Wrong, "the name exists, and nobody exports it"
	}
	n.shown[a.Member] = true
	for _, cluster := range o.members {
		p := pair{a.Member, cluster}
		n.exports[p] = max(n.exports[p], o.required(n, p, a.Sent))
	}
	return Right, ""
}

// share classifies one cluster's part in an answer; why is empty where it is right.
func (o *Oracle) share(n *name, a Answer, cluster string, got []string) (why string) {
	p := pair{a.Member, cluster}
	early := len(got) > 0 && o.before(n, p, a.Received)
	if len(got) > 0 && o.mustBeGone(p, a.Sent) && !early {
		return fmt.Sprintf(
			"%s of %s, which was not heard of for %v",
			join(got),
			cluster,
			a.Sent.Sub(o.leases[cluster].latest),
		)
	}
	if len(got) == 0 &&
		o.mayBeGone(p, a.Received) { // be it for that reason or by its own wish, which is not known from here
		if again := n.again[p]; !again.IsZero() && o.leases[cluster].latest.Before(again.Add(-look)) {
			if a.Sent.Sub(
				again,
			) < look { // it may have ended its export as it came back: its renewal may be seen here yet
				return ""
			}
			delete(n.again, p)
			return fmt.Sprintf(
				"the endpoints of %s came at %s and went, and it was not heard of",
				cluster,
				again.Format(time.TimeOnly),
			)
		}
		o.wentAway(n, p, a.Received)
		return ""
	}
	exported := o.find(n, p, a, n.exports, func(v *value) bool { return v.exported == (len(got) > 0) })
	at := o.find(n, p, a, n.seen, func(v *value) bool { return v.exported && slices.Equal(v.addresses, got) })
	if exported >= 0 && (len(got) == 0 || at >= 0) {
		n.exports[p] = exported
		if len(got) > 0 {
			n.seen[p] = at
			if !early {
				o.cameBack(n, p, a.Received)
			}
		}
		return ""
	}
	values := n.values[cluster]
	older := slices.IndexFunc(values, func(v *value) bool { return slices.Equal(v.addresses, got) })
	switch latest := values[len(values)-1]; {
	case len(got) == 0:
		return fmt.Sprintf(
			"%s of %s are missing, and it was not silent for long enough",
			join(latest.addresses),
			cluster,
		)
	case older < 0 || values[older].from.After(a.Received):
		return fmt.Sprintf("%s of %s was never published together", join(got), cluster)
	case older < n.seen[p] || exported < 0 && at >= 0:
		return fmt.Sprintf("%s of %s is older than what was answered before", join(got), cluster)
	default:
		return fmt.Sprintf(
			"%s of %s is out of date for longer than %v: it is %s",
			join(got),
			cluster,
			o.bounds.Converge,
			join(latest.addresses),
		)
	}
}

// before reports whether endpoints that had gone came back just now: their cluster's renewal may be seen there before
// it is seen here.
func (o *Oracle) before(n *name, p pair, now time.Time) bool {
	if !n.missing[p] || !o.leases[p.cluster].dead {
		return false
	}
	if n.again[p].IsZero() {
		n.again[p] = now
	}
	return now.Sub(n.again[p]) < look
}

// find is the oldest value that may be answered and that is so; -1 if there is none.
func (o *Oracle) find(n *name, p pair, a Answer, seen map[pair]int, so func(*value) bool) int {
	values := n.values[p.cluster]
	for i := max(seen[p], o.required(n, p, a.Sent)); i < len(values); i++ {
		if !values[i].from.After(a.Received) && so(values[i]) {
			return i
		}
	}
	return -1
}
