// Package health decides the conditions of a Membership from what an agent has seen. It is pure. A fact has one
// condition, and a condition that an earlier one explains is Unknown, so that the first one that is False is the cause.
package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/conditions"
)

// Facts are what an agent has seen.
type Facts struct {
	Cluster      string // this member's cluster ID
	Set          string // the clusterset that this cluster is a member of; "" if it is no member
	Hub          string // the hub's URL; "" if the credentials name none
	HubNamespace string

	Credentials error // why the credentials for the hub cannot be read
	Unused      error // why the latest credentials do not work, while the agent uses earlier ones
	Renewal     error // why the token was not renewed
	TokenFault  bool  // for which the hub need not answer: this cluster sees it
	Fresh       bool  // the hub shows this agent its own renewals
	Lately      bool  // it has within the last two minutes
	Answer      error // the error in the hub's last answer, or why it did not answer; nil after a success
	Accepted    bool  // the hub's last answer was a success
	NotMember   error // why this cluster is no member
	Cloned      bool  // another agent renews this member's Lease

	NotServed                 []string // kinds that this cluster must serve
	MissingHere, MissingOnHub []string // rights
	Rights                    error    // why more may be missing

	Peers  []Peer
	Linked bool              // this process follows the hub, so that it asks the peers
	Ranges map[string]Ranges // of the members, by ID

	DNS DNS
}

// Peer is another member, as this cluster sees it.
type Peer struct {
	ID       string
	Expired  bool
	OnExpiry hubv1alpha1.ExpiryPolicy // what its endpoints follow if it has expired
	Silent   bool                     // its agent does not answer here
}

// Ranges are the addresses of a member's Pods and Services, as it reports them.
type Ranges struct {
	Pods, Services []netip.Prefix
	Unreadable     []string // ClusterProperties, each with the reason
}

// DNS is what the resolver of the agent's Pod has answered to the question for the version of clusterset.local.
type DNS struct {
	Asked bool // the agent runs in a Pod
	Err   error
}

// NotAdmitted is why a cluster is no member, with a reason for its condition.
type NotAdmitted struct {
	Reason string
	Err    error
}

func (n *NotAdmitted) Error() string { return n.Err.Error() }

func (n *NotAdmitted) Unwrap() error { return n.Err }

// Decide returns all conditions of a Membership, Ready last, without their times.
func Decide(f *Facts) []metav1.Condition {
	hub := f.hub()
	out := []metav1.Condition{
		hub, f.credentials(hub), f.admitted(hub), f.permitted(), f.ranges(), f.dns(), f.peers(),
	}
	return append(out, ready(out))
}

// condition returns a condition whose status is that of its reason.
func condition(of, reason, format string, args ...any) metav1.Condition {
	r := Reasons[reason]
	// Text of another program may be long, and must fit into a ClusterProfile on the hub.
	message := conditions.Shorten(strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "), 700)
	if r.Remedy != "" {
		message = strings.TrimRight(message, ".") + ". " + URL(reason)
	}
	return metav1.Condition{Type: of, Status: r.Status(), Reason: reason, Message: message}
}

func (f *Facts) hub() metav1.Condition {
	const of = hubv1alpha1.ConditionHubReachable
	var refused *NotAdmitted
	switch err := f.Answer; {
	case f.Fresh, f.Accepted && (f.Lately || f.Cloned): // which is not shown renewals of its own
		return condition(of, "Answers", "The hub answers.")
	case f.Credentials != nil:
		return condition(of, "NoAddress", "The agent has no address of the hub.")
	case f.Accepted:
		return condition(of, "Connecting", "The hub at %s answers, but its watch does not show its latest state yet.",
			f.Hub)
	case err == nil, errors.As(err, &refused) && !answered(err): // Admitted has the error
		return condition(of, "Connecting", "The hub at %s has not answered yet.", f.Hub)
	case meta.IsNoMatchError(err):
		return condition(of, "NoHub", "The API server at %s is no hub: %v", f.Hub, err)
	case answered(err):
		return condition(of, "Answers", "The hub answers.")
	}
	return condition(of, "NoAnswer", "The hub at %s does not answer: %v", f.Hub, f.Answer)
}

// cause returns the message of an API server, without what callers added to the error.
func cause(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}

// answered returns whether err is the answer of a hub that works and refuses.
func answered(err error) bool {
	var refused *NotAdmitted
	var status apierrors.APIStatus
	var silent net.Error
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= 400 && code < 500 && !apierrors.IsTooManyRequests(err)
	}
	return errors.As(err, &refused) && !errors.As(err, &silent)
}

