package dns

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Place is where a zone is forwarded to our CoreDNS.
type Place string

// The places.
const (
	InCorefile Place = "Corefile"    // a server block of the cluster's own Corefile
	InCustom   Place = "custom"      // a key of the ConfigMap that the Corefile imports
	InStubs    Place = "stubDomains" // of kube-dns
	InOperator Place = "operator"    // of OpenShift
	InHelm     Place = "helm"        // the values of RKE2's chart
	ByHand     Place = "by hand"     // nothing that the API server has
)

// unknown is the name of a Distribution that Detect does not know.
const unknown = "unknown"

// Distribution is who runs the cluster's DNS.
type Distribution struct {
	Name     string `json:"name"`
	Evidence string `json:"evidence"`
	Forward  Place  `json:"forward"`
	// Replaceable says that nobody restores the Deployment's image.
	Replaceable bool `json:"replaceable"`
	// Remedy says how to forward the zone by hand, or what its owner does with changes.
	Remedy string `json:"-"`
}

// stock matches the image that kubeadm deploys. Its name is a hint only.
var stock = regexp.MustCompile(`^(registry\.k8s\.io|k8s\.gcr\.io)/(coredns/)?coredns[:@]`)

// Detect returns the distribution by what the API server shows: labels, annotations, managers of fields and nodes.
func Detect(s *State) Distribution {
	switch {
	case s.Operator != nil:
		return Distribution{Name: "OpenShift", Evidence: "DNS default of operator.openshift.io", Forward: InOperator}
	case s.owner("objectset.rio.cattle.io/owner-name") != "":
		return Distribution{
			Name:     "k3s",
			Evidence: "annotation objectset.rio.cattle.io/owner-name of Deployment coredns",
			Forward:  s.customOr(ByHand),
		}
	case s.kubelet("+rke2"):
		return Distribution{Name: "RKE2", Evidence: "kubelet versions with +rke2", Forward: InHelm}
	case s.kubelet("+k3s"):
		return Distribution{Name: "k3s", Evidence: "kubelet versions with +k3s", Forward: s.customOr(ByHand)}
	case s.owner("eks.amazonaws.com/component") != "" || s.node("eks.amazonaws.com/"):
		return eks(s)
	case s.node("kubernetes.azure.com/"):
		return Distribution{Name: "AKS", Evidence: "node labels kubernetes.azure.com/…", Forward: s.customOr(ByHand)}
	case s.node("cloud.google.com/gke-") || s.kubelet("-gke."):
		return gke(s)
	}
	return coreDNS(s)
}

func eks(s *State) Distribution {
	d := Distribution{Name: "EKS", Evidence: "labels eks.amazonaws.com/…", Forward: InCorefile}
	switch {
	case s.Deployment == nil || s.Config == nil:
		d.Evidence, d.Forward = "nodes with labels eks.amazonaws.com/…, and no Deployment coredns", ByHand
		d.Remedy = "EKS Auto Mode runs DNS on the nodes, and it cannot forward a zone: set dnsPolicy None and " +
			"dnsConfig in the Pods that need the zone, with our CoreDNS as the nameserver"
	case manages(s.Config.ManagedFields, "eks"):
		d.Evidence, d.Forward = "manager eks of ConfigMap coredns: an EKS add-on", ByHand
		d.Remedy = "aws eks update-addon --addon-name coredns --cluster-name CLUSTER --configuration-values VALUES, " +
			"where VALUES has the key corefile: the present Corefile, and after it the block below"
	}
	return d
}

func gke(s *State) Distribution {
	if s.Config != nil { // somebody's own CoreDNS
		return coreDNS(s)
	}
	d := Distribution{Name: "GKE", Evidence: "Deployment kube-dns on nodes of GKE", Forward: InStubs}
	d.Remedy = "if the Pods' /etc/resolv.conf names 169.254.169.254, the cluster uses Cloud DNS, and kube-dns " +
		"answers nobody: give our CoreDNS an internal load balancer, and create a private forwarding zone for " +
		"clusterset.local"
	if s.Deployment == nil || s.Deployment.Spec.Replicas != nil && *s.Deployment.Spec.Replicas == 0 {
		d.Evidence, d.Forward = "nodes of GKE without kube-dns: Cloud DNS", ByHand
		d.Remedy = "Cloud DNS does not reach a clusterIP: give our CoreDNS an internal load balancer, and create a " +
			"private forwarding zone for clusterset.local with its address"
	}
	return d
}

// coreDNS is for a Deployment that no distribution is known to own.
func coreDNS(s *State) Distribution {
	d := Distribution{
		Name:     "CoreDNS",
		Evidence: "a Deployment with the label k8s-app=kube-dns",
		Forward:  s.customOr(InCorefile),
	}
	c := s.container()
	switch {
	case c == nil || s.Config == nil:
		return Distribution{
			Name: unknown,
			Evidence: "no Deployment in kube-system with the label k8s-app=kube-dns and a " +
				"Corefile",
			Forward: ByHand,
			Remedy:  "forward the zone clusterset.local in the cluster's DNS",
		}
	case s.owner("app.kubernetes.io/managed-by") != "":
		d.Evidence += ", managed by " + s.owner("app.kubernetes.io/managed-by")
		d.Remedy = "its next upgrade may remove the block: run this command again after it"
	case s.owner("addonmanager.kubernetes.io/mode") != "" || s.owner("addon.kops.k8s.io/name") != "" ||
		s.kubelet("+k0s"):
		d.Evidence += ", managed as an add-on"
		d.Remedy = "its next upgrade may remove the block: run this command again after it"
	case s.gitOps() != "":
		d.Evidence += ", with " + s.gitOps()
		d.Remedy = "its owner may restore what it has: put the change into its source, too"
	case d.Forward == InCorefile && (stock.MatchString(c.Image) || s.original() != ""):
		d.Name, d.Replaceable = "kubeadm", true
		d.Evidence = "Deployment coredns with the image of kubeadm, and no sign of another owner"
	}
	return d
}

// gitOps returns the mark of a program that restores the Deployment from a source of its own, or "".
func (s *State) gitOps() string {
	for _, mark := range []string{
		"argocd.argoproj.io/instance", "argocd.argoproj.io/tracking-id", "app.kubernetes.io/instance",
		"kustomize.toolkit.fluxcd.io/name", "helm.toolkit.fluxcd.io/name", "kapp.k14s.io/app",
	} {
		if s.owner(mark) != "" {
			return mark
		}
	}
	return ""
}

// owner returns a label or annotation of the Deployment.
func (s *State) owner(key string) string {
	if s.Deployment == nil {
		return ""
	}
	if v := s.Deployment.Labels[key]; v != "" {
		return v
	}
	return s.Deployment.Annotations[key]
}

// original returns the image that ours replaced, or "".
func (s *State) original() string { return s.owner(AnnotationImage) }

func (s *State) customOr(other Place) Place {
	if s.Custom != nil {
		return InCustom
	}
	return other
}

func (s *State) node(label string) bool {
	return slices.ContainsFunc(s.Nodes, func(n corev1.Node) bool {
		for key := range n.Labels {
			if strings.HasPrefix(key, label) {
				return true
			}
		}
		return false
	})
}

func (s *State) kubelet(part string) bool {
	return slices.ContainsFunc(s.Nodes, func(n corev1.Node) bool {
		return strings.Contains(n.Status.NodeInfo.KubeletVersion, part)
	})
}

func manages(fields []metav1.ManagedFieldsEntry, manager string) bool {
	return slices.ContainsFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == manager })
}
