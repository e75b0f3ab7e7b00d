package dns

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/corefile"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Annotations by which Uninstall restores what was.
const (
	AnnotationImage  = "clusterset-dns.io/original-image"  // of the cluster's CoreDNS
	AnnotationStubs  = "clusterset-dns.io/original-stubs"  // stubDomains of kube-dns
	AnnotationValues = "clusterset-dns.io/original-values" // of RKE2's chart
)

// Mode is how our CoreDNS comes into a cluster.
type Mode string

// The modes.
const (
	Replace Mode = "replace" // its image in the cluster's own Deployment, and a server block
	Beside  Mode = "beside"  // a Deployment of ours, to which the cluster's DNS forwards the zone
)

const (
	customKey  = "clusterset.server" // our key of ConfigMap coredns-custom
	serverName = "clusterset"        // our server in OpenShift's DNS
)

// Wanted is what the user asked for. Zero values mean that Install decides.
type Wanted struct {
	Mode    Mode
	Image   string
	Release string // the image of this version's release, "" if this version is none
	NoWait  bool   // nobody waits until the image has rolled out
}

// Change replaces Before by After. Before is nil to create After, and After is nil to delete Before.
type Change struct{ Before, After client.Object }

// Plan is what to do in a cluster.
type Plan struct {
	Distribution Distribution
	Mode         Mode
	Image        string
	Objects      []*unstructured.Unstructured // ours, to apply or to delete
	Deployment   *Change                      // the image of the cluster's CoreDNS
	Forward      *Change                      // what gives the zone to our CoreDNS
	ByHand       string                       // the same, if only the user can do it
	Restart      bool                         // the cluster's CoreDNS, after Forward
	Notes        []string
}

// Mode returns how our CoreDNS is installed, or "".
func (s *State) Mode() Mode {
	switch {
	case s.original() != "" || ours(s.Corefile()) && answered(s.Corefile()):
		return Replace
	case s.Beside != nil:
		return Beside
	}
	return ""
}

// running returns the image of our CoreDNS, or "". After a kubeadm upgrade, the cluster's own image is back.
func (s *State) running() string {
	switch s.Mode() {
	case Replace:
		if image := s.container().Image; image != s.original() && !stock.MatchString(image) {
			return image
		}
	case Beside:
		return s.Beside.Spec.Template.Spec.Containers[0].Image
	}
	return ""
}

// Install returns what is missing for the zone to be answered, or why it cannot be. Without changes, it is installed.
func Install(s *State, w Wanted) (*Plan, error) {
	p := &Plan{Distribution: Detect(s), Mode: cmp.Or(w.Mode, s.Mode())}
	d := &p.Distribution
	if p.Mode == "" {
		p.Mode = Beside
		if d.Replaceable {
			p.Mode = Replace
		}
	}
	if was := s.Mode(); was != "" && was != p.Mode {
		return nil, report.WithRemedy(fmt.Errorf("our CoreDNS is installed with --%s", was),
			"first: kubectl clusterset dns uninstall")
	}
	if p.Image = cmp.Or(w.Image, w.Release, s.running()); p.Image == "" {
		return nil, report.WithRemedy(errors.New("this build of kubectl-clusterset has no released image"),
			"--image REGISTRY/coredns:VERSION, one that the nodes can pull; "+report.DocsImages)
	}
	if err := manifest.CheckImage(p.Image); err != nil {
		return nil, err
	}
	if s.NodeLocal != nil && !s.Stubbed() && d.Forward != InStubs {
		p.Notes = append(p.Notes, "NodeLocal DNS needs a server block of its own: "+report.DocsNodeLocal)
	}
	if d.Remedy != "" && d.Forward != ByHand {
		p.Notes = append(p.Notes, d.Remedy)
	}
	if p.Mode == Replace {
		if err := p.replace(s); err != nil || !w.NoWait || p.Deployment == nil || p.Forward == nil {
			return p, err
		}
		remedy := "omit --wait=false"
		if s.Mode() == "" { // else --beside is refused
			remedy += ", or use --beside"
		}
		return nil, report.WithRemedy(errors.New("--wait=false: the configuration would change before the new image "+
			"has rolled out, and a Pod of the old image that restarts meanwhile would not start"), remedy)
	}
	return p, p.beside(s)
}