func (f *Facts) credentials(hub metav1.Condition) metav1.Condition {
	const of = hubv1alpha1.ConditionCredentialsValid
	unknown := hub.Status != metav1.ConditionTrue && !f.Accepted
	switch {
	case f.Credentials != nil:
		return condition(of, "NoCredentials", "The credentials for the hub cannot be read: %v", f.Credentials)
	case !f.Fresh && apierrors.IsUnauthorized(f.Answer):
		return condition(of, "Refused", "The hub refuses the agent's token: %s", cause(f.Answer))
	case f.Unused != nil:
		return condition(of, "NotUsed", "The agent still uses the hub at %s, because the latest credentials do not "+
			"work: %v", f.Hub, f.Unused)
	case f.Renewal != nil && unknown && !f.TokenFault:
		return condition(of, "HubUnknown", "The hub has not answered, so the token is not renewed: %v", f.Renewal)
	case f.Renewal != nil:
		return condition(of, "NotRenewed", "The token for the hub is not renewed: %v", f.Renewal)
	case unknown:
		return condition(of, "HubUnknown", "The hub has not answered.")
	}
	return condition(of, "Accepted", "The hub accepts the agent's token.")
}

func (f *Facts) admitted(hub metav1.Condition) metav1.Condition {
	const of = hubv1alpha1.ConditionAdmitted
	var why *NotAdmitted
	switch {
	case f.Cloned:
		return condition(of, "Cloned", "Another cluster's agent renews the Lease of cluster %s on the hub, so this "+
			"one publishes nothing", f.Cluster)
	case errors.As(f.NotMember, &why) || errors.As(f.Answer, &why):
		return condition(of, why.Reason, "%v", why)
	case !f.Fresh && (apierrors.IsForbidden(f.Answer) || apierrors.IsInvalid(f.Answer)): // by rights or by a policy
		return condition(of, "Forbidden", "The hub does not let this member read or write: %s", cause(f.Answer))
	case f.NotMember != nil || f.Set == "":
		return condition(of, "NotYet", "This cluster is no member of a clusterset yet.")
	case hub.Status != metav1.ConditionTrue:
		return condition(of, "Member", "This cluster is a member of clusterset %s, as the hub last said.", f.Set)
	}
	return condition(of, "Member", "This cluster is a member of clusterset %s.", f.Set)
}

func (f *Facts) permitted() metav1.Condition {
	const of = hubv1alpha1.ConditionPermitted
	switch {
	case len(f.NotServed) > 0:
		return condition(of, "KindsMissing", "This cluster does not serve the kinds %s", list(f.NotServed))
	case len(f.MissingHere) > 0 && len(f.MissingOnHub) > 0:
		return condition(of, "RightsMissingHere", "The agent may not %s in this cluster, nor %s on the hub",
			list(f.MissingHere), list(f.MissingOnHub))
	case len(f.MissingHere) > 0:
		return condition(of, "RightsMissingHere", "The agent may not %s in this cluster", list(f.MissingHere))
	case len(f.MissingOnHub) > 0:
		return condition(of, "RightsMissingOnHub", "This member may not %s on the hub", list(f.MissingOnHub))
	case f.Rights != nil:
		return condition(of, "RightsUnknown", "Whether the agent lacks a right is not known: %v", f.Rights)
	}
	return condition(of, "Complete", "The agent lacks no right.")
}

// list joins the first four items and counts the others.
func list(items []string) string {
	const limit = 4
	if n := len(items); n > limit {
		return fmt.Sprintf("%s and %d more", strings.Join(items[:limit], ", "), n-limit)
	}
	return strings.Join(items, ", ")
}

