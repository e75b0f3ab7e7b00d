// Package api is a Kubernetes API server in memory, with the semantics that controllers meet: resourceVersions and
// conflicts, generations, UIDs, creation and deletion timestamps, finalizers, the status subresource, defaults and
// validation of the kinds that the agent touches, admission, cluster IPs, owner references and namespaces that go.
//
// Nothing runs by itself. Caches advance when they are told to, one event at a time; the garbage collector and the
// namespace controller do one deletion per call; time is a function that the caller gives. So whoever calls decides on
// every interleaving.
//
// What no reconciler asks for is refused, not imitated: patches, server-side apply, deletion of collections.
package api
