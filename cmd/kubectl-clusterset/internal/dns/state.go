// Package dns brings our CoreDNS into a cluster, in place of the cluster's own or beside it, and takes it out again.
// What it changes (Install, Uninstall) are functions of a State. It asks before it writes,
// and restores what was if the new configuration does not answer.
package dns

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

const (
	kubeSystem = "kube-system"
	// besideNamespace and besideName are those of deploy/coredns/beside.
	besideNamespace = "clusterset-dns"
	besideName      = "coredns"
)

// State is what a cluster has for DNS. Objects that do not exist are nil.
type State struct {
	platform.Objects
	ConfigKey    string                       // of the Corefile in Config
	KubeDNS      *corev1.ConfigMap            // which kube-dns and NodeLocal DNSCache read, and CoreDNS does not
	NodeFile     string                       // the Corefile of NodeLocal DNSCache
	Upstream     *corev1.Service              // where NodeLocal DNSCache reaches the cluster's DNS
	Beside       *appsv1.Deployment           // ours
	Service      *corev1.Service              // ours
	BesideConfig *corev1.ConfigMap            // that of Beside
	Applied      []*unstructured.Unstructured // what this program applied, for either mode; only Uninstall reads it
	flags        report.Flags                 // for remedies
}

// Read reads the State of a cluster.
func Read(ctx context.Context, c *cluster.Cluster) (*State, error) {
	s, err := ReadCorefile(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, some := range [][]client.ListOption{{client.Limit(20)}, // any of many, and one of a pool with this cache
		{client.Limit(1), client.MatchingLabels{platform.LabelLocalDNS: "enabled"}}} {
		var nodes corev1.NodeList
		if err := c.List(ctx, &nodes, some...); err != nil {
			return nil, c.Failed(err, "listing Nodes")
		}
		s.Nodes = append(s.Nodes, nodes.Items...)
	}
	var errs [7]error
	s.KubeDNS, errs[0] = read[*corev1.ConfigMap](ctx, c, kubeSystem, "kube-dns")
	s.Beside, errs[1] = read[*appsv1.Deployment](ctx, c, besideNamespace, besideName)
	s.Service, errs[2] = read[*corev1.Service](ctx, c, besideNamespace, besideName)
	s.Operator, errs[3] = readKind(ctx, c, "operator.openshift.io/v1", "DNS", "", "default")
	s.Upstream, errs[4] = read[*corev1.Service](ctx, c, kubeSystem, "kube-dns-upstream")
	s.BesideConfig, errs[5] = read[*corev1.ConfigMap](ctx, c, besideNamespace, besideName)
	errs[6] = s.readNodeLocal(ctx, c)
	return s, c.Failed(cmp.Or(errs[:]...), "reading what the cluster has for DNS")
}

// readNodeLocal reads NodeLocal DNSCache, whatever its DaemonSet is called.
func (s *State) readNodeLocal(ctx context.Context, c *cluster.Cluster) error {
	var all appsv1.DaemonSetList
	if err := c.List(ctx, &all, client.InNamespace(kubeSystem)); err != nil {
		return err
	}
	if s.NodeLocal = facts.Find(all.Items, platform.NodeCache); s.NodeLocal == nil {
		return nil
	}
	name, key := corefileOf(&s.NodeLocal.Spec.Template.Spec)
	if name == "" {
		return nil
	}
	config, err := read[*corev1.ConfigMap](ctx, c, kubeSystem, name)
	if config != nil {
		s.NodeFile = config.Data[key]
	}
	return err
}

// ReadCorefile reads the Deployment, its Corefile, and what the Corefile imports from a ConfigMap.
func ReadCorefile(ctx context.Context, c *cluster.Cluster) (s *State, err error) {
	s = &State{}
	if s.Deployment, err = Deployment(ctx, c); err != nil || s.Deployment == nil {
		return s, err
	}
	name, key := corefileOf(&s.Deployment.Spec.Template.Spec)
	if name == "" {
		return s, nil
	}
	s.ConfigKey = key
	if s.Config, err = read[*corev1.ConfigMap](ctx, c, kubeSystem, name); err != nil {
		return nil, c.Failed(err, "reading ConfigMap %s", name)
	}
	if name := customOf(s); name != "" {
		if s.Custom, err = read[*corev1.ConfigMap](ctx, c, kubeSystem, name); s.Custom == nil {
			s.Custom = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kubeSystem, Name: name}}
		}
	}
	return s, c.Failed(err, "reading what the Corefile imports")
}

func read[T interface {
	*O
	client.Object
}, O any](ctx context.Context, c *cluster.Cluster, namespace, name string) (T, error) {
	return kube.Get[T](ctx, c, types.NamespacedName{Namespace: namespace, Name: name})
}

// readKind returns an object of a kind that the cluster may not know, or nil. RBAC refuses an unknown kind, too.
func readKind(ctx context.Context, c *cluster.Cluster, version, kind, namespace, name string) (
	*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(version)
	o.SetKind(kind)
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) && !served(c, version) {
		return nil, nil
	}
	return o, err
}

