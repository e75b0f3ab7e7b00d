package external

import (
	"bytes"
	"fmt"
	golog "log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/endpointslice"
	"github.com/clusterset-dns/clusterset-dns/plugin/multicluster_external/names"
	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func init() {
	dnsserver.Directives = append(dnsserver.Directives, pluginName)
	dnsserver.Quiet, caddy.Quiet = true, true
}

// kubeconfig writes one for an API server without credentials.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "contexts": [{"name": "c", "context": {"cluster": "c"}}]}`,
		url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func corefile(kubeconfig, lines string) caddy.Input {
	text := fmt.Sprintf(`global.example.org:0 {
		bind 127.0.0.1
		transfer {
			to *
		}
		multicluster_external {
			kubeconfig %s
			%s
		}
	}`, kubeconfig, lines)
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(text), ServerTypeName: "dns"}
}

func serve(t *testing.T, input caddy.Input) *caddy.Instance {
	t.Helper()
	i, err := caddy.Start(input)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func stop(t *testing.T, i *caddy.Instance) {
	t.Helper()
	i.Stop()
	i.ShutdownCallbacks()
	if n := len(watches.All()); n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

func over(t *testing.T, i *caddy.Instance, name string) string {
	t.Helper()
	m, err := dns.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), i.Servers()[0].LocalAddr().String())
	if err != nil {
		return err.Error()
	}
	return data(m)
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}

