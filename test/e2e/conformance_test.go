package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// export is a ServiceExport.
const export = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: %s, namespace: %s}
`

// conforms checks on real nodes what KEP-1645 asks of an implementation: what upstream's conformance suite looks at, in
// our own words. Each check has a namespace of its own.
func (w *world) conforms(t *testing.T) {
	for _, c := range []struct {
		name  string
		check func(*kep)
	}{
		{"a ServiceExport without a Service is not valid", (*kep).withoutService},
		{"an ExternalName Service cannot be exported", (*kep).externalName},
		{"a ClusterIP Service", (*kep).clusterIP},
		{"a headless Service", (*kep).headless},
		{"conflicts", (*kep).conflicts},
		{"session affinity", (*kep).affinity},
		{"labels and annotations", (*kep).metadata},
		{"a namespace that only one cluster has", (*kep).sameness},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := &kep{T: t, world: w, ns: fmt.Sprintf("kep-%d", time.Now().UnixNano())}
			defer k.clean()
			k.namespace("east")
			if c.name != "a namespace that only one cluster has" {
				k.namespace("west")
			}
			c.check(k)
		})
	}
}

// kep is one check.
type kep struct {
	*testing.T
	*world
	ns string
}

func (k *kep) namespace(cluster string) { k.do(cluster, "", "create", "namespace", k.ns) }

func (k *kep) clean() {
	for _, c := range k.clusters {
		_, err := c.plane.Kubectl(context.Background(), "", "delete", "namespace", k.ns, "--wait=false",
			"--ignore-not-found")
		if err != nil {
			k.Error(err)
		}
	}
}

// do runs kubectl.
func (k *kep) do(cluster, input string, args ...string) string {
	k.Helper()
	out, err := k.clusters[cluster].plane.Kubectl(k.Context(), input, args...)
	if err != nil {
		k.Fatal(err)
	}
	return out
}

// apply applies manifests, in which NS stands for the namespace.
func (k *kep) apply(cluster, manifests string) {
	k.Helper()
	k.do(cluster, strings.ReplaceAll(manifests, "NS", k.ns), "apply", "-f", "-")
}

func (k *kep) export(cluster, name string) { k.apply(cluster, fmt.Sprintf(export, name, "NS")) }

// wants waits until what kubectl get prints of an object is right. "" is an object that does not exist.
func (k *kep) wants(cluster, object, jsonpath, want string) {
	k.Helper()
	k.eventually(fmt.Sprintf("%s in %s: %s", object, cluster, jsonpath), func(ctx context.Context) error {
		out, err := k.clusters[cluster].plane.Kubectl(ctx, "", "-n", k.ns, "get", object, "--ignore-not-found",
			"-o", "jsonpath="+jsonpath)
		if err == nil && out != want {
			err = fmt.Errorf("%q, want %q", out, want)
		}
		return err
	})
}

func (k *kep) eventually(what string, f func(context.Context) error) {
	k.Helper()
	eventually(k.T, what, patience, f)
}

// asks runs a command in the client Pod of a cluster until its output is right, in any order of lines.
func (k *kep) asks(cluster, command string, want ...string) {
	k.Helper()
	slices.Sort(want)
	k.eventually(cluster+": "+command, func(ctx context.Context) error {
		out, err := k.clusters[cluster].plane.Kubectl(ctx, "", "exec", "client", "--", "sh", "-c", command)
		got := strings.FieldsFunc(strings.TrimSpace(out), func(r rune) bool { return r == '\n' })
		slices.Sort(got)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%q, want %q", got, want)
		}
		return err
	})
}

// twenty requests to hello print what f makes of the names of the Pods that answer. It runs once: what holds of each
// request is not retried, only a request without an answer is.
func (k *kep) twenty(cluster, f, want string) {
	k.Helper()
	command := fmt.Sprintf("for i in $(seq 20); do curl -sS -m 3 --retry 20 --retry-delay 1 --retry-all-errors "+
		"http://hello.%s.svc.clusterset.local/hostname; echo; done | %s", k.ns, f)
	if got := strings.TrimSpace(k.do(cluster, "", "exec", "client", "--", "sh", "-c", command)); got != want {
		k.Errorf("%s: %s: %q, want %q", cluster, command, got, want)
	}
}

// dig asks the cluster's DNS from a Pod.
func (k *kep) dig(cluster, name, qtype string, want ...string) {
	k.Helper()
	k.asks(cluster, fmt.Sprintf("dig +short %s.%s.svc.clusterset.local. %s", name, k.ns, qtype), want...)
}

// nowhere waits until a name does not exist in a cluster.
func (k *kep) nowhere(cluster, name string) {
	k.Helper()
	k.asks(cluster, fmt.Sprintf("dig %s.%s.svc.clusterset.local. A | grep -o 'status: [A-Z]*'", name, k.ns),
		"status: NXDOMAIN")
}

// hello starts Pods of a cluster, and a Service of them with the spec's further fields. It returns the Pods' addresses
// of the family.
func (k *kep) hello(cluster, spec string) {
	k.Helper()
	k.apply(cluster, strings.ReplaceAll(strings.ReplaceAll(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: CLUSTER, namespace: NS}
spec:
  replicas: 2
  selector: {matchLabels: {app: hello}}
  template:
    metadata: {labels: {app: hello}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: hello, image: IMAGE, args: [netexec, --http-port=8080]}
---
apiVersion: v1
kind: Service
metadata: {name: hello, namespace: NS}
spec:
  selector: {app: hello}
  ipFamilyPolicy: RequireDualStack
`+spec, "CLUSTER", cluster), "IMAGE", k.agnhost))
	k.do(cluster, "", "-n", k.ns, "rollout", "status", "deployment/"+cluster, "--timeout=60s")
}

