package health

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reason is what a reason of a condition means. docs/checks.md is made from this table.
type Reason struct {
	Condition string
	Unknown   bool   // the condition is Unknown
	Means     string // what it means, and what follows
	Remedy    string // what repairs it; it makes the condition False, unless that is Unknown
	Command   string // offered by doctor; "" if the message decides what is to be done
}

// Status returns the status of a condition that has the reason.
func (r Reason) Status() metav1.ConditionStatus {
	switch {
	case r.Unknown:
		return metav1.ConditionUnknown
	case r.Remedy != "":
		return metav1.ConditionFalse
	}
	return metav1.ConditionTrue
}

const (
	joinCommand  = "kubectl clusterset join --hub-context=HUB"
	renewCommand = "kubectl clusterset join --renew --hub-context=HUB"
	moveCommand  = renewCommand + " --hub-server=URL"
	initCommand  = "kubectl clusterset init --hub-context=HUB"

	join  = "`" + joinCommand + "`"
	renew = "`" + renewCommand + "`, which keeps ID and VIPs"
)

// Reasons are all reasons of a Membership's conditions.
var Reasons = map[string]Reason{
	"Answers": {Condition: "HubReachable", Means: "The hub answers the agent."},
	"Connecting": {Condition: "HubReachable", Unknown: true,
		Means: "The agent has just started, or waits for the hub. If that lasts: a proxy may hold watches back, or " +
			"the hub cannot list its objects. For a cluster that leaves, see Admitted."},
	"NoAddress": {Condition: "HubReachable", Unknown: true, Means: "Without credentials the agent does not know " +
		"the hub."},
	"NoAnswer": {Condition: "HubReachable",
		Means: "The agent does not reach the hub. Imports stay as they are; other members see no change of this " +
			"cluster's exports.",
		Remedy: "Let this cluster's Pods reach that address. If the hub has another one for them: `" + moveCommand +
			"`. If its certificate authority has changed: " + renew + "."},
	"NoHub": {Condition: "HubReachable", Command: joinCommand, Means: "The API server lacks the kinds of a hub.",
		Remedy: "If it is the hub: `" + initCommand + "`. Else join the right one: " + join + "."},

	"Accepted": {Condition: "CredentialsValid", Means: "The hub accepts the agent's token, and the token is " +
		"renewed."},
	"HubUnknown": {Condition: "CredentialsValid", Unknown: true, Means: "The hub has not answered: see HubReachable."},
	"NoCredentials": {Condition: "CredentialsValid", Command: renewCommand,
		Means: "The Secret `hub-kubeconfig` in `clusterset-system` is missing, has not reached the Pod yet, or " +
			"cannot be read.",
		Remedy: "If the Secret is new, wait for two minutes. Else " + join + "; a member adds `--renew`."},
	"Refused": {Condition: "CredentialsValid", Command: renewCommand,
		Means: "The token has expired, or the cluster was evicted, or the hub was restored to a time before it " +
			"joined. Imports stay as they are; exports are not updated.",
		Remedy: renew + ". If the hub was restored to a time before it joined: " + join + ", which keeps its ID, too."},
	"NotUsed": {Condition: "CredentialsValid",
		Means: "The address or certificate authority that the Secret `hub-kubeconfig` has now does not work. The " +
			"agent keeps its earlier connection until it starts again; then this cluster is cut off.",
		Remedy: "`" + moveCommand + "` with an address that works."},
	"NotRenewed": {Condition: "CredentialsValid",
		Means: "Once the token has expired, this cluster imports nothing new, and others see none of its changes. " +
			"They keep its endpoints while its agent answers (port 8082); for an hour if only endpoints answer; " +
			"else until its Lease expires.",
		Remedy: "Before the token expires, do what the message says. For a new token: " + renew + "."},

	"Member": {Condition: "Admitted", Means: "This cluster is a member."},
	"NotYet": {Condition: "Admitted", Unknown: true, Means: "The conditions before say what the agent waits for."},
	"NotJoined": {Condition: "Admitted", Command: joinCommand,
		Means:  "The hub has no ClusterProfile of this cluster: it has not joined, has left, or was evicted.",
		Remedy: join + "."},
	"BeingDeleted": {Condition: "Admitted",
		Means:  "The ClusterProfile on the hub is being deleted: this cluster leaves, has left, or is evicted.",
		Remedy: "Wait until it is gone; to join again: " + join + "."},
	"IDTaken": {Condition: "Admitted", Command: "kubectl clusterset leave --force",
		Means:  "On the hub, another cluster holds this ID: the ID or the credentials were copied.",
		Remedy: "`kubectl clusterset leave --force`, then `join --cluster-id=ANOTHER`."},
	"IDDiffers": {Condition: "Admitted",
		Means:  "The agent's `--cluster-id` and the ClusterProperty `cluster.clusterset.k8s.io` differ.",
		Remedy: "Remove the argument from the agent's Deployment, or leave, and join with the other ID."},
	"RefusedHere": {Condition: "Admitted",
		Means:  "This cluster's API server refuses what the agent needs to make the cluster a member.",
		Remedy: "Change the role, the policy or the webhook that the message names."},
	"OtherClusterSet": {Condition: "Admitted",
		Means: "The ClusterProperty `clusterset.k8s.io` names another clusterset than the hub has.",
		Remedy: "If the hub is the wrong one, " + join + " with the right one; else `kubectl clusterset leave`, " +
			"then join."},
	"NoClusterSet": {Condition: "Admitted", Command: initCommand,
		Means: "The clusterset's namespace on the hub has no ClusterSet, or several. Until it has one, no further " +
			"cluster loses its endpoints here, not even one that is down.",
		Remedy: "`" + initCommand + "`; of several, delete all but one."},
	"Leaving": {Condition: "Admitted",
		Means:  "This cluster is to leave, and the agent cannot finish that.",
		Remedy: "Do what the message says. If the hub no longer exists: `kubectl clusterset leave --force`."},
	"Left": {Condition: "Admitted", Command: joinCommand, Means: "This cluster has left its clusterset.",
		Remedy: "To be a member again: " + join + "."},
	"Cloned": {Condition: "Admitted",
		Means:  "This cluster and another one have the same ID and credentials, as after a restored snapshot.",
		Remedy: "In the clone: `kubectl clusterset leave --force`, then `join --cluster-id=ANOTHER`."},
	"Forbidden": {Condition: "Admitted", Command: joinCommand,
		Means: "The hub knows the token and gives it no rights: the member's RoleBinding is gone, or it was evicted. " +
			"Or a policy of the hub refuses the write.",
		Remedy: "As an admin of the hub: " + join + "."},

	"Complete": {Condition: "Permitted", Means: "The agent has every right in its manifests."},
	"KindsMissing": {Condition: "Permitted", Command: joinCommand,
		Means:  "A CRD that the agent needs was deleted, and its objects with it, or was never applied.",
		Remedy: "Apply the manifests of this version: " + join + ", or your Helm release or Git repository."},
	"RightsUnknown": {Condition: "Permitted", Unknown: true, Means: "An API server has not answered whether the " +
		"agent has each right that it needs; the message has its error."},
	"RightsMissingHere": {Condition: "Permitted", Command: joinCommand,
		Means:  "A role or a binding of the agent is missing or older than the agent.",
		Remedy: "Apply the manifests of this version: " + join + ", or your Helm release or Git repository."},
	"RightsMissingOnHub": {Condition: "Permitted", Command: joinCommand,
		Means: "A binding of this member is missing on the hub, or a role there is older than the agent.",
		Remedy: "As an admin of the hub: " + join + ". After an upgrade of the agent, first `" +
			initCommand + "`."},

	"Disjoint": {Condition: "RangesDisjoint", Means: "No range that a member reports overlaps those of this cluster."},
	"RangesUnknown": {Condition: "RangesDisjoint", Unknown: true, Means: "The conditions before say what the agent " +
		"waits for."},
	"NoPodRanges": {Condition: "RangesDisjoint", Unknown: true,
		Means: "An overlap is not found, because nothing shows the agent the ranges of all Pods: most networks do " +
			"not take those that Nodes have.",
		Remedy: "Write the ranges into ClusterProperty `pod-ranges.clusterset-dns.io` " +
			"([Ranges of VIPs](operate.md#ranges-of-vips)). They are what you gave your network, such as " +
			"`--pod-network-cidr` of kubeadm."},
	"PropertyInvalid": {Condition: "RangesDisjoint", Unknown: true,
		Means:  "The hub grants this cluster no further block. If it is one of ranges, an overlap may not be found.",
		Remedy: "Correct the ClusterProperty that the message names ([Ranges of VIPs](operate.md#ranges-of-vips))."},
	"Overlap": {Condition: "RangesDisjoint",
		Means:  "Packets to addresses in the overlap do not leave this cluster, or reach a wrong Pod.",
		Remedy: "Renumber one of the clusters, or use a gateway that translates addresses."},

	"Answered": {Condition: "DNSAnswers", Means: "Pods of this cluster resolve names of clusterset.local."},
	"NotAsked": {Condition: "DNSAnswers", Unknown: true, Means: "The agent runs outside the cluster."},
	"NotServed": {Condition: "DNSAnswers", Command: "kubectl clusterset dns install",
		Means: "The DNS that this cluster's Pods ask does not have our plugin, or does not send clusterset.local " +
			"there.",
		Remedy: "`kubectl clusterset dns install`; `kubectl clusterset doctor` says what is there."},
	"NoDNSAnswer": {Condition: "DNSAnswers", Command: "kubectl -n kube-system logs -l k8s-app=kube-dns --tail=50",
		Means:  "The DNS that this cluster's Pods ask fails for clusterset.local.",
		Remedy: "`kubectl clusterset doctor` says what is there; the log of CoreDNS says why."},

	"Reached": {Condition: "PeersReachable", Means: "All other members answer."},
	"Alone":   {Condition: "PeersReachable", Means: "There is no other member."},
	"PeersUnknown": {Condition: "PeersReachable", Unknown: true,
		Means: "The agent asks other members once it follows the hub: the conditions before say what it waits for."},
	"Expired": {Condition: "PeersReachable",
		Means: "Neither the agent nor the endpoints of that member answer here, or its Lease has expired. While " +
			"no endpoint answers, the agent of an unreachable member brings it back only after a renewal of its Lease.",
		Remedy: "Look at that cluster: `kubectl get membership` there. If it is well and reaches the hub, look at " +
			"the network between the two."},
	"AgentsSilent": {Condition: "PeersReachable",
		Means: "That member's agent does not answer here. If only endpoints answer, they stay for an hour, even if " +
			"its Lease expires. Else its Lease decides, and a failure is noticed after a minute, not five seconds.",
		Remedy: "If its agent works, allow TCP port 8082 between the Pods of the Deployments `clusterset-controller` " +
			"(failover.md). Else repair the agent: `kubectl clusterset doctor` there."},

	"AllWell": {Condition: "Ready", Means: "All conditions are well. Ready does not depend on PeersReachable."},
}

func Names() []string { return slices.Sorted(maps.Keys(Reasons)) }

// page has a heading for each reason.
const page = "https://github.com/clusterset-dns/clusterset-dns/blob/main/docs/checks.md#"

// URL returns where a reason is explained.
func URL(reason string) string { return page + strings.ToLower(reason) }

// Order is the order of the conditions.
var Order = []string{"HubReachable", "CredentialsValid", "Admitted", "Permitted", "RangesDisjoint", "DNSAnswers",
	"PeersReachable", "Ready"}
