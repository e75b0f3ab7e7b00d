package check_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/check"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/dns"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/status"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/endpoints"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/reach"
)

// Where a finding is shown.
const (
	all     = "status doctor explain"
	notName = "status doctor" // it does not concern web.shop
	onlyAsk = "explain"       // it alone reads what shows it
)

// silent has agents not renew their Leases.
func silent(s *snapshot.Snapshot, ids ...string) {
	for _, id := range ids {
		*s.Hub.Lease(id) = lease(id, 10*time.Minute)
	}
	for _, id := range ids {
		if id == "east" {
			s.Member.Leases[0], s.Member.Leases[1] = lease(facts.AgentLease, 10*time.Minute),
				lease(clusterset.LeaseRenewed, 10*time.Minute)
		}
	}
}

// forbidden has the hub refuse the agent's account, with which it is asked if no flag names the hub.
func forbidden(s *snapshot.Snapshot) {
	s.HubNamed, s.Hub, s.Flags.HubContext, s.Flags.HubNamespace = false, nil, "", ""
	s.Unread[snapshot.OfHub] = snapshot.Lack{Why: "clusterprofiles is forbidden", Right: "clusterprofiles (list)"}
	s.Member.Exports[0].Status.Conditions[1] = condition("Ready", "False", "Failed", "it is forbidden")
}

// expire has west expire here.
func expire(s *snapshot.Snapshot) {
	s.Member.Leases[2] = source("west", true)
	s.Member.Slices = s.Member.Slices[:1]
	silent(s, "west")
	state(s, "Expired", "Unreachable or expired: west. This cluster sends no traffic there")
}

func condition(kind, status, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}
}

