package dns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// Mode is how our CoreDNS comes into a cluster.
type Mode string

// The modes.
const (
	Replace Mode = "replace" // its image in the cluster's own Deployment, and a server block
	Beside  Mode = "beside"  // a Deployment of ours, to which the cluster's DNS forwards the zone
)

const uninstall = "kubectl clusterset dns uninstall"

// customKey is our key of ConfigMap coredns-custom.
const customKey = "clusterset.server"

// Wanted is what the user asked for. Zero values mean that Install decides.
type Wanted struct {
	Mode    Mode
	Image   string
	Release string // the image of this version's release, "" if this version is none
	NoWait  bool   // nobody waits until the image has rolled out
}

// Change replaces Before by After. Before is nil to create After, and After is nil to undo that.
type Change struct{ Before, After client.Object }

// Plan is what to do in a cluster.
type Plan struct {
	Distribution platform.Platform
	Mode         Mode
	Image        string
	Objects      []*unstructured.Unstructured // ours, to apply or to delete
	Deployment   *Change                      // the image of the cluster's CoreDNS
	Forward      []*Change                    // what gives the zone to our CoreDNS
	ByHand       string                       // the same, if only the user can do it
	Restart      bool                         // the cluster's CoreDNS, after Forward
	Notes        []string
}

// changes returns what changes objects of others, in the order of an install: a stock CoreDNS refuses our block.
func (p *Plan) changes() []*Change {
	return slices.DeleteFunc(append([]*Change{p.Deployment}, p.Forward...), func(c *Change) bool { return c == nil })
}