const httpPort = "  ports: [{name: http, port: 80, targetPort: 8080, appProtocol: http}]\n"

// field is what kubectl get prints of an object, now.
func (k *kep) field(cluster, object, jsonpath string) []string {
	k.Helper()
	return strings.Fields(k.do(cluster, "", "-n", k.ns, "get", object, "-o", "jsonpath="+jsonpath))
}

// addresses of the Pods of a cluster, by family (0: IPv4, 1: IPv6).
func (k *kep) addresses(cluster string, family int) []string {
	k.Helper()
	return k.field(cluster, "pods", fmt.Sprintf("{range .items[*]}{.status.podIPs[%d].ip} {end}", family))
}

func condition(of string) string {
	return fmt.Sprintf(`{.status.conditions[?(@.type==%q)].status}`, of)
}

func (k *kep) withoutService() {
	k.export("east", "hello")
	k.wants("east", "serviceexport/hello", condition("Valid"), "False")
	k.wants("west", "serviceimport/hello", "{.metadata.name}", "")
}

func (k *kep) externalName() {
	k.apply("east", "apiVersion: v1\nkind: Service\nmetadata: {name: hello, namespace: NS}\n"+
		"spec: {type: ExternalName, externalName: example.org}\n")
	k.export("east", "hello")
	k.wants("east", "serviceexport/hello", condition("Valid"), "False")
	k.wants("west", "serviceimport/hello", "{.metadata.name}", "")
}

