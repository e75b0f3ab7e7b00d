// Package verify proves a ClusterSet with Pods of its own: from one cluster's Pod to the other's, by address, by name
// and by the VIP, for each IP family; or to a Service of the user. It creates a namespace in each cluster and deletes
// it again.
package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/cluster"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/facts"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/manifest"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/controllers/decide/ipam"
	"github.com/clusterset-dns/clusterset-dns/controllers/kube"
)

// Options are the settings of Run.
type Options struct {
	Clusters  []*cluster.Cluster // two at least: members of one ClusterSet, or none of them of any
	Namespace string             // must not exist in any of them
	Image     string             // of the Pods; "" is that of the first cluster's agent
	Timeout   time.Duration      // until the Pods run, and again until everything is imported
	Keep      bool               // do not delete the namespaces
	Say       func(format string, args ...any)
	routes    bool // the Pods get no Services: nobody has joined, or Name has one
}

// place is one cluster under test.
type place struct {
	*cluster.Cluster
	id      string
	created bool // whether this run has created the namespace
	pod     *corev1.Pod
	local   uint16 // port that leads to the Pod
	lost    error  // why the Pod cannot be asked any more, if it cannot
	// reached are the answers through each VIP, by cluster ID, of all attempts: each connection leads to a cluster by
	// chance, so one attempt need not meet all of many.
	reached map[netip.Addr]map[string]int
}

// cleanUp is how long the deletion of the namespaces may take, also after an interrupt.
const cleanUp = time.Minute

// Run returns what it found. An error means that it could not look.
func Run(ctx context.Context, o Options) (all Report, err error) {
	places, set, err := members(ctx, o.Clusters)
	if err != nil {
		return all, err
	}
	o.routes = set == ""
	defer func() {
		if !o.Keep {
			err = all.cleanedUp(&o, err, remove(ctx, &o, places))
		}
	}()
	all = newReport(set, o.Namespace, places)
	if err := o.start(ctx, places); err != nil {
		return all, err
	}
	if !o.routes {
		o.Say("waiting for the imports")
		if all.Findings, err = awaitImports(ctx, &o, places); err != nil {
			return all, err
		}
	}
	for _, p := range places {
		o.Say("asking from %s", p.id)
		rows, err := p.look(ctx, &o, places)
		if err != nil {
			return all, err
		}
		all.Results = append(all.Results, rows...)
	}
	all.conclude(places)
	return all, nil
}

// members returns the clusters with their IDs; if none has joined, those are their contexts and set is "".
func members(ctx context.Context, clusters []*cluster.Cluster) (out []*place, set string, err error) {
	if len(clusters) < 2 {
		return nil, "", report.Fail("--with CONTEXT of another member", "one cluster is too few")
	}
	var none *cluster.Cluster
	unjoined := map[types.UID]*cluster.Cluster{} // by the UID of kube-system
	for _, c := range clusters {
		id, of, err := c.Properties(ctx)
		if err != nil {
			return nil, "", err
		}
		p := &place{Cluster: c, id: cmp.Or(c.Flags.Context, c.Name)}
		if id != nil && of != nil {
			if set != "" && of.Spec.Value != set {
				return nil, "", fmt.Errorf("%s is a member of ClusterSet %s, and another one of %s", c.Name,
					of.Spec.Value, set)
			}
			p.id, set = id.Spec.Value, of.Spec.Value
		} else {
			none = c
			var system corev1.Namespace
			if err := c.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system); err != nil {
				return nil, "", c.Failed(err, "reading namespace kube-system, whose UID identifies the cluster,")
			}
			if other := unjoined[system.UID]; other != nil {
				return nil, "", report.Fail("name each cluster once", "%s and %s lead to one cluster", other.Name,
					c.Name)
			}
			unjoined[system.UID] = c
		}
		if slices.ContainsFunc(out, func(other *place) bool { return p.id == other.id }) {
			return nil, "", report.Fail("name each member once", "%s has the same cluster ID as another one, %s",
				c.Name, p.id)
		}
		out = append(out, p)
	}
	if set != "" && none != nil {
		return nil, "", report.Fail(none.Command(facts.Join), "%s is a member of no ClusterSet, and others are",
			none.Name)
	}
	return out, set, nil
}

