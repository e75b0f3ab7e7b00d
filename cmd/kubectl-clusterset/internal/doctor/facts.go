package doctor

import (
	"net/netip"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
	inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"
)

// Topic is a part of the facts that may be unreadable as a whole; a check that needs it is not made then, and that is said.
type Topic string

// The topics.
const (
	CRDs       Topic = "CustomResourceDefinitions"
	Policies   Topic = "ValidatingAdmissionPolicies"
	Membership Topic = "this cluster's membership"
	Agent      Topic = "the agent"
	AgentWord  Topic = "the agent's Events"
	AgentAuth  Topic = "the agent's rights"
	Secret     Topic = "the credentials for the hub"
	HubAuth    Topic = "this member's rights on the hub"
	Hub        Topic = "the hub"
	HubAdmin   Topic = "the hub, as its admin"
	HubLeader  Topic = "the leader of clusterset-controller hub"
	DNS        Topic = "CoreDNS"
	DNSAuth    Topic = "CoreDNS's rights"
	NodeLocal  Topic = "NodeLocal DNS"
	Ranges     Topic = "this cluster's address ranges"
	Imports    Topic = "what is imported here"
)

// Facts are what was read: everything that a check goes by.
type Facts struct {
	// Unread says of each topic that was not read why.
	Unread map[Topic]string

	Version string // of Kubernetes here
	Kinds   Kinds
	ID, Set string // by the ClusterProperties; "" where there is none
	Leaving bool
	UID     string // of kube-system
	Now     time.Time

	Deployment  *appsv1.Deployment     // the agent's; nil where there is none
	Pods        []corev1.Pod           // the agent's
	Says        string                 // the agent's last word on why it is not a member
	Leases      []coordinationv1.Lease // of clusterset-system: what the agent keeps
	AgentLacks  []string               // rights that deploy/member grants and the agent does not have
	Credentials *Credentials           // nil where there is no Secret

	HubFacts HubFacts
	DNSFacts DNSFacts

	PodRanges, ServiceRanges []netip.Prefix
	Imported                 []mcsv1beta1.ServiceImport
	Slices                   []discoveryv1.EndpointSlice // imported
}

// Kinds compares what deploy/ brings with what is there.
type Kinds struct {
	Want, Have         map[string][]string // CRD → versions to be served, and served
	Policies, Enforced []string            // ValidatingAdmissionPolicies that ought to deny, and those that do
}

// Credentials are in Secret clusterset-system/hub-kubeconfig.
type Credentials struct {
	Problem   string // why they cannot be read
	Server    string
	Insecure  bool // the hub's certificate is not verified
	Namespace string
	Account   string // the token's
	Expires   time.Time
}

// HubFacts are read with the agent's credentials, or with the admin's.
type HubFacts struct {
	Refused     string   // what the hub said to the agent's credentials, "" if it took them
	Unreachable bool     // it said nothing: no connection came about, from where doctor runs
	MemberLacks []string // rights that deploy/hub grants and the agent's credentials do not have
	Asked       string   // the namespace that was asked for, "" where none was
	Version     string
	Now         time.Time // by its clock
	Namespace   *corev1.Namespace
	Sets        []hubv1alpha1.ClusterSet
	Profiles    []inventoryv1alpha1.ClusterProfile // of ours, no other cluster manager's
	Leases      []coordinationv1.Lease
	Leader      *coordinationv1.Lease // that the hub's controller elects its leader by; empty where there is none
	// With the admin's credentials only.
	Kinds      Kinds
	Controller *appsv1.Deployment // nil where there is none
}

// DNSFacts are of kube-system.
type DNSFacts struct {
	Deployment *appsv1.Deployment // CoreDNS's; nil where there is none
	Pods       []corev1.Pod       // its
	Corefile   string
	Lacks      []string // rights that deploy/coredns grants and CoreDNS does not have
	NodeLocal  string   // the Corefile of NodeLocal DNS, "" where there is none
}
