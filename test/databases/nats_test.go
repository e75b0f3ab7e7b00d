//go:build databases

package databases

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestNATS(t *testing.T) {
	n := &nats{database{
		page: "docs/databases.md", section: "NATS", name: "nats",
		version: version(t, `v(\d+\.\d+\.\d+)`, "nats-server", "--version"),
	}}
	n.write, n.read, n.leader = n.publish, n.messages, n.members
	play(t, n.database)
}

// nats is asked by its protocol, over a connection per question. What is written is a stream of three replicas.
type nats struct{ database }

// ask publishes and returns the reply, at a subject of its own: all servers of a cluster share the subjects.
func (n *nats) ask(
	ctx context.Context,
	in *cluster,
	host, subject, payload string,
) (map[string]json.RawMessage, error) {
	conn, err := in.dial(ctx, host, 4222)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n"+
		"SUB %[1]s 1\r\nPUB %[2]s %[1]s %[3]d\r\n%[4]s\r\n", rand.Text(), subject, len(payload), payload)
	if err != nil {
		return nil, err
	}
	for lines := bufio.NewReader(conn); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil, err
		}
		fields := strings.Fields(line)
		switch fields[0] {
		case "-ERR", "HMSG": // HMSG: nobody takes the question
			return nil, errors.New(line)
		case "MSG":
			var size int
			if _, err := fmt.Sscan(fields[len(fields)-1], &size); err != nil {
				return nil, err
			}
			body := make([]byte, size)
			if _, err := io.ReadFull(lines, body); err != nil {
				return nil, err
			}
			var answer map[string]json.RawMessage
			if err := json.Unmarshal(body, &answer); err != nil {
				return nil, err
			}
			if why, failed := answer["error"]; failed {
				err = fmt.Errorf("%s: %s", subject, why)
			}
			return answer, err
		}
	}
}

func (n *nats) publish(ctx context.Context, in *cluster, i int) error {
	_, err := n.ask(ctx, in, n.service(), fmt.Sprintf("db.%d", i), "")
	return err
}

// streamState is what JetStream's leader of the stream reports.
type streamState struct {
	state struct{ Subjects map[string]int }
	group struct {
		Leader   string
		Replicas []struct {
			Name             string
			Current, Offline bool
		}
	}
}

func (n *nats) stream(ctx context.Context, in *cluster, host string) (s streamState, err error) {
	answer, err := n.ask(ctx, in, host, "$JS.API.STREAM.INFO.db", `{"subjects_filter":"db.>"}`)
	if err != nil {
		return s, err
	}
	return s, errors.Join(json.Unmarshal(answer["state"], &s.state), json.Unmarshal(answer["cluster"], &s.group))
}

// messages are those of the stream, asked through the cluster's own member, which must be up to date.
func (n *nats) messages(ctx context.Context, in *cluster) (out []string, err error) {
	s, err := n.stream(ctx, in, n.host(in))
	if err == nil && s.group.Leader != n.member(in) {
		err = errors.New(n.member(in) + " is no replica")
		for _, r := range s.group.Replicas {
			if r.Name == n.member(in) {
				err = nil
				if !r.Current || r.Offline {
					err = errors.New(r.Name + " lags")
				}
			}
		}
	}
	for subject := range s.state.Subjects {
		out = append(out, strings.TrimPrefix(subject, "db."))
	}
	return out, err
}

// member is the name of a cluster's server.
func (n *nats) member(c *cluster) string { return n.name + "-0." + c.ID }

func (n *nats) members(ctx context.Context, of []*cluster) (leader string, err error) {
	s, err := n.stream(ctx, of[0], n.host(of[0]))
	if err != nil && strings.Contains(err.Error(), "stream not found") {
		_, err := n.ask(ctx, of[0], n.host(of[0]), "$JS.API.STREAM.CREATE.db",
			`{"name":"db","subjects":["db.>"],"num_replicas":3,"storage":"file"}`)
		return "", errors.Join(errors.New("no stream yet"), err)
	}
	if err != nil {
		return "", err
	}
	for _, c := range of {
		if _, err := n.messages(ctx, c); err != nil {
			return "", err
		}
	}
	return strings.TrimPrefix(s.group.Leader, n.name+"-0."), nil
}
