package dns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
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
	Mode    Mode   // by default what is installed, or what suits the platform
	Image   string // by default Release, or what is installed, or the one beside the agent's
	Release string // the image of this version's release, "" if this version is none
	Agent   string // the image of the agent here, "" if it is not known
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

// Install returns what is missing for the zone to be answered, or why it cannot be. Without changes, it is installed.
func Install(s *State, w Wanted) (*Plan, error) {
	d, installed, byDefault := platform.Of(&s.Objects), s.Installed(), Beside
	if d.Replaceable {
		byDefault = Replace
	}
	// The Corefile has our block, or one of the user's for --replace, since before it imported anything.
	if d.Forward == platform.InCustom && (hasOurBlock(s.Corefile()) || installed == Replace) {
		d.Forward = platform.InCorefile
	}
	p := &Plan{Distribution: d, Mode: cmp.Or(w.Mode, installed, byDefault)}
	if installed != "" && installed != p.Mode {
		return nil, report.Fail("first: "+s.flags.Here(uninstall), "our CoreDNS is installed with --%s", installed)
	}
	if p.Image = cmp.Or(w.Image, w.Release, s.Kept(), w.sibling()); p.Image == "" {
		return nil, facts.NoRelease()
	}
	if err := manifest.CheckImage(p.Image); err != nil {
		return nil, err
	}
	p.noteCache(s)
	if note := d.Warning; note != "" {
		if p.Mode == Beside && d.Remedy != "" {
			note += ", or " + s.fill(d.Remedy, "", s.address())
		}
		p.Notes = append(p.Notes, note)
	}
	p.noteReverseNames(s)
	if p.Mode == Beside {
		return p, p.beside(s)
	}
	if err := p.replace(s); err != nil {
		return nil, err
	}
	rolledOut, _ := facts.RolledOut(s.Deployment, nil, 0) // no Pod of another image is left
	if w.NoWait && p.Forward != nil && (p.Deployment != nil || !rolledOut) {
		remedy := "omit --wait=false"
		if installed == "" { // else --beside is refused
			remedy += ", or use --beside"
		}
		return nil, report.Fail(remedy, "--wait=false: the configuration would change before the new image has "+
			"rolled out, and a Pod of the old image that restarts meanwhile would not start")
	}
	return p, nil
}

// sibling returns the image that docs/start.md has beside the agent's, or "".
func (w *Wanted) sibling() string {
	if repository, tag, ok := strings.Cut(w.Agent, "clusterset-controller:"); ok && !strings.Contains(tag, "@") {
		return repository + "coredns:" + tag
	}
	return ""
}

// noteReverseNames says how to keep imported slices out of the cluster's own zone, if nobody restores the Corefile.
func (p *Plan) noteReverseNames(s *State) {
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
func objects(folder string, v manifest.Values) ([]*unstructured.Unstructured, error) {
	v.Namespace = "clusterset"
	crds, err := manifest.Render(manifest.CRDs, v)
	if err != nil {
		return nil, err
	}
	all, err := manifest.Render(folder, v)
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
	if p.Objects, err = objects(manifest.CoreDNS, manifest.Values{}); err != nil {
		return err
	}
	for _, o := range p.Objects { // the binding is for the account that the cluster's CoreDNS has
		if o.GetKind() == "ClusterRoleBinding" {
			o.Object["subjects"] = []any{Subject(d)}
		}
	}
	if c.Image != p.Image {
		after := s.withImage(p.Image)
		if s.original() == "" || s.Running() == "" { // an upgrade of the cluster has brought another one
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, platform.AnnotationImage, c.Image)
		}
		p.Deployment = &Change{d, after}
	}
	return p.addToCorefile(s, fmt.Sprintf(answerBlock, port(s.Corefile())))
}

// withImage returns the Deployment with another image.
func (s *State) withImage(image string) *appsv1.Deployment {
	after := &State{Objects: platform.Objects{Deployment: s.Deployment.DeepCopy()}}
	after.container().Image = image
	return after.Deployment
}

// addToCorefile plans a Corefile with our block.
func (p *Plan) addToCorefile(s *State, block string) error {
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

// addToCustom plans our key of the ConfigMap that the Corefile imports. It fails if another program has given the zone
// to a DNS server of its own: two for one zone stop CoreDNS, or one of them has no effect.
func (p *Plan) addToCustom(s *State, block string) error {
	taken := func(by, configMap string) error {
		return report.Fail("remove it first: "+s.edit(configMap),
			"%s serves %s already, and this command did not add it", by, zone)
	}
	if servesZone(s.Corefile()) {
		return taken("the Corefile", s.Config.Name)
	}
	for key, there := range s.Custom.Data {
		if key == customKey && there != "" && !hasOurBlock(there) || key != customKey && servesZone(there) {
			return taken("key "+key+" of ConfigMap "+s.Custom.Name, s.Custom.Name)
		}
	}
	p.setCustom(s, block)
	return nil
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

func (p *Plan) beside(s *State) error {
	if change, _ := s.Owner(); change != "" {
		p.Image = s.Running()
		p.Notes = append(p.Notes, "our CoreDNS stays as its owner applied it; to change its image or options: "+change)
		return p.forward(s)
	}
	all, err := objects(manifest.Beside, manifest.Values{Image: p.Image, Runs: s.Beside})
	if err != nil {
		return err
	}
	answers := s.BesideConfig != nil && answersZone(s.BesideConfig.Data["Corefile"], plain53)
	p.Objects = slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
		return answers && o.GetKind() == "ConfigMap" // it has the user's options
	})
	return p.forward(s)
}

