// Package v1alpha1 holds the kinds of the group hub.clusterset-dns.io: what members publish in the clusterset's namespace on the hub,
// and the ClusterSet itself (DESIGN §2, §3). They are kinds of their own, not ServiceImport or EndpointSlice copies: a hub may be a
// member, whose kube-proxy would see native slices, and an export needs fields that no native kind has.
//
// A member keeps its copy of every ServiceExportRecord that is in effect, its own among them, in its namespace clusterset-system:
// Merge reads those, so that a hub which is unreachable, emptied or restored changes nothing (DESIGN §7; docs/decisions/0005).
//
// +kubebuilder:object:generate=true
// +groupName=hub.clusterset-dns.io
package v1alpha1