// objects returns the CRDs that CoreDNS watches and the manifests of a folder.
func objects(folder, image string) ([]*unstructured.Unstructured, error) {
	crds, err := manifest.Render(manifest.CRDs, manifest.Values{Namespace: "clusterset"})
	if err != nil {
		return nil, err
	}
	all, err := manifest.Render(folder, manifest.Values{Namespace: "clusterset", Image: image})
	return append(crds, all...), err
}

func (p *Plan) replace(s *State) (err error) {
	d, c := s.Deployment, s.container()
	if p.Distribution.Name == unknown {
		return report.WithRemedy(errors.New("--replace: it is unknown who runs the cluster's DNS, and may restore it"),
			"use --beside")
	}
	if c == nil || s.Config == nil || p.Distribution.Forward != InCorefile {
		return report.WithRemedy(fmt.Errorf("--replace: %s owns the cluster's DNS, and would restore it",
			p.Distribution.Name), "use --beside")
	}
	if p.Objects, err = objects(manifest.CoreDNS, ""); err != nil {
		return err
	}
	for _, o := range p.Objects {
		if subjects, found, _ := unstructured.NestedSlice(o.Object, "subjects"); found {
			subjects[0].(map[string]any)["name"] = cmp.Or(d.Spec.Template.Spec.ServiceAccountName, "default")
			_ = unstructured.SetNestedSlice(o.Object, subjects, "subjects") // it was there
		}
	}
	if c.Image != p.Image {
		after := s.withImage(p.Image)
		if s.original() == "" {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, AnnotationImage, c.Image)
		}
		p.Deployment = &Change{d, after}
	}
	return p.corefile(s, fmt.Sprintf(answers, port(s.Corefile())))
}

// withImage returns the Deployment with another image.
func (s *State) withImage(image string) *appsv1.Deployment {
	after := s.Deployment.DeepCopy()
	(&State{Deployment: after}).container().Image = image
	return after
}

// corefile changes the Corefile.
func (p *Plan) corefile(s *State, block string) error {
	text, err := with(s.Corefile(), block)
	if err != nil {
		return report.WithRemedy(err, "correct it first: kubectl -n kube-system edit configmap "+s.Config.Name)
	}
	if text != s.Corefile() {
		after := s.Config.DeepCopy()
		after.Data[s.ConfigKey] = text
		p.Forward, p.Restart = &Change{s.Config, after}, !reloads(text)
	}
	return nil
}

func (p *Plan) beside(s *State) (err error) {
	if p.Objects, err = objects(manifest.Beside, p.Image); err != nil {
		return err
	}
	to := []string{"CLUSTERIP"} // until our Service exists
	if s.Service != nil && len(s.Service.Spec.ClusterIPs) > 0 {
		to = s.Service.Spec.ClusterIPs
	}
	block := fmt.Sprintf(sends, port(s.Corefile()), strings.Join(to, " "))
	switch p.Distribution.Forward {
	case InCorefile:
		return p.corefile(s, block)
	case InCustom:
		err = p.custom(s, begin+block+end)
	case InStubs:
		err = p.stubs(s, to)
	case InOperator:
		err = p.operator(s, to)
	case InHelm:
		err = p.helm(s, to)
	default:
		p.ByHand = cmp.Or(p.Distribution.Remedy, "forward the zone "+zone+" in the cluster's DNS") + "\n\n" + block
	}
	return err
}

// forwarded is the error for a zone that another program has given to a DNS server of its own: two for one zone stop
// CoreDNS, or one of them has no effect.
func forwarded(by, remedy string) error {
	return report.WithRemedy(fmt.Errorf("%s serves %s already, and this command did not add it", by, zone),
		"remove it first: "+remedy)
}