// faults are planted one at a time. Each has one finding, and what it causes has none.
var faults = []struct {
	name  string
	shown string
	plant func(s *snapshot.Snapshot)
	says  string // the level's mark and the sentence
	step  string // "" for the link alone
}{
	{"a cluster that has not joined", all, func(s *snapshot.Snapshot) {
		s.Member.Properties, s.Member.Agent, s.Member.Leases = nil, nil, nil
		s.Member.Records, s.Member.Imports, s.Member.Slices, s.Hub = nil, nil, nil, nil
		s.Member.Exports[0].Status.Conditions = nil
		s.Member.Membership.Status.Conditions = nil
		s.Unread[snapshot.OfHub] = snapshot.Lack{Why: "no flag names the hub"}
	}, "x this cluster is a member of no ClusterSet: 1 ServiceExport without effect",
		"kubectl clusterset --context=east join --hub-context=hub --hub-namespace=blue --cluster-id=ID"},
	{"DNS was never installed", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Config.Data["Corefile"] = ".:53 {\n kubernetes cluster.local\n forward . /etc/resolv.conf\n}\n"
		s.Member.DNS.Deployment.Annotations = nil
		state(s, "NotServed", "The cluster's DNS does not know clusterset.local")
	}, "x this cluster's DNS does not answer clusterset.local: nothing in its Corefile is for it",
		"kubectl clusterset --context=east dns install"},
	{"DNS was never installed, and the agent runs elsewhere", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Config.Data["Corefile"] = ".:53 {\n kubernetes cluster.local\n}\n"
		s.Member.Membership.Status.Conditions[5].Status = metav1.ConditionUnknown
	}, "x this cluster's DNS does not answer clusterset.local", "kubectl clusterset --context=east dns install"},
	{"the zone is in a block that is not asked", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Config.Data["Corefile"] = "cluster.local:53 {\n multicluster\n}\n"
		state(s, "NotServed", "The cluster's DNS does not know clusterset.local")
	}, "x this cluster's DNS does not answer clusterset.local: multicluster is in a server block that gets no question",
		"kubectl --context=east -n kube-system edit configmap coredns"},
	{"the Corefile does not parse", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Config.Data["Corefile"] = ".:53 {\n multicluster\n"
	}, "x CoreDNS cannot use its Corefile: ", "kubectl --context=east -n kube-system edit configmap coredns"},
	{"CoreDNS refuses the Corefile", all, func(s *snapshot.Snapshot) {
		s.Member.DNSRefusal = "[ERROR] plugin/reload: Corefile changed but reload failed: Corefile:4 - Error: " +
			"unknown option 'x'"
		s.Member.DNS.Deployment.Status.AvailableReplicas = 1
		state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
	}, "x CoreDNS refuses its Corefile: [ERROR] plugin/reload",
		"kubectl --context=east -n kube-system edit configmap coredns"},
	{"CoreDNS refuses the Corefile, and no Pod of it is left", all, func(s *snapshot.Snapshot) {
		s.Member.DNSRefusal = "Corefile:4 - Error: unknown option 'x'"
		s.Member.DNS.Deployment.Status.AvailableReplicas = 0
		state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
	}, "x CoreDNS refuses its Corefile: no Pod of the cluster's DNS is available: Corefile:4 - Error",
		"kubectl --context=east -n kube-system edit configmap coredns"},
	{"the Corefile does not parse, and no Pod of CoreDNS is left", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Config.Data["Corefile"] = ".:53 {\n multicluster\n"
		s.Member.DNS.Deployment.Status.AvailableReplicas = 0
	}, "x CoreDNS cannot use its Corefile: no Pod of the cluster's DNS is available: ",
		"kubectl --context=east -n kube-system edit configmap coredns"},
	{"a kubeadm upgrade brought the image of a mirror back", all, func(s *snapshot.Snapshot) {
		s.Release = "" // of a build that is none
		s.Member.DNSRefusal = "Unknown directive 'multicluster'"
		s.Member.DNS.Deployment.Annotations = nil
		s.Member.DNS.Deployment.Spec.Template.Spec.Containers[0].Image = "registry.example/k8s/coredns:v1.14.0"
		s.Member.DNS.Config.Data["Corefile"] = "# BEGIN clusterset-dns: kubectl clusterset dns uninstall removes " +
			"this block\nclusterset.local:53 {\n multicluster\n}\n# END clusterset-dns\n"
		state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
	}, "x CoreDNS refuses its Corefile: Unknown directive",
		"kubectl clusterset --context=east dns install"},
	{"no Pod of CoreDNS runs", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Deployment.Status.AvailableReplicas = 0
		state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
	}, "x no Pod of the cluster's DNS is available: Deployment coredns: 0 of 2 new replicas are available",
		"kubectl --context=east -n kube-system describe deployment coredns"},
	{"no Pod of CoreDNS runs, and its Deployment is scaled to 0", all, func(s *snapshot.Snapshot) {
		none := int32(0)
		s.Member.DNS.Deployment.Spec.Replicas, s.Member.DNS.Deployment.Status.AvailableReplicas = &none, 0
		state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
	}, "x no Pod of the cluster's DNS is available: Deployment coredns is scaled to 0",
		"kubectl --context=east -n kube-system scale deployment coredns --replicas=2"},
	{"CoreDNS lost its rights", all, func(s *snapshot.Snapshot) {
		s.Member.DNSDrift = []string{"ClusterRoleBinding clusterset-dns:coredns is missing"}
		state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: server misbehaving")
	}, "x CoreDNS lacks rights that its plugin needs: ClusterRoleBinding clusterset-dns:coredns is missing",
		"kubectl clusterset --context=east dns install"},
	{"our CoreDNS beside the cluster's lost its rights", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Config.Data["Corefile"] = ".:53 {\n kubernetes cluster.local\n}\n" +
			"clusterset.local:53 {\n forward . 10.96.7.7\n}\n"
		s.Member.DNS.Deployment.Annotations = nil
		s.Member.DNS.Beside = deployment("clusterset-dns", "coredns", 0)
		s.Member.BesideDrift = []string{"ClusterRoleBinding clusterset-dns:coredns-beside is missing"}
		state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
	}, "x our CoreDNS beside the cluster's DNS does not run as it should: Deployment coredns: 0 of 2 new replicas " +
		"are available; ClusterRoleBinding clusterset-dns:coredns-beside is missing",
		"kubectl clusterset --context=east dns install"},
	{"our CoreDNS beside the cluster's lost its rights, which Helm gave it", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Beside = deployment("clusterset-dns", "coredns", 0)
		s.Member.DNS.Beside.Annotations = map[string]string{"meta.helm.sh/release-name": "dns",
			"meta.helm.sh/release-namespace": "clusterset-dns"}
		s.Member.BesideDrift = []string{"ClusterRole clusterset-dns:coredns is missing"}
	}, "x our CoreDNS beside the cluster's DNS does not run as it should: Deployment coredns: 0 of 2 new replicas " +
		"are available; ClusterRole clusterset-dns:coredns is missing; to restore it: upgrade Helm release " +
		"clusterset-dns/dns",
		"kubectl --context=east -n clusterset-dns describe deployment coredns"},
	{"the agent says that DNS fails, and the Corefile is right", all, func(s *snapshot.Snapshot) {
		state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
	}, "x The cluster's DNS does not answer for clusterset.local: timeout",
		"kubectl --context=east -n kube-system logs -l k8s-app=kube-dns --tail=50"},
	{"a namespace that the Corefile hides", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.Config.Data["Corefile"] = ".:53 {\n multicluster {\n namespaces other\n }\n}\n"
	}, "x the Corefile hides names of shop: its option namespaces has other",
		"kubectl --context=east -n kube-system edit configmap coredns"},
	{"the agent is scaled to 0", all, func(s *snapshot.Snapshot) {
		none := int32(0)
		s.Member.Agent.Spec.Replicas, s.Member.Agent.Status.AvailableReplicas = &none, 0
		silent(s, "east")
		s.Member.Exports[0].Status.Conditions[1] = condition("Ready", "False", "Pending", "the hub is not reached")
	}, "x the agent does not run: Deployment clusterset-controller is scaled to 0",
		"kubectl --context=east -n clusterset-system scale deployment clusterset-controller --replicas=2"},
	{"the agent is scaled to 0 a moment ago", all, func(s *snapshot.Snapshot) {
		none := int32(0)
		s.Member.Agent.Spec.Replicas, s.Member.Agent.Status.AvailableReplicas = &none, 0
		s.Member.Leases[0] = lease(facts.AgentLease, 10*time.Minute)
	}, "x the agent does not run: Deployment clusterset-controller is scaled to 0",
		"kubectl --context=east -n clusterset-system scale deployment clusterset-controller --replicas=2"},
	{"another namespace of the hub", all, func(s *snapshot.Snapshot) {
		s.Hub.Sets, s.Hub.Leases, s.Hub.Role.HubOf = nil, nil, []string{"green"}
	}, "x the ClusterSet's namespace on the hub does not have exactly one ClusterSet: blue has none; it is the " +
		"hub of: green; name another with --hub-namespace", "kubectl --context=hub get clustersets --all-namespaces"},
	{"a quota refuses the agent's Pods", all, func(s *snapshot.Snapshot) {
		s.Member.Agent.Status = appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue,
			Message: "failed quota: team: must specify limits.cpu for: agent"}}}
		silent(s, "east")
	}, "x the agent does not run: Deployment clusterset-controller: 0 of 2 new replicas are available; failed quota: " +
		"team: must specify limits.cpu for: agent",
		"kubectl --context=east -n clusterset-system describe deployment clusterset-controller"},
	{"the agent has no image", all, func(s *snapshot.Snapshot) {
		s.Member.Agent.Status.AvailableReplicas = 0
		s.Member.AgentPods = []corev1.Pod{{ObjectMeta: named("clusterset-system", "agent-1")}}
		s.Member.AgentPods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}
		silent(s, "east")
	}, "x the agent does not run: Deployment clusterset-controller: 0 of 2 new replicas are available; pod agent-1: " +
		"ErrImagePull: not found", "kubectl --context=east -n clusterset-system describe pod agent-1"},
	{"the agent's namespace was deleted", all, func(s *snapshot.Snapshot) {
		s.Member.Agent, s.Member.Drift = nil, []string{"Role clusterset-controller is missing"}
		silent(s, "east")
	}, "x the agent is not there", "kubectl clusterset --context=east join --hub-context=hub --hub-namespace=blue"},
	{"the agent's Deployment is gone", all, func(s *snapshot.Snapshot) {
		s.Member.Agent = nil
		silent(s, "east")
	}, "x the agent is not there", "kubectl clusterset --context=east join --hub-context=hub --hub-namespace=blue"},
	{"the agent does not work, and its Pods are ready", all, func(s *snapshot.Snapshot) { silent(s, "east") },
		"x the agent does not say how it is: no agent renews the Lease clusterset-controller",
		"kubectl --context=east -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50"},
	{"the token expired", all, func(s *snapshot.Snapshot) {
		state(s, "Refused", "The hub refuses the agent's token: Unauthorized")
		*s.Hub.Lease("east") = lease("east", 10*time.Minute)
		s.Member.Leases[1] = lease(clusterset.LeaseRenewed, 10*time.Minute)
		s.Member.Agent.Status.AvailableReplicas = 0 // it is not ready while the hub refuses it
		s.Member.Exports[0].Status.Conditions[1] = condition("Ready", "Unknown", "Pending", "refused")
	}, "x The hub refuses the agent's token: Unauthorized",
		"kubectl clusterset --context=east join --renew --hub-context=hub --hub-namespace=blue"},
	{"the token expired, and the hub is asked with it", all, func(s *snapshot.Snapshot) {
		state(s, "Refused", "The hub refuses the agent's token: Unauthorized")
		s.Member.Leases[1] = lease(clusterset.LeaseRenewed, 10*time.Minute)
		s.HubNamed, s.Hub = false, nil
		s.Unread[snapshot.OfHub] = snapshot.Lack{Why: "Unauthorized"}
	}, "x The hub refuses the agent's token: Unauthorized",
		"kubectl clusterset --context=east join --renew --hub-context=hub --hub-namespace=blue"},
	{"only Pods reach the hub", all, func(s *snapshot.Snapshot) {
		s.HubNamed, s.Hub, s.Flags.HubContext, s.Flags.HubNamespace = false, nil, "", ""
		s.Unread[snapshot.OfHub] = snapshot.Lack{Why: "no such host"}
	}, "! reading the hub failed, so members are not shown: no such host",
		"kubectl clusterset --context=east doctor --hub-context=HUB"},
	{"the hub refuses the token, and the agent has not seen it yet", all, func(s *snapshot.Snapshot) {
		s.HubNamed, s.Hub, s.Flags.HubContext, s.Flags.HubNamespace = false, nil, "", ""
		s.Unread[snapshot.OfHub] = snapshot.Lack{Why: "401 Unauthorized", Credentials: true}
	}, "! reading the hub failed, so members are not shown: 401 Unauthorized",
		"kubectl clusterset --context=east join --renew --hub-context=HUB"},
	{"this member's RoleBinding on the hub is gone, and the hub is asked with it", all, func(s *snapshot.Snapshot) {
		forbidden(s)
		state(s, "RightsMissingOnHub", "This member may not list clusterprofiles on the hub")
	}, "x This member may not list clusterprofiles on the hub",
		"kubectl clusterset --context=east join --hub-context=HUB"},
	{"the same, and the agent has started again", all, func(s *snapshot.Snapshot) {
		forbidden(s)
		state(s, "RightsMissingOnHub", "This member may not list clusterprofiles on the hub")
		state(s, "Forbidden", "The hub does not let this member read or write: clusterprofiles is forbidden")
		s.Member.Agent.Status.AvailableReplicas = 1 // the leader is not ready while it is no member
	}, "x The hub does not let this member read or write", "kubectl clusterset --context=east join --hub-context=HUB"},
	{"evicted, with 64 exports", all, func(s *snapshot.Snapshot) {
		s.Hub.Profiles, s.Hub.Leases = s.Hub.Profiles[1:], s.Hub.Leases[1:]
		s.Hub.Sets[0].Status.Departed = []hubv1alpha1.Departure{{ClusterID: "east",
			At: metav1.NewTime(now.Add(-10 * time.Minute))}}
		state(s, "Refused", "The hub refuses the agent's token: Unauthorized")
		s.Member.Leases[1] = lease(clusterset.LeaseRenewed, 10*time.Minute)
		for i := range 63 {
			e := *s.Member.Exports[0].DeepCopy()
			e.Name = fmt.Sprintf("s%02d", i)
			e.Status.Conditions[1] = condition("Ready", "Unknown", "Pending", "refused")
			s.Member.Exports = append(s.Member.Exports, e)
		}
	}, "x the hub does not know this cluster as a member: it has no ClusterProfile east",
		"kubectl clusterset --context=east join --hub-context=hub --hub-namespace=blue"},
	{"the Secret is gone", all, func(s *snapshot.Snapshot) {
		state(s, "NoCredentials", "The credentials for the hub cannot be read: there is no Secret hub-kubeconfig")
		s.HubNamed, s.Hub = false, nil
		s.Unread[snapshot.OfHub] = snapshot.Lack{Why: "there is no Secret"}
	}, "x The credentials for the hub cannot be read: there is no Secret hub-kubeconfig",
		"kubectl clusterset --context=east join --renew --hub-context=hub --hub-namespace=blue"},
	{"the agent lacks a right", all, func(s *snapshot.Snapshot) {
		s.Member.Drift = []string{"ClusterRoleBinding clusterset-dns:agent is missing"}
		state(s, "RightsMissingHere", "The agent may not list/watch serviceexports in this cluster")
	}, "x this cluster differs from the manifests of this version: ClusterRoleBinding clusterset-dns:agent is missing",
		"kubectl clusterset --context=east join --hub-context=hub --hub-namespace=blue"},
	{"a kind is gone", all, func(s *snapshot.Snapshot) {
		s.Member.Unserved = []string{"ServiceExport"}
		s.Member.Exports = nil
	}, "x this cluster differs from the manifests of this version: kind ServiceExport is not served",
		"kubectl clusterset --context=east join --hub-context=hub --hub-namespace=blue"},
	{"a kind is gone, and its imports with it", all, func(s *snapshot.Snapshot) {
		s.Member.Unserved = []string{"ServiceImport"}
		s.Member.Imports, s.Member.Slices = nil, nil
		s.Member.Records[0].Status.Conditions = []metav1.Condition{condition("Imported", "False", "ImportRefused",
			"this cluster's API server refuses the import: not found")}
	}, "x this cluster differs from the manifests of this version: kind ServiceImport is not served",
		"kubectl clusterset --context=east join --hub-context=hub --hub-namespace=blue"},
	{"leaving", all, func(s *snapshot.Snapshot) {
		s.Member.Properties[1].Annotations[clusterset.AnnotationLeaving] = "true"
		s.Member.Imports, s.Member.Slices, s.Member.Records, s.Hub.Records = nil, nil, nil, nil
	}, "x this cluster is leaving its ClusterSet: blue",
		"kubectl clusterset --context=east leave --hub-context=hub --hub-namespace=blue"},
	{"leaving, and the agent is gone, which join does not bring back", all, func(s *snapshot.Snapshot) {
		s.Member.Properties[1].Annotations[clusterset.AnnotationLeaving] = "true"
		s.Member.Agent = nil
		silent(s, "east")
	}, "x the agent is not there: Deployment clusterset-system/clusterset-controller: this cluster is leaving its " +
		"ClusterSet\n", ""},
	{"leaving, and the hub refuses it", all, func(s *snapshot.Snapshot) {
		s.Member.Properties[1].Annotations[clusterset.AnnotationLeaving] = "true"
		state(s, "Leaving", "leaving: this cluster's records on the hub must be withdrawn first: Unauthorized")
	}, "x this cluster is leaving its ClusterSet: this cluster's records on the hub must be withdrawn first: Unauth",
		"kubectl clusterset --context=east leave --hub-context=hub --hub-namespace=blue"},
	{"contexts swapped", notName, func(s *snapshot.Snapshot) {
		s.HubHere, s.Member.Agent = []string{"blue"}, nil
		s.Member.Properties, s.Member.Leases = nil, nil
		s.Member.Membership.Status.Conditions, s.Member.DNS = nil, dns.State{}
		s.Member.Exports, s.Member.Imports, s.Member.Slices, s.Member.Records = nil, nil, nil, nil
		s.Hub.Sets, s.Hub.Profiles, s.Hub.Leases, s.Hub.Records = nil, nil, nil, nil
		s.Hub.Role = facts.Role{MemberOf: "blue"}
		s.Hub.Leader, s.Hub.Deployed = nil, nil
		s.Unread[snapshot.Leader] = snapshot.Lack{Why: "not there"}
	}, "x the cluster that you named as the hub is not this cluster's hub: --context and --hub-context look " +
		"swapped", ""},
	{"another hub", all, func(s *snapshot.Snapshot) {
		s.Hub.Profiles, s.Hub.Leases = s.Hub.Profiles[1:], s.Hub.Leases[1:]
		s.Member.Membership.Status.Hub = "https://hub.example"
	}, "x the cluster that you named as the hub is not this cluster's hub: the agent uses namespace blue of the hub " +
		"at https://hub.example", ""},
	{"another hub, which it left long ago", all, func(s *snapshot.Snapshot) {
		s.Hub.Profiles, s.Hub.Leases = s.Hub.Profiles[1:], s.Hub.Leases[1:]
		s.Hub.Sets[0].Status.Departed = []hubv1alpha1.Departure{{ClusterID: "east",
			At: metav1.NewTime(now.Add(-time.Hour))}}
	}, "x the cluster that you named as the hub is not this cluster's hub", ""},
	{"another cluster has expired", all, expire,
		"x cluster west has expired: it has not renewed its Lease on the hub since 2026-01-02T03:04:05Z or earlier; " +
			"clients here do not get its endpoints (onExpiry: Remove)",
		"in cluster west: kubectl clusterset doctor"},
	{"another cluster is silent, and its endpoints answer", all, func(s *snapshot.Snapshot) { silent(s, "west") },
		"x cluster west does not renew its Lease on the hub: it last did at 2026-01-02T02:54:05Z",
		"in cluster west: kubectl clusterset doctor"},
	{"another cluster lacks something", all, func(s *snapshot.Snapshot) {
		s.Hub.Profiles[1].Status.Conditions = append(s.Hub.Profiles[1].Status.Conditions, condition(
			inventoryv1alpha1.ConditionMemberReady, "False", "NotServed",
			"The cluster's DNS does not know clusterset.local"))
	}, "! cluster west is not ready: The cluster's DNS does not know clusterset.local",
		"in cluster west: kubectl clusterset doctor"},
	{"two clusters do not reach each other", all, func(s *snapshot.Snapshot) {
		reach.WriteUnreachable(s.Hub.Lease("west"), map[string]time.Time{"east": now.Add(-time.Minute)})
	}, "x cluster east is unreachable from others: from west since 2026-01-02T03:03:05Z", ""},
	{"a Lease of the hub states nonsense", all, func(s *snapshot.Snapshot) {
		reach.WriteUnreachable(s.Hub.Lease("west"), map[string]time.Time{"no ID": now})
	}, "! cluster west is not ready: its Lease on the hub is invalid: annotation ",
		"in cluster west: kubectl clusterset doctor"},
	{"this cluster has not finished joining", all, func(s *snapshot.Snapshot) {
		s.Hub.Profiles[0].Annotations = nil
	}, "! cluster east has not finished joining: it began at 2026-01-02T02:04:05Z",
		"kubectl --context=east -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50"},
	{"a clock is wrong", all, func(s *snapshot.Snapshot) {
		ahead := metav1.NewMicroTime(now.Add(time.Minute))
		s.Hub.Lease("west").Spec.RenewTime = &ahead
	}, "! the clock of cluster west differs from the hub's: 1m1s ahead", ""},
	{"the hub's controller is stopped", notName + " explain", func(s *snapshot.Snapshot) {
		none := int32(0)
		*s.Hub.Leader = lease("leader", 90*time.Second)
		s.Hub.Deployed.Spec.Replicas = &none
	}, "! the hub's controller does not run as it should: nobody has renewed its Lease clusterset-hub-blue " +
		"since 2026-01-02T03:02:35Z",
		"kubectl --context=hub -n clusterset-system scale deployment clusterset-hub-blue --replicas=2"},
	{"the ClusterSet is gone", all, func(s *snapshot.Snapshot) {
		s.Hub.Sets = nil
		state(s, "NoClusterSet", "namespace blue of the hub does not have exactly one ClusterSet")
	}, "x the ClusterSet's namespace on the hub does not have exactly one ClusterSet: blue has none",
		"kubectl clusterset --context=east init --hub-context=hub --hub-namespace=blue"},
	{"the namespace is gone, of a hub that is a member, too", all, func(s *snapshot.Snapshot) {
		s.Hub.Sets, s.Hub.Profiles, s.Hub.Leases, s.Hub.Records = nil, nil, nil, nil
		s.Hub.Role = facts.Role{MemberOf: "blue"}
		s.Member.Leases[1] = lease(clusterset.LeaseRenewed, time.Minute)
		state(s, "NoClusterSet", "namespace blue of the hub does not have exactly one ClusterSet")
	}, "x the ClusterSet's namespace on the hub does not have exactly one ClusterSet: blue has none",
		"kubectl clusterset --context=east init --hub-context=hub --hub-namespace=blue"},
	{"the namespace is gone, with the accounts and the records of members", all, func(s *snapshot.Snapshot) {
		s.Hub.Sets, s.Hub.Profiles, s.Hub.Leases, s.Hub.Records = nil, nil, nil, nil
		state(s, "Refused", "The hub refuses the agent's token: Unauthorized")
		s.Member.Membership.Status.Hub = s.Hub.Server
		s.Member.Records[1].Status.Conditions = []metav1.Condition{condition("Held", "True", "Absent", "It stays.")}
	}, "x the ClusterSet's namespace on the hub does not have exactly one ClusterSet: blue has none",
		"kubectl clusterset --context=east init --hub-context=hub --hub-namespace=blue"},
	{"another ClusterSet of the same hub", all, func(s *snapshot.Snapshot) {
		s.Member.Membership.Status.Hub, s.Namespace = s.Hub.Server, "green"
		s.Hub.Sets[0].Namespace, s.Hub.Sets[0].Name, s.Hub.Profiles, s.Hub.Leases = "green", "green", nil, nil
		s.Hub.Records = []hubv1alpha1.ServiceExportRecord{record("other", 15)}
		s.Hub.Records[0].Spec.ServiceName = "theirs"
	}, "x the cluster that you named as the hub is not this cluster's hub: the agent uses namespace blue of the hub " +
		"at https://hub", ""},
	{"the namespace is gone since the agent has renewed", all, func(s *snapshot.Snapshot) {
		s.Hub.Sets, s.Hub.Profiles, s.Hub.Leases, s.Hub.Records = nil, nil, nil, nil
		s.Member.Membership.Status.Hub = s.Hub.Server
	}, "x the ClusterSet's namespace on the hub does not have exactly one ClusterSet: blue has none",
		"kubectl clusterset --context=east init --hub-context=hub --hub-namespace=blue"},
	{"a policy of the hub is gone", all, func(s *snapshot.Snapshot) {
		s.Hub.Drift = []string{"ValidatingAdmissionPolicy clusterset-records.clusterset-dns.io is missing"}
	}, "x the hub differs from the manifests of this version: ValidatingAdmissionPolicy clusterset-records",
		"kubectl clusterset --context=east init --hub-context=hub --hub-namespace=blue"},
	{"all Pods of one cluster are down", all, func(s *snapshot.Snapshot) { s.Member.Slices[1] = slice("west", 0, 2) },
		"! web.shop has no ready endpoint in some clusters: none ready in west",
		"in cluster west: kubectl clusterset explain web.shop"},
	{"a selector that matches no Pod", all, func(s *snapshot.Snapshot) {
		s.Member.Services[0].Selector = map[string]string{"tier": "front", "app": "wbe"}
		s.Member.Slices = s.Member.Slices[1:]
	}, "! web.shop has no ready endpoint in some clusters: none ready in east; no Pod here that has an address " +
		"matches the Service's selector app=wbe,tier=front\n", "kubectl --context=east -n shop get pods --show-labels"},
	{"another cluster has no Pod", all, func(s *snapshot.Snapshot) { s.Member.Slices = s.Member.Slices[:1] },
		"! web.shop has no ready endpoint in some clusters: none ready in west\n",
		"in cluster west: kubectl clusterset explain web.shop"},
	{"all Pods are down", all, func(s *snapshot.Snapshot) {
		s.Member.Slices[0], s.Member.Slices[1] = slice("east", 0, 1), slice("west", 0, 2)
	}, "x no cluster has a ready endpoint of web.shop, so connections fail: none ready in east, west",
		"kubectl --context=east -n shop get pods --show-labels"},
	{"the preference leaves out who is ready", all, func(s *snapshot.Snapshot) {
		s.Member.Slices[0], s.Member.Slices[1] = slice("east", 0, 1), slice("west", 2, 0)
		s.Member.Slices[1].Labels[endpoints.LabelStandby] = "true"
	}, "x the preference of web.shop selects no cluster with a ready endpoint",
		"kubectl --context=east -n shop edit serviceexport web"},
	{"the preference of another cluster names one that does not export it", all, func(s *snapshot.Snapshot) {
		for _, records := range [][]hubv1alpha1.ServiceExportRecord{s.Member.Records, s.Hub.Records} {
			records[0] = record("north", 20)
			records[0].Spec.Preference, records[1].Spec.Preference = "cluster=south", "cluster=south"
		}
		s.Member.Exports, s.Member.Services = nil, nil
		s.Member.Slices[0] = slice("north", 1, 0)
	}, "! the preference of web.shop names a cluster that does not export it: south",
		"in cluster north: kubectl -n shop edit serviceexport web"},
	{"the ports disagree", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Spec.Ports[0].Port = 8443
		s.Hub.Records[1].Spec.Ports[0].Port = 8443
	}, "! the clusters disagree about web.shop: port http 80/TCP (east) is in effect, west has http 8443/TCP",
		"in cluster west: kubectl -n shop edit service web"},
	{"the ports disagree, and have no names", all, func(s *snapshot.Snapshot) {
		for _, records := range [][]hubv1alpha1.ServiceExportRecord{s.Member.Records, s.Hub.Records} {
			records[0].Spec.Ports[0].Name, records[1].Spec.Ports[0].Name = "", ""
			records[1].Spec.Ports[0].Port = 8080
		}
	}, "! the clusters disagree about web.shop: port 80/TCP (east) is in effect, west has no such port; " +
		"port 8080/TCP (west) is in effect, east has no such port\n",
		"in cluster west: kubectl -n shop edit service web"},
	{"the types disagree, and a Service does not change between them", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Spec.Type, s.Hub.Records[1].Spec.Type = mcsv1beta1.Headless, mcsv1beta1.Headless
	}, "! the clusters disagree about web.shop: type ClusterSetIP (east) is in effect, west has Headless", ""},
	{"the labels disagree", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Spec.ExportedLabels = map[string]string{"a": "b"}
		s.Hub.Records[1].Spec.ExportedLabels = map[string]string{"a": "b"}
	}, "! the clusters disagree about web.shop: labels none (east) is in effect, west has a=b",
		"in cluster west: kubectl -n shop edit serviceexport web"},
	{"an export without a Service", all, func(s *snapshot.Snapshot) {
		s.Member.Exports[0].Status.Conditions = []metav1.Condition{
			condition("Valid", "False", "NoService", "There is no Service."),
			condition("Ready", "False", "Pending", "waiting"),
		}
	}, "x the export of web.shop here is not valid: NoService: There is no Service",
		"kubectl --context=east -n shop get services"},
	{"the hub refuses a record", all, func(s *snapshot.Snapshot) {
		s.Member.Exports[0].Status.Conditions[1] = condition("Ready", "False", "Failed", "denied by a policy")
	}, "x the export of web.shop is not on the hub: Failed: denied by a policy",
		"kubectl --context=east -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50"},
	{"the agent takes no copy of a record that is not valid", notName, func(s *snapshot.Snapshot) {
		rec := record("west", 15)
		rec.Name, rec.Spec.ServiceName, rec.Spec.Ports[0].Name = "api.shop.west", "api", "No Name"
		s.Hub.Records = append(s.Hub.Records, rec)
	}, "x an export of api.shop cannot be read: of cluster west: ", ""},
	{"another program's import", all, func(s *snapshot.Snapshot) {
		s.Member.Records[0].Status.Conditions = []metav1.Condition{condition("Imported", "False", "NotOwned",
			"ServiceImport shop/web belongs to another program")}
		s.Member.Imports[0].Labels = nil
	}, "x web.shop is not imported: NotOwned: ServiceImport shop/web belongs", ""},
	{"a change of an import is refused", all, func(s *snapshot.Snapshot) {
		s.Member.Records[0].Status.Conditions = []metav1.Condition{condition("Imported", "True", "ChangeRefused",
			"this cluster's API server refuses a change of the import, which stays as it is: denied")}
	}, "x the API server refuses a change of the import of web.shop: ChangeRefused: this cluster's API server", ""},
	{"addresses are refused", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Status.Conditions = []metav1.Condition{condition("EndpointsImported", "False",
			"EndpointsRefused", "address 172.20.0.1 is reserved")}
		s.Member.Slices[1] = slice("west", 0, 0)
	}, "x endpoints of web.shop are not imported: EndpointsRefused: address 172.20.0.1 is reserved", ""},
	{"the API server here refuses a slice", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Status.Conditions = []metav1.Condition{condition("EndpointsImported", "False",
			"SliceRefused", "exceeded quota")}
		s.Member.Slices = s.Member.Slices[:1]
	}, "x endpoints of web.shop are not imported: SliceRefused: exceeded quota", ""},
	{"it refuses to delete one", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Spec.Withdrawn = true
		s.Member.Records[1].Status.Conditions = []metav1.Condition{condition("EndpointsImported", "False",
			"SliceRefused", "failed calling webhook")}
	}, "x endpoints of web.shop are not imported: SliceRefused: failed calling webhook", ""},
	{"it refuses those of the preferred cluster", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Status.Conditions = []metav1.Condition{condition("EndpointsImported", "False",
			"SliceRefused", "exceeded quota")}
		s.Member.Slices = s.Member.Slices[:1]
		s.Member.Slices[0].Labels[endpoints.LabelStandby] = "true"
	}, "x endpoints of web.shop are not imported: SliceRefused: exceeded quota", ""},
	{"a record is held that had no ready endpoint", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Status.Conditions = []metav1.Condition{
			condition("Held", "True", "Absent", "the record is gone"),
		}
		s.Member.Slices[1] = slice("west", 0, 2)
	}, "! the hub no longer shows the export of web.shop, and this cluster holds it: west: the record is gone",
		"kubectl --context=east -n clusterset-system get serviceexportrecords -o wide"},
	{"a record is held, and nothing is ready", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Status.Conditions = []metav1.Condition{
			condition("Held", "True", "Absent", "the record is gone"),
		}
		s.Member.Slices[0], s.Member.Slices[1] = slice("east", 0, 1), slice("west", 0, 2)
	}, "x no cluster has a ready endpoint of web.shop, so connections fail: none ready in east; west is held: the " +
		"record is gone", "kubectl --context=east -n shop get pods --show-labels"},
	{"the import has no VIP", all, func(s *snapshot.Snapshot) {
		s.Member.Imports[0].Status.Conditions = []metav1.Condition{
			condition("Ready", "False", "VIPRangeFull", "no address is free"),
		}
	}, "x the import of web.shop is not ready: VIPRangeFull: no address is free",
		"kubectl --context=east -n shop describe serviceimport web"},
	{"a record is held", all, func(s *snapshot.Snapshot) {
		s.Member.Records[1].Status.Conditions = []metav1.Condition{
			condition("Held", "True", "Absent", "the record is gone"),
		}
	}, "! the hub no longer shows the export of web.shop, and this cluster holds it: west: the record is gone",
		"kubectl --context=east -n clusterset-system get serviceexportrecords -o wide"},
	{"ranges overlap", all, func(s *snapshot.Snapshot) {
		s.Member.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.0.119.0/24")}
		state(s, "Overlap", "Pod range 10.0.119.0/24 overlaps Pod range 10.0.0.0/16 of cluster west")
	}, "x Pod range 10.0.119.0/24 overlaps Pod range 10.0.0.0/16 of cluster west", ""},
	{"the ranges of this cluster overlap", all, func(s *snapshot.Snapshot) {
		s.Member.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.96.4.0/24")}
		s.Member.CIDRs = make([]networkingv1.ServiceCIDR, 1)
		s.Member.CIDRs[0].Spec.CIDRs = []string{"10.96.0.0/16"}
	}, "x the Pod range and the Service range of this cluster overlap: 10.96.4.0/24 and 10.96.0.0/16", ""},
	{"ranges overlap, and the agent does not know", all, func(s *snapshot.Snapshot) {
		s.Member.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.0.119.0/24")}
	}, "x cluster west exports endpoints in this cluster's own ranges: 10.0.119.1 is in 10.0.119.0/24", ""},
	{"nobody exports the name", onlyAsk, func(s *snapshot.Snapshot) {
		s.Member.Exports, s.Member.Imports, s.Member.Slices, s.Member.Records = nil, nil, nil, nil
		s.Hub.Records, s.Member.Services = nil, nil
	}, "x no export of web.shop is seen here", "kubectl clusterset --context=east status -o name"},
	{"the ClusterSet excludes the namespace", onlyAsk, func(s *snapshot.Snapshot) {
		s.Member.Exports, s.Member.Imports, s.Member.Slices, s.Member.Records = nil, nil, nil, nil
		s.Hub.Records, s.Member.Services = nil, nil
		s.Hub.Sets[0].Spec.Namespaces.Deny = []string{"shop"}
	}, "x no export of web.shop is seen here: the ClusterSet excludes namespace shop", ""},
	{"the Service here is not exported", onlyAsk, func(s *snapshot.Snapshot) {
		s.Member.Exports, s.Member.Imports, s.Member.Slices, s.Member.Records = nil, nil, nil, nil
		s.Hub.Records = nil
	}, "x no export of web.shop is seen here: this cluster has a Service without a ServiceExport",
		"kubectl clusterset --context=east export web -n shop"},
	{"it is exported to others", onlyAsk, func(s *snapshot.Snapshot) {
		s.Member.Exports, s.Member.Imports, s.Member.Slices, s.Member.Services = nil, nil, nil, nil
		s.Member.Records = s.Member.Records[1:]
		s.Member.Records[0].Spec.ExportTo = "cluster=north"
		s.Hub.Records = nil
	}, "x web.shop is not exported to this cluster: cluster west exports it to cluster=north only", ""},
	{"the namespace is not here", onlyAsk, func(s *snapshot.Snapshot) {
		s.Member.Exports, s.Member.Imports, s.Member.Slices, s.Member.Services = nil, nil, nil, nil
		s.Member.Namespaces = nil
		s.Member.Records, s.Hub.Records = s.Member.Records[1:], nil
	}, "x this cluster has no namespace for web.shop", "kubectl --context=east create namespace shop"},
	{"the namespace refuses imports", onlyAsk, func(s *snapshot.Snapshot) {
		s.Member.Exports, s.Member.Imports, s.Member.Slices, s.Member.Services = nil, nil, nil, nil
		s.Member.Namespaces[0].Refuses = true
		s.Member.Records, s.Hub.Records = s.Member.Records[1:], nil
	}, "! the namespace of web.shop refuses imports in this cluster",
		"kubectl --context=east annotate namespace shop clusterset-dns.io/import-"},
	{"the agent makes no import", onlyAsk, func(s *snapshot.Snapshot) {
		s.Member.Exports, s.Member.Imports, s.Member.Slices, s.Member.Services = nil, nil, nil, nil
		s.Member.Records, s.Hub.Records = s.Member.Records[1:], nil
	}, "x the agent has not created a ServiceImport of web.shop: 1 export of it",
		"kubectl --context=east -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50"},
	{"NodeLocal DNS does not know the zone", all, func(s *snapshot.Snapshot) {
		s.Member.DNS.NodeLocal = nodeCache()
		state(s, "NotServed", "The cluster's DNS does not know clusterset.local")
	}, "x a DNS cache on the nodes does not forward clusterset.local: NodeLocal DNS of its own", ""},
	{"Kubernetes is too old", all, func(s *snapshot.Snapshot) { s.Member.Version = "v1.31.4" },
		"x Kubernetes is too old in this cluster: v1.31.4", ""},
	{"the versions are too far apart", all, func(s *snapshot.Snapshot) { s.Release = "v0.4.0" },
		"! the agent's version and this program's are too far apart: v0.1.0 and v0.4.0", ""},
	{"two pools are unusable", notName, func(s *snapshot.Snapshot) {
		s.Hub.Sets[0].Spec.VIPs.Pools = []string{"10.1.0.0", "10.240.0.0/16", "10.2.0.0"}
	}, "x the pools of VIPs are not as they should be (PoolInvalid): pool 10.1.0.0 is no CIDR of IPv4 or IPv6: write " +
		"it as 10.200.0.0/13 or fd00:c5::/48; pool 10.2.0.0 is no CIDR",
		"kubectl --context=hub -n blue edit clusterset blue"},
	{"a pool is no range", notName, func(s *snapshot.Snapshot) {
		s.Hub.Sets[0].Spec.VIPs.Mode = hubv1alpha1.VIPModePreferred
		s.Hub.Sets[0].Spec.VIPs.Pools = nil
	}, "! the pools of VIPs are not as they should be (NoPools): Mode preferred",
		"kubectl --context=hub -n blue edit clusterset blue"},
	{"what a member reports cannot be read", notName, func(s *snapshot.Snapshot) {
		s.Hub.Sets[0].Spec.VIPs.Mode = hubv1alpha1.VIPModePreferred
		s.Hub.Sets[0].Spec.VIPs.Pools = []string{"10.240.0.0/16"}
		s.Hub.Profiles[0].Status.Properties = append(s.Hub.Profiles[0].Status.Properties,
			inventoryv1alpha1.Property{Name: clusterset.PropertyPodRanges, Value: "10.0.0.0/8,10.1.0.0/16"})
	}, "! the pools of VIPs are not as they should be (PropertyInvalid): east: a property cannot be read: pod-", ""},
	{"the hub's controller waits", notName, func(s *snapshot.Snapshot) {
		s.Hub.Sets[0].Spec.VIPs.Mode = hubv1alpha1.VIPModePreferred
		s.Hub.Sets[0].Spec.VIPs.Pools = []string{"10.240.0.0/16"}
		s.Hub.Sets[0].Status.Conditions = []metav1.Condition{{Type: hubv1alpha1.ConditionBlocksGranted,
			Status: metav1.ConditionFalse, Reason: "Waiting", Message: "The hub controller has just started."}}
	}, "! the pools of VIPs are not as they should be (Waiting): The hub controller has just started", ""},
}

