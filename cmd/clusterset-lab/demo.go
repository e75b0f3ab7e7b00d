package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// question is one that a reader would ask, with the only right answer.
type question struct {
	why, name, qtype string
	want             []string // data of the answer section, sorted
	status           string
}

// questions are asked while all is well.
var questions = []question{
	{"web runs in two clusters and has one address here, that of its ServiceImport", web, "A", []string{"10.96.42.42"}, ok},
	{"in IPv6 too, since the import has one", web, "AAAA", []string{"fd00:96::42"}, ok},
	{"the port by its name", "_https._tcp." + web, "SRV", []string{"0 100 443 " + web}, ok},
	{"db is headless: every ready pod of every cluster", db, "A", []string{"10.1.0.10", "10.1.0.11", "10.2.0.10"}, ok},
	{"the same with port and name of each, the name of its cluster in it", "_postgres._tcp." + db, "SRV", []string{
		"0 100 5432 db-0.north." + db, "0 100 5432 db-0.south." + db, "0 100 5432 db-1.north." + db}, ok},
	{"so one pod can be asked for: db-0 is in both clusters, this is south's", "db-0.south." + db, "A", []string{"10.2.0.10"}, ok},
	{"what nobody exports does not exist", "mail.shop.svc.clusterset.local.", "A", nil, "NXDOMAIN"},
	{"and cluster.local is answered as ever", "kubernetes.default.svc.cluster.local.", "A", []string{"10.96.0.1"}, ok},
}

// outage are asked while the API server is away.
var outage = []question{
	{"CoreDNS answers from memory", web, "A", []string{"10.96.42.42"}, ok},
	{"and knows every pod", "db-0.south." + db, "A", []string{"10.2.0.10"}, ok},
}

const (
	ok  = "NOERROR"
	web = "web.shop.svc.clusterset.local."
	db  = "db.shop.svc.clusterset.local."
)

// demo shows the product, and fails at the first wrong answer. What it returns is to be stopped, error or not.
func demo(ctx context.Context, root string) (*stage, error) {
	s, err := setUp(ctx, root)
	if err != nil {
		return s, err
	}
	title("Questions, and answers that are checked (dig is dig %s)", s.digArgs())
	for _, q := range questions {
		if err := s.check(ctx, q); err != nil {
			return s, err
		}
	}
	title("A pod in cluster north goes unready, and is ready again")
	if err := s.ready(ctx, false, []string{"10.1.0.11", "10.2.0.10"}); err != nil {
		return s, err
	}
	if err := s.ready(ctx, true, []string{"10.1.0.10", "10.1.0.11", "10.2.0.10"}); err != nil {
		return s, err
	}
	title("The API server is killed, and every answer stays")
	s.cluster.KillAPIServer()
	for _, q := range outage {
		if err := s.check(ctx, q); err != nil {
			return s, err
		}
	}
	began := time.Now()
	if err := s.cluster.StartAPIServer(ctx); err != nil {
		return s, err
	}
	text("it is back after %.1f s", time.Since(began).Seconds())
	fmt.Println("\nAll answers were right.")
	return s, nil
}

// ready makes db-0 of north ready or not, and waits until the answer follows.
func (s *stage) ready(ctx context.Context, ready bool, want []string) error {
	patch := fmt.Sprintf(`[{"op": "replace", "path": "/endpoints/0/conditions/ready", "value": %v}]`, ready)
	command("kubectl -n shop patch endpointslice db-north --type=json -p \\\n        '%s'", patch)
	if _, err := s.cluster.Kubectl(ctx, "", "-n", "shop", "patch", "endpointslice", "db-north", "--type=json", "-p", patch); err != nil {
		return err
	}
	began := time.Now()
	for {
		got, err := s.dig(ctx, db, "A")
		if err != nil {
			return err
		}
		took := time.Since(began)
		if slices.Equal(got.data, want) {
			text("%d ms after kubectl, dig %s A gives %s", took.Milliseconds(), db, strings.Join(got.data, " "))
			return nil
		}
		if took > limit {
			return fmt.Errorf("%s A is %v a minute after the change, want %v", db, got.data, want)
		}
	}
}

// check asks and shows a question. Its error is what is wrong with the answer.
func (s *stage) check(ctx context.Context, q question) error {
	remark(q.why)
	command("dig %s %s", q.name, q.qtype)
	got, err := s.dig(ctx, q.name, q.qtype)
	if err != nil {
		return err
	}
	if got.status != ok {
		text("%s", got.status)
	}
	for _, d := range got.data {
		text("%s", d)
	}
	if err := q.judge(got); err != nil {
		return fmt.Errorf("%w\nCoreDNS said:\n%s", err, s.dns.Log())
	}
	return nil
}

// judge says what is wrong with an answer.
func (q question) judge(got answer) error {
	if got.status == q.status && slices.Equal(got.data, q.want) {
		return nil
	}
	return fmt.Errorf("wrong answer to %s %s: %s %q, want %s %q", q.name, q.qtype, got.status, got.data, q.status, q.want)
}

// answer is what dig shows of a reply.
type answer struct {
	status string
	data   []string // of the answer section, sorted, since loadbalance shuffles
}

func (s *stage) digArgs() string {
	host, port, _ := net.SplitHostPort(s.dns.Addr()) // the laboratory's own
	return "@" + host + " -p " + port
}

func (s *stage) dig(ctx context.Context, name, qtype string) (answer, error) {
	args := append(strings.Fields(s.digArgs()), name, qtype, "+nocookie", "+noall", "+comments", "+answer")
	out, err := exec.CommandContext(ctx, "dig", args...).CombinedOutput()
	if err != nil {
		return answer{}, fmt.Errorf("dig %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return read(string(out), qtype), nil
}

// read takes the answer from dig's output.
func read(out, qtype string) answer {
	var a answer
	for line := range strings.Lines(out) {
		if _, rest, ok := strings.Cut(line, "status: "); ok {
			a.status, _, _ = strings.Cut(rest, ",")
		} else if f := strings.Fields(line); len(f) > 4 && f[3] == qtype && !strings.HasPrefix(line, ";") {
			a.data = append(a.data, strings.Join(f[4:], " "))
		}
	}
	slices.Sort(a.data)
	return a
}
