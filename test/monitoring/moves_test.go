package monitoring

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/clusterset-dns/clusterset-dns/controllers/agent"
	"github.com/clusterset-dns/clusterset-dns/controllers/clusterset"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

// moving answers clients inside and outside.
const moving = `.:DNS_PORT {
    bind 127.0.0.1
    errors
    health HEALTH_ADDR
    ready READY_ADDR
    prometheus METRICS_ADDR
    multicluster clusterset.local {
        kubeconfig %[1]s
    }
    multicluster_external global.example.org {
        kubeconfig %[1]s
        nameserver 192.0.2.53
    }
}
`

// exports are what a exports to b: a VIP with a load balancer, and a Headless Service.
const exports = `
apiVersion: v1
kind: Namespace
metadata: {name: moves}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: moves}
spec: {type: LoadBalancer, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: moves, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: [10.1.0.1]}]
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: web, namespace: moves, annotations: {clusterset-dns.io/external: "true"}}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: moves}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
---
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceExport
metadata: {name: db, namespace: moves}
`

// changed is the Headless Service's slice as Kubernetes' controller writes it when a Pod becomes ready.
const changed = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: db-1
  namespace: moves
  labels: {kubernetes.io/service-name: db}
  annotations: {endpoints.kubernetes.io/last-change-trigger-time: "%s"}