// custom adds a key to the ConfigMap that the Corefile imports.
func (p *Plan) custom(s *State, block string) error {
	if serves(s.Corefile()) {
		return forwarded("the Corefile", "kubectl -n kube-system edit configmap "+s.Config.Name)
	}
	for key, there := range s.Custom.Data {
		if key == customKey && there != "" && !ours(there) || key != customKey && serves(there) {
			return forwarded("key "+key+" of ConfigMap "+s.Custom.Name,
				"kubectl -n kube-system edit configmap "+s.Custom.Name)
		}
	}
	if s.Custom.Data[customKey] == block {
		return nil
	}
	after := s.Custom.DeepCopy()
	if after.Data == nil {
		after.Data = map[string]string{}
	}
	after.Data[customKey] = block
	// AKS's manual asks for a restart; elsewhere the plugin reload reads imports again.
	p.Forward, p.Restart = &Change{s.Custom, after}, p.Distribution.Name == "AKS" || !reloads(s.Corefile())
	if s.Custom.ResourceVersion == "" {
		own(after)
		p.Forward.Before = nil
	}
	return nil
}

// own marks an object as one that this program created, and may delete.
func own(o client.Object) { o.SetLabels(map[string]string{managedBy: manifest.FieldManager}) }

const managedBy = "app.kubernetes.io/managed-by"

// originalStubs returns the stubDomains of kube-dns before Install changed them; installed says that it did.
func (s *State) originalStubs() (was string, installed bool) {
	if s.KubeDNS != nil {
		was, installed = s.KubeDNS.Annotations[AnnotationStubs]
	}
	return was, installed
}

// Stubbed reports whether kube-dns's stubDomains have the zone, which NodeLocal DNSCache follows, too.
func (s *State) Stubbed() bool {
	return s.KubeDNS != nil && strings.Contains(s.KubeDNS.Data["stubDomains"], `"`+zone+`"`)
}

// stubs adds the zone to kube-dns's stubDomains.
func (p *Plan) stubs(s *State, to []string) error {
	before := s.KubeDNS
	if before == nil {
		before = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kubeSystem, Name: "kube-dns"}}
	}
	was := before.Data["stubDomains"]
	stubs := map[string][]string{}
	if was != "" {
		if err := json.Unmarshal([]byte(was), &stubs); err != nil {
			return fmt.Errorf("parsing stubDomains of ConfigMap kube-dns failed: %w", err)
		}
	}
	_, installed := s.originalStubs()
	if stubs[zone] != nil && !installed {
		return forwarded("stubDomains of ConfigMap kube-dns", "kubectl -n kube-system edit configmap kube-dns")
	}
	if slices.Equal(stubs[zone], to) {
		return nil
	}
	after := before.DeepCopy()
	if !installed {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, AnnotationStubs, was)
	}
	stubs[zone] = to
	text, err := json.Marshal(stubs)
	if after.Data == nil {
		after.Data = map[string]string{}
	}
	after.Data["stubDomains"] = string(text)
	p.Forward = &Change{before, after}
	if s.KubeDNS == nil {
		own(after)
		p.Forward.Before = nil
	}
	return err
}

// operator adds a server to OpenShift's DNS.
func (p *Plan) operator(s *State, to []string) error {
	servers, _, err := unstructured.NestedSlice(s.Operator.Object, "spec", "servers")
	if err != nil {
		return err
	}
	upstreams := make([]any, len(to))
	for i := range to {
		upstreams[i] = to[i]
	}
	wanted := map[string]any{"name": serverName, "zones": []any{zone}, "forwardPlugin": map[string]any{
		"upstreams": upstreams}}
	if i := slices.IndexFunc(servers, isOurs); i < 0 {
		if slices.ContainsFunc(servers, forZone) {
			return forwarded("a server of OpenShift's DNS", "kubectl edit dns.operator default")
		}
		servers = append(servers, wanted)
	} else if now, _, _ := unstructured.NestedStringSlice(servers[i].(map[string]any), "forwardPlugin",
		"upstreams"); slices.Equal(now, to) {
		return nil
	} else {
		servers[i] = wanted
	}
	after := s.Operator.DeepCopy()
	p.Forward = &Change{s.Operator, after}
	return unstructured.SetNestedSlice(after.Object, servers, "spec", "servers")
}

func isOurs(server any) bool {
	m, _ := server.(map[string]any)
	return m["name"] == serverName
}

