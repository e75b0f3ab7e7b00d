package explain

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/clock"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
)

// problems looks for what keeps the name from doing what a user expects, the first cause first.
func problems(f *Facts, exports []clusterset.Export, refused []Withheld, denied []Problem, outcome Outcome) (out []Problem) {
	add := func(remedy, what string, args ...any) { out = append(out, Problem{fmt.Sprintf(what, args...), remedy}) }
	ns, name := f.Name.Namespace, f.Name.Name
	exported := len(exports)+len(refused) > 0
	switch {
	case f.Set == "" && !f.unread(Membership):
		add("kubectl clusterset join", "this cluster is a member of no clusterset")
	case f.Leaving:
		add("kubectl clusterset leave goes on with it", "this cluster is leaving clusterset %s: its agent deletes what is imported here, and imports nothing more", f.Set)
	case !f.NamespaceThere && !f.unread(Namespace) && exported:
		add("kubectl create namespace "+ns, "this cluster has no namespace %s: what others export from theirs is imported only where the namespace exists (SPEC I1)", ns)
	case f.Import == nil && len(exports) > 0:
		add("kubectl -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50; kubectl clusterset doctor", "%s, and there is no ServiceImport here: the agent of this cluster has not made it", exporting(exports))
	case f.Import == nil && !exported && !f.unread(Records):
		f.notExported(add)
	}
	for _, x := range refused {
		add("use the same version of clusterset-controller in "+x.Cluster+" and here, and of kubectl clusterset", "the export of cluster %s cannot be read here: %s", x.Cluster, x.Why)
	}
	out = append(out, denied...)
	if f.Import != nil {
		for _, c := range f.Import.Status.Conditions {
			if c.Type == string(mcsv1beta1.ServiceImportConditionReady) && c.Status != metav1.ConditionTrue {
				add("see the message; it is tried again until it is so", "the ServiceImport is not Ready (%s): %s", c.Reason, c.Message)
			}
		}
		if !exported && f.Set != "" && !f.Leaving && !f.unread(Records) {
			first, seen := f.asSeen()
			add(first+"kubectl -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50; if another program made it: kubectl -n "+ns+" delete serviceimport "+name,
				"%sno cluster exports it, and yet there is a ServiceImport", seen)
		}
		if outcome == NameError && denied == nil && f.Import.Spec.Type == mcsv1beta1.Headless && len(exports) > 0 {
			add("look at the pods in the clusters that export it", "it is Headless and no endpoint is ready: its name does not exist then (DNS rule N6)")
		}
	}
	f.ownExport(add)
	return out
}

func exporting(exports []clusterset.Export) string {
	var ids []string
	for i := range exports {
		ids = append(ids, exports[i].Cluster)
	}
	if len(ids) == 1 {
		return "cluster " + ids[0] + " exports it"
	}
	return "clusters " + strings.Join(ids, ", ") + " export it"
}

// asSeen limits what is concluded from this cluster's copies, and says what to do first, where its agent does not see the hub: what was
// exported since is not among them.
func (f *Facts) asSeen() (first, seen string) {
	at, old, _ := clock.Seen(f.Leases, f.Now)
	if !old {
		return "", ""
	}
	return "kubectl clusterset doctor; then: ", "as far as this cluster's agent saw the hub, last at " + at.UTC().Format(time.RFC3339) + ", "
}

// notExported tells what is missing where no cluster exports the name.
func (f *Facts) notExported(add func(remedy, what string, args ...any)) {
	ns, name := f.Name.Namespace, f.Name.Name
	first, seen := f.asSeen()
	switch {
	case f.Export != nil: // ownExport says why
	case f.Service != nil && !f.unread(Exports):
		add(first+fmt.Sprintf("kubectl apply -f - <<< '{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, metadata: {namespace: %s, name: %s}}'", ns, name),
			"%sno cluster exports it; this one has a Service %s/%s without a ServiceExport", seen, ns, name)
	default:
		add(first+"create a ServiceExport beside the Service, in the cluster where that is", "%sno cluster exports it", seen)
	}
	for _, other := range f.Alike {
		add("kubectl clusterset explain "+other.Name+"."+other.Namespace, "there is a %s.%s.svc.%s: is that meant?", other.Name, other.Namespace, Zone)
	}
}

// ownExport tells what is wrong with this cluster's share.
func (f *Facts) ownExport(add func(remedy, what string, args ...any)) {
	if f.Export == nil {
		return
	}
	ns, name := f.Name.Namespace, f.Name.Name
	if len(f.Export.Status.Conditions) == 0 && f.Set != "" && !f.Leaving {
		add("kubectl -n clusterset-system logs deployment/clusterset-controller --all-pods --tail=50", "the agent has said nothing of this cluster's ServiceExport")
	}
	for _, c := range f.Export.Status.Conditions {
		switch mcsv1beta1.ServiceExportConditionType(c.Type) {
		case mcsv1beta1.ServiceExportConditionValid:
			if c.Status != metav1.ConditionTrue {
				add("make the Service exportable, or: kubectl -n "+ns+" delete serviceexport "+name, "this cluster's ServiceExport is not valid (%s): %s", c.Reason, c.Message)
			}
		case mcsv1beta1.ServiceExportConditionReady:
			if c.Status != metav1.ConditionTrue {
				add("kubectl clusterset doctor", "this cluster's ServiceExport is not on the hub (%s): %s", c.Reason, c.Message)
			}
		case mcsv1beta1.ServiceExportConditionConflict:
			if c.Status == metav1.ConditionTrue {
				add("make the Services and ServiceExports of all clusters the same, or accept the oldest's", "%s", c.Message)
			}
		}
	}
}
