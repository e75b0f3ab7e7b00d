//go:build databases

package databases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestGalera(t *testing.T) {
	g := &galera{database{
		page: "docs/databases.md", section: "Galera", name: "galera",
		version: "MariaDB " + version(t, `(\d+\.\d+\.\d+)-MariaDB`, "mariadbd", "--version"),
	}}
	g.write, g.read, g.leader = g.insert, g.rows, g.members
	play(t, g.database)
}

// galera is asked by Debian's client, which uses the resolver of a cluster.
type galera struct{ database }

func (g *galera) ask(ctx context.Context, in *cluster, host, question string) (string, error) {
	resolv, err := os.CreateTemp("", "databases-resolv-")
	if err != nil {
		return "", err
	}
	defer os.Remove(resolv.Name())
	_, err = resolv.WriteString(in.resolvConf())
	if err := errors.Join(err, resolv.Close()); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c",
		`mount --bind "$0" /etc/resolv.conf && exec "$@"`, resolv.Name(), "mariadb", "--no-defaults",
		"--connect-timeout=1", "-N", "-B", "-uapp", "-pchange-me", "-h", host, "-e", question).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (g *galera) insert(ctx context.Context, in *cluster, n int) error {
	_, err := g.ask(ctx, in, g.service(), fmt.Sprintf("INSERT INTO app.writes VALUES (%d)", n))
	return err
}

// rows are those of the cluster's own member, once it has applied what was committed before.
func (g *galera) rows(ctx context.Context, in *cluster) ([]string, error) {
	answer, err := g.ask(ctx, in, g.host(in), "SET wsrep_sync_wait = 1; SELECT * FROM app.writes")
	return strings.Fields(answer), err
}

// members asks each for the size of its component. In Galera nobody leads: every member takes writes. The one with
// index 0 stands for it, which the others count from.
func (g *galera) members(ctx context.Context, of []*cluster) (leader string, err error) {
	for _, c := range of {
		answer, err := g.ask(ctx, of[0], g.host(c), "SELECT variable_value FROM information_schema.global_status "+
			"WHERE variable_name IN ('wsrep_cluster_size', 'wsrep_cluster_status', 'wsrep_local_index', "+
			"'wsrep_local_state_comment') ORDER BY variable_name")
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.ID, err)
		}
		fields := strings.Fields(answer) // size, status, index, state
		if len(fields) != 4 || fields[0] != fmt.Sprint(len(of)) || fields[1] != "Primary" || fields[3] != "Synced" {
			return "", fmt.Errorf("%s: %v", c.ID, fields)
		}
		if fields[2] == "0" {
			leader = c.ID
		}
	}
	_, err = g.ask(ctx, of[0], g.host(of[0]), "CREATE TABLE IF NOT EXISTS app.writes (n INT PRIMARY KEY)")
	return leader, err
}
