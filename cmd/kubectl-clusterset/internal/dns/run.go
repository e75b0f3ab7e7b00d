package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	miekg "github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Runner carries out a Plan in a cluster.
type Runner struct {
	*cluster.Cluster
	Ask     Asker
	Confirm io.Reader // the user's answer; nil to go on without it
	Out     io.Writer // for the diff
	Say     cluster.Say
	DryRun  cluster.DryRun
	Wait    bool // for rollouts and answers; without it, nothing is verified or rolled back
	Timeout time.Duration
}

// Install installs our CoreDNS. If the new configuration does not answer within Timeout, Install restores what was.
func (r *Runner) Install(ctx context.Context, w Wanted) error {
	install := func(s *State) (*Plan, error) { return Install(s, w) }
	s, p, err := r.plan(ctx, install)
	if err != nil {
		return err
	}
	r.Say("%s: DNS of %s (%s): --%s with image %s", r.Name, p.Distribution.Name, p.Distribution.Evidence, p.Mode,
		p.Image)
	announced := p.Notes
	if done, err := r.announce(ctx, s, p, "apply"); done || err != nil {
		return err
	}
	if len(p.Objects) > 0 { // else others'
		r.Say("%s: applying what our CoreDNS needs", r.Name)
		if err := r.Apply(ctx, p.Objects, r.Say); err != nil {
			return err
		}
	}
	if p.Mode == Beside { // only now a first install has an address: plan again, with it in place of CLUSTERIP
		before := s
		if s, p, err = r.plan(ctx, install); err == nil && r.Wait {
			err = r.besideRuns(ctx, before, s, p)
		}
		if err != nil {
			return err
		}
	}
	if done, err := r.carryOut(ctx, s, p); err != nil {
		return r.rollBack(ctx, s, p, done, err)
	}
	for _, note := range p.Notes {
		if !slices.Contains(announced, note) { // it has the address
			report.Note(r.Out, "!", note, "")
		}
	}
	if p.ByHand != "" && !r.done(ctx, s) {
		state := "is applied, and was not waited for"
		if r.Wait {
			state = "runs"
		}
		fmt.Fprintf(r.Out, "\nOur CoreDNS %s. One step is yours: %s\n", state, p.ByHand)
		return nil
	}
	if r.Wait {
		r.Say("%s: %s is answered", r.Name, zone)
	}
	r.Say("next: %s", r.Command("kubectl clusterset verify --with OTHER"))
	return nil
}

// carryOut changes the cluster's DNS, and waits until it answers. It returns what it changed, also if it fails.
func (r *Runner) carryOut(ctx context.Context, s *State, p *Plan) (done []*Change, err error) {
	if c := p.Deployment; c != nil {
		r.Say("%s: changing the image of the cluster's DNS", r.Name)
		if err = r.change(ctx, c); err != nil {
			return nil, err
		}
		done = append(done, c)
	}
	// An earlier run may have changed the image. A Corefile that has our block already may be what stops the new Pods.
	if p.Mode == Replace && r.Wait && len(p.changes()) > 0 && !hasOurBlock(s.Imported()) {
		if err = r.rollout(ctx, s.Deployment, s.Deployment.Status.AvailableReplicas); err != nil {
			return done, err
		}
	}
	for _, c := range p.Forward {
		r.Say("%s: changing the configuration of the cluster's DNS", r.Name)
		if err = r.change(ctx, c); err != nil {
			return done, err
		}
		done = append(done, c)
	}
	if err = r.restart(ctx, s, p); err == nil && r.Wait && p.ByHand == "" {
		err = r.effective(ctx, s, p, true)
	}
	return done, err
}

// done reports whether a step by hand is done: the cluster's DNS answers.
func (r *Runner) done(ctx context.Context, s *State) bool {
	namespace, selector, port := s.servers()
	if !r.Wait || selector == nil { // DNS runs elsewhere
		return false
	}
	done, _, err := r.askAll(ctx, namespace, selector, port, "", true)
	return err == nil && done
}

