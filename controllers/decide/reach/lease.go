package reach

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// Annotations of a member's Lease on the hub.
const (
	annotationAnswersAt   = "clusterset-dns.io/answers-at"  // comma-separated host:port
	annotationUnreachable = "clusterset-dns.io/unreachable" // JSON: since when (RFC 3339), by cluster ID
)

// Annotations of a member's own Lease for a source cluster.
const (
	annotationReach     = "clusterset-dns.io/reach"
	annotationSince     = "clusterset-dns.io/reach-since"    // RFC 3339
	annotationAnswered  = "clusterset-dns.io/agent-answered" // RFC 3339
	annotationRoundTrip = "clusterset-dns.io/round-trip"     // of the last answer of its agent, as a Go duration
)

// Bounds of what other members read of the annotations, which their owner wrote.
const (
	maxAddresses   = 4        // a Pod has one of each IP family
	maxAnswersAt   = 256      // octets
	maxUnreachable = 32 << 10 // octets: 300 members with the longest IDs
)

// WriteAddresses states in a member's Lease on the hub where its agent answers.
func WriteAddresses(lease *coordinationv1.Lease, addresses []string) {
	set(lease, annotationAnswersAt, strings.Join(addresses, ","))
}

// ReadAddresses returns the addresses in a member's Lease on the hub at which its agent answers. It leaves out
// those that no other cluster may have (S4).
func ReadAddresses(lease *coordinationv1.Lease, reserved []netip.Prefix) (out []string) {
	if lease == nil || len(lease.Annotations[annotationAnswersAt]) > maxAnswersAt {
		return nil
	}
	for _, text := range strings.Split(lease.Annotations[annotationAnswersAt], ",") {
		a, err := netip.ParseAddrPort(text)
		if err == nil && a.Port() > 0 && clusterset.Claimable(a.Addr().String(), reserved) && len(out) < maxAddresses {
			out = append(out, a.String())
		}
	}
	return out
}

// WriteUnreachable states in a member's Lease on the hub which members it does not reach, and since when.
func WriteUnreachable(lease *coordinationv1.Lease, since map[string]time.Time) {
	text := ""
	if len(since) > 0 {
		b, _ := json.Marshal(since) // cannot fail: the keys are strings, the times are of this age
		text = string(b)
	}
	set(lease, annotationUnreachable, text)
}

// ReadUnreachable returns which members the owner of a Lease on the hub does not reach, and since when. The Lease must
// not be nil.
func ReadUnreachable(lease *coordinationv1.Lease) (since map[string]time.Time, err error) {
	text := lease.Annotations[annotationUnreachable]
	if text == "" {
		return nil, nil
	}
	if len(text) > maxUnreachable {
		return nil, fmt.Errorf("annotation %s has %d octets, at most %d are read", annotationUnreachable, len(text),
			maxUnreachable)
	}
	if err := json.Unmarshal([]byte(text), &since); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", annotationUnreachable, err)
	}
	for id := range since {
		if err := clusterset.CheckID(id); err != nil {
			return nil, fmt.Errorf("annotation %s: %w", annotationUnreachable, err)
		}
	}
	return since, nil
}

// Write stores the state in this member's own Lease for the source cluster.
func (m Member) Write(lease *coordinationv1.Lease, roundTrip time.Duration) {
	set(lease, annotationReach, string(m.State))
	since, answered, took := "", "", ""
	if m.State != Unknown {
		since = m.Since.UTC().Format(time.RFC3339Nano)
	}
	if m.State != Unknown && m.State != Answers {
		answered = m.answered.UTC().Format(time.RFC3339Nano)
	}
	if m.State == Answers && roundTrip > 0 {
		took = roundTrip.Round(10 * time.Microsecond).String()
	}
	set(lease, annotationSince, since)
	set(lease, annotationAnswered, answered)
	set(lease, annotationRoundTrip, took)
}

// Stored is what a member's own Lease for a source cluster says.
type Stored struct {
	State     State
	Since     time.Time
	Answered  time.Time     // when its agent last answered; zero if it answers, or never did
	RoundTrip time.Duration // of the last answer when the Lease was written; 0 if its agent does not answer
}

// Read returns what a member's own Lease for a source cluster says; the Lease may be nil.
func Read(lease *coordinationv1.Lease) (s Stored) {
	if lease == nil {
		return s
	}
	s.State = State(lease.Annotations[annotationReach])
	s.Since, _ = time.Parse(time.RFC3339Nano, lease.Annotations[annotationSince])
	s.Answered, _ = time.Parse(time.RFC3339Nano, lease.Annotations[annotationAnswered])
	s.RoundTrip, _ = time.ParseDuration(lease.Annotations[annotationRoundTrip])
	return s
}

func set(lease *coordinationv1.Lease, annotation, value string) {
	if value == "" {
		delete(lease.Annotations, annotation)
		return
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotation, value)
}
