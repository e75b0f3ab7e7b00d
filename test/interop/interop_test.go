//go:build interop

// Package interop asks coredns through other people's DNS software, and has their secondaries follow it.
// make interop downloads that software and runs the tests.
package interop

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
	"github.com/clusterset-dns/clusterset-dns/test/model"
	"github.com/miekg/dns"
)

const zone = "clusterset.local."

// limit is how long a program may take to start, or a secondary to follow.
const limit = 30 * time.Second

var (
	db    = stub.Headless{Name: "db-30", Endpoints: 30}
	db100 = stub.Headless{Name: "db-100", Endpoints: 100, First: 100}
)

// port returns a free port of 127.0.0.1, for UDP and TCP.
func port(t *testing.T) int {
	t.Helper()
	p, err := lab.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p.Number
}

// run starts a program of the downloaded software, or an absolute path, until the test is over.
func run(t *testing.T, program string, args ...string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "", program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if text, _ := os.ReadFile(out.Name()); t.Failed() {
			t.Logf("%s:\n%s", program, text)
		}
	})
}

// command runs a program where the downloaded software lies over /usr, and resolvConf, unless it is empty, is
// /etc/resolv.conf. Nothing outside of the program sees either.
func command(t *testing.T, resolvConf, program string, args ...string) *exec.Cmd {
	t.Helper()
	root, err := filepath.Abs(os.Getenv("INTEROP_ROOT"))
	if err != nil || os.Getenv("INTEROP_ROOT") == "" {
		t.Fatal("INTEROP_ROOT is not set: run make interop")
	}
	script := `mount -t overlay overlay -o "lowerdir=$0/usr:/usr" /usr || exit; ` +
		`[ -z "$1" ] || mount --bind "$1" /etc/resolv.conf || exit; shift; exec "$@"`
	cmd := exec.Command("sh", slices.Concat([]string{"-c", script, root, resolvConf, program}, args)...)
	cmd.Dir = t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}

func file(t *testing.T, format string, args ...any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "conf")
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// primary starts coredns on objects, db and db100, and returns its port on 127.0.0.1. It answers at another address,
// too, unless that is empty, and sends NOTIFY to the ports of secondaries.
func primary(t *testing.T, objs model.Objects, also string, secondaries ...int) (api *stub.Server, at int) {
	t.Helper()
	shape := stub.Shape{Headless: []stub.Headless{db, db100}}
	for i := range objs.Imports {
		shape.MoreImports = append(shape.MoreImports, &objs.Imports[i])
	}
	for i := range objs.Slices {
		shape.MoreSlices = append(shape.MoreSlices, &objs.Slices[i])
	}
	api, err := stub.Start(shape)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	to := "*"
	for _, p := range secondaries {
		to += fmt.Sprintf(" 127.0.0.1:%d", p)
	}
	at = port(t)
	binary := os.Getenv("COREDNS_BINARY")
	if binary == "" {
		binary = "../../bin/coredns"
	}
	if binary, err = filepath.Abs(binary); err != nil {
		t.Fatal(err)
	}
	stanza := fmt.Sprintf("multicluster {\n endpoint %s\n nameserver 127.0.0.1\n }\n}\n", api.URL)
	corefile := fmt.Sprintf("clusterset.local:%d {\n bind 127.0.0.1\n transfer {\n to %s\n }\n %s", at, to, stanza)
	if host, port, err := net.SplitHostPort(also); err == nil {
		corefile += fmt.Sprintf("clusterset.local:%s {\n bind %s\n %s", port, host, stanza)
	}
	run(t, binary, "-conf", file(t, "%s", corefile))
	eventually(
		t,
		"coredns answers",
		func() bool { return len(ask(at, "dns-version."+zone, dns.TypeTXT, 0).Answer) == 1 },
	)
	eventually(t, "coredns has its lists", func() bool { return len(ask(at, dbName, dns.TypeA, 4096).Answer) == 30 })
	return api, at
}