// Mode returns how our CoreDNS is installed, or "".
func (s *State) Mode() Mode {
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

// owner returns how others change and remove our CoreDNS beside the cluster's DNS, or "" if it is not theirs.
func (s *State) owner() (change, remove string) {
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
	switch s.Mode() {
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
	if s.Mode() == Replace && s.original() == "" {
		return ""
	}
	return s.Running()
}

// Install returns what is missing for the zone to be answered, or why it cannot be. Without changes, it is installed.
func Install(s *State, w Wanted) (*Plan, error) {
	p := &Plan{Distribution: platform.Of(&s.Objects), Mode: cmp.Or(w.Mode, s.Mode())}
	d := &p.Distribution
	if d.Forward == platform.InCustom && hasOurBlock(s.Corefile()) { // since before the Corefile imported anything
		d.Forward = platform.InCorefile
	}
	if p.Mode == "" {
		p.Mode = Beside
		if d.Replaceable {
			p.Mode = Replace
		}
	}
	if was := s.Mode(); was != "" && was != p.Mode {
		return nil, report.Fail("first: "+s.flags.Here(uninstall), "our CoreDNS is installed with --%s", was)
	}
	if p.Image = cmp.Or(w.Image, w.Release, s.Kept()); p.Image == "" {
		return nil, report.Fail("--image REGISTRY/coredns:VERSION, one that the nodes can pull; "+report.DocsImages,
			"this build of kubectl-clusterset has no released image")
	}
	if err := manifest.CheckImage(p.Image); err != nil {
		return nil, err
	}
	p.cache(s)
	if d.Warning != "" {
		if p.Mode == Beside && d.Remedy != "" {
			d.Warning += ", or " + s.fill(d.Remedy, "")
		}
		p.Notes = append(p.Notes, d.Warning)
	}
	p.hint(s)
	if p.Mode == Replace {
		if err := p.replace(s); err != nil || !w.NoWait || p.Deployment == nil || p.Forward == nil {
			return p, err
		}
		remedy := "omit --wait=false"
		if s.Mode() == "" { // else --beside is refused
			remedy += ", or use --beside"
		}
		return nil, report.Fail(remedy, "--wait=false: the configuration would change before the new image has "+
			"rolled out, and a Pod of the old image that restarts meanwhile would not start")
	}
	return p, p.beside(s)
}

// hint says how to keep imported slices out of the cluster's own zone, if nobody restores the Corefile.
func (p *Plan) hint(s *State) {
	text := s.Corefile()
	if p.Mode == Replace {
		text = hideImported(text)
	}
	if d := &p.Distribution; d.Forward == platform.InCorefile && d.Warning == "" && showsImported(text) {
		p.Notes = append(p.Notes, "so that exports add no PTR names to the cluster's own zone, give the block of "+
			"kubernetes in the Corefile the line "+hideOption+"; "+report.DocsReverse)
	}
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
	if p.Distribution.Name == platform.Unknown {
		return report.Fail("use --beside", "--replace: it is unknown who runs the cluster's DNS, and may restore it")
	}
	if c == nil || s.Config == nil || p.Distribution.Forward != platform.InCorefile {
		return report.Fail("use --beside", "--replace: %s owns the cluster's DNS, and would restore it",
			p.Distribution.Name)
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
		if s.original() == "" || s.Running() == "" { // an upgrade of the cluster has brought another one
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, platform.AnnotationImage, c.Image)
		}
		p.Deployment = &Change{d, after}
	}
	return p.corefile(s, fmt.Sprintf(answerBlock, port(s.Corefile())))
}

// withImage returns the Deployment with another image.
func (s *State) withImage(image string) *appsv1.Deployment {
	after := &State{Objects: platform.Objects{Deployment: s.Deployment.DeepCopy()}}
	after.container().Image = image
	return after.Deployment
}

// corefile changes the Corefile.
func (p *Plan) corefile(s *State, block string) error {
	text, err := withBlock(s.Corefile(), block)
	if err != nil {
		return report.WithRemedy(err, "correct it first: "+s.edit(s.Config.Name))
	}
	if p.Mode == Replace {
		text = hideImported(text)
	}
	p.setCorefile(s, text)
	return nil
}

// setCorefile plans another text of the Corefile.
func (p *Plan) setCorefile(s *State, text string) {
	if text == s.Corefile() {
		return
	}
	after := s.Config.DeepCopy()
	after.Data[s.ConfigKey] = text
	p.Forward = append(p.Forward, &Change{s.Config, after})
	p.Restart = p.Restart || !reloads(text)
}

// setCustom plans another text of our key of the ConfigMap that the Corefile imports, or "" to remove it.
func (p *Plan) setCustom(s *State, text string) {
	if text == s.Custom.Data[customKey] {
		return
	}
	after := s.Custom.DeepCopy()
	if after.Data == nil {
		after.Data = map[string]string{}
	}
	after.Data[customKey] = text
	if text == "" {
		delete(after.Data, customKey)
	}
	c := &Change{s.Custom, after}
	if s.Custom.ResourceVersion == "" {
		c.Before = nil
	}
	p.Forward = append(p.Forward, c)
	// AKS's manual asks for a restart; elsewhere the plugin reload reads imports again.
	p.Restart = p.Restart || p.Distribution.Name == "AKS" || !reloads(s.Corefile())
}

func (p *Plan) beside(s *State) (err error) {
	if change, _ := s.owner(); change != "" {
		p.Image = s.Running()
		p.Notes = append(p.Notes, "our CoreDNS stays as its owner applied it; to change its image or options: "+change)
	} else if p.Objects, err = objects(manifest.Beside, p.Image); err != nil {
		return err
	} else if s.BesideConfig != nil && answersZone(s.BesideConfig.Data["Corefile"], plain53) { // with the user's options
		p.Objects = slices.DeleteFunc(p.Objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "ConfigMap"
		})
	}
	to := s.address()
	if slices.Equal(s.upstreams(&p.Distribution), to) {
		return nil
	}
	block := fmt.Sprintf(forwardBlock, port(s.Corefile()), strings.Join(to, " "))
	switch p.Distribution.Forward {
	case platform.InCorefile:
		return p.corefile(s, block)
	case platform.InCustom:
		err = p.custom(s, begin+block+end)
	default:
		p.ByHand = s.fill(p.Distribution.Step, block)
	}
	return err
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

// fill returns a step for this cluster.
func (s *State) fill(step, block string) string {
	return s.fillFor(step, block, s.address())
}

// fillFor is fill for DNS servers of these addresses.
func (s *State) fillFor(step, block string, to []string) string {
	return strings.NewReplacer("BLOCK", block, noAddress, strings.Join(to, ", "), "STUBS", s.flags.Step(s.stubs(to))).
		Replace(step)
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

// stubs returns the step that adds the zone to kube-dns's stubDomains.
func (s *State) stubs(to []string) report.Step {
	domains := s.stubDomains()
	domains[zone] = to
	text, _ := json.Marshal(domains) // strings
	step := report.Here("kubectl -n kube-system create configmap kube-dns --from-literal=stubDomains=" + string(text))
	if s.KubeDNS != nil {
		step = report.Here("kubectl -n kube-system patch configmap kube-dns --type=merge -p")
		step.Argv = append(step.Argv, fmt.Sprintf(`{"data": {"stubDomains": %q}}`, text))
	}
	return step
}

// Cache returns what answers Pods in front of the cluster's DNS without the zone, or nil; and its step, if that is one
// command.
func (s *State) Cache() (*platform.Platform, report.Step) { return s.cache(s.Mode()) }

func (s *State) cache(mode Mode) (*platform.Platform, report.Step) {
	c := platform.CacheOf(&s.Objects)
	if c == nil || c.Step == platform.Stubs && s.stubbed(mode) || servesZone(s.NodeFile) {
		return nil, report.Step{}
	}
	to := s.address()
	if mode != Beside && s.Upstream != nil { // the DNS Service's own address is the cache's, too
		to = s.Upstream.Spec.ClusterIPs
	}
	var do report.Step
	if c.Step == platform.Stubs {
		do = s.stubs(to)
	}
	if c.Step = s.fillFor(c.Step, "", to); mode != Beside && strings.Contains(c.Step, noAddress) {
		c.Step, do = "send "+zone+" where it sends the cluster's own domain", report.Step{}
	}
	return c, do
}

// cache says how what answers Pods in front of the cluster's DNS gets the zone.
func (p *Plan) cache(s *State) {
	if c, _ := s.cache(p.Mode); c != nil && p.Distribution.Step != platform.Stubs { // which serve both
		p.Notes = append(p.Notes, c.Name+": "+c.Step+"; "+report.DocsNodeLocal)
	}
}

// forwarded is the error for a zone that another program has given to a DNS server of its own: two for one zone stop
// CoreDNS, or one of them has no effect.
func forwarded(by, remedy string) error {
	return report.Fail("remove it first: "+remedy, "%s serves %s already, and this command did not add it", by, zone)
}

// custom adds a key to the ConfigMap that the Corefile imports.
func (p *Plan) custom(s *State, block string) error {
	if servesZone(s.Corefile()) {
		return forwarded("the Corefile", s.edit(s.Config.Name))
	}
	for key, there := range s.Custom.Data {
		if key == customKey && there != "" && !hasOurBlock(there) || key != customKey && servesZone(there) {
			return forwarded("key "+key+" of ConfigMap "+s.Custom.Name, s.edit(s.Custom.Name))
		}
	}
	p.setCustom(s, block)
	return nil
}

// Uninstall returns what restores the cluster as it was before Install.
func Uninstall(s *State) (_ *Plan, err error) {
	p := &Plan{Distribution: platform.Of(&s.Objects), Mode: s.Mode()}
	if s.Custom != nil && hasOurBlock(s.Custom.Data[customKey]) {
		p.setCustom(s, "")
	}
	text := unhideImported(withoutBlock(s.Corefile()))
	p.setCorefile(s, text)
	if original := s.original(); original != "" {
		after := s.Deployment.DeepCopy()
		if s.Running() != "" {
			after = s.withImage(original)
		}
		delete(after.Annotations, platform.AnnotationImage)
		p.Deployment = &Change{s.Deployment, after}
	}
	gives := func(o *unstructured.Unstructured) bool { // rights to the cluster's own CoreDNS; others share the role
		return o.GetName() == "clusterset-dns:coredns" && (o.GetKind() == "ClusterRoleBinding" || p.Mode == "")
	}
	if anyBlock(text, hasOurPlugin) && (p.Mode == Replace || slices.ContainsFunc(s.Applied, gives)) {
		return nil, report.Fail(s.edit(s.Config.Name)+", and remove the line multicluster or multicluster_external, "+
			"or the server block that is for its zone alone; then run the command again", "the Corefile has a line "+
			"of our plugins that this command did not add, and it needs our image and rights")
	}
	if p.Mode == Replace {
		p.Objects, err = manifest.Render(manifest.CoreDNS, manifest.Values{Namespace: "clusterset"})
		return p, err
	}
	if p.Mode == Beside {
		from := p.forwarders(s)
		_, others := s.owner()
		if len(from) > 0 && others == "" {
			return nil, report.Fail("remove that first; then run the command again",
				"%s is still forwarded to our CoreDNS by %s", zone, strings.Join(from, " and by "))
		}
		if s.Config == nil && s.Operator == nil && p.Distribution.Step != platform.Stubs { // it cannot be read
			from = append(from, "the cluster's DNS")
		}
		if len(from) > 0 {
			p.ByHand = "first remove what forwards " + zone + " from " + strings.Join(from, " and from ")
		}
		if others != "" {
			p.Notes = append(p.Notes, "our CoreDNS stays: "+others)
			return p, nil
		}
		all, err := manifest.Render(manifest.Beside, manifest.Values{Namespace: "clusterset"})
		p.Objects = append(all, s.Applied...)
		return p, err
	}
	p.Objects = s.Applied
	return p, nil
}

// forwarders returns what forwards the zone to our CoreDNS beside the cluster's DNS, and only the user can change.
func (p *Plan) forwarders(s *State) (out []string) {
	toOurs := func(upstreams []string) bool {
		return slices.ContainsFunc(upstreams, func(u string) bool {
			u = u[strings.LastIndex(u, "/")+1:] // without its scheme
			return slices.ContainsFunc(clusterIPs(s.Service), func(ip string) bool {
				return u == ip || strings.HasPrefix(u, net.JoinHostPort(ip, "")) // at any port
			})
		})
	}
	if p.Distribution.Step != platform.Stubs && toOurs(s.upstreams(&p.Distribution)) {
		out = append(out, "the cluster's DNS")
	}
	if toOurs(s.stubDomains()[zone]) {
		out = append(out, "key stubDomains of ConfigMap kube-dns")
	}
	if toOurs(sentTo(s.NodeFile)) {
		out = append(out, "the Corefile of NodeLocal DNS")
	}
	return out
}
