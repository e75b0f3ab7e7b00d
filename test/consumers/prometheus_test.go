package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	headless = "peers"       // a Headless Service of the same Pods
	resolver = "127.49.0.53" // the DNS of the cluster: Prometheus asks port 53 of the address in resolv.conf
	corefile = ".:53 {\n bind " + resolver + "\n ready READY_ADDR\n" +
		" multicluster clusterset.local {\n kubeconfig %s\n }\n}\n"
)

// jobs find the same Pods. The first, clusterset, and the rule of own are those of docs/meshes.md. A label of its slice
// keeps a target from merging with an equal one. No scrape is due within a test.
const jobs = `
global: {scrape_interval: 1y}
JOB  - &slice {source_labels: [__meta_kubernetes_endpointslice_name], target_label: slice}
- job_name: srv
  dns_sd_configs: [{names: [_p80._tcp.peers.shop.svc.clusterset.local], refresh_interval: 5s}]
- job_name: a
  dns_sd_configs: [{names: [peers.shop.svc.clusterset.local], type: A, port: 8080, refresh_interval: 5s}]
- job_name: plain
  kubernetes_sd_configs: [&slices {role: endpointslice, kubeconfig_file: KUBECONFIG, namespaces: {names: [shop]}}]
- job_name: copies
  kubernetes_sd_configs: [*slices]
  relabel_configs: [*slice]
- job_name: own
  kubernetes_sd_configs: [*slices]
  relabel_configs:
RULE- job_name: services
  kubernetes_sd_configs: [{role: service, kubeconfig_file: KUBECONFIG, namespaces: {names: [shop]}}]
`

func TestPrometheusFindsEachEndpointOnce(t *testing.T) {
	w := begin(t, here, "b")
	prometheus, version := startPrometheus(t, w)
	every := func() set { return w.exported(80, w.live, true) }
	ready := func() set { return w.exported(80, w.live, false) }
	own := func() set { return w.exported(80, map[string]bool{here: true}, true) }
	selected := func() set {
		out := set{}
		for cluster := range w.live {
			add := func(name string, port int32) {
				for address := range w.exported(port, map[string]bool{cluster: true}, true) {
					out[fmt.Sprint(target{address, name, cluster})] = true
				}
			}
			add(service, 80)
			add(service, 5432)
			add(headless, 80)
		}
		return out
	}
	of := func(job, asked, before, what string, want func() set) *consumer {
		return &consumer{
			name: "Prometheus", version: version, asked: asked, port: 80, before: before, what: what, want: want,
			sees: func() (set, error) { return prometheus.finds(t.Context(), job) },
		}
	}
	const unasked, all = "not asked", "each endpoint once, also if it is not ready or not preferred"
	follow(t, w, append(kubeProxies(t, w),
		of("srv", "`dns_sd_configs`, SRV of a Headless import, each 5 s", unasked, "each ready endpoint once", ready),
		of("a", "`dns_sd_configs`, A of a Headless import, each 5 s", unasked, "each ready endpoint once", ready),
		of("plain", "`kubernetes_sd_configs`, role `endpointslice`", unasked, all, every),
		&consumer{
			name: "Prometheus", version: version, port: 80,
			asked:  "the same, and labels and selector of [its section](meshes.md#prometheus)",
			before: "without the selector: an endpoint once for each set of labels", what: all, want: selected,
			sees: func() (set, error) { return prometheus.labeled("clusterset") },
		},
	))

	w.wait(t, "a target for each slice that has an endpoint", func() error {
		got, want := map[string]int{}, map[string]int{}
		for address := range every() {
			want[address] = 5 // of web: imported, traffic, gateway; of peers: imported, gateway
		}
		for address := range own() {
			want[address] += 2 // the slices of both Services
		}
		targets, err := prometheus.targets("copies")
		for _, target := range targets {
			got[target.Instance]++
		}
		maps.DeleteFunc(got, func(address string, _ int) bool { return !strings.HasSuffix(address, ":8080") })
		if !maps.Equal(got, want) {
			return errors.Join(err, fmt.Errorf("number of targets: %v, want %v", got, want))
		}
		return nil
	})
	w.wait(t, "a job for this cluster's own Services", func() error {
		found, err := prometheus.finds(t.Context(), "own")
		return errors.Join(err, difference(found, own()))
	})
	w.wait(t, "a target for each port of a Service", func() error {
		targets, err := prometheus.targets("services")
		found, want := set{}, set{headless + ".shop.svc:80": true}
		for _, target := range targets {
			found[target.Instance] = true
		}
		for port := range ports {
			want[fmt.Sprintf("%s.shop.svc:%d", service, port)] = true
			want[fmt.Sprintf("%s.shop.svc:%d", w.derived, port)] = true
		}
		return errors.Join(err, difference(found, want))
	})
}