// start creates the Pods and waits for them.
func (o *Options) start(ctx context.Context, places []*place) error {
	if o.Image == "" {
		d, err := places[0].Deployment(ctx, manifest.AgentDeployment)
		if err != nil {
			return err
		}
		agent := facts.Container(d)
		if agent == nil {
			return report.Fail("--image IMAGE of clusterset-controller",
				"%s has no agent, whose image the Pods would use", places[0].Name)
		}
		o.Image = agent.Image
	}
	if err := o.create(ctx, places); err != nil {
		return err
	}
	for _, p := range places {
		if err := p.await(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// create creates the namespaces first: agents may create that of an export that they see. The exports go to the
// clusters under test only, unless a list of these would be too long.
func (o *Options) create(ctx context.Context, places []*place) error {
	var ids []string
	for _, p := range places {
		ids = append(ids, "cluster="+p.id)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace, Labels: map[string]string{
			label: "true", "pod-security.kubernetes.io/enforce": "restricted",
		}}}
		if err := p.create(ctx, ns); err != nil {
			return err
		}
		p.created = true
	}
	exportTo, _ := clusterset.ParseExportTo(strings.Join(ids, ",")) // "", which is all clusters, if it is too long
	for _, p := range places {
		o.Say("creating a Pod in namespace %s of %s", o.Namespace, p.id)
		all := objects(o.Namespace, p.id, o.Image, exportTo)
		if o.routes {
			all = all[:1] // without Services
		}
		for _, object := range all {
			if err := p.create(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *place) create(ctx context.Context, object client.Object) error {
	err := p.Create(ctx, object, client.FieldOwner(manifest.FieldManager))
	return p.Failed(err, "creating %s", cluster.Title(object))
}

// remove deletes the namespaces that verify has created, and waits until they are gone. The exports go first, in all
// clusters: an agent may create a namespace again that is gone while another cluster still exports (I12).
func remove(ctx context.Context, o *Options, places []*place) (errs []error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	o.Say("deleting namespace %s", o.Namespace)
	created := slices.DeleteFunc(slices.Clone(places), func(p *place) bool { return !p.created })
	all := []client.Object{
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: vipName}},
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: headlessName}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}},
	}
	if o.routes {
		all = all[2:]
	}
	for _, one := range all {
		failed := make([]error, len(created))
		var stage sync.WaitGroup
		for i, p := range created { // one whose API server hangs does not hold up the others
			stage.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, cleanUp/6)
				defer cancel()
				object := one.DeepCopyObject().(client.Object)
				err := p.Get(ctx, client.ObjectKeyFromObject(object), object)
				if err == nil {
					err = kube.Delete(ctx, p.Client, object)
				}
				failed[i] = p.Failed(client.IgnoreNotFound(err), "deleting %s", cluster.Title(one))
			})
		}
		stage.Wait()
		errs = append(errs, failed...)
	}
	for _, p := range created {
		errs = append(errs, p.NamespaceGone(ctx, o.Namespace, cleanUp))
	}
	return errs
}

// cleanedUp adds errors of remove: to the report as warnings, if it is complete, or else to its error.
func (r *Report) cleanedUp(o *Options, err error, errs []error) error {
	if err != nil {
		return errors.Join(append([]error{err}, errs...)...)
	}
	for _, err := range errs {
		if err != nil {
			r.Findings = append(r.Findings, report.Warningf("kubectl get namespace "+o.Namespace+" -o yaml", "%v", err))
		}
	}
	return nil
}

// await waits until the Pod runs, and opens a port to it until ctx ends.
func (p *place) await(ctx context.Context, o *Options) error {
	name := types.NamespacedName{Namespace: o.Namespace, Name: vipName}
	pod := &corev1.Pod{}
	err := cluster.Until(ctx, o.Timeout, func(ctx context.Context) (bool, string, error) {
		if err := p.Get(ctx, name, pod); err != nil {
			return false, "", err
		}
		return facts.Ready(pod), cmp.Or(facts.Waiting(pod), "phase "+string(pod.Status.Phase)), nil
	})
	switch err = p.Failed(err, "waiting for Pod %s", name); {
	case err != nil && pod.Name != "" && pod.Spec.NodeName == "":
		return report.Fail(p.Command("kubectl describe nodes")+"; --keep to look at the Pod",
			"%w; no node has taken the Pod", err)
	case err != nil:
		return report.WithRemedy(err,
			"--image IMAGE of clusterset-controller that the nodes of "+p.id+" can pull; --keep to look at the Pod")
	}
	p.pod = pod
	if p.local, _, err = cluster.Forward(ctx, p.Config, pod, port); err != nil {
		return p.Failed(err, "port-forward to Pod %s", vipName)
	}
	return nil
}

