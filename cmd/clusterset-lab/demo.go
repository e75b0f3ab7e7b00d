package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// question is a DNS question with the only right answer.
type question struct {
	why, name, qtype string
	want             []string // data of the answer section, sorted
	status           string
}

const (
	ok  = "NOERROR"
	no  = "NXDOMAIN"
	web = "web.shop.svc.clusterset.local."
	db  = "db.shop.svc.clusterset.local."
)

// demo runs all steps, and fails at the first wrong answer. The caller must stop the stage, also after an error.
func demo(ctx context.Context, root string) (*stage, error) {
	s, err := setUp(ctx, root)
	if err != nil {
		return s, err
	}
	for _, act := range []func(context.Context) error{s.exporting, s.together, s.following, s.disagreeing, s.failing,
		s.leaving, func(ctx context.Context) error { return outside(ctx, s) }, s.unexporting} {
		if err := act(ctx); err != nil {
			return s, err
		}
	}
	fmt.Println("\nAll answers were right.")
	return s, nil
}

// exporting: east exports, and both clusters resolve the names.
func (s *stage) exporting(ctx context.Context) error {
	title("Export web and db from east; each cluster allocates its own VIP for web")
	if err := s.ask(ctx, s.west, question{"before the export, the name does not exist", web, "A", nil,
		no}); err != nil {
		return err
	}
	if err := s.export(ctx, s.east, "web", "db"); err != nil {
		return err
	}
	for _, m := range s.members() {
		for _, family := range []string{"A", "AAAA"} {
			vip, err := s.vip(ctx, m, family)
			if err != nil {
				return err
			}
			if err := s.ask(ctx, m, question{"the VIP in " + m.id, web, family, []string{vip},
				ok}); err != nil {
				return err
			}
		}
	}
	return s.askAll(ctx, s.west, []question{
		{"the port by its name", "_https._tcp." + web, "SRV", []string{"0 100 443 " + web}, ok},
		{"db is headless: west resolves it to the ready pods of east", db, "A", []string{"10.1.0.10", "10.1.0.11"}, ok},
		{"a name that nobody exports does not exist", "mail.shop.svc.clusterset.local.", "A", nil, no},
		{"cluster.local is answered as before", "kubernetes.default.svc.cluster.local.", "A", []string{"10.96.0.1"},
			ok},
	})
}

// together: west exports as well.
func (s *stage) together(ctx context.Context) error {
	title("Export both from west; the clusters serve them together")
	if err := s.export(ctx, s.west, "web", "db"); err != nil {
		return err
	}
	all := []string{"10.1.0.10", "10.1.0.11", "10.2.0.10", "10.2.0.11"}
	if err := s.ask(ctx, s.east, question{"the pods of both clusters", db, "A", all, ok}); err != nil {
		return err
	}
	return s.askAll(ctx, s.east, []question{
		{"db-0 is in both clusters; this one is west's", "db-0.west." + db, "A", []string{"10.2.0.10"}, ok},
		{"SRV has the port and host name of each pod, with its cluster ID", "_postgres._tcp." + db, "SRV", []string{
			"0 100 5432 db-0.east." + db, "0 100 5432 db-0.west." + db, "0 100 5432 db-1.east." + db,
			"0 100 5432 db-1.west." + db}, ok},
	})
}

// following: a pod of east becomes unready, and ready again.
func (s *stage) following(ctx context.Context) error {
	title("A pod in east becomes unready, and ready again: west follows")
	if err := s.ready(ctx, false, []string{"10.1.0.11", "10.2.0.10", "10.2.0.11"}); err != nil {
		return err
	}
	return s.ready(ctx, true, []string{"10.1.0.10", "10.1.0.11", "10.2.0.10", "10.2.0.11"})
}

// ready makes db-0 of east ready or unready, and measures how long west's answer takes to follow.
func (s *stage) ready(ctx context.Context, ready bool, want []string) error {
	patch := fmt.Sprintf(`[{"op":"replace","path":"/endpoints/0/conditions/ready","value":%v}]`, ready)
	if _, err := s.kubectl(ctx, s.east, "patch", "endpointslice", "db-1", "--type=json", "-p", patch); err != nil {
		return err
	}
	began := time.Now()
	if err := s.until(ctx, s.west, question{"", db, "A", want, ok}); err != nil {
		return err
	}
	text("%d ms after kubectl, dig in west gives %s", time.Since(began).Milliseconds(), strings.Join(want, " "))
	return nil
}

// disagreeing: a conflict, its explanation, and its resolution.
func (s *stage) disagreeing(ctx context.Context) error {
	title("West changes a port: the older export of east wins, and both clusters report the conflict")
	vip, err := s.vip(ctx, s.east, "A")
	if err != nil {
		return err
	}
	patch := `[{"op":"replace","path":"/spec/ports/0/port","value":8443}]`
	if _, err := s.kubectl(ctx, s.west, "patch", "service", "web", "--type=json", "-p", patch); err != nil {
		return err
	}
	if err := s.conflict(ctx, "True"); err != nil {
		return err
	}
	for _, m := range s.members() {
		out, err := s.kubectl(ctx, m, "get", "serviceexport", "web", "-o",
			`jsonpath={.status.conditions[?(@.type=="Conflict")].message}`)
		if err != nil {
			return err
		}
		text("%s", out)
	}
	if err := s.plugins(ctx, []plugin{{"explain the name", explainWeb}}); err != nil {
		return err
	}
	if err := s.ask(ctx, s.east, question{"the name still resolves", web, "A", []string{vip}, ok}); err != nil {
		return err
	}
	patch = `[{"op":"replace","path":"/spec/ports/0/port","value":443}]`
	if _, err := s.kubectl(ctx, s.west, "patch", "service", "web", "--type=json", "-p", patch); err != nil {
		return err
	}
	if err := s.conflict(ctx, "False"); err != nil {
		return err
	}
	text("the conflict is resolved")
	return nil
}

