//go:build databases

package databases

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestEtcd(t *testing.T) {
	e := &etcd{database{
		page: "docs/databases.md", section: "etcd", name: "etcd",
		version: version(t, `(\d+\.\d+\.\S+)`, "etcd", "--version"),
	}}
	e.write, e.read, e.leader = e.put, e.keys, e.members
	play(t, e.database)
}

// etcd is asked by its JSON API, with the names of docs/databases.md.
type etcd struct{ database }

// ask posts a question to a name.
func (e *etcd) ask(ctx context.Context, in *cluster, host, path, question string, answer any) error {
	conn, err := in.dial(ctx, host, 2379)
	if err != nil {
		return err
	}
	defer conn.Close()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+path, strings.NewReader(question))
	if err != nil {
		return err
	}
	resp, err := overConn(conn).Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return errors.Join(err, json.Unmarshal(body, answer))
}

func (e *etcd) put(ctx context.Context, in *cluster, n int) error {
	key := strconv.AppendInt([]byte("n"), int64(n), 10)
	question, _ := json.Marshal(map[string][]byte{"key": key, "value": bytes.Repeat([]byte("x"), 100)})
	return e.ask(ctx, in, e.service(), "/v3/kv/put", string(question), &struct{}{})
}

// keys reads what the member itself has.
func (e *etcd) keys(ctx context.Context, in *cluster) (out []string, err error) {
	var answer struct{ Kvs []struct{ Key []byte } }
	question, _ := json.Marshal(map[string]any{
		"key": []byte("n"), "range_end": []byte("o"), "keys_only": true, "serializable": true,
	})
	err = e.ask(ctx, in, e.host(in), "/v3/kv/range", string(question), &answer)
	for _, kv := range answer.Kvs {
		out = append(out, string(kv.Key))
	}
	return out, err
}

// members asks each who leads: they must agree, and none may lag.
func (e *etcd) members(ctx context.Context, of []*cluster) (leader string, err error) {
	leaders := map[string]string{} // by member
	said := map[string]bool{}
	for _, c := range of {
		var s struct {
			Header    struct{ Member_id string }
			Leader    string
			IsLearner bool
		}
		if err := e.ask(ctx, of[0], e.host(c), "/v3/maintenance/status", "{}", &s); err != nil {
			return "", fmt.Errorf("%s: %w", c.ID, err)
		}
		leaders[s.Header.Member_id], said[s.Leader] = c.ID, true
		leader = s.Leader
	}
	var list struct{ Members []struct{ ID string } }
	if err := e.ask(ctx, of[0], e.host(of[0]), "/v3/cluster/member/list", "{}", &list); err != nil {
		return "", err
	}
	if len(list.Members) != 3 || len(leaders) != len(of) || len(said) != 1 {
		return "", fmt.Errorf("%d members, %d answer and follow %d leaders", len(list.Members), len(leaders), len(said))
	}
	return leaders[leader], nil
}

// version is what a program calls itself.
func version(t *testing.T, pattern, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", `exec "$0" "$@"`, program)
	cmd.Args, cmd.Env = append(cmd.Args, args...), []string{"PATH=" + path}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
	return find(t, pattern, string(out))
}