// forward has the cluster's DNS forward the zone to our CoreDNS beside it.
func (p *Plan) forward(s *State) error {
	to := s.address()
	if slices.Equal(s.upstreams(&p.Distribution), to) { // its owner has done it
		return nil
	}
	block := fmt.Sprintf(forwardBlock, port(s.Corefile()), strings.Join(to, " "))
	switch p.Distribution.Forward {
	case platform.InCorefile:
		return p.addToCorefile(s, block)
	case platform.InCustom:
		return p.addToCustom(s, begin+block+end)
	}
	p.ByHand = s.fill(p.Distribution.Step, block, to)
	return nil
}

// fill returns a step of the table of platforms for this cluster, with the DNS servers that get the zone.
func (s *State) fill(step, block string, to []string) string {
	return strings.NewReplacer("BLOCK", block, noAddress, strings.Join(to, ", "), "STUBS", s.flags.Step(s.stubs(to))).
		Replace(step)
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
func (s *State) Cache() (*platform.Platform, report.Step) { return s.cacheFor(s.Installed()) }

func (s *State) cacheFor(mode Mode) (*platform.Platform, report.Step) {
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
	if c.Step = s.fill(c.Step, "", to); mode != Beside && strings.Contains(c.Step, noAddress) {
		c.Step, do = "send "+zone+" where it sends the cluster's own domain", report.Step{}
	}
	return c, do
}

// noteCache says how what answers Pods in front of the cluster's DNS gets the zone. kube-dns and the node cache both
// read stubDomains, so the step for kube-dns is enough.
func (p *Plan) noteCache(s *State) {
	if c, _ := s.cacheFor(p.Mode); c != nil && p.Distribution.Step != platform.Stubs {
		p.Notes = append(p.Notes, c.Name+": "+c.Step+"; "+report.DocsNodeLocal)
	}
}

// Uninstall returns what restores the cluster as it was before Install.
func Uninstall(s *State) (_ *Plan, err error) {
	p := &Plan{Distribution: platform.Of(&s.Objects), Mode: s.Installed()}
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
	gaveRights := func(o *unstructured.Unstructured) bool { // Replace bound the role to the cluster's CoreDNS
		return o.GetKind() == "ClusterRoleBinding" && o.GetName() == "clusterset-dns:coredns"
	}
	if anyBlock(text, hasOurPlugin) && (p.Mode != Beside || slices.ContainsFunc(s.Applied, gaveRights)) {
		return nil, report.Fail(s.edit(s.Config.Name)+", and remove the line multicluster or multicluster_external, "+
			"or the server block that is for its zone alone; then run the command again", "the Corefile has a line "+
			"of our plugins that this command did not add, and it needs our image and rights")
	}
	switch p.Mode {
	case Replace:
		p.Objects, err = manifest.Render(manifest.CoreDNS, manifest.Values{Namespace: "clusterset"})
	case Beside:
		err = p.removeBeside(s)
	default:
		p.Objects = s.Applied
	}
	return p, err
}

// removeBeside plans to delete our CoreDNS beside the cluster's DNS, unless others applied it.
func (p *Plan) removeBeside(s *State) error {
	from := p.forwarders(s)
	_, removeAtOwner := s.Owner()
	if len(from) > 0 && removeAtOwner == "" {
		return report.Fail("remove that first; then run the command again",
			"%s is still forwarded to our CoreDNS by %s", zone, strings.Join(from, " and by "))
	}
	if s.Config == nil && s.Operator == nil && p.Distribution.Step != platform.Stubs { // it cannot be read
		from = append(from, "the cluster's DNS")
	}
	if len(from) > 0 {
		p.ByHand = "first remove what forwards " + zone + " from " + strings.Join(from, " and from ")
	}
	if removeAtOwner != "" {
		p.Notes = append(p.Notes, "our CoreDNS stays: "+removeAtOwner)
		return nil
	}
	all, err := manifest.Render(manifest.Beside, manifest.Values{Namespace: "clusterset"})
	p.Objects = append(all, s.Applied...)
	return err
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
