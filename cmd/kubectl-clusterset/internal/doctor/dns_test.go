package doctor_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/doctor"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/platform"
	"github.com/clusterset-dns/clusterset-dns/cmd/kubectl-clusterset/internal/report"
)

// edit changes the Corefile, and fails where there is nothing to change.
func edit(old, with string) func(*doctor.Facts) {
	return func(f *doctor.Facts) {
		if !strings.Contains(f.DNSFacts.Corefile, old) {
			panic("no " + old)
		}
		f.DNSFacts.Corefile = strings.ReplaceAll(f.DNSFacts.Corefile, old, with)
	}
}

// image has CoreDNS run one.
func image(name string) func(*doctor.Facts) {
	return func(f *doctor.Facts) { f.DNSFacts.Deployment.Spec.Template.Spec.Containers[0].Image = name }
}

// beside has the zone answered by a CoreDNS beside this one, as docs/corefile.md says.
func beside(f *doctor.Facts) {
	edit("    multicluster clusterset.local\n", "")(f)
	text, err := os.ReadFile("../../../../docs/corefile.md")
	if err != nil {
		panic(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Beyond kubeadm\n")
	_, block, _ := strings.Cut(section, "~~~ corefile\n")
	block, _, found := strings.Cut(block, "~~~")
	if !found || !strings.Contains(block, "CLUSTERIP") {
		panic("docs/corefile.md has no block for a CoreDNS beside the cluster's")
	}
	f.DNSFacts.Corefile += strings.ReplaceAll(block, "CLUSTERIP", "10.96.0.53")
}

// TestACoreDNSThatSendsTheZoneOnNeedsNothingOfOurs: no image with the plugin, and no rights. The same where
// it may do so in what was not looked at.
func TestACoreDNSThatSendsTheZoneOnNeedsNothingOfOurs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*doctor.Facts)
		found  []string
	}{
		"sent on": {beside, nil},
		"maybe sent on": {edit("    multicluster clusterset.local\n", "    import custom/*.override\n"),
			[]string{"corefile", "corefile-stanza"}},
	} {
		f := sound(t)
		c.change(f)
		image("mcr.microsoft.com/oss/kubernetes/coredns:v1.9.4")(f)
		f.DNSFacts.Lacks = []string{"watch serviceimports"}
		r := doctor.Examine(f)
		for _, o := range r.Outcomes {
			if want := slices.Contains(c.found, o.Check); len(o.Findings) > 0 != want {
				t.Errorf("%s: %+v", name, o)
			}
		}
		if report.Count(r.Findings()).Errors > 0 {
			t.Errorf("%s: %v", name, r.Findings())
		}
	}
}

// TestBeforeDNSIsSetUpOneRemedyIsGiven: image, rights and cache are consequences, and what edits the Corefile alone
// would stop a stock image.
func TestBeforeDNSIsSetUpOneRemedyIsGiven(t *testing.T) {
	f := sound(t)
	edit("    multicluster clusterset.local\n", "")(f)
	image("registry.k8s.io/coredns/coredns:v1.12.0")(f)
	f.DNSFacts.Lacks = []string{"watch serviceimports"}
	f.DNSFacts.AskedPods = 1
	f.DNSFacts.Unanswered = []doctor.Unanswered{{Pod: "coredns-a", Why: "answers NXDOMAIN for clusterset.local"}}
	r := doctor.Examine(f)
	all := r.Findings()
	if len(all) != 1 || all[0].Check != "corefile-stanza" || all[0].Remedy != doctor.InstallDNS {
		t.Errorf("%+v", all)
	}
}