// nodeCache is NodeLocal DNSCache with a configuration of its own.
func nodeCache() *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: named("kube-system", "node-local-dns")}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.k8s.io/dns/k8s-dns-node-cache:1.26"}}
	return d
}

// views returns what each command finds.
func views(s *snapshot.Snapshot) map[string][]report.Finding {
	w := check.See(s, nil)
	results := check.Run(w)
	d := doctor.Examine(w, results)
	asked := check.See(s, &web)
	return map[string][]report.Finding{
		"status":  status.Examine(w, results).Findings,
		"doctor":  check.Findings(d.Outcomes),
		"explain": explain.Explain(asked, check.Run(asked)).Findings,
	}
}

func text(findings []report.Finding) string {
	var out strings.Builder
	report.Print(&out, findings)
	return out.String()
}

func TestAHealthyClusterHasNoFinding(t *testing.T) {
	for command, found := range views(healthy(t)) {
		if len(found) > 0 {
			t.Errorf("%s:\n%s", command, text(found))
		}
	}
}

// TestDNSThatRunsElsewhereIsHealthy: the agent says that it answers, and the old Deployment is scaled to 0.
func TestDNSThatRunsElsewhereIsHealthy(t *testing.T) {
	s, none := healthy(t), int32(0)
	s.Member.DNS.Deployment.Spec.Replicas, s.Member.DNS.Deployment.Status.AvailableReplicas = &none, 0
	for command, found := range views(s) {
		if len(found) > 0 {
			t.Errorf("%s:\n%s", command, text(found))
		}
	}
}

