package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// well is a member that lacks nothing.
func well() *Facts {
	return &Facts{
		Cluster: "east", Set: "blue", Hub: "https://hub", HubNamespace: "blue", Fresh: true,
		Peers: []Peer{{ID: "west"}}, Linked: true,
		Ranges: map[string]Ranges{
			"east": {Pods: prefixes("10.1.0.0/16"), Services: prefixes("10.96.0.0/16")},
			"west": {Pods: prefixes("10.2.0.0/16"), Services: prefixes("10.96.0.0/16")},
		},
		DNS: DNS{Asked: true},
	}
}

// lost is a member whose hub does not show it its renewals any more.
func lost(answer error) *Facts {
	f := well()
	f.Fresh, f.Answer = false, answer
	return f
}

var profiles = schema.GroupResource{Resource: "clusterprofiles"}

// TestDecide plants one fault a row. The condition that it belongs to is the only False one, but for Ready.
func TestDecide(t *testing.T) {
	for _, c := range []struct {
		reason  string // that Ready has
		facts   *Facts
		says    string
		unready bool // Ready is Unknown
	}{
		{reason: "AllWell", facts: well()},
		{reason: "NoAnswer", facts: lost(errors.New("dial tcp 10.0.0.1:6443: i/o timeout")), says: "i/o timeout"},
		{reason: "NoAnswer", facts: lost(apierrors.NewServiceUnavailable("no backend")), says: "no backend"},
		{reason: "NoAnswer", facts: lost(apierrors.NewTooManyRequests("slow down", 1)), says: "slow down"},
		{reason: "NoHub", facts: lost(&meta.NoKindMatchError{}), says: "is no hub"},
		{reason: "Refused", facts: lost(fmt.Errorf("long text: %w", apierrors.NewUnauthorized("Unauthorized"))),
			says: "refuses the agent's token: Unauthorized."},
		{reason: "Forbidden", facts: lost(apierrors.NewForbidden(profiles, "east", errors.New("no"))),
			says: "is forbidden"},
		{reason: "Forbidden", facts: func() *Facts {
			f := lost(apierrors.NewForbidden(profiles, "east", errors.New("no")))
			f.Set, f.NotMember = "", f.Answer
			return f
		}(), says: "is forbidden"},
		{reason: "Forbidden", facts: lost(apierrors.NewInvalid(schema.GroupKind{Kind: "Lease"}, "east", nil)),
			says: "is invalid"},
		{reason: "Connecting", facts: lost(nil), unready: true},
		{reason: "NoCredentials", facts: func() *Facts {
			f := lost(errors.New("no file"))
			f.Credentials = errors.New("there is no Secret")
			return f
		}(), says: "there is no Secret"},
		{reason: "NotUsed", facts: func() *Facts {
			f := well()
			f.Unused, f.Renewal = errors.New("connection refused"), errors.New("no such host")
			return f
		}(), says: "still uses the hub at https://hub, because the latest credentials do not work: connection refused"},
		{reason: "NotRenewed", facts: func() *Facts {
			f := well()
			f.Renewal = errors.New("this one expires at noon")
			return f
		}(), says: "expires at noon"},
		{reason: "IDTaken", facts: func() *Facts {
			f := lost(nil)
			f.Set, f.NotMember = "", &NotAdmitted{"IDTaken", errors.New("held by another cluster")}
			f.Answer = f.NotMember
			return f
		}(), says: "held by another cluster"},
		{reason: "NotJoined", facts: lost(fmt.Errorf("connect: %w", &NotAdmitted{"NotJoined",
			errors.New("no profile")})),
			says: "no profile"},
		{reason: "NotYet", facts: func() *Facts {
			f := well()
			f.Set = ""
			return f
		}(), unready: true},
		{reason: "Leaving", facts: func() *Facts {
			f := lost(&NotAdmitted{"Leaving", fmt.Errorf("leaving: %w", context.DeadlineExceeded)})
			f.NotMember = f.Answer
			return f
		}(), says: "leaving: "},
		{reason: "Cloned", facts: func() *Facts {
			f := lost(nil)
			f.Cloned, f.Accepted = true, true
			return f
		}(), says: "publishes nothing"},
		{reason: "KindsMissing", facts: func() *Facts {
			f := well()
			f.NotServed, f.MissingHere = []string{"ServiceImport"}, []string{"a"}
			return f
		}(), says: "does not serve the kinds ServiceImport"},
		{reason: "RightsMissingHere", facts: func() *Facts {
			f := well()
			f.MissingHere = []string{"a", "b", "c", "d", "e", "f"}
			return f
		}(), says: "a, b, c, d and 2 more in this cluster"},
		{reason: "RightsMissingHere", facts: func() *Facts {
			f := well()
			f.MissingHere, f.MissingOnHub = []string{"create services"}, []string{"create leases"}
			return f
		}(), says: "may not create services in this cluster, nor create leases on the hub. "},
		{reason: "RightsMissingOnHub", facts: func() *Facts {
			f := well()
			f.MissingOnHub = []string{"create leases"}
			return f
		}(), says: "create leases on the hub"},
		{reason: "Overlap", facts: func() *Facts {
			f := well()
			f.Ranges["west"] = Ranges{Pods: prefixes("10.1.128.0/17"), Services: prefixes("10.1.4.0/24")}
			return f
		}(), says: "Pod range 10.1.0.0/16 overlaps Pod range 10.1.128.0/17 of cluster west"},
		{reason: "NotServed", facts: func() *Facts {
			f := well()
			f.DNS.Err = &net.DNSError{IsNotFound: true}
			return f
		}(), says: "does not know clusterset.local"},
		{reason: "NoDNSAnswer", facts: func() *Facts {
			f := well()
			f.DNS.Err = &net.DNSError{Err: "server misbehaving"}
			return f
		}(), says: "server misbehaving"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			all := Decide(c.facts)
			ready := all[len(all)-1]
			want := metav1.ConditionFalse
			if c.unready {
				want = metav1.ConditionUnknown
			}
			if c.reason == "AllWell" {
				want = metav1.ConditionTrue
			}
			if ready.Type != hubv1alpha1.ConditionMembershipReady || ready.Status != want || ready.Reason != c.reason ||
				!strings.Contains(ready.Message, c.says) {
				t.Errorf("%+v, want %s because of %s: %s", ready, want, c.reason, c.says)
			}
			if want == metav1.ConditionFalse && !strings.HasSuffix(ready.Message, "#"+strings.ToLower(c.reason)) {
				t.Errorf("%s has no anchor", ready.Message)
			}
			var wrong []string
			for _, c := range all[:len(all)-1] {
				if c.Status == metav1.ConditionFalse {
					wrong = append(wrong, c.Type)
				}
			}
			if want == metav1.ConditionFalse && len(wrong) != 1 || want != metav1.ConditionFalse && len(wrong) > 0 {
				t.Errorf("%v are False, and one fault was planted", wrong)
			}
		})
	}
}

