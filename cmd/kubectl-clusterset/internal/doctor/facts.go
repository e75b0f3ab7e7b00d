package doctor

import (
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// Topic is a part of the facts that may be unreadable as a whole. Checks that need it are then skipped.
type Topic string

// The topics.
const (
	CRDs       Topic = "CustomResourceDefinitions"
	Policies   Topic = "ValidatingAdmissionPolicies"
	Membership Topic = "this cluster's membership"
	Agent      Topic = "the agent"
	AgentKnows Topic = "the agent's Membership"
	AgentAuth  Topic = "the agent's rights"
	Secret     Topic = "the credentials for the hub"
	Hub        Topic = "the hub"
	HubAdmin   Topic = "the hub, as its admin"
	HubLeader  Topic = "the leader of clusterset-controller hub"
	DNS        Topic = "CoreDNS"
	DNSAuth    Topic = "CoreDNS's rights"
	DNSAnswers Topic = "the answers of the DNS Pods"
	NodeLocal  Topic = "NodeLocal DNS"
	Beside     Topic = "our CoreDNS beside the cluster's DNS"
	Ranges     Topic = "this cluster's address ranges"
	Imports    Topic = "ServiceImports and their EndpointSlices"
	Exports    Topic = "ServiceExports"
)

// NotAsked is in Facts.Unread for what only an admin of the hub may read, if no flag names the hub.
const NotAsked = "to check this as well, name the hub, as its admin, with --hub-kubeconfig or --hub-context"

// notMember is why checks of a member are skipped in a hub that is none.
const notMember = "this cluster is the hub and no member, which is fine; to make it one as well: "

// ofHub reports whether a topic is about the hub alone; ofMember, whether it is not.
func ofHub(t Topic) bool    { return t == Hub || t == HubAdmin || t == HubLeader }
func ofMember(t Topic) bool { return !ofHub(t) }

// Facts are what all checks use.
type Facts struct {
	facts.Membership
	Unread    map[Topic]string // why a topic was not read
	Forbidden map[Topic]string // the right that the user lacks to read a topic, as in "nodes (list)", or ""

	Version string // of Kubernetes here
	Kinds   Kinds
	Now     time.Time // by the clock of the member's API server

	Deployment  *appsv1.Deployment     // the agent's, or nil
	Pods        []corev1.Pod           // the agent's
	Known       []report.Finding       // what the agent knows that this cluster lacks
	Outdated    string                 // why the agent's Membership does not show what is now, or ""
	AgentLacks  []string               // the rights that it needs to state what it lacks
	AgentServer string                 // the URL of the hub that the agent uses
	Leases      []coordinationv1.Lease // of clusterset-system
	Credentials *Credentials           // nil without the Secret

	HubFacts HubFacts
	DNSFacts DNSFacts

	PodRanges, ServiceRanges []netip.Prefix
	Exported                 []mcsv1beta1.ServiceExport
	Imported                 []mcsv1beta1.ServiceImport
	Records                  []hubv1alpha1.ServiceExportRecord // this cluster's copies
	Slices                   []discoveryv1.EndpointSlice       // imported
	ExternalSlices           []discoveryv1.EndpointSlice       // for clients outside the clusters
}

// Kinds compares what the manifests bring with what is there.
type Kinds struct {
	Want, Have         map[string][]string // by CRD: versions that must be served, and that are
	Policies, Enforced []string            // ValidatingAdmissionPolicies that must deny, and that do
}

// Credentials are those of Secret clusterset-system/hub-kubeconfig.
type Credentials struct {
	Problem   string // why they cannot be used
	Namespace string
}

// HubFacts were read with the agent's credentials, or with the admin's.
type HubFacts struct {
	facts.Hub
	Here []string // ClusterSets whose hub this cluster is; unknown for a member
	// With the admin's credentials only.
	SetNamespace *corev1.Namespace
	Kinds        Kinds
	Controller   *appsv1.Deployment // nil if there is none
	Pods         []corev1.Pod       // of the controller
}

// DNSFacts are of kube-system, and of clusterset-dns for Beside.
type DNSFacts struct {
	Deployment *appsv1.Deployment // CoreDNS's, or nil
	Pods       []corev1.Pod       // CoreDNS's
	Corefile   string
	Config     string             // the ConfigMap of the Corefile, or two, in kube-system
	Lacks      []string           // the rights of deploy/coredns that CoreDNS lacks
	NodeCache  *platform.Platform // what answers Pods on the nodes and lacks the zone, or nil
	AskedPods  int                // ready Pods of the cluster's DNS that were asked for the zone
	Unanswered []Unanswered
	Beside     *appsv1.Deployment // ours beside the cluster's DNS, or nil
	BesidePods []corev1.Pod
}

// Unanswered is a ready Pod of the cluster's DNS that does not answer the zone, and where to look.
type Unanswered struct{ Pod, Why, Remedy string }