// prometheus is the address of a running one.
type prometheus string

// startPrometheus exports a Headless Service, too, and has the agent write gateway slices. It returns a Prometheus of
// the cluster of the consumers, where CoreDNS resolves names, and its version.
func startPrometheus(t *testing.T, w *world) (prometheus, string) {
	t.Helper()
	program, version := built(t, "prometheus")
	plane := w.member(here).Cluster
	define(t, plane, module(t, "envoygateway", "github.com/envoyproxy/gateway")+"/charts/gateway-helm/charts/crds/crds")
	for cluster := range w.client {
		svc := &corev1.Service{ObjectMeta: meta(headless)}
		svc.Spec.ClusterIP, svc.Spec.Selector = corev1.ClusterIPNone, map[string]string{"app": service}
		svc.Spec.Ports = []corev1.ServicePort{{Name: "p80", Port: 80, TargetPort: intstr.FromInt32(ports[80])}}
		w.create(t, cluster, svc, &mcsv1beta1.ServiceExport{ObjectMeta: meta(headless)})
	}
	dns, err := lab.ServeDNS(t.Context(), plane, func(kubeconfig string) (string, error) {
		return fmt.Sprintf(corefile, kubeconfig), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dns.Stop)
	dir := t.TempDir()
	config := strings.ReplaceAll(configuration(t), "KUBECONFIG", plane.Kubeconfig())
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "resolv.conf"), []byte("nameserver "+resolver+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	addr := port(t).Addr()
	cmd := exec.Command("sh", "-c", `mount --bind resolv.conf /etc/resolv.conf && exec "$0" "$@"`,
		program, "--web.listen-address", addr)
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	start(t, cmd)
	return prometheus(addr), strings.Replace(version, "v0.3", "v3.", 1) // the module of 3.16.0 is v0.316.0
}

// configuration returns jobs with what docs/meshes.md says.
func configuration(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/meshes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Prometheus\n")
	blocks := regexp.MustCompile(`(?ms)^~~~ yaml\n(.*?)^~~~$`).FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/meshes.md has %d blocks for Prometheus, want a job and a rule", len(blocks))
	}
	job := strings.Replace(blocks[0][1], "endpointslice\n", "endpointslice\n    kubeconfig_file: KUBECONFIG\n", 1)
	return strings.NewReplacer("JOB", job, "RULE", blocks[1][1]).Replace(jobs)
}

// target has labels of one.
type target struct{ Instance, Service, Cluster string }

func (p prometheus) targets(job string) (out []target, err error) {
	answer, err := http.Get("http://" + string(p) + "/api/v1/targets?state=active&scrapePool=" + job)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var list struct {
		Data struct {
			ActiveTargets []struct{ Labels target }
		}
	}
	err = json.NewDecoder(answer.Body).Decode(&list)
	for _, active := range list.Data.ActiveTargets {
		out = append(out, active.Labels)
	}
	return out, err
}

// labeled returns the targets of a job, and fails if two differ by their slices only.
func (p prometheus) labeled(job string) (set, error) {
	targets, err := p.targets(job)
	out := set{}
	for _, target := range targets {
		if out[fmt.Sprint(target)] {
			return nil, fmt.Errorf("two targets of %s are %s", job, target)
		}
		out[fmt.Sprint(target)] = true
	}
	return out, err
}

// finds returns the endpoints of port 80 among a job's targets, whose hosts the resolver resolves, and fails if one is
// there twice.
func (p prometheus) finds(ctx context.Context, job string) (set, error) {
	targets, err := p.targets(job)
	out := set{}
	names := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, resolver+":53")
	}}
	for _, target := range targets {
		host, number, _ := net.SplitHostPort(target.Instance)
		if number != "8080" {
			continue
		}
		addresses, err := names.LookupHost(ctx, host)
		if err != nil {
			return nil, err
		}
		for _, address := range addresses {
			if out[address+":8080"] {
				return nil, fmt.Errorf("two targets of %s are %s", job, address)
			}
			out[address+":8080"] = true
		}
	}
	return out, err
}
