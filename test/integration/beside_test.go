package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Beside a cluster DNS that is somebody else's, ours answers with what deploy/coredns/beside gives it, and so does a
// DNS that sends the zone there with the block of docs/corefile.md. Without its rights it does not become ready. The
// namespace's policy takes its pods.
func TestBesideAnswersThroughTheClustersDNS(t *testing.T) {
	c := fixtureCluster(t)
	beside := filepath.Join(c.root, "deploy/coredns/beside")
	c.kubectl(t, "", "apply", "-k", beside)
	c.kubectl(t, "", "delete", "clusterrolebinding", "clusterset-dns:coredns-beside")
	pod := c.kubectl(
		t,
		"",
		"-n",
		"clusterset-dns",
		"get",
		"deployment",
		"coredns",
		"-o",
		"jsonpath={.spec.template.spec}",
	)
	c.kubectl(
		t,
		fmt.Sprintf(
			`{"apiVersion": "v1", "kind": "Pod",
				"metadata": {"name": "coredns", "namespace": "clusterset-dns"}, "spec": %s}`,
			pod,
		),
		"create",
		"--dry-run=server",
		"-f",
		"-",
	)

	kubeconfig, err := c.cp.ServiceAccountKubeconfig(t.Context(), "clusterset-dns", "coredns", nil)
	if err != nil {
		t.Fatal(err)
	}
	corefile := c.kubectl(
		t,
		"",
		"-n",
		"clusterset-dns",
		"get",
		"configmap",
		"coredns",
		"-o",
		"jsonpath={.data.Corefile}",
	)
	ours := c.serve(
		t,
		adapted(
			t,
			corefile,
			"clusterset.local:53 {",
			"clusterset.local:0 {\n bind 127.0.0.1",
			"health {",
			"health HEALTH_ADDR {",
			" ready\n",
			" ready READY\n",
			":9153",
			"METRICS",
			"multicluster clusterset.local {",
			"multicluster clusterset.local {\n kubeconfig "+kubeconfig,
		),
	)
	ours.waitForLog(t, "not allowed to list and watch")
	time.Sleep(7 * time.Second) // more than startup_timeout is by default
	if ours.ready(t) {
		t.Error("it is ready without rights: a rollout or a drain would replace Pods that answer")
	}
	c.kubectl(t, "", "apply", "-k", beside)
	eventually(t, "it is ready", func() bool { return ours.ready(t) })
	ours.waitForAnswer(t, web, "A", "10.42.42.42")
	if m := dig(
		t,
		ours.addr,
		question{name: "kubernetes.default.svc.cluster.local.", qtype: "A"},
	); m.Rcode != dns.RcodeRefused {
		t.Errorf("of another zone it says %s", dns.RcodeToString[m.Rcode])
	}

	_, section, _ := strings.Cut(read(t, filepath.Join(c.root, "docs/corefile.md")), "\n## Beyond kubeadm\n")
	_, block, _ := strings.Cut(section, "~~~ corefile\n")
	block, _, _ = strings.Cut(block, "~~~")
	theirs := c.serve(
		t,
		adapted(t, block, "clusterset.local:53 {", "clusterset.local:0 {\n bind 127.0.0.1", "CLUSTERIP", ours.addr),
	)
	theirs.waitForAnswer(t, web, "A", "10.42.42.42")
	for name, rcode := range map[string]int{
		"dns-version.clusterset.local.": dns.RcodeSuccess, "absent.test.svc.clusterset.local.": dns.RcodeNameError,
	} {
		if m := dig(
			t,
			theirs.addr,
			question{name: name, qtype: "TXT"},
		); m.Rcode != rcode ||
			rcode == dns.RcodeSuccess && len(m.Answer) != 1 {
			t.Errorf("%s through the cluster's DNS: %v", name, m)
		}
	}
}

// adapted replaces words of a Corefile. Each of them must be there.
func adapted(t *testing.T, corefile string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(corefile, pairs[i]) {
			t.Fatalf("no %q in the Corefile:\n%s", pairs[i], corefile)
		}
		corefile = strings.ReplaceAll(corefile, pairs[i], pairs[i+1])
	}
	return corefile
}
