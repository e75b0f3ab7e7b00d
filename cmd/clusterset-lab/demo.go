package main

import (
	"bufio"
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
	want             []string // data of the answer section, sorted; none: status
	status           string   // "" is NOERROR
}

// questions are asked while all is well.
var questions = []question{
	{why: "web runs in two clusters and has one address here, in each family the import has", name: web, qtype: "A", want: []string{"10.96.42.42"}},
	{name: web, qtype: "AAAA", want: []string{"fd00:96::42"}},
	{why: "the port by its name", name: "_https._tcp." + web, qtype: "SRV", want: []string{"0 100 443 " + web}},
	{why: "db is headless: every ready pod of every cluster", name: db, qtype: "A", want: []string{"10.1.0.10", "10.1.0.11", "10.2.0.10"}},
	{name: "_postgres._tcp." + db, qtype: "SRV", want: []string{
		"0 100 5432 db-0.north." + db, "0 100 5432 db-0.south." + db, "0 100 5432 db-1.north." + db}},
	{why: "one pod, by its host name in its cluster", name: "db-0.south." + db, qtype: "A", want: []string{"10.2.0.10"}},
	{why: "what nobody exports does not exist", name: "mail.shop.svc.clusterset.local.", qtype: "A", status: "NXDOMAIN"},
	{why: "and cluster.local is answered as ever", name: "kubernetes.default.svc.cluster.local.", qtype: "A", want: []string{"10.96.0.1"}},
}

const (
	web = "web.shop.svc.clusterset.local."
	db  = "db.shop.svc.clusterset.local."
)

// demo shows the product, and fails at the first wrong answer. What it returns is to be stopped, error or not.
func demo(ctx context.Context, root string) (*stage, error) {
	s, err := setUp(ctx, root)
	if err != nil {
		return s, err
	}
	title("Questions, and answers that are checked (dig: dig %s)", s.digArgs())
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
	title("The API server is killed: nothing is lost")
	s.cluster.KillAPIServer()
	for _, q := range []question{{name: web, qtype: "A", want: []string{"10.96.42.42"}}, {name: "db-0.south." + db, qtype: "A", want: []string{"10.2.0.10"}}} {
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
			text("%s A is followed by dig %d ms after kubectl: %s", db, took.Milliseconds(), strings.Join(got.data, " "))
			return nil
		}
		if took > limit {
			return fmt.Errorf("%s A is %v a minute after the change, want %v", db, got.data, want)
		}
	}
}

// check asks and shows a question. Its error is what is wrong with the answer.
func (s *stage) check(ctx context.Context, q question) error {
	if q.why != "" {
		remark(q.why)
	}
	command("dig %s %s", q.name, q.qtype)
	got, err := s.dig(ctx, q.name, q.qtype)
	if err != nil {
		return err
	}
	status := q.status
	if status == "" {
		status = "NOERROR"
	}
	if status != "NOERROR" || got.status != "NOERROR" {
		text("%s", got.status)
	}
	for _, d := range got.data {
		text("%s", d)
	}
	if got.status != status || !slices.Equal(got.data, q.want) {
		return fmt.Errorf("wrong answer to %s %s: %s %q, want %s %q\nCoreDNS said:\n%s", q.name, q.qtype, got.status, got.data, status, q.want, s.dns.Log())
	}
	return nil
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
	var a answer
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		line := lines.Text()
		if _, rest, ok := strings.Cut(line, "status: "); ok {
			a.status, _, _ = strings.Cut(rest, ",")
		} else if f := strings.Fields(line); len(f) > 4 && f[3] == qtype && !strings.HasPrefix(line, ";") {
			a.data = append(a.data, strings.Join(f[4:], " "))
		}
	}
	slices.Sort(a.data)
	return a, nil
}