func (k *kep) clusterIP() {
	k.hello("east", httpPort)
	k.nowhere("west", "hello")
	k.export("east", "hello")
	k.wants("east", "serviceexport/hello", condition("Valid")+condition("Ready")+condition("Conflict"), "TrueTrueFalse")
	for name := range k.clusters {
		k.wants(name, "serviceimport/hello", "{.spec.type} {.spec.ports[*].name} {.spec.ports[*].port} "+
			"{.spec.ports[*].protocol} {.spec.ports[*].appProtocol} {.spec.ipFamilies[*]} "+
			"{.status.clusters[*].cluster} "+
			condition("Ready"), "ClusterSetIP http 80 TCP http IPv4 IPv6 east True")
		ips := k.field(name, "serviceimport/hello", "{.spec.ips[*]}")
		if len(ips) != 2 {
			k.Fatalf("%s: the import has the addresses %v, want one of each family", name, ips)
		}
		k.dig(name, "hello", "A", ips[0])
		k.dig(name, "hello", "AAAA", ips[1])
		k.dig(name, "_http._tcp.hello", "SRV", fmt.Sprintf("0 100 80 hello.%s.svc.clusterset.local.", k.ns))
		for _, family := range []string{"-4", "-6"} {
			k.asks(name, fmt.Sprintf("curl %s -sS -m 3 http://hello.%s.svc.clusterset.local/hostname | cut -d- -f1",
				family, k.ns), "east")
		}
		k.asks(name, fmt.Sprintf("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do curl -sS -m 3 "+
			"http://hello.%s.svc.clusterset.local/hostname; echo; done | sort -u | wc -l", k.ns), "2")
	}
	k.asks(
		"west",
		fmt.Sprintf("dig hello.%s.svc.cluster.local. A | grep -o 'status: [A-Z]*'", k.ns),
		"status: NXDOMAIN",
	)
	k.slices("west", "hello", "east")

	k.do("east", "", "-n", k.ns, "delete", "serviceexport", "hello")
	for name := range k.clusters {
		k.wants(name, "serviceimport/hello", "{.metadata.name}", "")
		k.nowhere(name, "hello")
	}
	k.wants("west", "endpointslices", "{.items[*].metadata.name}", "")
	if k.do("east", "", "-n", k.ns, "get", "service", "hello", "-o", "name") == "" {
		k.Error("the exporter's Service is gone")
	}
}

// slices are those of an import: labelled, not Kubernetes' own, with the addresses of a cluster's Pods.
func (k *kep) slices(cluster, name, source string) {
	k.Helper()
	labels := "multicluster.kubernetes.io/service-name=" + name + ",multicluster.kubernetes.io/source-cluster=" + source
	for family, kind := range []string{"IPv4", "IPv6"} {
		want := k.addresses(source, family)
		slices.Sort(want)
		k.eventually("slices of "+kind, func(ctx context.Context) error {
			out, err := k.clusters[cluster].plane.Kubectl(
				ctx,
				"",
				"-n",
				k.ns,
				"get",
				"endpointslices",
				"-l",
				labels,
				"-o",
				fmt.Sprintf(`jsonpath={range .items[?(@.addressType==%q)]}{.endpoints[*].addresses[*]} {end}`, kind),
			)
			got := strings.Fields(out)
			slices.Sort(got)
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%v, want %v", got, want)
			}
			return err
		})
	}
	out := k.do(cluster, "", "-n", k.ns, "get", "endpointslices", "-l", labels, "-o",
		`jsonpath={.items[*].metadata.labels.endpointslice\.kubernetes\.io/managed-by}`)
	if out == "" || strings.Contains(out, "endpointslice-controller.k8s.io") {
		k.Errorf("the slices are managed by %q", out)
	}
}