// X7, L1, L4: SERVFAIL before the first list; changes are followed, of the agent's slices only; an outage of the API
// server, and reloads meanwhile, leave the answers; a reload that shares the watch opens no other.
func TestX7Life(t *testing.T) {
	theirs := slice(1, "b", "10.9.9.9") // Kubernetes copied the labels of a Service
	theirs.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	api, err := stub.Start(stub.Shape{MoreSlices: []*discoveryv1.EndpointSlice{slice(1, "a", "10.0.0.1"), theirs}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	release := api.Hold(stub.EndpointSlices)
	path := kubeconfig(t, api.URL)
	i := serve(t, corefile(path, ""))
	defer func() { stop(t, i) }()
	if got := over(t, i, web); got != "SERVFAIL" {
		t.Errorf("before the first list: %s", got)
	}
	r := new(dns.Msg).SetQuestion(web, dns.TypeA).SetEdns0(1232, false)
	m, err := dns.Exchange(r, i.Servers()[0].LocalAddr().String())
	if err != nil || m.IsEdns0() == nil || !strings.HasSuffix(m.IsEdns0().String(), "; EDE: 14 (Not Ready): ()") {
		t.Errorf("M8: %v, %v", m, err)
	}
	if all := loads.Open(); len(all) != 1 || all[0].Ready() {
		t.Error("ready before the first list")
	}
	release()
	eventually(t, "the first list is answered", func() bool { return over(t, i, web) == "10.0.0.1" })
	if !loads.Open()[0].Ready() {
		t.Error("not ready after the first list")
	}
	if got := over(t, i, "b."+web); got != "NXDOMAIN" {
		t.Errorf("a slice of another program: %s", got)
	}
	if err := api.PutSlice(slice(2, "a", "10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a change is answered", func() bool { return over(t, i, web) == "10.0.0.2" })
	api.Expire()
	if err := api.PutSlice(slice(3, "a", "10.0.0.3")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a change after a new list is answered", func() bool { return over(t, i, web) == "10.0.0.3" })

	api.Close()
	only := func() *watch { return watches.All()[0] }
	eventually(t, "the outage is noticed", func() bool { return !only().Up() })
	before := only()
	if i, err = i.Restart(corefile(path, "ttl 60")); err != nil {
		t.Fatal(err)
	}
	if got := over(t, i, web); got != "10.0.0.3" || only() != before {
		t.Errorf("after a reload in an outage: %s; the same watch: %v", got, only() == before)
	}
	if _, err := i.Restart(corefile(path, "ttl -1")); err == nil {
		t.Error("a wrong Corefile is taken")
	}
	if got := over(t, i, web); got != "10.0.0.3" || only() != before {
		t.Errorf("after a failed reload: %s; the same watch: %v", got, only() == before)
	}
	for _, metric := range []struct {
		name string
		want float64
	}{{"api_up", 0}, {"synced", 1}, {"names", 1}} {
		if got := gauge(t, metric.name); got != metric.want {
			t.Errorf("%s is %v, want %v", metric.name, got, metric.want)
		}
	}
}

// X4: the cache plugin does not give a client what another one was answered. Without nameserver, the log says which
// addresses it has.
func TestX4CacheAndNameserver(t *testing.T) {
	var out bytes.Buffer
	golog.SetOutput(&out)
	defer golog.SetOutput(os.Stderr)
	api, err := stub.Start(stub.Shape{
		MoreSlices: []*discoveryv1.EndpointSlice{slice(1, "a", "10.0.0.1"), slice(2, "b", "10.0.0.2")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	const subnet = "edns-subnet\n"
	for lines, warns := range map[string]bool{subnet: true, subnet + "nameserver 192.0.2.53": false} {
		out.Reset()
		input := corefile(kubeconfig(t, api.URL), lines).(caddy.CaddyfileInput)
		input.Contents = []byte(strings.Replace(string(input.Contents), "transfer {", "cache\ntransfer {", 1))
		i := serve(t, input)
		eventually(t, "the first list is answered", func() bool { return over(t, i, web) != "SERVFAIL" })
		seen := map[string]bool{}
		for n := range 40 {
			r := asked(web, dns.TypeA, fmt.Sprintf("203.0.%d.0/24", n))
			m, err := dns.Exchange(r, i.Servers()[0].LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			seen[data(m)] = true
		}
		if len(seen) != 2 {
			t.Errorf("forty clients get %v, want both clusters", seen)
		}
		stop(t, i)
		if got := strings.Contains(out.String(), "set nameserver"); got != warns {
			t.Errorf("%s: warned %v, want %v", lines, got, warns)
		}
	}
}

// X5, M3: an answer that the tsig plugin signs fits the client's buffer, with its signature.
func TestX5SignedAnswersFit(t *testing.T) {
	var all string
	for n := range names.MaxAddresses {
		all += fmt.Sprintf("2001:db8::%x ", n)
	}
	api, err := stub.Start(stub.Shape{MoreSlices: []*discoveryv1.EndpointSlice{slice(1, "a", all)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	const key, secret = "key.", "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="
	tsig := fmt.Sprintf("tsig {\nsecret %s %s\nrequire all\n}\ntransfer {", key, secret)
	input := corefile(kubeconfig(t, api.URL), "").(caddy.CaddyfileInput)
	input.Contents = []byte(strings.Replace(string(input.Contents), "transfer {", tsig, 1))
	i := serve(t, input)
	defer stop(t, i)
	eventually(t, "a signed answer", func() bool {
		r := asked(web, dns.TypeAAAA, "").SetTsig(key, dns.HmacSHA256, 300, time.Now().Unix())
		c := dns.Client{TsigSecret: map[string]string{key: secret}} // it reads 512 octets
		m, _, err := c.Exchange(r, i.Servers()[0].LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		return m.Truncated && len(m.Answer) > 10 && m.IsTsig() != nil
	})
}

// L2: a missing permission keeps neither the server nor, after startup_timeout, readiness away.
func TestX7MissingPermission(t *testing.T) {
	var agent atomic.Value
	api := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent.Store(r.UserAgent())
		w.WriteHeader(http.StatusForbidden)
	})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go api.Serve(l)
	t.Cleanup(func() { api.Close() })
	i := serve(t, corefile(kubeconfig(t, "http://"+l.Addr().String()), "startup_timeout 200ms"))
	defer stop(t, i)
	start := time.Now()
	eventually(t, "ready", loads.Open()[0].Ready)
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("ready after %v, want startup_timeout", took)
	}
	if got, _ := agent.Load().(string); !strings.HasSuffix(got, "/"+pluginName) {
		t.Errorf("the user agent is %q", got)
	}
	if got := over(t, i, web); got != "SERVFAIL" {
		t.Errorf("%s, want SERVFAIL", got)
	}
}

// X6, L6: a secondary hears of a change within a second, and what it transfers has it.
func TestX6NotifyAndTransfer(t *testing.T) {
	api, err := stub.Start(stub.Shape{MoreSlices: []*discoveryv1.EndpointSlice{slice(1, "a", "10.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	secondary, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan struct{}, 10)
	server := &dns.Server{PacketConn: secondary, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		if r.Opcode == dns.OpcodeNotify && r.Question[0].Name == zone {
			heard <- struct{}{}
		}
		w.WriteMsg(new(dns.Msg).SetReply(r))
	}), MsgAcceptFunc: func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }}
	go server.ActivateAndServe()
	t.Cleanup(func() { server.Shutdown() })
	input := corefile(kubeconfig(t, api.URL), "").(caddy.CaddyfileInput)
	input.Contents = []byte(strings.Replace(string(input.Contents), "to *", "to * "+secondary.LocalAddr().String(), 1))
	i := serve(t, input)
	defer stop(t, i)
	await := func(when string) {
		t.Helper()
		select {
		case <-heard:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: no NOTIFY", when)
		}
	}
	records := func() (all string) {
		blocks, err := new(dns.Transfer).In(new(dns.Msg).SetAxfr(zone), i.Servers()[0].Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for block := range blocks {
			if block.Error != nil {
				t.Fatal(block.Error)
			}
			all += fmt.Sprint(block.RR)
		}
		return all
	}
	await("after the first list")
	if got := records(); !strings.Contains(got, "10.0.0.1") {
		t.Errorf("the transfer has\n%s", got)
	}
	if err := api.PutSlice(slice(2, "a", "10.0.0.2")); err != nil {
		t.Fatal(err)
	}
	await("after a change")
	if got := records(); !strings.Contains(got, "10.0.0.2") || strings.Contains(got, "10.0.0.1\n") {
		t.Errorf("the transfer has\n%s", got)
	}
}

func gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "coredns_"+pluginName+"_"+name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// O3: promlint-clean, with closed label sets, and summed over the watches.
func TestMetrics(t *testing.T) {
	both := []*discoveryv1.EndpointSlice{
		slice(1, "a", "10.0.0.1"), slice(2, "b", "10.0.0.2", "as db", "down", "location=x"),
	}
	api, err := stub.Start(stub.Shape{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	i := serve(t, corefile(kubeconfig(t, api.URL), ""))
	defer stop(t, i)
	for _, w := range watches.All() {
		eventually(t, "the list", func() bool { return w.Synced() && w.Up() })
		for _, o := range both {
			w.update(o)
		}
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(gauges)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[strings.TrimPrefix(name, "coredns_multicluster_external_")] = m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{
		"synced": 1, "api_up": 1, "names": 2, "clusters state=up": 1, "clusters state=down": 1,
		"last_event_timestamp_seconds": got["last_event_timestamp_seconds"],
	}
	for r := range (endpointslice.LeftOut{}) {
		want["left_out reason="+endpointslice.Reason(r).String()] = 0
	}
	want["left_out reason=location"] = 1
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if age := time.Since(time.Unix(int64(got["last_event_timestamp_seconds"]), 0)); age > time.Minute {
		t.Errorf("the API server was last heard %v ago", age)
	}
}