addressType: IPv4
ports: [{name: sql, port: 5432}]
endpoints: [{addresses: [10.1.0.%d]}]
`

// foreign is in b: a slice without a source cluster.
const foreign = `
apiVersion: v1
kind: Namespace
metadata: {name: moves}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: foreign, namespace: moves, labels: {multicluster.kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.9.0.1]}]
`

// faults are metrics of what this run does not have, such as a restored hub or a clone. Their series must be there.
var faults = []string{
	"clusterset_agent_vip_errors_total", "clusterset_agent_cloned", "clusterset_agent_sources_held",
	"clusterset_agent_export_conflicts", "clusterset_hub_members_refused_blocks",
	"coredns_multicluster_external_left_out",
}

// elsewhere are metrics of what this run does not have, and what reads them.
var elsewhere = map[string]string{
	"clusterset_agent_vip_range_allocated": "test/vips: TestV2PreferredComesFromTheBlock",
	"clusterset_agent_vip_range_available": "test/vips: TestV2PreferredComesFromTheBlock",
}

// asked returns flags and environment by which agents of one machine ask each other whether they are alive, as they do
// in Pods: no agent asks at a loopback address.
func asked(t *testing.T, ids ...string) (args, env map[string][]string) {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	args, env = map[string][]string{}, map[string][]string{}
	for _, a := range addresses {
		ip := a.(*net.IPNet).IP
		if ip.To4() == nil || !clusterset.Claimable(ip.String(), nil) {
			continue
		}
		for _, id := range ids {
			port, err := lab.ReservePort()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(port.Release)
			args[id] = []string{fmt.Sprintf("--answer-bind-address=%s:%d", ip, port.Number)}
			env[id] = []string{"POD_IPS=" + ip.String()}
		}
		return args, env
	}
	t.Fatalf("this machine has no IPv4 address at which agents can ask each other: %v", addresses)
	return nil, nil
}

// onlyInFault returns whether a selector asks for a state that nobody is in if all is well.
func onlyInFault(selector string) bool {
	return slices.Contains([]string{`state="Unreachable"`, `state!="Answers"`, `status="False"`}, selector)
}

// TestEveryMetricMoves plays no producer: two clusters and a hub fill every documented metric, and each series that a
// panel or an alert selects.
func TestEveryMetricMoves(t *testing.T) {
	log.SetLogger(logr.Discard()) // of the clients
	ctx := t.Context()
	args, env := asked(t, "a", "b")
	cs, err := lab.StartClusterSet(context.WithoutCancel(ctx), lab.ClusterSetOptions{
		Members: []string{"a", "b"}, DNS: true, AgentArgs: args, AgentEnv: env,
		Corefile: func(kubeconfig string) (string, error) { return fmt.Sprintf(moving, kubeconfig), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cs.Stop)
	a, b := cs.Members[0], cs.Members[1]
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(cs.Hub.ApplyFolder(ctx, filepath.Join(root, "deploy/hub/controller")))
	kubeconfig, err := cs.Hub.ServiceAccountKubeconfig(ctx, "clusterset-system", "clusterset-hub", nil)
	must(err)
	hub, err := lab.StartHub(ctx, filepath.Join(root, "bin/clusterset-controller"), kubeconfig, lab.HubNamespace)
	must(err)
	t.Cleanup(hub.Stop)
	_, err = cs.Hub.Kubectl(ctx, "", "-n", lab.HubNamespace, "patch", "clusterset", lab.HubNamespace, "--type=merge",
		"-p", `{"spec":{"vips":{"mode":"preferred","pools":["10.200.0.0/20"]}}}`)
	must(err)
	must(b.Cluster.Apply(ctx, foreign))
	must(a.Cluster.Apply(ctx, exports))
	balanced(t, a.Cluster)
	known, n := reference(t), 0
	err = lab.Until(ctx, 90*time.Second, "what does not move", func() error {
		n++
		now := time.Now().UTC().Format(time.RFC3339Nano)
		if err := a.Cluster.Apply(ctx, fmt.Sprintf(changed, now, 2+n%100)); err != nil {
			return err
		}
		scraped := hub.Metrics()
		for _, m := range cs.Members {
			text, err := m.DNS.Metrics()
			if err != nil {
				return err
			}
			scraped += "\n" + m.Agent.Metrics() + "\n" + text
		}
		return still(t, scraped, known)
	})
	if err != nil {
		t.Error(err)
	}
}

// balanced gives the Service a load balancer.
func balanced(t *testing.T, in *lab.ControlPlane) {
	t.Helper()
	c, err := in.Client(agent.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	svc := &corev1.Service{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "moves", Name: "web"}, svc); err != nil {
		t.Fatal(err)
	}
	patch := `{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`
	if err := c.Status().Patch(t.Context(), svc, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

var sample = regexp.MustCompile(`(?m)^([a-z_]+)(\{.*\})? (\S+)$`)

// still returns which metrics have no data, and which series of expressions do not exist.
func still(t *testing.T, scraped string, known map[string]metric) error {
	t.Helper()
	most, series := map[string]float64{}, map[string][]string{}
	for _, m := range sample.FindAllStringSubmatch(scraped, -1) {
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return err
		}
		most[m[1]] = max(most[m[1]], value)
		series[m[1]] = append(series[m[1]], m[2])
	}
	var out []string
	for name, m := range known {
		if elsewhere[name] != "" {
			continue
		}
		show := name
		if m.kind == "histogram" {
			show += "_count"
		}
		if series[show] == nil || most[show] == 0 && !slices.Contains(faults, name) {
			n := len(series[show])
			out = append(out, fmt.Sprintf("%s, a %s: %d series, at most %v", show, m.kind, n, most[show]))
		}
	}
	for _, expr := range expressions(t) {
		for _, name := range metrics(expr) {
			if series[name] == nil && elsewhere[name] == "" {
				out = append(out, fmt.Sprintf("%s: no series %s", expr, name))
			}
		}
		for _, sel := range selectors.FindAllStringSubmatch(expr, -1) {
			for one := range strings.SplitSeq(sel[2], ",") {
				if strings.Contains(one, "~") || onlyInFault(strings.TrimSpace(one)) {
					continue
				}
				has := func(labels string) bool { return strings.Contains(labels, one) }
				if !slices.ContainsFunc(series[sel[1]], has) {
					out = append(out, fmt.Sprintf("%s: no series %s{%s}", expr, sel[1], one))
				}
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.Sort(out)
	return fmt.Errorf("%s", strings.Join(out, "\n"))
}

// expressions are those of the dashboard and of all alerts.
func expressions(t *testing.T) (out []string) {
	t.Helper()
	for _, p := range load(t).Panels {
		for _, target := range p.Targets {
			out = append(out, target.Expr)
		}
	}
	names, rules, _ := alerts(t)
	for _, name := range names {
		out = append(out, rules[name].Expr)
	}
	return out
}