func (k *kep) headless() {
	for _, cluster := range []string{"east", "west"} {
		k.apply(cluster, strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: hello-0, namespace: NS, labels: {app: hello}}
spec:
  hostname: hello-0
  subdomain: hello
  containers:
  - {name: hello, image: IMAGE, args: [netexec, --http-port=8080]}
---
apiVersion: v1
kind: Service
metadata: {name: hello, namespace: NS}
spec:
  clusterIP: None
  selector: {app: hello}
  ipFamilyPolicy: RequireDualStack
`+httpPort, "IMAGE", k.agnhost))
		k.do(cluster, "", "-n", k.ns, "wait", "--for=condition=Ready", "pod/hello-0", "--timeout=60s")
		k.export(cluster, "hello")
	}
	east, west := k.addresses("east", 0), k.addresses("west", 0)
	for name := range k.clusters {
		k.wants(
			name,
			"serviceimport/hello",
			"{.spec.type}{.spec.ips} {.status.clusters[*].cluster}",
			"Headless east west",
		)
		k.dig(name, "hello", "A", append(slices.Clone(east), west...)...)
		k.dig(name, "hello-0.west.hello", "A", west...)
		k.dig(name, "hello-0.east.hello", "AAAA", k.addresses("east", 1)...)
		k.asks(name, fmt.Sprintf("dig +short _http._tcp.hello.%s.svc.clusterset.local. SRV | cut -d' ' -f3-", k.ns),
			fmt.Sprintf("8080 hello-0.east.hello.%s.svc.clusterset.local.", k.ns),
			fmt.Sprintf("8080 hello-0.west.hello.%s.svc.clusterset.local.", k.ns))
		k.asks(name, fmt.Sprintf("curl -sS -m 3 http://hello-0.west.hello.%s.svc.clusterset.local:8080/hostname", k.ns),
			"hello-0")
	}
	k.do("west", "", "-n", k.ns, "delete", "serviceexport", "hello")
	k.dig("west", "hello", "A", east...)
}

func (k *kep) conflicts() {
	k.hello("east", httpPort)
	k.export("east", "hello")
	k.wants("west", "serviceimport/hello", condition("Ready"), "True")
	k.hello("west", "  ports: [{name: http, port: 81, targetPort: 8080}]\n  sessionAffinity: ClientIP\n")
	k.export("west", "hello")
	for name := range k.clusters {
		k.wants(name, "serviceexport/hello", condition("Conflict"), "True")
		k.wants(
			name,
			"serviceimport/hello",
			"{.spec.ports[?(@.name==\"http\")].port} {.spec.sessionAffinity}",
			"80 None",
		)
		k.twenty(name, "cut -d- -f1 | sort -u", "east")
	}
	k.do(
		"west",
		"",
		"-n",
		k.ns,
		"patch",
		"service",
		"hello",
		"--type=merge",
		"-p",
		`{"spec": {"sessionAffinity": "None",
			"ports": [{"name": "http", "port": 80, "targetPort": 8080, "appProtocol": "http"}]}}`,
	)
	for name := range k.clusters {
		k.wants(name, "serviceexport/hello", condition("Conflict"), "False")
		k.asks(name, fmt.Sprintf("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do curl -sS -m 3 "+
			"http://hello.%s.svc.clusterset.local/hostname; echo; done | cut -d- -f1 | sort -u", k.ns), "east", "west")
	}
}

func (k *kep) affinity() {
	k.hello("east", httpPort+"  sessionAffinity: ClientIP\n")
	k.export("east", "hello")
	k.wants("west", "serviceimport/hello", "{.spec.sessionAffinity}", "ClientIP")
	k.twenty("west", "sort -u | wc -l", "1")
}

func (k *kep) metadata() {
	k.hello("east", httpPort)
	k.apply("east", fmt.Sprintf(export, "hello", "NS")+
		"spec: {exportedLabels: {team: web}, exportedAnnotations: {example.org/a: b}}\n")
	k.wants("west", "serviceimport/hello", `{.metadata.labels.team} {.metadata.annotations.example\.org/a}`, "web b")
}

// sameness: where the namespace does not exist, there is no import, and no name.
func (k *kep) sameness() {
	k.hello("east", httpPort)
	k.export("east", "hello")
	k.wants("east", "serviceimport/hello", condition("Ready"), "True")
	k.nowhere("west", "hello")
	k.namespace("west")
	k.wants("west", "serviceimport/hello", condition("Ready"), "True")
}

// upstreams runs upstream's suite, which whoever has it names by CONFORMANCE: the test binary of
// sigs.k8s.io/mcs-api/conformance (go test -c). What it writes, a report among it, stays in bin/e2e.
func (w *world) upstreams(t *testing.T) {
	binary, err := filepath.Abs(os.Getenv("CONFORMANCE"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "-kubeconfig="+w.path("kubeconfig"), "-contexts=east,west",
		"-ginkgo.v", "-ginkgo.no-color", "-ginkgo.junit-report=conformance.xml")
	cmd.Dir = filepath.Join(w.root, "bin", "e2e")
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	err = w.router.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	t.Logf("%s\n%s", strings.Join(cmd.Args, " "), out)
	if err != nil {
		t.Error(err)
	}
}
