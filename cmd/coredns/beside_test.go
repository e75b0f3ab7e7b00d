//go:build !race

// The plugin kubernetes sets the logger of klog at each start, while watches of the last start still read it: a race in
// CoreDNS, found once this process starts several servers.

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/pb"
	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/clusterset-dns/clusterset-dns/test/lab"
)

const (
	tsigKey    = "key.example."
	tsigSecret = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="
)

// A transport carries a question to a server at a port.
type transport func(r *dns.Msg, port int) (*dns.Msg, error)

// beside are plugins that multicluster shares a server block with, and transports. In lines, PORT is a free port,
// API the API server, and DIR a directory with a certificate, the zone's key and a zone file.
var beside = []struct {
	name   string
	lines  string
	scheme string
	asked  []transport // nil: UDP and TCP
}{
	{name: "acl", lines: "acl {\nallow net 127.0.0.0/8\nblock\n}"},
	{name: "any", lines: "any"},
	{name: "autopath", lines: "autopath @kubernetes\n" + kubernetes("pods verified")},
	{name: "bufsize", lines: "bufsize 4096"},
	{name: "cache", lines: "cache 30"},
	{name: "cache, refreshed", lines: "cache 30 {\nprefetch 1 1m 10%\nserve_stale 1h verify 1m\n}"},
	{name: "cancel", lines: "cancel 5s"},
	{name: "chaos", lines: "chaos test"},
	{name: "debug", lines: "debug"},
	{name: "dns64", lines: "dns64"},
	{name: "dnssec", lines: "dnssec {\nkey file DIR/zone\n}"},
	{name: "dnstap", lines: "dnstap tcp://127.0.0.1:1 full"},
	{name: "errors", lines: "errors"},
	{name: "forward", lines: "forward . 127.0.0.1:1"},
	{name: "header", lines: "header {\nresponse set ra\n}"},
	{name: "health", lines: "health 127.0.0.1:PORT"},
	{name: "k8s_external", lines: "k8s_external example.org\n" + kubernetes("")},
	{name: "kubeadm's", lines: "errors\nready 127.0.0.1:PORT\n" + kubernetes("pods insecure") +
		"\nforward . 127.0.0.1:1\ncache 30\nreload\nloadbalance"},
	{name: "loadbalance", lines: "loadbalance"},
	{name: "local", lines: "local"},
	{name: "log", lines: "log . {combined}"},
	{name: "loop", lines: "loop"},
	{name: "metadata", lines: "metadata\nlog . {/multicluster/service}"},
	{name: "minimal", lines: "minimal"},
	{name: "multisocket", lines: "multisocket 2"},
	{name: "nsid", lines: "nsid test"},
	{name: "prometheus", lines: "prometheus 127.0.0.1:PORT"},
	{name: "ready", lines: "ready 127.0.0.1:PORT"},
	{name: "reload", lines: "reload"},
	{name: "rewrite", lines: "rewrite name exact alias.clusterset.local svc-00000.ns-000.svc.clusterset.local"},
	{name: "shed", lines: "shed"},
	{name: "sign", lines: "sign DIR/db clusterset.local {\nkey file DIR/zone\ndirectory DIR\n}"},
	{name: "template", lines: "template IN A other.clusterset.local {\nrcode NXDOMAIN\n}"},
	{name: "timeouts", lines: "timeouts {\nread 3s\n}"},
	{name: "trace", lines: "trace 127.0.0.1:1"},
	{name: "transfer", lines: "transfer {\nto *\n}"},
	{
		name:  "tsig",
		lines: "tsig {\nsecret " + tsigKey + " " + tsigSecret + "\nrequire all\n}",
		asked: []transport{signed(overUDP), signed(overTCP)},
	},
	{name: "view", lines: "view all {\nexpr client_ip() == '127.0.0.1'\n}"},
	{name: "over DoT", lines: "tls DIR/cert DIR/key", scheme: "tls", asked: []transport{overTLS}},
	{name: "over DoH", lines: "tls DIR/cert DIR/key", scheme: "https", asked: []transport{overHTTPS}},
	{name: "over DoH3", lines: "tls DIR/cert DIR/key", scheme: "https3", asked: []transport{overHTTPS3}},
	{name: "over DoQ", lines: "tls DIR/cert DIR/key", scheme: "quic", asked: []transport{overQUIC}},
	{name: "over gRPC", scheme: "grpc", asked: []transport{overGRPC}},
}

