// Package platform says who runs a cluster's DNS, and what gives clusterset.local to our CoreDNS there. It is two
// tables, and looks at nothing but the objects that it is given.
package platform

import (
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Place is where the zone is given to our CoreDNS.
type Place string

// The places. What an operator owns is none: its owner changes it.
const (
	InCorefile Place = "Corefile" // a server block of the cluster's own Corefile
	InCustom   Place = "custom"   // a key of the ConfigMap that the Corefile imports
	ByHand     Place = "by hand"
)

// Names of Platforms, and what marks them.
const (
	Unknown         = "unknown"
	LocalDNS        = "AKS LocalDNS"                        // whose configuration is not in the API server
	LabelLocalDNS   = "kubernetes.azure.com/localdns-state" // "enabled" on nodes with LocalDNS
	AnnotationImage = "clusterset-dns.io/original-image"    // of the cluster's CoreDNS that ours replaced
)

// Platform is a row of the table. In its Step and Remedy, CLUSTERIP is the address of our CoreDNS, BLOCK a server block
// that forwards the zone to it, and STUBS a command that adds that to the stub domains.
type Platform struct {
	Name        string
	Evidence    string
	Forward     Place
	Replaceable bool   // nobody restores the Deployment's image
	Step        string // gives the zone to our CoreDNS by hand
	// Warning says who restores the Corefile, and what to do then. Remedy makes a forward to our CoreDNS last.
	Warning, Remedy string

	is func(*Objects) bool
}

// Objects show who runs a cluster's DNS. Those that do not exist are nil.
type Objects struct {
	Nodes      []corev1.Node              // some of them
	Deployment *appsv1.Deployment         // the cluster's DNS, unless an operator runs it as a DaemonSet
	Config     *corev1.ConfigMap          // with the Corefile that Deployment mounts
	Custom     *corev1.ConfigMap          // whose keys the Corefile imports; without a resourceVersion until it exists
	Operator   *unstructured.Unstructured // OpenShift's DNS
	NodeLocal  *appsv1.DaemonSet          // NodeLocal DNSCache
}

// Stubs is the Step that adds the zone to the stubDomains of ConfigMap kube-dns.
const Stubs = "STUBS"

const custom = "import custom/*.server in the Corefile, and put this into key clusterset.server of ConfigMap " +
	"coredns-custom\n\nBLOCK"

// owners are asked in this order: who owns the cluster's DNS.
var owners = []Platform{
	{
		Name: "OpenShift", Evidence: "DNS default of operator.openshift.io", Forward: ByHand,
		is: func(o *Objects) bool { return o.Operator != nil },
		Step: `kubectl edit dns.operator default, and add this server to the list:

spec:
  servers:
  - name: clusterset
    zones: [clusterset.local]
    forwardPlugin: {upstreams: [CLUSTERIP]}
`,
	},
	{
		Name: "k3s", Evidence: "annotation objectset.rio.cattle.io/owner-name, or kubelet versions with +k3s",
		Forward: InCustom, Step: custom,
		is: func(o *Objects) bool {
			return o.Mark("objectset.rio.cattle.io/owner-name") != "" || o.runs("+k3s")
		},
	},
	{
		Name: "RKE2", Evidence: "kubelet versions with +rke2", Forward: ByHand,
		is: func(o *Objects) bool { return o.runs("+rke2") },
		Step: `the chart replaces its list servers as a whole. Put the one that
helm -n kube-system get values rke2-coredns --all prints, and this server at its end, into
spec.valuesContent of HelmChartConfig kube-system/rke2-coredns:

servers:
- zones: [{zone: clusterset.local., use_tcp: true}]
  port: 53
  plugins:
  - {name: errors}
  - {name: cache, configBlock: "success 9984 5\ndenial 9984 1"}
  - {name: forward, parameters: . CLUSTERIP}
`,
	},
	{
		Name: "EKS Auto Mode", Evidence: "nodes with labels eks.amazonaws.com/…, and no Deployment coredns",
		Forward: ByHand,
		is:      func(o *Objects) bool { return o.eks() && (o.Deployment == nil || o.Config == nil) },
		Step: "DNS runs on the nodes, and has no configuration. Either give our CoreDNS an internal Network Load " +
			"Balancer, and the VPC a Route 53 Resolver rule that forwards clusterset.local to it (nobody has run " +
			"this yet); or set dnsPolicy None and dnsConfig in the Pods that need the zone, with our CoreDNS as " +
			"the nameserver",
	},
	{
		Name: "EKS add-on", Evidence: "manager eks of ConfigMap coredns", Forward: ByHand,
		is: func(o *Objects) bool { return o.eks() && manages(o.Config.ManagedFields, "eks") },
		Step: "aws eks update-addon --addon-name coredns --cluster-name CLUSTER --configuration-values VALUES, " +
			"where VALUES has the key corefile: the present Corefile, and after it the block below\n\nBLOCK",
	},
	{
		Name: "AKS", Evidence: "node labels kubernetes.azure.com/…", Forward: InCustom, Step: custom,
		is: func(o *Objects) bool { return o.node("kubernetes.azure.com/", "") },
	},
	{
		Name: "GKE with Cloud DNS", Evidence: "nodes of GKE without kube-dns", Forward: ByHand,
		is: func(o *Objects) bool {
			return o.gke() && (o.Deployment == nil || o.Deployment.Spec.Replicas != nil &&
				*o.Deployment.Spec.Replicas == 0)
		},
		Step: "Cloud DNS does not reach a clusterIP: give our CoreDNS an internal load balancer, and create a " +
			"private forwarding zone for clusterset.local with its address. Nobody has run this yet",
	},
	{Name: "GKE", Evidence: "Deployment kube-dns on nodes of GKE", Forward: ByHand, is: (*Objects).gke, Step: Stubs},
	{
		Name: "Kubespray", Evidence: "DaemonSet nodelocaldns", Forward: InCorefile,
		is:      func(o *Objects) bool { return o.coreDNS() && o.kubespray() },
		Warning: "the next run of the playbook restores the Corefile: run this command again after it",
		Remedy: "set the variable coredns_external_zones: [{zones: [clusterset.local], nameservers: [CLUSTERIP], " +
			"cache: 5}]",
	},
	{
		Name: "kops", Evidence: "label addon.kops.k8s.io/name of Deployment coredns", Forward: InCorefile,
		is:      func(o *Objects) bool { return o.coreDNS() && o.Mark("addon.kops.k8s.io/name") != "" },
		Warning: "the next kops update restores the Corefile: run this command again after it",
		Remedy: "put the Corefile that ConfigMap kube-system/coredns then has into " +
			"spec.kubeDNS.externalCoreFile of the Cluster",
	},
	{
		Name: "CoreDNS of an add-on", Forward: InCorefile,
		Evidence: "a Deployment k8s-app=kube-dns with the mark of Helm or of an add-on manager",
		is: func(o *Objects) bool {
			return o.coreDNS() && o.Mark("app.kubernetes.io/managed-by", "addonmanager.kubernetes.io/mode") != ""
		},
		Warning: "its next upgrade may remove the block: run this command again after it",
	},
	{
		Name: "CoreDNS of GitOps", Forward: InCorefile,
		Evidence: "a Deployment k8s-app=kube-dns with the mark of Argo CD, Flux or kapp",
		is:       func(o *Objects) bool { return o.coreDNS() && o.Mark(GitOps...) != "" },
		Warning:  "its owner may restore what it has: put the change into its source, too",
	},
	{
		Name: "EKS", Evidence: "labels eks.amazonaws.com/…, and a CoreDNS that is no add-on", Forward: InCorefile,
		is: (*Objects).eks,
	},
	{
		Name: "Talos", Evidence: "nodes with the OS image Talos", Forward: InCorefile,
		is:      func(o *Objects) bool { return o.coreDNS() && o.runs("Talos") },
		Warning: "talosctl upgrade-k8s restores Talos's Corefile: run this command again after it",
	},
	{
		Name: "k0s", Evidence: "kubelet versions with +k0s", Forward: InCorefile,
		is:      func(o *Objects) bool { return o.coreDNS() && o.runs("+k0s") },
		Warning: "k0s restores its Corefile when its controller restarts: run this command again after it",
	},
	{
		Name: "kubeadm", Evidence: "Deployment coredns with the image of kubeadm, and no sign of another owner",
		Forward: InCorefile, Replaceable: true,
		is: func(o *Objects) bool {
			return o.coreDNS() && o.Custom == nil && (o.Mark(AnnotationImage) != "" ||
				Stock.MatchString(o.Deployment.Spec.Template.Spec.Containers[0].Image))
		},
	},
	{
		Name: "CoreDNS", Evidence: "a Deployment with the label k8s-app=kube-dns", Forward: InCorefile,
		is: (*Objects).coreDNS,
	},
	{
		Name: Unknown, Evidence: "no Deployment in kube-system with the label k8s-app=kube-dns and a Corefile",
		Forward: ByHand, Step: "forward the zone clusterset.local in the cluster's DNS\n\nBLOCK",
		is: func(*Objects) bool { return true },
	},
}

// caches answer Pods in front of the cluster's DNS, and send other zones elsewhere, or keep answers too long. The first
// that matches counts.
var caches = []Platform{
	{
		Name: LocalDNS, Evidence: "node label kubernetes.azure.com/localdns-state=enabled", Forward: ByHand,
		is:   func(o *Objects) bool { return o.node(LabelLocalDNS, "enabled") },
		Step: "give every node pool's localdnsconfig a block for clusterset.local",
	},
	{
		Name: "NodeLocal DNS of RKE2", Evidence: "a DaemonSet of node-cache on RKE2", Forward: ByHand,
		is: func(o *Objects) bool { return o.NodeLocal != nil && o.runs("+rke2") },
		Step: "add nodelocal: {extraClusterDomains: [clusterset.local]} to spec.valuesContent of HelmChartConfig " +
			"kube-system/rke2-coredns",
	},
	{
		Name: "NodeLocal DNS of Kubespray", Evidence: "DaemonSet nodelocaldns", Forward: ByHand,
		is: (*Objects).kubespray,
		Step: "set the variable nodelocaldns_external_zones: [{zones: [clusterset.local], nameservers: [CLUSTERIP], " +
			"cache: 5}], and run the playbook",
	},
	{
		Name: "NodeLocal DNS", Evidence: "a DaemonSet of node-cache that reads ConfigMap kube-dns", Forward: ByHand,
		is:   func(o *Objects) bool { return o.NodeLocal != nil && o.readsStubs() },
		Step: Stubs,
	},
	{
		Name: "NodeLocal DNS of its own", Evidence: "a DaemonSet of node-cache", Forward: ByHand,
		is:   func(o *Objects) bool { return o.NodeLocal != nil },
		Step: "add a server block clusterset.local:53 like that for cluster.local to its Corefile",
	},
}

// Of returns who runs the cluster's DNS. It never fails: the last row is Unknown.
func Of(o *Objects) Platform {
	p := owners[slices.IndexFunc(owners, func(p Platform) bool { return p.is(o) })]
	switch {
	case p.Forward == InCorefile && o.Custom != nil:
		p.Forward = InCustom
	case p.Forward == InCustom && o.Custom == nil:
		p.Forward = ByHand
	}
	return p
}

// CacheOf returns what answers Pods in front of the cluster's DNS, or nil.
func CacheOf(o *Objects) *Platform {
	if i := slices.IndexFunc(caches, func(p Platform) bool { return p.is(o) }); i >= 0 {
		p := caches[i]
		return &p
	}
	return nil
}

func Names() (out []string) {
	for _, p := range slices.Concat(owners, caches) {
		out = append(out, p.Name)
	}
	return out
}

// Stock matches the image that kubeadm deploys. Its name is a hint only.
var Stock = regexp.MustCompile(`^(registry\.k8s\.io|k8s\.gcr\.io)/(coredns/)?coredns[:@]`)

// NodeCache reports whether a DaemonSet is NodeLocal DNSCache.
func NodeCache(d *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers,
		func(c corev1.Container) bool { return strings.Contains(c.Image, "dns-node-cache") })
}

