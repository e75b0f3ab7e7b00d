package explain_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/explain"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/snapshot"
	hubv1alpha1 "github.com/clusterset-dns/clusterset-dns/controllers/api/hub/v1alpha1"
)

// TestANameThatTheCorefileHidesDoesNotExist: an import is no answer where CoreDNS is not told to serve it.
func TestANameThatTheCorefileHidesDoesNotExist(t *testing.T) {
	for name, c := range map[string]struct {
		corefile string
		headless bool
		problem  string // "": it answers
		unsure   string // "": it is known
	}{
		"served":         {".:53 {\n multicluster\n}", false, "", ""},
		"served by name": {".:53 {\n multicluster other.zone Clusterset.Local.\n}", false, "", ""},
		"no stanza":      {".:53 {\n kubernetes cluster.local\n}", false, "nothing in its Corefile", ""},
		"no stanza, no block": {"cluster.local:53 {\n multicluster\n}", false, "in a server block that gets no " +
			"question", ""},
		"another zone": {".:53 {\n multicluster local\n}", false, "not for this zone", ""},
		"in a block unasked": {".:53 {\n multicluster\n}\nclusterset.local:53 {\n whoami\n}", false,
			"in a server block that gets no question", ""},
		"sent on": {".:53 {\n forward . /etc/resolv.conf\n}\nclusterset.local:53 {\n forward . " +
			"10.0.0.1 10.0.0.2\n}", false, "", "forwards clusterset.local to 10.0.0.1 10.0.0.2, which was not checked"},
		"sent on, not by ours": {".:53 {\n multicluster\n}\nclusterset.local:53 {\n forward . 10.0.0.1\n}", false,
			"", "forwards clusterset.local to 10.0.0.1"},
		"sent on, import": {"clusterset.local:53 {\n forward . 10.0.0.1\n}\nimport custom/*.server", false,
			"", "forwards clusterset.local to 10.0.0.1"},
		"all is sent on": {".:53 {\n kubernetes cluster.local\n forward . /etc/resolv.conf\n}", false,
			"nothing in its Corefile", ""},
		"served, rest sent on": {"clusterset.local:53 {\n multicluster\n forward . 10.0.0.1\n}", false, "", ""},
		"the in-tree option first": {"clusterset.local:53 {\n kubernetes {\n multicluster clusterset.local\n}\n " +
			"forward . 10.0.0.1\n}", false, "", "only in part"},
		"no stanza, import": {".:53 {\n import custom/*.override\n}", false, "",
			"custom/*.override, which was not checked"},
		"the in-tree option": {".:53 {\n kubernetes cluster.local {\n multicluster clusterset.local\n}\n}",
			false, "", "only in part"},
		"namespaces": {".:53 {\n multicluster {\n namespaces other\n}\n}", false,
			"the Corefile hides names of shop: its option namespaces has other", ""},
		"namespaces, two lines": {".:53 {\n multicluster {\n namespaces other\n namespaces shop\n}\n}", false, "",
			""},
		"noendpoints":             {".:53 {\n multicluster {\n noendpoints\n}\n}", true, "noendpoints", ""},
		"noendpoints, with a VIP": {".:53 {\n multicluster {\n noendpoints\n}\n}", false, "", ""},
		"labels": {".:53 {\n multicluster {\n labels a=b\n}\n}", false, "",
			"the Corefile has labels a=b"},
		"namespace_labels": {".:53 {\n multicluster {\n namespace_labels a=b\n}\n}", false, "",
			"the Corefile has namespace_labels a=b"},
		"max_endpoints": {".:53 {\n multicluster {\n max_endpoints 2\n}\n}", true, "",
			"the Corefile has max_endpoints 2"},
		"max_endpoints and a VIP": {".:53 {\n multicluster {\n max_endpoints 2\n}\n}", false, "", ""},
		"not to be parsed":        {".:53 {\n multicluster\n", false, "", "does not parse"},
	} {
		t.Run(name, func(t *testing.T) {
			f := member()
			if c.headless {
				headless(f)
			}
			f.Corefile = c.corefile + "\n"
			r := f.explain()
			if answers := r.Outcome == explain.Success && len(r.Answers) > 0; answers != (c.problem == "") {
				t.Errorf("outcome %s, answers %v", r.Outcome, r.Answers)
			}
			if problem := len(r.Findings) == 1 && strings.Contains(r.Findings[0].What,
				c.problem); c.unsure == "" && (problem != (c.problem != "") || len(r.Findings) > 1) {
				t.Errorf("problems %+v, want %q", r.Findings, c.problem)
			}
			if got := strings.Join(r.Unsure, "\n"); (got == "") != (c.unsure == "") ||
				!strings.Contains(got, c.unsure) {
				t.Errorf("unsure: %q, want %q", got, c.unsure)
			}
			if said := strings.Contains(text(&r), "? as far as known: "); said != (c.unsure != "") {
				t.Errorf("printed:\n%s", text(&r))
			}
		})
	}
}

// TestWhatDNSAnswersWithoutTheCorefileIsAnswered: Pods may run an earlier one, and the agent asks them.
func TestWhatDNSAnswersWithoutTheCorefileIsAnswered(t *testing.T) {
	f := member()
	f.Lacks = []snapshot.Part{snapshot.Agent, snapshot.Drift, snapshot.Secret}
	f.Corefile = ".:53 {\n kubernetes cluster.local\n}\n"
	f.Membership.Status.Conditions = []metav1.Condition{{Type: hubv1alpha1.ConditionDNSAnswers, Status: "True"}}
	r := f.explain()
	if r.Outcome != explain.Success || len(r.Findings) > 0 || !strings.Contains(text(&r), "? as far as known: nothing "+
		"in the Corefile is for clusterset.local, which the cluster's DNS answered when the agent asked last") {
		t.Errorf("%s", text(&r))
	}
}

// TestACorefileThatIsNotReadIsSaid: who may not read it is told what the import says, and that this is all.
func TestACorefileThatIsNotReadIsSaid(t *testing.T) {
	f := member()
	f.Lacks = append(f.Lacks, snapshot.Corefile)
	r := f.explain()
	if r.Outcome != explain.Success || len(r.Findings) > 0 || !strings.Contains(text(&r),
		"? as far as known: reading this cluster's Corefile failed: forbidden") {
		t.Errorf("%s", text(&r))
	}
	gone(f)
	if r := f.explain(); len(r.Unsure) > 0 {
		t.Errorf("without an import it does not exist, whatever the Corefile says: %v", r.Unsure)
	}
}