var inDNS = []planted{
	{"CoreDNS does not start", "coredns-image", bad, func(f *doctor.Facts) {
		image("registry.k8s.io/coredns/coredns:v1.12.0")(f)
		f.DNSFacts.Pods = []corev1.Pod{waiting("CrashLoopBackOff", "back-off")}
	}, "CoreDNS does not run: pod : CrashLoopBackOff: back-off; by its name, the image " +
		"registry.k8s.io/coredns/coredns:v1.12.0 lacks"},
	{"CoreDNS is scaled to 0", "coredns-image", bad, func(f *doctor.Facts) {
		f.DNSFacts.Deployment.Name, f.DNSFacts.Deployment.Spec.Replicas = "coredns", new(int32)
	}, "no name is answered here: Deployment coredns is scaled to 0"},
	{"CoreDNS is not available", "coredns-image", bad,
		func(f *doctor.Facts) { f.DNSFacts.Deployment.Status.AvailableReplicas = 0 },
		"no replica of CoreDNS is available"},
	{"a replica of CoreDNS is missing", "coredns-image", notice, func(f *doctor.Facts) {
		f.DNSFacts.Deployment.Spec.Replicas, f.DNSFacts.Deployment.Status.Replicas = ptr.To[int32](2), 2
	}, "0 of 2 new replicas are available"},
	{"stock image", "coredns-image", notice, image("registry.k8s.io/coredns/coredns:v1.12.0"), "lacks the plugin"},
	{"Docker's stock image", "coredns-image", notice, image("coredns/coredns@sha256:0"), "lacks the plugin"},
	{"EKS's image", "coredns-image", notice,
		image("602401143452.dkr.ecr.eu-west-1.amazonaws.com/eks/coredns:v1.11.4-eksbuild.2"), "lacks the plugin"},
	{"AKS's image", "coredns-image", notice, image("mcr.microsoft.com/oss/kubernetes/coredns:v1.9.4"),
		"lacks the plugin"},
	{"k3s's image", "coredns-image", notice, image("rancher/mirrored-coredns-coredns:1.12.0"), "lacks the plugin"},
	{"a brace is missing", "corefile", bad, edit("    loadbalance\n}", "    loadbalance\n"), "closing brace"},
	{"two blocks for all", "corefile", bad, func(f *doctor.Facts) { f.DNSFacts.Corefile += ".:53 {\n    errors\n}\n" },
		"two server blocks of the Corefile are for .:53"},
	{"a Pod does not answer", "dns-answers", bad, func(f *doctor.Facts) {
		f.DNSFacts.AskedPods = 2
		f.DNSFacts.Unanswered = []doctor.Unanswered{{Pod: "coredns-a", Why: "answers SERVFAIL for clusterset.local",
			Remedy: "kubectl logs"}}
	}, "Pod coredns-a answers SERVFAIL for clusterset.local"},
	{"many Pods do not answer", "dns-answers", bad, func(f *doctor.Facts) {
		f.DNSFacts.AskedPods = 3
		f.DNSFacts.Unanswered = []doctor.Unanswered{{Pod: "dns-a", Why: "answers NXDOMAIN", Remedy: "kubectl logs"},
			{Pod: "dns-b"}}
	}, "Pod dns-a answers NXDOMAIN; 2 of the 3 DNS Pods do not answer"},
	{"ours beside is down", "coredns-beside", bad, func(f *doctor.Facts) {
		f.DNSFacts.Beside = &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "clusterset-dns", Name: "coredns"},
		}
	}, "Deployment coredns: 0 of 1 new replicas are available"},
	{"the Pods run an earlier Corefile", "dns-answers", bad, func(f *doctor.Facts) {
		edit("    multicluster clusterset.local\n", "    multiclustr clusterset.local\n")(f)
		f.DNSFacts.Pods, f.DNSFacts.AskedPods = make([]corev1.Pod, 1), 1
	}, doctor.Earlier},
	{"no block for the zone", "corefile", bad, edit(".:53 {", "cluster.local:53 {"), "no server block"},
	{"a part is elsewhere", "corefile", notice, edit("    loadbalance\n",
		"    loadbalance\n    import custom/*.override\n"), "custom/*.override"},
	{"no stanza", "corefile-stanza", bad, edit("    multicluster clusterset.local\n", ""),
		"nothing in the server block"},
	{"a mistyped stanza", "corefile-stanza", bad, edit("    multicluster clusterset.local\n",
		"    multiclutser clusterset.local\n"), "has a line multiclutser, which is no plugin"},
	{"no stanza, and all else is sent on", "corefile-stanza", bad, edit("    multicluster clusterset.local\n",
		"    forward clusterset.example 10.0.0.1\n"), "nothing in the server block .:53 of the Corefile answers"},
	{"the zone is sent on, and answers beyond their TTL", "corefile-cache", bad,
		func(f *doctor.Facts) { beside(f); edit("denial 9984 1", "denial 9984 1\n        serve_stale")(f) },
		"stale answers"},
	{"the zone is sent on, and the stock image cannot read a line", "coredns-image", notice, func(f *doctor.Facts) {
		edit("    loadbalance\n}", "}\nclusterset.local:53 {\n    forward . 10.96.0.53\n}\n")(f)
		image("registry.k8s.io/coredns/coredns:v1.12.0")(f)
	}, "lacks the plugin"},
	{"stanza for another zone", "corefile-stanza", bad, edit("    multicluster clusterset.local\n",
		"    multicluster clusterset.example\n"), "not for clusterset.local"},
	{"stanza in a block that is not asked", "corefile-stanza", bad, edit("    loadbalance\n}",
		"}\nclusterset.local:53 {\n    forward . 10.0.0.1\n}\n"), "in a server block that gets no question"},
	{"the in-tree option", "corefile-stanza", bad, func(f *doctor.Facts) {
		edit("    multicluster clusterset.local\n", "")(f)
		edit("pods insecure", "pods insecure\n       multicluster clusterset.local")(f)
	}, "the option multicluster of the plugin kubernetes answers"},
	{"no stanza, and a part is elsewhere", "corefile-stanza", notice, edit("    multicluster clusterset.local\n",
		"    import custom/*.override\n"), "nothing in the server block .:53 of the Corefile answers clusterset.local"},
	{"another block, and a part is elsewhere", "corefile-stanza", notice,
		edit("    loadbalance\n}", "}\nimport custom/*.server\nclusterset.local:53 {\n    forward . 10.0.0.1\n}\n"),
		"unless it is in custom/*.server"},
	{"no block, and a part is elsewhere", "corefile-stanza", notice, edit(".:53 {",
		"import custom/*.server\ncluster.local:53 {"),
		"no server block of the Corefile is for clusterset.local, unless"},
	{"both", "corefile-zone", notice, edit("pods insecure", "pods insecure\n       multicluster clusterset.local"),
		"as well"},
	{"the zone on the line kubernetes, beside ours", "corefile-zone", notice,
		edit("kubernetes cluster.local", "kubernetes clusterset.local cluster.local"), "it is not asked"},
	{"the zone on the line kubernetes", "corefile-zone", bad, func(f *doctor.Facts) {
		edit("    multicluster clusterset.local\n", "")(f)
		edit("kubernetes cluster.local", "kubernetes clusterset.local cluster.local")(f)
	}, "answers it with this cluster's own Services"},
	{"a template for all", "corefile-zone", notice, edit("    ready\n",
		"    ready\n    template ANY ANY {\n        rcode NXDOMAIN\n    }\n"), "template ANY ANY"},
	{"a template for a zone above", "corefile-zone", notice, edit("    ready\n",
		"    ready\n    template ANY ANY local {\n        rcode NXDOMAIN\n    }\n"), "template ANY ANY local"},
	{"a name in hosts", "corefile-zone", notice, edit("    ready\n",
		"    ready\n    hosts {\n        10.0.0.1 web.shop.svc.clusterset.local\n    }\n"), "hosts"},
	{"noendpoints", "corefile-options", bad, edit("multicluster clusterset.local\n",
		"multicluster clusterset.local {\n        noendpoints\n    }\n"), "Headless"},
	{"a namespace is left out", "corefile-options", notice, edit("multicluster clusterset.local\n",
		"multicluster clusterset.local {\n        namespaces other\n    }\n"), "namespace shop"},
	{"an unknown option", "corefile-unknown", bad, edit("multicluster clusterset.local\n",
		"multicluster clusterset.local {\n        prefere local west\n    }\n"), "has no option prefere"},
	{"a long ttl", "corefile-options", notice, edit("multicluster clusterset.local\n",
		"multicluster clusterset.local {\n        ttl 600\n    }\n"), "600 s"},
	{"no reload", "corefile-reload", notice, edit("    reload\n", ""), "no reload"},
	{"CoreDNS lacks rights", "coredns-rights", bad,
		func(f *doctor.Facts) { f.DNSFacts.Lacks = []string{"watch serviceimports"} }, "watch serviceimports"},
	{"NodeLocal sends it upstream", "node-cache", bad, func(f *doctor.Facts) {
		f.DNSFacts.NodeCache = &platform.Platform{Name: "NodeLocal DNS", Step: "add a server block"}
	}, "NodeLocal DNS does not forward clusterset.local"},
	{"LocalDNS of AKS", "node-cache", notice, func(f *doctor.Facts) {
		f.DNSFacts.NodeCache = &platform.Platform{Name: platform.LocalDNS, Step: "give every node pool a block"}
	}, "for up to an hour"},
}

