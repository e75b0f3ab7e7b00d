// Package v1alpha1 has the kinds of the group hub.clusterset-dns.io: what members publish in the clusterset's namespace
// on the hub, and the ClusterSet itself. They are no ServiceImports or EndpointSlices, because a hub may be a member
// whose kube-proxy would see native slices, and because an export needs fields that no native kind has.
//
// A member keeps a copy of every ServiceExportRecord in effect, its own ones included, in its namespace
// clusterset-system. It merges those copies, so a hub that is unreachable, emptied or restored from a backup changes no
// answer.
//
// +kubebuilder:object:generate=true
// +groupName=hub.clusterset-dns.io
package v1alpha1