// readsStubs reports whether NodeLocal DNSCache mounts ConfigMap kube-dns: it follows its stubDomains then.
func (o *Objects) readsStubs() bool {
	return slices.ContainsFunc(o.NodeLocal.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == "kube-dns"
	})
}

func (o *Objects) kubespray() bool { return o.NodeLocal != nil && o.NodeLocal.Name == "nodelocaldns" }

// coreDNS reports whether there is a Deployment of CoreDNS with a Corefile.
func (o *Objects) coreDNS() bool {
	return o.Config != nil && o.Deployment != nil && len(o.Deployment.Spec.Template.Spec.Containers) > 0
}

func (o *Objects) eks() bool {
	return o.Mark("eks.amazonaws.com/component") != "" || o.node("eks.amazonaws.com/", "")
}

// gke reports whether the nodes are GKE's, and DNS is not somebody's own CoreDNS.
func (o *Objects) gke() bool {
	return o.Config == nil && (o.node("cloud.google.com/gke-", "") || o.runs("-gke."))
}

// Mark returns the first of some labels or annotations that the Deployment has, or "".
func (o *Objects) Mark(keys ...string) string {
	if o.Deployment != nil {
		for _, key := range keys {
			if o.Deployment.Labels[key] != "" {
				return o.Deployment.Labels[key]
			}
			if o.Deployment.Annotations[key] != "" {
				return o.Deployment.Annotations[key]
			}
		}
	}
	return ""
}

// GitOps are labels or annotations that name the source of what Argo CD, Flux or kapp applied.
var GitOps = []string{"argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id", "app.kubernetes.io/instance",
	"kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name", "kapp.k14s.io/app"}

// node reports whether a node has a label with a prefix, and a value if that is not "".
func (o *Objects) node(prefix, value string) bool {
	return slices.ContainsFunc(o.Nodes, func(n corev1.Node) bool {
		for key, is := range n.Labels {
			if strings.HasPrefix(key, prefix) && (value == "" || is == value) {
				return true
			}
		}
		return false
	})
}

// runs reports whether a node says that it is of a distribution, by its kubelet or its operating system.
func (o *Objects) runs(part string) bool {
	return slices.ContainsFunc(o.Nodes, func(n corev1.Node) bool {
		return strings.Contains(n.Status.NodeInfo.KubeletVersion+" "+n.Status.NodeInfo.OSImage, part)
	})
}

func manages(fields []metav1.ManagedFieldsEntry, manager string) bool {
	return slices.ContainsFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == manager })
}