// awaitImports waits until each cluster imports both Services from all of them. An error means that none will.
func awaitImports(ctx context.Context, o *Options, places []*place) (findings []report.Finding, err error) {
	findings = []report.Finding{} // for JSON
	deadline := time.Now().Add(o.Timeout)
	for _, p := range places {
		for _, name := range []string{vipName, headlessName} {
			var refused error
			look := func(ctx context.Context) (done bool, why string, err error) {
				if refused, err = p.refused(ctx, o.Namespace, name); refused != nil || err != nil {
					return refused != nil, "", err
				}
				imp, err := p.imported(ctx, o.Namespace, name)
				if err == nil {
					why = incomplete(imp, places)
				}
				return err == nil && why == "", why, err
			}
			err := cluster.Until(ctx, max(time.Until(deadline), time.Second), look)
			if refused != nil {
				return findings, refused
			}
			if err != nil {
				findings = append(findings, report.Errorf(p.Command(facts.Doctor),
					"in %s, %s.%s is not imported from all clusters: %v", p.id, name, o.Namespace, err))
			}
		}
	}
	return findings, nil
}

// refused is an error if the agent refuses the export, which it does if the ClusterSet excludes the namespace.
func (p *place) refused(ctx context.Context, namespace, name string) (refused, err error) {
	export, err := kube.Get[*mcsv1beta1.ServiceExport](ctx, p, types.NamespacedName{Namespace: namespace, Name: name})
	if err != nil || export == nil {
		return nil, err
	}
	valid := meta.FindStatusCondition(export.Status.Conditions, string(mcsv1beta1.ServiceExportConditionValid))
	if valid == nil || valid.Status != metav1.ConditionFalse || valid.Reason != "ExcludedNamespace" {
		return nil, nil // the agent may not have seen the Service yet
	}
	return report.Fail("--namespace NAME, of one that the ClusterSet allows and that does not exist yet",
		"%s: ServiceExport %s/%s is not valid: %s", p.Name, namespace, name, valid.Message), nil
}

// incomplete returns what an import lacks; "" for nothing.
func incomplete(imp *mcsv1beta1.ServiceImport, places []*place) string {
	if imp == nil {
		return "there is no ServiceImport"
	}
	var from []string
	for _, c := range imp.Status.Clusters {
		from = append(from, c.Cluster)
	}
	for _, p := range places {
		if !slices.Contains(from, p.id) {
			return fmt.Sprintf("it comes from %s only", strings.Join(from, ", "))
		}
	}
	if !meta.IsStatusConditionTrue(imp.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady)) {
		return "it is not Ready"
	}
	return ""
}

func (p *place) imported(ctx context.Context, namespace, name string) (*mcsv1beta1.ServiceImport, error) {
	return kube.Get[*mcsv1beta1.ServiceImport](ctx, p, types.NamespacedName{Namespace: namespace, Name: name})
}

// addresses returns the Pod's address of each family.
func (p *place) addresses() map[corev1.IPFamily]netip.Addr {
	out := map[corev1.IPFamily]netip.Addr{}
	for _, ip := range p.pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out[ipam.Family(a)] = a
		}
	}
	return out
}

const (
	// settling is how long DNS and kube-proxy may take to follow the imports, or a restart of Pods.
	settling = 20 * time.Second
	// tries is how often each attempt looks up a name, and connects to a VIP: each time another Pod may answer, and
	// one of ten that does not is met.
	tries = 100
)

// look asks from the Pod of one cluster until nothing fails any more, or settling is over.
func (p *place) look(ctx context.Context, o *Options, places []*place) (rows []Result, err error) {
	return settled(ctx, func() ([]Result, bool, error) {
		rows, err := p.ask(ctx, o, places)
		return rows, !slices.ContainsFunc(rows, func(r Result) bool {
			return r.Route != OK || failed(r.Name) || failed(r.VIP)
		}), err
	})
}

// settled asks until nothing fails any more, or settling is over.
func settled[T any](ctx context.Context, ask func() (rows []T, well bool, err error)) (rows []T, err error) {
	_ = wait.PollUntilContextTimeout(ctx, time.Second, settling, true, func(context.Context) (well bool, _ error) {
		rows, well, err = ask()
		return well || err != nil, nil
	})
	return rows, cmp.Or(err, ctx.Err())
}

