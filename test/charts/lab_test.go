package charts

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// cluster is a control plane with the tools on it.
type cluster struct {
	t  *testing.T
	cp *lab.ControlPlane
}

func (c cluster) helm(args ...string) (string, error) {
	c.t.Helper()
	return run(c.t.Context(), c.t, []string{"KUBECONFIG=" + c.cp.Kubeconfig()}, args...)
}

func (c cluster) ok(args ...string) {
	c.t.Helper()
	if out, err := c.helm(args...); err != nil {
		c.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (c cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.cp.Kubectl(c.t.Context(), "", args...)
	if err != nil {
		c.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c cluster) release(verb, chart, namespace string, flags ...string) {
	c.t.Helper()
	args := append([]string{verb, chart, "charts/" + chart, "--namespace", namespace}, flags...)
	if verb == "install" {
		args = append(args, "--create-namespace")
	}
	c.ok(args...)
}

// uids are those of what must survive: they would differ if it had been deleted and created again.
func (c cluster) uids() map[string]string {
	c.t.Helper()
	out := map[string]string{}
	const format = `{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name} ` +
		`{.metadata.uid} {.metadata.deletionTimestamp}{"\n"}{end}` // finalizers keep what is deleted
	for _, kind := range []string{
		"customresourcedefinitions", "clustersets", "clusterprofiles", "serviceexports", "namespaces",
	} {
		for line := range strings.Lines(c.kubectl("get", kind, "-A", "-o", "jsonpath="+format)) {
			name, uid, _ := strings.Cut(strings.TrimSpace(line), " ")
			out[name] = uid
		}
	}
	return out
}

// survived fails where something is missing, or is another one.
func (c cluster) survived(after string, before map[string]string) {
	c.t.Helper()
	now := c.uids()
	for name, uid := range before {
		if now[name] != uid {
			c.t.Errorf("after %s, %s has UID %q instead of %q", after, name, now[name], uid)
		}
	}
}

// there reports whether an object exists.
func (c cluster) there(args ...string) bool {
	c.t.Helper()
	return strings.TrimSpace(c.kubectl(append([]string{"get", "--ignore-not-found", "-o", "name"}, args...)...)) != ""
}

// TestCRDsAndUsersObjectsSurvive: all three charts on one cluster, which is hub and member, through a release's life.
func TestCRDsAndUsersObjectsSurvive(t *testing.T) {
	const system, dns = "clusterset-system", "clusterset-dns"
	c := cluster{t, lab.Run(t, lab.Options{})}
	deployment := func(namespace, name, path string) string {
		t.Helper()
		return c.kubectl("-n", namespace, "get", "deployment", name, "-o", "jsonpath={"+path+"}")
	}
	const image, replicas = ".spec.template.spec.containers[0].image", ".spec.replicas"

	c.release("install", "clusterset-hub", system, "--set=members={east},clusterSet.spec.externalNames=Forbid")
	c.release("install", "clusterset-member", system, "--set=clusterID=east")
	c.release("install", "clusterset-dns", dns)
	c.kubectl("create", "namespace", "shop")
	if err := c.cp.Apply(t.Context(), "{apiVersion: multicluster.x-k8s.io/v1beta1, kind: ServiceExport, "+
		"metadata: {name: web, namespace: shop}}"); err != nil {
		t.Fatal(err)
	}
	c.kubectl("-n", "clusterset", "patch", "clusterset", "clusterset", "--type=merge", "-p",
		`{"spec":{"lease":{"durationSeconds":50}}}`) // by the user
	before := c.uids()
	for _, want := range []string{"ServiceExport/shop/web", "ClusterSet/clusterset/clusterset",
		"ClusterProfile/clusterset/east", "CustomResourceDefinition//serviceexports.multicluster.x-k8s.io",
		"CustomResourceDefinition//clustersets.hub.clusterset-dns.io"} {
		if before[want] == "" {
			t.Fatalf("after install there is no %s in %v", want, slices.Sorted(maps.Keys(before)))
		}
	}
	was := deployment(system, "clusterset-hub", image)

	c.release("upgrade", "clusterset-hub", system, "--set=members={east,west},image.tag=v9.9.9")
	c.release("upgrade", "clusterset-member", system, "--set=clusterID=east,image.tag=v9.9.9,replicas=3")
	c.release("upgrade", "clusterset-dns", dns, "--set=image.tag=v9.9.9,corefile=. {}")
	c.survived("upgrade", before)
	if got := deployment(system, "clusterset-hub", image); !strings.HasSuffix(got, ":v9.9.9") || got == was {
		t.Errorf("upgrade left the image %s", got)
	}
	if got := deployment(system, "clusterset-controller", replicas); got != "3" {
		t.Errorf("upgrade left %s replicas", got)
	}
	if !c.there("-n", "clusterset", "serviceaccount", "mcs-west") ||
		!c.there("-n", "clusterset", "clusterprofile", "west") {
		t.Error("upgrade added no member west")
	}
	if got := c.kubectl("-n", "clusterset", "get", "clusterset", "clusterset", "-o",
		"jsonpath={.spec.lease.durationSeconds} {.spec.externalNames}"); got != "50 Allow" {
		t.Errorf("upgrade left %s, want the lease of the user, and the default of the value that was removed", got)
	}
	withWest := c.uids()

	for release, namespace := range map[string]string{"clusterset-hub": system, "clusterset-member": system,
		"clusterset-dns": dns} {
		c.ok("rollback", release, "1", "--namespace", namespace)
	}
	c.survived("rollback", withWest)
	if got := deployment(system, "clusterset-hub", image); got != was {
		t.Errorf("rollback left the image %s, want %s", got, was)
	}
	if got := deployment(system, "clusterset-controller", replicas); got != "2" {
		t.Errorf("rollback left %s replicas", got)
	}
	if got := c.kubectl(
		"-n",
		dns,
		"get",
		"configmap",
		"coredns",
		"-o",
		"jsonpath={.data.Corefile}",
	); !strings.Contains(
		got,
		"multicluster clusterset.local",
	) {
		t.Errorf("rollback left the Corefile\n%s", got)
	}
	if c.there("-n", "clusterset", "serviceaccount", "mcs-west") {
		t.Error("rollback left the account of west, which is no longer in the values")
	}

	// A claim by somebody else is refused, and stays.
	if _, err := c.cp.Kubectl(t.Context(), lab.HubMember(root, "north"), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if out, err := c.helm("upgrade", "clusterset-hub", "charts/clusterset-hub", "--namespace", system,
		"--set=members={east,north}"); err == nil || !strings.Contains(out, "cannot be imported") {
		t.Errorf("an ID that another has: %v\n%s", err, out)
	}
	all := c.uids()

	for release, namespace := range map[string]string{"clusterset-hub": system, "clusterset-member": system,
		"clusterset-dns": dns} {
		c.ok("uninstall", release, "--namespace", namespace)
	}
	c.survived("uninstall", all)
	for _, gone := range [][]string{{"-n", system, "deployments"}, {"-n", dns, "deployments"},
		{"validatingadmissionpolicy", "clusterset-agent.clusterset-dns.io"},
		{"-n", "clusterset", "serviceaccount", "mcs-east"},
		{"-n", "clusterset", "rolebinding", "mcs-east"}, {"-n", dns, "service"}} {
		if c.there(gone...) {
			t.Errorf("uninstall left %v", gone)
		}
	}

	for _, kept := range [][]string{{"validatingadmissionpolicybinding", "clusterset-records.clusterset-dns.io"},
		{"-n", system, "serviceaccount", "clusterset-hub"}, {"clusterrole", "clusterset-dns:coredns"}} {
		if !c.there(kept...) {
			t.Errorf("uninstall deleted %v, which others use", kept)
		}
	}

	// The same releases take up what was kept. Without --take-ownership, Helm does not change the kept ClusterSet.
	c.release("install", "clusterset-hub", system, "--set=members={east},clusterSet.spec.vips.mode=preferred",
		"--take-ownership")
	c.release("install", "clusterset-member", system, "--set=clusterID=east")
	c.release("install", "clusterset-dns", dns)
	c.survived("install again", all)
	if !c.there("-n", "clusterset", "serviceaccount", "mcs-east") {
		t.Error("install again brought no account of east")
	}
	if got := c.kubectl("-n", "clusterset", "get", "clusterset", "clusterset", "-o",
		"jsonpath={.spec.lease.durationSeconds} {.spec.vips.mode}"); got != "50 preferred" {
		t.Errorf("install again left %s, want the lease of the user, and the new value", got)
	}

	if out, err := c.helm("upgrade", "clusterset-hub", "charts/clusterset-hub", "--namespace", system,
		"--set=members={east},clusterSet.name=other"); err == nil || !strings.Contains(out, "clusterSet.name") {
		t.Errorf("another name of the ClusterSet: %v\n%s", err, out)
	}
	if !c.there("-n", "clusterset", "serviceaccount", "mcs-east") {
		t.Error("with another name of the ClusterSet, the account of east went")
	}
}