func (f *Facts) ranges() metav1.Condition {
	const of = hubv1alpha1.ConditionRangesDisjoint
	own, known := f.Ranges[f.Cluster]
	var met []string
	meets := func(mine, theirs string, other string, a, b []netip.Prefix) {
		for _, p := range a {
			for _, q := range b {
				if p.Overlaps(q) {
					met = append(met, fmt.Sprintf("%s %s overlaps %s %s of cluster %s", mine, p, theirs, q, other))
				}
			}
		}
	}
	meets("Pod range", "Service range", f.Cluster, own.Pods, own.Services)
	for id, other := range f.Ranges {
		if id == f.Cluster {
			continue
		}
		// Service ranges may be the same everywhere: packets to a VIP do not leave their cluster.
		meets("Pod range", "Pod range", id, own.Pods, other.Pods)
		meets("Pod range", "Service range", id, own.Pods, other.Services)
		meets("Service range", "Pod range", id, own.Services, other.Pods)
	}
	slices.Sort(met)
	switch {
	case len(met) > 0:
		return condition(of, "Overlap", "%s", list(met))
	case !known:
		return condition(of, "RangesUnknown", "The hub has not shown what ranges this cluster reports.")
	case len(own.Unreadable) > 0:
		return condition(of, "PropertyInvalid", "A ClusterProperty cannot be read: %s", list(own.Unreadable))
	case len(own.Pods) == 0:
		return condition(of, "NoPodRanges", "Whether another member's Pods have the addresses of this cluster's is "+
			"not known: write ClusterProperty %s", clusterset.PropertyPodRanges)
	}
	return condition(of, "Disjoint", "No range that a member reports overlaps those of this cluster.")
}

func (f *Facts) dns() metav1.Condition {
	const of = hubv1alpha1.ConditionDNSAnswers
	var failed *net.DNSError
	switch err := f.DNS.Err; {
	case !f.DNS.Asked:
		return condition(of, "NotAsked", "The agent runs outside the cluster, and does not see its DNS.")
	case err == nil:
		return condition(of, "Answered", "The cluster's DNS answers for clusterset.local.")
	case errors.As(err, &failed) && failed.IsNotFound:
		return condition(of, "NotServed", "The cluster's DNS does not know clusterset.local")
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &failed) && failed.IsTimeout:
		return condition(of, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
	default:
		return condition(of, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: %v", err)
	}
}

func (f *Facts) peers() metav1.Condition {
	const of = hubv1alpha1.ConditionPeersReachable
	var expired, silent []string
	traffic := "This cluster sends no traffic there"
	for _, p := range f.Peers {
		switch {
		case p.Expired:
			expired = append(expired, p.ID)
			if p.OnExpiry == hubv1alpha1.ExpiryKeep {
				traffic = "Traffic still goes there (onExpiry: Keep)"
			}
		case p.Silent:
			silent = append(silent, p.ID)
		}
	}
	slices.Sort(expired)
	slices.Sort(silent)
	switch {
	case len(expired) > 0:
		return condition(of, "Expired", "Unreachable or expired: %s. %s", list(expired), traffic)
	case len(silent) > 0 && f.Linked:
		return condition(of, "AgentsSilent", "The agents of these members do not answer here: %s", list(silent))
	case len(f.Peers) == 0:
		return condition(of, "Alone", "This cluster knows no other member.")
	case !f.Linked:
		return condition(of, "PeersUnknown", "The agent does not follow the hub yet since its start, and asks nobody.")
	}
	return condition(of, "Reached", "All other members answer.")
}

// ready returns the condition Ready, with the reason of the first other condition that prevents it.
func ready(all []metav1.Condition) metav1.Condition {
	const of = hubv1alpha1.ConditionMembershipReady
	for _, c := range all {
		if c.Type != hubv1alpha1.ConditionPeersReachable && c.Status == metav1.ConditionFalse {
			return metav1.Condition{Type: of, Status: metav1.ConditionFalse, Reason: c.Reason, Message: c.Message}
		}
	}
	for _, c := range all {
		hubFirst := c.Type == hubv1alpha1.ConditionHubReachable || c.Type == hubv1alpha1.ConditionAdmitted
		if hubFirst && c.Status == metav1.ConditionUnknown {
			return metav1.Condition{Type: of, Status: metav1.ConditionUnknown, Reason: c.Reason, Message: c.Message}
		}
	}
	return condition(of, "AllWell", "This cluster is a member and lacks nothing.")
}