// applied returns what this program applied, for either mode, and still exists.
func (r *Runner) applied(ctx context.Context) (out []*unstructured.Unstructured, err error) {
	for _, folder := range []string{manifest.Beside, manifest.CoreDNS} {
		all, err := manifest.Render(folder, manifest.Values{Namespace: "clusterset"})
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			err := r.Get(ctx, client.ObjectKeyFromObject(o), o)
			if client.IgnoreNotFound(err) != nil {
				return nil, r.Failed(err, "reading %s", cluster.Title(o))
			}
			if err == nil && manifest.Ours(o) {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// spare omits from a plan what it would delete twice, and ClusterRoles that a binding needs which stays.
func (r *Runner) spare(ctx context.Context, p *Plan) error {
	var bindings rbacv1.ClusterRoleBindingList
	if err := r.List(ctx, &bindings); err != nil {
		return r.Failed(err, "listing ClusterRoleBindings")
	}
	seen, needed := map[string]bool{}, map[string]bool{}
	for _, o := range p.Objects {
		seen[cluster.Title(o)] = true
	}
	for i := range bindings.Items {
		if b := &bindings.Items[i]; !seen["ClusterRoleBinding "+b.Name] {
			needed[b.RoleRef.Kind+" "+b.RoleRef.Name] = true
		}
	}
	p.Objects = slices.DeleteFunc(p.Objects, func(o *unstructured.Unstructured) bool {
		title := cluster.Title(o)
		twice := !seen[title]
		delete(seen, title)
		return twice || needed[title]
	})
	return nil
}

// Uninstall restores the cluster's DNS, and deletes what Install applied except the CRDs.
func (r *Runner) Uninstall(ctx context.Context) error {
	s, p, err := r.plan(ctx, func(s *State) (_ *Plan, err error) {
		if s.Applied, err = r.applied(ctx); err != nil {
			return nil, err
		}
		p, err := Uninstall(s)
		if err != nil {
			return nil, err
		}
		return p, r.spare(ctx, p)
	})
	if err != nil {
		return err
	}
	if len(p.changes()) == 0 && len(p.Objects) == 0 {
		if p.Mode == "" {
			r.Say("%s: our CoreDNS is not installed", r.Name)
		}
		return p.Print(r.Out, "delete") // what is left to others
	}
	if _, set, err := r.Properties(ctx); err == nil && set != nil {
		r.Say("%s: it stays a member of ClusterSet %s, and its Pods will not resolve %s", r.Name, set.Spec.Value, zone)
	}
	if done, err := r.announce(ctx, s, p, "delete"); done || err != nil {
		return err
	}
	if p.Forward != nil {
		r.Say("%s: restoring the configuration of the cluster's DNS", r.Name)
		for _, c := range p.Forward {
			if err := r.change(ctx, c); err != nil {
				return err
			}
		}
		if err := r.restart(ctx, s, p); err != nil {
			return err
		}
	}
	if r.Wait && p.ends(s) {
		if err := r.effective(ctx, s, p, false); err != nil {
			return err
		}
	}
	if p.Deployment != nil {
		if s.Running() != "" { // else only its mark goes
			r.Say("%s: restoring the image of the cluster's DNS", r.Name)
		}
		if err := r.change(ctx, p.Deployment); err != nil {
			return err
		}
		if r.Wait {
			if err := r.rollout(ctx, s.Deployment, s.Deployment.Status.AvailableReplicas); err != nil {
				return err
			}
		}
	}
	if err := r.Remove(ctx, p.Objects); err != nil {
		return err
	}
	if p.Mode != Replace && r.Wait && len(p.Objects) > 0 { // until it is gone, an install is refused
		if err := r.NamespaceGone(ctx, besideNamespace, r.Timeout); err != nil {
			return err
		}
	}
	if len(p.Objects) == 0 { // others'
		r.Say("%s: the cluster's DNS no longer forwards %s", r.Name, zone)
		return nil
	}
	r.Say("%s: our CoreDNS and what dns install changed are removed", r.Name)
	return nil
}

// plan reads the State and plans.
func (r *Runner) plan(ctx context.Context, decide func(*State) (*Plan, error)) (*State, *Plan, error) {
	s, err := Read(ctx, r.Cluster)
	if err != nil {
		return nil, nil, err
	}
	s.flags = r.Flags
	p, err := decide(s)
	return s, p, err
}

// announce prints what will change, checks the rights for it, and asks. done is true if a dry run ends here.
func (r *Runner) announce(ctx context.Context, s *State, p *Plan, verb string) (done bool, err error) {
	if err := p.Print(r.Out, verb); err != nil {
		return false, err
	}
	if r.DryRun == cluster.DryRunClient {
		return true, nil
	}
	needed := p.writes(s, verb)
	if r.Wait {
		needed.Rights = append(needed.Rights, p.asks(s, verb)...)
	}
	if err := r.Allowed(ctx, "", needed); err != nil {
		return false, err
	}
	return false, cluster.Confirm(ctx, r.Confirm, r.Out)
}

// writes returns what a plan needs rights to.
func (p *Plan) writes(s *State, verb string) cluster.Writes {
	w := cluster.Writes{Apply: p.Objects}
	if verb == "delete" {
		w = cluster.Writes{Delete: p.Objects}
	}
	for _, c := range p.changes() {
		does := "patch"
		if c.Before == nil {
			does = "create"
		}
		w.Rights = append(w.Rights, cluster.RightTo(does, c.After))
	}
	if p.Restart {
		w.Rights = append(w.Rights, cluster.RightTo("patch", s.Deployment))
	}
	return w
}

// asks returns the rights to ask the Pods that must answer before a plan is carried out.
func (p *Plan) asks(s *State, verb string) (out []cluster.Right) {
	to := cluster.Right{Verb: "create", Resource: "pods", Subresource: "portforward", Namespace: besideNamespace}
	install := verb == "apply"
	if install && p.Mode == Beside {
		out = append(out, to)
	}
	namespace, selector, _ := s.servers()
	to.Namespace = namespace
	if selector != nil && (p.Forward != nil || install && p.ByHand == "" || !install && p.ends(s)) {
		out = append(out, to)
	}
	return out
}

// ends reports whether the cluster's DNS is to stop answering for the zone when our CoreDNS goes: nothing else answers
// then. An earlier run may have changed the configuration.
func (p *Plan) ends(s *State) bool {
	return p.Forward != nil || p.Mode == Replace ||
		p.Mode == Beside && !servesZone(s.Imported()) && len(s.upstreams(&p.Distribution)) == 0
}

// object returns After, or Before if there is none.
func (c *Change) object() client.Object {
	if c.After != nil {
		return c.After
	}
	return c.Before
}

// change writes a change. Of a ConfigMap, it fails if somebody else has changed it since it was read.
func (r *Runner) change(ctx context.Context, c *Change) error {
	owner := client.FieldOwner(manifest.FieldManager)
	var err error
	switch before, after := c.Before, c.After; {
	case before == nil:
		err = r.Create(ctx, after, owner)
	case after == nil:
		err = kube.DeleteUnchanged(ctx, r.Client, before)
	default:
		o, patch := after.DeepCopyObject().(client.Object), client.StrategicMergeFrom(before)
		_, locked := o.(*corev1.ConfigMap)
		if locked {
			patch = kube.Changes(before)
		}
		if err = r.Patch(ctx, o, patch, owner); err == nil && locked { // a rollback asks for this version
			after.SetResourceVersion(o.GetResourceVersion())
		}
	}
	return r.Failed(err, "changing %s", cluster.Title(c.object()))
}

// rollBack undoes changes, the last one first, also if ctx has ended, and returns why. What others changed meanwhile
// stays; a Corefile that they changed cannot be restored.
func (r *Runner) rollBack(ctx context.Context, s *State, p *Plan, undo []*Change, why error) error {
	remedy := r.logsAt(s)
	switch {
	case apierrors.IsConflict(why):
		remedy = "another program changed it at the same time: find out which"
	case facts.NoImage(why.Error()) || errors.Is(why, errRollout) && p.Mode == Replace:
		remedy = chooseImage(why)
	}
	remedy += "; then run the command again"
	if len(undo) == 0 {
		return report.WithRemedy(why, remedy)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	r.Say("%s: rolling back: %v", r.Name, why)
	for _, c := range slices.Backward(undo) {
		err := r.change(ctx, &Change{c.After, c.Before})
		if err == nil && c != p.Deployment {
			err = r.restart(ctx, s, p)
		}
		if err != nil { // the other changes stay: a stock CoreDNS does not start with our block
			return errors.Join(why, report.WithRemedy(fmt.Errorf("rolling back: %w", err), r.Command(uninstall)))
		}
	}
	return report.Fail(remedy, "%w; the previous configuration of the cluster's DNS was restored", why)
}

// chooseImage is the remedy for an image that does not run, if its Pods are gone.
func chooseImage(why error) string {
	if facts.NoImage(why.Error()) {
		return "choose an --image that the nodes can pull; " + report.DocsImages
	}
	return "check that --image is our CoreDNS, and that its Pods can be scheduled"
}

// logsAt returns commands that show why our CoreDNS does not answer.
func (r *Runner) logsAt(s *State) string {
	const grep = " | grep -iE 'reload|error' | tail -n 5; if CoreDNS refuses the Corefile, it says why there"
	out := r.Command("kubectl -n " + kubeSystem + " get events")
	switch {
	case s.Operator != nil:
		out = r.Command("kubectl -n openshift-dns logs daemonset/dns-default") + grep
	case s.Deployment != nil:
		out = r.Command("kubectl -n "+s.Deployment.Namespace+" logs deployment/"+s.Deployment.Name) + grep
	}
	if s.Beside != nil {
		out = r.besideLogs() + "; " + out
	}
	return out
}

// besideLogs returns a command that shows why Pods of our own Deployment do not become ready. The plugin ready writes a
// line for each probe.
func (r *Runner) besideLogs() string {
	const selector = "app.kubernetes.io/name=clusterset-coredns"
	return r.Command("kubectl -n "+besideNamespace+" logs --prefix --tail=-1 -l "+selector) + " | grep -v plugin/ready"
}

// besideRuns waits until our own Deployment answers. If it does not, it gets back the image that it had before.
func (r *Runner) besideRuns(ctx context.Context, before, s *State, p *Plan) error {
	available := int32(math.MaxInt32) // all, unless some were before
	if b := before.Beside; b != nil && b.Status.AvailableReplicas > 0 {
		available = b.Status.AvailableReplicas
	}
	err := r.rollout(ctx, s.Beside, available)
	if err == nil {
		var selector labels.Selector
		if selector, err = metav1.LabelSelectorAsSelector(s.Beside.Spec.Selector); err == nil {
			err = r.ask(ctx, s.Beside.Namespace, selector, tcpPort(s.Beside), "", true)
		}
	}
	if err == nil {
		return nil
	}
	if old := before.Running(); old != "" && old != p.Image {
		return r.takeBack(ctx, before, p.Image, err)
	}
	remedy := "the cluster's DNS was not changed; " + r.Command("kubectl -n "+besideNamespace+" describe pods") + "; " +
		r.besideLogs()
	if change, _ := s.Owner(); change != "" {
		remedy += "; if it lacks a right or an object: " + change
	}
	return report.WithRemedy(err, remedy)
}

// takeBack gives our own Deployment the image that it had before this one, and returns why with a remedy.
func (r *Runner) takeBack(ctx context.Context, before *State, image string, why error) error {
	why = report.WithRemedy(why, chooseImage(why)+"; then run the command again")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	failed := before.Beside.DeepCopy()
	failed.Spec.Template.Spec.Containers[0].Image = image
	if err := r.change(ctx, &Change{failed, before.Beside}); err != nil {
		return errors.Join(why, fmt.Errorf("rolling back: %w", err))
	}
	r.Say("%s: rolled back: our CoreDNS has image %s again", r.Name, before.Running())
	return why
}

// restart restarts the cluster's CoreDNS if a plan says so, as kubectl rollout restart does.
func (r *Runner) restart(ctx context.Context, s *State, p *Plan) error {
	if !p.Restart {
		return nil
	}
	d := s.Deployment.DeepCopy()
	metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, "kubectl.kubernetes.io/restartedAt",
		time.Now().Format(time.RFC3339Nano))
	err := r.Patch(ctx, d, client.StrategicMergeFrom(s.Deployment), client.FieldOwner(manifest.FieldManager))
	return r.Failed(err, "restarting Deployment %s", d.Name)
}

var errRollout = errors.New("the rollout does not end")

// rollout waits until all replicas of a Deployment are new, and so many of them available, but one at least. As many as
// before are enough: a replica may have no node.
func (r *Runner) rollout(ctx context.Context, d *appsv1.Deployment, available int32) error {
	err := r.AwaitRollout(ctx, client.ObjectKeyFromObject(d), max(1, available), r.Timeout, r.Say)
	if err != nil {
		err = fmt.Errorf("%w: %w", errRollout, err)
	}
	return r.Failed(err, "changing Deployment %s/%s", d.Namespace, d.Name)
}

// effective waits for the restart of the cluster's CoreDNS, if there is one, and until every Pod of it answers for the
// zone, or, without want, until none does. All must answer for the cluster's own names.
func (r *Runner) effective(ctx context.Context, s *State, p *Plan, want bool) error {
	if p.Restart {
		if err := r.rollout(ctx, s.Deployment, s.Deployment.Status.AvailableReplicas); err != nil {
			return err
		}
	}
	namespace, selector, port := s.servers()
	if selector == nil {
		return nil
	}
	err := r.ask(ctx, namespace, selector, port, domain(s.Corefile()), want)
	if err == nil && want && s.Deployment != nil { // a Pod that is not ready was not asked
		err = r.AwaitRollout(ctx, client.ObjectKeyFromObject(s.Deployment), s.Deployment.Status.AvailableReplicas,
			r.Timeout, r.Say)
	}
	return err
}

// ask waits until all ready Pods answer as wanted, for the domain as well if it is not "".
func (r *Runner) ask(ctx context.Context, namespace string, selector labels.Selector, port int32, domain string,
	want bool) error {
	r.Say("%s: asking the Pods in %s for %s; a changed configuration takes up to two minutes", r.Name, namespace, zone)
	err := cluster.Until(ctx, r.Timeout, func(ctx context.Context) (bool, string, error) {
		return r.askAll(ctx, namespace, selector, port, domain, want)
	})
	return r.Failed(err, "asking for %s", zone)
}

// askAll asks all ready Pods once, and returns whether they answer as wanted, or why they do not.
func (r *Runner) askAll(ctx context.Context, namespace string, selector labels.Selector, port int32, domain string,
	want bool) (done bool, why string, err error) {
	pods, err := r.Pods(ctx, namespace, selector)
	if err != nil {
		return false, "", err
	}
	asked := 0
	for i := range pods {
		if p := &pods[i]; facts.Ready(p) {
			asked++
			if why := r.askPod(ctx, p, port, domain, want); why != "" {
				return false, "Pod " + p.Name + " " + why, nil
			}
		}
	}
	return asked > 0 || !want, "no Pod is ready", nil
}

// askPod returns what a Pod does instead of answering as wanted, or "". It answers dns-version when it has its lists,
// and the apex while it has the zone (L1).
func (r *Runner) askPod(ctx context.Context, p *corev1.Pod, port int32, domain string, want bool) string {
	question := new(miekg.Msg).SetQuestion(zone+".", miekg.TypeSOA)
	if want {
		question.SetQuestion("dns-version."+zone+".", miekg.TypeTXT)
	}
	answer, err := r.Ask(ctx, p, port, question)
	switch got := err == nil && len(answer.Answer) > 0; {
	case err != nil:
		return err.Error()
	case got != want && want:
		return fmt.Sprintf("answers %s for %s", miekg.RcodeToString[answer.Rcode], zone)
	case got != want:
		return "still answers for " + zone
	}
	if domain == "" {
		return ""
	}
	own, err := r.Ask(ctx, p, port, new(miekg.Msg).SetQuestion("kubernetes.default.svc."+domain+".", miekg.TypeA))
	if err != nil {
		return err.Error()
	}
	if own.Rcode != miekg.RcodeSuccess {
		return fmt.Sprintf("answers %s for the cluster's own names", miekg.RcodeToString[own.Rcode])
	}
	return ""
}
