package integration

import (
	"fmt"
	"strings"
)

func clusterSetIP(ns, name, ip string) string {
	return fmt.Sprintf(`apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: %s, namespace: %s}
spec: {type: ClusterSetIP, ips: [%q], ports: [{name: https, port: 443, protocol: TCP}]}
`, name, ns, ip)
}

func headless(ns, name string) string {
	return fmt.Sprintf(`apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: %s, namespace: %s}
spec: {type: Headless, ports: [{name: http, port: 80, protocol: TCP}]}
`, name, ns)
}

// slice is an imported EndpointSlice with one endpoint, h0, per address.
func slice(ns, service, cluster string, addresses ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %s-%s
  namespace: %s
  labels:
    multicluster.kubernetes.io/service-name: %s
    multicluster.kubernetes.io/source-cluster: %s
    endpointslice.kubernetes.io/managed-by: integration
addressType: IPv4
ports: [{name: http, port: 80, protocol: TCP}]
endpoints:
`, service, cluster, ns, service, cluster)
	for i, a := range addresses {
		fmt.Fprintf(&b, "- {addresses: [%q], hostname: h%d, conditions: {ready: true}}\n", a, i)
	}
	return b.String()
}

// zoned is a slice whose endpoints are in a topology zone.
func zoned(zone, slice string) string {
	return strings.ReplaceAll(slice, "conditions: {ready: true}", "zone: "+zone+", conditions: {ready: true}")
}

func service(ns, name, ip string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s}
spec: {clusterIP: %s, ports: [{port: 80}]}
`, name, ns, ip)
}

// rbac is a ServiceAccount in kube-system that may list and watch some resources and nothing else.
func rbac(name string, resources ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: %[1]s, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: [{apiGroups: ["", discovery.k8s.io, multicluster.x-k8s.io], resources: [%[2]s], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[1]s, namespace: kube-system}]
`, name, strings.Join(resources, ", "))
}