// ask asks from the Pod of one cluster.
func (p *place) ask(ctx context.Context, o *Options, places []*place) (rows []Result, err error) {
	var imp *mcsv1beta1.ServiceImport
	if !o.routes {
		if imp, err = p.imported(ctx, o.Namespace, vipName); err != nil {
			return nil, p.Failed(err, "reading ServiceImport %s", vipName)
		}
	}
	vips := map[corev1.IPFamily]netip.Addr{}
	if imp != nil {
		for _, text := range imp.Spec.IPs {
			if a, err := netip.ParseAddr(text); err == nil {
				vips[ipam.Family(a)] = a
			}
		}
	}
	zone := "." + o.Namespace + ".svc.clusterset.local."
	var names, pods map[netip.Addr]int
	var nameErr, podsErr error
	if !o.routes {
		nameErr = p.repeat(ctx, "/resolve", vipName+zone, tries, &names)
		podsErr = p.repeat(ctx, "/resolve", headlessName+zone, tries, &pods)
	}
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if _, has := p.addresses()[family]; !has {
			continue
		}
		vip, hasVIP := vips[family]
		var answers map[string]int
		vipErr := error(nil)
		if hasVIP {
			answers, vipErr = p.through(ctx, vip)
		}
		for _, to := range places {
			address, has := to.addresses()[family]
			if !has {
				continue
			}
			r := Result{From: p.id, To: to.id, Family: family, Route: OK, Name: OK, VIP: OK}
			var direct map[string]int
			if err := p.repeat(ctx, "/ask", netip.AddrPortFrom(address, port).String(), 1, &direct); err != nil {
				r.Route = said(err)
			} else if direct[to.id] == 0 {
				r.Route = fmt.Sprintf("another program answers at %s", address)
			}
			switch {
			case o.routes:
				r.Name = None
			case podsErr != nil:
				r.Name = said(podsErr)
			case pods[address] < tries:
				r.Name = missing(address, pods) + " for " + headlessName
			case nameErr != nil:
				r.Name = said(nameErr)
			case hasVIP && names[vip] < tries:
				r.Name = missing(vip, names) + " for " + vipName
			}
			switch {
			case imp == nil || !slices.Contains(imp.Spec.IPFamilies, family):
				r.VIP = None // an exporter does not have the family
			case !hasVIP:
				r.VIP = "the import has no VIP of this family"
			case vipErr != nil:
				r.VIP = said(vipErr)
			case answers[to.id] == 0:
				r.VIP = fmt.Sprintf("%d connections to %s did not reach %s", total(answers), vip, to.id)
			}
			rows = append(rows, r)
		}
	}
	if err := p.gone(ctx); err != nil {
		return nil, err
	}
	return rows, nil
}

// gone is the error if the Pod could not be asked.
func (p *place) gone(ctx context.Context) error {
	if p.lost == nil || ctx.Err() != nil {
		return nil
	}
	return report.WithRemedy(p.Failed(p.lost, "asking Pod %s", vipName), "run the same command again; --image of "+
		"clusterset-controller, one of this program's version")
}

// through connects to a VIP, and returns who has answered there at this or an earlier attempt.
func (p *place) through(ctx context.Context, vip netip.Addr) (map[string]int, error) {
	var answers map[string]int
	err := p.repeat(ctx, "/ask", netip.AddrPortFrom(vip, 80).String(), tries, &answers)
	if p.reached == nil {
		p.reached = map[netip.Addr]map[string]int{}
	}
	if p.reached[vip] == nil {
		p.reached[vip] = map[string]int{}
	}
	for id, n := range answers {
		p.reached[vip][id] += n
	}
	return p.reached[vip], err
}

func total(answers map[string]int) (n int) {
	for _, v := range answers {
		n += v
	}
	return n
}

func said(err error) string { return strings.TrimSpace(err.Error()) }

// missing is what is wrong with the answers that lack an address.
func missing(a netip.Addr, answers map[netip.Addr]int) string {
	return fmt.Sprintf("%s is missing in %d of %d answers", a, tries-answers[a], tries)
}

// repeat has the Pod do something that many times, and returns how often it had which result.
func (p *place) repeat(ctx context.Context, path, to string, times int, into any) error {
	return p.get(ctx, "/v2"+path+"?"+url.Values{"to": {to}, "times": {fmt.Sprint(times)}}.Encode(), into)
}

// get asks the Pod, and decodes its answer. The Pod answers sooner than the timeout, so the request itself fails only
// if the port-forward has ended.
func (p *place) get(ctx context.Context, path string, into any) error {
	if p.lost != nil {
		return p.lost
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", p.local, path),
		nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil { // one stream may break
		resp, err = http.DefaultClient.Do(req)
	}
	if err != nil {
		p.lost = fmt.Errorf("port-forward: %w", err)
		return p.lost
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		p.lost = errors.New("its image is too old")
		return p.lost
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(string(text))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}