// TestCredentialsOfTheAgentsOwnAreHealthy: it has no Secret with which the hub could be read.
func TestCredentialsOfTheAgentsOwnAreHealthy(t *testing.T) {
	s := healthy(t)
	s.Member.Agent.Spec.Template.Spec.Containers[0].Args = []string{"agent",
		"--hub-kubeconfig=/etc/clusterset/hub/kubeconfig", "--hub-kubeconfig=/vault/hub"}
	s.HubNamed, s.Hub = false, nil
	s.Unread[snapshot.OfHub] = snapshot.Lack{Why: "the agent reads its credentials from a file of its own"}
	for command, found := range views(s) {
		if len(found) > 0 {
			t.Errorf("%s:\n%s", command, text(found))
		}
	}
}

// TestAnotherClustersExpirationHidesNoName: a name without a ready endpoint is its consequence only if all that it
// lacks has expired.
func TestAnotherClustersExpirationHidesNoName(t *testing.T) {
	for exporter, shown := range map[string]bool{"north": true, "west": false} {
		s := healthy(t)
		s.Member.Leases = append(s.Member.Leases, source(exporter, false))
		s.Member.Leases[2] = source("west", true)
		s.Member.Exports, s.Member.Records = nil, []hubv1alpha1.ServiceExportRecord{record(exporter, 15)}
		s.Member.Slices, s.Hub.Records = []discoveryv1.EndpointSlice{slice(exporter, 0, 2)}, nil
		s.Member.Records[0].Status.Conditions = []metav1.Condition{
			condition("Held", "True", "Absent", "the record is gone"),
		}
		got := text(views(s)["doctor"])
		if strings.Contains(got, "no cluster has a ready endpoint of web.shop") != shown {
			t.Errorf("of %s, west has expired:\n%s", exporter, got)
		}
	}
}