// TestTheOptionsOfThePluginAreKnown: its man page lists all, as its own test checks.
func TestTheOptionsOfThePluginAreKnown(t *testing.T) {
	page, err := os.ReadFile("../../../../plugin/multicluster/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, all, _ := strings.Cut(string(page), "multicluster [ZONES...] {\n")
	all, _, _ = strings.Cut(all, "\n}")
	f := sound(t)
	edit("multicluster clusterset.local\n", "multicluster clusterset.local {\n"+all+"\n}\n")(f)
	examined := doctor.Examine(f)
	for _, found := range examined.Outcomes {
		if found.Check == "corefile-unknown" && len(found.Findings) > 0 || strings.Count(all, "\n") < 10 {
			t.Errorf("%v", found.Findings)
		}
	}
}

// TestWhatTheCorefileMayHave is no finding.
func TestWhatTheCorefileMayHave(t *testing.T) {
	for name, change := range map[string]func(*doctor.Facts){
		"namespaces in two lines": edit("multicluster clusterset.local\n",
			"multicluster clusterset.local {\n        namespaces other\n        namespaces shop\n    }\n"),
		"a template for another zone": edit("    ready\n",
			"    ready\n    template ANY ANY example.org {\n        rcode NXDOMAIN\n    }\n"),
		"a brace of its own": edit(".:53 {", ".:53\n{"),
	} {
		f := sound(t)
		change(f)
		for _, o := range doctor.Examine(f).Outcomes {
			if len(o.Findings) > 0 {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
}