// TestID7NothingIsSaidOfAHubThatIsNotSo: of one that did not answer while this cluster leaves, that it answers; and of
// one that takes requests, that it did not answer.
func TestID7NothingIsSaidOfAHubThatIsNotSo(t *testing.T) {
	timeout := &url.Error{Op: "Get", URL: "https://hub", Err: context.DeadlineExceeded}
	for what, c := range map[string]struct {
		answer           error
		accepted, cloned bool
		want             string // HubReachable and CredentialsValid
	}{
		"before the first answer": {nil, false, false, "Connecting HubUnknown"},
		"leaving without a hub": {&NotAdmitted{"Leaving", fmt.Errorf("leaving: %w", timeout)}, false, false,
			"Connecting HubUnknown"},
		"leaving, and the hub fails": {&NotAdmitted{"Leaving", apierrors.NewServiceUnavailable("no backend")}, false,
			false, "Connecting HubUnknown"},
		"leaving, and it may be a clone": {&NotAdmitted{"Leaving", errors.New("no record")}, false, false,
			"Answers Accepted"},
		"the loser of a clone":                  {nil, true, true, "Answers Accepted"},
		"the loser of a clone, and no hub":      {timeout, false, true, "NoAnswer HubUnknown"},
		"a first list that takes long":          {nil, true, false, "Connecting Accepted"},
		"a watch that shows nothing, then none": {timeout, false, false, "NoAnswer HubUnknown"},
	} {
		f := lost(c.answer)
		f.Accepted, f.Cloned = c.accepted, c.cloned
		all := Decide(f)
		reachable := meta.FindStatusCondition(all, hubv1alpha1.ConditionHubReachable)
		valid := meta.FindStatusCondition(all, hubv1alpha1.ConditionCredentialsValid)
		if got := reachable.Reason + " " + valid.Reason; got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
		if said := strings.Contains(reachable.Message, "not answered"); c.accepted && said {
			t.Errorf("%s: %s", what, reachable.Message)
		}
	}
}

// TestAHubThatDoesNotAnswerRenewsNoToken: that is one fault. The message says until when the token is valid.
func TestAHubThatDoesNotAnswerRenewsNoToken(t *testing.T) {
	f := lost(errors.New("i/o timeout"))
	f.Renewal = errors.New("this one expires at noon")
	c := meta.FindStatusCondition(Decide(f), hubv1alpha1.ConditionCredentialsValid)
	if c.Status != metav1.ConditionUnknown || c.Reason != "HubUnknown" ||
		!strings.Contains(c.Message, "expires at noon") {
		t.Errorf("%+v", c)
	}
	f.Renewal, f.TokenFault = errors.New("no JSON Web Token"), true // which is another fault
	c = meta.FindStatusCondition(Decide(f), hubv1alpha1.ConditionCredentialsValid)
	if c.Status != metav1.ConditionFalse || c.Reason != "NotRenewed" || !strings.Contains(c.Message, "no JSON") {
		t.Errorf("%+v", c)
	}
}