// TestEndpointsThatTheVIPCannotUseServeNoName: their port has lost a conflict, or their IP family is left out.
func TestEndpointsThatTheVIPCannotUseServeNoName(t *testing.T) {
	for name, plant := range map[string]func(spec *hubv1alpha1.ServiceExportRecordSpec){
		"port":      func(spec *hubv1alpha1.ServiceExportRecordSpec) { spec.Ports[0].Port = 8443 },
		"IP family": func(spec *hubv1alpha1.ServiceExportRecordSpec) { spec.IPFamilies[0] = corev1.IPv6Protocol },
	} {
		s := healthy(t)
		plant(&s.Member.Records[1].Spec)
		if got := text(views(s)["doctor"]); strings.Contains(got, "endpoint") {
			t.Errorf("%s:\n%s", name, got)
		}
		s.Member.Slices[0] = slice("east", 0, 1)
		if got := text(views(s)["doctor"]); !strings.Contains(got, "x no cluster has a ready endpoint of web.shop, so "+
			"connections fail: none ready in east; the VIP has no port or IP family of west\n") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// TestPodsThatAreNotSeenMatchASelector, as far as is known: the slices are from before the agent stopped, or may be.
func TestPodsThatAreNotSeenMatchASelector(t *testing.T) {
	for why, plant := range map[string]func(s *snapshot.Snapshot){
		"it stopped": func(s *snapshot.Snapshot) { silent(s, "east") },
		"it lacks a right": func(s *snapshot.Snapshot) {
			state(s, "RightsMissingHere", "The agent may not list/watch endpointslices in this cluster")
		},
		"the API server refuses the slice": func(s *snapshot.Snapshot) {
			s.Member.Records[0].Status.Conditions = []metav1.Condition{condition("EndpointsImported", "False",
				"SliceRefused", "exceeded quota")}
		},
	} {
		s := healthy(t)
		s.Member.Services[0].Selector = map[string]string{"app": "web"}
		s.Member.Records = append(s.Member.Records, record("north", 10))
		s.Member.Slices = []discoveryv1.EndpointSlice{slice("west", 0, 1), slice("north", 1, 0)}
		plant(s)
		got := text(views(s)["doctor"])
		if !strings.Contains(got, "none ready in ") || strings.Contains(got, "matches the Service's selector") {
			t.Errorf("%s:\n%s", why, got)
		}
	}
}

// TestTheOldestOfThoseThatExportToThisClusterHasThePreference: an export to others does not make them late.
func TestTheOldestOfThoseThatExportToThisClusterHasThePreference(t *testing.T) {
	s := healthy(t)
	s.Member.Exports, s.Member.Services, s.Hub.Records, s.Member.Records = nil, nil, nil, nil
	s.Member.Slices = []discoveryv1.EndpointSlice{slice("west", 1, 0), slice("north", 1, 0)}
	for _, r := range []struct {
		cluster        string
		age, published int // minutes ago
	}{{"south", 60, 60}, {"west", 24 * 60, 40}, {"north", 48 * 60, 35}} {
		rec := record(r.cluster, r.age)
		rec.Annotations = map[string]string{clusterset.AnnotationPublished: now.Add(-time.Duration(r.published) *
			time.Minute).Format(time.RFC3339)}
		s.Member.Records = append(s.Member.Records, rec)
	}
	s.Member.Records[0].Spec.ExportTo, s.Member.Records[2].Spec.Preference = "cluster=south", "cluster=south"
	for command, found := range views(s) {
		if got := text(found); !strings.Contains(got, "in cluster north: kubectl -n shop edit serviceexport web") {
			t.Errorf("%s:\n%s", command, got)
		}
	}
	w, from := check.See(s, &web), ""
	for _, p := range explain.Explain(w, check.Run(w)).Properties {
		if p.Name == "preference" {
			from = p.From
		}
	}
	if from != "north" {
		t.Errorf("the preference is from %q", from)
	}
}

// TestWhatAnAgentSawBeforeItStoppedHidesNothing that the hub shows now.
func TestWhatAnAgentSawBeforeItStoppedHidesNothing(t *testing.T) {
	s := healthy(t)
	expire(s)
	silent(s, "east")
	s.Member.Agent.Status.AvailableReplicas = 0
	if got := text(views(s)["doctor"]); !strings.Contains(got, "cluster west does not renew its Lease on the hub") {
		t.Error(got)
	}
}

// TestWhatLetsTheAgentWorkHidesNoName: roles of another version, as during an upgrade, or a token or an
// address that will not work later.
func TestWhatLetsTheAgentWorkHidesNoName(t *testing.T) {
	for fault, plant := range map[string]func(s *snapshot.Snapshot){
		"x this cluster differs from the manifests of this version: ClusterRole clusterset-dns:agent differs": func(
			s *snapshot.Snapshot) {
			s.Member.Drift = []string{"ClusterRole clusterset-dns:agent differs"}
		},
		"x The token for the hub is not renewed": func(s *snapshot.Snapshot) {
			state(s, "NotRenewed", "The token for the hub is not renewed: denied")
		},
		"x This member may not": func(s *snapshot.Snapshot) {
			state(s, "RightsMissingOnHub", "This member may not list endpointpages on the hub")
		},
		"x this cluster differs from the manifests of this version: kind Membership is not served": func(
			s *snapshot.Snapshot) {
			s.Member.Unserved, s.Member.Membership = []string{"Membership"}, hubv1alpha1.Membership{}
		},
		"! the agent does not say how it is": func(s *snapshot.Snapshot) {
			s.Member.Membership = hubv1alpha1.Membership{}
		},
		"x reading the hub failed, so members are not shown: its admin's way to it": func(s *snapshot.Snapshot) {
			s.Hub, s.Unread[snapshot.OfHub] = nil, snapshot.Lack{Why: "its admin's way to it"}
		},
		"x The agent still uses the hub": func(s *snapshot.Snapshot) {
			state(s, "NotUsed", "The agent still uses the hub at https://hub")
		},
	} {
		s := healthy(t)
		plant(s)
		s.Member.Exports[0].Status.Conditions[1] = condition("Ready", "False", "Failed", "denied")
		s.Member.Imports[0].Status.Conditions = []metav1.Condition{
			condition("Ready", "False", "VIPRangeFull", "no address is free"),
		}
		s.Member.Records[0].Status.Conditions = []metav1.Condition{condition("Imported", "False", "NotOwned", "no")}
		got := text(views(s)["doctor"])
		for _, want := range []string{fault, "is not on the hub: Failed", "is not ready: VIPRangeFull",
			"is not imported: NotOwned"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
	}
}

// TestAHubThatDoesNotAnswerHidesNothingLocal: the agent goes on importing, from its copies.
func TestAHubThatDoesNotAnswerHidesNothingLocal(t *testing.T) {
	for want, plant := range map[string]func(m *snapshot.Member){
		"x the import of web.shop is not ready: VIPRangeFull": func(m *snapshot.Member) {
			m.Imports[0].Status.Conditions = []metav1.Condition{
				condition("Ready", "False", "VIPRangeFull", "no address is free"),
			}
		},
		"x this cluster has no namespace for web.shop": func(m *snapshot.Member) { m.Namespaces = nil },
		"! the namespace of web.shop refuses imports":  func(m *snapshot.Member) { m.Namespaces[0].Refuses = true },
	} {
		s := healthy(t)
		plant(s.Member)
		state(s, "NoAnswer", "The hub does not answer: timeout")
		got := text(views(s)["explain"])
		if !strings.Contains(got, want) || !strings.Contains(got, "x The hub does not answer") {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestChecksOfAWrongHubAreSkipped: what they would find there is not said.
func TestChecksOfAWrongHubAreSkipped(t *testing.T) {
	for cause, plant := range map[string]func(s *snapshot.Snapshot){
		"set-none": func(s *snapshot.Snapshot) { s.Hub.Sets, s.Hub.Profiles = nil, nil },
		"hub-wrong": func(s *snapshot.Snapshot) {
			s.Hub.Sets, s.Hub.Deployed, s.Hub.Role.MemberOf = nil, nil, "green"
		},
	} {
		s := healthy(t)
		plant(s)
		for _, r := range check.Run(check.See(s, nil)) {
			i := slices.IndexFunc(check.Table, func(c check.Check) bool { return c.ID == r.ID })
			if r.Scope == check.Set && slices.Contains(check.Table[i].After, cause) &&
				r.Skipped != "repair first what "+cause+" finds" {
				t.Errorf("%s: %s is not skipped: %q", cause, r.ID, r.Skipped)
			}
		}
	}
}

// TestTheAddressesOfAnotherNameAreNoConcern of explain, which reads them from an archive alone.
func TestTheAddressesOfAnotherNameAreNoConcern(t *testing.T) {
	s := healthy(t)
	s.Member.PodRanges = []netip.Prefix{netip.MustParsePrefix("10.0.119.0/24")}
	s.Member.Slices = append(s.Member.Slices, *s.Member.Slices[1].DeepCopy())
	s.Member.Slices[1].Endpoints, s.Member.Slices[2].Labels[mcsv1beta1.LabelServiceName] = nil, "api"
	found := views(s)
	if got := text(found["explain"]); strings.Contains(got, "own ranges") {
		t.Error(got)
	}
	if got := text(found["doctor"]); !strings.Contains(got, "cluster west exports endpoints in this cluster's own") {
		t.Error(got)
	}
}

// TestAWarningHidesNoError that the agent states.
func TestAWarningHidesNoError(t *testing.T) {
	for fault, plant := range map[string]func(s *snapshot.Snapshot){
		"! a DNS cache on the nodes does not forward clusterset.local: AKS LocalDNS": func(s *snapshot.Snapshot) {
			s.Member.DNS.Nodes = []corev1.Node{{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{platform.LabelLocalDNS: "enabled"}}}}
			state(s, "NotServed", "The cluster's DNS does not know clusterset.local")
		},
		"! our CoreDNS beside the cluster's DNS does not run": func(s *snapshot.Snapshot) {
			s.Member.DNS.Beside = deployment("kube-system", "clusterset-dns", 1)
			state(s, "NoDNSAnswer", "The cluster's DNS does not answer for clusterset.local: timeout")
		},
	} {
		s := healthy(t)
		plant(s)
		got := text(views(s)["doctor"])
		for _, want := range []string{fault, "x The cluster's DNS does not"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
	}
}

// TestEachFaultHasOneFinding, the same in all commands, with the step that repairs it.
func TestEachFaultHasOneFinding(t *testing.T) {
	if len(faults) < 25 {
		t.Fatal(len(faults))
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			s := healthy(t)
			f.plant(s)
			var first []report.Finding
			for command, found := range views(s) {
				if !strings.Contains(f.shown, command) {
					continue
				}
				if first == nil {
					first = found
				}
				if len(found) != 1 || !reflect.DeepEqual(found, first) {
					t.Fatalf("%s:\n%s", command, text(found))
				}
			}
			if got := text(first); !strings.HasPrefix(got, f.says) {
				t.Errorf("no %q in:\n%s", f.says, got)
			}
			if step := first[0].Remedy; step != f.step {
				t.Errorf("the step is %q, want %q", step, f.step)
			}
		})
	}
}

// TestNoFindingChangesWithTimeAlone: the page of ui would replace it every few seconds, and with it
// what the user has selected.
func TestNoFindingChangesWithTimeAlone(t *testing.T) {
	for _, f := range faults {
		s := healthy(t)
		f.plant(s)
		before := views(s)
		s.Member.Now = s.Member.Now.Add(2 * time.Second)
		if s.Hub != nil {
			s.Hub.Now = s.Hub.Now.Add(2 * time.Second)
		}
		for command, found := range views(s) {
			if !reflect.DeepEqual(found, before[command]) {
				t.Errorf("%s: %s:\n%s\nwas\n%s", f.name, command, text(found), text(before[command]))
			}
		}
	}
}

// TestManyAreOneFinding: what one check finds of many names is one line.
func TestManyAreOneFinding(t *testing.T) {
	s := healthy(t)
	for i := range 63 {
		e := *s.Member.Exports[0].DeepCopy()
		e.Name = fmt.Sprintf("s%02d", i)
		e.Status.Conditions[1] = condition("Ready", "False", "Failed", "denied")
		s.Member.Exports = append(s.Member.Exports, e)
	}
	got := views(s)["status"]
	if len(got) != 1 || len(got[0].About) != 63 || got[0].What !=
		"63 exports are not on the hub: s00.shop (Failed: denied), s01.shop, s02.shop and 60 more" {
		t.Errorf("%s", text(got))
	}
}
