package clusterset

import inventoryv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/inventory/v1alpha1"

// The ClusterProperties of a member (K2149).
const (
	PropertyID  = "cluster.clusterset.k8s.io" // the cluster ID
	PropertySet = "clusterset.k8s.io"         // the clusterset that the cluster is a member of
)

// LabelManagedBy names the program that created an object.
const LabelManagedBy = "app.kubernetes.io/managed-by"

// AnnotationLeaving on the ClusterProperty clusterset.k8s.io, with any value but "", makes the agent leave the
// clusterset. Without it, only the agent may delete the property.
const AnnotationLeaving = "clusterset-dns.io/leaving"

// Values of AnnotationLeaving with a special meaning.
const (
	LeavingForced    = "force"     // leave without the hub, which no longer exists
	LeavingWithdrawn = "withdrawn" // set by the agent: this cluster's records on the hub are withdrawn
)

// The annotations of a ClusterProfile.
const (
	// AnnotationJoiningUID is the kube-system UID of the cluster for which join created it, so that join can be
	// repeated.
	AnnotationJoiningUID = "clusterset-dns.io/joining-uid"
	// AnnotationClusterUID is the kube-system UID of the cluster that has claimed the ID; no other cluster may use
	// it.
	AnnotationClusterUID = "clusterset-dns.io/cluster-uid"
	// AnnotationLeft is set by a member that has left.
	AnnotationLeft = "clusterset-dns.io/left"
)

// AnnotationVIPMode on the ClusterProperty clusterset.k8s.io is the last known VIP mode of the ClusterSet. An agent
// that starts without the hub uses it.
const AnnotationVIPMode = "clusterset-dns.io/vip-mode"

// FinalizerVIPs keeps a ServiceCIDR while it contains VIPs that no other one contains.
const FinalizerVIPs = "clusterset-dns.io/vips-in-use"

// ClusterManager is the spec.clusterManager.name of our ClusterProfiles (K4322).
const ClusterManager = "clusterset-dns"

// IsOurs reports whether a ClusterProfile belongs to this cluster manager. ClusterProfiles of other managers are not
// members.
func IsOurs(p *inventoryv1alpha1.ClusterProfile) bool {
	return p.Spec.ClusterManager.Name == ClusterManager
}

// FinalizerRecords keeps a ClusterProfile until the hub has deleted the member's credentials, records and Lease.
const FinalizerRecords = "hub.clusterset-dns.io/records"

// LabelSet is a label of a clusterset's namespace on the hub. Its value is the clusterset's name (K4322).
const LabelSet = "multicluster.x-k8s.io/clusterset"

// LeaseHubPrefix, followed by the clusterset's namespace, is the name of the Lease for the leader election of
// clusterset-controller hub. It is in the hub's namespace clusterset-system.
const LeaseHubPrefix = "clusterset-hub-"

// LeaseRefused exists in a member's namespace clusterset-system while the hub refuses the member's credentials.
// AnnotationRefused has the message.
const (
	LeaseRefused      = "hub-refuses"
	AnnotationRefused = "clusterset-dns.io/refused"
)

// LeaseRenewed is in a member's namespace clusterset-system. Its AnnotationRenewed is the version of the member's Lease
// on the hub after the agent's last renewal. What was written before AnnotationLost, the hub may have lost.
// AnnotationAskedBy, in the Lease on the hub, names the process that asks whether the holder reaches its API server.
// The holder's renewals keep it.
const (
	LeaseRenewed      = "hub-renewed"
	AnnotationRenewed = "clusterset-dns.io/renewed"
	AnnotationLost    = "clusterset-dns.io/lost-before" // RFC 3339
	AnnotationAskedBy = "clusterset-dns.io/asked-by"
)

// SecretHub in a member's namespace clusterset-system has the credentials for the hub: a kubeconfig and its token.
const SecretHub = "hub-kubeconfig"

// SecretToken is the key of the token, and the file that the kubeconfig names.
const SecretToken = "token"

// AccountPrefix, followed by the cluster ID, is the name of the member's ServiceAccount on the hub.
const AccountPrefix = "mcs-"
