package integration

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// question is what dig is asked.
type question struct {
	name  string
	qtype string
	tcp   bool
	edns  int // buffer size; 0: no EDNS
	args  []string
}

// dig asks the server at addr with the real dig and reads what it prints back into a message.
func dig(t testing.TB, addr string, q question) *dns.Msg {
	t.Helper()
	m, err := tryDig(t.Context(), addr, q)
	if err != nil {
		t.Fatalf("dig %s %s @%s: %v", q.name, q.qtype, addr, err)
	}
	return m
}

func tryDig(ctx context.Context, addr string, q question) (*dns.Msg, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	args := []string{
		"@" + host,
		"-p",
		port,
		q.name,
		q.qtype,
		"+norecurse",
		"+tries=1",
		"+time=120",
		"+nocookie",
		"+noshowsearch",
		"+nosearch",
		"+noidnin",
		"+noidnout",
		"+noall",
		"+comments",
		"+question",
		"+answer",
		"+authority",
		"+additional",
		"+ignore",
	}
	if q.tcp {
		args = append(args, "+tcp")
	} else {
		args = append(args, "+notcp")
	}
	if q.edns > 0 {
		args = append(args, fmt.Sprintf("+bufsize=%d", q.edns))
	} else {
		args = append(args, "+noedns")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "dig", append(args, q.args...)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return parseDig(string(out))
}

// parseDig reads the last message that dig prints: the one received.
func parseDig(out string) (*dns.Msg, error) {
	at := strings.LastIndex(out, ";; Got answer:")
	if at < 0 {
		return nil, fmt.Errorf("no answer in: %s", out)
	}
	m := new(dns.Msg)
	var section *[]dns.RR
	for lines := bufio.NewScanner(strings.NewReader(out[at:])); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		switch {
		case strings.HasPrefix(line, ";; ->>HEADER<<-"):
			status := field(line, "status: ")
			rcode, ok := dns.StringToRcode[status]
			if !ok {
				return nil, fmt.Errorf("status %q", status)
			}
			m.Rcode = rcode
			id, _ := strconv.Atoi(field(line, "id: "))
			m.Id = uint16(id)
		case strings.HasPrefix(line, ";; flags:"):
			flags := strings.Fields(strings.SplitN(strings.TrimPrefix(line, ";; flags:"), ";", 2)[0])
			for _, f := range flags {
				switch f {
				case "qr":
					m.Response = true
				case "aa":
					m.Authoritative = true
				case "tc":
					m.Truncated = true
				case "rd":
					m.RecursionDesired = true
				}
			}
		case strings.HasPrefix(line, ";; QUESTION SECTION"):
			section = nil
		case strings.HasPrefix(line, ";; ANSWER SECTION"):
			section = &m.Answer
		case strings.HasPrefix(line, ";; AUTHORITY SECTION"):
			section = &m.Ns
		case strings.HasPrefix(line, ";; ADDITIONAL SECTION"):
			section = &m.Extra
		case strings.HasPrefix(line, ";;"), line == "", strings.HasPrefix(line, "; EDNS"):
		case strings.HasPrefix(line, ";") && section == nil:
			f := strings.Fields(line[1:])
			if len(f) == 3 {
				m.Question = []dns.Question{{Name: f[0], Qclass: dns.ClassINET, Qtype: typeOf(f[2])}}
			}
		case section != nil:
			rr, err := dns.NewRR(line)
			if err != nil {
				return nil, fmt.Errorf("record %q: %w", line, err)
			}
			*section = append(*section, rr)
		}
	}
	return m, nil
}

func typeOf(s string) uint16 {
	if t, ok := dns.StringToType[s]; ok {
		return t
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(s, "TYPE"))
	return uint16(n)
}

// field is the word behind a label.
func field(line, label string) string {
	_, rest, _ := strings.Cut(line, label)
	word, _, _ := strings.Cut(rest, ",")
	return strings.TrimSpace(word)
}

// answers are the answer section in lines of type and data, for comparing and printing.
func answers(m *dns.Msg) []string {
	var out []string
	for _, rr := range m.Answer {
		out = append(out, strings.Join(strings.Fields(strings.TrimPrefix(rr.String(), rr.Header().String())), " "))
	}
	return out
}