// TestRangesThatAreNotKnown are no fault, and the condition says what to do: for ever, if nobody does it.
func TestRangesThatAreNotKnown(t *testing.T) {
	const remedy = "write ClusterProperty pod-ranges.clusterset-dns.io. "
	for what, c := range map[string]struct {
		ranges       map[string]Ranges
		reason, says string
	}{
		"no property": {map[string]Ranges{"east": {Services: prefixes("10.96.0.0/16")}}, "NoPodRanges", remedy +
			URL("NoPodRanges")},
		"one that cannot be read": {map[string]Ranges{"east": {
			Pods: prefixes("10.1.0.0/16"), Unreadable: []string{"service-ranges: no CIDR"},
		}}, "PropertyInvalid", "cannot be read: service-ranges: no CIDR. " + URL("PropertyInvalid")},
		"no hub": {nil, "RangesUnknown", "has not shown"},
	} {
		f := well()
		f.Ranges = c.ranges
		all := Decide(f)
		got := meta.FindStatusCondition(all, hubv1alpha1.ConditionRangesDisjoint)
		if got.Status != metav1.ConditionUnknown || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v, want %s: %s", what, got, c.reason, c.says)
		}
		if !meta.IsStatusConditionTrue(all, hubv1alpha1.ConditionMembershipReady) {
			t.Errorf("%s: %+v", what, all)
		}
	}
}

// TestU6RightsThatAreNotKnown are not said to be there, and are no fault.
func TestU6RightsThatAreNotKnown(t *testing.T) {
	f := well()
	f.Rights = errors.New("the API server does not list all rights")
	all := Decide(f)
	c := meta.FindStatusCondition(all, hubv1alpha1.ConditionPermitted)
	if c.Status != metav1.ConditionUnknown || c.Reason != "RightsUnknown" || !strings.Contains(c.Message, "not list") {
		t.Errorf("%+v", c)
	}
	if !meta.IsStatusConditionTrue(all, hubv1alpha1.ConditionMembershipReady) {
		t.Errorf("%+v", all)
	}
	f.MissingHere = []string{"create services"}
	if c := meta.FindStatusCondition(Decide(f), hubv1alpha1.ConditionPermitted); c.Reason != "RightsMissingHere" {
		t.Errorf("%+v", c)
	}
}

// TestAnotherMembersFaultIsItsOwn: it is reported, and this member is Ready.
func TestAnotherMembersFaultIsItsOwn(t *testing.T) {
	for reason, peer := range map[string]Peer{
		"Expired": {ID: "west", Expired: true}, "AgentsSilent": {ID: "west", Silent: true},
	} {
		f := well()
		f.Peers[0] = peer
		all := Decide(f)
		peers := meta.FindStatusCondition(all, hubv1alpha1.ConditionPeersReachable)
		if peers.Status != metav1.ConditionFalse || peers.Reason != reason || !strings.Contains(peers.Message, "west") {
			t.Errorf("%+v, want %s", peers, reason)
		}
		if !meta.IsStatusConditionTrue(all, hubv1alpha1.ConditionMembershipReady) {
			t.Errorf("%+v", all)
		}
	}
}

// TestAnExpiredMemberGetsTrafficByOnExpiry, and nothing is said of its Lease: it may be renewed.
func TestAnExpiredMemberGetsTrafficByOnExpiry(t *testing.T) {
	for policy, want := range map[hubv1alpha1.ExpiryPolicy]string{
		hubv1alpha1.ExpiryRemove:   "Unreachable or expired: west. This cluster sends no traffic there. ",
		hubv1alpha1.ExpiryNotReady: "Unreachable or expired: west. This cluster sends no traffic there. ",
		hubv1alpha1.ExpiryKeep:     "Unreachable or expired: west. Traffic still goes there (onExpiry: Keep). ",
	} {
		f := well()
		f.Peers[0] = Peer{ID: "west", Expired: true, OnExpiry: policy}
		got := meta.FindStatusCondition(Decide(f), hubv1alpha1.ConditionPeersReachable)
		if !strings.HasPrefix(got.Message, want) {
			t.Errorf("%s: %q, want %q", policy, got.Message, want)
		}
	}
}

// TestAMessageFitsIntoAClusterProfile, whatever another program says: the hub's policy has a limit.
func TestAMessageFitsIntoAClusterProfile(t *testing.T) {
	f := lost(errors.New(strings.Repeat("lööng\n", 10000)))
	f.Rights = f.Answer
	for _, c := range Decide(f) {
		if len(c.Message) > 1024 || strings.Contains(c.Message, "\n") {
			t.Errorf("%s: %d bytes", c.Type, len(c.Message))
		}
	}
}
