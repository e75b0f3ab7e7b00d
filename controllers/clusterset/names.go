package clusterset

import (
	"slices"

	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// The ClusterProperties that are the clusterset's (ID2).
const (
	PropertyID  = "cluster.clusterset.k8s.io" // the cluster's id
	PropertySet = "clusterset.k8s.io"         // the clusterset that it is a member of
)

// AnnotationLeaving on the ClusterProperty clusterset.k8s.io, with any value, says that this cluster is to leave: its agent does so, and
// only then may the property be deleted by others than the agent.
const AnnotationLeaving = "clusterset-dns.io/leaving"

// The values of AnnotationLeaving that mean more.
const (
	LeavingForced    = "force"     // the hub is gone for good and is not asked
	LeavingWithdrawn = "withdrawn" // the agent's: this cluster's records on the hub are withdrawn
)

// The annotations of a ClusterProfile.
const (
	// AnnotationJoiningUID is the kube-system UID of the cluster for which join made it: the same join may be tried again.
	AnnotationJoiningUID = "clusterset-dns.io/joining-uid"
	// AnnotationClusterUID is the kube-system UID of the cluster that was first to use the claim; no other may.
	AnnotationClusterUID = "clusterset-dns.io/cluster-uid"
	// AnnotationLeft is the member's own word that it has left.
	AnnotationLeft = "clusterset-dns.io/left"
)

// AnnotationVIPMode on the ClusterProperty clusterset.k8s.io is the mode of VIPs that the hub asked for last: a start without the hub goes by it.
const AnnotationVIPMode = "clusterset-dns.io/vip-mode"

// FinalizerVIPs keeps a ServiceCIDR while VIPs are in it that no other covers (V3).
const FinalizerVIPs = "clusterset-dns.io/vips-in-use"

// ClusterManager is who manages every ClusterProfile of ours: its spec.clusterManager.name (P2).
const ClusterManager = "clusterset-dns"

// FinalizerRecords keeps a ClusterProfile until the member's credentials, records and Lease are gone from the hub.
const FinalizerRecords = "hub.clusterset-dns.io/records"

// The labels of a clusterset's namespace on the hub; both bear its name (P1).
const (
	LabelSet    = "multicluster.x-k8s.io/clusterset"
	LabelSetOld = "clusterset.multicluster.x-k8s.io"
)

// LeaseHubPrefix and the clusterset's namespace name the Lease in the hub's clusterset-system by which the replicas of
// clusterset-controller hub elect their leader.
const LeaseHubPrefix = "clusterset-hub-"

// LeaseRefused in a member's namespace clusterset-system is there as long as the hub refuses the member; AnnotationRefused on it says so.
const (
	LeaseRefused      = "hub-refuses"
	AnnotationRefused = "clusterset-dns.io/refused"
)

// LeaseRenewed in a member's namespace clusterset-system bears in AnnotationRenewed which version of the member's Lease on the hub its agent
// made last, once it is proven that no elder one renews it.
const (
	LeaseRenewed      = "hub-renewed"
	AnnotationRenewed = "clusterset-dns.io/renewed"
)

// SecretHub in a member's namespace clusterset-system holds the credentials for the hub: a kubeconfig, and the token that it names.
const SecretHub = "hub-kubeconfig"

// AccountPrefix and a cluster id are the name of the member's ServiceAccount on the hub.
const AccountPrefix = "mcs-"

// Departed tells whether a clusterset has let a member go, which may have joined again since.
func Departed(set *hubv1alpha1.ClusterSet, id string) bool {
	return slices.ContainsFunc(set.Status.Departed, func(d hubv1alpha1.Departure) bool { return d.ClusterID == id })
}