const (
	dbName    = "db-30.db.svc." + zone
	db100Name = "db-100.db.svc." + zone
)

// ask returns the reply of a server, over TCP only if the reply over UDP is cut, or none.
func ask(at int, name string, qtype, edns uint16) *dns.Msg {
	q := new(dns.Msg).SetQuestion(name, qtype)
	if edns > 0 {
		q.SetEdns0(edns, false)
	}
	for _, network := range []string{"udp", "tcp"} {
		c := &dns.Client{Net: network, Timeout: 5 * time.Second}
		m, _, err := c.Exchange(q, fmt.Sprintf("127.0.0.1:%d", at))
		if err != nil {
			break
		}
		if !m.Truncated {
			return m
		}
	}
	return none()
}

// none stands for no reply. Its code is none that a reply can have.
func none() *dns.Msg { return &dns.Msg{MsgHdr: dns.MsgHdr{Rcode: -1}} }

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// resolvers are started with a port to listen on and the port of coredns.
var resolvers = map[string]func(t *testing.T, at, to int){
	"unbound": func(t *testing.T, at, to int) {
		run(
			t,
			"unbound",
			"-d",
			"-p",
			"-c",
			file(t, "server:\n interface: 127.0.0.1@%d\n chroot: \"\"\n directory: \"%s\"\n username: \"\"\n"+
				" do-daemonize: no\n pidfile: \"\"\n use-syslog: no\n do-not-query-localhost: no\n"+
				" module-config: iterator\n"+
				"forward-zone:\n name: %s\n forward-addr: 127.0.0.1@%d\n",
				at, t.TempDir(), zone, to),
		)
	},
	"bind": func(t *testing.T, at, to int) {
		named(t, at, "zone \"%s\" { type forward; forward only; forwarders { 127.0.0.1 port %d; }; };\n", zone, to)
	},
	"dnsmasq": func(t *testing.T, at, to int) {
		run(
			t,
			"dnsmasq",
			"-k",
			"-C",
			"/dev/null",
			"-u",
			"root",
			"-x",
			"",
			"-R",
			"-h",
			"--bind-interfaces",
			"--log-facility=-",
			"-a",
			"127.0.0.1",
			fmt.Sprint("-p", at),
			fmt.Sprintf("-S/clusterset.local/127.0.0.1#%d", to),
		)
	},
	"kresd": func(t *testing.T, at, to int) {
		run(t, "kresd", "-n", "-c", file(t, "net.listen('127.0.0.1', %d)\ncache.size = 10*MB\n"+
			"policy.add(policy.suffix(policy.STUB('127.0.0.1@%d'), {todname('%s')}))\n", at, to, zone), t.TempDir())
	},
	"pdns_recursor": func(t *testing.T, at, to int) {
		dir := t.TempDir()
		run(t, "pdns_recursor", "--config-dir="+dir, "--socket-dir="+dir, "--daemon=no", "--local-address=127.0.0.1",
			fmt.Sprint("--local-port=", at), fmt.Sprintf("--forward-zones=clusterset.local=127.0.0.1:%d", to),
			"--dnssec=off", "--setuid=", "--setgid=", "--dont-query=", "--max-rrset-size=1000")
	},
}

func named(t *testing.T, at int, format string, args ...any) {
	t.Helper()
	conf := file(
		t,
		"options { directory \"%s\"; listen-on port %d { 127.0.0.1; }; listen-on-v6 { none; }; recursion yes;"+
			" dnssec-validation no; pid-file none; session-keyfile none; notify no; max-records-per-type 0; };\n"+
			"controls { };\n%s",
		t.TempDir(),
		at,
		fmt.Sprintf(format, args...),
	)
	run(t, "named", "-g", "-c", conf)
}

