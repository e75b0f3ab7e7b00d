//go:build interop

package interop

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clusterset-dns/clusterset-dns/test/bench/stub"
	"github.com/clusterset-dns/clusterset-dns/test/model"
)

// TestMuslMeetsEveryEndpoint: musl before 1.2.4 asks over UDP only and uses answers that are cut to 512 octets. Over
// many look-ups it comes to every endpoint, and to each cluster as often as to the others (M3).
func TestMuslMeetsEveryEndpoint(t *testing.T) {
	const host, lookups = "127.0.9.53", 200
	primary(t, model.Objects{}, host+":53")
	root := os.Getenv("INTEROP_ROOT")
	binary := filepath.Join(t.TempDir(), "lookup")
	lib := filepath.Join(root, "usr/lib/x86_64-linux-musl")
	out, err := exec.Command("gcc", "-static", "-nostdinc", "-nostdlib", "-o", binary,
		"-isystem", filepath.Join(root, "usr/include/x86_64-linux-musl"),
		filepath.Join(lib, "crt1.o"), filepath.Join(lib, "crti.o"), "testdata/lookup.c",
		filepath.Join(lib, "libc.a"), "-lgcc", filepath.Join(lib, "crtn.o")).CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err = command(t, file(t, "nameserver %s\n", host), binary,
		strings.TrimSuffix(db100Name, "."), fmt.Sprint(lookups)).CombinedOutput()
	if err != nil {
		t.Fatalf("lookup: %v\n%s", err, out)
	}
	addrs := strings.Fields(string(out))
	if len(addrs) == 0 || len(addrs) >= lookups*db100.Endpoints {
		t.Fatalf("%d addresses in %d answers: want answers that are cut", len(addrs), lookups)
	}
	seen, perCluster := spread(t, addrs)
	t.Logf("%d addresses of %d endpoints; by cluster %v", len(addrs), seen, perCluster)
	if seen != db100.Endpoints {
		t.Errorf("%d of %d endpoints seen", seen, db100.Endpoints)
	}
	if least, most := slices.Min(perCluster), slices.Max(perCluster); most > least*5/4 {
		t.Errorf("addresses by cluster %v: want about the same of each", perCluster)
	}
}

// TestHAProxyMeetsEveryCluster: by default HAProxy takes 512 octets and uses a cut SRV answer (M3).
func TestHAProxyMeetsEveryCluster(t *testing.T) {
	_, to := primary(t, model.Objects{}, "")
	socket := filepath.Join(t.TempDir(), "stats")
	run(t, "haproxy", "-db", "-f", file(t, `global
 stats socket %s
defaults
 mode http
 timeout connect 5s
 timeout client 5s
 timeout server 5s
resolvers us
 nameserver us 127.0.0.1:%d
 timeout resolve 1s
backend db
 server-template s %d _http._tcp.%s resolvers us init-addr none
`, socket, to, db100.Endpoints, strings.TrimSuffix(db100Name, ".")))
	servers := func() (addrs []string) {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return nil
		}
		defer c.Close()
		fmt.Fprintln(c, "show servers state db")
		state, _ := io.ReadAll(c)
		for line := range strings.Lines(string(state)) {
			// be_id be_name srv_id srv_name srv_addr ...
			if f := strings.Fields(line); len(f) > 4 && f[1] == "db" {
				if ip, err := netip.ParseAddr(f[4]); err == nil && ip.Is4() && !ip.IsUnspecified() {
					addrs = append(addrs, f[4])
				}
			}
		}
		return addrs
	}
	eventually(t, "HAProxy has servers of every cluster", func() bool {
		_, perCluster := spread(t, servers())
		return slices.Min(perCluster) > 0
	})
	seen, perCluster := spread(t, servers())
	t.Logf("%d servers; by cluster %v", seen, perCluster)
	if seen == db100.Endpoints {
		t.Error("HAProxy has all: its answer was not cut")
	}
}

// spread counts the distinct endpoints of db100 among addresses, and the addresses of each cluster.
func spread(t *testing.T, addrs []string) (distinct int, perCluster []int) {
	t.Helper()
	cluster := make(map[string]int)
	for _, s := range db100.Slices() {
		for _, e := range s.Endpoints {
			var n int
			fmt.Sscanf(s.Labels["multicluster.kubernetes.io/source-cluster"], "cluster-%d", &n)
			cluster[e.Addresses[0]] = n
		}
	}
	perCluster = make([]int, stub.Clusters)
	seen := make(map[string]bool)
	for _, addr := range addrs {
		n, ok := cluster[addr]
		if !ok {
			t.Fatalf("%s is not an endpoint of %s", addr, db100Name)
		}
		perCluster[n-1]++
		seen[addr] = true
	}
	return len(seen), perCluster
}
