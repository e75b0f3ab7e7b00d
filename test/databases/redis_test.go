//go:build databases

package databases

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

func TestRedis(t *testing.T) {
	r := &redis{database{
		page: "docs/databases.md", section: "Redis", name: "redis",
		version: version(t, `v=(\d+\.\d+\.\d+)`, "redis-server", "--version"),
	}}
	r.write, r.read, r.leader = r.set, r.keys, r.members
	play(t, r.database)
}

// redis is asked by its protocol, and its sentinels for the primary.
type redis struct{ database }

// ask sends commands, and returns the reply to each: a line, or the lines of an array or a bulk.
func (r *redis) ask(ctx context.Context, in *cluster, host string, port int, commands ...string) ([]string, error) {
	conn, err := in.dial(ctx, host, port)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Join(commands, "\r\n")+"\r\n"); err != nil {
		return nil, err
	}
	var replies []string
	for lines := bufio.NewReader(conn); len(replies) < len(commands); {
		one, err := reply(lines)
		if err != nil {
			return nil, err
		}
		replies = append(replies, one)
	}
	return replies, nil
}

func reply(lines *bufio.Reader) (string, error) {
	line, err := lines.ReadString('\n')
	line = strings.TrimSpace(line)
	if err != nil || line == "" {
		return "", errors.Join(err, errors.New("no reply"))
	}
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '-':
		return "", errors.New(line[1:])
	case '$':
		if n < 0 {
			return "", nil
		}
		bulk := make([]byte, n+2)
		_, err := io.ReadFull(lines, bulk)
		return strings.TrimSpace(string(bulk)), err
	case '*':
		var all []string
		for range n {
			one, err := reply(lines)
			if err != nil {
				return "", err
			}
			all = append(all, one)
		}
		return strings.Join(all, " "), nil
	}
	return line[1:], nil
}

// primary is the name that a sentinel gives.
func (r *redis) primary(ctx context.Context, in *cluster, sentinel string) (string, error) {
	replies, err := r.ask(ctx, in, sentinel, 26379, "SENTINEL get-master-addr-by-name db")
	if err != nil {
		return "", err
	}
	host, _, _ := strings.Cut(replies[0], " ")
	return host, nil
}

// set is confirmed once a replica has it as well.
func (r *redis) set(ctx context.Context, in *cluster, n int) error {
	host, err := r.primary(ctx, in, r.service())
	if err != nil {
		return err
	}
	replies, err := r.ask(ctx, in, host, 6379, fmt.Sprintf("SET n%d x", n), "WAIT 1 1000")
	if err == nil && replies[1] == "0" {
		err = errors.New("no replica has it")
	}
	return err
}

func (r *redis) keys(ctx context.Context, in *cluster) ([]string, error) {
	replies, err := r.ask(ctx, in, r.host(in), 6379, "KEYS n*")
	return strings.Fields(strings.Join(replies, " ")), err
}

// members asks all sentinels for the primary, which must have all others as its replicas.
func (r *redis) members(ctx context.Context, of []*cluster) (leader string, err error) {
	var primary string
	for _, c := range of {
		host, err := r.primary(ctx, of[0], r.host(c))
		if err != nil {
			return "", fmt.Errorf("sentinel of %s: %w", c.ID, err)
		}
		if primary != "" && host != primary {
			return "", fmt.Errorf("sentinels name %s and %s", primary, host)
		}
		replies, err := r.ask(ctx, of[0], r.host(c), 26379, "SENTINEL ckquorum db")
		if err != nil {
			return "", fmt.Errorf("sentinel of %s: %w", c.ID, err)
		}
		if !strings.HasPrefix(replies[0], fmt.Sprintf("OK %d usable", len(of))) {
			return "", fmt.Errorf("sentinel of %s: %s", c.ID, replies[0])
		}
		primary = host
	}
	replies, err := r.ask(ctx, of[0], primary, 6379, "INFO replication")
	if err != nil {
		return "", err
	}
	if n := strings.Count(replies[0], "state=online"); n != len(of)-1 || !strings.Contains(replies[0], "role:master") {
		return "", fmt.Errorf("%s has %d replicas", primary, n)
	}
	_, rest, _ := strings.Cut(primary, ".")
	leader, _, _ = strings.Cut(rest, ".")
	return leader, nil
}