// TestCasesThroughResolvers: each case that asks for data has the same answer through each resolver as from coredns.
// Resolvers shuffle records and lower TTLs, so neither is compared.
func TestCasesThroughResolvers(t *testing.T) {
	objs, err := model.LoadFixture("../cases/fixture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := model.LoadCases("../cases/dns.json")
	if err != nil {
		t.Fatal(err)
	}
	_, to := primary(t, objs, "")
	for name, start := range resolvers {
		t.Run(name, func(t *testing.T) {
			at, asked := port(t), 0
			start(t, at, to)
			eventually(t, name+" answers", func() bool { return len(ask(at, dbName, dns.TypeA, 4096).Answer) == 30 })
			for _, c := range cases {
				q := c.Question()
				if !slices.Contains([]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV}, q.Type) ||
					!dns.IsSubDomain(zone, q.Name) {
					continue
				}
				asked++
				want, got := ask(to, q.Name, q.Type, 4096), ask(at, q.Name, q.Type, 4096)
				if want.Rcode < 0 || got.Rcode != want.Rcode || !slices.Equal(data(got), data(want)) {
					t.Errorf(
						"%s %s: %s %v, want %s %v",
						q.Name,
						dns.TypeToString[q.Type],
						dns.RcodeToString[got.Rcode],
						data(got),
						dns.RcodeToString[want.Rcode],
						data(want),
					)
				}
			}
			if asked < 50 {
				t.Errorf("only %d cases ask for data", asked)
			}
		})
	}
}

// data returns the answer's records without their TTLs, sorted, in lower case.
func data(m *dns.Msg) (all []string) {
	for _, rr := range m.Answer {
		rr := dns.Copy(rr)
		rr.Header().Ttl = 0
		all = append(all, strings.ToLower(rr.String()))
	}
	slices.Sort(all)
	return all
}

// TestSecondariesFollow by NOTIFY and transfer: they have what coredns has, and have a change within seconds,
// although
// the SOA's refresh is a minute.
func TestSecondariesFollow(t *testing.T) {
	objs, err := model.LoadFixture("../cases/fixture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]int{"nsd": port(t), "bind": port(t)}
	api, to := primary(t, objs, "", ports["nsd"], ports["bind"])
	run(t, "nsd", "-d", "-c", file(t, "server:\n ip-address: 127.0.0.1@%d\n username: \"\"\n zonesdir: \"\"\n"+
		" database: \"\"\n pidfile: \"\"\n xfrdfile: \"\"\n zonelistfile: \"%s\"\n"+
		"remote-control:\n control-enable: no\n"+
		"zone:\n name: %s\n allow-notify: 127.0.0.1 NOKEY\n request-xfr: AXFR 127.0.0.1@%d NOKEY\n",
		ports["nsd"], filepath.Join(t.TempDir(), "zones"), zone, to))
	named(
		t,
		ports["bind"],
		"zone \"%s\" { type secondary; primaries { 127.0.0.1 port %d; }; file \"zone\"; };\n",
		zone,
		to,
	)
	same := func() bool {
		for _, at := range ports {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeSOA} {
				name := map[uint16]string{dns.TypeA: dbName, dns.TypeSOA: zone}[qtype]
				if want := data(ask(to, name, qtype, 4096)); len(want) == 0 ||
					!slices.Equal(data(ask(at, name, qtype, 4096)), want) {
					return false
				}
			}
		}
		return true
	}
	eventually(t, "secondaries have the zone", same)
	for i := range 3 {
		slice := db.Slices()[0]
		slice.Endpoints[i].Conditions.Ready = new(false)
		before := data(ask(to, zone, dns.TypeSOA, 0))
		if err := api.PutSlice(slice); err != nil {
			t.Fatal(err)
		}
		eventually(
			t,
			"coredns has the change",
			func() bool {
				now := data(ask(to, zone, dns.TypeSOA, 0))
				return len(before) > 0 && len(now) > 0 && !slices.Equal(now, before)
			},
		)
		began := time.Now()
		eventually(t, "secondaries have the change", same)
		t.Logf("change %d: %v", i, time.Since(began))
	}
}