// served reports whether a cluster has a version of an API group, which everybody may ask; true if it does not say.
func served(c *cluster.Cluster, version string) bool {
	if c.Config == nil {
		return true
	}
	api, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err == nil {
		_, err = api.ServerResourcesForGroupVersion(version)
	}
	return !apierrors.IsNotFound(err)
}

// Deployment returns that of the cluster's DNS, or nil.
func Deployment(ctx context.Context, c *cluster.Cluster) (*appsv1.Deployment, error) {
	var found appsv1.DeploymentList
	err := c.List(ctx, &found, client.InNamespace(kubeSystem), client.MatchingLabels{"k8s-app": "kube-dns"})
	d := facts.Find(found.Items, func(d *appsv1.Deployment) bool { // an autoscaler may have the label, too
		return strings.Contains(d.Name, "dns") && !strings.Contains(d.Name, "autoscaler")
	})
	return d, c.Failed(err, "listing Deployments in %s", kubeSystem)
}

// Subject returns the ServiceAccount that the Pods of a Deployment have, as a binding names it.
func Subject(d *appsv1.Deployment) map[string]any {
	return map[string]any{"kind": "ServiceAccount", "namespace": d.Namespace,
		"name": cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")}
}

// corefileOf returns the ConfigMap that Pods mount for their Corefile, and its key; "" if there is none. The one of
// NodeLocal DNSCache is Corefile.base.
func corefileOf(spec *corev1.PodSpec) (name, key string) {
	for _, v := range spec.Volumes {
		if v.ConfigMap == nil {
			continue
		}
		for _, item := range v.ConfigMap.Items {
			if strings.HasPrefix(item.Path, "Corefile") {
				return v.ConfigMap.Name, item.Key
			}
		}
	}
	return mounted(spec, corefileFolder), "Corefile"
}

// corefileFolder is where CoreDNS's Corefile is, to which its imports are relative.
const corefileFolder = "/etc/coredns"

// mounted returns the ConfigMap that Pods mount as a folder, or "".
func mounted(spec *corev1.PodSpec, folder string) string {
	if !path.IsAbs(folder) {
		folder = path.Join(corefileFolder, folder)
	}
	for _, container := range spec.Containers {
		for _, m := range container.VolumeMounts {
			i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			if m.MountPath == folder && i >= 0 && spec.Volumes[i].ConfigMap != nil {
				return spec.Volumes[i].ConfigMap.Name
			}
		}
	}
	return ""
}

// customOf returns the ConfigMap that is mounted where the Corefile imports *.server from, or "".
func customOf(s *State) string {
	c, err := corefile.Parse(s.Corefile())
	if err != nil {
		return ""
	}
	for _, pattern := range c.Unknown {
		if path.Base(pattern) == "*.server" {
			return mounted(&s.Deployment.Spec.Template.Spec, path.Dir(pattern))
		}
	}
	return ""
}

// Imported returns the Corefile with the keys of Custom in place of the lines that import them, or "".
func (s *State) Imported() string {
	if s.Custom == nil {
		return s.Corefile()
	}
	var out strings.Builder
	for line := range strings.Lines(s.Corefile()) {
		words := strings.Fields(line)
		if len(words) != 2 || words[0] != "import" || mounted(&s.Deployment.Spec.Template.Spec,
			path.Dir(words[1])) != s.Custom.Name {
			out.WriteString(line)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(s.Custom.Data)) {
			if matches, _ := path.Match(path.Base(words[1]), key); matches {
				out.WriteString(s.Custom.Data[key] + "\n")
			}
		}
	}
	return out.String()
}

// Edit returns the step that edits ConfigMaps of the cluster's DNS, which kubectl takes by their names.
func Edit(configMaps string) report.Step {
	return report.Here("kubectl -n kube-system edit configmap " + configMaps)
}

func (s *State) edit(configMap string) string { return s.flags.Step(Edit(configMap)) }

// Corefile returns the cluster's Corefile, or "".
func (s *State) Corefile() string {
	if s.Config == nil {
		return ""
	}
	return s.Config.Data[s.ConfigKey]
}

// container returns the container of the cluster's CoreDNS, or nil.
func (s *State) container() *corev1.Container {
	if s.Deployment == nil {
		return nil
	}
	all := s.Deployment.Spec.Template.Spec.Containers
	return facts.Find(all, func(c *corev1.Container) bool { return c.Name == "coredns" || len(all) == 1 })
}

// servers returns how to find the Pods of the cluster's DNS, and the TCP port that they listen on. The selector is nil
// if DNS runs elsewhere.
func (s *State) servers() (namespace string, selector labels.Selector, port int32) {
	if s.Operator != nil {
		return "openshift-dns", labels.SelectorFromSet(labels.Set{
			"dns.operator.openshift.io/daemonset-dns": "default"}), 5353
	}
	if s.Deployment == nil {
		return "", nil, 0
	}
	selector, _ = metav1.LabelSelectorAsSelector(s.Deployment.Spec.Selector) // which the API server has checked
	return s.Deployment.Namespace, selector, tcpPort(s.Deployment)
}

// tcpPort returns the port that a Deployment serves DNS over TCP at.
func tcpPort(d *appsv1.Deployment) int32 {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, p := range c.Ports {
			if p.Protocol == corev1.ProtocolTCP && (p.Name == "dns-tcp" || p.Name == "dns") {
				return p.ContainerPort
			}
		}
	}
	return 53
}