// forZone reports whether a server of OpenShift's DNS, or of RKE2's chart, is for our zone.
func forZone(server any) bool {
	m, _ := server.(map[string]any)
	zones, _ := m["zones"].([]any)
	return slices.ContainsFunc(zones, func(z any) bool {
		if of, is := z.(map[string]any); is { // of the chart
			z = of["zone"]
		}
		name, _ := z.(string)
		return corefile.Normal(name) == zone
	})
}

// chartValues returns the values of RKE2's chart without what an earlier run added; installed says that one did.
func (s *State) chartValues() (text string, values map[string]any, installed bool, err error) {
	values = map[string]any{}
	if s.HelmConfig == nil {
		return "", values, false, nil
	}
	text, _, _ = unstructured.NestedString(s.HelmConfig.Object, "spec", "valuesContent")
	original, installed := s.HelmConfig.GetAnnotations()[AnnotationValues]
	was := map[string]any{}
	if err := errors.Join(yaml.Unmarshal([]byte(text), &values), yaml.Unmarshal([]byte(original), &was)); err != nil {
		return "", nil, false, fmt.Errorf("parsing valuesContent of HelmChartConfig rke2-coredns failed: %w", err)
	}
	if !installed {
		return text, values, false, nil
	}
	if servers, _ := values["servers"].([]any); was["servers"] == nil {
		delete(values, "servers")
	} else {
		values["servers"] = slices.DeleteFunc(servers, forZone)
	}
	if equality.Semantic.DeepEqual(values, was) {
		return original, values, true, nil
	}
	written, err := yaml.Marshal(values)
	if text = string(written); len(values) == 0 {
		text = ""
	}
	return text, values, true, err
}

// helm adds a server to the values of RKE2's chart.
func (p *Plan) helm(s *State, to []string) error {
	text, values, installed, err := s.chartValues()
	if err != nil {
		return err
	}
	if installed {
		now, _, _ := unstructured.NestedString(s.HelmConfig.Object, "spec", "valuesContent")
		if strings.Contains(now, "parameters: . "+strings.Join(to, " ")+"\n") {
			return nil
		}
	}
	servers, _ := values["servers"].([]any)
	if servers == nil {
		if servers, err = chartServers(remove(s.Corefile())); err != nil {
			return err
		}
		servers = slices.DeleteFunc(servers, forZone) // what an earlier run added
	}
	if slices.ContainsFunc(servers, forZone) {
		return forwarded("a server of RKE2's chart", "kubectl -n kube-system edit helmchartconfig rke2-coredns")
	}
	values["servers"] = append(servers, map[string]any{
		"zones": []any{map[string]any{"zone": zone + ".", "use_tcp": true}}, "port": 53,
		"plugins": []any{map[string]any{"name": "errors"},
			map[string]any{"name": "cache", "configBlock": "success 9984 5\ndenial 9984 1"},
			map[string]any{"name": "forward", "parameters": ". " + strings.Join(to, " ")}}})
	written, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	after := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	p.Forward = &Change{nil, after}
	if s.HelmConfig != nil {
		after = s.HelmConfig.DeepCopy()
		p.Forward = &Change{s.HelmConfig, after}
	} else {
		after.SetAPIVersion("helm.cattle.io/v1")
		after.SetKind("HelmChartConfig")
		after.SetNamespace(kubeSystem)
		after.SetName("rke2-coredns")
		own(after)
	}
	notes := after.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[AnnotationValues] = text
	after.SetAnnotations(notes)
	return unstructured.SetNestedField(after.Object, string(written), "spec", "valuesContent")
}