func kubernetes(option string) string {
	return "kubernetes cluster.local {\nendpoint API\nstartup_timeout 1ms\n" + option + "\n}"
}

// Beside each plugin, and over each transport, our zone answers as it does alone.
func TestItAnswersBesideEveryPlugin(t *testing.T) {
	stock, quiet := slices.Clone(dnsserver.Directives), caddy.Quiet
	t.Cleanup(func() { dnsserver.Directives, dnsserver.Quiet, caddy.Quiet = stock, quiet, quiet })
	order()
	dnsserver.Quiet, caddy.Quiet = true, true
	api, err := stub.Start(stub.Shape{Imports: 1, Headless: []stub.Headless{
		{Name: "db", Endpoints: 30}, {Name: "large", Endpoints: 5000}, // the second fits into no message
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	dir := files(t)
	for _, row := range beside {
		t.Run(row.name, func(t *testing.T) {
			lines := strings.NewReplacer("API", api.URL, "DIR", dir, "PORT", strconv.Itoa(freePort(t))).
				Replace(row.lines)
			port := start(t, row.scheme, "multicluster {\nendpoint "+api.URL+"\n}\n"+lines)
			asked := row.asked
			if asked == nil {
				asked = []transport{overUDP, overTCP}
			}
			for _, ask := range asked {
				check(t, func(r *dns.Msg) (*dns.Msg, error) { return ask(r, port) })
				r := new(dns.Msg).SetQuestion("large.db.svc.clusterset.local.", dns.TypeA)
				r.SetEdns0(dns.MinMsgSize, false)
				if m, err := ask(r, port); err != nil || !m.Truncated {
					t.Errorf("an answer that is too large: %v\n%v", err, m)
				}
			}
		})
	}
}

// start runs a server block for our zone, and returns its port.
func start(t *testing.T, scheme, lines string) int {
	t.Helper()
	if scheme == "" {
		scheme = "dns"
	}
	port := freePort(t)
	run(t, fmt.Sprintf("%s://clusterset.local:%d {\nbind 127.0.0.1\n%s\n}\n", scheme, port, lines))
	return port
}

// run runs a Corefile.
func run(t *testing.T, text string) {
	t.Helper()
	i, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(text), ServerTypeName: "dns"})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	t.Cleanup(func() {
		i.ShutdownCallbacks()
		if err := i.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// check asks for what the stub's clusterset has.
func check(t *testing.T, ask func(*dns.Msg) (*dns.Msg, error)) {
	t.Helper()
	const web = "svc-00000.ns-000.svc.clusterset.local."
	for _, q := range []struct {
		name          string
		qtype, qclass uint16
		rcode         int
		answers       int // of the type
	}{
		{web, dns.TypeA, dns.ClassINET, dns.RcodeSuccess, 1},
		{"_https._tcp." + web, dns.TypeSRV, dns.ClassINET, dns.RcodeSuccess, 1},
		{"db.db.svc.clusterset.local.", dns.TypeA, dns.ClassINET, dns.RcodeSuccess, 30},
		{"db.db.svc.clusterset.local.", dns.TypeSRV, dns.ClassINET, dns.RcodeSuccess, 30},
		{"absent.db.svc.clusterset.local.", dns.TypeA, dns.ClassINET, dns.RcodeNameError, 0},
		{web, dns.TypeTXT, dns.ClassINET, dns.RcodeSuccess, 0},
		{web, dns.TypeA, dns.ClassCHAOS, dns.RcodeRefused, 0},
	} {
		r := new(dns.Msg)
		r.SetQuestion(q.name, q.qtype)
		r.Question[0].Qclass = q.qclass
		r.SetEdns0(dns.MaxMsgSize-1, false)
		m, err := ask(r)
		end := time.Now().Add(2 * time.Minute)
		for err == nil && m.Rcode == dns.RcodeServerFailure && time.Now().Before(end) {
			time.Sleep(5 * time.Millisecond) // its watches are not complete yet
			m, err = ask(r)
		}
		if err != nil {
			t.Errorf("%s %s: %v", q.name, dns.TypeToString[q.qtype], err)
			continue
		}
		answers := 0
		for _, rr := range m.Answer {
			if rr.Header().Rrtype == q.qtype {
				answers++
			}
		}
		soa := slices.ContainsFunc(m.Ns, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeSOA })
		negative := q.qclass == dns.ClassINET && q.answers == 0
		if m.Rcode != q.rcode || answers != q.answers || m.Truncated || soa != negative {
			t.Errorf(
				"%s %s: want %s with %d records\n%v",
				q.name,
				dns.TypeToString[q.qtype],
				dns.RcodeToString[q.rcode],
				q.answers,
				m,
			)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	p, err := lab.ReservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Release)
	return p.Number
}

// files returns a directory with a certificate and its key, a key of the zone, and a zone file.
func files(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewTLSServer(nil)
	certificate := server.TLS.Certificates[0]
	server.Close()
	private, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write("cert", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))
	write("key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))

	header := dns.RR_Header{Name: "clusterset.local.", Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 3600}
	key := &dns.DNSKEY{Hdr: header, Flags: 257, Protocol: 3, Algorithm: dns.ECDSAP256SHA256}
	made, err := key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	write("zone.key", []byte(key.String()+"\n"))
	write("zone.private", []byte(key.PrivateKeyString(made.(*ecdsa.PrivateKey))))
	write(
		"db",
		[]byte("$ORIGIN clusterset.local.\n@ 60 IN SOA ns host 1 60 60 60 60\n@ 60 IN NS ns\nns 60 IN A 127.0.0.1\n"),
	)
	return dir
}

func at(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func exchange(network string, r *dns.Msg, port int) (*dns.Msg, error) {
	c := dns.Client{Net: network, Timeout: 5 * time.Second, UDPSize: dns.MaxMsgSize, TLSConfig: insecureTLS(),
		TsigSecret: map[string]string{tsigKey: tsigSecret}}
	m, _, err := c.Exchange(r, at(port))
	return m, err
}

func insecureTLS(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
}

// signed signs questions, and wants signed replies.
func signed(ask transport) transport {
	return func(r *dns.Msg, port int) (*dns.Msg, error) {
		r = r.Copy().SetTsig(tsigKey, dns.HmacSHA256, 300, time.Now().Unix())
		m, err := ask(r, port)
		if err == nil && m.IsTsig() == nil && m.Rcode != dns.RcodeRefused { // the server refuses other classes
			err = errors.New("the reply is not signed")
		}
		return m, err
	}
}

func overUDP(r *dns.Msg, port int) (*dns.Msg, error) { return exchange("udp", r, port) }
func overTCP(r *dns.Msg, port int) (*dns.Msg, error) { return exchange("tcp", r, port) }
func overTLS(r *dns.Msg, port int) (*dns.Msg, error) { return exchange("tcp-tls", r, port) }

func overHTTPS(r *dns.Msg, port int) (*dns.Msg, error) {
	carrier := &http.Transport{TLSClientConfig: insecureTLS(), ForceAttemptHTTP2: true}
	defer carrier.CloseIdleConnections()
	return post(carrier, r, port)
}

func overHTTPS3(r *dns.Msg, port int) (*dns.Msg, error) {
	carrier := &http3.Transport{TLSClientConfig: insecureTLS()}
	defer carrier.Close()
	return post(carrier, r, port)
}

// post asks as RFC 8484 says.
func post(carrier http.RoundTripper, r *dns.Msg, port int) (*dns.Msg, error) {
	b, err := r.Pack()
	if err != nil {
		return nil, err
	}
	c := http.Client{Transport: carrier, Timeout: 5 * time.Second}
	response, err := c.Post("https://"+at(port)+"/dns-query", "application/dns-message", bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if b, err = io.ReadAll(response.Body); err != nil {
		return nil, err
	}
	return unpacked(b)
}

// overQUIC asks as RFC 9250 says.
func overQUIC(r *dns.Msg, port int) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := quic.DialAddr(ctx, at(port), insecureTLS("doq"), nil)
	if err != nil {
		return nil, err
	}
	defer c.CloseWithError(0, "")
	stream, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	zeroID := r.Copy()
	zeroID.Id = 0
	b, err := zeroID.Pack()
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
		return nil, err
	}
	if err := stream.Close(); err != nil {
		return nil, err
	}
	if b, err = io.ReadAll(stream); err != nil {
		return nil, err
	}
	return unpacked(b[2:])
}

func overGRPC(r *dns.Msg, port int) (*dns.Msg, error) {
	c, err := grpc.NewClient(at(port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	b, err := r.Pack()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	packet, err := pb.NewDnsServiceClient(c).Query(ctx, &pb.DnsPacket{Msg: b})
	if err != nil {
		return nil, err
	}
	return unpacked(packet.GetMsg())
}

func unpacked(b []byte) (*dns.Msg, error) {
	m := new(dns.Msg)
	return m, m.Unpack(b)
}