// Installed returns how our CoreDNS is installed, or "".
func (s *State) Installed() Mode {
	switch {
	case s.original() != "" || hasOurBlock(s.Corefile()) && answersZone(s.Corefile(), anyKey):
		return Replace
	case s.Beside != nil:
		return Beside
	}
	return ""
}

// original returns the image that ours replaced, or "".
func (s *State) original() string { return s.Mark(platform.AnnotationImage) }

// Owner returns how to change and to remove our CoreDNS beside the cluster's DNS, if others applied it; else two "".
func (s *State) Owner() (change, remove string) {
	if s.Beside == nil {
		return "", ""
	}
	if change, remove = facts.Release(s.Beside); change != "" {
		return change, remove
	}
	for _, key := range platform.GitOps {
		verb, name := "label", s.Beside.Labels[key]
		if name == "" {
			verb, name = "annotate", s.Beside.Annotations[key]
		}
		if source := "the source of " + name + " in Argo CD, Flux or kapp"; name != "" {
			return "edit " + source, "remove it from " + source + "; if nothing applies it any more, first: " +
				s.flags.Here("kubectl -n "+besideNamespace+" "+verb+" deployment "+besideName+" "+key+"-")
		}
	}
	return "", ""
}

// Running returns the image of our CoreDNS, or "". After a kubeadm upgrade, the cluster's own image is back.
func (s *State) Running() string {
	switch s.Installed() {
	case Replace:
		c := s.container() // a Corefile that no Deployment mounts may have our block
		if c != nil && c.Image != s.original() && !platform.Stock.MatchString(c.Image) {
			return c.Image
		}
	case Beside:
		return s.Beside.Spec.Template.Spec.Containers[0].Image
	}
	return ""
}

// Kept returns the image that Install keeps if it gets none, or "". An upgrade may have brought one without our mark.
func (s *State) Kept() string {
	if s.Installed() == Replace && s.original() == "" {
		return ""
	}
	return s.Running()
}

// upstreams returns the servers to which the owner of the cluster's DNS has given the zone.
func (s *State) upstreams(owner *platform.Platform) (out []string) {
	switch {
	case s.Operator != nil:
		servers, _, _ := unstructured.NestedSlice(s.Operator.Object, "spec", "servers")
		for _, v := range servers {
			server, _ := v.(map[string]any)
			if zones, _, _ := unstructured.NestedStringSlice(server, "zones"); slices.Contains(zones, zone) {
				out, _, _ = unstructured.NestedStringSlice(server, "forwardPlugin", "upstreams")
			}
		}
	case owner.Step == platform.Stubs:
		out = s.stubDomains()[zone]
	case !hasOurBlock(s.Imported()):
		out = sentTo(s.Imported())
	}
	return out
}

// noAddress stands for the address of our CoreDNS in the plan of a first install, which is made before the Service
// exists. Runner.Install plans again when it does.
const noAddress = "CLUSTERIP"

// address returns that of our CoreDNS beside the cluster's DNS.
func (s *State) address() []string {
	if to := clusterIPs(s.Service); len(to) > 0 {
		return to
	}
	return []string{noAddress}
}

// clusterIPs returns those of a Service that may not exist.
func clusterIPs(s *corev1.Service) []string {
	if s == nil {
		return nil
	}
	return s.Spec.ClusterIPs
}

// stubDomains returns those of kube-dns.
func (s *State) stubDomains() map[string][]string {
	var domains map[string][]string
	if s.KubeDNS != nil {
		_ = json.Unmarshal([]byte(s.KubeDNS.Data["stubDomains"]), &domains) // what cannot be read has no effect
	}
	if domains == nil {
		domains = map[string][]string{}
	}
	return domains
}

// stubbed reports whether kube-dns's stubDomains give the zone to servers that answer it: the cluster's DNS, and with
// Beside ours. Without an address of either, any servers count.
func (s *State) stubbed(mode Mode) bool {
	right := clusterIPs(s.Upstream)
	if mode == Beside {
		right = slices.Concat(right, clusterIPs(s.Service))
	}
	to := s.stubDomains()[zone]
	return len(to) > 0 && (len(right) == 0 || !slices.ContainsFunc(to, func(server string) bool {
		return !slices.Contains(right, server)
	}))
}