// Uninstall returns what restores the cluster as it was before Install.
func Uninstall(s *State) (*Plan, error) {
	p := &Plan{Distribution: Detect(s), Mode: s.Mode(), Image: s.running()}
	text := remove(s.Corefile())
	if text != s.Corefile() {
		after := s.Config.DeepCopy()
		after.Data[s.ConfigKey] = text
		p.Forward, p.Restart = &Change{s.Config, after}, !reloads(text)
	}
	if p.Mode == Replace {
		if original := s.original(); original != "" {
			after := s.withImage(original)
			delete(after.Annotations, AnnotationImage)
			p.Deployment = &Change{s.Deployment, after}
		}
	}
	if answered(text) && (p.Deployment != nil || len(s.Granted) > 0) {
		return nil, report.WithRemedy(errors.New("the Corefile has a line multicluster that this command did not "+
			"add, and it needs our image and rights"),
			"kubectl -n kube-system edit configmap "+s.Config.Name+", and remove the line multicluster, or the server "+
				"block that is for "+zone+" alone; then run the command again")
	}
	if p.Mode == Replace {
		all, err := manifest.Render(manifest.CoreDNS, manifest.Values{Namespace: "clusterset"})
		p.Objects = all
		return p, err
	}
	if err := p.unforward(s); err != nil {
		return nil, err
	}
	if p.Mode == Beside {
		if p.Distribution.Forward == ByHand {
			p.ByHand = "first remove what forwards " + zone + " from the cluster's DNS"
		}
		if release := s.Beside.Annotations["meta.helm.sh/release-name"]; release != "" {
			p.Notes = append(p.Notes, "our CoreDNS stays: helm uninstall "+release+" -n "+besideNamespace)
			return p, nil
		}
		all, err := manifest.Render(manifest.Beside, manifest.Values{Namespace: "clusterset"})
		p.Objects = append(all, s.Granted...)
		return p, err
	}
	p.Objects = s.Granted
	return p, nil
}

// unforward removes what forwards the zone elsewhere than in the Corefile.
func (p *Plan) unforward(s *State) error {
	if s.Custom != nil && ours(s.Custom.Data[customKey]) {
		after := s.Custom.DeepCopy()
		delete(after.Data, customKey)
		p.Forward = &Change{s.Custom, kept(after, len(after.Data) == 0)}
		p.Restart = p.Distribution.Name == "AKS" || !reloads(s.Corefile())
	}
	if was, installed := s.originalStubs(); installed {
		after := s.KubeDNS.DeepCopy()
		after.Data["stubDomains"] = unstub(after.Data["stubDomains"], was)
		if delete(after.Annotations, AnnotationStubs); after.Data["stubDomains"] == "" {
			delete(after.Data, "stubDomains")
		}
		p.Forward = &Change{s.KubeDNS, kept(after, len(after.Data) == 0)}
	}
	if s.Operator != nil {
		servers, _, _ := unstructured.NestedSlice(s.Operator.Object, "spec", "servers")
		if i := slices.IndexFunc(servers, isOurs); i >= 0 {
			after := s.Operator.DeepCopy()
			if servers = slices.Delete(servers, i, i+1); len(servers) == 0 {
				unstructured.RemoveNestedField(after.Object, "spec", "servers")
			} else {
				_ = unstructured.SetNestedSlice(after.Object, servers, "spec", "servers") // it was there
			}
			p.Forward = &Change{s.Operator, after}
		}
	}
	text, _, installed, err := s.chartValues()
	if err != nil || !installed {
		return err
	}
	after := s.HelmConfig.DeepCopy()
	_ = unstructured.SetNestedField(after.Object, text, "spec", "valuesContent") // it was there
	notes := after.GetAnnotations()
	if delete(notes, AnnotationValues); len(notes) == 0 {
		notes = nil
	}
	after.SetAnnotations(notes)
	p.Forward = &Change{s.HelmConfig, kept(after, text == "")}
	return nil
}

// kept returns an object, or nil to delete it if it is empty and this program created it.
func kept(o client.Object, empty bool) client.Object {
	if empty && o.GetLabels()[managedBy] == manifest.FieldManager {
		return nil
	}
	return o
}

// unstub removes our zone from stubDomains. It returns the original text if nothing else changed.
func unstub(now, original string) string {
	var a, b map[string][]string
	if json.Unmarshal([]byte(now), &a) != nil {
		return now
	}
	delete(a, zone)
	if len(a) == 0 && original == "" {
		return ""
	}
	text, _ := json.Marshal(a) // strings
	if json.Unmarshal([]byte(original), &b) == nil {
		if same, _ := json.Marshal(b); string(same) == string(text) {
			return original
		}
	}
	return string(text)
}