// conflict waits until both ServiceExports have the condition.
func (s *stage) conflict(ctx context.Context, status string) error {
	for _, m := range s.members() {
		err := s.eventually(func() (wrong, err error) {
			out, err := m.cluster.Kubectl(ctx, "", "-n", "shop", "get", "serviceexport", "web", "-o",
				`jsonpath={.status.conditions[?(@.type=="Conflict")].status}`)
			if out != status {
				wrong = fmt.Errorf("condition Conflict of shop/web in %s is %q, want %q", m.id, out, status)
			}
			return wrong, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// failing: the API servers of west and of the hub are killed.
func (s *stage) failing(ctx context.Context) error {
	title("Kill the API servers of the hub and of west: answers in west stay")
	vip, err := s.vip(ctx, s.west, "A")
	if err != nil {
		return err
	}
	s.hub.KillAPIServer()
	s.west.cluster.KillAPIServer()
	err = s.askAll(ctx, s.west, []question{
		{"CoreDNS answers from memory", web, "A", []string{vip}, ok},
		{"including the pods of both clusters", db, "A", []string{"10.1.0.10", "10.1.0.11", "10.2.0.10", "10.2.0.11"},
			ok},
	})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(s.hub.StartAPIServer(ctx), s.west.cluster.StartAPIServer(ctx)); err != nil {
		return err
	}
	text("restarted after %.1f s", time.Since(began).Seconds())
	return nil
}

// leaving: west leaves, and joins again.
func (s *stage) leaving(ctx context.Context) error {
	title("West leaves, and joins again; its Services and ServiceExports stay")
	if err := s.plugins(ctx,
		[]plugin{{"the agent withdraws its exports; then everything that join installed is deleted",
			leaveWest}}); err != nil {
		return err
	}
	if err := s.ask(ctx, s.east, question{"the pods of east remain", db, "A", []string{"10.1.0.10", "10.1.0.11"},
		ok}); err != nil {
		return err
	}
	if err := s.ask(ctx, s.west, question{"west no longer resolves the name", db, "A", nil, no}); err != nil {
		return err
	}
	if err := s.plugins(ctx, []plugin{{"the cluster ID is free again", joinWest}}); err != nil {
		return err
	}
	return s.ask(ctx, s.west, question{"all pods are back", db, "A",
		[]string{"10.1.0.10", "10.1.0.11", "10.2.0.10", "10.2.0.11"}, ok})
}

// unexporting: east withdraws, then west.
func (s *stage) unexporting(ctx context.Context) error {
	title("Delete the ServiceExports of east, then of west: the names no longer exist")
	if _, err := s.kubectl(ctx, s.east, "delete", "serviceexport", "web", "db"); err != nil {
		return err
	}
	if err := s.ask(ctx, s.east, question{"the pods of west remain", db, "A", []string{"10.2.0.10", "10.2.0.11"},
		ok}); err != nil {
		return err
	}
	if _, err := s.kubectl(ctx, s.west, "delete", "serviceexport", "web", "db"); err != nil {
		return err
	}
	for _, m := range s.members() {
		if err := s.ask(ctx, m, question{"no cluster exports it any more", web, "A", nil, no}); err != nil {
			return err
		}
	}
	return nil
}

// until repeats a question until the answer is right.
func (s *stage) until(ctx context.Context, m *member, q question) error {
	return s.eventually(func() (wrong, err error) {
		got, err := dig(ctx, m, q.name, q.qtype)
		return q.verify(got), err
	})
}

// ask waits for the right answer to a question, and prints it.
func (s *stage) ask(ctx context.Context, m *member, q question) error {
	if err := s.until(ctx, m, q); err != nil {
		return err
	}
	remark(q.why)
	command("dig %s %s %s   # in %s", digArgs(m), q.name, q.qtype, m.id)
	got, err := dig(ctx, m, q.name, q.qtype)
	if err != nil {
		return s.withLogs(err)
	}
	if got.status != ok {
		text("%s", got.status)
	}
	for _, d := range got.data {
		text("%s", d)
	}
	if err := q.verify(got); err != nil {
		return s.withLogs(err)
	}
	return nil
}

func (s *stage) askAll(ctx context.Context, m *member, questions []question) error {
	for _, q := range questions {
		if err := s.ask(ctx, m, q); err != nil {
			return err
		}
	}
	return nil
}

// verify fails for a wrong answer.
func (q question) verify(got answer) error {
	if got.status == q.status && slices.Equal(got.data, q.want) {
		return nil
	}
	return fmt.Errorf("wrong answer to %s %s: %s %q, want %s %q", q.name, q.qtype, got.status, got.data, q.status,
		q.want)
}

// answer is a reply in dig's output.
type answer struct {
	status string
	data   []string // of the answer section, sorted because loadbalance shuffles
}

func digArgs(m *member) string {
	host, port, _ := net.SplitHostPort(m.dns.Addr()) // the laboratory's own
	return "@" + host + " -p " + port
}

func dig(ctx context.Context, m *member, name, qtype string) (answer, error) {
	args := append(strings.Fields(digArgs(m)), name, qtype, "+nocookie", "+noall", "+comments", "+answer")
	out, err := exec.CommandContext(ctx, "dig", args...).CombinedOutput()
	if err != nil {
		return answer{}, fmt.Errorf("dig %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return read(string(out), qtype), nil
}

// read parses dig's output.
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
